"""Losses of SAC and TD3 in closed form; gradients are written to those of the policy's parameters.

The losses are those in torch (`trainables.algorithms.sac`, `trainables.algorithms.td3`), up to
rounding. B rows, K numbers of an action, A choices.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.learners.fused.squashed import SquashedGaussians, StateDependentGaussians
from trainables.learners.fused.stacks import Stack
from trainables.policies.acting.distributions import log_softmax
from trainables.policies.bounded.acting import Bounds

if TYPE_CHECKING:
    import torch

    from trainables.policies.bounded.twins import Twins

Array = NDArray[Any]
#: Name of a column → its rows (B, …).
Rows = Mapping[str, Array]


class SoftLosses(ABC):
    """Base class of SAC's losses in numpy, computed for one batch after the other.

    `begin` must be called first for each batch: it runs the actor on the observations and, after
    them, on the next observations. The temperature is adapted to the `target_entropy`, nats.
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

    def begin(self, rows: Rows, stream: np.random.Generator) -> None:
        """Run the actor on a batch's observations and next observations, and draw actions.

        The results are kept for the other methods, among them the temperature `alpha` and the mean
        `entropy` of the observations' distributions. Actions that are choices are not drawn.
        """
        self.count = len(rows["rewards"])
        both = np.concatenate([rows["observations"], rows["new_obs"]]).astype(self.kind, copy=False)
        self.alpha = float(np.exp(self.log_alpha[0]))
        self.units = self.actor_net.forward(both)
        self.entropy = float(self.entropies(stream)[: self.count].mean())

    def critics(self, rows: Rows) -> tuple[float, float]:
        """Write the gradient of the critics for the batch `rows`.

        Returns half the squared errors, summed over both critics and averaged over rows; and the
        mean value that both critics give to the actions taken.
        """
        targets = critic_targets(rows, self.next_values(), self.gamma, self.kind)
        units, taken = self.run_critics(rows)
        q = units[-1][:, taken[0], taken[1]]
        errors = q - targets
        by_outputs = np.zeros_like(units[-1])
        by_outputs[:, taken[0], taken[1]] = errors / self.count
        self.critic_nets.backward(units, by_outputs)
        return 0.5 * float(np.square(errors).sum()) / self.count, float(q.mean())

    def temperature(self) -> None:
        """Write the gradient of the temperature's loss, log(alpha) · (entropy - target)."""
        self._by_log_alpha[:] = self.entropy - self.target_entropy

    @abstractmethod
    def entropies(self, stream: np.random.Generator) -> Array:
        """Return the entropies (2B,) of the actor's distributions, or estimates by one draw.

        The rows are the observations, then the next observations. The computed and drawn arrays are
        kept for `next_values` and `actor`.
        """

    @abstractmethod
    def next_values(self) -> Array:
        """Return the soft values (B,) of the next observations, by the target critics."""

    @abstractmethod
    def run_critics(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """Run the critics for the actions taken.

        Returns inputs and outputs of the critics' layers, and the index of the outputs (2, B, …)
        that value the actions taken.
        """

    @abstractmethod
    def actor(self) -> float:
        """Write the gradient of the actor's loss, the mean of alpha log p - min Q.

        Return the loss.
        """

    @property
    def actor_layers(self) -> list[Array]:
        """Inputs and outputs of the actor's layers for the batch's observations, each (B, …)."""
        return [one[: self.count] for one in self.units]


class SoftLossesOfNumbers(SoftLosses):
    """SAC's losses for real numbers between bounds, drawn from a squashed Gaussian."""

    def __init__(self, model: "Twins", gamma: float, target_entropy: float, bounds: Bounds) -> None:
        super().__init__(model, gamma, target_entropy)
        self.bounds, self.features = bounds, model.architecture.features
        self.drawer: SquashedGaussians | StateDependentGaussians = SquashedGaussians()
        if model.has_state_dependent_noise:
            self.drawer = StateDependentGaussians(*view(model.actor_log_std))

    def entropies(self, stream: np.random.Generator) -> Array:
        """Draw actions; return minus their log-probabilities, (2B,).

        Both are kept for `next_values` and `actor`.
        """
        self.drawn, self.logp = self.drawer.draw(self.units, len(self.bounds.low), stream)
        return -self.logp

    def next_values(self) -> Array:
        """Return the lower target critic's values (B,) of drawn actions, plus entropy terms."""
        x = np.concatenate([self.units[0], self.drawn], axis=1)[self.count :]
        least: Array = self.target_nets.forward(x)[-1][..., 0].min(axis=0)
        return least - self.alpha * self.logp[self.count :]

    def run_critics(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """Run the critics, which have one output, for the actions taken.

        Returns inputs and outputs of their layers, and the index of outputs that value these
        actions.
        """
        actions = self.bounds.unscaled(rows["actions"]).astype(self.kind, copy=False)
        x = np.concatenate([self.units[0][: self.count], actions], axis=1)
        return self.critic_nets.forward(x), (np.arange(self.count), 0)

    def actor(self) -> float:
        """Write the gradient of the actor, through the lower critic and the drawn actions.

        Returns the loss.
        """
        count, logp = self.count, self.logp[: self.count]
        x = np.concatenate([self.units[0], self.drawn], axis=1)[:count]
        units = self.critic_nets.forward(x)
        q = units[-1][..., 0]
        lower = q[0] <= q[1]
        by_q = (np.stack([lower, ~lower]) * self.kind.type(-1.0 / count))[..., None]
        by_drawn = self.critic_nets.by_inputs(units, by_q, slice(self.features, None)).sum(axis=0)
        found = self.drawer.gradient(count, by_drawn, self.alpha / count)
        self.actor_net.backward(self.actor_layers, *found)
        return float((self.alpha * logp - q.min(axis=0)).mean())


class SoftLossesOfChoices(SoftLosses):
    """SAC's losses for A choices, as expectations over their probabilities."""

    def entropies(self, stream: np.random.Generator) -> Array:
        """Return the entropies (2B,) of the distributions; nothing is drawn.

        The probabilities are kept for `next_values` and `actor`.
        """
        self.logs = log_softmax(self.units[-1])
        self.shares = np.exp(self.logs)
        entropies: Array = -(self.shares * self.logs).sum(axis=1)
        return entropies

    def next_values(self) -> Array:
        """Return the expected values (B,) of the lower target critic, plus the entropy terms."""
        shares, logs = self.shares[self.count :], self.logs[self.count :]
        least = self.target_nets.forward(self.units[0][self.count :])[-1].min(axis=0)
        expected: Array = (shares * (least - self.alpha * logs)).sum(axis=1)
        return expected

    def run_critics(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """Run the critics, which have one output per choice.

        Returns inputs and outputs of their layers, and the index of outputs that value the actions
        taken.
        """
        units = self.critic_nets.forward(self.units[0][: self.count])
        return units, (np.arange(self.count), rows["actions"])

    def actor(self) -> float:
        """Write the gradient of the actor, whose loss is an expectation over choices.

        Return the loss.
        """
        shares, logs = self.shares[: self.count], self.logs[: self.count]
        costs = self.alpha * logs - self.critic_nets.forward(self.actor_layers[0])[-1].min(axis=0)
        each = (shares * costs).sum(axis=1, keepdims=True)
        self.actor_net.backward(self.actor_layers, shares * (costs - each) / self.count)
        return float(each.mean())


def view(parameter: "torch.Tensor") -> tuple[Array, Array]:
    """Return a torch parameter and a new zero gradient of it, as numpy views."""
    import torch

    parameter.grad = torch.zeros_like(parameter)
    return parameter.detach().numpy(), parameter.grad.numpy()


class DelayedLosses:
    """TD3's losses in numpy, with gradients in closed form.

    Args:
        smoothing: standard deviation of the noise on the target's action, and bound of that noise.
        bounds: bounds of real actions.
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
        """Write the gradient of the critics for a batch (B, …); draw the noise on target actions.

        Returns the squared errors, summed over both critics and averaged over rows; and the mean
        value that both critics give to the actions taken.
        """
        kind, count = self.kind, len(rows["rewards"])
        deviation, clip = self.smoothing
        following = rows["new_obs"].astype(kind, copy=False)
        best = np.tanh(self.target_actor.forward(following)[-1])
        noise = deviation * stream.standard_normal(best.shape, np.float32).astype(kind)
        noise = noise.clip(-clip, clip)
        x = np.concatenate([following, (best + noise).clip(-1, 1)], axis=1)
        least = self.targets.forward(x)[-1][..., 0].min(axis=0)
        targets = critic_targets(rows, least, self.gamma, kind)
        taken = self.bounds.unscaled(rows["actions"])
        x = np.concatenate([rows["observations"], taken], axis=1).astype(kind, copy=False)
        units = self.critic_nets.forward(x)
        errors = units[-1][..., 0] - targets
        self.critic_nets.backward(units, errors[..., None] * (2.0 / count))
        return float(np.square(errors).sum()) / count, float(units[-1].mean())

    def actor(self, rows: Rows) -> float:
        """Write the gradient of the actor; return its loss, the mean of -Q by the first critic."""
        seen = self.actor_net.forward(rows["observations"].astype(self.kind, copy=False))
        best = np.tanh(seen[-1])
        units = self.critic_nets.forward(np.concatenate([seen[0], best], axis=1), first=1)
        error = np.full_like(units[-1], -1.0 / len(best))
        by_best = self.critic_nets.by_inputs(units, error, slice(self.features, None))[0]
        self.actor_net.backward(seen, by_best * (1.0 - np.square(best)))
        return -float(units[-1].mean())


def critic_targets(rows: Rows, following: Array, gamma: float, kind: np.dtype[Any]) -> Array:
    """Return the critics' targets (B,), of dtype `kind`: rewards plus discounted next values.

    `following` (B,) are the values of ``new_obs``; terminated rows have no next value. Truncated
    rows do: their ``new_obs`` is the episode's final observation.
    """
    return (rows["rewards"] + gamma * following * ~rows["terminated"]).astype(kind)
