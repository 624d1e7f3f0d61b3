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
    """State in which a user keeps a trial, whatever the scheduler decides; empty for none."""

    NONE = ""
    PAUSE = "pause"
    """The trial saves a checkpoint and waits until a user resumes it."""
    STOP = "stop"
    """The trial saves a checkpoint and ends."""


@dataclass(frozen=True)
class HoldChanged:
    """A user paused, stopped or released a trial."""

    kind: ClassVar[str] = "hold"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial."""
    hold: UserHold
    """State in which the user keeps the trial from now on; NONE releases it."""


@dataclass(frozen=True)
class Suspended:
    """A user paused or resumed the whole sweep. The beginning of a new term ends a pause too."""

    kind: ClassVar[str] = "suspend"
    """Name of this kind of event in the ledger."""
    is_suspended: bool
    """True if the sweep was paused, False if it was resumed."""


@dataclass(frozen=True)
class LimitsChanged:
    """A user changed the sweep's limits; fields that are None or absent stay unchanged."""

    kind: ClassVar[str] = "set"
    """Name of this kind of event in the ledger."""
    trials: int | None = None
    """New total number of trials whose settings the searcher proposes (``--trials``)."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's `budget` → its new value; None removes the limit."""
    max_disk: int | None = None
    """New limit of the checkpoints' size in bytes."""
    jobs: int | None = None
    """New number of slices that run at once, also for later drivers. If a final evaluation runs, it
    is the number of the evaluation's slices only."""


@dataclass(frozen=True)
class Dropped:
    """Checkpoints of a replica, or its log, were deleted to save disk, or were found missing."""

    kind: ClassVar[str] = "drop"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial."""
    digests: tuple[str, ...]
    """Digests (SHA-256) of the checkpoints that are gone."""
    log: bool = False
    """True if the replica's log file was deleted."""


@dataclass(frozen=True)
class MetricChanged:
    """Trials are compared by another metric from now on, including their earlier results.

    Whoever reads a ledger builds the whole history with the newest such metric.
    """

    kind: ClassVar[str] = "metric"
    """Name of this kind of event in the ledger."""
    metric: str
    """Name of the new metric."""


@dataclass(frozen=True)
class TrainableReplaced:
    """The code of a trainable that came from a script or notebook was replaced.

    Its new file is stored beside the older ones.
    """

    kind: ClassVar[str] = "code"
    """Name of this kind of event in the ledger."""
    source: str
    """Digest (SHA-256) of the new code."""


@dataclass(frozen=True)
class OtherKernelAllowed:
    """A user allowed trials to continue without the compiled kernel of their checkpoints.

    Learning then continues in another implementation, so results may differ in rounding.
    """

    kind: ClassVar[str] = "kernel"
    """Name of this kind of event in the ledger."""


@dataclass(frozen=True)
class Suggested:
    """A person or agent wants some settings to be tried: a later trial gets them."""

    kind: ClassVar[str] = "suggest"
    """Name of this kind of event in the ledger."""
    settings: Mapping[str, Any]
    """Searched parameter → value; the searcher proposes the parameters that are absent."""
    author: str
    """Name of the person or agent, as given."""
    reason: str = ""
    """Reason that the author gave, as a text; may be empty."""


@dataclass(frozen=True)
class StopChanged:
    """A user moved the end of training further.

    Trials that ended at the old end and continue are set to PAUSED by later events.
    """

    kind: ClassVar[str] = "stop"
    """Name of this kind of event in the ledger."""
    stop: Mapping[str, Any]
    """New `stop` section of the spec."""
    top: float | None = None
    """Value of `time_attr` at which trials are COMPLETED from now on; None keeps each trial's own
    value."""


#: Event that records a user's request.
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
#: Name of a result → its value.
Metrics = Mapping[str, Scalar]
#: Name → number, text, or a list of them: the values behind a decision, for its explanation.
Evidence = Mapping[str, Any]


class Status(StrEnum):
    """Status of a trial or replica; WAITING, RUNNING and PAUSED ones may still train.

    COMPLETED ones trained to the end. PRUNED ones were ended by the scheduler, a metric that is not
    finite, or the sweep's end; STOPPED ones by a user, a limit, or another seed's end.
    """

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
    Status.WAITING: frozenset({Status.RUNNING, Status.PRUNED, Status.STOPPED}),
    Status.RUNNING: frozenset(
        {Status.PAUSED, Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED}
    ),
    Status.PAUSED: frozenset({Status.RUNNING, Status.COMPLETED, Status.PRUNED, Status.STOPPED}),
    Status.COMPLETED: frozenset({Status.PAUSED}),
    Status.PRUNED: frozenset({Status.WAITING, Status.PAUSED}),
    Status.STOPPED: frozenset({Status.PAUSED}),
    Status.FAILED: frozenset({Status.PAUSED}),
}

