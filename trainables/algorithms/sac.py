"""Soft actor-critic (Haarnoja et al. 2018, 2019), for choices as well (Christodoulou 2019).

One round: sample → store → updates, each of which samples a batch, updates critics, actor and
temperature, and moves the targets a little. B rows, D features, K numbers of an action, A choices.
"""

import math
from collections.abc import Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError
from trainables.learners.compiling import compile_loss
from trainables.learners.fused.twins import SoftLosses, SoftLossesOfChoices, SoftLossesOfNumbers
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import (
    Bounds,
    GaussianPolicyConfig,
    SquashedGaussian,
    StateDependentNoise,
    make_bounded_actor,
    make_choosing_actor,
)
from trainables.policies.policy import Scalar
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.off_policy import RATES, OffPolicyConfig, OffPolicyTrainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.bounded.twins import Twins, TwinsPolicy

#: Name of a column → its rows (B, …).
Rows = Mapping[str, NDArray[Any]]
#: Target entropy of choices, as a share of their largest entropy. The published 0.98 forbids clear
#: decisions; where these are needed (CartPole), the temperature then grows without end.
SHARE_OF_ENTROPY = 0.5


class Config(OffPolicyConfig):
    """Settings of SAC; the defaults are the published ones, but for choices."""

    schedule: ScheduleConfig = ScheduleConfig(lr=3e-4)
    exploration_config: GaussianPolicyConfig = Field(
        default=GaussianPolicyConfig(),
        description="Exploration while experience is collected.",
    )
    initial_alpha: float = Field(
        default=1.0,
        gt=0,
        description="Initial temperature: reward per unit of entropy. Usually 0.01 to 1.",
    )
    learn_alpha: bool = Field(
        default=True,
        description="Learn the temperature, so the entropy approaches target_entropy.",
    )
    target_entropy: float | None = Field(
        default=None,
        description="Target entropy of an action, in nats, with its numbers scaled to (-1, 1). "
        "null: -1 for each number of the action; for discrete actions, half of the maximum "
        "entropy.",
    )

    @property
    def exploration(self) -> str:
        """Value of ``exploration_config``'s ``type``, the name of the exploration."""
        return self.exploration_config.type


