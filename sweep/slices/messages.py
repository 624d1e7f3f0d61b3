"""Messages between driver and worker: the specification of a slice, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sweep.core import stats
from sweep.core.pickled import PickledTrainable
from sweep.history.curve import Divergence
from sweep.history.events import End, Goal, ParentCheckpoint, Row, Saved
from sweep.slices.retention import Retention
from sweep.slices.stopping import Bounds, Criteria, Flatness
from trainables.checkpoint.signing import Trust


@dataclass(frozen=True)
class SliceSpec:
    """Everything that a worker needs to run one slice."""

    sweep_id: str
    """Unique ID of the sweep."""
    term: int
    """Term of the driver that submitted the slice."""
    trial: int
    """Number of the trial."""
    replica: int
    """Index of the seed in the trial."""
    number: int
    """Number of the slice among the replica's slices, from 0."""
    trainable: str
    """Name of the trainable, as in the spec."""
    paths: tuple[str, ...]
    """Folders in which the trainable's module is searched after all installed packages."""
    config: Mapping[str, Any]
    """Settings of the trainable: nested, with fixed and derived values."""
    seed: int
    """Seed of the replica."""
    sources: tuple[Saved, ...]
    """Checkpoints to continue from, newest first; empty if the trial starts from scratch."""
    goal: Goal
    """Point up to which the slice trains."""
    time_attr: str
    """Key of the results in which goals are counted."""
    stop: Criteria
    """Values of results at which the trial ends."""
    metric: str
    """Key of the result by which trials are compared."""
    sign: float
    """+1 if greater values of the metric are better; -1 if smaller ones are."""
    policy: Retention
    """Checkpoints to write and to keep."""
    slice_s: float
    """Seconds after which the slice ends at its next checkpoint."""
    folder: str
    """Folder of the trial."""
    stop_file: str
    """Path of a file whose presence ends the slice at its next checkpoint."""
    own_stop_file: str = ""
    """Path of a file whose presence ends the slices of this trial, even if it cannot save."""
    ends_if_not_finite: bool = False
    """True if a metric that is NaN or infinite ends the trial."""
    trial_s: float | None = None
    """Seconds of training after which the trial ends; None for no limit."""
    spent: tuple[tuple[int, float], ...] = ()
    """Pairs of iteration and its duration in seconds, if `trial_s` is set."""
    watched: tuple[tuple[int, float | None], ...] = ()
    """Pairs of iteration and value of the plateau's metric (None if missing), oldest first."""
    diverging: tuple[tuple[int, Divergence], ...] = ()
    """Pairs of an iteration to continue from and the divergence of the metric up to there."""
    metric_deadline: float | None = None
    """Value of `time_attr` at which the slice ends if its trial has never reported the metric, so
    that the driver can decide about the trial; None once the trial has reported the metric."""
    birth: ParentCheckpoint | None = None
    """Checkpoint of another trial that this trial starts from, or None."""
    birth_folder: str = ""
    """Folder of that checkpoint."""
    iteration: int = 0
    """Number of iterations in the ledger; a trial that cannot save continues only from a live
    trainable at this iteration."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Findings of earlier trials, for `TrialContext.remembered`."""
    shared_folder: str = ""
    """Folder in which concurrent trials share measurements; empty if there is none."""
    trust: Trust | None = None
    """Key that signs checkpoints that may run code, and the accepted signers; None without key.
    """
    script_file: PickledTrainable | None = None
    """File of a script's pickled trainable, or None."""
    worker: str = ""
    """Name of the cluster's worker that runs the slice; empty on the driver's machine."""
    store: str = ""
    """URL of the sweep's object storage; empty if checkpoints are only in the folder."""
    allows_other_kernel: bool = False
    """True if the slice may continue on a kernel other than its checkpoint's."""
    log_bytes: int | None = None
    """Maximum bytes of the trial's log before it is rotated; None for no limit."""
    doubtful_names: tuple[str, ...] = ()
    """Names of results that may be misspelt; progress files list those that are missing."""
    objectives: tuple[str, ...] = ()
    """Names of the further objectives after the metric, in the order of the spec."""
    isolate: Literal["process", "slot"] | None = None
    """Process to run in: the trial's own or the slot's; None means its own for functions only."""

    def bounds(self, source: int) -> Bounds:
        """Return the bounds of a slice that starts from iteration `source`, given its trial's past.

        Results after `source` are ignored, since they will be computed again.
        """
        plateau = self.stop.plateau
        flatness = None if plateau is None else Flatness(plateau)
        for iteration, value in self.watched if flatness else ():
            if flatness and iteration <= source:
                flatness.add(value)
        left = None
        if self.trial_s is not None:
            left = self.trial_s - stats.total(s for at, s in self.spent if at <= source)
        divergence = dict(self.diverging).get(source, Divergence())
        return Bounds(
            self.metric,
            self.goal,
            self.time_attr,
            self.stop,
            self.ends_if_not_finite,
            left,
            flatness,
            replace(divergence),
            self.metric_deadline,
        )


@dataclass(frozen=True)
class Pace:
    """The speed of slices that run side by side in one process."""

    lanes: int
    """Number of slices that run side by side."""
    steps_per_s: float | None
    """Environment steps of all slices together per second; None if their results do not count
    them."""
    device: str
    """Name of the device that computes the slices; empty if unknown."""


@dataclass(frozen=True)
class DeviceFailed:
    """The last message of a process whose device cannot compute any more."""

    why: str
    """The error of the device, on one line."""
    lanes: int | None = None
    """Number of lanes at once for which the device's memory did not suffice; None if the device is
    lost."""


@dataclass(frozen=True)
class SliceOutcome:
    """The outcome of a slice: how it ended, its results and its checkpoints."""

    trial: int
    """Number of the trial."""
    replica: int
    """Index of the seed in the trial."""
    number: int
    """Number of the slice among the replica's slices, from 0."""
    end: End
    """Reason for which the slice ended."""
    source: int
    """Iteration from which the slice started."""
    rows: tuple[Row, ...] = ()
    """Results of the slice, in order."""
    saved: tuple[Saved, ...] = ()
    """New checkpoints, oldest first."""
    error: str = ""
    """Traceback; empty without an exception."""
    error_at: int = 0
    """Iteration that raised an exception; if saving raised it, the iteration after the saved one.
    """
    while_saving: bool = False
    """True if the exception was raised while a checkpoint was being made."""
    skipped: tuple[str, ...] = ()
    """Messages about checkpoints that could not be used."""
    exactness: str = ""
    """Exactness level of the trial's checkpoints, as a text."""
    why: str = ""
    """Cause of the trial's end, or first line of the slice's exception, as a text."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """New findings of the trainable, for later trials."""
    value_found: str = ""
    """Description of the value found in place of the metric, if that was not a number."""
    is_random: bool | None = None
    """`Trainable.is_random` at the end; None if unknown."""
