"""Actor and critic as one stack of perceptrons, forwards and backwards.

Both have the same hidden layers, so each layer of the two is one stacked product. D features, H
units of a layer, A numbers of the actor's head, B rows; activations are (2, H, B).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.learners.fused.flat import FlatOptimizer
from trainables.policies.acting.dense import activate
from trainables.policies.architecture import Activation, Architecture

Array = NDArray[Any]
NETS = ("actor", "critic")


def parameter_order(architecture: Architecture, reals: bool) -> list[str]:
    """Names of all parameters, actor and critic of a layer side by side."""
    layers = range(len(architecture.hidden) + 1)
    order = [f"{net}.{i}.{part}" for i in layers for part in ("weight", "bias") for net in NETS]
    return [*order, *(["log_std"] if reals else [])]


class Buffers:
    """Arrays that a pass over B rows computes and overwrites."""

    def __init__(self, hidden: tuple[int, ...], head: int, rows: int, kind: np.dtype[Any]) -> None:
        self.units, self.errors, self.slopes = (
            [np.empty((2, size, rows), dtype=kind) for size in hidden] for _ in range(3)
        )
        self.head = np.empty((head, rows), dtype=kind)
        self.head_error = np.empty((head, rows), dtype=kind)
        self.values = np.empty((1, rows), dtype=kind)
        self.parts = np.empty((5, rows), dtype=kind)
        self.ones = np.ones(rows, dtype=kind)


class Perceptrons:
    """Networks without a shared trunk: reads weights from `adam` and writes gradients to it."""

    def __init__(self, adam: FlatOptimizer, architecture: Architecture, head: int) -> None:
        self._activation: Activation = architecture.activation
        sizes = (architecture.features, *architecture.hidden)
        last = len(architecture.hidden)
        self._layers, self._gradients = (
            [_stacked(adam, vector, i, (sizes[i + 1], sizes[i])) for i in range(last)]
            for vector in (adam.weights, adam.gradient)
        )
        shapes = ((head, sizes[-1]), (1, sizes[-1]))
        self._heads, self._head_gradients = (
            [
                (
                    adam.span(vector, f"{net}.{last}.weight").reshape(shape),
                    adam.span(vector, f"{net}.{last}.bias"),
                )
                for net, shape in zip(NETS, shapes, strict=True)
            ]
            for vector in (adam.weights, adam.gradient)
        )

    def forward(self, x: Array, buffers: Buffers) -> None:
        """Fill `buffers` with the heads and values of features (D, B)."""
        below = x
        for (weight, bias), units in zip(self._layers, buffers.units, strict=True):
            if below is x:
                np.matmul(_flat(weight), x, out=_flat(units))
            else:
                np.matmul(weight, below, out=units)
            np.add(units, bias[:, :, None], out=units)
            activate(units, self._activation)
            below = units
        for (weight, bias), units, out in zip(
            self._heads, _halves(below, x), (buffers.head, buffers.values), strict=True
        ):
            np.matmul(weight, units, out=out)
            np.add(out, bias[:, None], out=out)

    def backward(self, x: Array, head_error: Array, value_error: Array, buffers: Buffers) -> None:
        """Write the gradient of a loss, after `forward` of the same features (D, B).

        `head_error` (A, B) and `value_error` (1, B) are its gradients by the heads and the values.
        """
        top = buffers.units[-1] if buffers.units else x
        errors = (head_error, value_error)
        for (weight, bias), units, error in zip(
            self._head_gradients, _halves(top, x), errors, strict=True
        ):
            np.matmul(error, units.T, out=weight)
            np.matmul(error, buffers.ones, out=bias)
        if not self._layers:
            return
        (actor, _), (critic, _) = self._heads
        np.matmul(actor.T, head_error, out=buffers.errors[-1][0])
        np.multiply(critic.T, value_error, out=buffers.errors[-1][1])
        for i in range(len(self._layers) - 1, -1, -1):
            error, (weight, bias) = buffers.errors[i], self._gradients[i]
            error *= slope(buffers.units[i], self._activation, buffers.slopes[i])
            np.matmul(_flat(error), buffers.ones, out=bias.reshape(-1))
            if i == 0:
                np.matmul(_flat(error), x.T, out=_flat(weight))
                return
            np.matmul(error, buffers.units[i - 1].transpose(0, 2, 1), out=weight)
            np.matmul(self._layers[i][0].transpose(0, 2, 1), error, out=buffers.errors[i - 1])


def _stacked(
    adam: FlatOptimizer, vector: Array, layer: int, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Weights (2, H, H of the layer below) and biases (2, H) of a hidden layer of both networks."""
    weights, biases = (
        adam.span(vector, *(f"{net}.{layer}.{part}" for net in NETS)) for part in ("weight", "bias")
    )
    return weights.reshape(2, *shape), biases.reshape(2, shape[0])


def _halves(units: Array, x: Array) -> tuple[Array, Array]:
    """Return the inputs of the actor's and of the critic's head."""
    return (x, x) if units is x else (units[0], units[1])


def _flat(stacked: Array) -> Array:
    """(2, H, …) as (2H, …)."""
    return stacked.reshape(-1, stacked.shape[-1])


def slope(units: Array, activation: Activation, out: Array) -> Array:
    """The activation's derivative, computed from its values."""
    if activation == "tanh":
        np.multiply(units, units, out=out)
        return np.subtract(1.0, out, out=out)
    return np.greater(units, 0.0, out=out, casting="unsafe")
