"""Actor and critic in torch: perceptrons of their own for vectors, one shared trunk for images.

B rows, D features, K action columns, G of them real numbers. Separate networks beat shared ones on
simple environments (Andrychowicz et al. 2021); for images a shared trunk is the custom (Mnih et al.
2016). Gains are 0.01 in the policy's head and 1 in the value's.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainables.envs.actions import ActionLayout
from trainables.policies.architecture import Architecture
from trainables.policies.drawing import NO_CHOICE, choice_grid
from trainables.policies.layers import HIDDEN_GAIN, Trunk, activate, perceptron, unit_pixels

POLICY_GAIN = 0.01
VALUE_GAIN = 1.0
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Evaluated(NamedTuple):
    """What the networks say of observations and the actions that were taken."""

    logp: Tensor
    """(B,) log-probabilities of the actions."""
    entropies: Tensor
    """(B,) or () entropies of their distribution."""
    values: Tensor
    """(B,)."""


class ActorCritic(nn.Module):
    """Two networks, and log standard deviations (G,) from 0 of the real action columns.

    Args:
        layout: of the environment's actions.
        architecture: of the networks.
        stream: draws the initial weights.
    """

    def __init__(
        self, layout: ActionLayout, architecture: Architecture, stream: torch.Generator
    ) -> None:
        super().__init__()
        self._grid: Tensor
        self._absent: Tensor
        self.layout = layout
        self.architecture = architecture
        self.trunk = Trunk(architecture, stream) if architecture.filters else None
        sizes = (architecture.features, *architecture.hidden)
        if self.trunk is not None:
            sizes = sizes[-1:]
        gains = [HIDDEN_GAIN] * (len(sizes) - 1)
        self.actor = perceptron((*sizes, layout.head_size), [*gains, POLICY_GAIN], stream)
        self.critic = perceptron((*sizes, 1), [*gains, VALUE_GAIN], stream)
        reals = len(layout.real_columns)
        self.log_std = nn.Parameter(torch.zeros(reals)) if reals else None
        grid, absent = choice_grid(layout)
        self.register_buffer("_grid", torch.from_numpy(grid), persistent=False)
        self.register_buffer("_absent", torch.from_numpy(absent), persistent=False)
        self._uneven = bool(absent.any())

    def head(self, observations: Tensor) -> Tensor:
        """Logits and means of filtered observations: (B, D), or (B, H, W, C) for images."""
        return self._run(self.actor, self._features(observations))

    def value(self, observations: Tensor) -> Tensor:
        """(B,) values of filtered observations."""
        return self._run(self.critic, self._features(observations)).squeeze(-1)

    def logp_entropy(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) log-probabilities of actions, and (B,) or () entropies of their distribution."""
        return self._logp_entropy(self.head(observations), actions)

    def evaluate(self, observations: Tensor, actions: Tensor) -> Evaluated:
        """All of it at once; a shared trunk is run once."""
        features = self._features(observations)
        logp, entropies = self._logp_entropy(self._run(self.actor, features), actions)
        return Evaluated(logp, entropies, self._run(self.critic, features).squeeze(-1))

    def weights(self) -> dict[str, NDArray[Any]]:
        """Every parameter by name, copied."""
        return {name: p.detach().cpu().numpy().copy() for name, p in self.named_parameters()}

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `weights` gave."""
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                parameter.copy_(torch.from_numpy(np.array(weights[name])))

    def _features(self, observations: Tensor) -> Tensor:
        if self.trunk is not None:
            features: Tensor = self.trunk(observations)
            return features
        if observations.dim() == 2:
            return observations
        return unit_pixels(observations).flatten(1)

    def _run(self, layers: nn.ModuleList, x: Tensor) -> Tensor:
        for layer in layers[:-1]:
            x = activate(layer(x), self.architecture.activation)
        out: Tensor = layers[-1](x)
        return out

    def _logp_entropy(self, head: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        layout = self.layout
        if layout.scalar:
            logs = torch.log_softmax(head, dim=-1)
            logp = logs.gather(1, actions.unsqueeze(1)).squeeze(1)
            return logp, -(logs.exp() * logs).sum(-1)
        if not layout.choice_columns:
            return self._of_reals(head, actions)
        logits = head[:, self._grid]
        if self._uneven:
            logits = logits.masked_fill(self._absent, float(NO_CHOICE))
        logs = torch.log_softmax(logits, dim=-1)
        choices = actions[:, list(layout.choice_columns)].long()
        logp = logs.gather(2, choices.unsqueeze(2)).squeeze(2).sum(-1)
        entropies = -(logs.exp() * logs).sum((1, 2))
        if layout.real_columns:
            means, reals = head[:, layout.logits :], actions[:, list(layout.real_columns)]
            logp_reals, entropy = self._of_reals(means, reals)
            return logp + logp_reals, entropies + entropy
        return logp, entropies

    def _of_reals(self, means: Tensor, reals: Tensor) -> tuple[Tensor, Tensor]:
        if self.log_std is None:
            raise ValueError("actions of this layout have no real numbers")
        scaled = (reals - means) * torch.exp(-self.log_std)
        logp = (-0.5 * scaled.square() - self.log_std - HALF_LOG_2PI).sum(-1)
        return logp, (self.log_std + 0.5 + HALF_LOG_2PI).sum()
