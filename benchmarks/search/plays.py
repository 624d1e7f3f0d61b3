"""Plays of every method on every game, each stored in a file when it ends.

Each line of ``plays.jsonl`` is one search. A search in this file is not played again, so an
interrupted benchmark continues, and the files of several machines can be concatenated.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import game as tables
from benchmarks.search import log, ours, peers
from benchmarks.search.game import Game, Play
from benchmarks.search.peers import Pick

Say = Callable[[str], None]
#: Numbers of full trainings after which the recommended setting is judged: four per octave.
LOOKS = tuple(round(2.0 ** (n / 4), 3) for n in range(25))
#: Budget of a search, in full trainings.
MOST = 64


@dataclass(frozen=True)
class Match:
    """One search of the benchmark."""

    table: str
    """Stem of the table's file."""
    game: str
    method: str
    workers: int
    play: int
    """Number of the play; the same number gives all methods the same split of the seeds."""


@dataclass(frozen=True)
class Selection:
    """The plays that a command should make."""

    tables: Sequence[Path]
    methods: Mapping[str, ours.Keys]
    """Our methods: name → keys of the spec."""
    peers: Sequence[str]
    """Names of the peers' methods."""
    plays: int
    """Number of plays of each game."""
    workers: Sequence[int]
    """Numbers of workers; each is played."""
    trainings: int = MOST
    """Budget of a search, in full trainings."""


def matches(selection: Selection, games: Sequence[tuple[Path, Game]]) -> Iterator[Match]:
    """Yield every search, play by play, so that a part of them is already useful."""
    for play in range(selection.plays):
        for workers in selection.workers:
            for path, game in games:
                for method in (*selection.methods, *selection.peers):
                    yield Match(path.stem, game.name, method, workers, play)


def play(match: Match, path: Path, keys: ours.Keys | None, trainings: int) -> dict[str, Any]:
    """Make one search; return its line of the file of plays.

    Args:
        path: file of the table.
        keys: keys of our spec; None for a method of a peer.
        trainings: budget, in full trainings.
    """
    began = time.monotonic()
    game = _game(path, match.game)
    split = Play(game, match.play)
    looks = [look for look in LOOKS if look <= trainings]
    marks = [look * game.points for look in looks]
    if keys is not None:
        picks: Iterable[Pick] = ours.search(keys, split, match.workers, trainings, marks)
        by = ""
    else:
        method = peers.methods()[match.method]
        picks = peers.run_search(method.make(game, match.play), split, match.workers, trainings)
        by = method.version
    at_marks, points = _picks_at(picks, marks)
    regret = [None if pick is None else round(split.regret(pick.row), 3) for pick in at_marks]
    excess = [None if pick is None else round(_excess(split, pick), 3) for pick in at_marks]
    return {
        **asdict(match),
        "steps": game.steps,
        "by": by,
        "regret": regret,
        "excess": excess,
        "errors": [None if pick is None else _errors(split, pick) for pick in at_marks],
        "spent": round(points / game.points, 3),
        "seconds": round(time.monotonic() - began, 2),
    }


def _excess(split: Play, pick: Pick) -> float:
    """Return the claimed score less the true one, in per cent of the game's scale."""
    return 100 * (pick.claim - split.truth(pick.row)) / split.game.scale


def _errors(split: Play, pick: Pick) -> float | None:
    """Return the distance of the claim from the truth, in standard errors of the difference.

    Returns None if the search states no error.
    """
    if pick.error is None:
        return None
    error = math.hypot(pick.error, split.standard_error(pick.row))
    return round(abs(pick.claim - split.truth(pick.row)) / error, 3) if error else None


def _picks_at(picks: Iterable[Pick], marks: Sequence[float]) -> tuple[list[Pick | None], float]:
    """Return the newest pick at each mark, None before the first pick, and the points used.

    If a search ends itself, its last pick is that of all later marks.
    """
    newest: list[Pick | None] = [None] * len(marks)
    points = 0.0
    for pick in picks:
        points = min(float(pick.points), marks[-1])
        first = int(np.searchsorted(marks, pick.points))
        if first == len(marks):
            break
        newest[first:] = [pick] * (len(marks) - first)
    return newest, points


@cache
def _games(path: Path) -> Mapping[str, Game]:
    return {game.name: game for game in tables.load(path)}


def _game(path: Path, name: str) -> Game:
    return _games(path)[name]


def available(selection: Selection, game: Game, say: Say) -> Selection:
    """Return the part of a selection that can be played here; `say` gets a line for each other.

    Args:
        game: any game, to try the methods.
    """
    methods, own, others = peers.methods(), {}, []
    for method, keys in selection.methods.items():
        if reason := ours.refusal(keys, game):
            say(f"{method} is skipped: {reason}")
        else:
            own[method] = keys
    for method in selection.peers:
        if reason := peers.obstacle(methods[method], game):
            say(f"{method} is skipped: {reason}")
        else:
            others.append(method)
    return replace(selection, methods=own, peers=others)


def run(selection: Selection, path: Path, jobs: int, say: Say) -> None:
    """Play the searches that the file of plays does not contain.

    Args:
        jobs: number of searches at the same time.
    """
    games = [(file, game) for file in selection.tables for game in _games(file).values()]
    if not games:
        say("there is no table to play; name one with --table FILE")
        return
    selection = available(selection, games[0][1], say)
    done = {_key(row) for row in log.read(path)}
    paths = {(file.stem, game.name): file for file, game in games}
    left = [match for match in matches(selection, games) if match not in done]
    calls = [
        (
            match,
            paths[match.table, match.game],
            selection.methods.get(match.method),
            selection.trainings,
        )
        for match in left
    ]
    log.append_results(path, play, calls, jobs)


def _key(row: Mapping[str, Any]) -> Match:
    return Match(*(row[field] for field in Match.__dataclass_fields__))
