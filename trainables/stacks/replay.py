"""A replay in a program: the latest transitions of a lane, drawn evenly and with replacement.

C places, of which a lane may use fewer; R rows, B of a batch, D features. A row is one vector: its
observations, what came next, action, reward, 1 where it was terminated, and discount.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, random

from trainables.stacks.n_step import Transition


class Replay(NamedTuple):
    """Rows, of which the oldest are written over."""

    rows: Array
    """(C, 2 D + 4)"""
    size: Array
    """() int32 rows that there are."""
    next: Array
    """() int32 the place of the next one."""


def width(features: int) -> int:
    """Return the numbers of a row, for so many features."""
    return 2 * features + 4


def packed(made: Transition) -> Array:
    """Return transitions (R, …) as rows (R, 2 D + 4)."""
    single = (made.actions, made.rewards, made.terminated, made.discounts)
    columns = [one[:, None].astype(jnp.float32) for one in single]
    return jnp.concatenate([made.observations, made.new_obs, *columns], axis=1)


def unpacked(rows: Array) -> Transition:
    """Return the transitions of rows (R, 2 D + 4)."""
    features = (rows.shape[-1] - 4) // 2
    actions, rewards, terminated, discounts = (rows[:, 2 * features + k] for k in range(4))
    return Transition(
        rows[:, :features],
        actions.astype(jnp.int32),
        rewards,
        rows[:, features : 2 * features],
        terminated != 0,
        discounts,
    )


def add(replay: Replay, capacity: Array, rows: Array, given: Array) -> Replay:
    """Write the rows (R, …) that are given (R,), in their order.

    Args:
        replay: to which they are added.
        capacity: () int32 places that the lane uses.
        rows: of which some are written.
        given: True for those.
    """
    order = jnp.cumsum(given) - 1
    count = given.sum()
    # Of more than there are places for, the last ones stay.
    written = given & (order >= count - capacity)
    places = jnp.where(written, (replay.next + order) % capacity, len(replay.rows))
    return Replay(
        replay.rows.at[places].set(rows, mode="drop"),
        jnp.minimum(capacity, replay.size + count),
        (replay.next + count) % capacity,
    )


def sample(replay: Replay, key: Array, count: int) -> Transition:
    """Return so many transitions, drawn evenly; there has to be one."""
    return unpacked(replay.rows[random.randint(key, (count,), 0, replay.size)])
