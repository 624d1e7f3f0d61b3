"""The events of a sweep: what its ledger holds, in order, each with a number ``k``.

Everything else that is known of a sweep is a fold over these (`sweep.history.history`). An event is
immutable and plain data. Times are seconds since 1970 (UTC) and are labels only: nothing is decided
by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

# -------------------------------------------------------------------------------------------------
# What people ask of a sweep, as events: they stand in its history like every other decision.
#
# A hold is about a trial: it is not run until it is let go, whatever the scheduler wants. What is
# changed of a sweep's budget counts from its event on. All are plain data; times are seconds,
# sizes bytes.


class UserHold(StrEnum):
    """What a person wants of a trial."""

    NONE = ""
    PAUSE = "pause"
    """It saves and waits until it is let go."""
    STOP = "stop"
    """It saves and ends."""


@dataclass(frozen=True)
class HoldChanged:
    """A trial is held, or let go again."""

    kind: ClassVar[str] = "hold"
    trial: int
    hold: UserHold


@dataclass(frozen=True)
class Suspended:
    """The whole sweep is paused, or goes on; a new driver goes on."""

    kind: ClassVar[str] = "suspend"
    on: bool


@dataclass(frozen=True)
class Changed:
    """The sweep was given another end or size; what is None or absent stays as it was."""

    kind: ClassVar[str] = "set"
    trials: int | None = None
    """The total of searched settings."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's ``budget`` → its new value."""
    max_disk: int | None = None
    jobs: int | None = None
    """How many slots the search has, for later drivers too; in a final evaluation, how many that
    has."""


@dataclass(frozen=True)
class Dropped:
    """Checkpoints of a replica that were let go: to save disk, or because they are lost."""

    kind: ClassVar[str] = "drop"
    trial: int
    replica: int
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """Trials are compared by another metric, also for what they did before: results hold them all.

    The objective that a history is folded with is that of the newest such event.
    """

    kind: ClassVar[str] = "metric"
    metric: str


@dataclass(frozen=True)
class Recoded:
    """The trainable of a script is another one from now on; its file lies beside the older ones."""

    kind: ClassVar[str] = "code"
    source: str
    """The digest of what it does."""


@dataclass(frozen=True)
class OtherKernel:
    """From now on trials go on here, too, where the kernel of their checkpoints is not built."""

    kind: ClassVar[str] = "kernel"


UserCommand = HoldChanged | Suspended | Changed | Dropped | Measured | Recoded | OtherKernel


Scalar = bool | int | float | str
Metrics = Mapping[str, Scalar]
#: Name → number, text, or a list of them: what a decision compared, for a person who asks why.
Evidence = Mapping[str, Any]


class Status(StrEnum):
    """Where a trial stands."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    PRUNED = "PRUNED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"

    __hash__ = str.__hash__  # Enum's own is a function in Python, and each look-up calls it


#: Status → what it may become. The ledger refuses every other move.
MOVES: Mapping[Status, frozenset[Status]] = {
    Status.WAITING: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.RUNNING: frozenset(
        {Status.PAUSED, Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED}
    ),
    Status.PAUSED: frozenset({Status.RUNNING, Status.PRUNED, Status.STOPPED}),
    Status.COMPLETED: frozenset(),
    Status.PRUNED: frozenset({Status.PAUSED}),
    Status.STOPPED: frozenset({Status.PAUSED}),
    Status.FAILED: frozenset({Status.PAUSED}),
}

FINISHED = frozenset({Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED})


def group_status(statuses: Sequence[Status]) -> Status:
    """Where a trial stands whose replicas stand so.

    It runs while one runs, and is not done before all are; it failed if one did, and is completed
    only if all are.
    """
    if len(statuses) == 1:
        return statuses[0]
    found = set(statuses)
    if len(found) == 1 or Status.RUNNING in found:
        return Status.RUNNING if Status.RUNNING in found else statuses[0]
    if found - FINISHED:
        return Status.PAUSED
    return next(s for s in (Status.FAILED, Status.PRUNED, Status.STOPPED) if s in found)


class End(StrEnum):
    """How a slice ended."""

    GOAL = "goal"
    """It reached what it was asked to reach."""
    TIME = "time"
    """Its time was up; the trial goes on from its last checkpoint."""
    DONE = "done"
    """A stopping criterion was met, or the trainable said ``done``."""
    ASKED = "asked"
    """The driver asked it to stop, because a person or the system asked the driver."""
    CRASHED = "crashed"
    """The trainable raised."""
    UNSAVED = "unsaved"
    """No checkpoint was taken; the trial goes on from its last one, and nobody is charged."""
    DIVERGED = "diverged"
    """The metric was NaN or infinite."""
    LIMIT = "limit"
    """A limit of the trial was passed, for good."""
    LOST = "lost"
    """Its process died."""
    INTERRUPTED = "interrupted"
    """Its driver was killed or stopped; nobody is charged."""


@dataclass(frozen=True)
class Goal:
    """Up to where a trial shall run: the first iteration with ``time_attr`` at least `at`."""

    at: float | None = None
    """None: until a stopping criterion is met."""
    top: float | None = None
    """Where the trial is COMPLETED, not PAUSED, should it get so far."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint as the ledger names it; `file` is relative to the trial's folder."""

    iteration: int
    digest: str
    file: str
    size: int
    value: float | None = None
    """The metric at that iteration, if there was one."""


@dataclass(frozen=True)
class ParentCheckpoint:
    """The checkpoint of another trial that a bred one begins from."""

    trial: int
    replica: int
    time: float
    """The value of ``time_attr`` there."""
    saved: Saved


@dataclass(frozen=True)
class Row:
    """The result of one iteration, its keys flattened with ``/``."""

    iteration: int
    metrics: Metrics


