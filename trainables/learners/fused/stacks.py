"""Perceptrons on torch's parameters: forward and backward pass in numpy, of one or several stacked.

Weights are read and gradients written in torch's memory, so that the policy's own optimisers make
the steps. Units and errors are written to buffers that are kept: allocating some megabytes for each
update would take as long as the products. B rows, I inputs, O outputs. With n stacked networks
every array has them as its first axis.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.policies.acting.dense import activate
from trainables.policies.architecture import Activation

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[Any]
#: Weight and bias of each layer.
Layers = list[tuple[Array, Array]]


class Stack:
    """A perceptron's layers, or n stacked ones, in numpy on the memory of torch's parameters.

    Args:
        layers: linear layers with weights (O, I) and biases (O,), or stacked ones with (n, I, O)
            and (n, 1, O).
        activation: activation after each layer but the last.
        learns: True if `backward` will be called; gradients of the parameters are then allocated.
    """

    def __init__(
        self, layers: "nn.ModuleList", activation: Activation, learns: bool = True
    ) -> None:
        self._activation: Activation = activation
        self.layers: Layers = [_views(layer) for layer in layers]
        self.kind = self.layers[0][0].dtype
        self._gradients: Layers = [_allocate_gradients(layer) for layer in layers] if learns else []
        self._buffers: dict[tuple[str, int, tuple[int, ...]], Array] = {}

    def forward(self, x: Array, first: int | None = None) -> list[Array]:
        """Run the layers on `x` (B, I) or (n, B, I).

        Return each layer's input, and last the output.

        Only the `first` stacked networks run, if given. All arrays but `x` are overwritten in the
        next call.
        """
        inputs = [x]
        for i, layer in enumerate(self.layers):
            weight, bias = (one[:first] for one in layer) if first else layer
            if i:
                activate(x, self._activation)
            shape = (*weight.shape[:-2], x.shape[-2], weight.shape[-1])
            x = np.matmul(x, weight, out=self._buffer("units", i, shape))
            x += bias
            inputs.append(x)
        return inputs

    def backward(self, inputs: list[Array], error: Array, top: Array | None = None) -> None:
        """Write the gradient of the weights; `inputs` is what `forward` returned.

        `error` is the gradient of the loss with respect to the output. `top`, if given, is that
        with respect to the last hidden units on other ways than through the output.
        """
        for i in range(len(self.layers) - 1, -1, -1):
            weight, bias = self._gradients[i]
            if weight.ndim == 3:
                np.matmul(_transpose(inputs[i]), error, out=weight)
            else:
                np.matmul(error.T, inputs[i], out=weight)
            np.add.reduce(error, axis=-2, out=bias, keepdims=bias.ndim > 1)
            if i:
                error = self._errors_below(i, error, inputs[i])
                if top is not None and i == len(self.layers) - 1:
                    error += top
                error *= self._slope(inputs[i])

    def by_inputs(self, inputs: list[Array], error: Array, columns: slice) -> Array:
        """Return the gradient of a loss with respect to some `columns` of the networks' inputs.

        `inputs` is what `forward` returned; `error` is the gradient with respect to the output.
        """
        count = len(error) if error.ndim > 2 else None
        for i in range(len(self.layers) - 1, 0, -1):
            error = self._errors_below(i, error, inputs[i])
            error *= self._slope(inputs[i])
        weight = self.layers[0][0][:count]
        gradient: Array = np.matmul(error, _transpose(weight[..., columns, :]))
        return gradient

    def _errors_below(self, layer: int, error: Array, units: Array) -> Array:
        """Return the gradient of a loss with respect to a layer's inputs, in a reused buffer.

        `error` is the gradient with respect to the layer's outputs; `units` are the inputs.
        """
        weight = self.layers[layer][0]
        turned = _transpose(weight[: len(error)] if error.ndim > 2 else weight)
        # With one output the product is an outer product, for which BLAS takes five times as long.
        product = np.matmul if error.shape[-1] > 1 else np.multiply
        return product(error, turned, out=self._buffer("errors", layer, units.shape))

    def _buffer(self, kind: str, layer: int, shape: tuple[int, ...]) -> Array:
        """Return a reused array (*shape), one for each `kind` of use, layer and shape."""
        key = (kind, layer, shape)
        if key not in self._buffers:
            self._buffers[key] = np.empty(shape, dtype=self.kind)
        return self._buffers[key]

    def _slope(self, units: Array) -> Array:
        """Return the activation's derivative (…, H), computed from its values `units` (…, H)."""
        return units > 0 if self._activation == "relu" else 1.0 - np.square(units)


def _views(layer: "nn.Module") -> tuple[Array, Array]:
    """Return a torch layer's weights (…, I, O) and biases (…, O) as numpy views."""
    weight, bias = (getattr(layer, name).detach().numpy() for name in ("weight", "bias"))
    return (weight if weight.ndim == 3 else weight.T), bias


def _allocate_gradients(layer: "nn.Module") -> tuple[Array, Array]:
    """Set the gradients of a torch layer's parameters to zeros; return them as numpy views."""
    import torch

    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    weight, bias = (getattr(layer, name).grad.numpy() for name in ("weight", "bias"))
    return weight, bias


def _transpose(x: Array) -> Array:
    """Return a view of an array with the last two axes swapped."""
    return x.swapaxes(-1, -2)
