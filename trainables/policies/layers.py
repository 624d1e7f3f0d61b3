"""Layers with weights drawn from a named stream, and the trunk that networks share.

B rows, H x W pixels, C channels, F features. Weights are orthogonal with gains of √2 in hidden
layers, 1 in an LSTM, and biases 0 (Huang et al. 2022); without gains both are drawn evenly, as
torch does it.
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

LSTM_GAIN = 1.0


def perceptron(
    sizes: tuple[int, ...], gains: list[float] | None, stream: torch.Generator | None
) -> nn.ModuleList:
    """Linear layers from `sizes[0]` features to `sizes[-1]`, one gain each or none."""
    each: Sequence[float | None] = gains or [None] * (len(sizes) - 1)
    pairs = zip(sizes[:-1], sizes[1:], each, strict=True)
    # Made without numbers first: nn.Linear would draw them from torch's global stream.
    return nn.ModuleList(
        _drawn(nn.Linear(inputs, outputs, device="meta"), gain, stream)
        for inputs, outputs, gain in pairs
    )


def activate(x: Tensor, activation: str) -> Tensor:
    """``tanh`` or ``relu``, in place."""
    return torch.tanh_(x) if activation == "tanh" else torch.relu_(x)


class Trunk(nn.Module):
    """Convolutions with ReLU if there are any, then hidden layers; actor and critic share it.

    `stream` draws the initial weights; None leaves them to be loaded.
    """

    def __init__(self, architecture: Architecture, stream: torch.Generator | None) -> None:
        super().__init__()
        self._architecture = architecture
        self.activation = architecture.activation
        self.convolutions = nn.ModuleList()
        channels = architecture.shape[-1]
        for outputs, kernel, stride in architecture.filters:
            layer = nn.Conv2d(channels, outputs, kernel, stride, device="meta")
            self.convolutions.append(_drawn(layer, HIDDEN_GAIN, stream))
            channels = outputs
        sizes = (architecture.features, *architecture.hidden)
        self.dense = perceptron(sizes, [HIDDEN_GAIN] * len(architecture.hidden), stream)

    def forward(self, observations: Tensor) -> Tensor:
        """(B, F) features of vectors (B, D) or images (B, H, W, C) of bytes or numbers."""
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
    """One LSTM layer; its four gates' weights are drawn as one orthogonal matrix."""
    layer = _without_numbers(nn.LSTM(inputs, units, device="meta"))
    for name, parameter in layer.named_parameters():
        if name.startswith("weight"):
            nn.init.orthogonal_(parameter, gain=LSTM_GAIN, generator=stream)
        else:
            nn.init.zeros_(parameter)
    return layer


class ActingTrunk:
    """A convolutional trunk for acting: faster than in numpy, twice so for 32 images (measured)."""

    def __init__(self, architecture: Architecture) -> None:
        self._architecture = architecture
        trunk = Trunk(architecture, None)
        self._trunk = trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def __reduce__(self) -> tuple[Any, ...]:
        """It crosses to another process as arrays, not as memory that is shared."""
        weights = {f"trunk.{name}": p.numpy() for name, p in self._trunk.state_dict().items()}
        return _remade, (self._architecture, weights)

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Copy the weights whose names begin with ``trunk.``."""
        with torch.no_grad():
            for name, parameter in self._trunk.named_parameters():
                weight = np.require(weights[f"trunk.{name}"], requirements="W")
                parameter.copy_(torch.from_numpy(weight))

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """(N, F) features of images (N, H, W, C)."""
        with torch.inference_mode():
            features: NDArray[np.float32] = self._trunk(torch.from_numpy(images)).numpy()
        return features


def _remade(architecture: Architecture, weights: Mapping[str, NDArray[Any]]) -> ActingTrunk:
    made = ActingTrunk(architecture)
    made.load(weights)
    return made


def unit_pixels(observations: Tensor, architecture: Architecture) -> Tensor:
    """Return an image's numbers as float32 of at most 1; vectors and filtered ones as they are."""
    if observations.dtype == torch.uint8:
        return observations.float().div_(architecture.highest_byte)
    highest = architecture.highest_number
    return observations if highest == 1.0 else observations / highest


def _drawn(
    layer: nn.Linear | nn.Conv2d, gain: float | None, stream: torch.Generator | None
) -> nn.Linear | nn.Conv2d:
    layer = _without_numbers(layer)
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


def _without_numbers(layer: Layer) -> Layer:
    """Give a layer on ``meta`` memory; `nn.Module.to_empty` would import sympy: half a second."""
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, nn.Parameter(torch.empty(parameter.shape)))
    return layer
