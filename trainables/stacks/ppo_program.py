"""PPO as one compiled program: a lane's whole iteration, from acting to the last gradient step.

The same method as `trainables.algorithms.ppo` (Schulman et al. 2017; Huang et al. 2022), written so
that only `Shape` is compiled in: learning rate, discounts, bounds, epochs, activation, filter and
kind of noise may differ between lanes. Numbers are float32. T steps per fragment, N environments,
B = T·N rows, R rounds per iteration, D features, H units of the actor's last hidden layer, A
outputs of the actor, L lanes.
"""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random

from trainables.envs.compiled.contract import outputs
from trainables.learners.standardizing import LEAST_ROWS, SMALL
from trainables.policies.exploration.actions import LEAST_VARIANCE
from trainables.stacks import episodes, lanes
from trainables.stacks.episodes import Episodes, Stepped
from trainables.stacks.filtering import (
    DiscountedReturns,
    RunningStatistics,
    count_and_filter,
    filtered,
    scale_rewards,
)
from trainables.stacks.lanes import Exploring, Finished
from trainables.stacks.networks import Weights, run_hidden, run_last, weight_shapes
from trainables.stacks.optimizer import Adam, OptimizerState, clip, descend

#: Parts of the loss, in the order of `Outcome.stats`.
STATS = ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction")
#: Natural logarithm of 2π.
_LOG_2PI = 1.8378770664093453


@dataclass(frozen=True, kw_only=True)
class Shape(lanes.Shape):
    """The settings of PPO that are compiled into a program, equal for all trials in it."""

    only_training: ClassVar[tuple[str, ...]] = (*lanes.Shape.only_training, "minibatch")

    minibatch: int
    """Rows of a minibatch; B is a multiple of it."""
    spreads_actions: bool
    """True if the policy's numbers from -1 to 1 are scaled to the bounds of actions."""

    @property
    def noise_shape(self) -> tuple[int, int, int]:
        """Shape (N, H, A) of the matrices that turn the actor's hidden units into noise.

        It is (N, 0, 0) for discrete actions.
        """
        if self.make_env().choices:
            return self.num_envs, 0, 0
        inputs, outputs = self.layers()[f"actor.{len(self.hidden)}"]
        return self.num_envs, inputs, outputs

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return name → shape of each learned array: weights and biases of `layers`, ``log_std``.

        ``log_std`` is (H, A), and absent for discrete actions; noise that does not follow the state
        has its deviations in row 0.
        """
        found = weight_shapes(self.layers())
        return found if self.make_env().choices else {**found, "log_std": self.noise_shape[1:]}

    def layers(self) -> dict[str, tuple[int, int]]:
        """Return ``actor.<index>`` and ``critic.<index>`` → (inputs, outputs) of that layer."""
        env = self.make_env()
        found: dict[str, tuple[int, int]] = {}
        for net, count in (("actor", outputs(env)), ("critic", 1)):
            sizes = (env.features, *self.hidden, count)
            for index, pair in enumerate(itertools.pairwise(sizes)):
                found[f"{net}.{index}"] = pair
        return found

    def iterate(
        self, settings: "Settings", lane: "Lane", rates: "Rates"
    ) -> tuple["Lane", "Outcome"]:
        """Compute one iteration of one trial: R rounds of collecting and learning.

        Returns its state after them, and statistics and finished episodes of each round.
        """
        lane, reports = lax.scan(functools.partial(_round, self, settings), lane, rates)
        stats, norms, explained, finished, is_finite = reports
        return lane, Outcome(stats, norms, explained, finished, is_finite.all())

    def choose(
        self, settings: "Settings", weights: Weights, x: Array, exploring: Exploring
    ) -> Array:
        """Return actions (N, …) for filtered observations (N, D) in an evaluation.

        They are in the form that environments take: drawn if `exploring.is_on`, else the most
        probable. State-dependent noise is drawn at every step, as in evaluations outside of
        programs.
        """
        units = _hidden(self, settings, weights, "actor", x)
        if choices := self.make_env().choices:
            noise = exploring.draw(lambda key: random.gumbel(key, (choices,)))
        else:
            log_std = weights["log_std"]
            by_state = jnp.sqrt(units**2 @ jnp.exp(2 * log_std))
            scale = jnp.where(settings.noise_follows_state, by_state, jnp.exp(log_std[0]))
            noise = scale * exploring.draw(lambda key: random.normal(key, log_std.shape[1:]))
        return _act(self, settings, weights, units, noise)[2]


class Settings(NamedTuple):
    """Settings of one trial of PPO that are constant over time; each ()."""

    gamma: Array
    """Discount factor per step, ()."""
    lambda_: Array
    """Parameter λ of generalised advantage estimation, ()."""
    vf_loss_coeff: Array
    """Weight of the value loss, ()."""
    vf_clip: Array
    """Maximum change of a value since sampling in the value loss, (); infinite without clipping."""
    grad_clip: Array
    """Maximum norm of the gradient, (); infinite without clipping."""
    target_kl: Array
    """Mean KL divergence of an epoch above which a round ends, (); infinite for no limit."""
    epochs: Array
    """Maximum number of epochs per round, () int32."""
    normalize_advantages: Array
    """True if each minibatch's advantages are scaled to mean 0 and standard deviation 1, ().

    In minibatches of fewer than `LEAST_ROWS` rows they are scaled by those of the whole batch.
    """
    filter_clip: Array
    """Bound of filtered observations, in standard deviations, (); infinite without clipping."""
    adam: Adam
    """Settings of the optimiser, each ()."""
    is_relu: Array
    """True if units have the activation ``relu``, False for ``tanh``, ()."""
    is_filtered: Array
    """True if observations are normalised by their running mean and standard deviation, ()."""
    normalize_rewards: Array
    """True if rewards are divided by the standard deviation of the discounted return, ()."""
    noise_follows_state: Array
    """True if the noise of real-valued actions is a function of the state, () (gSDE; Raffin et al.
    2021)."""
    noise_steps: Array
    """Steps after which state-dependent noise is redrawn, () int32."""


class Rates(NamedTuple):
    """Scheduled settings of one trial of PPO in each of the R rounds of an iteration; each (R,)."""

    lr: Array
    """Learning rate in each round, (R,)."""
    clip: Array
    """Clipping range of the probability ratio in each round, (R,)."""
    entropy: Array
    """Weight of the entropy bonus in each round, (R,)."""


class Lane(NamedTuple):
    """The complete state of one trial of PPO in the program."""

    learnt: OptimizerState
    """Weights of actor and critic, and the optimiser's moments."""
    key: Array
    """Key of all random numbers of the next round, (2,) uint32."""
    episodes: Episodes
    """Running episodes of the environments."""
    matrices: Array
    """Current matrices from hidden units to noise, (N, H, A), see `Shape.noise_shape`."""
    age: Array
    """Number of steps with state-dependent noise, () int32."""
    seen: RunningStatistics
    """Running statistics of the observations."""
    discounted: DiscountedReturns
    """Discounted returns, by which rewards are scaled."""