#: Statuses of trials that train no more, unless a user lets them continue.
FINISHED = frozenset({Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED})


def group_status(statuses: Sequence[Status]) -> Status:
    """Return the status of a trial from those of its replicas.

    It is the status that all share, if they do. Otherwise it is RUNNING if any replica runs, PAUSED
    if none runs and one has not finished, and else FAILED, PRUNED or STOPPED, the first of these
    that a replica has. `statuses` must not be empty.
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
    """Reason for which a slice (one stretch of training in a worker process) ended."""

    GOAL = "goal"
    """The trial reached the slice's goal, and the metric is known there."""
    UNMEASURED = "unmeasured"
    """The trial passed its goal without ever reporting the metric."""
    TIME = "time"
    """The slice's time was up; the trial continues from its last checkpoint."""
    DONE = "done"
    """A stopping criterion was met, or the trainable reported ``done``."""
    ASKED = "asked"
    """The driver asked the slice to end, for a user or because sweep is shutting down."""
    CRASHED = "crashed"
    """The trainable raised an exception."""
    UNSAVED = "unsaved"
    """No checkpoint could be saved; the trial continues from its last one, without counting a
    failure."""
    DIVERGED = "diverged"
    """The metric was NaN or infinite, and `limits.not_finite` says to prune or fail the trial."""
    LIMIT = "limit"
    """The trial exceeded a limit of the spec's `limits`, and ends for good."""
    LOST = "lost"
    """The process of the slice died without an outcome."""
    INTERRUPTED = "interrupted"
    """The driver was killed or stopped; this counts as no failure of the trial."""


@dataclass(frozen=True)
class Goal:
    """Point up to which a trial trains before the scheduler decides about it again.

    It is reached at the first iteration whose `time_attr` is at least `until`.
    """

    until: float | None = None
    """Value of `time_attr` to train up to; None to train until a stopping criterion is met."""
    top: float | None = None
    """Value of `time_attr` at which the trial has trained enough, so that it becomes COMPLETED
    instead of PAUSED; None without one."""


@dataclass(frozen=True)
class Saved:
    """Ledger's record of one checkpoint file."""

    iteration: int
    """Number of the iteration after which the checkpoint was saved."""
    digest: str
    """SHA-256 of the file's content, in hexadecimal digits."""
    file: str
    """Path of the file, relative to the trial's folder."""
    size: int
    """Size of the checkpoint in bytes, including the segment files to which it refers."""
    value: float | None = None
    """Value of the metric at that iteration; None if the metric was not reported or not finite
    there."""


@dataclass(frozen=True)
class ParentCheckpoint:
    """Checkpoint of another trial from which an offspring of population-based training starts."""

    trial: int
    """Number of the parent trial."""
    replica: int
    """Index of the parent's replica."""
    time: float
    """Value of `time_attr` at the checkpoint."""
    saved: Saved
    """Ledger's record of the checkpoint."""


#: Key in a result that was lost with its slice; the result stays until it is computed again.
UNSAVED = "unsaved"


@dataclass(frozen=True)
class Row:
    """Result of one iteration as stored: one level of scalars, nested keys joined with ``/``."""

    iteration: int
    """Number of the iteration, from 1."""
    metrics: Metrics
    """Name of the result → number or text."""


@dataclass(frozen=True)
class TermBegan:
    """A driver took over the sweep for its search.

    Slices that still ran in an older term are lost.
    """

    kind: ClassVar[str] = "epoch"
    """Name of this kind of event in the ledger."""
    host: str
    """Host name of the driver's machine."""
    pid: int
    """Process id of the driver."""
    trials: int
    """Total number of trials whose settings the searcher proposes, from now on."""
    jobs: int = 1
    """Number of slices that run at once (slots of the pool)."""
    jobs_given: bool = False
    """True if a user chose the number of slots; otherwise it was derived from the machine and the
    number of trials."""
    pool: str = ""
    """Name of the pool, such as ``loky``."""
    unrecorded_s: float = 0.0
    """Seconds for which the previous driver was alive after its last event before it was killed,
    according to its lease."""


@dataclass(frozen=True)
class FinalEvaluationBegan:
    """A driver took over the sweep to train its best trials again under held-out seeds.

    The search neither continues nor ends.
    """

    kind: ClassVar[str] = "exam"
    """Name of this kind of event in the ledger."""
    host: str
    """Host name of the driver's machine."""
    pid: int
    """Process id of the driver."""
    trials: tuple[int, ...]
    """Numbers of the trials that are evaluated, best first."""
    seeds: int
    """Total number of held-out seeds for each of these trials, with those trained before."""
    jobs: int | None = None
    """Number of slices of the evaluation that run at once; None if not recorded."""
    pool: str = ""
    """Name of the pool, such as ``loky``."""
    unrecorded_s: float = 0.0
    """Seconds for which the previous driver was alive after its last event before it was killed,
    according to its lease."""


