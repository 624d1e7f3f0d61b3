"""Schedulers decide which trials run, up to where; one file each.

The loop that calls one:

    plan = scheduler.plan(history, free)       # free: slots without work
    record(plan)                               # one transaction
    run(plan)

A scheduler is a function of the history: it keeps nothing between calls, so there is nothing of it
to save or to lose. It never sees trials that were interrupted on their way to a goal; the driver
resumes those first.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel

from sweep import plugins
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.space import Space

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
    """The numbers that were compared; so for every decision."""


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
class AddReplica:
    """Train a trial that waits, or is done, under one seed more, from the beginning to `goal`."""

    trial: int
    replica: int
    """Its index: how many seeds the trial has, and those before it in the plan."""
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
    """What to do now; at most ``free`` of `resume`, `breed`, `seeds` and `fresh` together."""

    stop: tuple[Stop, ...] = ()
    resume: tuple[Resume, ...] = ()
    breed: tuple[Exploit, ...] = ()
    fresh: tuple[NewTrial, ...] = ()
    seeds: tuple[AddReplica, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.stop or self.resume or self.breed or self.fresh or self.seeds)


@dataclass(frozen=True)
class SchedulerContext:
    """What a scheduler is told of the sweep that it is made for."""

    stop: Mapping[str, float] = field(default_factory=dict)
    """Result → value at which a trial ends."""
    trials: int = 1
    """How many settings shall be searched; a top-up may make them more."""
    space: Space = field(default_factory=lambda: Space.parse({}))
    seed: int = 0
    """The sweep's own; chance in decisions comes from named streams of it."""
    fixed: Collection[str] = ()
    """Settings that a trial has as its parent had them: its parent's checkpoint hangs on them."""


class Scheduler(Protocol):
    """One verb: `plan`."""

    Options: ClassVar[type[BaseModel]]
    time_attr: str
    """The result key in which goals are counted."""
    levels: tuple[float, ...]
    """The rungs, ascending; empty without rungs. Searchers compare trials there."""
    pauses: bool
    """Whether trials wait for others, while others take their slots; they must be able to save."""
    spares: int | None = None
    """How many trials are completed before it ends any early, for progress; None: it ends none."""

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None: ...

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """The options as a new sweep keeps them, with the defaults that its ledger must name.

        A ledger without them is of a sweep that was created before there were such options: what
        `Options` says of a key that is absent is what such a sweep did.
        """
        return options

    def plan(self, history: History, free: int) -> Plan:
        """What to do with `free` slots; an empty plan while nothing runs ends the sweep."""
        ...

    def rest(self, history: History) -> float | None:
        """Units of ``time_attr`` that trials will still be trained, about, for progress.

        None: as much as follows from how long those lasted that have ended.
        """
        return None


KIND = plugins.Kind("scheduler", PACKAGE, Scheduler, "Scheduler")


def is_foreign(name: str) -> bool:
    """Whether `name` is a dotted path or an entry point, not the name of a shipped plugin."""
    return not KIND.is_shipped(name)


def find(name: str, paths: Iterable[str] = ()) -> type[Scheduler]:
    """The class ``Scheduler`` in file ``sweep/schedulers/<name>.py``, or one of one's own.

    See `plugins.Kind.find`.
    """
    return KIND.find(name, paths)
