"""Soft actor-critic (Haarnoja et al. 2018, 2019), for choices as well (Christodoulou 2019).

One round: sample → store → updates, each of which draws a batch and moves the critics, the actor,
the temperature and, a little, the targets. B rows, D features, K numbers of an action, A choices.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError
from trainables.learners.fused.squashed import SquashedGaussians, StateDependentGaussians
from trainables.learners.fused.stacks import Stack
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import (
    Bounds,
    GaussianPolicyConfig,
    SquashedGaussian,
    StateDependentNoise,
    make_bounded_actor,
    make_choosing_actor,
)
from trainables.policies.distributions import log_softmax
from trainables.trainer.config import TrainerConfig
from trainables.trainer.off_policy import OffPolicyConfig, OffPolicyTrainer, valued
from trainables.trainer.trainer import Stateful

if TYPE_CHECKING:
    import torch

    from trainables.policies.bounded.twins import TwinsPolicy

Array = NDArray[Any]
Rows = Mapping[str, Array]
#: Of the most entropy that choices can have: the target for them. With the published 0.98 no choice
#: may be clear, and where it has to be (CartPole) the temperature grows without end.
SHARE_OF_ENTROPY = 0.5


class Config(OffPolicyConfig):
    """Settings of SAC; the defaults are the published ones, but for choices."""

    schedule: ScheduleConfig = ScheduleConfig(lr=3e-4)
    exploration_config: GaussianPolicyConfig = Field(
        default=GaussianPolicyConfig(),
        description="How actions are tried while experience is collected.",
    )
    initial_alpha: float = Field(
        default=1.0,
        gt=0,
        description="Temperature at first: reward that a unit of entropy is worth; 0.01 to 1.",
    )
    learn_alpha: bool = Field(
        default=True,
        description="Whether the temperature is learnt, so that entropy comes to target_entropy.",
    )
    target_entropy: float | None = Field(
        default=None,
        description="Entropy of an action, squashed to (-1, 1), in nats; null: -1 for each of its "
        "numbers, or half of the most that choices can have.",
    )


class SAC(OffPolicyTrainer):
    """Soft actor-critic."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    settings: Config

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for actions that are neither one choice nor numbers with bounds."""
        if not spaces.layout.scalar:
            Bounds.of(spaces.action)
        elif isinstance(settings, Config) and settings.exploration_config.type != (
            allowed := "StochasticSampling"
        ):
            hint = f"{spaces.action} is a choice, to which no noise is added"
            kind = settings.exploration_config.type
            raise ConfigError("exploration_config.type", kind, f"{allowed} here", hint)

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError also for a target that nothing follows."""
        super().validate_config(settings)
        if not isinstance(settings, Config) or settings.learn_alpha:
            return
        if settings.target_entropy is not None:
            hint = "the temperature is initial_alpha for ever"
            value = settings.target_entropy
            raise ConfigError("target_entropy", value, "null with learn_alpha: false", hint)

    def make_policy(self, device: "torch.device") -> "TwinsPolicy":
        """Actor, critics, their targets, and the logarithm of the temperature."""
        from trainables.policies.bounded.twins import Twins, TwinsPolicy

        of, layout, shape = self.settings, self.spaces.layout, self.architecture
        explored, stream = of.exploration_config, rng.torch_generator(self.seed, "init")
        alpha = math.log(of.initial_alpha)
        if layout.scalar:
            actor = partial(make_choosing_actor, layout, shape, explored)
            head, log_std = layout.logits, None
        else:
            follows = explored.type == "StateDependentNoise"
            kind = StateDependentNoise if follows else SquashedGaussian
            limits = Bounds.of(self.spaces.action)
            actor = partial(make_bounded_actor, kind, layout, shape, limits, explored)
            head = len(layout.sizes) * (1 if follows else 2)
            log_std = explored.log_std_init if follows else None
        model = Twins(
            layout,
            shape,
            head,
            stream,
            bounded=not layout.scalar,
            log_std=log_std,
            log_alpha=alpha,
        )
        return TwinsPolicy(model, actor, of.optimizer)

    def make_parts(self) -> dict[str, Stateful]:
        """The replay."""
        kind = LossesOfChoices if self.spaces.layout.scalar else LossesOfNumbers
        self.losses: Losses = kind(self.policy, self.settings, self.spaces)
        return super().make_parts()

    def update(self, rows: Rows) -> dict[str, float]:
        """One step of the critics, the actor and the temperature; the targets follow."""
        of, losses, policy = self.settings, self.losses, self.policy
        losses.look(rows, self.streams["update"])
        critic_loss, q = losses.critics(rows)
        norm = policy.descend(self.critic_learning_rate, of.grad_clip, "critics")
        actor_loss = losses.actor()
        policy.descend(self.learning_rate, of.grad_clip, "actor")
        if of.learn_alpha:
            losses.temperature()
            policy.descend(self.learning_rate, None, "log_alpha")
        policy.model.follow(of.tau)
        return {
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "mean_q": q,
            "entropy": losses.entropy,
            "alpha": losses.alpha,
            "critic_grad_norm": norm,
        }


