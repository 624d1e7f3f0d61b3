"""Distributions of actions of a person's own, and ones that break their contract."""

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn.functional import softplus


class Beta:
    """The one of docs/own-networks.md: real numbers that never leave their bounds."""

    @staticmethod
    def num_inputs(action_space: Any) -> int:
        return 2 * int(np.prod(action_space.shape))

    def __init__(self, inputs: Tensor, action_space: Any) -> None:
        self.low = torch.as_tensor(action_space.low).reshape(-1)
        self.width = torch.as_tensor(action_space.high).reshape(-1) - self.low
        a, b = (1.0 + softplus(inputs)).chunk(2, dim=-1)
        self.beta = torch.distributions.Beta(a, b)

    def sample(self) -> Tensor:
        drawn: Tensor = self.beta.sample()
        return self.low + self.width * drawn

    def greedy(self) -> Tensor:
        return self.low + self.width * self.beta.mean

    def logp(self, actions: Tensor) -> Tensor:
        inside = ((actions - self.low) / self.width).clamp(1e-6, 1.0 - 1e-6)
        each: Tensor = self.beta.log_prob(inside) - self.width.log()  # type: ignore[no-untyped-call]
        return each.sum(-1)

    def entropy(self) -> Tensor:
        each: Tensor = self.beta.entropy() + self.width.log()  # type: ignore[no-untyped-call]
        return each.sum(-1)


class Tempered:
    """Choices, drawn at half the temperature."""

    scale: ClassVar[float] = 2.0

    @staticmethod
    def num_inputs(action_space: spaces.Discrete) -> int:
        return int(action_space.n)

    def __init__(self, inputs: Tensor, action_space: Any) -> None:
        self.of = torch.distributions.Categorical(logits=self.scale * inputs)

    def sample(self) -> Tensor:
        return self.of.sample()  # type: ignore[no-any-return, no-untyped-call]

    def greedy(self) -> Tensor:
        return self.of.logits.argmax(-1)

    def logp(self, actions: Tensor) -> Tensor:
        return self.of.log_prob(actions)  # type: ignore[no-any-return, no-untyped-call]

    def entropy(self) -> Tensor:
        return self.of.entropy()  # type: ignore[no-any-return, no-untyped-call]


class Columns(Tempered):
    def sample(self) -> Tensor:
        return super().sample()[:, None]


class Beyond(Tempered):
    def sample(self) -> Tensor:
        return super().sample() + 1

    def logp(self, actions: Tensor) -> Tensor:
        return super().logp(actions - 1)


class ByNumpy(Tempered):
    def sample(self) -> Tensor:
        return super().sample() * 0 + int(np.random.randint(2))  # noqa: NPY002 what is refused


class Endless(Tempered):
    scale = 1e38

    def entropy(self) -> Tensor:
        return super().entropy() / 0.0


class Deaf(Tempered):
    def logp(self, actions: Tensor) -> Tensor:
        return super().logp(actions).detach()


class Silent(Tempered):
    entropy = None  # type: ignore[assignment]


class Countless(Tempered):
    @staticmethod
    def num_inputs(action_space: spaces.Discrete) -> int:
        return 0
