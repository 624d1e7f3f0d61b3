"""The trainer's evaluations: what one gives, what an algorithm may change, the one at the start."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainables.core import rng
from trainables.envs.make import for_children, make_raw_env
from trainables.envs.rendering import frames_per_second, picture, rendered
from trainables.envs.vector.restarts import AnySlot
from trainables.errors import TrainableError, shorten
from trainables.evaluation.config import evaluation_lanes, evaluation_settings
from trainables.evaluation.play import Plan, play_watched
from trainables.evaluation.workers import Evaluators
from trainables.policies.inference import InferencePolicy
from trainables.rollout.callbacks import make_calls, of_episodes
from trainables.rollout.metrics import histories, summarise, summarise_custom
from trainables.rollout.progress import Progress
from trainables.rollout.recording import FOLDER
from trainables.rollout.video import SUFFIX, VideoFile
from trainables.trainable import Trainable
from trainables.trainer.config import TrainerConfig
from trainables.trainer.reporting import Reporter

# -------------------------------------------------------------------------------------------------
# Videos of evaluations: episodes that have been played are played once more and drawn.
#
# So nothing of an evaluation depends on whether it is recorded: an episode is decided by weights
# and seed, and the environment that is drawn is another one. Callbacks, which may steer an
# episode, are called in both. A file that is there is not made again.


def evaluation_path(folder: str, iteration: int, index: int) -> Path:
    """The file of an episode; iteration 0 stands for the evaluation at the start."""
    return Path(folder) / f"evaluation-{iteration:06d}-episode-{index + 1}{SUFFIX}"


def record(inference: InferencePolicy, plan: Plan, seed: int, paths: Sequence[Path]) -> None:
    """Record the first episodes of one evaluation.

    Args:
        inference: acts.
        plan: how the episodes were played.
        seed: of the evaluation.
        paths: of the files, one per episode.
    """
    env = make_raw_env(plan.environment, learning=False)
    fps = frames_per_second(env)
    env.close()
    drawn = replace(plan, environment=rendered(plan.environment), is_recorded=True)
    for index, path in enumerate(paths):
        if path.exists():
            continue
        recording = _Recording(path, fps)
        try:
            play_watched(inference, drawn, seed, index, recording)
            recording.close()
        finally:
            recording.discard()


class _Recording:
    """Looks at the environment of one episode.

    Args:
        path: of the file.
        fps: pictures per second.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._fps = fps
        self._video = VideoFile(path, fps)

    def __call__(self, slot: AnySlot, length: int) -> None:
        if length == 0:
            self._video.discard()
            self._video = VideoFile(self._path, self._fps)
        seen = picture(slot.render(), "record_env")
        if seen is not None:
            self._video.add(seen)

    def close(self) -> None:
        """The episode has ended."""
        self._video.close()

    def discard(self) -> None:
        """Leave nothing unfinished behind."""
        self._video.discard()


class PeriodicEvaluation(Trainable):
    """A trainer that evaluates its policy; an algorithm may override the two hooks."""

    settings: TrainerConfig
    seed: int
    inference: InferencePolicy
    progress: Progress
    reporter: Reporter
    evaluators: Evaluators

    @property
    def videos(self) -> str:
        """The folder of the trial's videos; it need not be there."""
        return str(Path(self.logdir) / FOLDER)

    # ---- what an algorithm may write -----------------------------------------------------------

    def _before_evaluate(self) -> None:
        """Called before each evaluation."""

    def _evaluate(self) -> dict[str, Any]:
        """What an evaluation adds to the result."""
        return {"evaluation": self.evaluate()}

    def evaluated(self, iteration: int) -> dict[str, Any]:
        """What `_evaluate` returns, checked; the global streams are left as they were.

        Args:
            iteration: that this evaluation ends; 0: the one at the start.
        """
        streams = rng.capture_global()
        self._before_evaluate()
        evaluated: object = self._evaluate()
        rng.restore_global(streams)
        if not isinstance(evaluated, dict):
            raise TrainableError(
                f"{type(self).__name__}._evaluate() returned {shorten(evaluated)}; "
                f"expected a dict to add to the result"
            )
        self._record_evaluation(iteration)
        return evaluated

    def evaluation_at_start(self) -> dict[str, Any]:
        """The untrained policy's numbers, in the first result; a restored one has them behind it.

        So an evaluation that cannot work fails before anything is trained.
        """
        if self.iteration or self.settings.evaluation.evaluation_interval is None:
            return {}
        return {f"{name}_at_start": value for name, value in self.evaluated(0).items()}

    @staticmethod
    def evaluation_plan(settings: TrainerConfig) -> Plan:
        """In which environment the policy is evaluated, and how."""
        changed, explore = evaluation_settings(settings, settings.evaluation)
        environment = changed.environment
        if settings.evaluation.evaluation_num_workers or changed.envs.remote_worker_envs:
            environment = for_children(environment)
        sampling = changed.sampling
        return Plan(
            environment,
            explore,
            sampling.num_envs_per_worker,
            evaluation_lanes(changed.envs),
            sampling.clip_actions,
        )

    def evaluate(self) -> dict[str, Any]:
        """Play `evaluation_num_episodes` fresh episodes; training is not touched by it.

        Gives ``episode_reward_{mean,min,max}``, ``episode_len_mean``, ``episodes`` and
        ``hist_stats``; ``custom_metrics`` where callbacks wrote some; where environments failed and
        were made anew also ``num_faulty_episodes``, which count beside.
        """
        played = self.evaluators.play(self.inference, self._plan(), self._evaluation_seed())
        faults = sum(one.faults for one in played)
        episodes = [one.metrics for one in played]
        custom = summarise_custom(episodes)
        return {
            **summarise(episodes),
            "episodes": len(played),
            **({"num_faulty_episodes": faults} if faults else {}),
            **({"custom_metrics": custom} if custom else {}),
            "hist_stats": histories(episodes),
        }

    def _plan(self) -> Plan:
        """`evaluation_plan` with the callbacks of this evaluation.

        The training's own begin in the state that the trainer's object has.
        """
        plan = self.evaluation_plan(self.settings)
        changed, _ = evaluation_settings(self.settings, self.settings.evaluation)
        own = changed.callbacks == self.settings.callbacks
        calls = of_episodes(self.reporter.calls if own else make_calls(changed.callbacks))
        if calls is None:
            return plan
        told = {"timestep": self.progress.timesteps}
        return replace(plan, calls=calls, calls_state=calls.get_state(), global_vars=told)

    def _evaluation_seed(self) -> int:
        changed, _ = evaluation_settings(self.settings, self.settings.evaluation)
        seed = self.seed if changed.seed is None else changed.seed
        return rng.integer(seed, "evaluation", self.iteration + 1)

    def _record_evaluation(self, iteration: int) -> None:
        of = self.settings
        if not of.rendering.records_evaluation:
            return
        count = min(of.rendering.record_episodes, of.evaluation.evaluation_num_episodes)
        paths = [evaluation_path(self.videos, iteration, i) for i in range(count)]
        record(self.inference, self._plan(), self._evaluation_seed(), paths)
