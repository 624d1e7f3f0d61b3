"""Deep Q-learning as one compiled program: a lane's whole iteration, with its replay.

The same method as `trainables.algorithms.dqn` (Mnih et al. 2015; van Hasselt et al. 2016), written
so that all but `Shape` is data. Numbers are single precision. T steps of a round, N environments,
R rounds of an iteration, D features, A choices, B rows of an update, K steps that may wait.
"""

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random

from trainables.stacks import episodes, n_step
from trainables.stacks.environments import Environment
from trainables.stacks.episodes import Episodes, Stepped
from trainables.stacks.filtering import Counted, count, scale
from trainables.stacks.lanes import Finished
from trainables.stacks.n_step import Step, Transition
from trainables.stacks.networks import Weights, run_hidden, run_last
from trainables.stacks.optimizer import Adam, Learnt, clip, descend
from trainables.stacks.replay import Replay, add, packed, sample

#: What an update measures, in the order in which a round gives it.
STATS = ("loss", "mean_q", "grad_norm")


@dataclass(frozen=True)
class Shape:
    """The part that all lanes of one program have in common."""

    env: str
    """Name of the environment, one of `environments.KNOWN`."""
    limit: int
    """Steps after which an episode is truncated."""
    num_envs: int
    """N."""
    steps: int
    """T."""
    rounds: int
    """R."""
    layers: tuple[str, ...]
    """Names of the network's layers, from below."""
    activation: str
    """``tanh`` or ``relu``."""
    batch: int
    """B."""
    places: int
    """Rows of the replay, at most."""
    waiting: int
    """K."""
    is_filtered: bool
    """True if observations are normalised by their running mean and deviation."""

    @property
    def rows(self) -> int:
        """Environment steps of a round."""
        return self.steps * self.num_envs

    def make_env(self) -> Environment:
        """Return the environment that the lanes step."""
        return episodes.make_env(self.env, self.limit)

    def iterate(
        self, settings: "Settings", lane: "Lane", rates: "Rates"
    ) -> tuple["Lane", "Outcome"]:
        """Return a lane after one iteration, and what it reports."""
        lane, reports = lax.scan(functools.partial(_round, self, settings), lane, rates)
        sums, updates, finished, is_finite = reports
        return lane, Outcome(sums, updates, finished, is_finite.all())


class Settings(NamedTuple):
    """A lane's settings that stay the same; each ()."""

    gamma: Array
    grad_clip: Array
    """Infinite where gradients are not clipped."""
    filter_clip: Array
    """Infinite where filtered observations are not clipped."""
    adam: Adam
    is_double: Array
    """() True if the network that learns names the best choice that follows."""
    n_step: Array
    """() int32 steps of a transition, up to K + 1."""
    tau: Array
    """() share of the way that the target network follows after an update; 0: none."""
    capacity: Array
    """() int32 rows of the replay that are used."""


class Rates(NamedTuple):
    """A lane's settings that follow the steps, of each round; each (R,)."""

    lr: Array
    epsilon: Array
    """Share of choices that are drawn evenly."""
    updates: Array
    """int32 gradient steps."""
    becomes: Array
    """True if the target network then becomes what is learnt."""


class Lane(NamedTuple):
    """Everything of a lane that decides its future."""

    learnt: Learnt
    target: Weights
    """Of the target network."""
    key: Array
    """(2,) uint32, from which all random numbers of the next round come."""
    episodes: Episodes
    seen: Counted
    waiting: Step
    """(K, N) the latest steps, from which transitions may still grow."""
    replay: Replay


class Outcome(NamedTuple):
    """A lane's report of its rounds."""

    sums: Array
    """(R, 3) sums of `STATS` over the updates."""
    updates: Array
    """(R,) int32 how many these were."""
    finished: Finished
    is_finite: Array
    """() False if a loss or gradient was not; the weights before it are kept."""


def values_of(shape: Shape, weights: Weights, x: Array) -> Array:
    """Return the values (…, A) of all choices for features (…, D)."""
    units = run_hidden(weights, shape.layers[:-1], shape.activation, x)
    return run_last(weights, shape.layers[-1], units)


# ---- acting --------------------------------------------------------------------------------------


class _Running(NamedTuple):
    """The part of a lane that changes from step to step."""

    episodes: Episodes
    seen: Counted


class _Tick(NamedTuple):
    """One step of all environments; each (N, …)."""

    observations: Array
    """Not filtered."""
    actions: Array
    t: Array
    stepped: Stepped


class _Drawn(NamedTuple):
    """Random numbers of the steps of a round; each (T, N, …)."""

    shares: Array
    """From 0 to 1; a step explores where its share is less than epsilon."""
    choices: Array
    begun: Array
    """First states of episodes that may begin."""


def _tick(
    shape: Shape,
    settings: Settings,
    weights: Weights,
    epsilon: Array,
    running: _Running,
    drawn: _Drawn,
) -> tuple[_Running, _Tick]:
    """Step all environments once."""
    env, seen = shape.make_env(), running.seen
    observed = x = episodes.observe(env, running.episodes.states)
    if shape.is_filtered:
        seen = count(seen, observed)
        x = scale(seen, settings.filter_clip, observed)
    best = jnp.argmax(values_of(shape, weights, x), axis=-1).astype(jnp.int32)
    actions = jnp.where(drawn.shares < epsilon, drawn.choices, best)
    after, stepped = episodes.step(env, running.episodes, actions, drawn.begun)
    return _Running(after, seen), _Tick(observed, actions, running.episodes.lengths, stepped)


