"""Evaluation: exactly N fresh episodes with their own seeds, the filters frozen.

Environments are made for it and closed after it, every stream is derived from the trial's seed, the
iteration and the episode, and the global streams are put back: the training curve does not change
by one bit, and there is no state to save. Episodes are independent of each other to the bit, so it
does not matter how many are played side by side or in which process; only environments that draw
from the global streams share those.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables import renamed, rng
from trainables.envs.make import Env, EnvironmentConfig, EnvSpaces, make_env, read_spaces
from trainables.envs.preprocessors import require_finite
from trainables.envs.state import seed_spaces
from trainables.errors import ConfigError
from trainables.policies.player import Player
from trainables.resources import WorkerCount
from trainables.rollout.metrics import RolloutMetrics
from trainables.settings import Section, Settings, override

PLACE = "evaluation_config"
#: Settings of the environment that only training reads: how lanes are made, saved and restored.
OF_TRAINING = frozenset({"native_vector_env", "env_level", "env_replay_limit"})
#: What `evaluation_config` may hold beside ``explore``: settings that evaluation reads.
OVERRIDABLE = (
    *(key for key in EnvironmentConfig.model_fields if key not in OF_TRAINING),
    "num_envs_per_worker",
)


class EvaluationConfig(Section):
    """When and how the policy is evaluated."""

    evaluation_interval: int | None = Field(
        default=None,
        gt=0,
        description="Evaluate every so many iterations, and once before the first; null: never.",
    )
    evaluation_num_episodes: int = Field(
        default=10, gt=0, description="Episodes of one evaluation, exactly."
    )
    evaluation_num_workers: WorkerCount = Field(
        default=0,
        description="Child processes that evaluate; 0: the trainer's own process does. The result "
        "does not depend on it.",
    )
    evaluation_timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="Seconds for one evaluation, after which a child counts as hung; null: none.",
    )
    evaluation_config: dict[str, Any] = Field(
        default_factory=dict,
        description="What is different while evaluating: `explore` (true: drawn actions, as in "
        "training; false, the default: the most probable ones), settings of the environment "
        "(`env_config` replaces the training's), `num_envs_per_worker`.",
    )


@dataclass(frozen=True)
class Plan:
    """How the episodes of an evaluation are played; it travels to children."""

    environment: EnvironmentConfig
    explore: bool
    width: int
    """Environments side by side in one process, at most."""
    horizon: int | None
    """Steps of an episode, at most; None: no limit but the environment's own."""


S = TypeVar("S", bound=Settings)


def evaluation_settings(settings: S, config: EvaluationConfig) -> tuple[S, bool]:
    """The settings while evaluating, and whether actions are drawn.

    Raises:
        ConfigError: for a key that evaluation does not read, or a value that cannot be.
    """
    changes = dict(config.evaluation_config)
    explore = changes.pop("explore", False)
    if not isinstance(explore, bool):
        raise ConfigError(f"{PLACE}.explore", explore, "true or false")
    known = ["explore", *OVERRIDABLE]
    for key, value in changes.items():
        if key not in known:
            place = f"{PLACE}.{key}"
            hint = renamed.answer(place, known, {})
            raise ConfigError(place, value, "a key that evaluation reads", hint)
    if "env" in changes:
        changes.setdefault("env_config", {})
    return override(settings, changes, PLACE), explore


def check_evaluation(environment: EnvironmentConfig, training: EnvSpaces) -> None:
    """Raise ConfigError if the policy could not play the environment of the evaluation."""
    try:
        spaces = read_spaces(environment)
    except ConfigError as error:
        place = f"{PLACE}.{error.place}"
        raise ConfigError(place, error.value, error.allowed, error.hint) from error
    if _lived_in(spaces) != _lived_in(training):
        raise ConfigError(
            f"{PLACE}.env_config",
            environment.env_config,
            "an environment with the training's spaces",
            f"{environment.env} has {spaces}",
        )


def _lived_in(spaces: EnvSpaces) -> tuple[Any, ...]:
    return spaces.observation.shape, spaces.observation_dtype, spaces.action


def is_due(config: EvaluationConfig, iteration: int) -> bool:
    """Whether this iteration (1 is the first) ends with an evaluation."""
    interval = config.evaluation_interval
    return interval is not None and iteration % interval == 0


def play(player: Player, plan: Plan, seed: int, indices: Sequence[int]) -> list[RolloutMetrics]:
    """The episodes with these indices, in their order.

    Args:
        player: acts.
        plan: in which environment, and how.
        seed: of this evaluation; same seed and weights, same episodes.
        indices: which of the evaluation's episodes.
    """
    streams = rng.capture_global()
    rng.seed_global(seed, "global")
    envs: list[Env] = []
    try:
        count = min(plan.width, len(indices))
        envs += [make_env(plan.environment, learning=False) for _ in range(count)]
        finished = _play(player, envs, iter(indices), (seed, plan.explore, plan.horizon))
    finally:
        for env in envs:
            env.close()
        rng.restore_global(streams)
    return [finished[index] for index in indices]


class _Running:
    """One episode in one environment, with a stream of its own where it explores.

    `index` counts the episodes of the evaluation; `memory` (M,) is the policy's.
    """

    def __init__(
        self, env: Env, index: int, memory: NDArray[Any], rules: tuple[int, bool, int | None]
    ) -> None:
        seed, explore, horizon = rules
        self.env = env
        self.index = index
        self.horizon = horizon
        self.reward = 0.0
        self.length = 0
        self.memory = memory
        self.stream = rng.generator(seed, "policy", index) if explore else None
        seed_spaces(env, rng.integer(seed, "spaces", index) % 2**31)
        self.observation, _ = env.reset(seed=rng.integer(seed, "env", index) % 2**31)

    def step(self, action: Any) -> bool:
        """Whether the episode ended, by itself or at the horizon."""
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        require_finite(np.array([reward]), f"evaluation episode {self.index}, row", "reward")
        self.reward += float(reward)
        self.length += 1
        return bool(terminated or truncated) or self.length == self.horizon


def _play(
    player: Player, envs: list[Env], waiting: Iterator[int], rules: tuple[int, bool, int | None]
) -> dict[int, RolloutMetrics]:
    """Index → episode; an environment that is done takes the next that waits."""
    initial = player.initial_memory()
    pairs = zip(envs, waiting, strict=False)
    running = [_Running(env, index, initial, rules) for env, index in pairs]
    finished: dict[int, RolloutMetrics] = {}
    while running:
        observations = np.stack([np.asarray(one.observation) for one in running])
        memory = np.stack([one.memory for one in running])
        streams = [one.stream for one in running]
        actions, memory = player.act_each(observations, memory, streams)
        following: list[_Running] = []
        for i, (one, action) in enumerate(zip(running, actions, strict=True)):
            one.memory = memory[i]
            if not one.step(action):
                following.append(one)
                continue
            finished[one.index] = RolloutMetrics(one.reward, one.length)
            if (index := next(waiting, None)) is not None:
                following.append(_Running(one.env, index, initial, rules))
        running = following
    return finished
