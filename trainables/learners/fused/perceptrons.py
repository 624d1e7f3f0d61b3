"""Actor and critic as one stack of perceptrons: forward and backward pass.

Both have the same hidden layers, so that each layer of the two is one stacked product. D features,
H units of a layer, A outputs of the actor's head, B rows; activations are (2, H, B).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.learners.fused.flat import FlatOptimizer
from trainables.policies.acting.dense import activate
from trainables.policies.architecture import Activation, Architecture

Array = NDArray[Any]
#: Names of the networks, in order.
NETS = ("actor", "critic")


def parameter_order(architecture: Architecture, reals: bool) -> list[str]:
    """Return the parameters' names in the order of the flat vectors; `reals`: with ``log_std``.

    In each layer, those of actor and critic are adjacent.
    """
    layers = range(len(architecture.hidden) + 1)
    order = [f"{net}.{i}.{part}" for i in layers for part in ("weight", "bias") for net in NETS]
    return [*order, *(["log_std"] if reals else [])]


class Buffers:
    """Arrays for one forward and one backward pass of actor and critic, which passes overwrite.

    `hidden` are sizes of the hidden layers, `head` the number of the actor's outputs, `rows` the
    number of rows B.
    """

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
    """The networks of actor and critic, without a shared trunk, on views of flat vectors."""

    def __init__(self, adam: FlatOptimizer, architecture: Architecture, head: int) -> None:
        self._activation: Activation = architecture.activation
        sizes = (architecture.features, *architecture.hidden)
        last = len(architecture.hidden)
        self._layers, self._gradients = (
            [_stack_layer(adam, vector, i, (sizes[i + 1], sizes[i])) for i in range(last)]
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
        """Run both networks on features (D, B); write units, heads and values to `buffers`."""
        inputs = x
        for (weight, bias), units in zip(self._layers, buffers.units, strict=True):
            if inputs is x:
                np.matmul(_merge_nets(weight), x, out=_merge_nets(units))
            else:
                np.matmul(weight, inputs, out=units)
            np.add(units, bias[:, :, None], out=units)
            activate(units, self._activation)
            inputs = units
        for (weight, bias), units, out in zip(
            self._heads, _halves(inputs, x), (buffers.head, buffers.values), strict=True
        ):
            np.matmul(weight, units, out=out)
            np.add(out, bias[:, None], out=out)

    def backward(self, x: Array, head_error: Array, value_error: Array, buffers: Buffers) -> None:
        """Write the gradient of the weights, after `forward` of features (D, B) into `buffers`.

        Errors are gradients of the loss with respect to the heads (A, B) and the values (1, B).
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
            np.matmul(_merge_nets(error), buffers.ones, out=bias.reshape(-1))
            if i == 0:
                np.matmul(_merge_nets(error), x.T, out=_merge_nets(weight))
                return
            np.matmul(error, buffers.units[i - 1].transpose(0, 2, 1), out=weight)
            np.matmul(self._layers[i][0].transpose(0, 2, 1), error, out=buffers.errors[i - 1])


def _stack_layer(
    adam: FlatOptimizer, vector: Array, layer: int, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Return views of a hidden layer of both networks: weights (2, H, inputs), biases (2, H).

    `shape` is that of one network's weights, (H, inputs).
    """
    weights, biases = (
        adam.span(vector, *(f"{net}.{layer}.{part}" for net in NETS)) for part in ("weight", "bias")
    )
    return weights.reshape(2, *shape), biases.reshape(2, shape[0])


def _halves(units: Array, x: Array) -> tuple[Array, Array]:
    """Return the inputs of the actor's and the critic's head: `units` (2, H, B), one half each.

    Without hidden layers `units` is the features `x`, and both are that.
    """
    return (x, x) if units is x else (units[0], units[1])


def _merge_nets(stacked: Array) -> Array:
    """Return a view (2H, …) of an array (2, H, …): both networks' units as one axis."""
    return stacked.reshape(-1, stacked.shape[-1])


def slope(units: Array, activation: Activation, out: Array) -> Array:
    """Write the activation's derivative, computed from its outputs `units`, to `out`.

    Return `out`.
    """
    if activation == "tanh":
        np.multiply(units, units, out=out)
        return np.subtract(1.0, out, out=out)
    return np.greater(units, 0.0, out=out, casting="unsafe")
