"""Messages between driver and worker: the specification of a slice, and its outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sweep import stats
from sweep.history.curve import Divergence
from sweep.history.events import End, Goal, ParentCheckpoint, Row, Saved
from sweep.pickled import Kept
from sweep.slices.retention import Retention
from sweep.slices.stopping import Bounds, Criteria, Flatness
from trainables.checkpoint.signing import Trust


@dataclass(frozen=True)
class SliceSpec:
    """All that a worker needs to know."""

    sweep_id: str
    term: int
    trial: int
    replica: int
    number: int
    trainable: str
    paths: tuple[str, ...]
    """Folders in which the trainable's module is looked for after everything installed."""
    config: Mapping[str, Any]
    seed: int
    sources: tuple[Saved, ...]
    """Checkpoints to continue from, newest first; empty: from the beginning."""
    goal: Goal
    time_attr: str
    stop: Criteria
    metric: str
    sign: float
    policy: Retention
    slice_s: float
    """Time after which the slice ends at its next checkpoint, seconds."""
    folder: str
    """The trial's folder."""
    stop_file: str
    """The slice ends at its next checkpoint when this file exists."""
    own_stop_file: str = ""
    """A file that ends this trial's slices alone, also where the trial cannot save."""
    not_finite_ends: bool = False
    """True if a metric that is NaN or infinite ends the trial."""
    trial_s: float | None = None
    """Seconds of training after which the trial ends."""
    spent: tuple[tuple[int, float], ...] = ()
    """Iteration and its seconds, where there is such a limit."""
    watched: tuple[tuple[int, float | None], ...] = ()
    """Iteration and value of what a plateau watches, oldest first."""
    diverging: tuple[tuple[int, Divergence], ...] = ()
    """Iteration of what it may continue from, and what the metric's NaN had come to there."""
    asks_at: float | None = None
    """The value of ``time_attr`` at which it ends if its trial has never had the metric, so that
    the driver may see whether it is to come; None: it has had it."""
    birth: ParentCheckpoint | None = None
    """The beginning, if it is a checkpoint of another trial."""
    birth_folder: str = ""
    """The folder of that checkpoint."""
    iteration: int = 0
    """Iterations that the ledger has; what cannot save goes on if it still stands there."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """Findings of earlier trials, for `TrialContext.remembered`."""
    shared_folder: str = ""
    """The folder in which concurrent trials share measurements; empty if there is none."""
    trust: Trust | None = None
    """Signs checkpoints that may run code, and says whose are accepted; None: there is no key."""
    kept: Kept | None = None
    """The file of a script's pickled trainable."""
    worker: str = ""
    """The worker of a cluster that runs it; empty: it runs on the driver's machine."""
    store: str = ""
    """URL of the sweep's storage; empty: its checkpoints lie in the folder alone."""
    other_kernel: bool = False
    """True if the slice may continue without the kernel of its checkpoint."""
    log_bytes: int | None = None
    """Size at which the trial's log is turned over; None: never."""
    looked_for: tuple[str, ...] = ()
    """Names of results that may be misspelt: notes of progress say which of them are not there."""

    isolate: Literal["process", "slot"] | None = None
    """The process it runs in; None: its own for a function, that of its slot for all else."""

    def bounds(self, source: int) -> Bounds:
        """Return the bounds of a slice that starts from iteration `source`, by its trial's past.

        What came after that is done again, and counts once.
        """
        plateau = self.stop.plateau
        flatness = None if plateau is None else Flatness(plateau)
        for iteration, value in self.watched if flatness else ():
            if flatness and iteration <= source:
                flatness.add(value)
        left = None
        if self.trial_s is not None:
            left = self.trial_s - stats.total(s for at, s in self.spent if at <= source)
        seen = dict(self.diverging).get(source, Divergence())
        return Bounds(
            self.metric,
            self.goal,
            self.time_attr,
            self.stop,
            self.not_finite_ends,
            left,
            flatness,
            replace(seen),
            self.asks_at,
        )


@dataclass(frozen=True)
class SliceOutcome:
    """The outcome of a slice."""

    trial: int
    replica: int
    number: int
    end: End
    source: int
    """The iteration that it continued from."""
    rows: tuple[Row, ...] = ()
    saved: tuple[Saved, ...] = ()
    error: str = ""
    error_at: int = 0
    """The iteration that raised, or the one after that whose checkpoint did."""
    while_saving: bool = False
    """True if a checkpoint was being made when something was raised."""
    skipped: tuple[str, ...] = ()
    exactness: str = ""
    why: str = ""
    """The cause of the trial's end, or of the slice's if something was raised, in words."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """New findings of the trainable, for later trials."""
    instead: str = ""
    """The value found in place of the metric, in words, if that was no number."""
