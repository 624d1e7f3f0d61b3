"""The events of a sweep: the contents of its ledger, in order, each with a number.

Everything else known of a sweep is a fold over these (`sweep.history.history`). Events are
immutable plain data. Times are seconds since 1970 (UTC) and are labels only: no decision uses them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

# -------------------------------------------------------------------------------------------------
# Commands of users are events too: they are part of the history like every other decision.
#
# A held trial is not run until it is released, whatever the scheduler decides. A change of the
# budget takes effect with its event. All events are plain data; times are in seconds, sizes in
# bytes.


class UserHold(StrEnum):
    """A user's hold on a trial."""

    NONE = ""
    PAUSE = "pause"
    """The trial saves and waits until a user resumes it."""
    STOP = "stop"
    """The trial saves and ends."""


@dataclass(frozen=True)
class HoldChanged:
    """A user held or released a trial."""

    kind: ClassVar[str] = "hold"
    trial: int
    """Number of the trial."""
    hold: UserHold
    """Hold of the trials from now on."""


@dataclass(frozen=True)
class Suspended:
    """A user paused (`on`) or resumed the whole sweep; a new driver resumes it too."""

    kind: ClassVar[str] = "suspend"
    is_suspended: bool
    """True if the sweep was paused, False if it was resumed."""


@dataclass(frozen=True)
class LimitsChanged:
    """A user changed the sweep's limits; fields that are None or absent stay unchanged."""

    kind: ClassVar[str] = "set"
    trials: int | None = None
    """Total number of searched settings."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's `budget` → its new value; None removes the limit."""
    max_disk: int | None = None
    """New limit of the checkpoints' size in bytes."""
    jobs: int | None = None
    """Number of slots of the search, also for later drivers; in a final evaluation, that of the
    evaluation."""


@dataclass(frozen=True)
class Dropped:
    """Checkpoints of a replica, or its log, were deleted to save disk, or are lost."""

    kind: ClassVar[str] = "drop"
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the seed in the trial."""
    digests: tuple[str, ...]
    """Digests of the dropped checkpoints."""
    log: bool = False
    """True if the replica's log was deleted."""


@dataclass(frozen=True)
class MetricChanged:
    """Trials are compared by another metric from now on, including their earlier results.

    A history is folded with the metric of the newest such event.
    """

    kind: ClassVar[str] = "metric"
    metric: str
    """Name of the new metric."""


@dataclass(frozen=True)
class TrainableReplaced:
    """The trainable of a script was replaced; its new file is stored beside the older ones."""

    kind: ClassVar[str] = "code"
    source: str
    """Digest of the new code."""


@dataclass(frozen=True)
class OtherKernelAllowed:
    """From now on trials may continue without the compiled kernel of their checkpoints."""

    kind: ClassVar[str] = "kernel"


@dataclass(frozen=True)
class Suggested:
    """Settings that somebody wants to be tried: the next trial that is searched has them."""

    kind: ClassVar[str] = "suggest"
    settings: Mapping[str, Any]
    """Searched parameter → value; the searcher proposes the others."""
    author: str
    """The author."""
    reason: str = ""
    """The author's reason."""


@dataclass(frozen=True)
class StopChanged:
    """Trials end later from now on; ended ones that continue move to PAUSED after the event."""

    kind: ClassVar[str] = "stop"
    stop: Mapping[str, Any]
    """New `stop` section, as in a spec."""
    top: float | None = None
    """Top rung from now on; None without one."""


UserCommand = (
    HoldChanged
    | Suspended
    | LimitsChanged
    | Dropped
    | MetricChanged
    | TrainableReplaced
    | OtherKernelAllowed
    | StopChanged
    | Suggested
)


Scalar = bool | int | float | str
Metrics = Mapping[str, Scalar]
#: Name → number, text, or a list of them: the values behind a decision, for its explanation.
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

    __hash__ = str.__hash__  # Enum's own hash is a Python function, called by each look-up