class Losses:
    """The losses of one batch after the other, whose gradients are left to the optimisers.

    `look` comes first: the actor's view of this step's observations and, behind them, of the next.
    """

    def __init__(self, policy: "TwinsPolicy", settings: Config, spaces: EnvSpaces) -> None:
        model, activation = policy.model, policy.model.architecture.activation
        self.actor_net = Stack(model.actor, activation)
        self.critic_nets = Stack(model.critics, activation)
        self.target_nets = Stack(model.targets, activation, learns=False)
        self.gamma, self.kind = settings.gamma, self.actor_net.kind
        self.log_alpha, self._by_log_alpha = view(model.log_alpha)
        given = settings.target_entropy
        self.target_entropy = self.usual_target(spaces) if given is None else given
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

    @staticmethod
    def usual_target(spaces: EnvSpaces) -> float:
        """The target entropy of such actions."""
        raise NotImplementedError

    def entropies(self, stream: np.random.Generator) -> Array:
        """(2B,) of the actor's heads, or estimates of them by one draw."""
        raise NotImplementedError

    def following(self) -> Array:
        """(B,) soft values of the next observations, by the targets."""
        raise NotImplementedError

    def taken(self, rows: Rows) -> tuple[list[Array], tuple[Array, Any]]:
        """The critics' layers, and which of their outputs (2, B, …) value what was done."""
        raise NotImplementedError

    def actor(self) -> float:
        """The mean of alpha log p - min Q of what the actor would do."""
        raise NotImplementedError

    @property
    def first(self) -> list[Array]:
        """The actor's layers for this step's observations."""
        return [one[: self.count] for one in self.units]


class LossesOfNumbers(Losses):
    """Where an action is real numbers, drawn from a squashed Gaussian."""

    def __init__(self, policy: "TwinsPolicy", settings: Config, spaces: EnvSpaces) -> None:
        super().__init__(policy, settings, spaces)
        self.bounds = Bounds.of(spaces.action)
        self.features = policy.model.architecture.features
        self.drawer: SquashedGaussians | StateDependentGaussians = SquashedGaussians()
        if settings.exploration_config.type == "StateDependentNoise":
            self.drawer = StateDependentGaussians(*view(policy.model.actor_log_std))

    @staticmethod
    def usual_target(spaces: EnvSpaces) -> float:
        """-1 for each number."""
        return -float(len(spaces.layout.sizes))

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


class LossesOfChoices(Losses):
    """Where an action is one of A choices: all are weighed by their probabilities."""

    @staticmethod
    def usual_target(spaces: EnvSpaces) -> float:
        """A share of the most that there can be."""
        return SHARE_OF_ENTROPY * math.log(spaces.layout.logits)

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
