"""Reports of a trainer while it works: to the user's callbacks, the log and the trial's files.

T steps, N environments. A piece of a fragment is the rows of one episode in it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.checkpoint import disk
from trainables.core.logs import LogConfig, OneTimeLog, set_level
from trainables.core.settings import Section
from trainables.envs.external.polled import AGENT
from trainables.errors import ConfigError
from trainables.offline.writer import Output
from trainables.policies.policy import Policy
from trainables.rollout.batch import Fragment, Sample
from trainables.rollout.callbacks import CallbacksConfig, make_calls
from trainables.rollout.episodes.episode import Trajectory
from trainables.rollout.episodes.metrics import RolloutMetrics, checked_numbers

# -------------------------------------------------------------------------------------------------
# Every finished episode as a line of JSON in the trial's folder, each exactly once.
#
# The trainer writes ``episodes.jsonl`` as samples arrive, in worker order; no environment is
# wrapped for it, so it changes neither speed nor exactness. A checkpoint contains the length of
# the file: a restored trial cuts off later lines and writes them again. The length is that of one
# trial's file: a trial that continues another trial's checkpoint begins its own file.

#: Name of the file with one line per episode.
FILE = "episodes.jsonl"


class RecordingConfig(Section):
    """Statistics of episodes in a file."""

    monitor: bool = Field(
        default=False,
        description="Write every finished episode as a line of episodes.jsonl in the trial's "
        "folder.",
    )


class EpisodeRecord:
    """Appends finished episodes to ``episodes.jsonl``, if ``monitor`` is set.

    Args:
        folder: function that returns the file's folder.
        owner: name of the trial; the position in a checkpoint of another owner does not count.
    """

    def __init__(self, config: RecordingConfig, folder: Callable[[], str], owner: str) -> None:
        self._is_on = config.monitor
        self._folder = folder
        self._owner = owner
        self._episodes = 0
        self._bytes = 0

    def add(self, samples: Sequence[Sample]) -> None:
        """Append a line for each episode that ended in these samples.

        Lines after the restored position are cut off first, and a missing file is made. Does
        nothing if switched off or if no episode ended.
        """
        if not self._is_on:
            return
        lines = [self._line(one.index, episode) for one in samples for episode in one.episodes]
        if not lines:
            return
        text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        path = Path(self._folder()) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with os.fdopen(disk.open_file(path, appending), "ab") as file:
            file.truncate(min(self._bytes, file.tell()))
            file.write(text)
            self._bytes = file.tell()

    def get_state(self) -> dict[str, Any]:
        """Return {``recorded``: {``owner``: …, ``episodes``: …, ``bytes``: …}}.

        The last two are the numbers in the file so far. The dict is empty if the record is switched
        off.
        """
        if not self._is_on:
            return {}
        at = {"episodes": self._episodes, "bytes": self._bytes}
        return {"recorded": {"owner": self._owner, **at}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the position in the file from the entry ``recorded``.

        The next `add` that writes cuts off lines that were written after that; without the entry,
        or if it is another owner's, all lines. Does nothing if switched off.
        """
        if not self._is_on:
            return
        self._episodes = self._bytes = 0
        recorded = state.get("recorded", {})
        if recorded.get("owner") == self._owner:
            self._episodes, self._bytes = int(recorded["episodes"]), int(recorded["bytes"])

    def _line(self, worker: int, episode: RolloutMetrics) -> dict[str, Any]:
        """Return an episode of the worker with index `worker` as a line's data, and count it.

        The keys are ``episode`` (its number in the file, from 1), ``worker``, ``total_reward``,
        ``length``, ``faulty`` and ``custom_metrics``.
        """
        self._episodes += 1
        return {
            "episode": self._episodes,
            "worker": worker,
            "total_reward": episode.total_reward,
            "length": episode.length,
            "faulty": episode.faulty,
            "custom_metrics": dict(episode.custom_metrics or {}),
        }


#: Name of a column → its rows (B, …).
Columns = Mapping[str, NDArray[Any]]


