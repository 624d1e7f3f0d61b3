"""Implicit Q-learning (Kostrikov et al. 2021): offline, with values of actions in the data only.

The value of a state is an upper expectile of the values of the actions taken there, so no value of
an action outside the data is needed. Critics learn towards reward plus the discounted value of the
next state. The actor imitates actions, with more weight the further an action is above its state's
value. One round: read → store → updates, each of which samples a batch, updates all networks, and
moves the critics' targets a little. B rows.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import spread
from trainables.learners.compiling import compile_loss
from trainables.learners.replay import ReplayConfig
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.bounded.acting import Bounds
from trainables.policies.policy import Scalar
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.off_policy import RATES, OffPolicyConfig, OffPolicyTrainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.bounded.twins import IQLNetworks, IQLPolicy

#: Names of the losses' parts.
STATS = ("value_loss", "policy_loss", "critic_loss", "mean_q", "mean_weight")
#: Bounds of log standard deviations, as in the paper's code: data with one action only would make
#: deviations ever smaller.
LOG_STD = (-5.0, 2.0)


class Config(OffPolicyConfig):
    """Settings of IQL; the defaults are the published ones."""

    schedule: ScheduleConfig = ScheduleConfig(lr=3e-4)
    replay: ReplayConfig = ReplayConfig(
        buffer_size=1_000_000,
        replay_batch_size=256,
        updates_per_step=250,
        target_network_update_freq=1,
    )
    train_batch_size: int | None = Field(
        default=250, gt=0, description="Minimum number of rows that are read or sampled per round."
    )
    expectile: float = Field(
        default=0.7,
        gt=0,
        lt=1,
        description="Expectile of the values of actions that is used as the value of a state: 0.5 "
        "is their mean, values near 1 approach their maximum. Usually 0.6 to 0.9.",
    )
    beta: float = Field(
        default=3.0,
        ge=0,
        description="Inverse temperature: preference for better actions, per unit of return; 0: "
        "all actions are imitated equally, as with bc. Usually 0.5 to 10, divided by the size of "
        "advantages.",
    )
    max_weight: float = Field(
        default=100.0,
        gt=0,
        description="Maximum weight of an action in the policy's loss. Usually 10 to 1,000.",
    )


class IQL(OffPolicyTrainer):
    """Implicit Q-learning, from recorded experience."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    has_closed_form: ClassVar[bool] = False
    spreads_actions: ClassVar[bool] = True
    settings: Config
    policy: "IQLPolicy"  # type: ignore[assignment]  # its networks are others than the base's

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for actions that are neither one choice nor bounded real numbers."""
        if not spaces.layout.scalar:
            Bounds.of(spaces.action)

    @classmethod
    def why_acts_on_cpu(cls, settings: TrainerConfig) -> str:
        """Return the reason why the policy does not act on the GPU, which always holds."""
        return "iql learns from files, and evaluations act on the CPU"

    def make_policy(self, device: str) -> "IQLPolicy":
        """Return a new policy: actor, critic of states, twin critics of actions, their targets."""
        from trainables.policies.acting.recurrent import make_actor
        from trainables.policies.bounded.twins import IQLNetworks, IQLPolicy

        layout, shape = self.spaces.layout, self.architecture
        limits = None if layout.scalar else self._bounds()
        model = IQLNetworks(layout, shape, rng.torch_generator(self.seed, "init"), limits)
        parts = ("critic", "actor", *(("log_std",) if limits else ()))
        moved = dict.fromkeys(parts, self.settings.optimizer)
        return IQLPolicy(model, partial(make_actor, layout, shape), moved, device)

    def _bounds(self) -> Bounds:
        """Return the bounds of actions in the policy's numbers."""
        limits, space = Bounds.of(self.spaces.action), self.spaces.action
        widened = spread(space) if self.settings.sampling.spreads_actions else None
        if widened is None:
            return limits
        half, middle = widened
        inner = [((one - middle) / half).astype(np.float32) for one in (limits.low, limits.high)]
        return Bounds(*inner)

    def update(self, rows: Mapping[str, NDArray[Any]]) -> dict[str, Scalar]:
        """Make one gradient step of all networks on filtered rows (B, …), and move the targets.

        Returns ``value_loss``, ``policy_loss``, ``critic_loss``, ``mean_q``, ``mean_weight`` and
        ``critic_grad_norm``. Raises NotFiniteError if loss or gradient is NaN or infinite.
        """
        batch, rates = self.policy.on_device(rows), (self.critic_learning_rate, self.learning_rate)
        if self.graphs is None:
            return self._step(batch, *rates)

        def step(inputs: "Mapping[str, Tensor]") -> "dict[str, Any]":
            """Take a gradient step on a minibatch; return its statistics."""
            return self._step(inputs, *(inputs[name] for name in RATES))

        named = dict(zip(RATES, rates, strict=True))
        return {**self.graphs.run("update", step, {**batch, **named})}

    def _step(
        self, batch: "Mapping[str, Tensor]", critic_rate: Scalar, rate: Scalar
    ) -> dict[str, Scalar]:
        """Make one update on a batch (B, …) on the policy's device; return `update`'s statistics.

        `rate` is the learning rate of the actor and its standard deviations.
        """
        import torch

        settings, policy, model = self.settings, self.policy, self.policy.model
        loss, stats = self.loss(batch)
        norm = policy.minimise(loss, critic_rate, settings.grad_clip, "critic")
        policy.descend(rate, settings.grad_clip, "actor")
        if model.log_std is not None:
            policy.descend(rate, None, "log_std")
            with torch.no_grad():
                model.log_std.clamp_(*LOG_STD)
        model.update_targets(settings.tau)
        return {**stats, "critic_grad_norm": norm}

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Mapping[str, Scalar]]":
        """Return the sum () of all networks' losses, and its parts and means by `STATS`' names.

        The loss of one network has no gradient for another.
        """
        with self.policy.autocast():
            found, parts = self._losses(self.policy.model, batch, self.settings)
        return found, dict(zip(STATS, parts.unbind(), strict=True))

    @cached_property
    def _losses(
        self,
    ) -> "Callable[[IQLNetworks, Mapping[str, Tensor], Config], tuple[Tensor, Tensor]]":
        """Function `losses`, compiled by torch if ``learner_compile`` is set."""
        return compile_loss(losses) if self.settings.learner_compile else losses

    def log_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return the policy's log-probabilities (R,) of `actions` for `observations` (R, *S).

        Actions are as the policy chooses them, before they are scaled to the bounds; observations
        are filtered. For estimates of the return from recorded experience.
        """
        return self.policy.log_likelihoods(observations, actions)


def losses(
    model: "IQLNetworks", batch: "Mapping[str, Tensor]", settings: Config
) -> "tuple[Tensor, Tensor]":
    """Return the sum () of all networks' losses on a batch, and its parts (S,) named by `STATS`."""
    import torch

    observations, actions = batch["observations"], batch["actions"]
    with torch.no_grad():
        q = model.critic_values(model.targets, observations, actions).min(dim=0).values
        next_values = settings.gamma * model.value(batch["new_obs"]) * ~batch["terminated"]
    evaluated = model.evaluate(observations, actions)
    advantages = q - evaluated.values
    value_loss = expectile_loss(advantages, settings.expectile)
    weights = torch.exp(settings.beta * advantages.detach()).clamp(max=settings.max_weight)
    policy_loss = -(weights * evaluated.logp).mean()
    errors = model.critic_values(model.critics, observations, actions) - (
        batch["rewards"] + next_values
    )
    critic_loss = errors.square().mean(dim=1).sum()
    parts = [value_loss, policy_loss, critic_loss, q.mean(), weights.mean()]
    return value_loss + policy_loss + critic_loss, torch.stack(parts).detach()


def expectile_loss(errors: "Tensor", expectile: float) -> "Tensor":
    """Return the mean () of the squares of `errors` (B,), weighted by their signs.

    The weight is `expectile` above 0, and 1 - `expectile` below. The mean is least if the value
    subtracted in `errors` is this expectile (Newey and Powell 1987).
    """
    import torch

    return (torch.where(errors < 0, 1 - expectile, expectile) * errors.square()).mean()
