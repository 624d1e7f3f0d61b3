"""TD3 (Fujimoto et al. 2018): twin critics, delayed updates of the actor, smoothed targets.

One round: sample → store → updates, each of which samples a batch and updates the critics; every
`policy_delay`-th also updates the actor and moves the targets a little. B rows, D features, K
numbers of an action.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.envs.make import EnvSpaces
from trainables.learners.compiling import compile_loss
from trainables.learners.fused.twins import DelayedLosses
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import (
    ActionNoise,
    ActionNoiseConfig,
    Bounds,
    ParameterNoiseExploration,
    make_bounded_actor,
)
from trainables.policies.policy import Scalar
from trainables.trainer.base.algorithm import Stateful
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.off_policy import RATES, OffPolicyConfig, OffPolicyTrainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.bounded.twins import Twins, TwinsPolicy

#: Name of a column → its rows (B, …).
Rows = Mapping[str, NDArray[Any]]


class Config(OffPolicyConfig):
    """Settings of TD3; the defaults are the published ones."""

    schedule: ScheduleConfig = ScheduleConfig(lr=1e-3)
    exploration_config: ActionNoiseConfig = Field(
        default=ActionNoiseConfig(),
        description="Exploration while experience is collected.",
    )
    policy_delay: int = Field(
        default=2, gt=0, description="Number of critic updates per actor update. Usually 1 to 4."
    )
    target_noise: float = Field(
        default=0.2,
        ge=0,
        description="Standard deviation of the noise on the action in targets, as a fraction of "
        "half the action's range. Usually 0.1 to 0.3.",
    )
    target_noise_clip: float = Field(
        default=0.5,
        ge=0,
        description="Maximum absolute value of the noise on the action in targets, as a fraction "
        "of half the action's range. Usually 0.3 to 0.6.",
    )

    @property
    def exploration(self) -> str:
        """Value of ``exploration_config``'s ``type``, the name of the exploration."""
        return self.exploration_config.type


class TD3(OffPolicyTrainer):
    """Twin delayed deep deterministic policy gradient."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    settings: Config

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for actions that are not real numbers with bounds."""
        Bounds.of(spaces.action)

    def make_policy(self, device: str) -> "TwinsPolicy":
        """Return a new policy: actor, twin critics, and targets of all of them."""
        from trainables.policies.bounded.twins import Twins, TwinsPolicy

        settings, layout, shape = self.settings, self.spaces.layout, self.architecture
        limits = Bounds.of(self.spaces.action)
        explored = settings.exploration_config.until_learning(settings.replay.learning_starts)
        kind = ParameterNoiseExploration if explored.type == "ParameterNoise" else ActionNoise
        actor = partial(make_bounded_actor, kind, layout, shape, limits, explored)
        head = len(layout.sizes)
        model = Twins(layout, shape, head, self.seed, limits=limits, target_actor=True)
        return TwinsPolicy(model, actor, settings.optimizer, device)

    def make_parts(self) -> dict[str, Stateful]:
        """Return name → object with a state: ``replay``, and ``updates``, the counter of updates.

        Makes both, and sets attributes of these names.
        """
        self.updates = Updates()
        return {**super().make_parts(), "updates": self.updates}

    @property
    def losses(self) -> "DelayedLosses | TorchLosses":
        """Object that computes gradients of the losses, in numpy, or in torch if needed."""
        return self._fused_losses if self.is_fused else self._torch_losses

    @cached_property
    def _fused_losses(self) -> DelayedLosses:
        """Object that computes gradients in numpy, made at the first access."""
        settings, limits = self.settings, Bounds.of(self.spaces.action)
        smoothing = settings.target_noise, settings.target_noise_clip
        return DelayedLosses(self.policy.model, settings.gamma, smoothing, limits)

    @cached_property
    def _torch_losses(self) -> "TorchLosses":
        """Object that computes gradients in torch, made at the first access."""
        return TorchLosses(self.policy, self.settings)

    def update(self, rows: Rows) -> dict[str, Scalar]:
        """Make one gradient step of the critics on rows (B, …); return their statistics.

        They are ``critic_loss``, ``mean_q`` and ``critic_grad_norm``. In every `policy_delay`-th
        update the actor learns, too, and the targets move. The rows are filtered; noise on target
        actions is drawn from the stream ``update``. Raises NotFiniteError if a loss or gradient is
        NaN or infinite.
        """
        losses, rates = self.losses, (self.critic_learning_rate, self.learning_rate)
        self.updates.count += 1
        updates_actor = self.updates.count % self.settings.policy_delay == 0
        if self.graphs is None or not isinstance(losses, TorchLosses):
            found = losses.critics(rows, self.streams["update"])
            return self._step(updates_actor, rates, found, lambda: losses.actor(rows))

        def step(inputs: "Mapping[str, Tensor]") -> "dict[str, Any]":
            """Take a gradient step on a minibatch; return its statistics."""
            of = self._torch_losses
            return self._step(
                updates_actor,
                (inputs[RATES[0]], inputs[RATES[1]]),
                of.critics_of(inputs),
                lambda: of.actor_of(inputs["observations"]),
            )

        inputs = losses.inputs(rows, self.streams["update"])
        named = dict(zip(RATES, rates, strict=True))
        return {**self.graphs.run("all" if updates_actor else "critics", step, {**inputs, **named})}

    def _step(
        self,
        updates_actor: bool,
        rates: tuple[Scalar, Scalar],
        judged: tuple[Scalar, Scalar],
        actor: Callable[[], Scalar],
    ) -> dict[str, Scalar]:
        """Apply the critics' gradients, which are computed already; return `update`'s statistics.

        Args:
            updates_actor: True to update actor and targets, too.
            rates: learning rates of critics and actor.
            judged: loss and mean value of the critics.
            actor: function that computes the gradient of the actor and returns its loss.
        """
        settings, policy = self.settings, self.policy
        critic_loss, q = judged
        norm = policy.descend(rates[0], settings.grad_clip, "critics")
        if updates_actor:
            actor()
            policy.descend(rates[1], settings.grad_clip, "actor")
            policy.model.update_targets(settings.tau)
        return {"critic_loss": critic_loss, "mean_q": q, "critic_grad_norm": norm}


