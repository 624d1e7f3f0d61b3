"""A replay buffer in a program: the latest transitions of a lane, drawn uniformly with replacement.

C places, of which a lane may use fewer; R rows, B rows per batch, D features. A row is one vector:
observation, next observation, action, reward, 1 if terminated else 0, and discount.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, random

from trainables.stacks.n_step import Transition


class Replay(NamedTuple):
    """A replay buffer of one trial as a ring of rows; new rows overwrite the oldest."""

    rows: Array
    """Packed transitions, (C, 2 D + 4)."""
    size: Array
    """Number of stored rows, () int32."""
    next: Array
    """Index at which the next row is written, () int32."""


def width(features: int) -> int:
    """Return the length of a packed row for observations of D = `features` numbers: 2 D + 4."""
    return 2 * features + 4


def packed(transitions: Transition) -> Array:
    """Return transitions (R, …) packed into rows of float32, (R, 2 D + 4).

    Columns are observation, next observation, action, reward, terminated (1 or 0) and discount.
    """
    single = (
        transitions.actions,
        transitions.rewards,
        transitions.terminated,
        transitions.discounts,
    )
    columns = [one[:, None].astype(jnp.float32) for one in single]
    return jnp.concatenate([transitions.observations, transitions.new_obs, *columns], axis=1)


def unpacked(rows: Array) -> Transition:
    """Return the transitions (R, …) that `packed` packed into rows (R, 2 D + 4)."""
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


def add(replay: Replay, capacity: Array, rows: Array, is_added: Array) -> Replay:
    """Return the replay after appending the rows (R, …) that are flagged, in their order.

    Args:
        replay: the replay.
        capacity: maximum number of rows of this trial, () int32.
        rows: packed rows (R, 2 D + 4).
        is_added: flags (R,), True for the rows to append; of more than `capacity` the last stay.
    """
    order = jnp.cumsum(is_added) - 1
    count = is_added.sum()
    # If there are more rows than places, the last ones are written.
    written = is_added & (order >= count - capacity)
    places = jnp.where(written, (replay.next + order) % capacity, len(replay.rows))
    return Replay(
        replay.rows.at[places].set(rows, mode="drop"),
        jnp.minimum(capacity, replay.size + count),
        (replay.next + count) % capacity,
    )


def sample(replay: Replay, key: Array, count: int) -> Transition:
    """Return `count` transitions, drawn uniformly with replacement from a non-empty replay."""
    return unpacked(replay.rows[random.randint(key, (count,), 0, replay.size)])
