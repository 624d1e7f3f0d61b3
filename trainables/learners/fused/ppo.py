"""Gradient steps of actor-critic methods on flat vectors: a minibatch's loss and its gradient.

Losses (of PPO, of A2C), minibatches and optimisers are those in torch, up to rounding. B rows of a
minibatch, N rows of a batch.
"""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.core.resources import blas_threads
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import NotFiniteError
from trainables.learners.fused.distributions import Choices, Reals
from trainables.learners.fused.flat import KNOWN
from trainables.learners.fused.perceptrons import Buffers, Perceptrons, parameter_order
from trainables.learners.fused.policy import FlatPolicy
from trainables.learners.standardizing import LEAST_ROWS, SMALL, Moments
from trainables.policies.acting.distributions import NO_CHOICE
from trainables.policies.architecture import Architecture, OptimizerConfig
from trainables.rollout.batch import TrainBatch

if TYPE_CHECKING:
    from trainables.learners.fused.shared import SharedVectors
    from trainables.policies.learning.torch_policy import ActorCriticPolicy

Array = NDArray[Any]
#: Columns of a batch that are between its features and its actions in a packed minibatch.
SCALARS = ("logp", "values", "advantages", "returns")
#: Factors from the means of `Buffers.parts` to the parts of the loss.
_SIGNS = np.array([-1.0, 0.5, 1.0, 1.0, 1.0])
#: Largest number of minibatch sizes for which buffers are kept.
MOST_SIZES = 8
#: Largest number of choices, counted as columns times choices of the longest column: a packed
#: minibatch has one row for each.
MOST_CHOICES = 1024