#: Status → allowed next statuses. The ledger refuses every other change.
MOVES: Mapping[Status, frozenset[Status]] = {
    Status.WAITING: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.RUNNING: frozenset(
        {Status.PAUSED, Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED}
    ),
    Status.PAUSED: frozenset({Status.RUNNING, Status.PRUNED, Status.STOPPED}),
    Status.COMPLETED: frozenset({Status.PAUSED}),
    Status.PRUNED: frozenset({Status.PAUSED}),
    Status.STOPPED: frozenset({Status.PAUSED}),
    Status.FAILED: frozenset({Status.PAUSED}),
}

FINISHED = frozenset({Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED})


def group_status(statuses: Sequence[Status]) -> Status:
    """Return the status of a trial from those of its replicas.

    RUNNING if any replica runs; PAUSED if some have not finished; else FAILED, PRUNED or STOPPED if
    any replica is; COMPLETED only if all are.
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
    """The reason for which a slice ended."""

    GOAL = "goal"
    """The trial reached the slice's goal."""
    UNMEASURED = "unmeasured"
    """The trial passed its goal without ever reporting the metric; it continues if that may still
    come."""
    TIME = "time"
    """The slice's time was up; the trial continues from its last checkpoint."""
    DONE = "done"
    """A stopping criterion was met, or the trainable reported ``done``."""
    ASKED = "asked"
    """The driver requested the end, for a user or because the system is shutting down."""
    CRASHED = "crashed"
    """The trainable raised an exception."""
    UNSAVED = "unsaved"
    """No checkpoint could be saved; the trial continues from its last one, without counting a
    failure."""
    DIVERGED = "diverged"
    """The metric was NaN or infinite."""
    LIMIT = "limit"
    """The trial exceeded a limit and ends."""
    LOST = "lost"
    """The process of the slice died."""
    INTERRUPTED = "interrupted"
    """The driver was killed or stopped; the trial's failures are not affected."""


@dataclass(frozen=True)
class Goal:
    """The point up to which a trial runs: the first iteration with `time_attr` of at least `at`."""

    at: float | None = None
    """Value of `time_attr`; None to run until a stopping criterion is met."""
    top: float | None = None
    """Level at which the trial is COMPLETED instead of PAUSED; None without one."""


@dataclass(frozen=True)
class Saved:
    """The ledger's record of a checkpoint; `file` is relative to the trial's folder."""

    iteration: int
    """Iteration at which it was saved."""
    digest: str
    """SHA-256 of the file's content."""
    file: str
    """Path of the file, relative to the trial's folder."""
    size: int
    """Size in bytes, with its segments."""
    value: float | None = None
    """Metric at that iteration; None if it was not reported there."""


@dataclass(frozen=True)
class ParentCheckpoint:
    """A checkpoint of another trial from which an offspring starts."""

    trial: int
    """Number of the parent trial."""
    replica: int
    """Index of the parent's replica (its seed)."""
    time: float
    """Value of `time_attr` at the checkpoint."""
    saved: Saved
    """Ledger's record of the checkpoint."""


#: Key in a result that was lost with its slice; the result stays until it is computed again.
UNSAVED = "unsaved"


@dataclass(frozen=True)
class Row:
    """The result of one iteration; nested keys are joined with ``/``."""

    iteration: int
    """Number of the iteration, from 1."""
    metrics: Metrics
    """Name of the result → number or text."""


@dataclass(frozen=True)
class TermBegan:
    """A driver took over the sweep; slices that still ran in an older term are lost."""

    kind: ClassVar[str] = "epoch"
    host: str
    """Host name of the driver's machine."""
    pid: int
    """Process id of the driver."""
    trials: int
    """Total number of searched settings from now on."""
    jobs: int = 1
    """Number of slots of the pool."""
    jobs_given: bool = False
    """True if a user chose the number of slots; otherwise it follows from machine and trials."""
    pool: str = ""
    """Name of the pool."""
    unrecorded_s: float = 0.0
    """Seconds for which the previous driver ran after its last event until it was killed."""


@dataclass(frozen=True)
class FinalEvaluationBegan:
    """A driver took over the sweep to train its best trials under test seeds.

    The search neither continues nor ends.
    """

    kind: ClassVar[str] = "exam"
    host: str
    """Host name of the driver's machine."""
    pid: int
    """Process id of the driver."""
    trials: tuple[int, ...]
    """Numbers of the best trials, best first."""
    seeds: int
    """Total number of test seeds for each of these trials."""
    jobs: int | None = None
    """Number of slots of its pool, independent of the search's; None if not recorded."""
    pool: str = ""
    """Name of its pool."""
    unrecorded_s: float = 0.0
    """Seconds for which the previous driver ran after its last event until it was killed."""


