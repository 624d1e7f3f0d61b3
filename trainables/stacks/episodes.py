"""The running episodes of a lane: stepping environments with time limits and automatic resets.

N environments, S numbers of a state, D features.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random

from trainables.envs.compiled.contract import Environment


class Episodes(NamedTuple):
    """The running episodes of all N environments between two steps."""

    states: Array
    """States of the environments, (N, S)."""
    lengths: Array
    """Steps of the running episodes so far, (N,) int32."""
    returns: Array
    """Sums of rewards of the running episodes, (N,)."""


class Stepped(NamedTuple):
    """The outcome of one step of all environments; each (N, …)."""

    rewards: Array
    """Rewards of the step, (N,)."""
    following: Array
    """Next observation, (N, D); after the end of an episode its last one."""
    terminated: Array
    """True where an episode ended by itself, (N,)."""
    truncated: Array
    """True where an episode reached the limit of steps, (N,)."""
    returns: Array
    """Sum of rewards of an episode that ended, (N,); 0 elsewhere."""
    lengths: Array
    """Length of an episode that ended, (N,) int32; 0 elsewhere."""


def step(
    env: Environment, limit: int, running: Episodes, actions: Array, starts: Array
) -> tuple[Episodes, Stepped]:
    """Step all environments once with actions (N, …) in the form that `env.step` takes.

    Returns the running episodes after the step, and its outcome.

    Episodes are truncated after `limit` steps. After the end of an episode, the next one begins in
    the environment's state in `starts` (N, S).
    """
    moved = jax.vmap(env.step)(running.states, actions)
    lengths, returns = running.lengths + 1, running.returns + moved.reward
    truncated = (lengths >= limit) & ~moved.terminated
    over = moved.terminated | truncated
    stepped = Stepped(
        rewards=moved.reward,
        following=observe(env, moved.state),
        terminated=moved.terminated,
        truncated=truncated,
        returns=jnp.where(over, returns, 0.0),
        lengths=jnp.where(over, lengths, 0),
    )
    after = Episodes(
        states=jnp.where(over[:, None], starts, moved.state),
        lengths=jnp.where(over, 0, lengths),
        returns=jnp.where(over, 0.0, returns),
    )
    return after, stepped


def begin(env: Environment, key: Array, count: int) -> Episodes:
    """Return the first episodes of `count` environments as numpy arrays, with no steps so far.

    `key` (2,) uint32 draws their first states.
    """
    return Episodes(
        np.asarray(_first_states(env, key, count)),
        np.zeros(count, np.int32),
        np.zeros(count, np.float32),
    )


@functools.partial(jax.jit, static_argnums=(0, 2))
def _first_states(env: Environment, key: Array, count: int) -> Array:
    """Return the first states (N, S) of `count` environments, drawn with `key` (2,) uint32."""
    return jax.vmap(env.begin)(random.split(random.wrap_key_data(key), count))


def observe(env: Environment, states: Array) -> Array:
    """Return observations (N, D) of states (N, S)."""
    return jax.vmap(env.observe)(states)


#: `observe` as a compiled program, for calls from outside of one.
observe_now = jax.jit(observe, static_argnums=0)
