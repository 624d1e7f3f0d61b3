"""Searchers propose settings; one file each.

    searcher.check(space)                  # refuses a space that it cannot search
    settings = searcher.suggest(request)

A searcher is a function of the request: the space, the objective, all trials so far (running ones
included) and seeds. It keeps nothing between calls but caches, which it drops at any doubt, so a
search that was interrupted anywhere proposes what the uninterrupted one proposes. Searchers that
sample draw from (sweep seed, trial number). Those that enumerate take their order from the sweep
seed alone, and the next point in it from the trials that exist.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import Field

from sweep import plugins
from sweep.history.events import EarlierSweep
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.space import Settings, Space
from trainables.core import settings

PACKAGE = __name__


class Exhausted(Exception):
    """Every point of the space has a trial; says how many points there are."""


class SearcherOptions(settings.Settings):
    """Options of every searcher."""

    duplicates: bool = Field(
        False, description="Whether settings that an earlier trial has may be proposed again."
    )


@dataclass(frozen=True)
class Request:
    """All that a proposal may depend on."""

    space: Space
    """The sweep's, with what is given for this trial pinned."""
    objective: Objective
    trials: Sequence[Trial]
    """Every earlier trial, by number; the new one gets the next number."""
    levels: tuple[float, ...]
    """The scheduler's rungs."""
    seed: int
    """From (sweep seed, number of the new trial, attempt), in [0, 2**63)."""
    sweep_seed: int = 0
    """The sweep's own, which all trials share, in [0, 2**63)."""
    learnt: tuple[EarlierSweep, ...] = ()
    """Settings and their ranks in earlier sweeps."""
    attempt: int = 0
    """Proposals for this trial that were refused: not in the space, or an earlier trial's."""
    searched: int | None = None
    """The number of searched trials, if it is known."""

    @property
    def number(self) -> int:
        """The number of the new trial."""
        return len(self.trials)

    @property
    def index(self) -> int:
        """The number of settings searched before this one; bred trials do not count.

        Where trials take the values of a grid in turn, those with the values of this one count.
        """
        count = self.searched
        if count is None:
            count = sum(trial.counts for trial in self.trials)
        return count // self.space.cells


class Searcher(Protocol):
    """One verb: `suggest`."""

    Options: ClassVar[type[SearcherOptions]]
    options: SearcherOptions
    supports: ClassVar["Supports"]

    def __init__(self, options: SearcherOptions) -> None:
        self.options = options

    def check(self, space: Space) -> None:
        """Raise BadSpace or BadConfig where it cannot search `space`; most can search any."""

    def suggest(self, request: Request) -> Settings:
        """Settings for the next trial.

        Raises:
            Exhausted: there is no further point.
        """
        ...


@dataclass(frozen=True)
class Supports:
    """The abilities of a searcher, in the words of the table in docs/searchers.md."""

    proposes: str
    """Its way of proposing, in one clause."""
    conditions: str
    """Its treatment of conditional parameters."""
    choices: str
    """Its treatment of choices, which have no order."""
    unfinished: str
    """Its treatment of trials that still run."""
    objectives: bool = False
    """True if it searches for a front of several objectives."""
    constraints: bool = False
    """True if it avoids settings that break a constraint."""


KIND: plugins.Kind[Searcher] = plugins.Kind(
    "searcher", PACKAGE, Searcher, "Searcher", ("Options", "supports", "suggest")
)
find = KIND.find
