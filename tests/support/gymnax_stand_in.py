"""A module with gymnax's API, old or new, and one environment that a time limit ends."""

from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array


@jax.tree_util.register_dataclass
@dataclass
class Params:
    """Parameters of `Counter`."""

    max_steps_in_episode: int = 7
    goal: int = 4

    def replace(self, **changes: Any) -> "Params":
        """Return parameters with some changes."""
        return replace(self, **changes)


@jax.tree_util.register_dataclass
@dataclass
class State:
    """State of `Counter`; `time` is Python's number until the first step, as in gymnax."""

    count: Array
    time: Any


class Counter:
    """Counts how often the last of three choices was made, and ends at a goal."""

    def reset_env(self, key: Array, params: Params) -> tuple[Array, State]:
        """Begin at 0."""
        state = State(jnp.int32(0), 0)
        return state.count, state

    def step_env(
        self, key: Array, state: State, action: Array, params: Params
    ) -> tuple[Array, State, Array, Array, dict[str, Any]]:
        """Count."""
        after = State(state.count + (action == 2), state.time + 1)
        done = self._is_done(after, params)
        return after.count, after, jnp.float32(action == 2)[None], done, {"discount": 1.0}

    def _is_done(self, state: State, params: Params) -> Array:
        return (state.count >= params.goal) | (state.time >= params.max_steps_in_episode)

    def observation_space(self, params: Params) -> Any:
        """One of some numbers."""
        return SimpleNamespace(n=params.goal + 1, shape=())

    def action_space(self, params: Params) -> Any:
        """Three choices."""
        return SimpleNamespace(n=3, shape=())


class NewCounter(Counter):
    """The same for an API that keeps truncation apart."""

    def is_truncated(self, state: State, params: Params) -> Array:
        """Return whether the time is up."""
        return state.time >= params.max_steps_in_episode

    def _is_done(self, state: State, params: Params) -> Array:
        return state.count >= params.goal


class Clock(Counter):
    """The same, but what is seen is the share of the time limit that has passed."""

    def reset_env(self, key: Array, params: Params) -> tuple[Array, State]:
        """Begin at 0."""
        _, state = super().reset_env(key, params)
        return self._passed(state, params), state

    def step_env(
        self, key: Array, state: State, action: Array, params: Params
    ) -> tuple[Array, State, Array, Array, dict[str, Any]]:
        """Count, and look at the clock."""
        _, after, *others = super().step_env(key, state, action, params)
        return self._passed(after, params), after, *others

    def observation_space(self, params: Params) -> Any:
        """A share."""
        return SimpleNamespace(low=0.0, high=1.0, shape=(1,))

    def _passed(self, state: State, params: Params) -> Array:
        return jnp.float32(state.time / params.max_steps_in_episode)[None]


class NewClock(Clock, NewCounter):
    """The same for an API that keeps truncation apart."""


def module(env: Counter) -> ModuleType:
    """Return the module."""
    made: Any = ModuleType("gymnax")
    made.registered_envs = ["Counter-misc"]
    made.make = lambda _: (env, Params())
    found: ModuleType = made
    return found
