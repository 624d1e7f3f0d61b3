"""Plays of every method on every game, several times; each one stands in a file when it is done.

Each line of ``plays.jsonl`` is one search. A search that stands there is not played again, so a
stopped benchmark continues at the same place, and several machines' files may simply be joined.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import game as games
from benchmarks.search import log, ours, peers
from benchmarks.search.game import Game, Play
from benchmarks.search.peers import Pick

Say = Callable[[str], None]
#: After how many full trainings the recommended setting is looked at: four times an octave.
LOOKS = tuple(round(2.0 ** (n / 4), 3) for n in range(25))
#: Trainings that a search may spend.
MOST = 64


@dataclass(frozen=True)
class Match:
    """One search."""

    table: str
    """Stem of the table's file."""
    game: str
    method: str
    workers: int
    play: int
    """Its number; one number, one split of the seeds, for all methods."""


@dataclass(frozen=True)
class Asked:
    """The plays that were asked for."""

    tables: Sequence[Path]
    methods: Mapping[str, ours.Keys]
    """Ours: keys of a spec by their names; peers are found by their own names."""
    peers: Sequence[str]
    plays: int
    workers: Sequence[int]
    trainings: int = MOST


def matches(asked: Asked, found: Sequence[tuple[Path, Game]]) -> Iterator[Match]:
    """Every search, play by play, so that a part of them is of use."""
    for play in range(asked.plays):
        for workers in asked.workers:
            for path, game in found:
                for method in (*asked.methods, *asked.peers):
                    yield Match(path.stem, game.name, method, workers, play)


def play(match: Match, path: Path, keys: ours.Keys | None, trainings: int) -> dict[str, Any]:
    """One search; regret, and claim less truth, at every look that its budget reaches."""
    began = time.monotonic()
    game = _game(path, match.game)
    split = Play(game, match.play)
    looks = [look for look in LOOKS if look <= trainings]
    marks = [look * game.points for look in looks]
    if keys is not None:
        picks: Iterable[Pick] = ours.search(keys, split, match.workers, trainings, marks)
        by = ""
    else:
        kind = peers.kinds()[match.method]
        picks = peers.search(kind.make(game, match.play), split, match.workers, trainings)
        by = kind.version
    at, points = _looked(picks, marks)
    regret = [None if pick is None else round(split.regret(pick.row), 3) for pick in at]
    excess = [None if pick is None else round(_excess(split, pick), 3) for pick in at]
    return {
        **asdict(match),
        "steps": game.steps,
        "by": by,
        "regret": regret,
        "excess": excess,
        "errors": [None if pick is None else _errors(split, pick) for pick in at],
        "spent": round(points / game.points, 3),
        "seconds": round(time.monotonic() - began, 2),
    }


def _excess(split: Play, pick: Pick) -> float:
    """Return the claimed score less the true one, in per cent of the game's scale."""
    return 100 * (pick.claim - split.truth(pick.row)) / split.game.scale


def _errors(split: Play, pick: Pick) -> float | None:
    """Return the distance of the claim from the truth in standard errors, of both together.

    Returns None if the search names no error.
    """
    if pick.error is None:
        return None
    error = math.hypot(pick.error, split.doubt(pick.row))
    return round(abs(pick.claim - split.truth(pick.row)) / error, 3) if error else None


def _looked(picks: Iterable[Pick], marks: Sequence[float]) -> tuple[list[Pick | None], float]:
    """The newest pick that so many points had paid for, None: there was none yet; and all points.

    A search that ends itself keeps its last pick.
    """
    seen: list[Pick | None] = [None] * len(marks)
    points = 0.0
    for pick in picks:
        points = min(float(pick.points), marks[-1])
        first = int(np.searchsorted(marks, pick.points))
        if first == len(marks):
            break
        seen[first:] = [pick] * (len(marks) - first)
    return seen, points


@cache
def _games(path: Path) -> Mapping[str, Game]:
    return {game.name: game for game in games.load(path)}


def _game(path: Path, name: str) -> Game:
    return _games(path)[name]


def available(asked: Asked, found: Sequence[tuple[Path, Game]], say: Say) -> Asked:
    """Return the part of `asked` that can be played here; names everything else by `say`."""
    kinds, own, others = peers.kinds(), {}, []
    game = found[0][1]
    for method, keys in asked.methods.items():
        if why := ours.refused(keys, game):
            say(f"{method} is skipped: {why}")
        else:
            own[method] = keys
    for method in asked.peers:
        if why := peers.absent(kinds[method], game):
            say(f"{method} is skipped: {why}")
        else:
            others.append(method)
    return Asked(asked.tables, own, others, asked.plays, asked.workers, asked.trainings)


def run(asked: Asked, path: Path, jobs: int, say: Say) -> None:
    """Play what the file of plays does not have yet."""
    found = [(file, game) for file in asked.tables for game in _games(file).values()]
    if not found:
        say("there is no table to play; name one with --table FILE")
        return
    asked = available(asked, found, say)
    done = {_key(row) for row in log.read(path)}
    paths = {(file.stem, game.name): file for file, game in found}
    left = [match for match in matches(asked, found) if match not in done]
    calls = [
        (
            match,
            paths[match.table, match.game],
            asked.methods.get(match.method),
            asked.trainings,
        )
        for match in left
    ]
    log.work(path, play, calls, jobs)


def _key(row: Mapping[str, Any]) -> Match:
    return Match(*(row[field] for field in Match.__dataclass_fields__))