def find_reason_for_torch(
    layout: ActionLayout, architecture: Architecture, optimizer: OptimizerConfig
) -> str:
    """Return the reason why a policy must learn in torch, not in numpy; empty if it need not."""
    named = {
        "model.custom_model is set": architecture.custom_model,
        "model.custom_action_dist is set": architecture.distribution,
        "model.vf_share_layers is true": architecture.shares,
        "model.free_log_std is false": architecture.predicts_log_std,
        "model.use_lstm is true": architecture.lstm,
        "images are convolved (model.conv_filters)": architecture.filters,
    }
    if why := next((why for why, holds in named.items() if holds), ""):
        return why
    if optimizer.name not in KNOWN:
        return f"optimizer.name is {optimizer.name}"
    if len(layout.choice_columns) * max(layout.sizes) > MOST_CHOICES:
        return f"actions have more than {MOST_CHOICES} choices"
    return ""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Options of PPO's or A2C's loss; the settings of the algorithms describe them."""

    clip_param: float | None
    """Clipping range of the ratio, or None for the plain policy gradient (Sutton et al. 1999)."""
    vf_clip_param: float | None
    """Largest change of a value that the value loss rewards; None for no clipping."""
    vf_loss_coeff: float
    """Weight of the value loss."""
    entropy_coeff: float
    """Weight of the entropy."""
    normalize_advantages: bool
    """True to scale the advantages of a minibatch to mean 0 and standard deviation 1, if it has at
    least `LEAST_ROWS` rows."""
    grad_clip: float | None
    """Largest norm of the gradient; None for no clipping."""


class FusedLearner:
    """Makes the gradient steps of PPO or A2C in numpy, for a policy of perceptrons.

    A `sgd.Learner`.

    It works in place on the policy's weights and moments.

    Args:
        stats: names of the parts of the loss: policy loss, value loss, entropy, KL divergence,
            share of clipped ratios; or of the first of these.
        threads: threads of matrix products.
    """

    def __init__(
        self,
        policy: "FlatPolicy | ActorCriticPolicy",
        loss: Loss,
        stats: tuple[str, ...],
        threads: int = 1,
    ) -> None:
        layout, architecture = policy.layout, policy.architecture
        self.policy, self.stats = policy, stats
        self._shared = policy if isinstance(policy, FlatPolicy) else _make_vectors(policy)
        self.adam = self._shared.flat
        self.adam.kernel = None
        self.loss = loss
        self._networks = Perceptrons(self.adam, architecture, layout.head_size)
        self._features, self._hidden = architecture.features, architecture.hidden
        self._head, self._masks = layout.head_size, architecture.masks
        self._largest_pixels = architecture.highest_byte, architecture.highest_number
        self._choices = Choices(layout) if layout.choice_columns else None
        self._logits = layout.logits
        self._reals: Reals | None = None
        if layout.real_columns:
            vectors = (self.adam.weights, self.adam.gradient)
            self._reals = Reals(layout, *(self.adam.span(one, "log_std") for one in vectors))
        self._kind = self.adam.weights.dtype
        self._buffers: dict[int, Buffers] = {}
        self._packed: tuple[TrainBatch | None, Array, Array] = (None, np.empty(0), np.empty(0))
        self._threads = threads

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Take over the policy's weights before the block, and limit threads in it.

        Numpy does not warn of numbers that are not finite inside. Afterwards the gradients of the
        latest step are visible in the policy, and the packed batch is forgotten.
        """
        self._shared.adopt()
        # Loss and norm are checked for numbers that are not finite, so numpy need not warn.
        with blas_threads(self._threads), np.errstate(all="ignore"):
            yield
        self._shared.show_gradients()
        self._packed = (None, np.empty(0), np.empty(0))

    def minibatches(
        self, batch: TrainBatch, size: int, stream: np.random.Generator, count: int
    ) -> list[Array]:
        """Return the minibatches of an epoch, in a random order, packed as columns for `gradient`.

        They are views of one array, which the next call overwrites. `size` is the largest number of
        rows of a minibatch, `count` the number of rows that decides the number of minibatches.
        """
        if self._packed[0] is not batch:
            columns = self.columns(batch)
            self._packed = (batch, columns, np.empty_like(columns))
        _, columns, drawn = self._packed
        # The indices are in range; with a mode, numpy writes them in place.
        np.take(columns, stream.permutation(len(batch)), axis=1, out=drawn, mode="clip")
        parts = -(-count // size)
        small, more = divmod(len(batch), parts)
        ends = [i * small + min(i, more) for i in range(parts + 1)]
        return [drawn[:, first:last] for first, last in itertools.pairwise(ends)]

    def standardize_few(self, minibatches: list[Array], moments: Moments) -> None:
        """Standardise advantages of minibatches below `LEAST_ROWS` rows, by `moments`."""
        row = self._features + SCALARS.index("advantages")
        for one in minibatches:
            if one.shape[1] < LEAST_ROWS:
                one[row] = moments.standardized(one[row])

    def step(self, minibatch: Array, rate: float, share: float = 1.0) -> tuple[Array, float]:
        """Make one gradient step with the learning rate `rate`; `share` is ignored, without ranks.

        Returns the parts of the loss (S,) and the gradient's norm before clipping. Raises
        NotFiniteError if loss or gradient is NaN or infinite; the weights are unchanged.
        """
        measured = self.gradient(minibatch)
        return measured, self.adam.step(rate, self.loss.grad_clip)

    def evaluate(self, batch: TrainBatch) -> tuple[Array, Array]:
        """Return present log-probabilities (B,) of a batch's actions, and present values (B,)."""
        buffers = self._buffers_for(len(batch))
        with self.learning():
            features, _, taken = self._parts(self.columns(batch))
            logp, _ = self._judge(features, taken, buffers)
        return logp, buffers.values[0].copy()

    def gradient(self, columns: Array) -> Array:
        """Compute the gradient of one minibatch's loss; return the parts of the loss (S,).

        The gradient is written to the gradient vector.

        Args:
            columns: rows (…, B): features, `SCALARS`, actions as the distributions take them, and
                any action mask.

        Raises:
            NotFiniteError: the loss is NaN or infinite.
        """
        options, rows = self.loss, columns.shape[1]
        buffers = self._buffers_for(rows)
        x, (old_logp, old_values, advantages, returns), taken = self._parts(columns)
        logp, entropies = self._judge(x, taken, buffers)

        parts = buffers.parts
        if options.normalize_advantages and rows >= LEAST_ROWS:
            advantages = _normalized(advantages)
        if options.clip_param is None:
            np.multiply(logp, advantages, out=parts[0])
            by_logp = advantages * (-1.0 / rows)
            parts[3:] = 0.0
        else:
            by_logp = _clipped_gains(logp - old_logp, advantages, options.clip_param, parts)
        errors = self._value_errors(buffers.values[0], old_values, returns, parts[1])
        parts[2] = entropies
        errors *= options.vf_loss_coeff / rows
        means: Array = np.add.reduce(parts, axis=1)
        means *= _SIGNS / rows
        policy_loss, value_loss, entropy, *_ = means.tolist()
        loss = policy_loss - options.entropy_coeff * entropy + options.vf_loss_coeff * value_loss
        if not math.isfinite(loss):
            raise NotFiniteError.of_learning(f"the loss is {loss}")
        head_error = self._head_error(by_logp, -options.entropy_coeff / rows, buffers.head_error)
        self._networks.backward(x, head_error, errors[None], buffers)
        return means[: len(self.stats)]

    def _value_errors(self, values: Array, old_values: Array, returns: Array, out: Array) -> Array:
        """Return the gradient (B,) of half the squared value errors; write the squares to `out`.

        With `vf_clip_param`, the change of each value is clipped, and the larger square of both
        counts. `values` are those of the present weights, `old_values` those of sampling, `returns`
        the targets, each (B,), as is `out`.
        """
        errors: Array = values - returns
        np.square(errors, out=out)
        bound = self.loss.vf_clip_param
        if bound is not None:
            moved = values - old_values
            clipped = np.minimum(np.maximum(moved, -bound), bound)
            squares = np.square(old_values + clipped - returns)
            # If the clipped value is the worse one, and was clipped, its gradient is 0.
            errors *= (clipped == moved) | (out >= squares)
            np.maximum(out, squares, out=out)
        return errors

    def columns(self, batch: TrainBatch) -> Array:
        """Pack a batch of N rows into an array (…, N): features, `SCALARS`, actions and masks.

        Pixels are scaled to at most 1.
        """
        observations = batch.observations.reshape(len(batch), -1)
        parts = [observations.T, *(getattr(batch, name)[None] for name in SCALARS)]
        parts += [one.columns_of(batch.actions) for one in (self._choices, self._reals) if one]
        if self._masks:
            parts = [parts[0][: -self._masks], *parts[1:], parts[0][-self._masks :]]
        made = np.concatenate(parts, dtype=self._kind, casting="unsafe")
        if (highest := self._largest_pixels[observations.dtype != np.uint8]) != 1.0:
            made[: self._features] /= highest
        return made

    def _parts(self, columns: Array) -> tuple[Array, Array, Array]:
        """Split packed columns into views of features, `SCALARS`, and actions with masks."""
        scalars = self._features + len(SCALARS)
        return columns[: self._features], columns[self._features : scalars], columns[scalars:]

    def _judge(self, x: Array, actions: Array, buffers: Buffers) -> tuple[Array, Any]:
        """Run the networks on features `x` into `buffers`; return log-probabilities and entropies.

        Log-probabilities are (B,); entropies are (B,), or one float for all rows.
        """
        self._networks.forward(x, buffers)
        return self._evaluate(buffers.head, actions)

    def _evaluate(self, head: Array, actions: Array) -> tuple[Array, Any]:
        """Return log-probabilities (B,) of packed actions for heads (A, B), and their entropies.

        Entropies are (B,), or one float for all rows. Logits of choices that the masks exclude are
        overwritten in `head`.
        """
        if self._masks:  # an invalid choice has no probability and no gradient
            valid, actions = actions[-self._masks :] > 0, actions[: -self._masks]
            head[: self._logits][~valid] = NO_CHOICE
        if self._choices is None:
            return self._evaluate_reals(head, actions)
        logp, entropies = self._choices.evaluate(
            head[: self._logits], actions[: self._choices.rows]
        )
        if self._reals is None:
            return logp, entropies
        logp_reals, entropy = self._evaluate_reals(
            head[self._logits :], actions[self._choices.rows :]
        )
        return logp + logp_reals, entropies + entropy

    def _evaluate_reals(self, means: Array, actions: Array) -> tuple[Array, float]:
        """Return log-probabilities (B,) of the actions' real numbers, and the entropy of every row.

        Raises ValueError if actions have no real numbers.
        """
        if self._reals is None:
            raise ValueError("actions of this layout have no real numbers")
        return self._reals.evaluate(means, actions)

    def _head_error(self, by_logp: Array, by_entropy: float, error: Array) -> Array:
        """Write the gradient of the loss with respect to the head to `error` (A, B).

        Return `error`.

        `by_logp` (B,) and `by_entropy` are the loss's derivatives with respect to log-probabilities
        and entropies.
        """
        if self._choices is not None:
            self._choices.gradient(by_logp, by_entropy, error[: self._logits])
        if self._reals is not None:
            self._reals.gradient(by_logp, by_entropy, error[self._logits :])
        return error

    def _buffers_for(self, rows: int) -> Buffers:
        """Return the buffers for minibatches of this number of rows.

        Those of at most `MOST_SIZES` numbers are kept.
        """
        if rows not in self._buffers:
            if len(self._buffers) == MOST_SIZES:
                self._buffers.clear()
            self._buffers[rows] = Buffers(self._hidden, self._head, rows, self._kind)
        return self._buffers[rows]


def _make_vectors(policy: "ActorCriticPolicy") -> "SharedVectors":
    """Make flat vectors that share their memory with a policy that was made in torch."""
    from trainables.learners.fused.shared import SharedVectors

    reals = bool(policy.layout.real_columns)
    return SharedVectors.of(policy, parameter_order(policy.architecture, reals))


def _clipped_gains(log_ratio: Array, advantages: Array, clip: float, parts: Array) -> Array:
    """Return the gradient (B,) of PPO's clipped loss with respect to log-probabilities.

    Writes the clipped gains, the KL divergence and flags of clipped ratios to rows 0, 3 and 4 of
    `parts`.
    """
    ratio = np.exp(log_ratio)
    moved = ratio - 1.0
    gains = ratio * advantages
    clipped = np.minimum(np.maximum(ratio, 1.0 - clip), 1.0 + clip)
    clipped *= advantages
    # The gradient is not 0 only if the unclipped gain is the smaller one, or both are equal.
    by_logp: Array = gains * np.less_equal(gains, clipped)
    by_logp *= -1.0 / len(gains)
    np.minimum(gains, clipped, out=parts[0])
    np.subtract(moved, log_ratio, out=parts[3])
    np.greater(np.abs(moved), clip, out=parts[4])
    return by_logp


def _normalized(advantages: Array) -> Array:
    """Return advantages (B,) shifted and scaled to mean 0 and standard deviation 1."""
    centred: Array = advantages - np.add.reduce(advantages) / len(advantages)
    deviation = math.sqrt(np.dot(centred, centred) / len(centred))
    centred /= deviation + SMALL
    return centred
