"""Soft actor-critic (Haarnoja et al. 2018, 2019), for choices as well (Christodoulou 2019).

One round: sample → store → updates, each of which draws a batch and moves the critics, the actor,
the temperature and, a little, the targets. B rows, D features, K numbers of an action, A choices.
"""

import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError
from trainables.learners.compiling import compiled
from trainables.learners.fused.twins import SoftLossesOfChoices, SoftLossesOfNumbers
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import (
    Bounds,
    GaussianPolicyConfig,
    SquashedGaussian,
    StateDependentNoise,
    make_bounded_actor,
    make_choosing_actor,
)
from trainables.trainer.config import TrainerConfig
from trainables.trainer.off_policy import OffPolicyConfig, OffPolicyTrainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.bounded.twins import Twins, TwinsPolicy

Rows = Mapping[str, NDArray[Any]]
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

    @property
    def exploration(self) -> str:
        """The type of ``exploration_config``."""
        return self.exploration_config.type


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

    def make_policy(self, device: str) -> "TwinsPolicy":
        """Actor, critics, their targets, and the logarithm of the temperature."""
        from trainables.policies.bounded.twins import Twins, TwinsPolicy

        of, layout, shape = self.settings, self.spaces.layout, self.architecture
        explored, limits = of.exploration_config.until_learning(of.replay.learning_starts), None
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
            self.seed,
            limits=limits,
            log_std=log_std,
            log_alpha=math.log(of.initial_alpha),
        )
        return TwinsPolicy(model, actor, of.optimizer, device)

    @property
    def losses(self) -> "Losses":
        """The losses, which compute gradients."""
        return self._fused_losses if self.is_fused else self._torch_losses

    @cached_property
    def _fused_losses(self) -> "Losses":
        model = self.policy.model
        given = model, self.settings.gamma, self.target_entropy
        if model.limits is None:
            return SoftLossesOfChoices(*given)
        return SoftLossesOfNumbers(*given, model.limits)

    @cached_property
    def _torch_losses(self) -> "Losses":
        return TorchLosses(self.policy, self.settings, self.target_entropy)

    @property
    def target_entropy(self) -> float:
        """To which the temperature leads."""
        layout, given = self.spaces.layout, self.settings.target_entropy
        if given is not None:
            return given
        if layout.scalar:
            return SHARE_OF_ENTROPY * math.log(layout.logits)
        return -float(len(layout.sizes))

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


class Losses(Protocol):
    """The losses of one batch after the other, whose gradients are left to the optimisers."""

    alpha: float
    """The temperature."""
    entropy: float
    """Of the actor, the mean over this step's observations; known after `actor`."""

    def look(self, rows: Rows, stream: np.random.Generator) -> None:
        """Begin with a batch (B, …), and draw what the actor would do."""

    def critics(self, rows: Rows) -> tuple[float, float]:
        """Half the squared errors of both critics, averaged over rows; and their mean value."""

    def actor(self) -> float:
        """The mean of alpha log p - min Q of what the actor would do."""

    def temperature(self) -> None:
        """The logarithm of alpha times how far the entropy is above its target."""


class TorchLosses:
    """The losses by torch's gradients, wherever the policy learns."""

    def __init__(self, policy: "TwinsPolicy", settings: Config, target_entropy: float) -> None:
        self.policy, self.gamma, self.target_entropy = policy, settings.gamma, target_entropy
        self.alpha = self.entropy = 0.0
        self._batch: dict[str, Tensor] = {}
        self._critic_loss, self._actor_loss = critic_loss, actor_loss
        if settings.learner_compile:
            self._critic_loss, self._actor_loss = compiled(critic_loss), compiled(actor_loss)

    def look(self, rows: Rows, stream: np.random.Generator) -> None:
        """As `Losses.look`."""
        model = self.policy.model
        self._batch = self.policy.tensors(rows)
        self._batch["alpha"] = model.log_alpha.detach().exp()
        self.alpha = self._batch["alpha"].item()
        if model.limits is not None:
            shape = model.noise_shape(2 * len(rows["rewards"]))
            noise = self.policy.tensors({"noise": stream.standard_normal(shape, np.float32)})
            both = [noise["noise"]] * 2 if model.follows_state else noise["noise"].chunk(2)
            self._batch |= dict(zip(("noise", "next_noise"), both, strict=True))

    def critics(self, rows: Rows) -> tuple[float, float]:
        """As `Losses.critics`."""
        loss, q = self._critic_loss(self.policy.model, self._batch, self.gamma)
        self.policy.differentiate(loss, "critics")
        return loss.item(), q.item()

    def actor(self) -> float:
        """As `Losses.actor`."""
        loss, entropy = self._actor_loss(self.policy.model, self._batch)
        self.policy.differentiate(loss, "actor")
        self.entropy = entropy.item()
        return loss.item()

    def temperature(self) -> None:
        """As `Losses.temperature`."""
        by = self.policy.model.log_alpha
        self.policy.differentiate((by * (self.entropy - self.target_entropy)).sum(), "log_alpha")


def critic_loss(
    model: "Twins", batch: "Mapping[str, Tensor]", gamma: float
) -> "tuple[Tensor, Tensor]":
    """Half the squared errors () of both critics, averaged over rows; and their mean value ()."""
    import torch

    with torch.no_grad():
        following, _ = soft_values(
            model, batch["new_obs"], batch.get("next_noise"), batch["alpha"], slow=True
        )
        goal = batch["rewards"] + gamma * following * ~batch["terminated"]
    seen, actions = batch["observations"], batch["actions"]
    if model.limits is None:
        q = model.judge(seen)[:, torch.arange(len(actions), device=actions.device), actions]
    else:
        q = model.judge(seen, model.unit(actions).to(seen.dtype))
    return 0.5 * (q - goal).square().mean(1).sum(), q.detach().mean()


def actor_loss(model: "Twins", batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Tensor]":
    """The mean () of alpha log p - min Q of what the actor would do; and of its entropies ()."""
    seen, noise = batch["observations"], batch.get("noise")
    values, entropies = soft_values(model, seen, noise, batch["alpha"])
    return -values.mean(), entropies.detach().mean()


def soft_values(
    model: "Twins",
    observations: "Tensor",
    noise: "Tensor | None",
    alpha: "Tensor",
    slow: bool = False,
) -> "tuple[Tensor, Tensor]":
    """(B,) what the lower critic says of what the actor would do, with its entropy; the entropies.

    Of real numbers both are estimated by one draw; `slow`: by the critics that follow.
    """
    if noise is not None:
        drawn, logp = model.draw(observations, noise)
        least = model.judge(observations, drawn, slow).min(dim=0).values
        return least - alpha * logp, -logp
    logs = model.heads(observations)[0].log_softmax(1)
    least = model.judge(observations, slow=slow).min(dim=0).values
    return (logs.exp() * (least - alpha * logs)).sum(1), -(logs.exp() * logs).sum(1)
