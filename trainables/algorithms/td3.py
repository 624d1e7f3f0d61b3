"""TD3 (Fujimoto et al. 2018): twin critics, a policy that follows late, targets that are smoothed.

One round: sample → store → updates, each of which draws a batch and moves the critics; every
`policy_delay`-th moves the actor and, a little, the targets. B rows, D features, K numbers.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.envs.make import EnvSpaces
from trainables.learners.compiling import compiled
from trainables.learners.fused.twins import DelayedLosses
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import (
    ActionNoise,
    ActionNoiseConfig,
    Bounds,
    Perturbed,
    make_bounded_actor,
)
from trainables.trainer.config import TrainerConfig
from trainables.trainer.off_policy import OffPolicyConfig, OffPolicyTrainer
from trainables.trainer.trainer import Stateful

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.bounded.twins import Twins, TwinsPolicy

Rows = Mapping[str, NDArray[Any]]


class Config(OffPolicyConfig):
    """Settings of TD3; the defaults are the published ones."""

    schedule: ScheduleConfig = ScheduleConfig(lr=1e-3)
    exploration_config: ActionNoiseConfig = Field(
        default=ActionNoiseConfig(),
        description="How actions are tried while experience is collected.",
    )
    policy_delay: int = Field(
        default=2, gt=0, description="Updates of the critics for one of the actor; 1 to 4."
    )
    target_noise: float = Field(
        default=0.2,
        ge=0,
        description="Standard deviation of what is added to the target's action, in shares of half "
        "the action's range; 0.1 to 0.3.",
    )
    target_noise_clip: float = Field(
        default=0.5, ge=0, description="Bound on what is added, in the same shares; 0.3 to 0.6."
    )

    @property
    def exploration(self) -> str:
        """The type of ``exploration_config``."""
        return self.exploration_config.type


class TD3(OffPolicyTrainer):
    """Twin delayed deep deterministic policy gradient."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    settings: Config

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for actions that are no numbers with bounds."""
        Bounds.of(spaces.action)

    def make_policy(self, device: str) -> "TwinsPolicy":
        """Actor, critics and the targets of all."""
        from trainables.policies.bounded.twins import Twins, TwinsPolicy

        of, layout, shape = self.settings, self.spaces.layout, self.architecture
        limits = Bounds.of(self.spaces.action)
        explored = of.exploration_config.until_learning(of.replay.learning_starts)
        kind = Perturbed if explored.type == "ParameterNoise" else ActionNoise
        actor = partial(make_bounded_actor, kind, layout, shape, limits, explored)
        head = len(layout.sizes)
        model = Twins(layout, shape, head, self.seed, limits=limits, target_actor=True)
        return TwinsPolicy(model, actor, of.optimizer, device)

    def make_parts(self) -> dict[str, Stateful]:
        """The replay, and how many updates there were."""
        self.updates = Updates()
        return {**super().make_parts(), "updates": self.updates}

    @property
    def losses(self) -> "Losses":
        """The losses, which compute gradients."""
        return self._fused_losses if self.is_fused else self._torch_losses

    @cached_property
    def _fused_losses(self) -> "Losses":
        of, limits = self.settings, Bounds.of(self.spaces.action)
        smoothing = of.target_noise, of.target_noise_clip
        return DelayedLosses(self.policy.model, of.gamma, smoothing, limits)

    @cached_property
    def _torch_losses(self) -> "Losses":
        return TorchLosses(self.policy, self.settings)

    def update(self, rows: Rows) -> dict[str, float]:
        """One step of the critics; in its turn one of the actor, and the targets follow."""
        of, losses, policy = self.settings, self.losses, self.policy
        critic_loss, q = losses.critics(rows, self.streams["update"])
        norm = policy.descend(self.critic_learning_rate, of.grad_clip, "critics")
        self.updates.count += 1
        if self.updates.count % of.policy_delay == 0:
            losses.actor(rows)
            policy.descend(self.learning_rate, of.grad_clip, "actor")
            policy.model.follow(of.tau)
        return {"critic_loss": critic_loss, "mean_q": q, "critic_grad_norm": norm}


class Updates:
    """The number of updates, which decides whether the actor's turn has come."""

    def __init__(self) -> None:
        self.count = 0

    def get_state(self) -> dict[str, Any]:
        """Entry ``count``."""
        return {"count": self.count}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.count = int(state["count"])


class Losses(Protocol):
    """The losses, each of which leaves its gradient where the policy's optimisers take it."""

    def critics(self, rows: Rows, stream: np.random.Generator) -> tuple[float, float]:
        """The squared errors of both critics, averaged over rows; and their mean value."""

    def actor(self, rows: Rows) -> float:
        """The mean of -Q of what the actor would do, by the first critic."""


class TorchLosses:
    """The losses by torch's gradients, wherever the policy learns."""

    def __init__(self, policy: "TwinsPolicy", settings: Config) -> None:
        self.policy, self.settings = policy, settings
        self._critic_loss, self._actor_loss = critic_loss, actor_loss
        if settings.learner_compile:
            self._critic_loss, self._actor_loss = compiled(critic_loss), compiled(actor_loss)

    def critics(self, rows: Rows, stream: np.random.Generator) -> tuple[float, float]:
        """As `Losses.critics`."""
        of, model = self.settings, self.policy.model
        noise = stream.standard_normal(model.noise_shape(len(rows["rewards"])), np.float32)
        batch = self.policy.tensors({**rows, "noise": noise})
        smoothing = of.target_noise, of.target_noise_clip
        loss, q = self._critic_loss(model, batch, of.gamma, smoothing)
        self.policy.differentiate(loss, "critics")
        return loss.item(), q.item()

    def actor(self, rows: Rows) -> float:
        """As `Losses.actor`."""
        seen = self.policy.tensors({"observations": rows["observations"]})["observations"]
        loss = self._actor_loss(self.policy.model, seen)
        self.policy.differentiate(loss, "actor")
        return loss.item()


def critic_loss(
    model: "Twins", batch: "Mapping[str, Tensor]", gamma: float, smoothing: tuple[float, float]
) -> "tuple[Tensor, Tensor]":
    """The squared errors () of both critics, averaged over rows; and their mean value ()."""
    import torch

    deviation, clip = smoothing
    with torch.no_grad():
        best = model.heads(batch["new_obs"], slow=True)[0].tanh()
        tried = (best + (deviation * batch["noise"]).clamp(-clip, clip)).clamp(-1, 1)
        least = model.judge(batch["new_obs"], tried, slow=True).min(dim=0).values
        goal = batch["rewards"] + gamma * least * ~batch["terminated"]
    seen = batch["observations"]
    q = model.judge(seen, model.unit(batch["actions"]).to(seen.dtype))
    return (q - goal).square().mean(1).sum(), q.detach().mean()


def actor_loss(model: "Twins", observations: "Tensor") -> "Tensor":
    """The mean () of -Q of what the actor would do, by the first critic."""
    return -model.judge(observations, model.heads(observations)[0].tanh())[0].mean()
