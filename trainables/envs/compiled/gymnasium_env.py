"""An environment of compiled programs as a gymnasium environment, stepped by itself on the CPU.

Policies see the same numbers as in a program: observations are vectors (D,) of float32, actions a
choice or numbers (A,) within the bounds. The state is one array, so checkpoints are exact.
"""

import functools
import json
from collections.abc import Mapping
from typing import Any

import gymnasium
import jax
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from jax import Array
from numpy.typing import NDArray

from trainables.envs.compiled.contract import Environment
from trainables.envs.compiled.registry import EnvKey, key_of, make
from trainables.errors import ConfigError, shorten


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """An environment that is a function of arrays, as a `gymnasium.Env` with its time limit.

    Compiled programs use the functions themselves; this class is for all else, such as evaluation.
    """

    def __init__(self, key: EnvKey) -> None:
        env = make(key)
        self._key = tuple(key)
        self.spec = EnvSpec(
            id=key.name,
            entry_point=f"{__name__}:{make_gymnasium_env.__name__}",
            max_episode_steps=env.limit,
            kwargs={"name": key.name, "config": json.loads(key.config)},
        )
        self.observation_space = spaces.Box(-np.inf, np.inf, (env.features,))
        low, high = (np.array(bound, np.float32) for bound in env.bounds)
        self.action_space = (
            spaces.Discrete(env.choices) if env.choices else spaces.Box(low, high, low.shape)
        )
        self._state: NDArray[Any] = np.zeros(0, np.float32)
        """State of the environment, (S,)."""
        self._length = 0
        """Steps of the episode so far."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode; as in gymnasium, but `options` are ignored and the info is empty."""
        super().reset(seed=seed)
        key = self.np_random.integers(0, 2**32, 2, dtype=np.uint32)
        with _on_cpu():
            state, observation = _begin(self._env, key)
        self._state, self._length = np.asarray(state), 0
        return np.asarray(observation), {}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Make one step; arguments and results as in gymnasium, with an empty info.

        The episode is truncated at the environment's own time limit.
        """
        dtype = np.int32 if isinstance(self.action_space, spaces.Discrete) else np.float32
        with _on_cpu():
            given = _step(self._env, self._state, np.asarray(action, dtype))
        state, observation, reward, terminated = given
        self._state, self._length = np.asarray(state), self._length + 1
        is_over = bool(terminated)
        truncated = not is_over and self._length >= self._env.limit
        return np.asarray(observation), float(reward), is_over, truncated, {}

    @property
    def _env(self) -> Environment:
        """Functions of the environment, looked up by its name: they hold no state."""
        return make(EnvKey(*self._key))


def make_gymnasium_env(name: str, config: Mapping[str, Any]) -> GymnasiumEnv:
    """Return the gymnasium environment for a value of ``env`` with a prefix such as ``jax:``.

    Raises:
        ConfigError: there is no such environment, or it does not fulfil the contract.
    """
    if (key := key_of(name, config)) is None:
        problem = f"{shorten(name)} is not an environment that JAX compiles"
        raise ConfigError("env", name, hint="begin the name with jax:", problem=problem)
    return GymnasiumEnv(key)


def _on_cpu() -> Any:
    """Return a context manager in which JAX computes on the CPU, even if there is a GPU."""
    return jax.default_device(jax.devices("cpu")[0])


@functools.partial(jax.jit, static_argnums=0)
def _begin(env: Environment, key: Array) -> tuple[Array, Array]:
    """Return the first state (S,) and observation (D,) of an episode, compiled for each `env`.

    `key` is a random key as two numbers of uint32.
    """
    state = env.begin(jax.random.wrap_key_data(key))
    return state, env.observe(state)


@functools.partial(jax.jit, static_argnums=0)
def _step(env: Environment, state: Array, action: Array) -> tuple[Array, Array, Array, Array]:
    """Return next state (S,), observation (D,), reward, and whether the episode was terminated.

    The time limit is not applied. Compiled for each `env`.
    """
    moved = env.step(state, action)
    return moved.state, env.observe(moved.state), moved.reward, moved.terminated
