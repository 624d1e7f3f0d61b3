"""The search of a peer on a game: a loop asks it for settings and tells it results.

The loop replaces the peer's own tuner: only its searcher and scheduler are used, without processes
and clocks. No peer has several seeds per setting; a variant of each gets the mean of three seeds.
The recommendation is the trial that the library itself names as the best.
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
"""Reduction factor of all schedulers."""


class Pick(NamedTuple):
    """Recommendation of a search after `points` points of training."""

    points: int
    row: int
    """Index of the recommended row of the table."""
    claim: float
    """Score that the search expects of the row with a new seed, or else has seen."""
    error: float | None = None
    """Standard error of the claim; None if the search states none."""


class Trial(NamedTuple):
    """Trial that a peer proposes."""

    number: int
    settings: Settings
    seeds: int = 1
    """Number of seeds of the trial; the peer gets their mean, and each counts in the budget."""
    setting: int | None = None
    """Number of the setting; trials with the same number share seeds. None for its own setting."""


@dataclass
class Progress:
    """Results of a trial that its search knows."""

    row: int
    """Index of the row of the table."""
    values: list[float] = field(default_factory=list)
    """Result at each point so far."""
    is_completed: bool = False


class Best(NamedTuple):
    """Best trial of a search, and its value."""

    number: int
    value: float


class Search(Protocol):
    """Searcher and scheduler of a peer."""

    def ask(self) -> Trial | None:
        """Return the next trial; None if the search needs another result first."""

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Record a result; return whether the trial continues."""

    def best(self, trials: Mapping[int, Progress]) -> Best | None:
        """Return the trial that the library names as the best; None if it names none."""


class PeerMethod(NamedTuple):
    """One method of a peer."""

    distribution: str
    """Name of the distribution that must be installed."""
    make: Callable[[Game, int], Search]
    """Returns a new search on a game with a seed."""

    @property
    def version(self) -> str:
        """Distribution and its version; PackageNotFoundError if it is not installed."""
        return f"{self.distribution} {importlib.metadata.version(self.distribution)}"


def run_search(search: Search, play: Play, workers: int, trainings: int) -> Iterator[Pick]:
    """Yield the pick after each point, until the budget is used up.

    Every point of a training takes the same time; `workers` trials are trained at the same time.

    Args:
        trainings: budget, in full trainings.
    """
    game, spent, order = play.game, 0, itertools.count()
    trials: dict[int, Progress] = {}
    running: list[tuple[int, int, Trial, int]] = []
    free, now = workers, 0
    while spent < trainings * game.points:
        while free and (trial := search.ask()) is not None:
            trials.setdefault(trial.number, Progress(game.nearest(trial.settings)))
            points = len(trials[trial.number].values)
            heapq.heappush(running, (now + trial.seeds, next(order), trial, points + 1))
            free -= 1
        if not running:
            return
        now, _, trial, point = heapq.heappop(running)
        progress = trials[trial.number]
        seeds = range(trial.seeds)
        setting = trial.number if trial.setting is None else trial.setting
        value = sum(play.value(progress.row, setting, seed, point) for seed in seeds) / len(seeds)
        progress.values.append(value)
        spent += trial.seeds
        progress.is_completed = point == game.points
        if search.tell(trial, point, value) and not progress.is_completed:
            heapq.heappush(running, (now + trial.seeds, next(order), trial, point + 1))
        else:
            free += 1
        best = search.best(trials)
        if best is not None:
            yield Pick(spent, trials[best.number].row, best.value)


def best_of_longest(trials: Mapping[int, Progress]) -> Best | None:
    """Return the best of the trials with the most points. Returns None if no trial has one."""
    ranked = [(len(one.values), one.values[-1], n) for n, one in trials.items() if one.values]
    return Best(max(ranked)[2], max(ranked)[1]) if ranked else None


def best_of(values: Mapping[int, float]) -> Best | None:
    """Return the trial with the greatest value. Returns None if there are no values."""
    number = max(values, key=lambda number: values[number], default=None)
    return None if number is None else Best(number, values[number])


def methods() -> Mapping[str, PeerMethod]:
    """Return name → method, for all methods of all peers."""
    found: dict[str, PeerMethod] = {}
    for name in ("optuna", "ray", "syne", "smac"):
        found |= importlib.import_module(f"benchmarks.search.peer_{name}").METHODS
    return found


def obstacle(method: PeerMethod, game: Game) -> str:
    """Return the reason why a method cannot be played here; empty if it can be."""
    try:
        version = method.version
        method.make(game, 0)
    except importlib.metadata.PackageNotFoundError:
        return f"{method.distribution} is not installed"
    except ImportError as error:
        return f"{version} needs more packages: {error}"
    return ""