def _collect(
    shape: Shape, settings: Settings, lane: Lane, epsilon: Array, key: Array
) -> tuple[Lane, Stepped]:
    """Step the environments T times, and store what happened; returns the lane and the steps."""
    env, times = shape.make_env(), (shape.steps, shape.num_envs)
    keys = random.split(key, 3)
    drawn = _Drawn(
        random.uniform(keys[0], times),
        random.randint(keys[1], times, 0, env.choices),
        jax.vmap(jax.vmap(env.begin))(random.split(keys[2], times)),
    )
    tick = functools.partial(_tick, shape, settings, lane.learnt.weights, epsilon)
    end, ticks = lax.scan(tick, _Running(lane.episodes, lane.seen), drawn)
    of = ticks.stepped
    new = Step(
        observations=ticks.observations,
        actions=ticks.actions,
        rewards=of.rewards,
        new_obs=of.following,
        terminated=of.terminated,
        truncated=of.truncated,
        t=ticks.t,
        held=jnp.ones(times, jnp.bool_),
    )
    waiting, made, given = n_step.join(lane.waiting, new, settings.n_step, settings.gamma)
    flat = Transition(*(column.reshape(-1, *column.shape[2:]) for column in made))
    replay = add(lane.replay, settings.capacity, packed(flat), given.reshape(-1))
    lane = lane._replace(**end._asdict(), waiting=waiting, replay=replay)
    return lane, of


# ---- learning ------------------------------------------------------------------------------------


def _goals(
    shape: Shape, settings: Settings, weights: Weights, target: Weights, rows: Transition
) -> Array:
    """Return what the values (B,) of the choices taken should be."""
    ahead = values_of(shape, target, rows.new_obs)
    judged = lax.cond(
        settings.is_double, lambda: values_of(shape, weights, rows.new_obs), lambda: ahead
    )
    best = jnp.argmax(judged, axis=-1)[:, None]
    following = jnp.take_along_axis(ahead, best, axis=-1)[:, 0]
    return rows.rewards + rows.discounts * ~rows.terminated * following


def _loss(weights: Weights, shape: Shape, rows: Transition, goals: Array) -> tuple[Array, Array]:
    """Return Huber's loss () of rows (B, …), and the mean value () of the choices taken."""
    values = values_of(shape, weights, rows.observations)
    taken = jnp.take_along_axis(values, rows.actions[:, None], axis=-1)[:, 0]
    errors = jnp.abs(taken - goals)
    bounded = jnp.minimum(errors, 1.0)
    return (bounded * (errors - 0.5 * bounded)).mean(), taken.mean()


class _Learning(NamedTuple):
    """The updates of a round in progress."""

    step: Array
    learnt: Learnt
    target: Weights
    sums: Array
    """(3,) of `STATS` over all updates."""
    is_finite: Array


def _update(
    shape: Shape, settings: Settings, rate: Array, at: _Learning, rows: Transition
) -> _Learning:
    """Take one gradient step on rows (B, …) as the networks see them; the target follows."""
    goals = _goals(shape, settings, at.learnt.weights, at.target, rows)
    differentiate = jax.value_and_grad(_loss, has_aux=True)
    (loss, mean_q), gradient = differentiate(at.learnt.weights, shape, rows, goals)
    gradient, norm = clip(gradient, settings.grad_clip)
    learnt = descend(settings.adam, rate, at.learnt, gradient)
    target = {
        name: one + settings.tau * (learnt.weights[name] - one) for name, one in at.target.items()
    }
    sums = at.sums + jnp.stack([loss, mean_q, norm])
    is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    after = _Learning(at.step + 1, learnt, target, sums, is_finite)
    kept = at._replace(step=at.step + 1, is_finite=is_finite)
    chosen: _Learning = jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), after, kept)
    return chosen


def _learn(
    shape: Shape, settings: Settings, rates: Rates, lane: Lane, key: Array
) -> tuple[Lane, _Learning]:
    """Take the gradient steps of a round."""
    wanted = jnp.where(lane.replay.size > 0, rates.updates, 0)

    def see(observations: Array) -> Array:
        if not shape.is_filtered:
            return observations
        return scale(lane.seen, settings.filter_clip, observations)

    def step(at: _Learning) -> _Learning:
        rows = sample(lane.replay, random.fold_in(key, at.step), shape.batch)
        rows = rows._replace(observations=see(rows.observations), new_obs=see(rows.new_obs))
        return _update(shape, settings, rates.lr, at, rows)

    zero, sums = jnp.int32(0), jnp.zeros(len(STATS))
    begun = _Learning(zero, lane.learnt, lane.target, sums, jnp.array(True))
    end = lax.while_loop(lambda at: at.is_finite & (at.step < wanted), step, begun)
    target = jax.tree.map(
        lambda new, old: jnp.where(rates.becomes, new, old), end.learnt.weights, end.target
    )
    return lane._replace(learnt=end.learnt, target=target), end


# ---- a lane --------------------------------------------------------------------------------------


def _round(
    shape: Shape, settings: Settings, lane: Lane, rates: Rates
) -> tuple[Lane, tuple[Any, ...]]:
    """Collect a fragment and learn from what is drawn."""
    key, acting, drawing = random.split(random.wrap_key_data(lane.key), 3)
    lane, of = _collect(shape, settings, lane, rates.epsilon, acting)
    lane, end = _learn(shape, settings, rates, lane, drawing)
    lane = lane._replace(key=random.key_data(key))
    finished = Finished(of.terminated | of.truncated, of.returns, of.lengths)
    return lane, (end.sums, end.step, finished, end.is_finite)
