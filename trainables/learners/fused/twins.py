"""Losses of SAC and TD3 in closed form: gradients where the policy's optimisers take them.

The same losses as in torch (`trainables.algorithms.sac`, `trainables.algorithms.td3`), up to
rounding. B rows, K numbers of an action.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.learners.fused.squashed import SquashedGaussians, StateDependentGaussians
from trainables.learners.fused.stacks import Stack
from trainables.policies.bounded.acting import Bounds
from trainables.policies.distributions import log_softmax

if TYPE_CHECKING:
    import torch

    from trainables.policies.bounded.twins import Twins

Array = NDArray[Any]
Rows = Mapping[str, Array]


class SoftLosses(ABC):
    """SAC's losses of one batch after the other.

    `look` comes first: the actor's view of this step's observations and, behind them, of the next.

    Args:
        model: the networks.
        gamma: discount.
        target_entropy: of the actor, to which the temperature leads.
    """

    def __init__(self, model: "Twins", gamma: float, target_entropy: float) -> None:
        activation = model.architecture.activation
        self.actor_net = Stack(model.actor, activation)
        self.critic_nets = Stack(model.critics, activation)
        self.target_nets = Stack(model.targets, activation, learns=False)
        self.gamma, self.kind = gamma, self.actor_net.kind
        self.log_alpha, self._by_log_alpha = view(model.log_alpha)
        self.target_entropy = target_entropy
        self.alpha, self.entropy, self.count = 1.0, 0.0, 0
        self.units: list[Array] = []

    def look(self, rows: Rows, stream: np.random.Generator) -> None:
        """Run the actor as it is on all observations, and draw what it would do."""
        self.count = len(rows["rewards"])
        both = np.concatenate([rows["observations"], rows["new_obs"]]).astype(self.kind, copy=False)
        self.alpha = float(np.exp(self.log_alpha[0]))
        self.units = self.actor_net.forward(both)
        self.entropy = float(self.entropies(stream)[: self.count].mean())

    def critics(self, rows: Rows) -> tuple[float, float]:
        """Half the squared errors of both critics, averaged over rows; and their mean value."""
        targets = valued(rows, self.following(), self.gamma, self.kind)
        units, taken = self.taken(rows)
        q = units[-1][:, taken[0], taken[1]]
        errors = q - targets
        by_outputs = np.zeros_like(units[-1])
        by_outputs[:, taken[0], taken[1]] = errors / self.count
        self.critic_nets.backward(units, by_outputs)
        return 0.5 * float(np.square(errors).sum()) / self.count, float(q.mean())

    def temperature(self) -> None:
        """The logarithm of alpha times how far the entropy is above its target."""
        self._by_log_alpha[:] = self.entropy - self.target_entropy

    @abstractmethod
    def entropies(self, stream: np.random.Generator) -> Array:
        """(2B,) of the actor's heads, or estimates of them by one draw."""

    @abstractmethod
    def following(self) -> Array:
        """(B,) soft values of the next observations, by the targets."""

    @abstractmethod
    def taken(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """The critics' layers, and which of their outputs (2, B, …) value what was done."""

    @abstractmethod
    def actor(self) -> float:
        """The mean of alpha log p - min Q of what the actor would do."""

    @property
    def first(self) -> list[Array]:
        """The actor's layers for this step's observations."""
        return [one[: self.count] for one in self.units]


class SoftLossesOfNumbers(SoftLosses):
    """Soft losses where an action is real numbers between `bounds`, of a squashed Gaussian."""

    def __init__(self, model: "Twins", gamma: float, target_entropy: float, bounds: Bounds) -> None:
        super().__init__(model, gamma, target_entropy)
        self.bounds, self.features = bounds, model.architecture.features
        self.drawer: SquashedGaussians | StateDependentGaussians = SquashedGaussians()
        if model.follows_state:
            self.drawer = StateDependentGaussians(*view(model.actor_log_std))

    def entropies(self, stream: np.random.Generator) -> Array:
        """(2B,) minus the log-probabilities of what is drawn."""
        self.drawn, self.logp = self.drawer.draw(self.units, len(self.bounds.low), stream)
        return -self.logp

    def following(self) -> Array:
        """(B,) what the lower target says of the drawn action, with its entropy."""
        x = np.concatenate([self.units[0], self.drawn], axis=1)[self.count :]
        least: Array = self.target_nets.forward(x)[-1][..., 0].min(axis=0)
        return least - self.alpha * self.logp[self.count :]

    def taken(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """Critics of the actions that were taken have one output."""
        actions = self.bounds.unscaled(rows["actions"]).astype(self.kind, copy=False)
        x = np.concatenate([self.units[0][: self.count], actions], axis=1)
        return self.critic_nets.forward(x), (np.arange(self.count), 0)

    def actor(self) -> float:
        """The gradient goes through the lower critic to what was drawn."""
        count, logp = self.count, self.logp[: self.count]
        x = np.concatenate([self.units[0], self.drawn], axis=1)[:count]
        units = self.critic_nets.forward(x)
        q = units[-1][..., 0]
        lower = q[0] <= q[1]
        by_q = (np.stack([lower, ~lower]) * self.kind.type(-1.0 / count))[..., None]
        by_drawn = self.critic_nets.by_inputs(units, by_q, slice(self.features, None)).sum(axis=0)
        found = self.drawer.gradient(count, by_drawn, self.alpha / count)
        self.actor_net.backward(self.first, *found)
        return float((self.alpha * logp - q.min(axis=0)).mean())


class SoftLossesOfChoices(SoftLosses):
    """Soft losses where an action is one of A choices, weighed by their probabilities."""

    def entropies(self, stream: np.random.Generator) -> Array:
        """(2B,) of the distributions; nothing is drawn."""
        self.logs = log_softmax(self.units[-1])
        self.shares = np.exp(self.logs)
        entropies: Array = -(self.shares * self.logs).sum(axis=1)
        return entropies

    def following(self) -> Array:
        """(B,) expected values, by the lower target of each choice, with the entropy."""
        shares, logs = self.shares[self.count :], self.logs[self.count :]
        least = self.target_nets.forward(self.units[0][self.count :])[-1].min(axis=0)
        expected: Array = (shares * (least - self.alpha * logs)).sum(axis=1)
        return expected

    def taken(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """Critics have one output for each choice."""
        units = self.critic_nets.forward(self.units[0][: self.count])
        return units, (np.arange(self.count), rows["actions"])

    def actor(self) -> float:
        """The gradient of an expected value, by the logits."""
        shares, logs = self.shares[: self.count], self.logs[: self.count]
        costs = self.alpha * logs - self.critic_nets.forward(self.first[0])[-1].min(axis=0)
        each = (shares * costs).sum(axis=1, keepdims=True)
        self.actor_net.backward(self.first, shares * (costs - each) / self.count)
        return float(each.mean())


def view(parameter: "torch.Tensor") -> tuple[Array, Array]:
    """A parameter and its gradient, in torch's memory."""
    import torch

    parameter.grad = torch.zeros_like(parameter)
    return parameter.detach().numpy(), parameter.grad.numpy()


class DelayedLosses:
    """TD3's losses.

    Args:
        model: the networks.
        gamma: discount.
        smoothing: standard deviation of what is added to the target's action, and the bound on it.
        bounds: of the numbers of an action.
    """

    def __init__(
        self, model: "Twins", gamma: float, smoothing: tuple[float, float], bounds: Bounds
    ) -> None:
        activation = model.architecture.activation
        self.actor_net = Stack(model.actor, activation)
        self.critic_nets = Stack(model.critics, activation)
        self.targets = Stack(model.targets, activation, learns=False)
        self.target_actor = Stack(model.target_actor, activation, learns=False)
        self.gamma, self.smoothing, self.kind = gamma, smoothing, self.actor_net.kind
        self.features, self.bounds = model.architecture.features, bounds

    def critics(self, rows: Rows, stream: np.random.Generator) -> tuple[float, float]:
        """The squared errors of both critics, averaged over rows; and their mean value."""
        kind, count = self.kind, len(rows["rewards"])
        deviation, clip = self.smoothing
        following = rows["new_obs"].astype(kind, copy=False)
        best = np.tanh(self.target_actor.forward(following)[-1])
        noise = deviation * stream.standard_normal(best.shape, np.float32).astype(kind)
        noise = noise.clip(-clip, clip)
        x = np.concatenate([following, (best + noise).clip(-1, 1)], axis=1)
        least = self.targets.forward(x)[-1][..., 0].min(axis=0)
        targets = valued(rows, least, self.gamma, kind)
        taken = self.bounds.unscaled(rows["actions"])
        x = np.concatenate([rows["observations"], taken], axis=1).astype(kind, copy=False)
        units = self.critic_nets.forward(x)
        errors = units[-1][..., 0] - targets
        self.critic_nets.backward(units, errors[..., None] * (2.0 / count))
        return float(np.square(errors).sum()) / count, float(units[-1].mean())

    def actor(self, rows: Rows) -> float:
        """The mean of -Q of what the actor would do, by the first critic."""
        seen = self.actor_net.forward(rows["observations"].astype(self.kind, copy=False))
        best = np.tanh(seen[-1])
        units = self.critic_nets.forward(np.concatenate([seen[0], best], axis=1), first=1)
        error = np.full_like(units[-1], -1.0 / len(best))
        by_best = self.critic_nets.by_inputs(units, error, slice(self.features, None))[0]
        self.actor_net.backward(seen, by_best * (1.0 - np.square(best)))
        return -float(units[-1].mean())


def valued(rows: Rows, following: Array, gamma: float, kind: np.dtype[Any]) -> Array:
    """(B,) targets: reward and discounted value of what follows, which an episode's end has not.

    An episode that was cut off goes on: its last row has its true next observation.
    """
    return (rows["rewards"] + gamma * following * ~rows["terminated"]).astype(kind)
