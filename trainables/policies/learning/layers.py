"""Layers whose initial weights come from a named stream, and the trunk that actor and critic share.

B rows, H x W pixels, C channels, F features. Weights are orthogonal, with gains of √2 in hidden
layers and 1 in an LSTM, and biases are 0 (Huang et al. 2022). Layers without a gain have uniform
weights and biases, as torch initialises them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.policies.architecture import HIDDEN_GAIN, Architecture

Layer = TypeVar("Layer", bound=nn.Module)

#: Scale of the initial weights of an LSTM.
LSTM_GAIN = 1.0


def perceptron(
    sizes: tuple[int, ...], gains: list[float] | None, stream: torch.Generator | None
) -> nn.ModuleList:
    """Return linear layers with the widths `sizes`, first the number of inputs.

    `gains` has one gain per layer for orthogonal weights; None makes weights and biases uniform.
    Without a stream weights are left uninitialised, to be loaded, and biases are 0.
    """
    each: Sequence[float | None] = gains or [None] * (len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], each, strict=True)
    # On the meta device: nn.Linear would otherwise draw weights from torch's global stream.
    return nn.ModuleList(
        _initialise(nn.Linear(inputs, outputs, device="meta"), gain, stream)
        for inputs, outputs, gain in pairs
    )


def activate(x: Tensor, activation: str) -> Tensor:
    """Apply ``tanh`` or ``relu`` to `x` in place, and return it."""
    return torch.tanh_(x) if activation == "tanh" else torch.relu_(x)


class Trunk(nn.Module):
    """The layers that actor and critic share: convolutions with ReLU, if any, then hidden layers.

    `stream` draws the weights; without it they are left uninitialised, to be loaded.
    """

    def __init__(self, architecture: Architecture, stream: torch.Generator | None) -> None:
        super().__init__()
        self._architecture = architecture
        self.activation = architecture.activation
        self.convolutions = nn.ModuleList()
        channels = architecture.shape[-1]
        for outputs, kernel, stride in architecture.filters:
            layer = nn.Conv2d(channels, outputs, kernel, stride, device="meta")
            self.convolutions.append(_initialise(layer, HIDDEN_GAIN, stream))
            channels = outputs
        sizes = (architecture.features, *architecture.hidden)
        self.dense = perceptron(sizes, [HIDDEN_GAIN] * len(architecture.hidden), stream)

    def forward(self, observations: Tensor) -> Tensor:
        """Return features (B, F) of vectors (B, D) or images (B, H, W, C), bytes or float32."""
        x = unit_pixels(observations, self._architecture)
        if self.convolutions:
            x = x.permute(0, 3, 1, 2)
        for layer in self.convolutions:
            x = torch.relu_(layer(x))
        x = x.flatten(1)
        for layer in self.dense:
            x = activate(layer(x), self.activation)
        return x


def lstm(inputs: int, units: int, stream: torch.Generator | None) -> nn.LSTM:
    """Return one LSTM layer with orthogonal weights, all four gates together, and biases of 0.

    `stream` draws the weights; None stands for torch's global stream.
    """
    layer = _allocate(nn.LSTM(inputs, units, device="meta"))
    for name, parameter in layer.named_parameters():
        if name.startswith("weight"):
            nn.init.orthogonal_(parameter, gain=LSTM_GAIN, generator=stream)
        else:
            nn.init.zeros_(parameter)
    return layer


class ActingTrunk:
    """Convolutions and shared hidden layers for actors: numpy in and out, computed in torch.

    For 32 images torch is twice as fast as numpy.
    """

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        trunk = Trunk(architecture, None)
        self._trunk = trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the weights as arrays; torch would put them into shared memory."""
        weights = {f"trunk.{name}": p.numpy() for name, p in self._trunk.state_dict().items()}
        return _rebuild_trunk, (self._architecture, weights)

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Copy those weights (name → array) whose names begin with ``trunk.``; ignore others."""
        with torch.no_grad():
            for name, parameter in self._trunk.named_parameters():
                weight = np.require(weights[f"trunk.{name}"], requirements="W")
                parameter.copy_(torch.from_numpy(weight))

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features (N, F) of images (N, H, W, C)."""
        with torch.inference_mode():
            features: NDArray[np.float32] = self._trunk(torch.from_numpy(images)).numpy()
        return features


def _rebuild_trunk(architecture: Architecture, weights: Mapping[str, NDArray[Any]]) -> ActingTrunk:
    """Return an unpickled trunk with these weights."""
    made = ActingTrunk(architecture)
    made.load(weights)
    return made


def as_float32(outputs: Tensor) -> Tensor:
    """Return a layer's outputs in float32 if they are bfloat16, else as they are."""
    return outputs.float() if outputs.dtype == torch.bfloat16 else outputs


def unit_pixels(observations: Tensor, architecture: Architecture) -> Tensor:
    """Return images as float32 divided by the architecture's divisor of bytes or of float32.

    Vectors, and images that a filter has scaled, are returned unchanged, as their divisor is 1.
    """
    if observations.dtype == torch.uint8:
        return observations.float().div_(architecture.highest_byte)
    highest = architecture.highest_number
    return observations if highest == 1.0 else observations / highest


def _initialise(
    layer: nn.Linear | nn.Conv2d, gain: float | None, stream: torch.Generator | None
) -> nn.Linear | nn.Conv2d:
    """Give a layer on the meta device memory, and initial weights from `stream`; return it.

    A `gain` is that of orthogonal weights with biases 0; None means uniform weights and biases.
    Without a stream weights are left uninitialised, to be loaded, and biases are 0.
    """
    layer = _allocate(layer)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    if stream is None:
        return layer
    if gain is not None:
        nn.init.orthogonal_(layer.weight, gain=gain, generator=stream)
        return layer
    bound = 1.0 / math.sqrt(layer.weight[0].numel())
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=stream)
    return layer


def _allocate(layer: Layer) -> Layer:
    """Give a layer on the meta device uninitialised memory, and return it.

    `nn.Module.to_empty` does the same but imports sympy, which takes half a second.
    """
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer
