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
    """A person's wish for a trial."""

    NONE = ""
    PAUSE = "pause"
    """It saves and waits until a person resumes it."""
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
    """The number of slots of the search, for later drivers too; in a final evaluation, that of
    the evaluation."""


@dataclass(frozen=True)
class Dropped:
    """Checkpoints of a replica, or its log, that were let go: to save disk, or as they are lost."""

    kind: ClassVar[str] = "drop"
    trial: int
    replica: int
    digests: tuple[str, ...]
    log: bool = False


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
    """Status of a trial or replica."""

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
    """Return the status of a trial from those of its replicas.

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
    """The end of a slice."""

    GOAL = "goal"
    """It reached what it was asked to reach."""
    UNMEASURED = "unmeasured"
    """It passed its goal and has never had the metric; the trial goes on if that may still come."""
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
    """The level at which the trial is COMPLETED, not PAUSED, should it get so far."""


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


#: The entry of a result that was lost with its slice, and stands until it is trained again.
UNSAVED = "unsaved"


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
    """The number of slots of its pool; None if written before this was recorded."""
    jobs_given: bool = False
    """True if a person chose the number; otherwise it follows from the machine and the trials."""
    pool: str = ""
    """The name of its pool; empty: written before this was recorded."""
    unrecorded_s: float = 0.0
    """Seconds that the driver before it ran after its last event, until it was killed."""


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
    """The number of tests that each of them shall have in all."""
    jobs: int | None = None
    """The number of slots of its pool, which is not the search's; None if not recorded."""
    pool: str = ""
    unrecorded_s: float = 0.0
    """As in `TermBegan`."""


#: How the reason of an end by the limit of this name begins.
FAIL_FAST = "limits.fail_fast"


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
    """The searcher's proposal: name → value; inactive parameters are absent."""
    config: Mapping[str, Any]
    """The settings of the trainable: nested, with fixed and derived values."""
    seen: int
    """The number of the last event that the searcher had seen."""
    replicas: int = 1
    """Under how many seeds it begins."""
    births: tuple[ParentCheckpoint, ...] = ()
    """The beginning of each replica of a bred trial; empty if the settings were searched."""
    clone_of: int | None = None
    """The trial that a person made it from; it does not count among the searched ones."""
    origin: str = ""
    """The part of the searcher that proposed it, `prior`; empty: its own model."""
    why: str = ""
    """Why the settings were proposed, in words."""


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
    """Sums over all results of a replica, for readers that need no curve.

    It follows from the results, and `sweep verify` compares it with them.
    """

    iteration: int
    time: float
    """The newest value of ``time_attr``."""
    known_until: float
    """The value of ``time_attr`` up to which it can be compared."""
    value: float | None
    """The newest number of the metric; NaN where it diverged."""
    score: float | None
    others: tuple[float | None, ...]
    """The scores in the further objectives, then the newest value of each constraint."""
    seconds: float
    """Training so far."""
    steps: float
    """Environment steps so far."""
    counters: Mapping[str, Any]
    """Counters of the newest result (`sweep.spec.stopping.COUNTERS`)."""
    noise: float | None = None
    """`Replica.noise`."""


@dataclass(frozen=True)
class Reported:
    """Results of a slice that still runs.

    Nothing is decided by them before the slice has ended: they may have to be trained again.
    """

    kind: ClassVar[str] = "report"
    trial: int
    replica: int
    slice: int
    source: int
    """The iteration after which they stand; older results after it are replaced."""
    rows: tuple[Row, ...] = ()
    """They have a table of their own."""
    sums: Sums | None = None
    """Of all results of its replica, these included."""

    @property
    def new_rows(self) -> tuple[Row, ...]:
        """The results that no event before it had."""
        return self.rows


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
    """The iteration after which its results stand; older results after it are replaced."""
    error: str = ""
    """The traceback, where there was one."""
    error_at: int = 0
    """The iteration at which it happened."""
    skipped: tuple[str, ...] = ()
    """Checkpoints that could not be used, and why."""
    exactness: str = ""
    """The exactness of this trial's checkpoints, in words."""
    saved: tuple[Saved, ...] = ()
    dropped: tuple[str, ...] = ()
    """Digests of older checkpoints that nothing needs from now on."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Findings of its trainable for all trials (`Trainable.remembers`): name → data."""
    instead: str = ""
    """The value found in place of the metric, in words, if that was no number."""
    rows: tuple[Row, ...] = ()
    """Its results; they have a table of their own."""
    sums: Sums | None = None
    """Of all results of its replica, these included; None: written before this was recorded."""
    saved_to: int | None = None
    """The last iteration that need not be trained again; None: no result was lost with its slice.
    Rows after it have the entry `UNSAVED`."""
    reported_to: int | None = None
    """The last iteration that a `Reported` of the slice had; None: there was none."""
    log: int = 0
    """Bytes of its replica's log."""

    @property
    def new_rows(self) -> tuple[Row, ...]:
        """The results that no `Reported` had; others come again since they were lost."""
        upto = self.reported_to
        return self.rows if upto is None else tuple(r for r in self.rows if r.iteration > upto)


@dataclass(frozen=True)
class Moved:
    """A decision about a replica that does not run."""

    kind: ClassVar[str] = "move"
    trial: int
    status: Status
    reason: str
    replica: int = 0
    waited: bool = False
    """True if it is pruned only because the sweep ended while it waited."""
    evidence: Evidence = field(default_factory=dict)
    """The numbers that the decision was based on."""


@dataclass(frozen=True)
class RankedSettings:
    """Settings of a trial of an earlier sweep."""

    trial: int
    """Its number there."""
    rank: int
    """Its place among the trials of that sweep, from 1."""
    settings: Mapping[str, Any]
    """Its values of the parameters that are searched here."""


@dataclass(frozen=True)
class EarlierSweep:
    """Settings and their ranks in another sweep."""

    name: str
    ranked: int
    """Number of its trials that have a rank."""
    trials: tuple[RankedSettings, ...]
    """Those that are learnt from, the best first."""


@dataclass(frozen=True)
class Learnt:
    """Settings and their ranks in earlier sweeps, which this one needs no more."""

    kind: ClassVar[str] = "learnt"
    sweeps: tuple[EarlierSweep, ...]


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


OfTrials = Created | Opened | Reported | Closed | Moved
Event = (
    TermBegan
    | FinalEvaluationBegan
    | TermEnded
    | OfTrials
    | Learnt
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
