"""An environment of gymnax as a class whose functions `UserEnvironment` steps.

Up to gymnax 0.0.9 a time limit ends an episode like a failure does. Here it truncates the episode
with every version: a step asks the environment with its limit lifted if the episode was terminated,
and `limit` is applied outside. All else comes from a step with the limit, on which observations may
depend.
Observations that are one of n choices become n numbers, of which one is 1.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from trainables.envs.compiled.packages import check_name, import_package
from trainables.errors import ConfigError, nearest, shorten

#: Name of the parameter with the time limit.
_LIMIT = "max_steps_in_episode"
#: Time limit, in steps, that never applies.
_NO_LIMIT = 2**31 - 1


class GymnaxEnv:
    """An environment of gymnax with the functions of an environment for compiled programs.

    Args:
        name: name in gymnax, such as ``Breakout-MinAtar``.
        params: parameters that differ from gymnax's defaults.

    Raises:
        ConfigError: gymnax is missing, or has no such environment or parameter.
    """

    def __init__(self, name: str, params: Mapping[str, Any]) -> None:
        value = f"gymnax:{name}"
        gymnax = import_package("gymnax", value, "gymnax six")
        check_name(name, gymnax.registered_envs, value, "gymnax.registered_envs")
        self._env, usual = gymnax.make(name)
        if unknown := next((key for key in params if not hasattr(usual, key)), None):
            hint = nearest(unknown, vars(usual)).removeprefix("; ")
            problem = f"{name} of gymnax has no parameter {shorten(unknown)}"
            raise ConfigError("env_config", unknown, hint=hint, problem=problem)
        env_params = usual.replace(**params)
        self.limit = int(getattr(env_params, _LIMIT, 0))
        separates = hasattr(self._env, "is_truncated")
        self._params = env_params
        self._endless = None if separates else env_params.replace(**{_LIMIT: _NO_LIMIT})
        """Parameters without the time limit; None if gymnax itself keeps truncation apart."""
        self._seen = self._env.observation_space(env_params)
        self.observation_space = _observations(self._seen)
        self.action_space = _actions(self._env.action_space(env_params))

    def reset(self, key: Array) -> tuple[Array, Any]:
        """Return the first observation (D,) and gymnax's state of an episode, drawn with a key."""
        observation, state = self._env.reset_env(key, self._params)
        return self._vector(observation), state

    def step(self, key: Array, state: Any, action: Array) -> tuple[Array, Any, Array, Array]:
        """Return observation (D,), next state, reward, and whether the episode was terminated.

        The time limit is not applied; the state keeps its dtypes.
        """
        given = self._env.step_env(key, state, action, self._params)
        observation, after, reward, terminated, _ = given
        if self._endless is not None:  # the compiler merges the parts that both steps have
            terminated = self._env.step_env(key, state, action, self._endless)[3]
        # A state must keep its dtypes; gymnax's numbers are Python's until the first step.
        after = jax.tree.map(
            lambda new, old: jnp.asarray(new, jnp.asarray(old).dtype), after, state
        )
        return (
            self._vector(observation),
            after,
            jnp.reshape(reward, ()),
            jnp.reshape(terminated, ()),
        )

    def _vector(self, observation: Any) -> Array:
        """Return an observation as a vector (D,) of float32; one of n choices becomes one-hot."""
        if (count := getattr(self._seen, "n", None)) is not None:
            return jax.nn.one_hot(observation, count)
        return jnp.ravel(jnp.asarray(observation, jnp.float32))


def _observations(space: Any) -> spaces.Box | None:
    """Return the Box of flattened observations of a gymnax space; None if they have no vector."""
    if (count := getattr(space, "n", None)) is not None:
        return spaces.Box(0.0, 1.0, (int(count),))
    if not hasattr(space, "low"):
        return None
    low, high = (_flat(bound, space.shape) for bound in (space.low, space.high))
    return spaces.Box(low, high, low.shape)


def _actions(space: Any) -> spaces.Box | spaces.Discrete | None:
    """Return an action space of gymnax as a Discrete or Box; None if it is neither."""
    if (count := getattr(space, "n", None)) is not None:
        return spaces.Discrete(int(count))
    if not hasattr(space, "low"):
        return None
    low, high = (np.full(space.shape, bound, np.float32) for bound in (space.low, space.high))
    return spaces.Box(low, high, low.shape)


def _flat(bound: Any, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return a bound of a space as one float32 number per entry, flattened."""
    return np.array(np.broadcast_to(np.asarray(bound, np.float32), shape)).ravel()
