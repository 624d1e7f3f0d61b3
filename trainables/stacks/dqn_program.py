"""Deep Q-learning as one compiled program: a lane's whole iteration, with its replay.

The same method as `trainables.algorithms.dqn` (Mnih et al. 2015; van Hasselt et al. 2016), written
so that only `Shape` is compiled in and all other settings are arrays. Numbers are float32. T steps
per round, N environments, R rounds per iteration, D features, A choices, B rows per update, K steps
that may wait for later ones.
"""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random

from trainables.stacks import episodes, lanes, n_step
from trainables.stacks.episodes import Episodes, Stepped
from trainables.stacks.filtering import RunningStatistics, count_and_filter, filtered
from trainables.stacks.lanes import Exploring, Finished
from trainables.stacks.n_step import Step, Transition
from trainables.stacks.networks import Weights, run_hidden, run_last, weight_shapes
from trainables.stacks.optimizer import Adam, OptimizerState, clip, descend
from trainables.stacks.replay import Replay, add, packed, sample

#: Names of the measurements of an update, in the order of `Outcome.sums`.
STATS = ("loss", "mean_q", "grad_norm")


@dataclass(frozen=True, kw_only=True)
class Shape(lanes.Shape):
    """The settings of DQN that are compiled into a program, equal for all trials in it."""

    only_training: ClassVar[tuple[str, ...]] = (
        *lanes.Shape.only_training,
        *("batch", "places", "waiting"),
    )

    layers: tuple[str, ...]
    """Names of the network's layers from input to output, such as ``trunk.dense.0``, ``head.0`` and
    ``head.1``."""
    batch: int
    """Rows of one update, B."""
    places: int
    """Maximum number of rows of the replay, C."""
    waiting: int
    """Number of latest steps of each environment that are kept, as their n-step transitions may be
    incomplete, K."""

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of each array in the program.

        A weight is (inputs, outputs), a bias (outputs,); widths are those of `hidden`.
        """
        env = self.make_env()
        sizes = (env.features, *self.hidden, env.choices)
        return weight_shapes(dict(zip(self.layers, itertools.pairwise(sizes), strict=True)))

    def iterate(
        self, settings: "Settings", lane: "Lane", rates: "Rates"
    ) -> tuple["Lane", "Outcome"]:
        """Compute one iteration of one trial: R rounds of collecting and learning.

        Returns its state after them, and statistics and finished episodes of each round.
        """
        lane, reports = lax.scan(functools.partial(_round, self, settings), lane, rates)
        sums, updates, finished, is_finite = reports
        return lane, Outcome(sums, updates, finished, is_finite.all())

    def choose(
        self, settings: "Settings", weights: Weights, x: Array, exploring: Exploring
    ) -> Array:
        """Return choices (N,) for filtered observations (N, D) in an evaluation.

        They are the best ones, or epsilon-greedy if `exploring.is_on`.
        """

        def any_choice(key: Array) -> Array:
            """Return a random choice, ()."""
            return random.randint(random.fold_in(key, 1), (), 0, self.make_env().choices)

        best = jnp.argmax(values_of(self, settings, weights, x), axis=-1).astype(jnp.int32)
        shares = exploring.draw(lambda key: random.uniform(random.fold_in(key, 0)))
        is_random = exploring.is_on & (shares < exploring.epsilon)
        return jnp.where(is_random, exploring.draw(any_choice), best)


class Settings(NamedTuple):
    """Settings of one trial of DQN that are constant over time; each ()."""

    gamma: Array
    """Discount factor per step, ()."""
    grad_clip: Array
    """Maximum norm of the gradient, (); infinite without clipping."""
    filter_clip: Array
    """Bound of filtered observations, in standard deviations, (); infinite without clipping."""
    adam: Adam
    """Settings of the optimiser, each ()."""
    is_relu: Array
    """True if units have the activation ``relu``, False for ``tanh``, ()."""
    is_filtered: Array
    """True if observations are normalised by their running mean and standard deviation, ()."""
    is_double: Array
    """True if the learned network selects the next choice that the target network values (double
    Q-learning), ()."""
    n_step: Array
    """Steps per transition, () int32, at most `Shape.waiting` + 1."""
    tau: Array
    """Fraction by which the target network moves towards the learned one per update, (); 0 if it is
    copied at intervals."""
    capacity: Array
    """Capacity of the replay in rows, () int32, at most `Shape.places`."""


class Rates(NamedTuple):
    """Scheduled settings of one trial of DQN in each of the R rounds of an iteration; each (R,)."""

    lr: Array
    """Learning rate in each round, (R,)."""
    epsilon: Array
    """Fraction of choices that are drawn uniformly in each round, (R,)."""
    updates: Array
    """Number of gradient steps in each round, (R,) int32."""
    copies_target: Array
    """True if the learned network is copied into the target network after the round, (R,)."""


class Lane(NamedTuple):
    """The complete state of one trial of DQN in the program."""

    learnt: OptimizerState
    """Weights of the learned network, and the optimiser's moments."""
    target: Weights
    """Weights of the target network."""
    key: Array
    """Key of all random numbers of the next round, (2,) uint32."""
    episodes: Episodes
    """Running episodes of the environments."""
    seen: RunningStatistics
    """Running statistics of the observations."""
    waiting: Step
    """Latest steps, whose n-step transitions may be incomplete, (K, N)."""
    replay: Replay
    """Transitions to learn from."""


