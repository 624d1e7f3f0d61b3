"""How the environment that the settings name is made, and which spaces a policy can live in.

``env`` is a gymnasium id (``CartPole-v1``) or a dotted path ``package.module:Name`` to an
environment class or a callable that returns an environment, or ``package.module:Id`` for an id that
the module registers; ``env_config`` becomes its keyword arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from pydantic import Field

from trainables.errors import ConfigError, nearest
from trainables.importing import load, load_module
from trainables.settings import Section

Env = gymnasium.Env[Any, Any]


class EnvironmentConfig(Section):
    """Which environment is trained on."""

    env: str = Field(description="A gymnasium id, or package.module:Name of a class or callable.")
    env_config: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for making the environment."
    )
    native_vector_env: bool = Field(
        default=False,
        description="Step all environments of a worker as one vector environment, where there is a "
        "native one (CartPole-v1): faster, and another stream of chance than separate ones.",
    )
    env_level: Literal["auto", "A", "B", "C"] = Field(
        default="auto",
        description="How exactly environments come back from a checkpoint. auto: as measured. A: "
        "their state, B: their episode is replayed, each in an environment made anew; refused if "
        "measured otherwise. C: the episode in flight is dropped; nothing is measured.",
    )
    env_replay_limit: int = Field(
        default=10_000,
        gt=0,
        description="Level B: steps of the longest episode that is replayed; a longer one is "
        "dropped on restore.",
    )


@dataclass(frozen=True)
class EnvSpaces:
    """What the policy needs to know of an environment."""

    observation: spaces.Box
    action: spaces.Discrete | spaces.Box

    @property
    def observation_size(self) -> int:
        """Features of a flattened observation."""
        return int(np.prod(self.observation.shape))

    @property
    def action_size(self) -> int:
        """Choices of a Discrete space, dimensions of a flattened Box."""
        if isinstance(self.action, spaces.Discrete):
            return int(self.action.n)
        return int(np.prod(self.action.shape))

    @property
    def discrete(self) -> bool:
        """Whether actions are choices rather than vectors."""
        return isinstance(self.action, spaces.Discrete)


def make_env(config: EnvironmentConfig) -> Env:
    """A new environment.

    Raises:
        ConfigError: no such environment, or it cannot be made from `env_config`.
    """
    make = _creator(config)
    try:
        env = make()
    except Exception as error:
        raise ConfigError(
            "env_config",
            config.env_config,
            f"what {config.env} can be made from",
            f"it raised {type(error).__name__}: {error}",
        ) from error
    if not isinstance(env, gymnasium.Env):
        raise ConfigError("env", config.env, "a gymnasium.Env", f"it made a {type(env).__name__}")
    return env


def read_spaces(config: EnvironmentConfig) -> EnvSpaces:
    """The spaces of the environment that the settings name; one is made and closed for it.

    Raises:
        ConfigError: no such environment, or spaces that are not supported.
    """
    env = make_env(config)
    try:
        return checked_spaces(config, env.observation_space, env.action_space)
    finally:
        env.close()


def checked_spaces(
    config: EnvironmentConfig, observation: spaces.Space[Any], action: spaces.Space[Any]
) -> EnvSpaces:
    """The two spaces, if a policy can live in them; ConfigError otherwise."""
    if not isinstance(observation, spaces.Box):
        raise ConfigError(
            "env", config.env, "an environment with Box observations", f"it observes {observation}"
        )
    if isinstance(action, spaces.Discrete):
        return EnvSpaces(observation, action)
    if isinstance(action, spaces.Box) and np.issubdtype(action.dtype, np.floating):
        return EnvSpaces(observation, action)
    raise ConfigError(
        "env", config.env, "an environment with Discrete or real Box actions", f"it takes {action}"
    )


def _creator(config: EnvironmentConfig) -> Callable[[], Any]:
    env = config.env
    if ":" in env and env not in gymnasium.registry:
        load_module("env", env)
        env = env.partition(":")[2]  # the import may have registered an id
    if ":" in config.env and env not in gymnasium.registry:
        imported = load("env", config.env, "an environment class or callable")
        return lambda: imported(**config.env_config)
    if env not in gymnasium.registry:
        hint = nearest(config.env, gymnasium.registry).removeprefix("; ")
        raise ConfigError(
            "env",
            config.env,
            "a registered gymnasium id or package.module:Name",
            hint or f"{len(gymnasium.registry)} ids are registered, for example CartPole-v1",
        )
    # The passive checker costs a call per step; the sampler checks what it is given itself.
    return lambda: gymnasium.make(env, disable_env_checker=True, **config.env_config)
