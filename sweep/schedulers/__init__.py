"""Schedulers decide which trials run, and how far; one file each.

The driver calls one in a loop:

    plan = scheduler.plan(history, free)       # free: number of free slots
    record(plan)                               # one transaction
    run(plan)

A scheduler is a function of the history and has no state between calls, so there is nothing to save
or to lose. It does not see trials that were interrupted before their goals; the driver resumes
those first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from sweep.core import plugins
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.spec.sections import Seeds
from sweep.spec.space import Space

PACKAGE = __name__
#: Reason for which a scheduler has no option ``finish_best``.
NOBODY_WAITS = (
    "it is about trials that wait for a promotion when all else is done, and here none does; "
    "{name: asha, type: promotion} has it"
)


@dataclass(frozen=True)
class Resume:
    """Continue a paused trial from its newest checkpoint."""

    trial: int
    """Number of the trial."""
    goal: Goal
    """Point at which the trial pauses or ends."""
    why: str
    """Reason for the decision, as a text for the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class NewTrial:
    """Start a trial with settings that the searcher will propose."""

    goal: Goal
    """Point at which the trial pauses or ends."""
    why: str
    """Reason for the decision, as a text for the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Searched settings chosen by the scheduler; the searcher proposes the others."""


@dataclass(frozen=True)
class Exploit:
    """Start a trial from the newest checkpoint of another one, with new settings.

    The new trial has a parent and does not count among the searched ones.
    """

    parent: int
    """Number of the trial whose newest checkpoint is used."""
    searched: Mapping[str, Any]
    """Values of the space's searched parameters; derived settings follow from them."""
    goal: Goal
    """Point at which the new trial pauses or ends."""
    why: str
    """Reason for the decision, as a text for the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class AddSeed:
    """Train a waiting or completed trial under one more seed, from scratch to `goal`."""

    trial: int
    """Number of the trial."""
    index: int
    """Index of the new seed: after the trial's present ones and earlier ones of the same plan."""
    goal: Goal
    """Point up to which the new seed is trained."""
    why: str
    """Reason for the decision, as a text for the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class Stop:
    """End a paused trial."""

    trial: int
    """Number of the trial."""
    status: Status
    """Status that the trial ends with: PRUNED, or COMPLETED if it has reached the top."""
    why: str
    """Reason for the decision, as a text for the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class Plan:
    """Decisions to carry out.

    `resume`, `breed`, `seeds` and `fresh` have at most ``free`` in total.
    """

    stop: tuple[Stop, ...] = ()
    """Paused trials to end."""
    resume: tuple[Resume, ...] = ()
    """Paused trials to continue."""
    breed: tuple[Exploit, ...] = ()
    """Trials to start from checkpoints of others."""
    fresh: tuple[NewTrial, ...] = ()
    """Trials to start from scratch."""
    seeds: tuple[AddSeed, ...] = ()
    """Seeds to add to trials."""

    def __bool__(self) -> bool:
        return bool(self.stop or self.resume or self.breed or self.fresh or self.seeds)


@dataclass(frozen=True)
class SchedulerContext:
    """The properties of a sweep that a scheduler is created for."""

    stop: Mapping[str, float] = field(default_factory=dict)
    """Result → value at which a trial ends."""
    trials: int = 1
    """Number of settings to search; may grow later."""
    space: Space = field(default_factory=lambda: Space.parse({}))
    """Search space of the sweep."""
    seed: int = 0
    """Seed of the sweep; random decisions use named streams derived from it."""
    fixed: Collection[str] = ()
    """Searched settings that offspring inherit, since their parent's checkpoint depends on them.
    """
    seeds: Seeds = 1
    """Number of seeds that a trial starts with, or a plan of more seeds for trials that get far."""


class Scheduler(Protocol):
    """The protocol of a scheduler; its main method is `plan`."""

    Options: ClassVar[type[BaseModel]]
    """Model of the options in a spec."""
    time_attr: str = "training_iteration"
    """Key of the results in which goals are counted."""
    levels: tuple[float, ...] = ()
    """Rungs, ascending, at which searchers compare trials; empty if there are no known rungs."""
    remark: str = ""
    """Line about the rungs to show before a sweep runs; empty for none."""
    pauses: bool
    """True if paused trials wait while others take their slots; trials must then be able to save.
    """
    adds_seeds: ClassVar[bool] = False
    """True if the scheduler follows a plan of seeds: it adds seeds (`AddSeed`) to trials that get
    far."""
    default_seeds: Seeds = 1
    """Plan of seeds if the spec has none, for trainables whose results depend on the seed."""
    ranks_by_fronts: ClassVar[bool] = False
    """True if trials at its rungs rank by all objectives; else the metric alone decides there."""
    spares: int | None = None
    """Number of trials that are completed before any is ended early, to estimate progress; None if
    none is ended early."""

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        """Store what decisions need; this default stores nothing."""
        del options, context

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options to store in the ledger of a new sweep.

        An option whose default has changed since older sweeps were created is added explicitly: the
        default in `Options` is for ledgers that lack the key.
        """
        return options

    def plan(self, history: History, free: int) -> Plan:
        """Return decisions for `free` slots; an empty plan while nothing runs ends the sweep."""
        ...

    def remaining_training(self, history: History) -> float | None:
        """Return an estimate of the training left, in units of `time_attr`, for progress.

        Returns None to let it be estimated from the lengths of ended trials.
        """
        return None

    def promotion_count(self, count: int) -> int | None:
        """Return how many of the `count` trials at a rung continue, for explanations.

        Returns None if the answer depends on more than `count`.
        """
        del count
        return None


KIND: plugins.Kind[Scheduler] = plugins.Kind(
    "scheduler", PACKAGE, Scheduler, "Scheduler", ("Options", "plan")
)
find = KIND.find