class Outcome(NamedTuple):
    """Statistics of one trial's iteration, by round."""

    stats: Array
    """Means over each round's minibatches of policy loss, value loss, entropy, KL divergence and
    fraction of clipped rows, (R, 5)."""
    norms: Array
    """Mean norm of the gradients before clipping, (R,)."""
    explained: Array
    """Fraction of the returns' variance that is explained by the values, (R,); NaN if all returns
    are equal."""
    finished: Finished
    """Episodes that ended in these rounds, arrays (R, T, N)."""
    is_finite: Array
    """False if any loss or gradient was not finite, (); such a step does not change the weights."""


class _Row(NamedTuple):
    """The columns of a batch, with B rows each."""

    observations: Array
    """Filtered observations, (B, D)."""
    actions: Array
    """Choices, (B,) int32, or real-valued actions, (B, A)."""
    logp: Array
    """Log-probabilities of the actions when they were chosen, (B,)."""
    values: Array
    """Values of the observations when the actions were chosen, (B,)."""
    advantages: Array
    """Advantages of the actions, (B,)."""
    returns: Array
    """Targets of the values, (B,)."""


# ---- networks ------------------------------------------------------------------------------------


def _hidden(shape: Shape, settings: Settings, weights: Weights, net: str, x: Array) -> Array:
    """Run the hidden layers of `net`, ``actor`` or ``critic``, on features (…, D).

    Returns the last hidden units (…, H).
    """
    names = [f"{net}.{index}" for index in range(len(shape.hidden))]
    return run_hidden(weights, names, settings.is_relu, x)