class Updates:
    """Counter of updates, which decides when the actor learns."""

    def __init__(self) -> None:
        self.count = 0

    def get_state(self) -> dict[str, Any]:
        """Return ``count``, the number of updates."""
        return {"count": self.count}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the number of updates to that of a state of `get_state`."""
        self.count = int(state["count"])


class TorchLosses:
    """TD3's losses with gradients by torch, on the policy's device."""

    def __init__(self, policy: "TwinsPolicy", settings: Config) -> None:
        self.policy, self.settings = policy, settings
        self._seen: Tensor
        self._critic_loss, self._actor_loss = critic_loss, actor_loss
        if settings.learner_compile:
            self._critic_loss, self._actor_loss = (
                compile_loss(critic_loss),
                compile_loss(actor_loss),
            )

    def critics(self, rows: Rows, stream: np.random.Generator) -> tuple[Scalar, Scalar]:
        """Compute the gradient of the critics for a batch (B, …); draw the noise on target actions.

        The gradient is stored in the policy for `descend`, the observations for `actor`. Returns
        the sum of both critics' mean squared errors, and their mean value.
        """
        batch = self.inputs(rows, stream)
        self._seen = batch["observations"]
        return self.critics_of(batch)

    def inputs(self, rows: Rows, stream: np.random.Generator) -> "dict[str, Tensor]":
        """Return a batch (B, …) on the policy's device, with ``noise`` for target actions.

        It is standard normal, drawn from `stream`.
        """
        shape = self.policy.model.noise_shape(len(rows["rewards"]))
        return self.policy.tensors({**rows, "noise": stream.standard_normal(shape, np.float32)})

    def critics_of(self, batch: "Mapping[str, Tensor]") -> tuple[Scalar, Scalar]:
        """Compute the gradient of the critics for a batch that `inputs` returned.

        It is stored in the policy for `descend`. Returns the sum of both critics' mean squared
        errors, and their mean value.
        """
        settings, model = self.settings, self.policy.model
        smoothing = settings.target_noise, settings.target_noise_clip
        with self.policy.autocast():
            loss, q = self._critic_loss(model, batch, settings.gamma, smoothing)
        self.policy.differentiate(loss, "critics")
        return loss.detach(), q

    def actor(self, rows: Rows) -> Scalar:
        """Compute the gradient of the actor for the batch of `critics`; return the mean of -Q.

        It is stored in the policy for `descend`. `rows` are ignored.
        """
        return self.actor_of(self._seen)

    def actor_of(self, observations: "Tensor") -> Scalar:
        """Compute the gradient of the actor for observations (B, D); return the mean of -Q.

        It is stored in the policy for `descend`.
        """
        with self.policy.autocast():
            loss = self._actor_loss(self.policy.model, observations)
        self.policy.differentiate(loss, "actor")
        return loss.detach()


def critic_loss(
    model: "Twins", batch: "Mapping[str, Tensor]", gamma: float, smoothing: tuple[float, float]
) -> "tuple[Tensor, Tensor]":
    """Return the sum () of both critics' mean squared errors, and their mean value ().

    The batch has ``noise`` for the target's action; `smoothing` is its deviation, and its bound.
    """
    import torch

    deviation, clip = smoothing
    with torch.no_grad():
        best = model.heads(batch["new_obs"], slow=True)[0].tanh()
        tried = (best + (deviation * batch["noise"]).clamp(-clip, clip)).clamp(-1, 1)
        least = model.critic_values(batch["new_obs"], tried, slow=True).min(dim=0).values
        goal = batch["rewards"] + gamma * least * ~batch["terminated"]
    seen = batch["observations"]
    q = model.critic_values(seen, model.unit(batch["actions"]).to(seen.dtype))
    return (q - goal).square().mean(1).sum(), q.detach().mean()


def actor_loss(model: "Twins", observations: "Tensor") -> "Tensor":
    """Return the mean () of -Q of the actor's actions, by the first critic."""
    return -model.critic_values(observations, model.heads(observations)[0].tanh())[0].mean()
