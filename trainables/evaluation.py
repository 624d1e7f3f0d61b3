"""Evaluation: exactly N fresh episodes with their own seeds, the filters frozen.

Environments are made for it and closed after it, every stream is derived from the trial's seed and
the iteration, and the global streams are put back: the training curve does not change by one bit,
and there is no state to save.
"""

from typing import Any

import numpy as np
from pydantic import Field

from trainables import rng
from trainables.envs.make import Env, EnvironmentConfig, EnvSpaces, make_env, read_spaces
from trainables.envs.preprocessors import require_finite
from trainables.envs.state import seed_spaces
from trainables.errors import ConfigError
from trainables.policies.player import Player
from trainables.resources import WorkerCount
from trainables.rollout.metrics import Episode, summarise
from trainables.settings import Section, Settings


class EvaluationOverrides(Settings):
    """What is different while evaluating; the key ``evaluation_config``."""

    explore: bool = Field(
        default=False,
        description="false: the most probable actions; true: drawn ones, as in training.",
    )
    env_config: dict[str, Any] | None = Field(
        default=None, description="Replaces env_config; null: the same environment as in training."
    )


class EvaluationConfig(Section):
    """When and how the policy is evaluated."""

    evaluation_interval: int | None = Field(
        default=None, gt=0, description="Evaluate every so many iterations; null: never."
    )
    evaluation_num_episodes: int = Field(
        default=10, gt=0, description="Episodes of one evaluation, exactly."
    )
    evaluation_num_workers: WorkerCount = Field(
        default=0,
        description="Child processes that evaluate; 0: the trainer's own process does.",
    )
    evaluation_config: EvaluationOverrides = Field(
        default=EvaluationOverrides(), description="What is different while evaluating."
    )


def check_evaluation(
    config: EvaluationConfig, environment: EnvironmentConfig, training: EnvSpaces
) -> None:
    """Raise ConfigError if the policy could not play the environment of the evaluation."""
    overrides = config.evaluation_config.env_config
    if overrides is None:
        return
    place = "evaluation_config.env_config"
    try:
        spaces = read_spaces(EnvironmentConfig(env=environment.env, env_config=overrides))
    except ConfigError as error:
        raise ConfigError(place, overrides, error.allowed, error.hint) from error
    if (spaces.observation.shape, spaces.action) != (training.observation.shape, training.action):
        raise ConfigError(
            place, overrides, "an environment with the training's spaces", f"it has {spaces}"
        )


def is_due(config: EvaluationConfig, iteration: int) -> bool:
    """Whether this iteration (1 is the first) ends with an evaluation."""
    interval = config.evaluation_interval
    return interval is not None and iteration % interval == 0


def evaluate(
    player: Player, environment: EnvironmentConfig, config: EvaluationConfig, width: int, seed: int
) -> dict[str, float]:
    """``episode_reward_{mean,min,max}``, ``episode_len_mean`` and ``episodes`` of N fresh episodes.

    Args:
        player: acts.
        environment: the training's.
        config: how many episodes, and what is different.
        width: environments side by side, at most.
        seed: of this evaluation; same seed and weights, same result.
    """
    streams = rng.capture_global()
    rng.seed_global(seed, "global")
    overrides = config.evaluation_config
    if overrides.env_config is not None:
        environment = EnvironmentConfig(env=environment.env, env_config=overrides.env_config)
    envs = [make_env(environment) for _ in range(min(width, config.evaluation_num_episodes))]
    try:
        stream = rng.generator(seed, "policy") if overrides.explore else None
        episodes = _play(player, envs, config.evaluation_num_episodes, (seed, stream))
    finally:
        for env in envs:
            env.close()
        rng.restore_global(streams)
    return {**summarise(episodes), "episodes": len(episodes)}


class _Running:
    """One episode in one environment; `index` counts the episodes of the evaluation."""

    def __init__(self, env: Env, index: int, seed: int) -> None:
        self.env = env
        self.index = index
        self.reward = 0.0
        self.length = 0
        seed_spaces(env, rng.integer(seed, "spaces", index) % 2**31)
        self.observation, _ = env.reset(seed=rng.integer(seed, "env", index) % 2**31)

    def step(self, action: Any) -> bool:
        """Whether the episode ended."""
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        require_finite(np.array([reward]), f"evaluation episode {self.index}, row", "reward")
        self.reward += float(reward)
        self.length += 1
        return bool(terminated or truncated)


def _play(
    player: Player, envs: list[Env], count: int, chance: tuple[int, np.random.Generator | None]
) -> list[Episode]:
    """Episodes 0 … count-1 in that order; an environment that is done takes the next one."""
    seed, stream = chance
    running = [_Running(env, index, seed) for index, env in enumerate(envs)]
    begun = len(running)
    finished: dict[int, Episode] = {}
    while running:
        actions = player.act(np.stack([np.asarray(one.observation) for one in running]), stream)
        following: list[_Running] = []
        for one, action in zip(running, actions, strict=True):
            if not one.step(action):
                following.append(one)
                continue
            finished[one.index] = Episode(one.reward, one.length)
            if begun < count:
                following.append(_Running(one.env, begun, seed))
                begun += 1
        running = following
    return [finished[index] for index in range(count)]
