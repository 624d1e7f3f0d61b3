"""Transitions over several steps, made from single steps, also across rounds.

Does the same as `trainables.learners.replay.NStep`, but the number of steps is an array, at most
K + 1. T steps per round, N environments, D features, W = K + T.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

#: Value of `Step.t` in rows without a step.
NO_STEP = -2


class Step(NamedTuple):
    """Consecutive steps of N environments; each (T, N, …)."""

    observations: Array
    """Observations before the steps, (T, N, D)."""
    actions: Array
    """Choices taken, (T, N) int32."""
    rewards: Array
    """Rewards of the steps, (T, N)."""
    new_obs: Array
    """Observations after the steps, (T, N, D)."""
    terminated: Array
    """True where the episode ended by itself, (T, N)."""
    truncated: Array
    """True where the episode was cut off, (T, N)."""
    t: Array
    """Index of the step in its episode, (T, N) int32; `NO_STEP` in a row without a step."""
    held: Array
    """True if the transition that begins at the step has not been returned yet, (T, N)."""


class Transition(NamedTuple):
    """Transitions over one or more steps, as a replay stores them; each (…,) or (…, D)."""

    observations: Array
    """Observations before the first step, (…, D)."""
    actions: Array
    """Choices taken in the first step, (…,) int32."""
    rewards: Array
    """Discounted sums of rewards, (…,)."""
    new_obs: Array
    """Observations after the last step, (…, D)."""
    terminated: Array
    """True if the episode ended by itself in the last step, (…,)."""
    discounts: Array
    """Discount to the power of the number of steps, (…,), for the value of `new_obs`."""


def no_steps(count: int, num_envs: int, features: int) -> Step:
    """Return rows (count, num_envs) that contain no steps: their `t` is `NO_STEP`."""
    like = (count, num_envs)
    real, flag = jnp.zeros((*like, features)), jnp.zeros(like, jnp.bool_)
    t = jnp.full(like, NO_STEP, jnp.int32)
    return Step(real, jnp.zeros(like, jnp.int32), jnp.zeros(like), real, flag, flag, t, flag)


def join(held: Step, new: Step, steps: Array, gamma: Array) -> tuple[Step, Transition, Array]:
    """Add new steps to the waiting ones, and return the transitions that are complete now.

    Args:
        held: steps (K, N) of earlier rounds, whose transitions may be incomplete.
        new: the following steps (T, N).
        steps: maximum number of steps of a transition, up to K + 1; () int32.
        gamma: discount per step, ().

    Returns:
        The latest K of all W = K + T steps; a transition (W, N, …) that begins at each step; flags
        (W, N), True for transitions that are complete and were not returned before.
    """
    rows = Step(*(jnp.concatenate(pair) for pair in zip(held, new, strict=True)))
    most, (count, num_envs) = len(held.t) + 1, rows.t.shape
    ended = rows.terminated | rows.truncated
    follows = ~ended[:-1] & (rows.t[1:] == rows.t[:-1] + 1)
    grows, waits = jnp.ones_like(ended), jnp.zeros_like(ended)
    rewards, steps_ahead = rows.rewards, jnp.zeros_like(rows.t)
    for ahead in range(1, most):
        edge = max(0, count - ahead)
        is_asked = ahead < steps
        waits = waits.at[edge:].set(waits[edge:] | (is_asked & grows[edge:] & ~ended[-1]))
        further = grows[:edge] & follows[ahead - 1 :] & is_asked
        grows = jnp.concatenate([further, jnp.zeros_like(grows[edge:])])
        added = further * gamma**ahead * rows.rewards[ahead:]
        rewards = rewards.at[:edge].add(added)
        steps_ahead = steps_ahead + grows
    own = jnp.arange(count)[:, None]
    last, envs = own + steps_ahead, jnp.arange(num_envs)
    joined = Transition(
        observations=rows.observations,
        actions=rows.actions,
        rewards=rewards,
        new_obs=rows.new_obs[last, envs],
        terminated=rows.terminated[last, envs],
        discounts=gamma ** (steps_ahead + 1).astype(jnp.float32),
    )
    kept = rows._replace(held=rows.held & waits)
    latest = Step(*(column[count - (most - 1) :] for column in kept))
    return latest, joined, rows.held & ~waits