#: Prefix of the reason of an end by the limit of this name.
FAIL_FAST = "limits.fail_fast"


@dataclass(frozen=True)
class TermEnded:
    """The driver ended: ``finished``, ``stopped`` by a user, or ``failed`` by an outside error."""

    kind: ClassVar[str] = "end"
    outcome: str
    """``finished``, ``stopped`` or ``failed``."""
    reason: str = ""
    """Reason for finishing before all trials did."""


@dataclass(frozen=True)
class Created:
    """A trial was created with its settings; its status is WAITING."""

    kind: ClassVar[str] = "trial"
    trial: int
    """Number of the trial, from 0."""
    searched: Mapping[str, Any]
    """Proposal of the searcher: name → value, without inactive parameters."""
    config: Mapping[str, Any]
    """Settings of the trainable: nested, with fixed and derived values."""
    seen: int
    """Number of the last event that the searcher had seen."""
    replicas: int = 1
    """Number of seeds that the trial starts with."""
    births: tuple[ParentCheckpoint, ...] = ()
    """Starting checkpoint of each replica of an offspring; empty if the settings were searched."""
    clone_of: int | None = None
    """Trial that a user cloned, or None; clones do not count as searched."""
    origin: str = ""
    """Part of the searcher that made the proposal, such as `prior`; empty for its own model."""
    reason: str = ""
    """Reason for the proposal, as a text."""
    suggestion: int | None = None
    """Number of the event `Suggested` with its settings, or None if nobody suggested them."""


@dataclass(frozen=True)
class Opened:
    """A slice was decided and is about to be submitted; the replica's status is RUNNING."""

    kind: ClassVar[str] = "slice"
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the seed in the trial."""
    slice: int
    """Number of the slice among the replica's slices, from 0."""
    goal: Goal
    """Point up to which the slice trains."""
    reason: str
    """Reason for the decision, as a text."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class Sums:
    """Sums over all results of a replica, for readers that need no curve.

    They follow from the results, and `sweep verify` compares both.
    """

    iteration: int
    """Number of finished iterations."""
    time: float
    """Newest value of `time_attr`."""
    known_until: float
    """Value of `time_attr` up to which the replica can be compared."""
    value: float | None
    """Newest number of the metric; NaN if it diverged, None if there is none."""
    score: float | None
    """Score of the curve so far; None if it has none yet."""
    others: tuple[float | None, ...]
    """Scores in the further objectives, then the newest value of each constraint; None where
    unknown."""
    seconds: float
    """Seconds of training so far."""
    steps: float
    """Environment steps so far."""
    counters: Mapping[str, Any]
    """Counters in the newest result (`sweep.spec.stopping.COUNTERS`)."""
    noise: float | None = None
    """Value of `Replica.noise`; None if unknown."""
    curve_mean: float | None = None
    """Value of `Replica.curve_mean`; None if unknown."""


@dataclass(frozen=True)
class Reported:
    """Results of a slice that still runs.

    No decision uses them before the slice has ended, since they may have to be computed again.
    """

    kind: ClassVar[str] = "report"
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the seed in the trial."""
    slice: int
    """Number of the slice among the replica's slices, from 0."""
    source: int
    """Iteration after which the rows follow; they replace older results after it."""
    rows: tuple[Row, ...] = ()
    """Results, stored in a table of their own."""
    sums: Sums | None = None
    """Sums over all results of the replica, including these; None before the history adds them."""

    @property
    def new_rows(self) -> tuple[Row, ...]:
        """Results that no earlier event had."""
        return self.rows


