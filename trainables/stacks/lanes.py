"""Many lanes of one shape in one compiled program.

L lanes, R rounds of an iteration. A shape says how one of its lanes makes an iteration; settings,
lanes, rates and outcomes are trees of arrays that it knows.
"""

from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Tree = Any
"""A tree of arrays."""


class Finished(NamedTuple):
    """The episodes that ended in an iteration."""

    ended: Array
    """(R, T, N) True where an episode ended at this step."""
    returns: Array
    """(R, T, N) its sum of rewards; elsewhere 0."""
    lengths: Array
    """(R, T, N) int32 its steps; elsewhere 0."""


class Shape(Protocol):
    """The part that all lanes of one program have in common; it can be a key of a dict."""

    @property
    def rows(self) -> int:
        """Environment steps of a round."""

    @property
    def rounds(self) -> int:
        """R."""

    def iterate(self, settings: Tree, lane: Tree, rates: Tree) -> tuple[Tree, Tree]:
        """Return a lane after one iteration, and what it reports."""


def iterate(
    shape: Shape, side_by_side: bool, settings: Tree, lanes: Tree, rates: Tree, busy: Array
) -> tuple[Tree, Tree]:
    """Let every busy lane make an iteration; all arrays have L lanes first.

    Args:
        shape: of all lanes.
        side_by_side: True computes all lanes at once, as a GPU wants it; False one after the other,
            which is faster on a CPU, and takes no time for lanes that are not busy.
        settings: of each lane.
        lanes: of each lane.
        rates: of each lane and round.
        busy: (L,) False leaves a lane as it is.
    """

    def one(given: tuple[Tree, Tree, Tree, Array]) -> tuple[Tree, Tree]:
        settings, lane, rates, is_busy = given
        idle = jax.eval_shape(lambda: shape.iterate(settings, lane, rates)[1])

        def rest() -> tuple[Tree, Tree]:
            return lane, jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), idle)

        made: tuple[Tree, Tree] = lax.cond(
            is_busy, lambda: shape.iterate(settings, lane, rates), rest
        )
        return made

    given = (settings, lanes, rates, busy)
    made: tuple[Tree, Tree] = jax.vmap(one)(given) if side_by_side else lax.map(one, given)
    return made


#: Type of a setting → that of its array.
_KINDS = {bool: np.bool_, int: np.int32, float: np.float32}


def as_arrays(settings: Tree) -> Tree:
    """Return a tree of bools, ints and floats as one of arrays () of the types of programs."""
    return jax.tree.map(lambda value: np.asarray(value, _KINDS[type(value)]), settings)
