"""How the environment that the settings name is made, and which spaces a policy can live in.

``env`` is a gymnasium id (``CartPole-v1``) or a dotted path ``package.module:Name`` to an
environment class or a callable that returns an environment; ``env_config`` becomes its keyword
arguments. Names that were registered come before gymnasium's ids; an environment class stands for
its dotted path.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from pydantic import BeforeValidator, Field

from trainables.envs import registry
from trainables.envs.registry import EnvContext
from trainables.envs.single import Single
from trainables.errors import ConfigError, nearest
from trainables.importing import load
from trainables.settings import Section

Env = gymnasium.Env[Any, Any]


class EnvironmentConfig(Section):
    """Which environment is trained on."""

    env: Annotated[str, BeforeValidator(registry.named)] = Field(
        description="A registered id, or package.module:Name of a class or callable; from python "
        "also the class itself."
    )
    env_config: dict[str, Any] = Field(
        default_factory=dict, description="Keyword arguments for making the environment."
    )
    native_vector_env: bool = Field(
        default=False,
        description="Step all environments of a worker as one vector environment, where there is a "
        "native one (CartPole-v1): faster, and another stream of chance than separate ones.",
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


def make_env(config: EnvironmentConfig, context: EnvContext | None = None) -> Env:
    """A new environment.

    Args:
        config: what to make.
        context: where it will stand; by default nowhere in particular.

    Raises:
        ConfigError: no such environment, or it cannot be made from `env_config`.
    """
    if config.native_vector_env and not _has_single_form(config.env):
        return Single(make_vector(config, 1))
    if context is None:
        context = EnvContext(config.env_config)
    env = _made(config, context)
    if not isinstance(env, gymnasium.Env):
        raise ConfigError("env", config.env, "a gymnasium.Env", f"it made a {type(env).__name__}")
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), spaces.Space):
            env.close()
            hint = f"its {name} is missing or no gymnasium.spaces.Space"
            raise ConfigError("env", config.env, "an environment that says its spaces", hint)
    return env


def make_vector(config: EnvironmentConfig, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """A new native vector environment.

    Raises:
        ConfigError: there is none, or it cannot be made from `env_config`.
    """
    spec = gymnasium.registry.get(config.env)
    if spec is not None and spec.vector_entry_point is None:
        raise ConfigError(
            "native_vector_env",
            True,
            "false for this environment",
            f"{config.env} has no vector form of its own",
        )
    vector = _made(config, EnvContext(config.env_config), num_envs)
    if not isinstance(vector, VectorEnv) or vector.num_envs != num_envs:
        raise ConfigError(
            "native_vector_env",
            True,
            "false for this environment",
            f"{config.env} made {vector!r}, no gymnasium.vector.VectorEnv of {num_envs}",
        )
    return vector


def _made(config: EnvironmentConfig, context: EnvContext, num_envs: int | None = None) -> Any:
    make = _creator(config, context, num_envs)
    try:
        return make()
    except Exception as error:
        raise ConfigError(
            "env_config",
            config.env_config,
            f"what {config.env} can be made from",
            f"it raised {type(error).__name__}: {error}",
        ) from error


def for_children(config: EnvironmentConfig) -> EnvironmentConfig:
    """The same environment as child processes can find it; ConfigError if they cannot."""
    return config.model_copy(update={"env": registry.portable(config.env)})


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


def _has_single_form(env: str) -> bool:
    return env in gymnasium.registry and gymnasium.registry[env].entry_point is not None


def _creator(
    config: EnvironmentConfig, context: EnvContext, num_envs: int | None
) -> Callable[[], Any]:
    found = registry.find(config.env)
    if found is None and ":" in config.env and config.env not in gymnasium.registry:
        found = load("env", config.env, "an environment class or callable")
    if found is not None:
        more = {} if num_envs is None else {"num_envs": num_envs}
        return partial(registry.call, found, context, **more)
    if config.env not in gymnasium.registry:
        hint = nearest(config.env, [*registry.registered(), *gymnasium.registry]).removeprefix("; ")
        raise ConfigError(
            "env",
            config.env,
            "a class, a registered id or package.module:Name",
            hint or f"{len(gymnasium.registry)} ids are registered, for example CartPole-v1",
        )
    if num_envs is not None:
        mode = "vector_entry_point"
        return partial(
            gymnasium.make_vec, config.env, num_envs, vectorization_mode=mode, **config.env_config
        )
    # The passive checker costs a call per step; the lanes check what they are given themselves.
    return partial(gymnasium.make, config.env, disable_env_checker=True, **config.env_config)