class Outcome(NamedTuple):
    """Statistics of one trial's iteration, by round."""

    sums: Array
    """Sums of loss, mean value and gradient norm (`STATS`) over each round's updates, (R, 3)."""
    updates: Array
    """Number of updates that each round began, (R,) int32."""
    finished: Finished
    """Episodes that ended in these rounds, arrays (R, T, N)."""
    is_finite: Array
    """False if any loss or gradient was not finite, (); such a step does not change the weights."""


def values_of(shape: Shape, settings: Settings, weights: Weights, x: Array) -> Array:
    """Return the values (…, A) of all choices for filtered observations (…, D)."""
    units = run_hidden(weights, shape.layers[:-1], settings.is_relu, x)
    return run_last(weights, shape.layers[-1], units)


# ---- acting --------------------------------------------------------------------------------------


class _Running(NamedTuple):
    """The part of a trial's state that changes in every step of the environments."""

    episodes: Episodes
    """Running episodes of the environments."""
    seen: RunningStatistics
    """Running statistics of the observations."""


class _Tick(NamedTuple):
    """One step of all environments; each (N, …)."""

    observations: Array
    """Unfiltered observations, (N, D)."""
    actions: Array
    """Choices taken, (N,) int32."""
    t: Array
    """Index of the step in its episode, (N,) int32."""
    stepped: Stepped
    """Outcome of the step, each (N, …)."""


class _Drawn(NamedTuple):
    """Random numbers of the steps of a round; each (T, N, …)."""

    shares: Array
    """Uniform numbers in [0, 1), (T, N); a step explores if its number is below epsilon."""
    choices: Array
    """Random choices, (T, N) int32, taken if a step explores."""
    begun: Array
    """First states of the episodes that may begin, (T, N, S)."""


def _tick(
    shape: Shape,
    settings: Settings,
    weights: Weights,
    epsilon: Array,
    running: _Running,
    drawn: _Drawn,
) -> tuple[_Running, _Tick]:
    """Step all environments once with ε-greedy choices; return state and record of the step.

    The observations before the step are added to the statistics of the filter.
    """
    env = shape.make_env()
    observed = episodes.observe(env, running.episodes.states)
    seen, x = count_and_filter(settings, running.seen, observed)
    best = jnp.argmax(values_of(shape, settings, weights, x), axis=-1).astype(jnp.int32)
    actions = jnp.where(drawn.shares < epsilon, drawn.choices, best)
    after, stepped = episodes.step(env, shape.limit, running.episodes, actions, drawn.begun)
    return _Running(after, seen), _Tick(observed, actions, running.episodes.lengths, stepped)


def _collect(
    shape: Shape, settings: Settings, lane: Lane, epsilon: Array, key: Array
) -> tuple[Lane, Stepped]:
    """Step the environments T times, ε-greedily, and add complete transitions to the replay.

    Their observations are not filtered. The latest K steps are kept for transitions that are not
    complete. Returns the trial's state and the outcomes of the steps (T, N, …).
    """
    env, times = shape.make_env(), (shape.steps, shape.num_envs)
    keys = random.split(key, 3)
    drawn = _Drawn(
        random.uniform(keys[0], times),
        random.randint(keys[1], times, 0, env.choices),
        jax.vmap(jax.vmap(env.begin))(random.split(keys[2], times)),
    )
    tick = functools.partial(_tick, shape, settings, lane.learnt.weights, epsilon)
    end, ticks = lax.scan(tick, _Running(lane.episodes, lane.seen), drawn)
    stepped = ticks.stepped
    new = Step(
        observations=ticks.observations,
        actions=ticks.actions,
        rewards=stepped.rewards,
        new_obs=stepped.following,
        terminated=stepped.terminated,
        truncated=stepped.truncated,
        t=ticks.t,
        held=jnp.ones(times, jnp.bool_),
    )
    waiting, made, given = n_step.join(lane.waiting, new, settings.n_step, settings.gamma)
    flat = Transition(*(column.reshape(-1, *column.shape[2:]) for column in made))
    replay = add(lane.replay, settings.capacity, packed(flat), given.reshape(-1))
    lane = lane._replace(**end._asdict(), waiting=waiting, replay=replay)
    return lane, stepped


# ---- learning ------------------------------------------------------------------------------------


