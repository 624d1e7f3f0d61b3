"""A peer's search on a game: it is asked for settings and told results, as its own tuner does it.

Nothing of a peer is started beside its searcher and scheduler: no processes, no clock. None of them
knows of seeds within rungs, so with several it is told their mean, as users do it. Recommended is
what the tool itself names as the best.
"""

import heapq
import importlib
import importlib.metadata
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from benchmarks.search.game import Game, Play, Settings

ETA = 3


class Pick(NamedTuple):
    """The recommendation of a search after `points` points of training."""

    points: int
    row: int
    claim: float
    """The score that the search expects of the row under a new seed, or had seen."""
    error: float | None = None
    """Standard error of the claim; None if the search names none."""


class Trial(NamedTuple):
    """A trial that a peer asks for."""

    number: int
    settings: Settings
    seeds: int = 1
    """The seeds under which it is trained at once; the peer gets their mean, and pays for each."""
    setting: int | None = None
    """Trials with the same number share a setting and its seeds; None: a setting of its own."""


@dataclass
class Told:
    """The values of a trial that a search has been given so far."""

    row: int
    values: list[float] = field(default_factory=list)
    completed: bool = False


class Best(NamedTuple):
    """The trial that is the best, and the value that says so."""

    number: int
    value: float


class Search(Protocol):
    """A peer's searcher and scheduler."""

    def ask(self) -> Trial | None:
        """Return the next trial to train; None until the search has another value."""

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Take in a value; returns whether the trial continues."""

    def best(self, told: Mapping[int, Told]) -> Best | None:
        """Return the trial that the tool itself would name as the best; None if it cannot yet."""


class Kind(NamedTuple):
    """One method of a peer."""

    distribution: str
    """The distribution that must be installed."""
    make: Callable[[Game, int], Search]

    @property
    def version(self) -> str:
        """Return the distribution and its version; PackageNotFoundError if it is not installed."""
        return f"{self.distribution} {importlib.metadata.version(self.distribution)}"


def search(made: Search, play: Play, workers: int, trainings: int) -> Iterator[Pick]:
    """The pick after each point that the search was told, until its budget is used up.

    Every point of a training takes as long as any other; `workers` trials are trained at once.
    """
    game, spent, order = play.game, 0, itertools.count()
    told: dict[int, Told] = {}
    running: list[tuple[int, int, Trial, int]] = []
    free, now = workers, 0
    while spent < trainings * game.points:
        while free and (trial := made.ask()) is not None:
            told.setdefault(trial.number, Told(game.nearest(trial.settings)))
            at = len(told[trial.number].values)
            heapq.heappush(running, (now + trial.seeds, next(order), trial, at + 1))
            free -= 1
        if not running:
            return
        now, _, trial, point = heapq.heappop(running)
        its = told[trial.number]
        seeds = range(trial.seeds)
        same = trial.number if trial.setting is None else trial.setting
        value = sum(play.value(its.row, same, seed, point) for seed in seeds) / len(seeds)
        its.values.append(value)
        spent += trial.seeds
        its.completed = point == game.points
        goes_on = made.tell(trial, point, value) and not its.completed
        if goes_on:
            heapq.heappush(running, (now + trial.seeds, next(order), trial, point + 1))
        else:
            free += 1
        best = made.best(told)
        if best is not None:
            yield Pick(spent, told[best.number].row, best.value)


def furthest(told: Mapping[int, Told]) -> Best | None:
    """Of the trials that came furthest, the one with the best value there."""
    ranked = [(len(its.values), its.values[-1], n) for n, its in told.items() if its.values]
    return Best(max(ranked)[2], max(ranked)[1]) if ranked else None


def greatest(values: Mapping[int, float]) -> Best | None:
    """The trial with the greatest value."""
    number = max(values, key=lambda number: values[number], default=None)
    return None if number is None else Best(number, values[number])


def kinds() -> Mapping[str, Kind]:
    """Every method of every peer, by its name."""
    found: dict[str, Kind] = {}
    for name in ("optuna", "ray", "syne", "smac"):
        found |= importlib.import_module(f"benchmarks.search.peer_{name}").METHODS
    return found


def absent(kind: Kind, game: Game) -> str:
    """Why a method cannot be played here; empty: it can."""
    try:
        version = kind.version
        kind.make(game, 0)
    except importlib.metadata.PackageNotFoundError:
        return f"{kind.distribution} is not installed"
    except ImportError as error:
        return f"{version} needs more: {error}"
    return ""
