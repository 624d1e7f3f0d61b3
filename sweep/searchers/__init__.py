"""Searchers propose settings; one file each.

    searcher.check(space)                  # refuses a space that it cannot search
    settings = searcher.suggest(request)

A searcher is a function of the request: the space, the objective, all trials so far (including
running ones) and seeds. Between calls it has only caches, which it drops in any doubt, so a search
that was interrupted anywhere proposes what the uninterrupted one proposes. Searchers that sample
draw from (sweep seed, trial number). Those that enumerate derive their order from the sweep seed,
and the next point in it from the existing trials.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pydantic import Field

from sweep.core import plugins
from sweep.history.events import EarlierSweep
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec.space import Settings, Space
from sweep.spec.space.domains import exact_decimal
from trainables.core import settings

PACKAGE = __name__


class Exhausted(Exception):
    """Every point of the space has a trial, so that no further settings can be proposed.

    The message says how many points there are.
    """


class SearcherOptions(settings.Settings):
    """Options that every searcher has."""

    duplicates: bool = Field(
        False, description="Allow proposals with the same settings as an earlier trial."
    )
    suggested: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Maximum fraction of trials that take settings given by `sweep suggest`. 1: "
        "the next trials take all waiting suggestions; 0: suggestions are refused.",
    )

    def most_suggested(self, trials: int) -> int:
        """Return how many of the first `trials` searched trials may take users' suggestions.

        The fraction `suggested` counts as its decimal text says, so 0.29 of 100 trials are 29. The
        result is rounded down.
        """
        return math.floor(exact_decimal(self.suggested) * trials)


@dataclass(frozen=True)
class Request:
    """Request for the settings of one new trial: everything that a proposal may depend on."""

    space: Space
    """Search space of the sweep; settings that are fixed for this trial are pinned in it."""
    objective: Objective
    """Objective by which trials are compared."""
    trials: Sequence[Trial]
    """All earlier trials, by number; the new one gets the next number. If the space was changed,
    some may be outside it (`Space.has`)."""
    levels: tuple[float, ...]
    """Rungs of the scheduler (values of its `time_attr`), ascending; empty without rungs."""
    seed: int
    """Seed of this proposal, derived from (sweep seed, number of the new trial, attempt), in [0,
    2**63)."""
    sweep_seed: int = 0
    """Seed of the sweep, equal for all trials, in [0, 2**63)."""
    learnt: tuple[EarlierSweep, ...] = ()
    """Earlier sweeps with their best settings and ranks, for a prior."""
    attempt: int = 0
    """Number of proposals for this trial that were rejected so far: not in the space, or equal to
    an earlier trial."""
    searched: int | None = None
    """Number of earlier trials whose settings were searched; None to count them in `trials`."""
    touched: Sequence[int] | None = None
    """Numbers of changed trials, in the order of the changes (`History.touched`), so that caches
    read only these again. None if the changes are unknown: then each trial may have changed."""

    @property
    def number(self) -> int:
        """Number that the new trial will have."""
        return len(self.trials)

    @property
    def index(self) -> int:
        """Number of settings searched before these, without offspring and clones.

        If trials take the values of a crossed grid in turn, only those with this trial's values
        count.
        """
        count = self.searched
        if count is None:
            count = sum(trial.has_searched_settings for trial in self.trials)
        return count // self.space.cells


class Searcher(Protocol):
    """Base of all searchers, whose main method is `suggest`."""

    Options: ClassVar[type[SearcherOptions]]
    """Pydantic model of the searcher's options in a spec."""
    options: SearcherOptions
    """Options of this searcher, as the spec gives them."""
    supports: ClassVar["Supports"]
    """Description of the searcher's abilities, for checks and for the documentation."""

    def __init__(self, options: SearcherOptions) -> None:
        self.options = options

    def check(self, space: Space) -> None:
        """Raise BadSpace or BadConfig if the searcher cannot search `space`; by default it can."""

    def suggest(self, request: Request) -> Settings:
        """Return settings for the next trial, determined by the request alone.

        Raises Exhausted if there is no further point, and BadSpace if the proposal is not a point
        of the space.
        """
        ...


@dataclass(frozen=True)
class Supports:
    """Abilities of a searcher; the texts stand in the table of docs/searchers.md."""

    proposes: str
    """Text on how the searcher proposes, in one clause."""
    conditions: str
    """Text on how the searcher treats conditional parameters."""
    choices: str
    """Text on how the searcher treats choices, which have no order."""
    unfinished: str
    """Text on how the searcher treats trials that still run."""
    objectives: bool = False
    """True if the searcher looks for a front of several objectives."""
    constraints: bool = False
    """True if the searcher avoids settings that violate a constraint on results."""


KIND: plugins.Kind[Searcher] = plugins.Kind(
    "searcher", PACKAGE, Searcher, "Searcher", ("Options", "supports", "suggest")
)
find = KIND.find
