"""Actor and critic: separate multilayer perceptrons with orthogonal initialisation.

B rows, D features, A choices or action dimensions. Separate networks beat shared ones on simple
environments (Andrychowicz et al. 2021); gains are √2 in hidden layers, 0.01 in the policy's head, 1
in the value's, biases 0 (Huang et al. 2022).
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from trainables.settings import Settings

HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


class ModelConfig(Settings):
    """The networks; the key ``model`` of the settings."""

    hidden: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        default=(64, 64), strict=False, description="Units of each hidden layer, first to last."
    )
    activation: Literal["tanh", "relu"] = Field(
        default="tanh", description="Activation after each hidden layer."
    )


class ActorCritic(nn.Module):
    """Two perceptrons, and log standard deviations (A,) from 0 where actions are vectors.

    Args:
        sizes: D and A.
        discrete: choices rather than vectors.
        config: hidden layers.
        stream: draws the initial weights.
    """

    def __init__(
        self, sizes: tuple[int, int], discrete: bool, config: ModelConfig, stream: torch.Generator
    ) -> None:
        super().__init__()
        inputs, outputs = sizes
        self.actor = _perceptron((inputs, *config.hidden, outputs), POLICY_GAIN, stream)
        self.critic = _perceptron((inputs, *config.hidden, 1), VALUE_GAIN, stream)
        self.log_std = None if discrete else nn.Parameter(torch.zeros(outputs))
        self.activation = config.activation
        self._activate = torch.tanh if config.activation == "tanh" else torch.relu

    def head(self, observations: Tensor) -> Tensor:
        """(B, A) logits or means of filtered observations (B, D)."""
        return self._run(self.actor, observations)

    def value(self, observations: Tensor) -> Tensor:
        """(B,) values of filtered observations (B, D)."""
        return self._run(self.critic, observations).squeeze(-1)

    def logp_entropy(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) log-probabilities of actions, and (B,) or () entropies of their distribution."""
        head = self.head(observations)
        if self.log_std is None:
            logs = torch.log_softmax(head, dim=-1)
            logp = logs.gather(1, actions.unsqueeze(1)).squeeze(1)
            return logp, -(logs.exp() * logs).sum(-1)
        scaled = (actions - head) * torch.exp(-self.log_std)
        half_log_2pi = 0.5 * math.log(2.0 * math.pi)
        logp = (-0.5 * scaled.square() - self.log_std - half_log_2pi).sum(-1)
        return logp, (self.log_std + 0.5 + half_log_2pi).sum()

    def weights(self) -> dict[str, NDArray[Any]]:
        """Every parameter by name, copied."""
        return {name: p.detach().cpu().numpy().copy() for name, p in self.named_parameters()}

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `weights` gave."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(torch.from_numpy(np.array(weights[name])))

    def _run(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        for layer in layers[:-1]:
            x = self._activate(layer(x))
        out: Tensor = layers[-1](x)
        return out


def _perceptron(sizes: tuple[int, ...], head_gain: float, stream: torch.Generator) -> nn.ModuleList:
    gains = [HIDDEN_GAIN] * (len(sizes) - 2) + [head_gain]
    layers = nn.ModuleList()
    for inputs, outputs, gain in zip(sizes[:-1], sizes[1:], gains, strict=True):
        # Made without numbers first: nn.Linear would draw them from torch's global stream.
        layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
        nn.init.orthogonal_(layer.weight, gain=gain, generator=stream)
        nn.init.zeros_(layer.bias)
        layers.append(layer)
    return layers
