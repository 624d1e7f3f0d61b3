"""Schedulers decide which trials run, up to where; one file each.

The loop that calls one:

    plan = scheduler.plan(history, free)       # free: slots without work
    record(plan)                               # one transaction
    run(plan)

A scheduler is a function of the history: it keeps nothing between calls, so there is nothing of it
to save or to lose. It never sees trials that were interrupted on their way to a goal; the driver
resumes those first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from sweep import plugins
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.space import Space
from sweep.spec.sections import Seeds

PACKAGE = __name__
#: Why a scheduler has no option ``finish_best``.
NOBODY_WAITS = (
    "it is about trials that wait for a promotion when all else is done, and here none does; "
    "{name: asha, type: promotion} has it"
)


@dataclass(frozen=True)
class Resume:
    """Continue a paused trial from its newest checkpoint."""

    trial: int
    goal: Goal
    why: str
    evidence: Evidence = field(default_factory=dict)
    """The numbers that were compared."""


@dataclass(frozen=True)
class NewTrial:
    """Start a trial with settings that the searcher will propose."""

    goal: Goal
    why: str
    evidence: Evidence = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    """Searched settings that the scheduler knows; the searcher proposes the rest."""


@dataclass(frozen=True)
class Exploit:
    """Start a trial from the newest checkpoint of another one, with settings of its own.

    It is a trial with a parent and does not count among the searched ones.
    """

    parent: int
    searched: Mapping[str, Any]
    """Its values of the space's searched parameters; derived ones follow from them."""
    goal: Goal
    why: str
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True)
class AddSeed:
    """Train a trial that waits, or is done, under one seed more, from the beginning to `goal`."""

    trial: int
    index: int
    """The new seed's index: after those that the trial has, and those before it in the plan."""
    goal: Goal
    why: str
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True)
class Stop:
    """End a paused trial."""

    trial: int
    status: Status
    why: str
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Decisions to carry out; at most ``free`` of `resume`, `breed`, `seeds`, `fresh` together."""

    stop: tuple[Stop, ...] = ()
    resume: tuple[Resume, ...] = ()
    breed: tuple[Exploit, ...] = ()
    fresh: tuple[NewTrial, ...] = ()
    seeds: tuple[AddSeed, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stop or self.resume or self.breed or self.fresh or self.seeds)


@dataclass(frozen=True)
class SchedulerContext:
    """The sweep that a scheduler is made for."""

    stop: Mapping[str, float] = field(default_factory=dict)
    """Result → value at which a trial ends."""
    trials: int = 1
    """The number of settings to search; a top-up may make them more."""
    space: Space = field(default_factory=lambda: Space.parse({}))
    seed: int = 0
    """The sweep's; random decisions come from named streams of it."""
    fixed: Collection[str] = ()
    """Settings that a child inherits unchanged: its parent's checkpoint depends on them."""
    seeds: Seeds = 1
    """The number of seeds of a trial from its beginning, or a plan for those that come far."""


class Scheduler(Protocol):
    """One verb: `plan`."""

    Options: ClassVar[type[BaseModel]]
    time_attr: str = "training_iteration"
    """The result key in which goals are counted."""
    levels: tuple[float, ...] = ()
    """The rungs, ascending; empty without rungs that are known. Searchers compare trials there."""
    remark: str = ""
    """A line about its rungs that a person should know before anything runs; empty: none."""
    pauses: bool
    """True if paused trials wait while others take their slots; trials must be able to save."""
    adds_seeds: ClassVar[bool] = False
    """True if it follows a plan of seeds: `AddSeed` for trials that come far."""
    spares: int | None = None
    """The number of trials completed before any is ended early; None if none is; for progress."""

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        """Keep what decisions need; this default keeps nothing."""
        del options, context

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options as the ledger of a new sweep keeps them.

        An option whose default has changed since older sweeps were created is written out:
        the default in `Options` is what a sweep does whose ledger lacks the key.
        """
        return options

    def plan(self, history: History, free: int) -> Plan:
        """Return decisions for `free` slots; an empty plan while nothing runs ends the sweep."""
        ...

    def rest(self, history: History) -> float | None:
        """About how many units of ``time_attr`` trials will still be trained, for progress.

        None if that is to be estimated from how long the ended trials lasted.
        """
        return None


KIND: plugins.Kind[Scheduler] = plugins.Kind(
    "scheduler", PACKAGE, Scheduler, "Scheduler", ("Options", "plan")
)
find = KIND.find
