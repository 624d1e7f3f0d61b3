"""Restore a trial's trainable from a checkpoint, and play its episodes."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core import stats
from sweep.core.errors import BadConfig, UsageError
from sweep.driver.start import launch
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
from trainables.errors import CorruptCheckpoint, MissingCheckpoint
from trainables.trainable import Trainable, TrialContext

#: Attempts to read a checkpoint, since a driver may delete the chosen one meanwhile.
ATTEMPTS = 3


@dataclass(frozen=True)
class Choice:
    """The user's choice of a trial and of one of its checkpoints."""

    trial: str = "best"
    """``best``, or a trial's number."""
    checkpoint: str = "best"
    """``best`` by the metric, ``last``, the iteration of a checkpoint as text, or
    `networks.COMPARED`."""


@dataclass(frozen=True)
class Restored:
    """A trainable in the state of its checkpoint, with the trial that wrote the checkpoint."""

    trainable: Trainable
    """The trainable in the state of the checkpoint."""
    spec: SweepSpec
    """Spec of the sweep."""
    trial: Trial
    """Trial that the checkpoint belongs to."""
    replica: Replica
    """Replica (the trial under one seed) that wrote the checkpoint."""
    saved: Saved
    """Ledger entry of the checkpoint."""
    header: Mapping[str, Any]
    """Header of the checkpoint's file."""
    seed: int
    """Seed of the replica."""
    versions: Mapping[str, Any]
    """Versions of the libraries with which the sweep was created."""


@contextlib.contextmanager
def restored(folder: Folder, choice: Choice) -> Iterator[Restored]:
    """Yield the chosen trainable, restored in a temporary folder; stop it at the end.

    The checkpoint is one of the trial's best seed.

    Raises:
        UsageError: no such trial or checkpoint.
        TrainableError: the checkpoint is unusable.
    """
    # The import takes seconds, and a driver may train meanwhile, so the history is read after it.
    cls = launch.trainable_of(folder)
    with tempfile.TemporaryDirectory(prefix="sweep-") as scratch:
        found = _restore_choice(folder, choice, cls, Path(scratch))
        try:
            yield found
        finally:
            found.trainable.stop()


@dataclass(frozen=True)
class CurrentTrial:
    """A trial as the ledger has it now, with its sweep's spec."""

    spec: SweepSpec
    """Spec of the sweep."""
    trial: Trial
    """The trial with its present results and checkpoints."""
    versions: Mapping[str, Any]
    """Versions of the libraries with which the sweep was created."""


