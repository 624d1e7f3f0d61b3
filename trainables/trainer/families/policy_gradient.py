"""Actor-critic methods that take one step of the policy gradient on every batch.

Sutton et al. 1999, with a value function and an entropy bonus as in Mnih et al. 2016. B rows.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from trainables.learners.fused import ppo as fused
from trainables.learners.schedules import ScheduleConfig
from trainables.policies.architecture import OPTIMIZERS, OptimizerConfig, OptimizerName
from trainables.rollout.batch import TrainBatch
from trainables.trainer.families.actor_critic import ActorCriticConfig, ActorCriticTrainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.learners.sgd import Learner
    from trainables.learners.torch_learner import Loss
    from trainables.policies.learning.networks import Stochastic

#: Names of the loss's parts.
STATS = ("policy_loss", "vf_loss", "entropy")


class PolicyGradientOptimizerConfig(OptimizerConfig):
    """The optimiser, by default RMSprop as published."""

    name: OptimizerName = Field(default="rmsprop", description=OPTIMIZERS)


class PolicyGradientConfig(ActorCriticConfig):
    """Settings of policy-gradient methods; the defaults suit classic control."""

    schedule: ScheduleConfig = ScheduleConfig(lr=7e-4)
    optimizer: PolicyGradientOptimizerConfig = Field(
        default=PolicyGradientOptimizerConfig(), description="Optimizer of the weights."
    )
    lambda_: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="λ of the advantage estimate (GAE); 1: returns of the whole fragment.",
    )
    normalize_advantages: bool = Field(
        default=False,
        description="Scale the advantages of each batch to mean 0 and standard deviation 1; a "
        "batch of one row, which has no deviation, is refused.",
    )


class PolicyGradientTrainer(ActorCriticTrainer):
    """Base of algorithms with one policy-gradient step per batch: A2C and IMPALA."""

    stats: ClassVar[tuple[str, ...]] = STATS
    settings: PolicyGradientConfig

    def torch_loss(self) -> "Loss":
        """Return the loss for torch: policy gradient, value loss and entropy bonus.

        Coefficients have the current values of their schedules.
        """
        settings = self.settings.with_schedules_at(self.progress.timesteps)
        return partial(policy_gradient_loss, settings=settings)

    def fused_loss(self) -> fused.Loss:
        """Return the loss as options of the numpy learner, with the current values of schedules."""
        return fused_options(self.settings.with_schedules_at(self.progress.timesteps))

    def take_steps(self, learner: "Learner", batch: TrainBatch) -> dict[str, float]:
        """Take one gradient step on all rows, and return the statistics of `learners.sgd.learn`."""
        from trainables.learners.sgd import learn

        return learn(
            learner,
            batch,
            self.streams["minibatch"],
            epochs=1,
            minibatch_size=len(batch),
            rate=self.learning_rate,
            normalize_advantages=self.settings.normalize_advantages,
        )


def fused_options(settings: PolicyGradientConfig) -> fused.Loss:
    """Return the loss of these settings, without their schedules, as options for numpy.

    Neither ratios nor values are clipped.
    """
    return fused.Loss(
        clip_param=None,
        vf_clip_param=None,
        vf_loss_coeff=settings.vf_loss_coeff,
        entropy_coeff=settings.entropy_coeff,
        normalize_advantages=settings.normalize_advantages,
        grad_clip=settings.grad_clip,
    )


def policy_gradient_loss(
    model: "Stochastic", batch: "Mapping[str, Tensor]", settings: PolicyGradientConfig
) -> "tuple[Tensor, Tensor]":
    """Return the loss () of a batch, column → tensor (B, …), and its parts (3,) as in `STATS`.

    The parts have no gradient. Coefficients are those of `settings`, without their schedules. With
    ``normalize_advantages``, advantages of at least `LEAST_ROWS` rows are standardised first.
    """
    import torch

    from trainables.learners.torch_learner import normalized
    from trainables.policies.learning.networks import sequence_layout_of

    evaluated = model.evaluate(batch["observations"], batch["actions"], sequence_layout_of(batch))
    advantages = batch["advantages"]
    if settings.normalize_advantages:
        advantages = normalized(advantages)
    policy_loss = -(evaluated.logp * advantages).mean()
    value_loss = 0.5 * (evaluated.values - batch["returns"]).square().mean()
    entropy = evaluated.entropies.mean()
    loss = policy_loss - settings.entropy_coeff * entropy + settings.vf_loss_coeff * value_loss
    return loss, torch.stack([policy_loss, value_loss, entropy]).detach()
