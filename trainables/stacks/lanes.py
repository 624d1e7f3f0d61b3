"""Many lanes of one shape in one compiled program.

L lanes, R rounds per iteration. A shape defines how a lane computes an iteration. Settings, lanes,
rates and outcomes are trees of arrays whose classes depend on the shape.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, random

from trainables.envs.compiled.contract import Environment
from trainables.envs.compiled.named import Named, make

Tree = Any
"""A tree of arrays."""


class Finished(NamedTuple):
    """The episodes that ended in an iteration."""

    ended: Array
    """True where an episode ended at this step, (R, T, N): R rounds of T steps in N
    environments."""
    returns: Array
    """Sum of the episode's rewards where one ended, (R, T, N); 0 elsewhere."""
    lengths: Array
    """Steps of the episode where one ended, (R, T, N) int32; 0 elsewhere."""


class Exploring(NamedTuple):
    """How a lane explores at one step of an evaluation, in N environments."""

    is_on: Array
    """True if actions are drawn; False for the best ones, ()."""
    epsilon: Array
    """Fraction of choices that are drawn uniformly by DQN, ()."""
    keys: Array
    """Random key of each environment's episode, (N,)."""
    t: Array
    """Index of the step in the episodes, () int32."""

    def draw(self, draw_one: Callable[[Array], Array]) -> Array:
        """Return `draw_one` of a key for each environment at this step, (N, …); else zeros."""

        def drawn() -> Array:
            return jax.vmap(lambda key: draw_one(random.fold_in(key, self.t)))(self.keys)

        like = jax.eval_shape(drawn)
        made: Array = lax.cond(self.is_on, drawn, lambda: jnp.zeros(like.shape, like.dtype))
        return made


@dataclass(frozen=True, kw_only=True)
class Shape(ABC):
    """The settings that are compiled into a program, equal for all of its lanes."""

    only_training: ClassVar[tuple[str, ...]] = ("limit", "steps", "rounds")
    """Names of the fields that an evaluation does not read."""

    env: Named
    """The environment."""
    limit: int
    """Steps after which an episode is truncated."""
    num_envs: int
    """Number of environments, N."""
    steps: int
    """Steps of each environment in a round, T."""
    rounds: int
    """Rounds of collecting and learning in an iteration, R."""
    hidden: tuple[int, ...]
    """Number of units of each hidden layer, as `program_width` returns it."""

    @property
    def rows(self) -> int:
        """Environment steps per round."""
        return self.steps * self.num_envs

    def make_env(self) -> Environment:
        """Return the environment that the lanes step."""
        return make(self.env)

    @abstractmethod
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of each learned array, with weights as (inputs, outputs)."""

    def evaluating(self, env: Named, episodes: int) -> Self:
        """Return the shape of the program that plays `episodes` episodes at once in `env`.

        It is equal for lanes that differ in their training only, so that they share the program.
        """
        unread: dict[str, Any] = dict.fromkeys(self.only_training, 0)
        return replace(self, env=env, num_envs=episodes, **unread)

    @abstractmethod
    def iterate(self, settings: Tree, lane: Tree, rates: Tree) -> tuple[Tree, Tree]:
        """Return the lane after one iteration, and the outcome of the iteration."""

    @abstractmethod
    def choose(self, settings: Tree, weights: Tree, x: Array, exploring: Exploring) -> Array:
        """Return actions (N, …), as environments take them, for filtered observations (N, D)."""


def iterate(
    shape: Shape, side_by_side: bool, settings: Tree, lanes: Tree, rates: Tree, busy: Array
) -> tuple[Tree, Tree]:
    """Return lanes and reports after one iteration of every busy lane; axis 0 of all arrays is L.

    Args:
        shape: shape of all lanes.
        side_by_side: True to compute all lanes at once, which is faster on a GPU; False to compute
            one after the other, which is faster on a CPU and skips lanes that are not busy.
        settings: settings of each lane.
        lanes: state of each lane.
        rates: scheduled settings of each lane and round.
        busy: flags (L,); lanes with False are not changed, and their reports are zeros.
    """

    def one(state: tuple[Tree, Tree, Tree, Array]) -> tuple[Tree, Tree]:
        settings, lane, rates, is_busy = state
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


#: Type of a setting → dtype of its array.
_KINDS = {bool: np.bool_, int: np.int32, float: np.float32}


def as_arrays(settings: Tree) -> Tree:
    """Return a tree of bools, ints and floats as arrays () of bool, int32 and float32."""
    return jax.tree.map(lambda value: np.asarray(value, _KINDS[type(value)]), settings)