def read_trial(folder: Folder, choice: str) -> CurrentTrial:
    """Read a trial from the ledger: ``best``, or its number as text.

    Raises UsageError if there is none, or for ``best`` if there are several objectives.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = reading.history(ledger)
        spec = reading.spec_of(ledger)
        versions = ledger.provenance["versions"]
    return CurrentTrial(spec, _find_trial(history, folder, choice), versions)


def _restore_choice(folder: Folder, choice: Choice, cls: type[Trainable], logdir: Path) -> Restored:
    """Restore the chosen checkpoint of a trial's best seed.

    The choice is repeated if a driver deleted the checkpoint before it was read; after `ATTEMPTS`
    attempts MissingCheckpoint is raised. The caller stops the trainable.
    """
    for left in reversed(range(ATTEMPTS)):
        looked = read_trial(folder, choice.trial)
        spec, trial, replica = looked.spec, looked.trial, looked.trial.leader
        saved = find_checkpoint(replica, choice.checkpoint)
        try:
            loaded = load(folder, replica, saved)
            trainable = make_trainable(cls, spec, trial, replica, loaded, logdir)
        except MissingCheckpoint:
            if not left:
                raise
        else:
            break
    seed = seed_of(spec.seed, trial.number, replica.index)
    return Restored(trainable, spec, trial, replica, saved, loaded.header, seed, looked.versions)


def restore(folder: Folder, spec: SweepSpec, trial: Trial, checkpoint: str) -> Trainable:
    """Restore a trial's trainable from a checkpoint of its best seed.

    `checkpoint` is ``best``, ``last``, or an iteration as text. If a driver deleted it since
    `trial` was read, the choice is repeated with the present trial, up to `ATTEMPTS` times in all.
    The caller stops the trainable.

    Raises:
        UsageError: no such checkpoint.
        TrainableError: the checkpoint is unusable.
    """
    cls = launch.trainable_of(folder)
    for left in reversed(range(ATTEMPTS)):
        replica = trial.leader
        try:
            loaded = load(folder, replica, find_checkpoint(replica, checkpoint))
            trainable = make_trainable(cls, spec, trial, replica, loaded, None)
        except MissingCheckpoint:
            if not left:
                raise
            trial = lookup.read_history(folder).trials[trial.number]
        else:
            break
    return trainable


def load(folder: Folder, replica: Replica, saved: Saved) -> Loaded:
    """Read a checkpoint's file or object.

    Raises TrainableError if it is unusable; the message of a missing or damaged one says how the
    sweep can continue without it.
    """
    try:
        return store.of_sweep(folder).replica(replica.trial, replica.index).read(saved)
    except (MissingCheckpoint, CorruptCheckpoint) as error:
        repair = f"`sweep verify {folder.in_commands} --repair` drops checkpoints that are lost"
        raise type(error)(error.path, f"{error.reason}; {repair}") from error


def make_trainable(
    cls: type[Trainable],
    spec: SweepSpec,
    trial: Trial,
    replica: Replica,
    loaded: Loaded,
    logdir: Path | None,
) -> Trainable:
    """Create the trainable of a replica in the state of a loaded checkpoint.

    `logdir` is the folder for its files; None for none. The caller stops it. If the state cannot be
    restored, the trainable is stopped and the error raised.
    """
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


def _find_trial(history: History, folder: Folder, choice: str) -> Trial:
    """Return the trial that `choice` names; UsageError if there is none.

    Raises BadConfig for ``best`` if there are several objectives.
    """
    trial, front = overview.asked_trial(history, folder, choice), overview.front(history)
    if choice == "best" and front is not None:
        numbers = ", ".join(map(str, front)) or "none yet"
        problem = "no trial is the best, since there are several objectives"
        hint = f"choose one of the front by its number: {numbers}"
        raise BadConfig("--trial", choice, hint=hint, problem=problem)
    return trial


def find_checkpoint(replica: Replica, choice: str, option: str = "--checkpoint") -> Saved:
    """Return the replica's checkpoint that is ``best``, ``last`` or of an iteration (as text).

    Raises UsageError naming the option `option` if the replica has no such checkpoint.
    """
    kept = {saved.iteration: saved for saved in replica.checkpoints.values()}
    newest, best = replica.newest_checkpoint, replica.best_checkpoint
    if newest is None or best is None:
        raise UsageError(
            f"trial {replica.trial} has no checkpoint; a class saves with save_checkpoint(), a "
            f"function with report(..., checkpoint=...)"
        )
    if choice in ("best", "last"):
        return best if choice == "best" else newest
    if choice.isdecimal() and int(choice) in kept:
        return kept[int(choice)]
    iterations = ", ".join(str(iteration) for iteration in sorted(kept))
    raise BadConfig(
        option, choice, f"best, last, or the iteration of a kept checkpoint: {iterations}"
    )


@dataclass(frozen=True)
class Playing:
    """The episodes that a policy shall play, and their display."""

    episodes: int
    """The number of episodes, at least 1."""
    seed: int
    """Seed of the episodes; the same seed gives the same episodes."""
    video: Path | None
    """Folder for an MP4 file of each episode; None for no files."""
    window: bool
    """True to show the episodes on the screen."""

    def summary(self, played: Sequence[Mapping[str, float]]) -> dict[str, Any]:
        """Return plain data about `played`, a mapping with ``episode_reward`` for each episode.

        The keys are ``seed``, ``episodes`` (the list `played`), ``mean`` (of the returns), ``low``
        and ``high`` (its 95 % interval, None for one episode) and ``video`` (the folder as text, or
        None).
        """
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


def play(folder: Folder, choice: Choice, playing: Playing) -> dict[str, Any]:
    """Play fresh episodes of a trial's policy; return their results with trial and score.

    The keys are ``name`` (of the sweep), ``trial``, ``metric``, ``score``, ``iteration`` (of the
    checkpoint) and those of `Playing.summary`.

    Raises:
        UsageError: no such trial or checkpoint, or the trainable cannot play.
        TrainableError: the checkpoint is unusable.
    """
    with restored(folder, choice) as loaded:
        try:
            played = loaded.trainable.play(
                playing.episodes, playing.seed, playing.video, playing.window
            )
        except NotImplementedError as error:
            raise UsageError(f"play: {error}") from error
        return {
            "name": folder.name,
            "trial": loaded.trial.number,
            "metric": loaded.spec.metric,
            "score": formatting.finite(loaded.trial.score),
            "iteration": loaded.saved.iteration,
            **playing.summary(played),
        }
