"""The trainer's evaluations: their plan, their results and their videos."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng
from trainables.envs.calls.faults import closing
from trainables.envs.calls.rendering import checked_picture, frames_per_second, with_render_mode
from trainables.envs.exactness.known import known_level
from trainables.envs.make import EnvironmentConfig, importable_config, make_raw_env
from trainables.envs.vector.restarts import AnySlot
from trainables.errors import ConfigError, TooManySteps
from trainables.evaluation.config import (
    EvaluationConfig,
    evaluation_envs,
    evaluation_settings,
)
from trainables.evaluation.play import Inspection, Plan, Played, play
from trainables.evaluation.workers import Evaluators
from trainables.policies.acting.inference import InferencePolicy
from trainables.rollout.callbacks import Calls, episode_callbacks, make_calls
from trainables.rollout.episodes.metrics import (
    histories,
    summarise,
    summarise_custom,
    summarise_policies,
)
from trainables.rollout.media.files import latest
from trainables.rollout.media.recording import Viewer, find_viewer
from trainables.rollout.media.video import SUFFIX, VideoFile, is_installed
from trainables.trainer.config import TrainerConfig


def evaluation_plan(settings: TrainerConfig) -> Plan:
    """Return how evaluations are played: environment, exploration and number of environments.

    They are the training settings, changed by ``evaluation_config``; callbacks are not included.
    Raises ConfigError if child processes are to play and cannot import the environment.
    """
    changed, explore = evaluation_settings(settings, settings.evaluation)
    environment = changed.environment
    if settings.evaluation.evaluation_num_workers or changed.envs.remote_worker_envs:
        environment = importable_config(environment)
    sampling = changed.sampling
    return Plan(
        environment,
        explore,
        _width(settings.evaluation, sampling.num_envs_per_worker, changed.envs.remote_worker_envs),
        evaluation_envs(changed.envs),
        sampling.clip_actions,
    )


def _width(evaluation: EvaluationConfig, envs: int, in_processes: bool) -> int:
    """Return the number of environments that a process of an evaluation steps side by side.

    It is the number `envs` of a rollout worker, or up to twice as many if all episodes of the
    process then begin at once: the remaining ones would otherwise take as many steps again. It is
    exactly `envs` if ``evaluation_config`` sets it, if environments run in their own processes
    (`in_processes`), or if it is 1, since perhaps only one can be open.
    """
    episodes = -(-evaluation.evaluation_num_episodes // max(1, evaluation.evaluation_num_workers))
    is_set = "num_envs_per_worker" in evaluation.evaluation_config
    if is_set or in_processes or envs == 1 or episodes > 2 * envs:
        return envs
    return max(envs, episodes)


class PeriodicEvaluation:
    """Evaluates a trainer's policy without an effect on training.

    Args:
        inference: the trainer's acting policy.
        seed: the trial's seed, used if the evaluation has none of its own.
        calls: callbacks of training, or None. Unless ``evaluation_config`` names others, each
            evaluation calls new objects that begin in their present state.
        stepped: function that returns the training environment with its measured level of
            exactness, or None if that is unknown.
    """

    def __init__(
        self,
        settings: TrainerConfig,
        seed: int,
        inference: InferencePolicy,
        calls: Calls | None,
        stepped: Callable[[], EnvironmentConfig | None],
    ) -> None:
        changed, _ = evaluation_settings(settings, settings.evaluation)
        self._settings = settings
        self._seed = seed if changed.seed is None else changed.seed
        self.inference = inference
        self._calls = calls
        self._find_stepped = stepped
        self._own = changed.callbacks
        self._environment = changed.environment
        self.workers = Evaluators(settings.evaluation, seed, changed.resources, changed.logs)

    def evaluate(self, iteration: int, timesteps: int) -> dict[str, Any]:
        """Play `evaluation_num_episodes` new episodes; their seeds depend on the `iteration`.

        Environment, exploration and callbacks are those of ``evaluation_config``. Child processes
        that are to play are started, and kept for the next evaluation. Callbacks of episodes are
        called, and see `timesteps`, the environment steps of training so far. Raises EnvError or
        WorkerError if environments or children fail too often.

        Returns:
            ``episode_reward_{mean,min,max}``, ``episode_len_mean``, ``episodes``, ``hist_stats``;
            ``custom_metrics`` and ``media`` if callbacks wrote some; with several agents
            ``policy_reward_{mean,min,max}``; ``num_faulty_episodes`` if environments failed and
            were restarted, which are not in ``episodes``.
        """
        played = self.workers.play(self.inference, self._plan(timesteps), self.seed(iteration))
        return results_of(played)

    def seed(self, iteration: int) -> int:
        """Return the seed of the evaluation that ends an iteration, always the same for it.

        It is derived from the seed in ``evaluation_config``, or else from the trial's.
        """
        return rng.integer(self._seed, "evaluation", iteration)

    def record(self, iteration: int, timesteps: int, folder: str) -> None:
        """Record the first episodes of the evaluation that ended `iteration` (0: at the start).

        At most ``record_episodes`` are played once more, with callbacks, and drawn. Files are
        written to `folder`; those that exist are not written again. `timesteps` is the number of
        environment steps of training so far.
        """
        # Weights and seed determine an episode, and another environment is drawn, so recording
        # does not change an evaluation.
        of = self._settings
        drawn, fps = self._rendering_plan(timesteps)
        seed = self.seed(max(1, iteration))
        for i in range(min(of.rendering.record_episodes, of.evaluation.evaluation_num_episodes)):
            path = Path(folder) / f"evaluation-{iteration:06d}-episode-{i + 1}{SUFFIX}"
            if not path.exists():
                self._play_rendered(drawn, seed, i, VideoFile(path, fps))

    def play(
        self,
        episodes: int,
        seed: int,
        folder: Path | None,
        window: bool,
        most_steps: float = math.inf,
    ) -> list[Played]:
        """Play new episodes, with videos in `folder`, in a window, both or neither.

        Environment and exploration are those of ``evaluation_config``, callbacks are called, and
        the policy is the current one, with frozen filters; `seed` determines the episodes. They are
        played in this process, one after the other if there are pictures, in a window at the
        environment's own speed. Videos are ``episode-1.mp4`` and so on; former ones are replaced.

        Raises:
            ConfigError: there is no screen or no pygame for a window, no PyAV for a video, or the
                environment's ``render()`` returns no picture.
            TooManySteps: without pictures, they take more than `most_steps` environment steps.
        """
        if folder is None and not window:
            counting = _step_limit(most_steps, f"{episodes} episodes take more than")
            return play(self.inference, self._plan(0), seed, range(episodes), counting)
        if folder is not None and not is_installed():
            problem = "a video needs PyAV, which is not installed"
            hint = "install it: pip install 'sweep-rl[video]'"
            raise ConfigError("--video", str(folder), hint=hint, problem=problem)
        viewer = find_viewer(True) if window else None
        if window and viewer is None:
            problem = "there is no screen here, or pygame is not installed"
            hint = "install it: pip install pygame; or use --video FOLDER, which needs no screen"
            raise ConfigError("--window", window, hint=hint, problem=problem)
        drawn, fps = self._rendering_plan(0)

        def show(picture: NDArray[np.uint8]) -> None:
            """Show a picture for 1 / `fps` seconds, if there is a viewer."""
            if viewer is not None:
                viewer(picture)
                time.sleep(1.0 / fps)

        played = []
        for i in range(episodes):
            path = None if folder is None else folder / f"episode-{i + 1}{SUFFIX}"
            video = None if path is None else VideoFile(path, fps)
            played.append(self._play_rendered(drawn, seed, i, video, show))
        return played

    def _rendering_plan(self, timesteps: int) -> tuple[Plan, float]:
        """Return the plan with environments that can be rendered, and their frames per second.

        Makes and closes one environment to ask for them. `timesteps` are the environment steps of
        training so far, for callbacks.
        """
        plan = self._plan(timesteps)
        with closing(make_raw_env(plan.environment, learning=False)) as env:
            fps = frames_per_second(env)
        return replace(plan, environment=with_render_mode(plan.environment), is_recorded=True), fps

    def _play_rendered(
        self,
        drawn: Plan,
        seed: int,
        index: int,
        video: VideoFile | None,
        show: Viewer = lambda _seen: None,
    ) -> Played:
        """Play episode `index` and return it; its pictures are passed to `show`.

        `drawn` is the plan of `_rendering_plan`, `seed` that of the whole evaluation.
        They are also written to `video` if there is one, which is closed at the end, or deleted if
        an exception is raised. Pictures of an attempt after which the environment was restarted are
        left out of the video.
        """

        def look(slot: AnySlot, length: int) -> None:
            """Show and record the picture after `length` steps of the episode."""
            if video is not None and length == 0:
                video.discard()  # of an episode that a restart has ended
            if (seen := checked_picture(slot.render(), "record_env")) is None:
                return
            show(seen)
            if video is not None:
                video.add(seen)

        with ExitStack() as after:
            if video is not None:
                after.callback(video.discard)
            (played,) = play(self.inference, drawn, seed, [index], look)
            if video is not None:
                video.close()
        return played

    def _plan(self, timesteps: int) -> Plan:
        """Return `evaluation_plan` with this evaluation's callbacks.

        `timesteps` are the environment steps of training so far, which callbacks see.
        """
        plan = replace(evaluation_plan(self._settings), renews=not self._is_exact())
        own = self._own == self._settings.callbacks
        calls = episode_callbacks(self._calls if own else make_calls(self._own))
        if calls is None:
            return plan
        reached = {"timestep": timesteps}
        return replace(plan, calls=calls, calls_state=calls.get_state(), global_vars=reached)

    def _is_exact(self) -> bool:
        """Return whether the evaluation's environment is known to have no hidden state (level A).

        Nothing is measured for it.
        """
        trained_on, stepped = self._settings.environment, self._find_stepped()
        if self._environment == trained_on and not trained_on.is_native and stepped:
            return stepped.env_level == "A"
        found = known_level(self._environment)
        return found is not None and found.level == "A"


def results_of(played: Sequence[Played]) -> dict[str, Any]:
    """Return a summary of episodes that were played, such as ``episode_reward_mean``.

    Its keys are those of `PeriodicEvaluation.evaluate`; without episodes there are no means.
    """
    faults = sum(one.faults for one in played)
    episodes = [one.metrics for one in played]
    custom = summarise_custom(episodes)
    return {
        **summarise(episodes),
        **summarise_policies(episodes),
        "episodes": len(played),
        **({"num_faulty_episodes": faults} if faults else {}),
        **({"custom_metrics": custom} if custom else {}),
        "hist_stats": histories(episodes),
        **({"media": seen} if (seen := latest(one.media for one in episodes)) else {}),
    }


def _step_limit(steps: float, beginning: str) -> Inspection:
    """Return a function that counts the steps of all episodes, for the argument `show` of `play`.

    It raises TooManySteps, whose text begins with `beginning`, at more than `steps` steps. `play`
    calls it after resets as well, which do not count.
    """
    taken = itertools.count(1)

    def count(_: AnySlot, length: int) -> None:
        """Count a step; raise TooManySteps above the limit."""
        if length and next(taken) > steps:
            raise TooManySteps(f"{beginning} {steps:,.0f} environment steps")

    return count
