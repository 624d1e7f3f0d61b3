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
from trainables.envs.compiled.registry import EnvKey, make

Tree = Any
"""A tree of arrays."""


class Finished(NamedTuple):
    """The episodes of one trial that ended in an iteration."""

    ended: Array
    """True where an episode ended at this step, (R, T, N): R rounds of T steps in N
    environments."""
    returns: Array
    """Sum of the episode's rewards where one ended, (R, T, N); 0 elsewhere."""
    lengths: Array
    """Steps of the episode where one ended, (R, T, N) int32; 0 elsewhere."""


class Exploring(NamedTuple):
    """Exploration of one trial in a step of an evaluation of N environments."""

    is_on: Array
    """True if actions are drawn; False for the best ones, ()."""
    epsilon: Array
    """Fraction of choices that are drawn uniformly by DQN, ()."""
    keys: Array
    """Random key of each environment's episode, (N,)."""
    t: Array
    """Index of the step in the episodes, () int32."""

    def draw(self, draw_one: Callable[[Array], Array]) -> Array:
        """Return random values (N, …), `draw_one(key)` for each environment; zeros if not `is_on`.

        The keys depend on episode and step.
        """

        def drawn() -> Array:
            """Return one random action per key."""
            return jax.vmap(lambda key: draw_one(random.fold_in(key, self.t)))(self.keys)

        like = jax.eval_shape(drawn)
        made: Array = lax.cond(self.is_on, drawn, lambda: jnp.zeros(like.shape, like.dtype))
        return made


@dataclass(frozen=True, kw_only=True)
class Shape(ABC):
    """The settings that are compiled into a program, equal for all trials that it trains.

    Base class: a subclass defines how one trial computes an iteration and chooses actions. Trees of
    arrays have classes of their own there.
    """

    only_training: ClassVar[tuple[str, ...]] = ("limit", "steps", "rounds")
    """Names of the fields that an evaluation does not read."""

    env: EnvKey
    """The environment."""
    limit: int
    """Steps after which an episode is truncated; 0 in a shape for evaluations, which have limits of
    their own."""
    num_envs: int
    """Number of environments, N; in a shape for evaluations the number of episodes."""
    steps: int
    """Steps of each environment in a round, T; 0 in a shape for evaluations."""
    rounds: int
    """Rounds of collecting and learning in an iteration, R; 0 in a shape for evaluations."""
    hidden: tuple[int, ...]
    """Number of units of each hidden layer in the program, rounded up by `program_width`."""

    @property
    def rows(self) -> int:
        """Environment steps of one trial per round, T·N."""
        return self.steps * self.num_envs

    def make_env(self) -> Environment:
        """Return the environment as functions of arrays, which the program steps."""
        return make(self.env)

    @abstractmethod
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of each learned array of one trial; weights are (inputs, outputs)."""

    def evaluating(self, env: EnvKey, episodes: int) -> Self:
        """Return the shape of the program that plays `episodes` episodes at once in `env`.

        Fields that only training reads are 0. So the shape is equal for trials that differ in their
        training only, and they share the program.
        """
        unread: dict[str, Any] = dict.fromkeys(self.only_training, 0)
        return replace(self, env=env, num_envs=episodes, **unread)

    @abstractmethod
    def iterate(self, settings: Tree, lane: Tree, rates: Tree) -> tuple[Tree, Tree]:
        """Compute one iteration of one trial, from its settings, state and scheduled settings.

        Returns the state after it, and statistics and finished episodes of its rounds.
        """

    @abstractmethod
    def choose(self, settings: Tree, weights: Tree, x: Array, exploring: Exploring) -> Array:
        """Return actions (N, …) for filtered observations (N, D) in an evaluation.

        They are in the form that environments take; the best ones unless `exploring.is_on`.
        """


def iterate(
    shape: Shape, side_by_side: bool, settings: Tree, lanes: Tree, rates: Tree, busy: Array
) -> tuple[Tree, Tree]:
    """Compute one iteration of several trials; axis 0 of all arrays is the trial, L.

    Returns their states after it, and the outcomes of their rounds.

    Args:
        shape: what is compiled into the program.
        side_by_side: True to compute all trials at once, which is faster on a GPU; False to compute
            one after the other, which is faster on a CPU and skips trials that are not busy.
        settings: settings of each trial.
        lanes: state of each trial.
        rates: scheduled settings of each trial and round.
        busy: flags (L,); trials with False are not changed, and their outcomes are zeros.
    """

    def one(state: tuple[Tree, Tree, Tree, Array]) -> tuple[Tree, Tree]:
        """Return a lane and its results after an iteration; an idle lane unchanged, with zeros."""
        settings, lane, rates, is_busy = state
        idle = jax.eval_shape(lambda: shape.iterate(settings, lane, rates)[1])

        def rest() -> tuple[Tree, Tree]:
            """Return the unchanged lane and results of 0."""
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
    """Return a tree of bools, ints and floats as numpy arrays () of bool, int32 and float32.

    Raises KeyError for a value of another type.
    """
    return jax.tree.map(lambda value: np.asarray(value, _KINDS[type(value)]), settings)
