"""Messages between driver and worker: the specification of a slice, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sweep.core import stats
from sweep.core.pickled import PickledTrainable
from sweep.history.curve import Divergence
from sweep.history.events import End, Goal, ParentCheckpoint, Row, Saved
from sweep.slices.retention import Retention
from sweep.slices.stopping import Bounds, Criteria, Flatness, Streaks
from trainables.checkpoint.signing import Trust


@dataclass(frozen=True)
class SliceSpec:
    """Everything that a worker needs to run one slice.

    This includes settings, seed, checkpoints, goal and limits.
    """

    sweep_id: str
    """Unique ID of the sweep."""
    term: int
    """Number of the term of the driver that submitted the slice."""
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial."""
    number: int
    """Number of the slice among those of the replica, from 0."""
    trainable: str
    """Name of the trainable, or path to its class, as in the spec."""
    paths: tuple[str, ...]
    """Folders in which modules are looked for after all installed packages."""
    config: Mapping[str, Any]
    """Settings passed to the trainable: nested, with searched, fixed and derived values."""
    seed: int
    """Seed of all random streams of the replica."""
    sources: tuple[Saved, ...]
    """Checkpoints of the replica to continue from, newest first; empty if it has none."""
    goal: Goal
    """Point up to which the slice trains."""
    time_attr: str
    """Name of the result in whose values goals are counted."""
    stop: Criteria
    """Stopping criteria of the spec."""
    metric: str
    """Name of the result by which trials are compared."""
    sign: float
    """+1 if greater values of the metric are better; -1 if smaller ones are."""
    policy: Retention
    """Policy that says when checkpoints are written and which are kept."""
    slice_s: float
    """Seconds after which the slice ends at its next checkpoint; without effect on a trainable that
    cannot save."""
    folder: str
    """Path of the replica's folder."""
    stop_file: str
    """Path of a file whose presence ends the slice at its next checkpoint; without effect on a
    trainable that cannot save."""
    own_stop_file: str = ""
    """Path of a file whose presence ends the slices of this trial: at the next checkpoint, or after
    the iteration if it cannot save."""
    ends_if_not_finite: bool = False
    """True if a metric that is NaN or infinite ends the trial."""
    trial_s: float | None = None
    """Seconds of training after which the trial ends; None for no limit."""
    spent: tuple[tuple[int, float], ...] = ()
    """Pairs of an iteration's number and its duration in seconds, if `trial_s` is set."""
    watched: Mapping[str, tuple[tuple[int, float | None], ...]] = field(default_factory=dict)
    """Name of a result in `Criteria.watched` → pairs of an iteration's number and its value (None
    if missing), oldest first."""
    diverging: tuple[tuple[int, Divergence], ...] = ()
    """Pairs of the iteration of a checkpoint to continue from and the count of NaN of the metric up
    to there."""
    metric_deadline: float | None = None
    """Value of `time_attr` at which the slice ends if its trial has never reported the metric, so
    that the driver can decide about the trial; None once the trial has reported the metric."""
    birth: ParentCheckpoint | None = None
    """Checkpoint of a parent trial that the replica started from, or None."""
    birth_folder: str = ""
    """Path of the folder with the checkpoint `birth`; empty without one."""
    iteration: int = 0
    """Number of iterations in the ledger; a trainable that cannot save continues only if a worker
    still keeps it at this iteration."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Findings of earlier trials (`TrialContext.remembered`): name → plain data."""
    shared_folder: str = ""
    """Folder in which concurrent trials share measurements; empty if there is none."""
    trust: Trust | None = None
    """Key that signs checkpoints that may run code, with the accepted signers; None without key."""
    script_file: PickledTrainable | None = None
    """File with the pickled trainable of a script or notebook, or None."""
    worker: str = ""
    """Name of the cluster's worker that runs the slice; empty on the driver's machine."""
    store: str = ""
    """URL of the sweep's object storage; empty if checkpoints are only in the folder."""
    allows_other_kernel: bool = False
    """True if the slice may continue without the compiled kernel that its checkpoint names."""
    log_bytes: int | None = None
    """Maximum bytes of the trial's log before it is rotated; None for no limit."""
    doubtful_names: tuple[str, ...] = ()
    """Names of results in the spec that may be misspelt; the progress file lists those that are
    missing."""
    objectives: tuple[str, ...] = ()
    """Names of the results of further objectives, in the order of the spec."""
    isolate: Literal["process", "slot"] | None = None
    """``process`` to run in a process of the trial's own, ``slot`` to run in the worker; None means
    the former for functions only."""

    def bounds(self, source: int) -> Bounds:
        """Return the conditions that end a slice which starts after iteration `source`.

        Those over the trial's whole past (plateau, consecutive results, training time, divergence)
        include its results up to `source`; later ones will be computed again.
        """
        flatness = None
        if self.stop.plateau is not None:
            flatness = Flatness(self.stop.plateau)
            for iteration, value in self.watched[self.stop.plateau.metric]:
                if iteration <= source:
                    flatness.add(value)
        streaks = Streaks(self.stop)
        streaks.add_past(self.watched, source)
        left = None
        if self.trial_s is not None:
            left = self.trial_s - stats.total(s for at, s in self.spent if at <= source)
        divergence = dict(self.diverging).get(source, Divergence())
        return Bounds(
            self.metric,
            self.goal,
            self.time_attr,
            streaks,
            self.ends_if_not_finite,
            left,
            flatness,
            replace(divergence),
            self.metric_deadline,
        )


@dataclass(frozen=True)
class Pace:
    """Speed of slices that run side by side in one process, reported about every second."""

    lanes: int
    """Number of slices that run side by side."""
    steps_per_s: float | None
    """Environment steps per second of all slices together; None if their results do not count
    them."""
    device: str
    """Name of the device that computes the slices; empty if unknown."""


@dataclass(frozen=True)
class DeviceFailed:
    """Last message of a process whose device cannot compute any more."""

    reason: str
    """Error of the device, on one line."""
    lanes: int | None = None
    """Number of lanes at once for which the device's memory did not suffice; None if the device is
    lost."""


@dataclass(frozen=True)
class SliceOutcome:
    """Outcome of a slice: how it ended, its results and its checkpoints."""

    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial."""
    number: int
    """Number of the slice among those of the replica, from 0."""
    end: End
    """Reason for which the slice ended."""
    source: int
    """Number of the iteration after which the slice started."""
    rows: tuple[Row, ...] = ()
    """One row per iteration of the slice, in order."""
    saved: tuple[Saved, ...] = ()
    """Checkpoints that the slice wrote and kept, oldest first."""
    error: str = ""
    """Traceback of an exception that ended the slice, or the message of the disk or storage that
    refused its checkpoints; empty without one."""
    error_at: int = 0
    """Number of the iteration in which the exception was raised; if saving raised it, the one after
    the saved iteration."""
    would_recur: bool = False
    """True if a retry would raise the exception again."""
    while_saving: bool = False
    """True if the exception was raised while a checkpoint was being made."""
    skipped: tuple[str, ...] = ()
    """Message for each checkpoint that is lost and was passed over at the start."""
    exactness: str = ""
    """Text that says how exactly the checkpoints can be resumed."""
    reason: str = ""
    """Cause of the trial's end, or first line of the slice's exception, as a text; else empty."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """New findings of the trainable for later trials: name → plain data."""
    value_found: str = ""
    """Description of the value that the results had in place of a number for the metric; empty if
    that was a number or absent."""
    is_random: bool | None = None
    """True if the results may depend on random numbers (`Trainable.is_random`); None if unknown."""
