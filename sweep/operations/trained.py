"""A trial's model, restored from a checkpoint, to be exported, played or looked at."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import stats
from sweep.driver import launch
from sweep.errors import BadConfig, UsageError
from sweep.history.events import Saved
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import seed_of
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import store
from sweep.spec import SweepSpec
from sweep.views import formatting, lookup, overview, reading
from trainables.checkpoint.file import Loaded
from trainables.errors import MissingCheckpoint
from trainables.trainable import Trainable, TrialContext

#: How often a checkpoint is chosen that a driver may delete meanwhile.
CHOICES = 3


@dataclass(frozen=True)
class Choice:
    """Which model is wanted."""

    trial: str = "best"
    """``best``, or a trial's number."""
    checkpoint: str = "best"
    """``best`` by the metric, ``last``, or the iteration that one was saved at."""


@dataclass(frozen=True)
class Restored:
    """A trainable as its checkpoint left it, and where it comes from."""

    trainable: Trainable
    spec: SweepSpec
    trial: Trial
    replica: Replica
    saved: Saved
    header: Mapping[str, Any]
    """Of the checkpoint's file."""
    seed: int
    versions: Mapping[str, Any]
    """Of the libraries with which the sweep was made."""


@contextlib.contextmanager
def restored(folder: Folder, choice: Choice) -> Iterator[Restored]:
    """Restore what is wanted in a folder that is gone afterwards.

    Raises:
        UsageError: no such trial or checkpoint.
        TrainableError: the checkpoint cannot be used.
    """
    cls = launch.trainable_of(folder)  # first: that takes seconds, in which a driver goes on
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        found = _newest(folder, choice, cls, Path(scratch))
        try:
            yield found
        finally:
            found.trainable.stop()


@dataclass(frozen=True)
class Looked:
    """A trial as its sweep has it now."""

    spec: SweepSpec
    trial: Trial
    versions: Mapping[str, Any]
    """Of the libraries with which the sweep was made."""


def look(folder: Folder, wanted: str) -> Looked:
    """Return the trial that is wanted, see `Choice`; UsageError: there is none such."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = reading.history(ledger)
        spec = reading.spec_of(ledger)
        versions = ledger.provenance["versions"]
    return Looked(spec, _find_trial(history, folder, wanted), versions)


def _newest(folder: Folder, choice: Choice, cls: type[Trainable], logdir: Path) -> Restored:
    """Return the wanted trial, chosen again if its checkpoint was deleted before the reading."""
    for left in reversed(range(CHOICES)):
        looked = look(folder, choice.trial)
        spec, trial, replica = looked.spec, looked.trial, looked.trial.leader
        saved = find_checkpoint(replica, choice.checkpoint)
        try:
            loaded = load(folder, replica, saved)
            trainable = made(cls, spec, trial, replica, loaded, logdir)
        except MissingCheckpoint:
            if not left:
                raise
        else:
            break
    seed = seed_of(spec.seed, trial.number, replica.index)
    return Restored(trainable, spec, trial, replica, saved, loaded.header, seed, looked.versions)


def restore(folder: Folder, spec: SweepSpec, trial: Trial, checkpoint: str) -> Trainable:
    """A trial's trainable as it stood at a checkpoint of its leader (see `Choice`).

    Where a driver has deleted that since `trial` was read, it is chosen again.

    Raises:
        UsageError: no such checkpoint.
        TrainableError: the checkpoint cannot be used.
    """
    cls = launch.trainable_of(folder)
    for left in reversed(range(CHOICES)):
        replica = trial.leader
        try:
            loaded = load(folder, replica, find_checkpoint(replica, checkpoint))
            trainable = made(cls, spec, trial, replica, loaded, None)
        except MissingCheckpoint:
            if not left:
                raise
            trial = lookup.read_history(folder).trials[trial.number]
        else:
            break
    return trainable


def load(folder: Folder, replica: Replica, saved: Saved) -> Loaded:
    """Read a checkpoint.

    Raises:
        TrainableError: it cannot be used.
    """
    return store.of(folder).replica(replica.trial, replica.index).read(saved)


def made(
    cls: type[Trainable],
    spec: SweepSpec,
    trial: Trial,
    replica: Replica,
    loaded: Loaded,
    logdir: Path | None,
) -> Trainable:
    """Make the trainable of a checkpoint, as it stood there."""
    seed = seed_of(spec.seed, trial.number, replica.index)
    remembered = loaded.state.get("remembered", {})
    context = TrialContext(seed, replica.name, replica.name, logdir, remembered=remembered)
    trainable = cls(trial.config, context)
    try:
        trainable.set_state(loaded.state)
    except BaseException:
        trainable.stop()
        raise
    return trainable


def _find_trial(history: History, folder: Folder, wanted: str) -> Trial:
    trial, front = overview.asked_trial(history, folder, wanted), overview.front(history)
    if wanted == "best" and front is not None:
        numbers = ", ".join(map(str, front)) or "none yet"
        allowed = f"a trial's number, as there are several objectives; the front: {numbers}"
        raise BadConfig("--trial", wanted, allowed)
    return trial


def find_checkpoint(replica: Replica, wanted: str, asked_by: str = "--checkpoint") -> Saved:
    """Return the checkpoint that is ``best``, ``last`` or of an iteration; see `Choice`.

    Raises:
        UsageError: the replica has none such; names what `asked_by` may be.
    """
    kept = {saved.iteration: saved for saved in replica.checkpoints.values()}
    newest, best = replica.newest, replica.best_checkpoint
    if newest is None or best is None:
        raise UsageError(
            f"trial {replica.trial} has no checkpoint; a class saves with save_checkpoint(), a "
            f"function with report(…, checkpoint=…)"
        )
    if wanted in ("best", "last"):
        return best if wanted == "best" else newest
    if wanted.isdecimal() and int(wanted) in kept:
        return kept[int(wanted)]
    iterations = ", ".join(str(iteration) for iteration in sorted(kept))
    raise BadConfig(
        asked_by, wanted, f"best, last, or the iteration of a kept checkpoint: {iterations}"
    )


@dataclass(frozen=True)
class Playing:
    """Which episodes are played, and how they are shown."""

    episodes: int
    """The number of episodes, at least 1."""
    seed: int
    """Same seed, same episodes."""
    video: Path | None
    """A folder for an MP4 file of each episode."""
    window: bool
    """True if they are shown on the screen."""

    def summary(self, played: Sequence[Mapping[str, float]]) -> dict[str, Any]:
        """The episodes with their mean return and its interval."""
        rewards = [one["episode_reward"] for one in played]
        several = stats.mean_interval(rewards) if len(rewards) > 1 else None
        return {
            "seed": self.seed,
            "episodes": list(played),
            "mean": stats.mean(rewards),
            "low": None if several is None else several.low,
            "high": None if several is None else several.high,
            "video": None if self.video is None else str(self.video),
        }


def play(folder: Folder, choice: Choice, how: Playing) -> dict[str, Any]:
    """Play fresh episodes of a trial's policy.

    Raises:
        As `restored`; UsageError: the trainable does not play.
    """
    with restored(folder, choice) as found:
        try:
            played = found.trainable.play(how.episodes, how.seed, how.video, how.window)
        except NotImplementedError as error:
            raise UsageError(f"play: {error}") from error
        return {
            "name": folder.name,
            "trial": found.trial.number,
            "metric": found.spec.metric,
            "score": formatting.finite(found.trial.score),
            "iteration": found.saved.iteration,
            **how.summary(played),
        }
