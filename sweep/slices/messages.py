"""What a worker is sent for a slice, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep import stats
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
    """Whether a metric that is NaN or infinite ends the trial."""
    trial_s: float | None = None
    """Seconds of training after which the trial ends."""
    spent: tuple[tuple[int, float], ...] = ()
    """Iteration and its seconds, where there is such a limit."""
    watched: tuple[tuple[int, float | None], ...] = ()
    """Iteration and value of what a plateau watches, oldest first."""
    birth: ParentCheckpoint | None = None
    """The beginning, if it is a checkpoint of another trial."""
    birth_folder: str = ""
    """Where that one lies."""
    iteration: int = 0
    """Iterations that the ledger has; what cannot save goes on if it still stands there."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """What earlier trials have found out, for `TrialContext.remembered`."""
    shared_folder: str = ""
    """Where trials that run at once find something out together; empty: nowhere."""
    trust: Trust | None = None
    """Signs checkpoints that may run code, and says whose are accepted; None: there is no key."""
    kept: Kept | None = None
    """Where the trainable of a script lies."""
    worker: str = ""
    """The worker of a cluster that runs it; empty: it runs on the driver's machine."""
    store: str = ""
    """URL of the sweep's storage; empty: its checkpoints lie in the folder alone."""
    other_kernel: bool = False
    """Whether it goes on where the kernel of its checkpoint is not built."""

    def bounds(self, source: int) -> Bounds:
        """What ends it by its trial's past, where it goes on from iteration `source`.

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
        return Bounds(self.metric, self.not_finite_ends, left, flatness)


@dataclass(frozen=True)
class SliceOutcome:
    """What came of a slice."""

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
    skipped: tuple[str, ...] = ()
    exactness: str = ""
    why: str = ""
    """What ended the trial, or the slice where something was raised, in words."""
    remembered: Mapping[str, Any] = field(default_factory=dict)
    """What the trainable has found out, but for what the slice was sent."""
    instead: str = ""
    """What stood where the metric is looked for, in words, if that was no number."""