class SAC(OffPolicyTrainer):
    """Soft actor-critic: maximises return plus entropy."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    settings: Config

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for actions that are neither one choice nor bounded real numbers.

        State-dependent noise requires real numbers.
        """
        if not spaces.layout.scalar:
            Bounds.of(spaces.action)
        elif isinstance(settings, Config) and settings.exploration_config.type != (
            allowed := "StochasticSampling"
        ):
            why = f"actions are {spaces.action}, a choice, to which no noise can be added"
            kind, place = settings.exploration_config.type, "exploration_config.type"
            raise ConfigError.of_conflict(place, kind, "", allowed, why)

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together.

        Also for a ``target_entropy`` with ``learn_alpha: false``.
        """
        super().validate_config(settings)
        if not isinstance(settings, Config) or settings.learn_alpha:
            return
        if settings.target_entropy is not None:
            raise ConfigError(
                "target_entropy",
                settings.target_entropy,
                hint="remove it, or set learn_alpha to true",
                problem="has no effect with learn_alpha: false, where the temperature is always "
                "initial_alpha",
            )

    def make_policy(self, device: str) -> "TwinsPolicy":
        """Return a new policy: actor, twin critics, their targets, and the log temperature."""
        from trainables.policies.bounded.twins import Twins, TwinsPolicy

        settings, layout, shape = self.settings, self.spaces.layout, self.architecture
        explored, limits = (
            settings.exploration_config.until_learning(settings.replay.learning_starts),
            None,
        )
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
            alpha=settings.initial_alpha,
        )
        return TwinsPolicy(model, actor, settings.optimizer, device)

    @property
    def losses(self) -> "SoftLosses | TorchLosses":
        """Object that computes gradients of the losses, in numpy, or in torch if needed."""
        return self._fused_losses if self.is_fused else self._torch_losses

    @cached_property
    def _fused_losses(self) -> SoftLosses:
        """Object that computes gradients in numpy, made at the first access."""
        model = self.policy.model
        given = model, self.settings.gamma, self.target_entropy
        if model.limits is None:
            return SoftLossesOfChoices(*given)
        return SoftLossesOfNumbers(*given, model.limits)

    @cached_property
    def _torch_losses(self) -> "TorchLosses":
        """Object that computes gradients in torch, made at the first access."""
        return TorchLosses(self.policy, self.settings, self.target_entropy)

    @property
    def target_entropy(self) -> float:
        """Entropy of an action to which the temperature is adapted, nats.

        If the setting is null, -1 per number of an action, or half of the largest entropy of
        choices.
        """
        layout, given = self.spaces.layout, self.settings.target_entropy
        if given is not None:
            return given
        if layout.scalar:
            return SHARE_OF_ENTROPY * math.log(layout.logits)
        return -float(len(layout.sizes))

    def update(self, rows: Rows) -> dict[str, Scalar]:
        """Make one gradient step of critics, actor and temperature on filtered rows (B, …).

        The temperature stays if ``learn_alpha`` is False. Then the target critics move by ``tau``.
        Noise is drawn from the stream ``update``. Returns ``critic_loss``, ``actor_loss``,
        ``mean_q``, ``entropy``, ``alpha`` (the temperature) and ``critic_grad_norm``. Raises
        NotFiniteError if a loss or gradient is NaN or infinite.
        """
        losses, rates = self.losses, (self.critic_learning_rate, self.learning_rate)
        if not self.settings.learn_alpha:  # loaded weights may have another trial's temperature
            self.policy.model.set_temperature(self.settings.initial_alpha)
        if self.graphs is None or not isinstance(losses, TorchLosses):
            losses.begin(rows, self.streams["update"])
            return self._step(rows, *rates)
        inputs = losses.inputs(rows, self.streams["update"])
        named = dict(zip(RATES, rates, strict=True))
        return {**self.graphs.run("update", self._captured, {**inputs, **named})}

    def _captured(self, inputs: "Mapping[str, Tensor]") -> "dict[str, Any]":
        """Make one update in a form that a CUDA graph can capture.

        `inputs` are those of `TorchLosses.inputs`, and the learning rates `RATES` as tensors.
        Returns the statistics of `update`.
        """
        self._torch_losses.take(inputs)
        return self._step({}, *(inputs[name] for name in RATES))

    def _step(self, rows: Rows, critic_rate: Scalar, rate: Scalar) -> dict[str, Scalar]:
        """Make one update on the batch that the losses were given by `begin` or `take`.

        It moves the target critics, too. Returns the statistics of `update`.

        Args:
            rows: that batch, for losses in numpy.
            critic_rate: learning rate of the critics.
            rate: learning rate of actor and temperature.
        """
        settings, losses, policy = self.settings, self.losses, self.policy
        critic_loss, q = losses.critics(rows)
        norm = policy.descend(critic_rate, settings.grad_clip, "critics")
        actor_loss = losses.actor()
        policy.descend(rate, settings.grad_clip, "actor")
        if settings.learn_alpha:
            losses.temperature()
            policy.descend(rate, None, "log_alpha")
        policy.model.update_targets(settings.tau)
        return {
            "critic_loss": critic_loss,
            "actor_loss": actor_loss,
            "mean_q": q,
            "entropy": losses.entropy,
            "alpha": losses.alpha,
            "critic_grad_norm": norm,
        }


class TorchLosses:
    """SAC's losses with gradients by torch, on the policy's device."""

    def __init__(self, policy: "TwinsPolicy", settings: Config, target_entropy: float) -> None:
        self.policy, self.gamma, self.target_entropy = policy, settings.gamma, target_entropy
        import torch

        none = torch.zeros(())
        self.alpha: Scalar = none
        self.entropy: Scalar = none
        self._batch: dict[str, Tensor] = {}
        self._critic_loss, self._actor_loss = critic_loss, actor_loss
        if settings.learner_compile:
            self._critic_loss, self._actor_loss = (
                compile_loss(critic_loss),
                compile_loss(actor_loss),
            )

    def begin(self, rows: Rows, stream: np.random.Generator) -> None:
        """Send the batch `rows` (B, …) to the device for the next steps; draw noise for actions.

        The noise comes from `stream`; none is drawn for choices. Sets `alpha`.
        """
        self.take(self.inputs(rows, stream))

    def inputs(self, rows: Rows, stream: np.random.Generator) -> "dict[str, Tensor]":
        """Return a batch (B, …) on the policy's device, with noise ``drawn`` for the actions.

        It comes from `stream`; none is drawn for choices.
        """
        model, drawn = self.policy.model, dict[str, NDArray[Any]]()
        if model.limits is not None:
            shape = model.noise_shape(2 * len(rows["rewards"]))
            drawn["drawn"] = stream.standard_normal(shape, np.float32)
        return self.policy.tensors({**rows, **drawn})

    def take(self, inputs: "Mapping[str, Tensor]") -> None:
        """Use the batch that `inputs` returned for the next steps, and the present temperature.

        Sets `alpha` to the temperature.
        """
        model = self.policy.model
        self._batch = {**inputs, "alpha": model.log_alpha.detach().exp()}
        self.alpha = self._batch["alpha"].reshape(())
        if model.limits is not None:
            drawn = inputs["drawn"]
            both = [drawn] * 2 if model.has_state_dependent_noise else drawn.chunk(2)
            self._batch |= dict(zip(("noise", "next_noise"), both, strict=True))

    def critics(self, rows: Rows) -> tuple[Scalar, Scalar]:
        """Compute the critics' gradient for the batch of `begin` or `take`; store it in the policy.

        `rows` are ignored. `TwinsPolicy.descend` then takes the step.

        Returns the sum of both critics' halved mean squared errors, and their mean value.
        """
        with self.policy.autocast():
            loss, q = self._critic_loss(self.policy.model, self._batch, self.gamma)
        self.policy.differentiate(loss, "critics")
        return loss.detach(), q

    def actor(self) -> Scalar:
        """Compute the gradient of the actor's loss, and store it in the policy for `descend`.

        Return the loss, the mean of alpha log p - min Q, and set `entropy`. It uses the batch of
        `begin` or `take`.
        """
        with self.policy.autocast():
            loss, entropy = self._actor_loss(self.policy.model, self._batch)
        self.policy.differentiate(loss, "actor")
        self.entropy = entropy
        return loss.detach()

    def temperature(self) -> None:
        """Compute the gradient of the temperature's loss, and store it in the policy for `descend`.

        The loss is log(alpha) · (entropy - target), with the entropy of the latest call of `actor`.
        """
        import torch

        by = self.policy.model.log_alpha
        above = torch.as_tensor(self.entropy).double() - self.target_entropy
        self.policy.differentiate((by * above.to(by.dtype)).sum(), "log_alpha")


def critic_loss(
    model: "Twins", batch: "Mapping[str, Tensor]", gamma: float
) -> "tuple[Tensor, Tensor]":
    """Return the sum () of both critics' halved mean squared errors, and their mean value ().

    The batch has the columns of transitions, the temperature ``alpha``, and for real numbers
    ``next_noise``. The mean value has no gradient.
    """
    import torch

    with torch.no_grad():
        following, _ = soft_values(
            model, batch["new_obs"], batch.get("next_noise"), batch["alpha"], slow=True
        )
        goal = batch["rewards"] + gamma * following * ~batch["terminated"]
    seen, actions = batch["observations"], batch["actions"]
    if model.limits is None:
        q = model.critic_values(seen)[:, torch.arange(len(actions), device=actions.device), actions]
    else:
        q = model.critic_values(seen, model.unit(actions).to(seen.dtype))
    return 0.5 * (q - goal).square().mean(1).sum(), q.detach().mean()


def actor_loss(model: "Twins", batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Tensor]":
    """Return the mean () of alpha log p - min Q of the actor's actions, and its mean entropy ().

    The batch has ``observations``, the temperature ``alpha``, and for real numbers ``noise``. The
    entropy has no gradient.
    """
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
    """Return soft values (B,) of observations, by the lower critic, and entropies (B,).

    Both are estimated by one draw with standard normal `noise` for real numbers, and are
    expectations for choices, where `noise` is None. `alpha` is the temperature. With `slow`, the
    target critics are used.
    """
    if noise is not None:
        drawn, logp = model.draw(observations, noise)
        least = model.critic_values(observations, drawn, slow).min(dim=0).values
        return least - alpha * logp, -logp
    logs = model.heads(observations)[0].log_softmax(1)
    least = model.critic_values(observations, slow=slow).min(dim=0).values
    return (logs.exp() * (least - alpha * logs)).sum(1), -(logs.exp() * logs).sum(1)