def _value_targets(
    shape: Shape, settings: Settings, weights: Weights, target: Weights, rows: Transition
) -> Array:
    """Return the values (B,) that the choices taken in `rows` should have.

    They are bootstrapped from the target network `target`; with double Q-learning `weights` select
    its choice.
    """
    ahead = values_of(shape, settings, target, rows.new_obs)
    judged = lax.cond(
        settings.is_double, lambda: values_of(shape, settings, weights, rows.new_obs), lambda: ahead
    )
    best = jnp.argmax(judged, axis=-1)[:, None]
    following = jnp.take_along_axis(ahead, best, axis=-1)[:, 0]
    return rows.rewards + rows.discounts * ~rows.terminated * following


def _loss(
    weights: Weights, shape: Shape, settings: Settings, rows: Transition, value_targets: Array
) -> tuple[Array, Array]:
    """Return the Huber loss () of rows (B, …) against value targets `value_targets` (B,).

    The second result is the mean value () of the choices taken.
    """
    values = values_of(shape, settings, weights, rows.observations)
    taken = jnp.take_along_axis(values, rows.actions[:, None], axis=-1)[:, 0]
    errors = jnp.abs(taken - value_targets)
    bounded = jnp.minimum(errors, 1.0)
    return (bounded * (errors - 0.5 * bounded)).mean(), taken.mean()


class _Learning(NamedTuple):
    """State of the loop over the updates of a round."""

    step: Array
    """Number of updates so far, () int32."""
    learnt: OptimizerState
    """Weights and moments after these updates."""
    target: Weights
    """Weights of the target network after these updates."""
    sums: Array
    """Sums of loss, mean value and gradient norm over all updates so far, (3,)."""
    is_finite: Array
    """False if a loss or gradient was not finite, (); then nothing is updated any more."""


def _update(
    shape: Shape, settings: Settings, rate: Array, state: _Learning, rows: Transition
) -> _Learning:
    """Take one gradient step on filtered rows (B, …) with learning rate `rate`.

    The target network moves by the fraction `tau`. If loss or gradient are not finite, only the
    count of steps and `is_finite` change.
    """
    value_targets = _value_targets(shape, settings, state.learnt.weights, state.target, rows)
    differentiate = jax.value_and_grad(_loss, has_aux=True)
    (loss, mean_q), gradient = differentiate(
        state.learnt.weights, shape, settings, rows, value_targets
    )
    gradient, norm = clip(gradient, settings.grad_clip)
    learnt = descend(settings.adam, rate, state.learnt, gradient)
    target = {
        name: one + settings.tau * (learnt.weights[name] - one)
        for name, one in state.target.items()
    }
    sums = state.sums + jnp.stack([loss, mean_q, norm])
    is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
    after = _Learning(state.step + 1, learnt, target, sums, is_finite)
    kept = state._replace(step=state.step + 1, is_finite=is_finite)
    chosen: _Learning = jax.tree.map(lambda new, old: jnp.where(is_finite, new, old), after, kept)
    return chosen


def _learn(
    shape: Shape, settings: Settings, rates: Rates, lane: Lane, key: Array
) -> tuple[Lane, _Learning]:
    """Take the gradient steps of a round on rows drawn from the replay with `key`.

    `rates` are the round's rates, each (). There are no steps if the replay is empty, and none
    after a loss or gradient that is not finite. After them the learned network is copied into the
    target network if `rates.copies_target`. Returns the trial's state and that of the loop after
    its last step.
    """
    wanted = jnp.where(lane.replay.size > 0, rates.updates, 0)

    def scaled(observations: Array) -> Array:
        """Return observations (B, D) as the filter normalises them."""
        return filtered(settings, lane.seen, observations)

    def step(state: _Learning) -> _Learning:
        """Draw a minibatch and take one gradient step."""
        rows = sample(lane.replay, random.fold_in(key, state.step), shape.batch)
        rows = rows._replace(observations=scaled(rows.observations), new_obs=scaled(rows.new_obs))
        return _update(shape, settings, rates.lr, state, rows)

    zero, sums = jnp.int32(0), jnp.zeros(len(STATS))
    begun = _Learning(zero, lane.learnt, lane.target, sums, jnp.array(True))
    end = lax.while_loop(lambda state: state.is_finite & (state.step < wanted), step, begun)
    target = jax.tree.map(
        lambda new, old: jnp.where(rates.copies_target, new, old), end.learnt.weights, end.target
    )
    return lane._replace(learnt=end.learnt, target=target), end


# ---- a lane --------------------------------------------------------------------------------------


def _round(
    shape: Shape, settings: Settings, lane: Lane, rates: Rates
) -> tuple[Lane, tuple[Any, ...]]:
    """Collect T steps of each environment, then take the round's updates on rows of the replay.

    `rates` are the round's rates, each (). Returns the trial's state, and the fields of `Outcome`
    for this round, in their order.
    """
    key, acting, drawing = random.split(random.wrap_key_data(lane.key), 3)
    lane, of = _collect(shape, settings, lane, rates.epsilon, acting)
    lane, end = _learn(shape, settings, rates, lane, drawing)
    lane = lane._replace(key=random.key_data(key))
    finished = Finished(of.terminated | of.truncated, of.returns, of.lengths)
    return lane, (end.sums, end.step, finished, end.is_finite)
