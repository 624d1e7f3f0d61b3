"""The trainer's evaluations: how one is played, what it gives, and its videos."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trainables.core import rng
from trainables.envs.make import for_children, make_raw_env
from trainables.envs.rendering import frames_per_second, picture, rendered
from trainables.envs.vector.restarts import AnySlot
from trainables.evaluation.config import evaluation_envs, evaluation_settings
from trainables.evaluation.play import Plan, play
from trainables.evaluation.workers import Evaluators
from trainables.policies.inference import InferencePolicy
from trainables.rollout.callbacks import Calls, make_calls, of_episodes
from trainables.rollout.metrics import histories, summarise, summarise_custom
from trainables.rollout.video import SUFFIX, VideoFile
from trainables.trainer.config import TrainerConfig

# -------------------------------------------------------------------------------------------------
# Videos of evaluations: episodes that have been played are played once more and drawn.
#
# So nothing of an evaluation depends on whether it is recorded: an episode is decided by weights
# and seed, and the environment that is drawn is another one. Callbacks, which may steer an
# episode, are called in both. A file that is there is not made again.


def _film(video: VideoFile, slot: AnySlot, length: int) -> None:
    if length == 0:
        video.discard()  # of an episode that a restart has ended
    seen = picture(slot.render(), "record_env")
    if seen is not None:
        video.add(seen)


def evaluation_plan(settings: TrainerConfig) -> Plan:
    """In which environment a policy is evaluated, and how."""
    changed, explore = evaluation_settings(settings, settings.evaluation)
    environment = changed.environment
    if settings.evaluation.evaluation_num_workers or changed.envs.remote_worker_envs:
        environment = for_children(environment)
    sampling = changed.sampling
    return Plan(
        environment,
        explore,
        sampling.num_envs_per_worker,
        evaluation_envs(changed.envs),
        sampling.clip_actions,
    )


class PeriodicEvaluation:
    """Evaluates a trainer's policy; training is not touched by it.

    `calls` are the training's callbacks; the evaluation's own begin in the state that they have.
    """

    def __init__(
        self, settings: TrainerConfig, seed: int, inference: InferencePolicy, calls: Calls | None
    ) -> None:
        changed, _ = evaluation_settings(settings, settings.evaluation)
        self._settings = settings
        self._seed = seed if changed.seed is None else changed.seed
        self._inference = inference
        self._calls = calls
        self._own = changed.callbacks
        self.workers = Evaluators(settings.evaluation, seed, changed.resources, changed.logs)

    def evaluate(self, iteration: int, timesteps: int) -> dict[str, Any]:
        """Play `evaluation_num_episodes` fresh episodes, which the coming `iteration` decides.

        Returns:
            ``episode_reward_{mean,min,max}``, ``episode_len_mean``, ``episodes`` and
            ``hist_stats``; ``custom_metrics`` where callbacks wrote some; where environments failed
            and were made anew also ``num_faulty_episodes``, which count beside.
        """
        seed = rng.integer(self._seed, "evaluation", iteration)
        played = self.workers.play(self._inference, self._plan(timesteps), seed)
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

    def record(self, iteration: int, timesteps: int, folder: str) -> None:
        """Record the first episodes of the evaluation that ended `iteration`; 0: at the start."""
        of = self._settings
        plan = self._plan(timesteps)
        with closing(make_raw_env(plan.environment, learning=False)) as env:
            fps = frames_per_second(env)
        drawn = replace(plan, environment=rendered(plan.environment), is_recorded=True)
        seed = rng.integer(self._seed, "evaluation", max(1, iteration))
        for i in range(min(of.rendering.record_episodes, of.evaluation.evaluation_num_episodes)):
            path = Path(folder) / f"evaluation-{iteration:06d}-episode-{i + 1}{SUFFIX}"
            if path.exists():
                continue
            video = VideoFile(path, fps)
            try:
                play(self._inference, drawn, seed, [i], partial(_film, video))
                video.close()
            finally:
                video.discard()

    def _plan(self, timesteps: int) -> Plan:
        """`evaluation_plan` with the callbacks of this evaluation."""
        plan = evaluation_plan(self._settings)
        own = self._own == self._settings.callbacks
        calls = of_episodes(self._calls if own else make_calls(self._own))
        if calls is None:
            return plan
        known = {"timestep": timesteps}
        return replace(plan, calls=calls, calls_state=calls.get_state(), global_vars=known)