def _last(shape: Shape, weights: Weights, net: str, units: Array) -> Array:
    """Run the last layer of `net`, ``actor`` or ``critic``, on hidden units (…, H).

    Returns its outputs without activation, (…, A), or (…, 1) of the critic.
    """
    return run_last(weights, f"{net}.{len(shape.hidden)}", units)


def _value(shape: Shape, settings: Settings, weights: Weights, x: Array) -> Array:
    """Return the critic's values (…,) for features (…, D)."""
    units = _hidden(shape, settings, weights, "critic", x)
    return _last(shape, weights, "critic", units)[..., 0]


def _choice_logp(head: Array, actions: Array) -> tuple[Array, Array]:
    """Return log-probabilities of choices under logits `head` (…, A), and entropies; both (…,)."""
    logs = jax.nn.log_softmax(head)
    taken = jnp.take_along_axis(logs, actions.astype(jnp.int32)[..., None], axis=-1)[..., 0]
    return taken, -(jnp.exp(logs) * logs).sum(-1)


def _real_logp(head: Array, log_std: Array, actions: Array) -> tuple[Array, Array]:
    """Return log-probabilities (…,) of actions (…, A) under Gaussians, and their entropy ().

    `head` (…, A) are the means, `log_std` (A,) the log standard deviations.
    """
    noise = (actions - head) * jnp.exp(-log_std)
    logp = (-0.5 * noise**2 - log_std - 0.5 * _LOG_2PI).sum(-1)
    return logp, (log_std + 0.5 * (1.0 + _LOG_2PI)).sum()


def _noisy_logp(head: Array, log_std: Array, units: Array, actions: Array) -> tuple[Array, Array]:
    """Return log-probabilities (…,) and entropies (…,) of actions with state-dependent noise.

    `head` (…, A) are the means, `units` (…, H) the hidden units, `log_std` (H, A) the log standard
    deviations of the noise matrices. The variance has no gradient for `units`.
    """
    # No gradient flows from the noise to the units, which serve the means.
    variance = lax.stop_gradient(units) ** 2 @ jnp.exp(2 * log_std) + LEAST_VARIANCE
    halves = 0.5 * jnp.log(variance) + 0.5 * _LOG_2PI
    logp = (-0.5 * (actions - head) ** 2 / variance - halves).sum(-1)
    return logp, (halves + 0.5).sum(-1)


def _logp_and_entropies(
    settings: Settings, weights: Weights, units: Array, head: Array, actions: Array
) -> tuple[Array, Array]:
    """Return log-probabilities (…,) of actions, and entropies (…,).

    Actions are choices if `weights` have no ``log_std``. Else they are Gaussian, with constant or
    state-dependent deviations as `settings.noise_follows_state` says. `units` (…, H) are the
    actor's last hidden units, `head` (…, A) its outputs.
    """
    if "log_std" not in weights:
        return _choice_logp(head, actions)
    log_std, follows = weights["log_std"], settings.noise_follows_state
    logp, entropy = _real_logp(head, log_std[0], actions)
    noisy_logp, noisy_entropies = _noisy_logp(head, log_std, units, actions)
    return jnp.where(follows, noisy_logp, logp), jnp.where(follows, noisy_entropies, entropy)


# ---- acting --------------------------------------------------------------------------------------


class _Tick(NamedTuple):
    """One step of all environments; each (N, …)."""

    observations: Array
    """Filtered observations before the step, (N, D)."""
    actions: Array
    """Actions as the policy chose them, (N,) or (N, A)."""
    logp: Array
    """Log-probabilities of the actions, (N,)."""
    values: Array
    """Values of the observations, (N,)."""
    stepped: Stepped
    """Outcome of the step, each (N, …), with filtered observations and scaled rewards."""


class _Running(NamedTuple):
    """The part of a trial's state that changes in every step of the environments."""

    episodes: Episodes
    """Running episodes of the environments."""
    seen: RunningStatistics
    """Running statistics of the observations."""
    matrices: Array
    """Matrices of state-dependent noise, (N, H, A)."""
    age: Array
    """Number of steps with state-dependent noise, () int32."""
    discounted: DiscountedReturns
    """Discounted returns, by which rewards are scaled."""


