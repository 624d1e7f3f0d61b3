"""Evaluation of many lanes in one compiled program: whole episodes with frozen weights and filter.

A lane plays all K episodes of its evaluation at the same time, each in an environment of its own,
until the last one has ended. So the number of episodes is exact, and short episodes do not count
more than long ones. An episode's random numbers depend on the evaluation's key and the episode's
index only. L lanes, D features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random

from trainables.stacks import episodes
from trainables.stacks.filtering import RunningStatistics, filtered
from trainables.stacks.lanes import Exploring, Shape, Tree


class Request(NamedTuple):
    """The arguments of one trial's evaluation."""

    key: Array
    """Key of all random numbers, (2,) uint32."""
    limit: Array
    """Steps after which an episode is truncated, () int32."""
    explores: Array
    """True if actions are drawn; False for the best ones, ()."""
    epsilon: Array
    """Fraction of choices that are drawn uniformly by DQN, ()."""


class Played(NamedTuple):
    """The K episodes of one trial's evaluation."""

    returns: Array
    """Sum of each episode's rewards, (K,)."""
    lengths: Array
    """Steps of each episode, (K,) int32."""


class _Playing(NamedTuple):
    """The K episodes of an evaluation between two steps."""

    states: Array
    """States of the environments, (K, S); those of ended episodes do not change."""
    t: Array
    """Number of steps so far, () int32."""
    returns: Array
    """Sums of rewards so far, (K,)."""
    lengths: Array
    """Steps of the episodes so far, (K,) int32."""
    goes_on: Array
    """True for episodes that have not ended, (K,)."""


def evaluate(
    shape: Shape,
    side_by_side: bool,
    settings: Tree,
    weights: Tree,
    seen: RunningStatistics,
    requests: Request,
    busy: Array,
) -> Played:
    """Play the evaluations of several trials; axis 0 of all arrays is the trial, L.

    Returns the K episodes of each, K the number of environments of `shape`.

    Args:
        shape: shape that `Shape.evaluating` returned.
        side_by_side: True to compute all trials at once, False for one after the other, as in
            `lanes.iterate`.
        settings: settings of each trial.
        weights: weights of each trial's policy.
        seen: statistics of each trial's observation filter.
        requests: arguments of each trial's evaluation.
        busy: flags (L,); the episodes of trials with False have no steps, and returns of 0.
    """

    def one(given: tuple[Tree, Tree, RunningStatistics, Request, Array]) -> Played:
        """Play the episodes of one lane."""
        return _play(shape, *given)

    given = (settings, weights, seen, requests, busy)
    played: Played = jax.vmap(one)(given) if side_by_side else lax.map(one, given)
    return played


def first_states(shape: Shape, key: Array) -> tuple[Array, Array]:
    """Return the first states (K, S) of an evaluation's episodes, and their keys (K,) for acting.

    `key` is `Request.key`, (2,) uint32.
    """

    def begin(index: Array) -> tuple[Array, Array]:
        """Return an episode's first state (S,) and the key of its random actions."""
        own = random.fold_in(random.wrap_key_data(key), index)
        beginning, acting = random.split(own)
        return shape.make_env().begin(beginning), acting

    begun: tuple[Array, Array] = jax.vmap(begin)(jnp.arange(shape.num_envs))
    return begun


def _play(
    shape: Shape,
    settings: Tree,
    weights: Tree,
    seen: RunningStatistics,
    request: Request,
    is_busy: Array,
) -> Played:
    """Play the evaluation of one trial: all K episodes at once, until the last one has ended.

    `is_busy` () is False for a trial that is not evaluated: its returns and lengths are 0.
    """
    env, count = shape.make_env(), shape.num_envs
    states, keys = first_states(shape, request.key)

    def step(state: _Playing) -> _Playing:
        """Step all episodes that have not ended."""
        x = filtered(settings, seen, episodes.observe(env, state.states))
        exploring = Exploring(request.explores, request.epsilon, keys, state.t)
        moved = jax.vmap(env.step)(state.states, shape.choose(settings, weights, x, exploring))
        t = state.t + 1
        return _Playing(
            states=jnp.where(state.goes_on[:, None], moved.state, state.states),
            t=t,
            returns=state.returns + jnp.where(state.goes_on, moved.reward, 0.0),
            lengths=jnp.where(state.goes_on, t, state.lengths),
            goes_on=state.goes_on & ~moved.terminated & (t < request.limit),
        )

    begun = _Playing(
        states=states,
        t=jnp.int32(0),
        returns=jnp.zeros(count),
        lengths=jnp.zeros(count, jnp.int32),
        goes_on=jnp.full(count, is_busy),
    )
    end = lax.while_loop(lambda state: state.goes_on.any(), step, begun)
    return Played(end.returns, end.lengths)
