"""Environments of brax and of MuJoCo Playground as classes whose functions `UserEnvironment` steps.

Both packages have the same form: `reset(key)` and `step(state, action)` return a state that holds
the observation, the reward, and `done`, which leaves out the time limit. Random numbers after the
reset come from a key in the state. Actions are numbers from -1 to 1.
"""

import sys
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array, random

from trainables.envs.compiled.packages import check_name, import_package, refused_settings
from trainables.errors import ConfigError

#: Key of ``env_config`` with the time limit, in environment steps.
_LIMIT = "episode_length"
#: Time limit in environment steps if the settings of brax or MuJoCo Playground have none.
_USUAL_LIMIT = 1000
#: Key of Playground's settings that selects the implementation of the physics.
_IMPLEMENTATION = "impl"


class PhysicsEnv:
    """An environment of a physics library, whose states hold observation, reward and the end.

    It gets the functions ``reset(key)`` and ``step(key, state, action)`` of a user's class.

    Args:
        env: environment of brax or Playground.
        limit: time limit of an episode, in environment steps.
        name: value of ``env``.

    Raises:
        ConfigError: `limit` is no number of steps, or no observation is one vector.
    """

    def __init__(self, env: Any, limit: Any, name: str) -> None:
        self._env = env
        self.limit = _checked_limit(limit)
        self._part = _policy_part(env.observation_size, name)
        size = env.observation_size if self._part is None else env.observation_size[self._part]
        self.observation_space = spaces.Box(-np.inf, np.inf, (int(np.prod(size)),))
        self.action_space = spaces.Box(-1.0, 1.0, (int(env.action_size),))

    def reset(self, key: Array) -> tuple[Array, Any]:
        """Return the first observation (D,) and state of an episode, drawn with a random key."""
        # The state keeps the key as plain numbers, of which states consist.
        state = self._env.reset(random.key_data(key))
        return self._observation(state), state

    def step(self, _: Array, state: Any, action: Array) -> tuple[Array, Any, Array, Array]:
        """Return observation (D,), next state, reward, and whether the episode was terminated.

        The first argument, a random key, is ignored: the state has one. The time limit is not
        applied.
        """
        after = self._env.step(state, action)
        # A state must keep its dtypes, which a package may widen in the first step.
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)
        reward, done = jnp.reshape(after.reward, ()), jnp.reshape(after.done, ())
        return self._observation(after), after, reward, done > 0

    def _observation(self, state: Any) -> Array:
        """Return the observation in a state that a policy sees, as a vector of float32."""
        seen = state.obs if self._part is None else state.obs[self._part]
        return jnp.ravel(jnp.asarray(seen, jnp.float32))


def make_brax(name: str, config: Mapping[str, Any]) -> PhysicsEnv:
    """Return an environment of brax.

    Args:
        name: name in brax, such as ``ant``.
        config: arguments of the environment, such as ``backend``, and ``episode_length``.

    Raises:
        ConfigError: brax is missing, or has no such environment or argument; ``episode_length`` is
            no number of steps; or no observation is one vector.
    """
    value = f"brax:{name}"
    envs = import_package("brax.envs", value, "brax")
    check_name(name, getattr(envs, "_envs", [name]), value, "brax.envs")
    arguments = dict(config)
    limit = arguments.pop(_LIMIT, _USUAL_LIMIT)
    try:
        env = envs.get_environment(name, **arguments)
    except Exception as error:
        raise refused_settings(config, name, error) from error
    return PhysicsEnv(env, limit, value)


def make_playground(name: str, config: Mapping[str, Any]) -> PhysicsEnv:
    """Return an environment of MuJoCo Playground.

    Args:
        name: name in Playground, such as ``CheetahRun``.
        config: settings that differ from Playground's; names of nested ones contain dots.

    Raises:
        ConfigError: Playground is missing, or has no such environment or setting; the files of its
            robots are missing; the implementation of the physics mixes environments;
            ``episode_length`` is no number of steps; or no observation is one vector.
    """
    value = f"playground:{name}"
    package = import_package("mujoco_playground", value, "playground")
    registry = package.registry
    check_name(name, registry.ALL_ENVS, value, "mujoco_playground.registry.ALL_ENVS")
    if config.get(_IMPLEMENTATION, "jax") != "jax":
        given, place = config[_IMPLEMENTATION], f"env_config.{_IMPLEMENTATION}"
        why = "environments that are stepped together would share one state"
        raise ConfigError.of_conflict(place, given, "", "jax", why)
    robots = getattr(sys.modules[package.MjxEnv.__module__], "MENAGERIE_PATH", None)
    if name not in package.dm_control_suite.ALL_ENVS and robots and not robots.exists():
        # Playground would download the files now, in each process at the same time.
        command = f"python -c \"from mujoco_playground import registry; registry.load('{name}')\""
        problem = f"the files of the robot in {value} are not installed"
        raise ConfigError("env", value, hint=f"download them: {command}", problem=problem)
    try:
        env = registry.load(name, config_overrides={_IMPLEMENTATION: "jax", **config})
    except Exception as error:
        raise refused_settings(config, name, error) from error
    limit = {**registry.get_default_config(name), **config}.get(_LIMIT, _USUAL_LIMIT)
    return PhysicsEnv(env, limit, value)


def _checked_limit(limit: Any) -> int:
    """Return a time limit in environment steps; ConfigError if it is no whole number from 1."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ConfigError(f"env_config.{_LIMIT}", limit, "a whole number of at least 1")
    return limit


def _policy_part(sizes: Any, name: str) -> str | None:
    """Return ``state``, the key of what a policy sees; None if there is only one observation.

    Args:
        sizes: numbers of features, or key → numbers of features.
        name: value of ``env``.

    Raises:
        ConfigError: there are several observations, and none is called ``state``.
    """
    if not isinstance(sizes, Mapping):
        return None
    if "state" in sizes:
        return "state"
    problem = f"{name} has several observations: {', '.join(sizes)}"
    hint = "choose an environment with one vector, as compiled programs need it"
    raise ConfigError("env", name, hint=hint, problem=problem)
