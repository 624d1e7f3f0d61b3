"""The trainer of actor-critic methods: rounds of fragments, advantages, steps in numpy or torch.

An algorithm gives its loss twice: for torch, and as options of the fused learner. B rows.
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from trainables.envs.exactness.measuring import Look
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError
from trainables.learners.fused.ppo import FusedLearner, not_covered
from trainables.learners.fused.ppo import Loss as FusedLoss
from trainables.learners.returns import generalized_advantages, next_values
from trainables.learners.schedules import Schedule, due
from trainables.learners.sequences import SequenceBatch, in_sequences
from trainables.policies.architecture import architecture
from trainables.rollout.batch import Fragment, TrainBatch, rows
from trainables.trainer.config import TrainerConfig
from trainables.trainer.steps import on_policy_step
from trainables.trainer.trainer import Trainer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainables.learners.sgd import Learner, Loss, TorchLearner
    from trainables.policies.torch_policy import ActorCriticPolicy

logger = logging.getLogger(__name__)


class ActorCriticConfig(TrainerConfig):
    """Settings of every actor-critic method."""

    lambda_: float = Field(default=0.95, ge=0, le=1, description="λ of the advantage estimate.")
    vf_loss_coeff: float = Field(default=0.5, ge=0, description="Weight of the value loss.")
    entropy_coeff: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus.")
    entropy_coeff_schedule: Schedule = Field(
        default="constant",
        description="constant; linear: from entropy_coeff to 0 over schedule_timesteps; or points "
        "[[environment steps, weight], …], linear between them.",
    )
    normalize_advantages: bool = Field(
        default=True, description="Advantages of each minibatch have mean 0 and deviation 1."
    )
    grad_clip: float | None = Field(
        default=0.5, gt=0, description="Bound on the norm of the whole gradient; null: none."
    )
    learner: Literal["auto", "fused", "torch"] = Field(
        default="auto",
        description="What computes gradients: torch, or fused, which is the same in numpy, several "
        "times as fast for small networks; auto: fused where it can, which is for perceptrons that "
        "learn in one process on the CPU.",
    )

    @property
    def scheduled(self) -> dict[str, Schedule]:
        """The settings of the loss that change, each with its schedule."""
        fields = {key: getattr(self, key) for key in type(self).model_fields}
        return {
            key.removesuffix("_schedule"): schedule
            for key, schedule in fields.items()
            if key.endswith("_schedule") and schedule != "constant"
        }

    def at(self, timesteps: int) -> Self:
        """The settings with what their schedules give after so many environment steps."""
        length = self.schedule.schedule_timesteps
        changed = {
            key: due(getattr(self, key), schedule, length, timesteps)
            for key, schedule in self.scheduled.items()
        }
        return self.model_copy(update=changed) if changed else self


class ActorCriticTrainer(Trainer):
    """Base of the methods that learn from what was just sampled, with advantages."""

    config_class: ClassVar[type[TrainerConfig]] = ActorCriticConfig
    before_auto: ClassVar[Mapping[str, Any]] = {**Trainer.before_auto, "learner": "torch"}
    stats: ClassVar[tuple[str, ...]]
    """Names of the parts of the loss, in the order in which both learners give them."""
    settings: ActorCriticConfig
    policy: "ActorCriticPolicy"

    @abstractmethod
    def torch_loss(self) -> "Loss":
        """The loss of this round, for torch."""

    @abstractmethod
    def fused_loss(self) -> FusedLoss:
        """The same loss, as options of the fused learner."""

    @abstractmethod
    def take_steps(self, learner: "Learner", batch: TrainBatch) -> dict[str, float]:
        """Learn from the rows of one round; returns the means of the loss's parts."""

    def make_policy(self, device: "torch.device") -> "ActorCriticPolicy":
        """Actor and critic."""
        from trainables.policies.torch_policy import build_policy

        networks = (self.spaces.layout, self.architecture)
        return build_policy(networks, self.settings.optimizer, self.seed, device)

    def training_step(self) -> dict[str, float]:
        """Sample fixed-length fragments and learn from them."""
        return on_policy_step(self, self.learn)

    @classmethod
    def choose(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        """The learner: fused, unless something is asked for that it does not know."""
        why = cls._not_fused(settings, seen.spaces)
        asked = settings.learner if isinstance(settings, ActorCriticConfig) else "auto"
        if why and asked == "fused":
            raise ConfigError("learner", "fused", "auto or torch here", why)
        return {**super().choose(settings, seen), "learner": "torch" if why else "fused"}

    @classmethod
    def _not_fused(cls, settings: TrainerConfig, spaces: EnvSpaces) -> str:
        """Why the gradients have to be torch's; empty if they need not be."""
        for name in ("loss", "learn", "torch_loss", "take_steps"):
            if cls.owner(name) is not cls.owner("fused_loss") and cls.owner(name) not in BASES:
                return f"{cls.__name__} has a way of learning of its own"
        if settings.workers.data_parallel:
            return "data_parallel is true"
        if settings.resources.num_gpus:
            return "num_gpus is not 0"
        networks = architecture(settings.model, spaces.observation_shape)
        return not_covered(spaces.layout, networks, settings.optimizer)

    @classmethod
    def owner(cls, name: str) -> type:
        """The class that defines a method."""
        return next(one for one in cls.__mro__ if name in vars(one))

    def learning_rows(self, fragments: list[Fragment]) -> TrainBatch:
        """The valid rows of all fragments, with advantages; in sequences for an LSTM."""
        gamma, lambda_ = self.settings.gamma, self.settings.lambda_
        batches = [to_rows(fragment, gamma, lambda_) for fragment in fragments]
        self.reporter.postprocessed(self.policy, fragments, [vars(one) for one in batches])
        if self.architecture.lstm:
            pairs = zip(fragments, batches, strict=True)
            longest = self.settings.longest_sequence
            return SequenceBatch.join([in_sequences(f, b, longest) for f, b in pairs])
        valid = [rows(fragment.valid) for fragment in fragments]
        return TrainBatch.join([b.only(v) for b, v in zip(batches, valid, strict=True)])

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """One iteration of learning; returns the means of the losses over all minibatches."""
        batch = self.learning_rows(fragments)
        if len(batch) == 0:
            logger.warning("no valid row in this iteration; nothing is learnt from it")
            return {}
        self.reporter.log("training batch", batch)
        return self.take_steps(self.learner, batch)

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, dict[str, float]]":
        """The loss () of the columns of a `TrainBatch`, and its parts."""
        loss, parts = self.torch_loss()(self.policy.model, batch)
        return loss, dict(zip(self.stats, parts.tolist(), strict=True))

    def gradient_step(self) -> tuple[float, float | None]:
        """The learning rate now, and the bound on the norm of the whole gradient or None."""
        return self.learning_rate, self.settings.grad_clip

    @property
    def learner(self) -> "Learner":
        """What takes the gradient steps, with the loss of this round."""
        fused = self._fused_learner if self.settings.learner == "fused" else None
        if fused is not None:
            if self.settings.scheduled:
                fused.loss = self.fused_loss()
            return fused
        learner = self._torch_learner
        if self.settings.scheduled:
            learner.loss = self.torch_loss()
        return learner

    @cached_property
    def _fused_learner(self) -> FusedLearner | None:
        if self._not_fused(self.settings, self.spaces):  # a checkpoint's, restored elsewhere
            return None
        threads = self.settings.resources.threads[0]
        return FusedLearner(self.policy, self.fused_loss(), self.stats, threads=threads)

    @cached_property
    def _torch_learner(self) -> "TorchLearner":
        from trainables.learners.sgd import TorchLearner

        if "learner" in self._undecided:
            why = self._not_fused(self.settings, self.spaces) or "its training began with it"
            logger.info("learner: auto is torch, as %s", why)
        return TorchLearner(self.policy, self.torch_loss(), self.stats, self.settings.grad_clip)


#: Where a method that is not an algorithm's own is defined.
BASES = (Trainer, ActorCriticTrainer)


def to_rows(fragment: Fragment, gamma: float, lambda_: float) -> TrainBatch:
    """A fragment (T, N) as T·N rows, valid or not, with advantages and value targets."""
    following = next_values(
        fragment.values, fragment.last_values[0], fragment.final_values, fragment.truncated
    )
    ends = (fragment.terminated, fragment.truncated)
    estimated = generalized_advantages(
        fragment.rewards, fragment.values, following, ends, (gamma, lambda_)
    )
    return TrainBatch(
        observations=rows(fragment.observations),
        actions=rows(fragment.actions),
        logp=rows(fragment.logp),
        values=rows(fragment.values),
        advantages=rows(estimated.advantages),
        returns=rows(estimated.returns),
    )


def valid_rows(fragment: Fragment, gamma: float, lambda_: float) -> TrainBatch:
    """Those rows of a fragment that are learnt from."""
    return to_rows(fragment, gamma, lambda_).only(rows(fragment.valid))