#: Prefix of the reason of an end by the limit of this name.
FAIL_FAST = "limits.fail_fast"
#: Reason of a trial that is PAUSED at its goal.
AT_GOAL = "waits for the scheduler's next decision"


@dataclass(frozen=True)
class TermEnded:
    """A driver ended by itself, not by a kill."""

    kind: ClassVar[str] = "end"
    """Name of this kind of event in the ledger."""
    outcome: str
    """``finished``, ``stopped`` by a user, or ``failed`` by an error outside the trials."""
    reason: str = ""
    """Reason for which the sweep ended before all trials had, such as a budget; else empty."""


@dataclass(frozen=True)
class Created:
    """A trial was created with its settings; its status is WAITING."""

    kind: ClassVar[str] = "trial"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial, from 0."""
    searched: Mapping[str, Any]
    """Searched parameter → value that the searcher proposed, without inactive parameters."""
    config: Mapping[str, Any]
    """Settings passed to the trainable: nested, with searched, fixed and derived values."""
    seen: int
    """Number of the newest event that the searcher knew when it proposed the settings."""
    replicas: int = 1
    """Number of replicas (seeds) that the trial starts with."""
    births: tuple[ParentCheckpoint, ...] = ()
    """Checkpoint that each replica of an offspring starts from, by replica; empty if the trial
    starts from scratch."""
    clone_of: int | None = None
    """Number of the trial whose settings a user copied for this one, or None. Clones do not count
    as searched."""
    origin: str = ""
    """Name of the part of the searcher that made the proposal, such as `prior`; empty for the
    searcher's own model."""
    reason: str = ""
    """Reason for the proposal, as a text for people; may be empty."""
    suggestion: int | None = None
    """Number of the event `Suggested` that the settings come from, or None."""


@dataclass(frozen=True)
class Opened:
    """A slice was decided and is about to be submitted to the pool; its replica is RUNNING."""

    kind: ClassVar[str] = "slice"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial; the event adds a replica that does not exist yet."""
    slice: int
    """Number of the slice among those of the replica, from 0."""
    goal: Goal
    """Point up to which the replica may train."""
    reason: str
    """Reason for the decision, as a text for people."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class Sums:
    """Totals and newest values over all results of a replica, for readers that load no results.

    They follow from the results; `sweep verify` recomputes and compares them.
    """

    iteration: int
    """Number of the last finished iteration, a parent's included (`Replica.iteration`)."""
    time: float
    """Newest value of `time_attr`."""
    known_until: float
    """Value of `time_attr` up to which the replica can be compared (`Replica.known_until`)."""
    value: float | None
    """Newest number of the metric; NaN if it diverged, None if there is none."""
    score: float | None
    """Score of the curve so far (by the spec's `score`, such as the last value); None without
    one."""
    others: tuple[float | None, ...]
    """Scores in further objectives, then newest values of the results with constraints; None for
    one that is unknown."""
    seconds: float
    """Seconds of training so far."""
    steps: float
    """Number of environment steps so far."""
    counters: Mapping[str, Any]
    """Values in the newest result of the keys in `sweep.spec.stopping.COUNTERS`, such as the total
    number of environment steps."""
    noise: float | None = None
    """Variance of the score due to the episodes of one evaluation (`Replica.noise`); None if
    unknown."""
    curve_mean: float | None = None
    """Weighted mean of the metric over the curve (`Replica.curve_mean`); None if unknown."""
    late_mean: float | None = None
    """Mean of the metric over the last quarter of training (`Replica.late_mean`); None if
    unknown."""