def _tick(
    shape: Shape,
    settings: Settings,
    weights: Weights,
    running: _Running,
    drawn: tuple[Array, Array, Array],
) -> tuple[_Running, _Tick]:
    """Step all environments once; return the state after it and the record of the step.

    Observations and rewards are added to the statistics of the filters. `drawn` are noise (N, A) of
    the actions, first states (N, S) of the episodes that may begin, and a random key for
    state-dependent noise, of which the matrices are redrawn every `settings.noise_steps` steps.
    """
    env, (noise, begun, key) = shape.make_env(), drawn
    counted, x = count_and_filter(
        settings, running.seen, episodes.observe(env, running.episodes.states)
    )
    units = _hidden(shape, settings, weights, "actor", x)
    matrices, age = running.matrices, running.age
    if not env.choices:
        follows = settings.noise_follows_state
        is_due = follows & (age % settings.noise_steps == 0)
        matrices = _redrawn(weights["log_std"], key, matrices, is_due)
        age = age + follows
        by_state = (units[..., None] * matrices).sum(1)
        noise = jnp.where(follows, by_state, jnp.exp(weights["log_std"][0]) * noise)
    actions, logp, sent = _act(shape, settings, weights, units, noise)
    after, stepped = episodes.step(env, shape.limit, running.episodes, sent, begun)
    is_over = stepped.terminated | stepped.truncated
    discounted, rewards = scale_rewards(settings, running.discounted, stepped.rewards, is_over)
    following = filtered(settings, counted, stepped.following)
    stepped = stepped._replace(following=following, rewards=rewards)
    tick = _Tick(x, actions, logp, _value(shape, settings, weights, x), stepped)
    return _Running(after, counted, matrices, age, discounted), tick


def _redrawn(log_std: Array, key: Array, matrices: Array, is_due: Array) -> Array:
    """Return the matrices (N, H, A) of state-dependent noise, drawn anew with `key` if `is_due`.

    `log_std` (H, A) are the log standard deviations of their entries.
    """

    def draw() -> Array:
        """Return new noise, in the shape of `matrices`."""
        return jnp.exp(log_std) * random.normal(key, matrices.shape)

    return lax.cond(is_due, draw, lambda: matrices)


def _act(
    shape: Shape, settings: Settings, weights: Weights, units: Array, noise: Array
) -> tuple[Array, Array, Array]:
    """Return actions, log-probabilities (N,) of these, and the actions sent to the environments.

    `units` (N, H) are the actor's hidden units. `noise` (N, A) is added to its outputs; a choice is
    the argmax of the sum. Real numbers are clipped to their bounds for the environments, and scaled
    to them before if `shape.spreads_actions`.
    """
    env = shape.make_env()
    head = _last(shape, weights, "actor", units)
    if env.choices:
        actions = jnp.argmax(jax.nn.log_softmax(head) + noise, axis=-1)
        logp, _ = _choice_logp(head, actions)
        return actions, logp, actions
    actions = head + noise
    logp, _ = _logp_and_entropies(settings, weights, units, head, actions)
    low, high = map(jnp.array, env.bounds)
    sent = actions * ((high - low) / 2) + (high + low) / 2 if shape.spreads_actions else actions
    return actions, logp, jnp.clip(sent, low, high)


def _collect(shape: Shape, settings: Settings, lane: Lane, keys: Array) -> tuple[Lane, _Tick]:
    """Step the environments T times; return the trial's state and the records (T, N, …).

    `keys` (3,) are random keys of actions, first states and state-dependent noise.
    """
    env, times = shape.make_env(), (shape.steps, shape.num_envs)
    # The argmax of log-probabilities plus Gumbel noise is a random draw (the Gumbel-max trick).
    draw = random.gumbel if env.choices else random.normal
    noise = draw(keys[0], (*times, outputs(env)))
    # State-dependent noise is drawn when it is due; drawing all at once needs much memory.
    following = random.split(keys[2], shape.steps)
    begun = jax.vmap(jax.vmap(env.begin))(random.split(keys[1], times))
    running = _Running(lane.episodes, lane.seen, lane.matrices, lane.age, lane.discounted)
    tick = functools.partial(_tick, shape, settings, lane.learnt.weights)
    end, ticks = lax.scan(tick, running, (noise, begun, following))
    return lane._replace(**end._asdict()), ticks