@dataclass(frozen=True)
class Closed:
    """A slice ended, with these results and checkpoints."""

    kind: ClassVar[str] = "outcome"
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the seed in the trial."""
    slice: int
    """Number of the slice among the replica's slices, from 0."""
    end: End
    """Reason for which the slice ended."""
    status: Status
    """Status of the replica from now on."""
    reason: str
    """Reason for the new status, as a text."""
    source: int = 0
    """Iteration after which the rows follow; they replace older results after it."""
    error: str = ""
    """Traceback, or empty."""
    error_at: int = 0
    """Iteration at which the error occurred."""
    skipped: tuple[str, ...] = ()
    """Messages about checkpoints that could not be used."""
    exactness: str = ""
    """Exactness level of the trial's checkpoints, as a text."""
    saved: tuple[Saved, ...] = ()
    """New checkpoints, oldest first."""
    dropped: tuple[str, ...] = ()
    """Digests of older checkpoints that are not needed from now on."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Findings of the trainable for all trials (`Trainable.remembers`): name → data."""
    value_found: str = ""
    """Description of the value found in place of the metric, if that was not a number."""
    is_random: bool | None = None
    """True if the replica's results may depend on random numbers; None if that is unknown."""
    rows: tuple[Row, ...] = ()
    """Results of the slice, stored in a table of their own."""
    sums: Sums | None = None
    """Sums over all results of the replica, including these. The history adds the sums before the
    event is recorded; None until then."""
    saved_to: int | None = None
    """Last iteration that need not be computed again, after which rows have the key `UNSAVED`; None
    if no result was lost with the slice."""
    reported_to: int | None = None
    """Last iteration in a `Reported` of the slice; None if there was none."""
    log: int = 0
    """Size of the replica's log in bytes."""

    @property
    def new_rows(self) -> tuple[Row, ...]:
        """Results that no `Reported` of the slice had.

        The others are repeated because they were lost.
        """
        upto = self.reported_to
        return self.rows if upto is None else tuple(r for r in self.rows if r.iteration > upto)


@dataclass(frozen=True)
class Moved:
    """A decision changed the status of a replica that does not run."""

    kind: ClassVar[str] = "move"
    trial: int
    """Number of the trial."""
    status: Status
    """Status of the replica from now on."""
    reason: str
    """Reason for the new status, as a text."""
    replica: int = 0
    """Index of the seed in the trial."""
    was_waiting: bool = False
    """True if the replica is pruned only because the sweep ended while it waited."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class RankedSettings:
    """Settings of a trial of an earlier sweep."""

    trial: int
    """Number of the trial in that sweep."""
    rank: int
    """Rank among the trials of that sweep, from 1."""
    settings: Mapping[str, Any]
    """Values of the parameters that this sweep searches."""


@dataclass(frozen=True)
class EarlierSweep:
    """Settings and their ranks in another sweep."""

    name: str
    """Name of the sweep."""
    ranked: int
    """Number of its trials that have a rank."""
    trials: tuple[RankedSettings, ...]
    """Trials that the prior uses, best first."""


@dataclass(frozen=True)
class Learnt:
    """Settings and ranks were copied from earlier sweeps, which are not needed afterwards."""

    kind: ClassVar[str] = "learnt"
    sweeps: tuple[EarlierSweep, ...]
    """Earlier sweeps with their ranked settings."""


@dataclass(frozen=True)
class SpaceChanged:
    """The search space was replaced."""

    kind: ClassVar[str] = "space"
    space: Mapping[str, Any]
    """New `space` section, as in a spec."""
    trial: int
    """Number of the first trial searched in it; earlier ones may be outside."""


@dataclass(frozen=True)
class SpaceExhausted:
    """The searcher has no further point: no more settings are searched."""

    kind: ClassVar[str] = "exhausted"
    reason: str
    """Reason that the searcher gave, as a text."""


OfTrials = Created | Opened | Reported | Closed | Moved
Event = (
    TermBegan
    | FinalEvaluationBegan
    | TermEnded
    | OfTrials
    | Learnt
    | SpaceChanged
    | SpaceExhausted
    | UserCommand
)


@dataclass(frozen=True)
class Recorded:
    """An event with its number, its term and the time at which it was written."""

    number: int
    """Number of the event, from 1."""
    term: int
    """Term of the driver that wrote the event."""
    time: float
    """Time in seconds since 1970, on the clock of `ledger.now`."""
    event: Event
    """The event itself."""