class Reporter:
    """Reports a trainer's work to callbacks, the log, the episode record, and ``output``.

    Creating it sets the log level of this process and makes its callbacks.
    """

    def __init__(
        self, callbacks: CallbacksConfig, logs: LogConfig, record: EpisodeRecord, output: Output
    ) -> None:
        set_level(logs)
        self._record = record
        self._output = output
        self.log = OneTimeLog("trainer")
        self.calls = make_calls(callbacks)
        self._pieces: list[list[Trajectory]] = []

    def begin(self) -> None:
        """Make the writer of experience, if ``output`` is set; called once there are workers.

        Raises ConfigError if a user's class or function makes no writer.
        """
        self._output.begin()

    def begin_with_new_workers(self) -> None:
        """Tell the writer of experience that workers were replaced and begin new episodes."""
        self._output.begin_with_new_workers()

    def sampled(self, samples: Sequence[Sample]) -> None:
        """Write episodes and experience of new samples, before anything is learnt from them.

        Begins a round of the log, and keeps the samples' trajectories for the round's call of
        `postprocessed`. Raises StoredDataError if the disk refuses experience.
        """
        self.log.begin_round()
        self._pieces = [pieces for one in samples for pieces in one.trajectories]
        self._record.add(samples)
        self._output.add(samples)

    def postprocessed(
        self, policy: Any, fragments: Sequence[Fragment], batches: Sequence[Columns]
    ) -> None:
        """Call ``on_postprocess_traj`` for each piece of an episode before rows are learnt from.

        Does nothing without such a callback. `batches` has for each fragment of this round column →
        (T·N, …), which the callback may change in place. `policy` is passed to the callback. Raises
        CallbackError if it raises, or writes a metric that is no number into an episode.
        """
        if self.calls is None or not self.calls.has_functions("on_postprocess_traj"):
            return
        for pieces, fragment, batch in zip(self._pieces, fragments, batches, strict=True):
            for piece in pieces:
                before = _columns(fragment, piece)
                self.calls(
                    "on_postprocess_traj",
                    agent_id=AGENT,
                    episode=piece.episode,
                    pre_batch=before,
                    post_batch=_learnt_columns(fragment, batch, piece),
                    all_pre_batches={AGENT: (policy, before)},
                )
                checked_numbers(piece.episode)

    def log_learning(self, policy: Policy, learner: Mapping[str, float]) -> None:
        """Log the policy's latest gradients and the learner's statistics by name.

        Only the first call logs them; at level DEBUG they are logged again after many rounds.
        """
        self.log("gradients", policy.gradients)
        self.log("training output", learner)

    def train_result(self, trainer: Any, result: dict[str, Any]) -> None:
        """Call `on_train_result`, if there is one, with a complete result, which it may change.

        Raises CallbackError if it raises.
        """
        if self.calls:
            self.calls("on_train_result", trainer=trainer, result=result)

    def get_state(self) -> dict[str, Any]:
        """Return the states of callbacks in this process, episode record and writer, if any.

        The entries ``callbacks``, ``recorded`` and those of the writer stand in one flat dict.
        """
        kept = {"callbacks": self.calls.get_state()} if self.calls else {}
        return {**kept, **self._record.get_state(), **self._output.get_state()}

    def set_state(self, state: Mapping[str, Any], timesteps: int) -> None:
        """Restore the states that `get_state` returned, entries of a checkpoint.

        `timesteps` is the number of environment steps at that time.
        """
        if self.calls:
            self.calls.set_state(state.get("callbacks"))
        self._record.set_state(state)
        self._output.set_state(state, timesteps)


def check_callbacks(
    config: CallbacksConfig, num_workers: int, fake_sampler: bool, reads: bool
) -> None:
    """Raise ConfigError for callbacks that cannot work, here or in `num_workers` children.

    The callbacks are made to check them; children must be able to import them. With `reads`, where
    experience is read from files, ``on_sample_end`` and ``on_postprocess_traj`` cannot work, with
    `fake_sampler` the latter.
    """
    calls = make_calls(config)
    without = {
        "on_postprocess_traj": "stored experience has no episodes, which the callback needs",
        "on_sample_end": "no worker collects stored experience",
    }
    for phase, why in without.items():
        if calls and reads and calls.has_functions(phase):
            problem = f"is never called where input reads files: {why}"
            place, hint = f"callbacks.{phase}", "remove it"
            raise ConfigError(place, config.callbacks, hint=hint, problem=problem)
    if calls and fake_sampler and calls.has_functions("on_postprocess_traj"):
        other = "a callback for on_postprocess_traj"
        why = "checkpoints have the repeated batch without its episodes, which the callback needs"
        undo = "remove the callback"
        raise ConfigError.of_conflict("fake_sampler", True, other, "false", why, undo)
    if calls and num_workers:
        calls.portable()


def _columns(fragment: Fragment, piece: Trajectory) -> dict[str, Any]:
    """Return column → copy (rows, …) of the rows of one episode in a fragment."""
    rows = slice(piece.start, piece.stop)
    return {
        name: np.array(column[rows, piece.env_index]) for name, column in fragment.columns.items()
    }


def _learnt_columns(fragment: Fragment, batch: Columns, piece: Trajectory) -> dict[str, Any]:
    """Return column → view (rows, …) into `batch` of the rows of one episode in a fragment.

    `batch` has columns (T·N, …); changes in the views are learnt from.
    """
    shape, rows = fragment.valid.shape, slice(piece.start, piece.stop)
    return {
        name: column.reshape(*shape, *column.shape[1:])[rows, piece.env_index]
        for name, column in batch.items()
    }
