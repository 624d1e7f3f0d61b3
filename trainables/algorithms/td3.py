"""TD3 (Fujimoto et al. 2018): twin critics, a policy that follows late, targets that are smoothed.

One round: sample → store → updates, each of which draws a batch and moves the critics; every
`policy_delay`-th moves the actor and, a little, the targets. B rows, D features, K numbers.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.learners.fused.stacks import Stack
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import (
    ActionNoise,
    ActionNoiseConfig,
    Bounds,
    Perturbed,
    make_bounded_actor,
)
from trainables.trainer.config import TrainerConfig
from trainables.trainer.off_policy import OffPolicyConfig, OffPolicyTrainer, valued
from trainables.trainer.trainer import Stateful

if TYPE_CHECKING:
    import torch

    from trainables.policies.bounded.twins import TwinsPolicy

Array = NDArray[Any]
Rows = Mapping[str, Array]


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


class TD3(OffPolicyTrainer):
    """Twin delayed deep deterministic policy gradient."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    settings: Config

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for actions that are no numbers with bounds."""
        Bounds.of(spaces.action)

    def make_policy(self, device: "torch.device") -> "TwinsPolicy":
        """Actor, critics and the targets of all."""
        from trainables.policies.bounded.twins import Twins, TwinsPolicy

        of, layout, shape = self.settings, self.spaces.layout, self.architecture
        limits = Bounds.of(self.spaces.action)
        explored = of.exploration_config
        kind = Perturbed if explored.type == "ParameterNoise" else ActionNoise
        actor = partial(make_bounded_actor, kind, layout, shape, limits, explored)
        stream = rng.torch_generator(self.seed, "init")
        model = Twins(layout, shape, len(layout.sizes), stream, target_actor=True)
        return TwinsPolicy(model, actor, of.optimizer)

    def make_parts(self) -> dict[str, Stateful]:
        """The replay, and how many updates there were."""
        self.losses = Losses(self.policy, self.settings, self.spaces)
        self.updates = Updates()
        return {**super().make_parts(), "updates": self.updates}

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
    """How many updates there were, which says whose turn it is."""

    def __init__(self) -> None:
        self.count = 0

    def get_state(self) -> dict[str, Any]:
        """Entry ``count``."""
        return {"count": self.count}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.count = int(state["count"])


class Losses:
    """The losses, each of which leaves its gradient where the policy's optimisers take it."""

    def __init__(self, policy: "TwinsPolicy", settings: Config, spaces: EnvSpaces) -> None:
        model, activation = policy.model, policy.model.architecture.activation
        self.actor_net = Stack(model.actor, activation)
        self.critic_nets = Stack(model.critics, activation)
        self.targets = Stack(model.targets, activation, learns=False)
        self.target_actor = Stack(model.target_actor, activation, learns=False)
        self.settings, self.kind = settings, self.actor_net.kind
        self.features, self.bounds = model.architecture.features, Bounds.of(spaces.action)

    def critics(self, rows: Rows, stream: np.random.Generator) -> tuple[float, float]:
        """Half the squared errors of both critics, averaged over rows; and their mean value."""
        of, kind, count = self.settings, self.kind, len(rows["rewards"])
        following = rows["new_obs"].astype(kind, copy=False)
        best = np.tanh(self.target_actor.forward(following)[-1])
        noise = of.target_noise * stream.standard_normal(best.shape, np.float32).astype(kind)
        noise = noise.clip(-of.target_noise_clip, of.target_noise_clip)
        x = np.concatenate([following, (best + noise).clip(-1, 1)], axis=1)
        least = self.targets.forward(x)[-1][..., 0].min(axis=0)
        targets = valued(rows, least, of.gamma, kind)
        taken = self.bounds.unscaled(rows["actions"])
        x = np.concatenate([rows["observations"], taken], axis=1).astype(kind, copy=False)
        units = self.critic_nets.forward(x)
        errors = units[-1][..., 0] - targets
        self.critic_nets.backward(units, errors[..., None] / count)
        return 0.5 * float(np.square(errors).sum()) / count, float(units[-1].mean())

    def actor(self, rows: Rows) -> float:
        """The mean of -Q of what the actor would do, by the first critic."""
        seen = self.actor_net.forward(rows["observations"].astype(self.kind, copy=False))
        best = np.tanh(seen[-1])
        units = self.critic_nets.forward(np.concatenate([seen[0], best], axis=1), first=1)
        error = np.full_like(units[-1], -1.0 / len(best))
        by_best = self.critic_nets.by_inputs(units, error, slice(self.features, None))[0]
        self.actor_net.backward(seen, by_best * (1.0 - np.square(best)))
        return -float(units[-1].mean())
