"""Environments of one's own for compiled programs: a corridor to walk through, and wrong ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

State = dict[str, Array]


class Corridor:
    """A walk to the right end of a corridor, in which a gust may blow one back.

    Its state has numbers of several dtypes. An episode that does not end is truncated.
    """

    observation_space = spaces.Box(0.0, 1.0, (2, 1))
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    limit = 12

    def __init__(self, length: int = 6, gusts: float = 0.2) -> None:
        self.length, self.gusts = length, gusts

    def reset(self, key: Array) -> tuple[Array, State]:
        """Begin at one of the first two places."""
        at = jax.random.randint(key, (), 0, 2).astype(jnp.int8)
        state = {"at": at, "blown": jnp.array([False]), "half": jnp.float16(0.5)}
        return self._seen(state), state

    def step(self, key: Array, state: State, action: Array) -> tuple[Array, State, Any, Array]:
        """Go one place to the left or to the right."""
        blown = jax.random.uniform(key, (1,)) < self.gusts
        way = jnp.where(blown[0], -1, 2 * action - 1)
        at = jnp.clip(state["at"] + way, 0, self.length).astype(jnp.int8)
        after = {"at": at, "blown": blown, "half": state["half"]}
        is_through = at == self.length
        return self._seen(after), after, jnp.where(is_through, 10, -1), is_through

    def _seen(self, state: State) -> Array:
        seen = [state["at"] / self.length, state["blown"][0] * state["half"]]
        return jnp.array(seen, jnp.float32)[:, None]


class Screen:
    """A picture of bytes, the darkest and the brightest, that never changes."""

    action_space = spaces.Discrete(2)
    limit = 8

    def __init__(self, top: int = 255) -> None:
        self.observation_space = spaces.Box(0, top, (12, 12, 3), np.uint8)
        self.top = top

    def reset(self, key: Array) -> tuple[Array, Array]:
        """Show it."""
        shown = jnp.zeros((12, 12, 3), jnp.uint8).at[0].set(self.top)
        return shown, shown

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Array, float, bool]:
        """Show it again."""
        return state, state, 0.0, False


class Points:
    """A point that is pushed to the origin, by forces with bounds of their own in two columns."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,))
    action_space = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32))
    limit = 8

    def reset(self, key: Array) -> tuple[Array, Array]:
        """Begin somewhere."""
        at = jax.random.normal(key, (2,))
        return at, at

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, Array, Array, bool]:
        """Push; the second force pushes downwards only."""
        at = state + 0.1 * action * jnp.array([1.0, -1.0])
        return at, at, -jnp.abs(at).sum(), False


class NoStep:
    """It lacks a function."""

    observation_space, action_space, limit = Corridor.observation_space, spaces.Discrete(2), 9

    def reset(self, key: Array) -> tuple[Array, Array]:
        """Begin."""
        return jnp.zeros((2, 1)), jnp.zeros(())


class NoLimit(Corridor):
    """Its episodes could last for ever."""

    limit = 0


class OtherShape(Corridor):
    """Its observations are not in its space."""

    observation_space = spaces.Box(0.0, 1.0, (3,))


class OtherState(Corridor):
    """Its state changes its dtype."""

    def step(self, key: Array, state: State, action: Array) -> tuple[Array, State, Any, Array]:
        """Go."""
        seen, after, reward, over = super().step(key, state, action)
        return seen, {**after, "at": after["at"].astype(jnp.float32)}, reward, over


class FiveValues(Corridor):
    """It returns what gymnasium's environments return."""

    def step(self, key: Array, state: State, action: Array) -> Any:
        """Go."""
        return (*super().step(key, state, action), {})


class Branches(Corridor):
    """It decides in Python on an array."""

    def reset(self, key: Array) -> tuple[Array, State]:
        """Begin."""
        if jax.random.uniform(key) < 0.5:
            raise RuntimeError("never")
        return super().reset(key)


class Unbounded(Corridor):
    """Its actions have no bounds."""

    action_space = spaces.Box(-np.inf, np.inf, (1,))
