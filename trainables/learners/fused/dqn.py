"""Q-learning's gradient steps on flat vectors: the loss of rows of a replay, and its gradient.

Loss and optimiser are those in torch (`trainables.algorithms.dqn`), up to rounding. D features, H
units of a layer, A choices, B rows; activations are (H, B).
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.core.resources import blas_threads
from trainables.errors import NotFiniteError
from trainables.learners.fused.flat import KNOWN
from trainables.learners.fused.perceptrons import slope
from trainables.policies.acting.dense import activate
from trainables.policies.acting.distributions import NO_CHOICE
from trainables.policies.architecture import OptimizerConfig
from trainables.policies.policy import Scalar
from trainables.policies.q.actor import QArchitecture

if TYPE_CHECKING:
    from trainables.policies.q.networks import QNetwork, QPolicy

Array = NDArray[Any]
Layers = list[tuple[Array, Array]]
"""Weights (H, H of the layer below) and biases (H, 1) of each layer."""


class Learnt(NamedTuple):
    """Results of one gradient step of Q-learning."""

    loss: Scalar
    """Loss before the step."""
    mean_q: Scalar
    """Mean Q-value of the choices taken, over the batch."""
    norm: Scalar
    """Norm of the gradient before clipping."""
    errors: Any
    """Absolute temporal differences, (B,), an array or a tensor."""


def find_reason_for_torch(architecture: QArchitecture, optimizer: OptimizerConfig) -> str:
    """Return the reason why a Q-network must learn in torch, not in numpy; empty if it need not."""
    if optimizer.name not in KNOWN:
        return f"optimizer.name is {optimizer.name}"
    if architecture.trunk.custom_model is not None:
        return f"model.custom_model is {architecture.trunk.custom_model.path}"
    if architecture.trunk.filters:
        return "images are convolved (model.conv_filters)"
    named = {
        "dueling is true": architecture.dueling,
        "noisy is true": architecture.noisy,
        "num_atoms is not 1": architecture.support,
    }
    return next((why for why, holds in named.items() if holds), "")


class FusedQLearner:
    """Makes Q-learning's gradient steps for a perceptron in numpy.

    It works in place on the weights and moments of the policy, and reads the target network.

    Args:
        double: True if the policy's network selects the next choice (double Q-learning), not the
            target network.
        gamma: discount factor of rows without ``discounts``.
        grad_clip: largest norm of the gradient, or None for no limit.
        threads: threads of matrix products.
    """

    def __init__(
        self,
        policy: "QPolicy",
        target: "QNetwork",
        *,
        double: bool,
        gamma: float,
        grad_clip: float | None,
        threads: int,
    ) -> None:
        from trainables.learners.fused.shared import SharedVectors

        weights = [name for name in policy.parameters if name.endswith(".weight")]
        names = [(name, f"{name.removesuffix('.weight')}.bias") for name in weights]
        self._shared = SharedVectors.of(policy, [name for pair in names for name in pair])
        self.adam = self._shared.flat
        adam, target_parameters = self.adam, dict(target.named_parameters())
        self._layers, self._gradients = (
            [
                (
                    adam.span(vector, weight).reshape(tuple(target_parameters[weight].shape)),
                    adam.span(vector, bias)[:, None],
                )
                for weight, bias in names
            ]
            for vector in (adam.weights, adam.gradient)
        )
        self._target: Layers = [
            (
                target_parameters[weight].detach().numpy(),
                target_parameters[bias].detach().numpy()[:, None],
            )
            for weight, bias in names
        ]
        self._activation = policy.model.architecture.trunk.activation
        self._masks = policy.model.architecture.trunk.masks
        trunk = policy.model.architecture.trunk
        self._largest_pixels = np.float32(trunk.highest_byte), np.float32(trunk.highest_number)
        self._double, self._gamma, self._grad_clip = double, gamma, grad_clip
        self._threads = threads
        self._ready = False

    def update(self, rows: Mapping[str, Array], rate: float) -> Learnt:
        """Make one gradient step on rows (B, …) of a replay with the learning rate `rate`.

        Raises NotFiniteError if loss or gradient is NaN or infinite; the weights are unchanged.
        """
        with self.learning():
            loss, values, errors = self.gradient(rows)
            return Learnt(loss, values, self.adam.step(rate, self._grad_clip), errors)

    def gradient(self, rows: Mapping[str, Array]) -> tuple[float, float, Array]:
        """Compute the gradient of the loss of rows (B, …), without a step.

        It is written to the gradient vector. Returns loss, mean value of the choices taken, and
        absolute temporal differences (B,). Raises NotFiniteError if the loss is NaN or infinite.
        """
        count = len(rows["rewards"])
        each, actions = np.arange(count), rows["actions"]
        current, following = (self._columns(rows[name]) for name in ("observations", "new_obs"))
        if self._masks:
            valid = following[-self._masks :] > 0
            current, following = current[: -self._masks], following[: -self._masks]
        next_values = self._forward(self._target, following)[-1]
        selecting_values = next_values
        if self._double:  # one product for both: current observations, then next ones
            units = self._forward(self._layers, np.concatenate([current, following], axis=1))
            selecting_values = units[-1][:, count:]
            units = [one[:, :count] for one in units]
        else:
            units = self._forward(self._layers, current)
        if self._masks:
            selecting_values = np.where(valid, selecting_values, NO_CHOICE)
        discounts = rows.get("discounts", np.float32(self._gamma)) * ~rows["terminated"]
        goal = rows["rewards"] + discounts * next_values[selecting_values.argmax(axis=0), each]
        values = units[-1][actions, each]
        differences = values - goal
        errors = np.abs(differences)
        bounded = np.minimum(errors, 1.0)
        losses = bounded * (errors - 0.5 * bounded)  # Huber's: ½d² up to 1, then |d| - ½
        slopes = np.clip(differences, -1.0, 1.0)
        if (weights := rows.get("weights")) is not None:
            losses, slopes = losses * weights, slopes * weights
        loss = float(losses.mean())
        if not math.isfinite(loss):
            raise NotFiniteError.of_learning(f"the loss is {loss}")
        error = np.zeros_like(units[-1], order="C")
        error[actions, each] = slopes / count
        self._backward(current, units, error)
        return loss, float(values.mean()), errors

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Take over the policy's weights before a series of steps in the block, and limit threads.

        Numpy does not warn of numbers that are not finite inside. Afterwards the gradients are
        visible in torch. A block inside another does nothing.
        """
        if self._ready:
            yield
            return
        self._shared.adopt()
        # Loss and norm are checked for numbers that are not finite, so numpy need not warn.
        with blas_threads(self._threads), np.errstate(all="ignore"):
            self._ready = True
            try:
                yield
            finally:
                self._ready = False
        self._shared.show_gradients()

    def _columns(self, observations: Array) -> Array:
        """Return observations (B, …) as features (D, B), with pixels scaled to at most 1."""
        flat = observations.reshape(len(observations), -1).T
        highest = self._largest_pixels[observations.dtype != np.uint8]
        return flat if highest == 1.0 else flat / highest

    def _forward(self, layers: Layers, x: Array) -> list[Array]:
        """Return the outputs (H, B) of each layer for features (D, B).

        The last are Q-values (A, B).
        """
        units: list[Array] = []
        for i, (weight, bias) in enumerate(layers):
            x = weight @ x
            x += bias
            if i < len(layers) - 1:
                activate(x, self._activation)
            units.append(x)
        return units

    def _backward(self, x: Array, units: list[Array], error: Array) -> None:
        """Write the gradient of the weights, from features `x` (D, B) and each layer's output.

        `error` is the gradient (A, B) of the loss with respect to the Q-values.
        """
        for i in range(len(units) - 1, -1, -1):
            weight, bias = self._gradients[i]
            below = units[i - 1] if i else x
            np.matmul(error, below.T, out=weight)
            np.add.reduce(error, axis=1, keepdims=True, out=bias)
            if i:
                error = self._layers[i][0].T @ error
                error *= slope(below, self._activation, np.empty_like(error))