@dataclass(frozen=True)
class Reported:
    """Results that a running slice has reported so far.

    They are for people and trackers only: no decision uses them before the slice has ended, since
    they may have to be computed again.
    """

    kind: ClassVar[str] = "report"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial."""
    slice: int
    """Number of the slice among those of the replica, from 0."""
    source: int
    """Number of the iteration after which `rows` begin. They replace all older results after it."""
    rows: tuple[Row, ...] = ()
    """One row per new iteration; the ledger stores them in a table of their own."""
    sums: Sums | None = None
    """Sums over all results of the replica, including `rows`; None until `History.with_sums` has
    added them."""

    @property
    def new_rows(self) -> tuple[Row, ...]:
        """Rows that no earlier event had: all of them."""
        return self.rows


@dataclass(frozen=True)
class Closed:
    """A slice ended. The event has its results, its checkpoints and the replica's next status."""

    kind: ClassVar[str] = "outcome"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial."""
    slice: int
    """Number of the slice among those of the replica, from 0."""
    end: End
    """Reason for which the slice ended."""
    status: Status
    """Status of the replica from now on."""
    reason: str
    """Reason for the new status, as a text for people."""
    source: int = 0
    """Number of the iteration after which `rows` begin. They replace all older results after it."""
    error: str = ""
    """Traceback of the exception that ended the slice, or the message of the disk or storage that
    refused its checkpoints; empty without one."""
    error_at: int = 0
    """Number of the iteration in which the exception was raised; 0 without one."""
    skipped: tuple[str, ...] = ()
    """Message for each checkpoint that the slice could not restore and passed over for an older
    one."""
    exactness: str = ""
    """Text that says how exactly the replica's checkpoints can be resumed
    (docs/design/exactness.md); empty if unknown."""
    saved: tuple[Saved, ...] = ()
    """Checkpoints that the slice wrote and that are kept, oldest first."""
    dropped: tuple[str, ...] = ()
    """Digests of older checkpoints that the retention policy deletes from now on."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Findings of the trainable that hold for all trials (`Trainable.remembers`): name → plain
    data."""
    value_found: str = ""
    """Description of the value that the results had in place of a number for the metric; empty if
    that was a number or absent."""
    is_random: bool | None = None
    """True if the replica's results may depend on random numbers, False if they do not; None if
    that is unknown."""
    rows: tuple[Row, ...] = ()
    """One row for each iteration of the slice after `source`, in order: those that no `Reported`
    had and, if results were lost, the lost ones again. The ledger stores them in a table of their
    own."""
    sums: Sums | None = None
    """Sums over all results of the replica, including `rows`; None until `History.with_sums` has
    added them."""
    saved_to: int | None = None
    """Last iteration covered by a checkpoint, after which results must be computed again and have
    the key `UNSAVED`; None if no result was lost."""
    reported_to: int | None = None
    """Last iteration that a `Reported` of this slice had; None if there was none."""
    log: int = 0
    """Size of the replica's log in bytes when the slice ended."""

    @property
    def new_rows(self) -> tuple[Row, ...]:
        """Rows after iteration `reported_to`, which no `Reported` of the slice had.

        If `reported_to` is None, these are all rows.
        """
        upto = self.reported_to
        return self.rows if upto is None else tuple(r for r in self.rows if r.iteration > upto)


@dataclass(frozen=True)
class Moved:
    """A decision changed the status of a replica while no slice of it ran."""

    kind: ClassVar[str] = "move"
    """Name of this kind of event in the ledger."""
    trial: int
    """Number of the trial."""
    status: Status
    """Status of the replica from now on."""
    reason: str
    """Reason for the new status, as a text for people."""
    replica: int = 0
    """Index of the replica in the trial."""
    was_waiting: bool = False
    """True if the replica is PRUNED only because the sweep ended while it waited to begin or to be
    promoted."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


@dataclass(frozen=True)
class RankedSettings:
    """Settings of one trial of an earlier sweep, with its rank there."""

    trial: int
    """Number of the trial in that sweep."""
    rank: int
    """Rank among the trials of that sweep, from 1."""
    settings: Mapping[str, Any]
    """Parameter that this sweep searches → its value in that trial."""


@dataclass(frozen=True)
class EarlierSweep:
    """Best settings of another sweep, from which a prior proposes settings in this sweep."""

    name: str
    """Name of the sweep."""
    ranked: int
    """Number of trials of that sweep that had a rank, including those not copied."""
    trials: tuple[RankedSettings, ...]
    """Trials copied from that sweep, best first."""


@dataclass(frozen=True)
class Learnt:
    """Settings and ranks were copied from earlier sweeps, which are not read again afterwards."""

    kind: ClassVar[str] = "learnt"
    """Name of this kind of event in the ledger."""
    sweeps: tuple[EarlierSweep, ...]
    """Earlier sweeps with their best settings."""


@dataclass(frozen=True)
class SpaceChanged:
    """A user replaced the search space."""

    kind: ClassVar[str] = "space"
    """Name of this kind of event in the ledger."""
    space: Mapping[str, Any]
    """New `space` section of the spec."""
    trial: int
    """Number of the first trial that is proposed from the new space; earlier ones may lie
    outside."""


@dataclass(frozen=True)
class SpaceExhausted:
    """The searcher has no further point, as a grid at its end: no more settings are proposed."""

    kind: ClassVar[str] = "exhausted"
    """Name of this kind of event in the ledger."""
    reason: str
    """Reason that the searcher gave, as a text for people."""


#: Event about one trial.
OfTrials = Created | Opened | Reported | Closed | Moved
#: Any event of the ledger.
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
    """An event as the ledger stores it: numbered, with its term and time."""

    number: int
    """Number of the event, from 1."""
    term: int
    """Number of the term (the time in which one driver or command holds the sweep) of the event."""
    time: float
    """Time of writing in seconds since 1970, on the clock of `ledger.now`."""
    event: Event
    """The event itself."""