@dataclass(frozen=True)
class TermBegan:
    """A driver took the sweep over; slices that still ran in an older term are lost."""

    kind: ClassVar[str] = "epoch"
    host: str
    pid: int
    trials: int
    """The total of searched settings wanted from now on."""
    jobs: int | None = None
    """How many slots its pool has; None: written before this was recorded."""
    jobs_given: bool = False
    """Whether a person said how many; otherwise they follow from the machine and the trials."""
    pool: str = ""
    """The name of its pool; empty: written before this was recorded."""


@dataclass(frozen=True)
class FinalEvaluationBegan:
    """A driver took the sweep over to train its best trials under test seeds.

    The search is where it was: it neither goes on nor ends.
    """

    kind: ClassVar[str] = "exam"
    host: str
    pid: int
    trials: tuple[int, ...]
    """The best trials, best first."""
    seeds: int
    """How many tests each of them shall have in all."""
    jobs: int | None = None
    """How many slots its pool has, which is no word about the search's; None: not recorded."""
    pool: str = ""


@dataclass(frozen=True)
class TermEnded:
    """The driver left: ``finished``, ``stopped`` by a person, or ``failed`` by the outside."""

    kind: ClassVar[str] = "end"
    how: str
    reason: str = ""
    """Why it is finished before all trials are."""


@dataclass(frozen=True)
class Created:
    """A trial with its settings; WAITING."""

    kind: ClassVar[str] = "trial"
    trial: int
    searched: Mapping[str, Any]
    """What the searcher proposed: name → value; inactive parameters are absent."""
    config: Mapping[str, Any]
    """What the trainable gets: nested, with fixed and derived values."""
    seen: int
    """The number of the last event that the searcher had seen."""
    replicas: int = 1
    """Under how many seeds it begins."""
    births: tuple[ParentCheckpoint, ...] = ()
    """Where each replica of a bred trial begins; empty: the settings were searched."""
    clone_of: int | None = None
    """The trial that a person made it from; it does not count among the searched ones."""


@dataclass(frozen=True)
class Opened:
    """A slice was decided and is about to be submitted; RUNNING."""

    kind: ClassVar[str] = "slice"
    trial: int
    replica: int
    slice: int
    goal: Goal
    why: str
    evidence: Evidence = field(default_factory=dict)
    """The numbers that the decision was based on."""


@dataclass(frozen=True)
class Sums:
    """What all results of a replica come to, so that one who wants no curve need not read them.

    It follows from the results, and `sweep verify` compares it with them.
    """

    iteration: int
    time: float
    """The newest value of ``time_attr``."""
    value: float | None
    """The newest value of the metric."""
    score: float | None
    others: tuple[float | None, ...]
    """The scores in the further objectives, then the newest value of each constraint."""
    seconds: float
    """Training so far."""
    steps: float
    """Environment steps so far."""
    counters: Mapping[str, Any]
    """What the newest result counts (`sweep.spec.stopping.COUNTERS`)."""


@dataclass(frozen=True)
class Closed:
    """A slice ended; its results and checkpoints come with it."""

    kind: ClassVar[str] = "outcome"
    trial: int
    replica: int
    slice: int
    end: End
    status: Status
    reason: str
    """Why the trial has this status, in words."""
    source: int = 0
    """The iteration that the slice continued from; results after it are replaced."""
    error: str = ""
    """The traceback, where there was one."""
    error_at: int = 0
    """The iteration at which it happened."""
    skipped: tuple[str, ...] = ()
    """Checkpoints that could not be used, and why."""
    exactness: str = ""
    """What a checkpoint of this trial restores, in words."""
    saved: tuple[Saved, ...] = ()
    dropped: tuple[str, ...] = ()
    """Digests of older checkpoints that nothing needs from now on."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """What its trainable has found out for all trials (`Trainable.remembers`): name → data."""
    instead: str = ""
    """What stood where the metric is looked for, in words, if that was no number."""
    rows: tuple[Row, ...] = ()
    """Its results; they have a table of their own."""
    sums: Sums | None = None
    """Of all results of its replica, these included; None: written before this was recorded."""


@dataclass(frozen=True)
class Moved:
    """A decision about a replica that does not run."""

    kind: ClassVar[str] = "move"
    trial: int
    status: Status
    reason: str
    replica: int = 0
    waited: bool = False
    """Whether it is pruned only because the sweep ended while it waited."""
    evidence: Evidence = field(default_factory=dict)
    """The numbers that the decision was based on."""


@dataclass(frozen=True)
class Warmed:
    """Trials of another sweep that searchers see beside the sweep's own."""

    kind: ClassVar[str] = "warm"
    sweep: str
    """The name of the other one."""
    trials: tuple[Mapping[str, Any], ...]
    """Of each: trial (its number there), status, searched, and curves: for each replica
    [iteration, time, value] of each iteration."""
    left_out: tuple[str, ...] = ()
    """Those that are no points of the space, and why."""


@dataclass(frozen=True)
class Widened:
    """The space that holds from now on."""

    kind: ClassVar[str] = "space"
    space: Mapping[str, Any]
    """The key ``space`` as a spec has it."""
    trial: int
    """The first trial that is searched in it."""


@dataclass(frozen=True)
class SpaceExhausted:
    """The searcher has no further point: no more trials are searched."""

    kind: ClassVar[str] = "exhausted"
    reason: str


OfTrials = Created | Opened | Closed | Moved
Event = (
    TermBegan
    | FinalEvaluationBegan
    | TermEnded
    | OfTrials
    | Warmed
    | Widened
    | SpaceExhausted
    | UserCommand
)


@dataclass(frozen=True)
class Recorded:
    """An event with its number, its term and the time at which it was written."""

    k: int
    term: int
    at: float
    event: Event