def _rows(shape: Shape, settings: Settings, weights: Weights, ticks: _Tick) -> _Row:
    """Return the B rows of T steps `ticks`, step after step, with GAE's advantages and returns."""
    stepped = ticks.stepped
    last = _value(shape, settings, weights, stepped.following[-1])

    def final_values() -> Array:
        """Return the critic's values of the observations after each step."""
        return _value(shape, settings, weights, stepped.following)

    # Values are needed for truncated episodes only, of which there are few or none.
    finals = lax.cond(stepped.truncated.any(), final_values, lambda: jnp.zeros_like(ticks.values))
    following = jnp.concatenate([ticks.values[1:], last[None]])
    following = jnp.where(stepped.truncated, finals, following)
    following = jnp.where(stepped.terminated, 0.0, following)
    deltas = stepped.rewards + settings.gamma * following - ticks.values
    goes_on = ~(stepped.terminated | stepped.truncated)
    carries = settings.gamma * settings.lambda_ * goes_on

    def back(running: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        """Add a step's advantage to the discounted sum of the later ones, running backwards."""
        delta, carry = at
        running = delta + carry * running
        return running, running

    _, advantages = lax.scan(back, jnp.zeros_like(last), (deltas, carries), reverse=True)

    def flat(column: Array) -> Array:
        """Return a column (T, N, …) as rows (T · N, …)."""
        return column.reshape(shape.rows, *column.shape[2:])

    return _Row(
        flat(ticks.observations),
        flat(ticks.actions),
        flat(ticks.logp),
        flat(ticks.values),
        flat(advantages),
        flat(advantages + ticks.values),
    )


# ---- learning ------------------------------------------------------------------------------------


def _loss(
    weights: Weights, shape: Shape, settings: Settings, rates: Rates, rows: _Row
) -> tuple[Array, Array]:
    """Return the loss () of a minibatch, and the measurements (5,) that `STATS` names.

    They are policy loss, value loss, entropy, KL divergence and fraction of clipped rows; the
    loss weights the second and third by the coefficients of `settings` and `rates`.
    """
    units = _hidden(shape, settings, weights, "actor", rows.observations)
    head = _last(shape, weights, "actor", units)
    logp, entropies = _logp_and_entropies(settings, weights, units, head, rows.actions)
    values = _value(shape, settings, weights, rows.observations)
    log_ratio = logp - rows.logp
    ratio = jnp.exp(log_ratio)
    clipped = jnp.clip(ratio, 1.0 - rates.clip, 1.0 + rates.clip)
    gain = jnp.minimum(ratio * rows.advantages, clipped * rows.advantages)
    moved = jnp.clip(values - rows.values, -settings.vf_clip, settings.vf_clip)
    worse = jnp.maximum((values - rows.returns) ** 2, (rows.values + moved - rows.returns) ** 2)
    policy_loss, value_loss, entropy = -gain.mean(), 0.5 * worse.mean(), entropies.mean()
    loss = policy_loss - rates.entropy * entropy + settings.vf_loss_coeff * value_loss
    kl = (ratio - 1.0 - log_ratio).mean()  # the k3 estimator (Schulman 2020)
    outside = (jnp.abs(ratio - 1.0) > rates.clip).mean()
    return loss, jnp.stack([policy_loss, value_loss, entropy, kl, outside])


class _Learning(NamedTuple):
    """State of the loop over the gradient steps of a round."""

    step: Array
    """Number of gradient steps so far, () int32."""
    learnt: OptimizerState
    """Weights and moments after these steps."""
    order: Array
    """Order of the rows in this epoch, (B,) int32."""
    sums: Array
    """Sums of the measurements that `_loss` returns over all minibatches so far, (5,)."""
    norms: Array
    """Sum of the gradients' norms before clipping, over all minibatches so far, ()."""
    kl: Array
    """Sum of the KL divergence over this epoch's minibatches, ()."""
    goes_on: Array
    """False once an epoch's KL divergence exceeded the limit or a number was not finite, ()."""
    is_finite: Array
    """False if a loss or gradient was not finite, (); then nothing is updated any more."""


def _learn(
    shape: Shape, settings: Settings, rates: Rates, lane: Lane, rows: _Row, key: Array
) -> tuple[Lane, Array, Array, Array]:
    """Take the gradient steps of a round; minibatches are drawn with `key`.

    They end early after an epoch whose KL divergence exceeds `target_kl`, or after a loss or
    gradient that is not finite. Returns the trial's state, the means of `STATS` over the steps
    taken (5,), the mean norm of gradients (), and a flag (), False if a number was not finite.
    """
    parts = shape.rows // shape.minibatch
    mean, deviation = rows.advantages.mean(), rows.advantages.std()

    def advantages(values: Array) -> Array:
        """Return the minibatch's advantages, standardised if the settings say so."""
        by = (mean, deviation) if shape.minibatch < LEAST_ROWS else (values.mean(), values.std())
        return jnp.where(settings.normalize_advantages, (values - by[0]) / (by[1] + SMALL), values)

    def wanted(state: _Learning) -> Array:
        """Return whether another gradient step follows."""
        return state.goes_on & (state.step < settings.epochs * parts)

    def step(state: _Learning) -> _Learning:
        """Take the gradient step on the next minibatch."""
        epoch, part = state.step // parts, state.step % parts

        def draw() -> Array:
            """Return the rows' numbers in a random order, for a new epoch."""
            return random.permutation(random.fold_in(key, epoch), shape.rows)

        order = draw() if parts == 1 else lax.cond(part == 0, draw, lambda: state.order)
        chosen = lax.dynamic_slice_in_dim(order, part * shape.minibatch, shape.minibatch)
        few = _Row(*(column[chosen] for column in rows))
        few = few._replace(advantages=advantages(few.advantages))
        differentiate = jax.value_and_grad(_loss, has_aux=True)
        given = state.learnt.weights, shape, settings, rates, few
        (loss, measured), gradient = differentiate(*given)
        gradient, norm = clip(gradient, settings.grad_clip)
        is_finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        kl = jnp.where(part == 0, 0.0, state.kl) + measured[STATS.index("kl")]
        far = (part == parts - 1) & (kl / parts > settings.target_kl)
        after = _Learning(
            step=state.step + 1,
            learnt=descend(settings.adam, rates.lr, state.learnt, gradient),
            order=order,
            sums=state.sums + measured,
            norms=state.norms + norm,
            kl=kl,
            goes_on=is_finite & ~far,
            is_finite=is_finite,
        )
        kept = state._replace(step=state.step + 1, goes_on=is_finite, is_finite=is_finite)
        chosen_: _Learning = jax.tree.map(
            lambda new, old: jnp.where(is_finite, new, old), after, kept
        )
        return chosen_

    zero = jnp.float32(0.0)
    order = jnp.zeros(shape.rows, jnp.int32)
    true = jnp.array(True)
    sums = jnp.zeros(len(STATS))
    begun = _Learning(jnp.int32(0), lane.learnt, order, sums, zero, zero, true, true)
    end = lax.while_loop(wanted, step, begun)
    steps = end.step.astype(jnp.float32)
    lane = lane._replace(learnt=end.learnt)
    return lane, end.sums / steps, end.norms / steps, end.is_finite


# ---- a lane -------------------------------------------------------------------------------------


def _round(
    shape: Shape, settings: Settings, lane: Lane, rates: Rates
) -> tuple[Lane, tuple[Any, ...]]:
    """Collect T steps of each environment and learn from them.

    `rates` are the round's rates, each (). Returns the trial's state, and the fields of `Outcome`
    for this round, in their order.
    """
    key, acting, beginning, following, ordering = random.split(random.wrap_key_data(lane.key), 5)
    lane, ticks = _collect(shape, settings, lane, jnp.stack([acting, beginning, following]))
    rows = _rows(shape, settings, lane.learnt.weights, ticks)
    variance = rows.returns.var()
    unexplained = (rows.returns - rows.values).var()
    explained = jnp.where(variance > 0, 1.0 - unexplained / variance, jnp.nan)
    lane, stats, norm, is_finite = _learn(shape, settings, rates, lane, rows, ordering)
    lane = lane._replace(key=random.key_data(key))
    of = ticks.stepped
    finished = Finished(of.terminated | of.truncated, of.returns, of.lengths)
    return lane, (stats, norm, explained, finished, is_finite)
