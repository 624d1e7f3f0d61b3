"""Perceptrons of torch's parameters, forwards and backwards in numpy: one, or several side by side.

Weights are read and gradients written where torch has them, so the policy's own optimisers step.
Units and errors are written to buffers that are kept: to get and give back some megabytes at every
update takes as long as the products. B rows, I inputs, O outputs; with several networks every array
has them as its first axis.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.policies.acting.dense import activate
from trainables.policies.architecture import Activation

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[Any]
Layers = list[tuple[Array, Array]]


class Stack:
    """Layers ``<i>.weight`` and ``<i>.bias`` of a module.

    Args:
        layers: of linear layers (O, I) and (O,), or of ones side by side, (n, I, O) and (n, 1, O).
        activation: after each layer but the last.
        learns: whether `backward` will be called: the parameters' gradients are then its arrays.
    """

    def __init__(
        self, layers: "nn.ModuleList", activation: Activation, learns: bool = True
    ) -> None:
        self._activation: Activation = activation
        self.layers: Layers = [_views(layer) for layer in layers]
        self.kind = self.layers[0][0].dtype
        self._gradients: Layers = [_gradients(layer) for layer in layers] if learns else []
        self._buffers: dict[tuple[str, int, tuple[int, ...]], Array] = {}

    def forward(self, x: Array, first: int | None = None) -> list[Array]:
        """Return the input of each layer, and last the output, of the `first` networks or of all.

        All but `x` hold until the next call.
        """
        seen = [x]
        for i, layer in enumerate(self.layers):
            weight, bias = (one[:first] for one in layer) if first else layer
            if i:
                activate(x, self._activation)
            shape = (*weight.shape[:-2], x.shape[-2], weight.shape[-1])
            x = np.matmul(x, weight, out=self._buffer("units", i, shape))
            x += bias
            seen.append(x)
        return seen

    def backward(self, seen: list[Array], error: Array, top: Array | None = None) -> None:
        """Write the gradient of a loss, whose gradient by the last layer's outputs is `error`.

        `top` is what it depends on the last hidden units by beside that, if by anything.
        """
        for i in range(len(self.layers) - 1, -1, -1):
            weight, bias = self._gradients[i]
            if weight.ndim == 3:
                np.matmul(_turned(seen[i]), error, out=weight)
            else:
                np.matmul(error.T, seen[i], out=weight)
            np.add.reduce(error, axis=-2, out=bias, keepdims=bias.ndim > 1)
            if i:
                error = self._below(i, error, seen[i])
                if top is not None and i == len(self.layers) - 1:
                    error += top
                error *= self._slope(seen[i])

    def by_inputs(self, seen: list[Array], error: Array, columns: slice) -> Array:
        """The gradient by these columns of the inputs, of `error` by the outputs of `forward`."""
        count = len(error) if error.ndim > 2 else None
        for i in range(len(self.layers) - 1, 0, -1):
            error = self._below(i, error, seen[i])
            error *= self._slope(seen[i])
        weight = self.layers[0][0][:count]
        gradient: Array = np.matmul(error, _turned(weight[..., columns, :]))
        return gradient

    def _below(self, layer: int, error: Array, units: Array) -> Array:
        """The gradient by the units that a layer was given, of `error` by what it gave."""
        weight = self.layers[layer][0]
        turned = _turned(weight[: len(error)] if error.ndim > 2 else weight)
        # A product over one number is an outer one, for which BLAS takes five times as long.
        product = np.matmul if error.shape[-1] > 1 else np.multiply
        return product(error, turned, out=self._buffer("errors", layer, units.shape))

    def _buffer(self, of: str, layer: int, shape: tuple[int, ...]) -> Array:
        """An array that is written anew whenever it is asked for."""
        key = (of, layer, shape)
        if key not in self._buffers:
            self._buffers[key] = np.empty(shape, dtype=self.kind)
        return self._buffers[key]

    def _slope(self, units: Array) -> Array:
        """The activation's derivative, from its values."""
        return units > 0 if self._activation == "relu" else 1.0 - np.square(units)


def _views(layer: "nn.Module") -> tuple[Array, Array]:
    """Weights (…, I, O) and biases of a layer, in torch's memory."""
    weight, bias = (getattr(layer, name).detach().numpy() for name in ("weight", "bias"))
    return (weight if weight.ndim == 3 else weight.T), bias


def _gradients(layer: "nn.Module") -> tuple[Array, Array]:
    """Arrays in torch's shapes, which torch knows as the layer's gradients."""
    import torch

    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    weight, bias = (getattr(layer, name).grad.numpy() for name in ("weight", "bias"))
    return weight, bias


def _turned(x: Array) -> Array:
    return x.swapaxes(-1, -2)
