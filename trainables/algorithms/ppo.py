"""Proximal policy optimisation (Schulman et al. 2017) with its details (Huang et al. 2022).

One iteration: sample fixed-length fragments → generalised advantages → epochs of shuffled
minibatches over the clipped objective. B rows, D features, A action dimensions.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from trainables.core.settings import flatten
from trainables.envs.exactness.measuring import Inquiry, Look
from trainables.envs.make import EnvSpaces, for_children
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.learners.fused import compiled
from trainables.learners.fused import ppo as fused
from trainables.learners.fused.ppo import FusedLearner, not_covered
from trainables.learners.returns import generalized_advantages, next_values
from trainables.learners.sequences import SequenceBatch, in_sequences
from trainables.policies.architecture import Architecture, architecture
from trainables.rollout.batch import Fragment, TrainBatch, rows
from trainables.rollout.callbacks import CallbacksConfig
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.rollout.workers.worker_spec import LearnerSpec, WorkerSpec
from trainables.trainer.config import TrainerConfig
from trainables.trainer.steps import on_policy_step, step_in_ranks
from trainables.trainer.trainer import Trainer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainables.learners.sgd import Learner, TorchLearner
    from trainables.policies.networks import ActorCritic
    from trainables.policies.torch_policy import ActorCriticPolicy

logger = logging.getLogger(__name__)
COMPILED, NUMPY = "compiled", "numpy"
STATS = ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction")


class Config(TrainerConfig):
    """Settings of PPO; the defaults suit classic control."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=128)
    lambda_: float = Field(default=0.95, ge=0, le=1, description="λ of the advantage estimate.")
    clip_param: float = Field(
        default=0.2, gt=0, description="Bound on how far the ratio may move from 1."
    )
    vf_clip_param: float | None = Field(
        default=None,
        gt=0,
        description="Bound on how far a value may move in one iteration; null: none.",
    )
    vf_loss_coeff: float = Field(default=0.5, ge=0, description="Weight of the value loss.")
    entropy_coeff: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus.")
    num_sgd_iter: int = Field(default=10, gt=0, description="Epochs over each batch.")
    sgd_minibatch_size: int | None = Field(
        default=None,
        gt=0,
        description="Rows of a minibatch, at most; null: a quarter of the batch.",
    )
    normalize_advantages: bool = Field(
        default=True, description="Advantages of each minibatch have mean 0 and deviation 1."
    )
    grad_clip: float | None = Field(
        default=0.5, gt=0, description="Bound on the norm of the whole gradient; null: none."
    )
    target_kl: float | None = Field(
        default=None,
        gt=0,
        description="No further epoch once the mean KL of one exceeds it; null: none.",
    )
    learner: Literal["auto", "compiled", "fused", "torch"] = Field(
        default="auto",
        description="What computes gradients: torch; or fused, which is the same in numpy, several "
        "times as fast for small networks; or compiled, which is fused in C, where `make kernels` "
        "was run; auto: compiled, else fused where it can, which is for perceptrons that learn in "
        "one process on the CPU.",
    )

    @property
    def minibatch_size(self) -> int:
        """Rows of a minibatch, at most."""
        return self.sgd_minibatch_size or max(1, self.batch_size // 4)


class PPO(Trainer):
    """Proximal policy optimisation."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    learns_in_ranks: ClassVar[bool] = True
    before_auto: ClassVar[Mapping[str, Any]] = {**Trainer.before_auto, "learner": "torch"}
    settings: Config
    policy: "ActorCriticPolicy"

    def make_policy(self, device: "torch.device") -> "ActorCriticPolicy":
        """Actor and critic."""
        from trainables.policies.torch_policy import build_policy

        networks = (self.spaces.layout, self.architecture)
        return build_policy(networks, self.settings.optimizer, self.seed, device)

    # ---- the kernel --------------------------------------------------------------------------

    @property
    def kernel(self) -> str:
        """The name of what computes the gradients if they are `COMPILED`; without it `NUMPY`."""
        found = self.settings.learner == COMPILED
        if not found or self._not_compiled(self.settings, self.spaces):
            return NUMPY
        kernel = compiled.built()
        return kernel.name if kernel else NUMPY

    def _build(self, settings: TrainerConfig, inquiry: Inquiry) -> None:
        if self.settings.learner == COMPILED and compiled.built() is None:
            self._refuse_kernel("a compiled one")
        super()._build(settings, inquiry)

    def _refuse_kernel(self, needed: str) -> None:
        """Raise ConfigError, unless another kernel may go on.

        `needed` says which one the trial has, in words.
        """
        if not self.context.other_kernel:
            why = (
                f"this trial has {needed}; make kernels builds one, or sweep resume NAME "
                f"--other-kernel goes on with what is here, not to the bit"
            )
            raise ConfigError("learner", COMPILED, "one whose kernel is built here", why)

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """With the kernel's name, if gradients are compiled: others round otherwise."""
        saved = super().save_checkpoint(checkpoint_dir)
        return {**saved, "kernel": self.kernel} if self.settings.learner == COMPILED else saved

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Take back what `save_checkpoint` gave.

        Raises:
            ConfigError: it was saved with another kernel, or as `Trainer.load_checkpoint` says.
        """
        before = self.kernel
        self._settle(checkpoint.get("settled", {}))
        needed = checkpoint.get("kernel", self.kernel)
        if needed != self.kernel:
            self._refuse_kernel(f"kernel {needed}, and here is {self.kernel}")
            checkpoint = self._with_this_kernel(checkpoint)
        if before != self.kernel:
            self.__dict__.pop("_fused_learner", None)
        super().load_checkpoint(checkpoint)

    def adapted(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """As `Trainer.adapted`; where the kernel is another one, the state says so."""
        state = super().adapted(state)
        data = state["trainable"].get("data")
        if not isinstance(data, Mapping) or "kernel" not in data:
            return state
        self._settle(data.get("settled", {}))
        anew = self._with_this_kernel(data)
        return {**state, "trainable": {**state["trainable"], "data": anew}}

    def _with_this_kernel(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """A checkpoint's data as if this kernel had made it; it says that the curve is inexact."""
        if data["kernel"] == self.kernel:
            return data
        steps, before = int(data["progress"]["timesteps"]), data.get("inexact")
        why = (
            f"restored after {steps} steps with kernel {self.kernel} (saved with {data['kernel']})"
        )
        logger.warning("%s; the curve is no longer exact", why)
        return {**data, "kernel": self.kernel, "inexact": f"{before}; {why}" if before else why}

    def training_step(self) -> dict[str, float]:
        """Sample fixed-length fragments and learn from them; in ranks each from its own."""
        if isinstance(self.workers, RankGroup):
            return step_in_ranks(self, self.workers, *self.rank_request())
        return on_policy_step(self, self.learn)

    @classmethod
    def choose(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        """The learner: fused, unless something is asked for that it does not know."""
        why, asked = cls._not_fused(settings, seen.spaces), flatten(settings).get("learner")
        if why and asked in ("fused", COMPILED):
            raise ConfigError("learner", asked, "auto or torch here", why)
        kernel = not why and not cls._not_compiled(settings, seen.spaces)
        chosen = "torch" if why else COMPILED if kernel else "fused"
        return {**super().choose(settings, seen), "learner": chosen}

    @classmethod
    def settled_alike(cls, settled: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
        """As `Trainable.settled_alike`; compiled only where the first trial is."""
        alike = super().settled_alike(settled, first)
        if {alike.get("learner"), first.get("learner")} == {"fused", COMPILED}:
            alike["learner"] = first["learner"]
        return alike

    @classmethod
    def _not_compiled(cls, settings: TrainerConfig, spaces: EnvSpaces) -> str:
        """Why what is fused has to be numpy's; empty if it need not be."""
        if compiled.built() is None:
            return "its kernel is not built here: make kernels builds it"
        networks = architecture(settings.model, spaces.observation_shape)
        return compiled.not_covered(spaces.layout, networks)

    @classmethod
    def _not_fused(cls, settings: TrainerConfig, spaces: EnvSpaces) -> str:
        """Why the gradients have to be torch's; empty if they need not be."""
        if cls.loss is not PPO.loss or cls.learn is not PPO.learn:
            return f"{cls.__name__} has a way of learning of its own"
        if settings.workers.data_parallel:
            return "data_parallel is true"
        if settings.resources.num_gpus:
            return "num_gpus is not 0"
        networks = architecture(settings.model, spaces.observation_shape)
        return not_covered(spaces.layout, networks)

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError also where minibatches do not fit the batch or the ranks."""
        super().validate_config(settings)
        if isinstance(settings, Config) and settings.minibatch_size > settings.batch_size:
            raise ConfigError(
                "sgd_minibatch_size",
                settings.sgd_minibatch_size,
                f"at most the {settings.batch_size} rows of a batch",
                "lower it or raise train_batch_size",
            )
        ranks = settings.workers.num_workers if settings.workers.data_parallel else 1
        if isinstance(settings, Config) and settings.minibatch_size < ranks:
            raise ConfigError(
                "sgd_minibatch_size",
                settings.sgd_minibatch_size,
                f"at least {ranks} with data_parallel: each rank has a share of a minibatch",
            )

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

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, dict[str, float]]":
        """The clipped objective with the value loss and the entropy bonus."""
        loss, parts = ppo_loss(self.policy.model, batch, self.settings)
        return loss, dict(zip(STATS, parts.tolist(), strict=True))

    def gradient_step(self) -> tuple[float, float | None]:
        """The learning rate now, and the bound on the norm of the whole gradient or None."""
        return self.learning_rate, self.settings.grad_clip

    def worker_spec(self) -> WorkerSpec:
        """What workers are made from; of ranks also what they learn with."""
        learner = self.learner_spec() if self.settings.workers.data_parallel else None
        return replace(super().worker_spec(), learner=learner)

    def learner_spec(self) -> LearnerSpec:
        """What ranks learn with: this loss, with advantages normalised over the rows of all."""
        from trainables.learners.sgd import learn

        settings = self.settings
        networks = (self.spaces.layout, self.architecture)
        # As they travel, without functions of a person.
        changed: dict[str, object] = {
            "environment": for_children(settings.environment),
            "callbacks": CallbacksConfig(),
            "normalize_advantages": False,
        }
        in_ranks = settings.model_copy(update=changed)
        return LearnerSpec(
            make_learner=partial(rank_learner, networks, in_ranks, self.seed),
            to_rows=partial(valid_rows, gamma=settings.gamma, lambda_=settings.lambda_),
            learn=partial(learn, target_kl=settings.target_kl),
        )

    def rank_request(self) -> tuple[int, int, int, tuple[str, ...], float]:
        """Each rank has an equal share of the batch and of every minibatch."""
        settings, ranks = self.settings, self.settings.workers.num_workers
        return (
            settings.batch_size // ranks,
            settings.num_sgd_iter,
            settings.minibatch_size // ranks,
            ("advantages",) if settings.normalize_advantages else (),
            self.learning_rate,
        )

    @property
    def learner(self) -> "Learner":
        """What takes the gradient steps."""
        fused = None if self.settings.learner == "torch" else self._fused_learner
        return fused or self._torch_learner

    @cached_property
    def _fused_learner(self) -> FusedLearner | None:
        if self._not_fused(self.settings, self.spaces):  # a checkpoint's, restored elsewhere
            return None
        kernel = None if self.kernel == NUMPY else compiled.built()
        return make_fused_learner(self.policy, self.settings, kernel)

    @cached_property
    def _torch_learner(self) -> "TorchLearner":
        if "learner" in self._undecided:
            why = self._not_fused(self.settings, self.spaces) or "its training began with it"
            logger.info("learner: auto is torch, as %s", why)
        return make_learner(self.policy, self.settings)

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """One iteration of learning; returns the means of the losses over all minibatches."""
        from trainables.learners.sgd import learn

        settings = self.settings
        batch = self.learning_rows(fragments)
        if len(batch) == 0:
            logger.warning("no valid row in this iteration; nothing is learnt from it")
            return {}
        self.reporter.log("training batch", batch)
        return learn(
            self.learner,
            batch,
            self.streams["minibatch"],
            epochs=settings.num_sgd_iter,
            minibatch_size=settings.minibatch_size,
            rate=self.learning_rate,
            target_kl=settings.target_kl,
        )


def make_learner(policy: "ActorCriticPolicy", settings: Config) -> "TorchLearner":
    """The policy with the loss that these settings ask for."""
    from trainables.learners.sgd import TorchLearner

    return TorchLearner(policy, partial(ppo_loss, settings=settings), STATS, settings.grad_clip)


def make_fused_learner(
    policy: "ActorCriticPolicy", settings: Config, kernel: compiled.Kernel | None = None
) -> FusedLearner:
    """The policy with this loss in numpy or a kernel, where their `not_covered` say nothing."""
    loss = fused.Loss(
        clip_param=settings.clip_param,
        vf_clip_param=settings.vf_clip_param,
        vf_loss_coeff=settings.vf_loss_coeff,
        entropy_coeff=settings.entropy_coeff,
        normalize_advantages=settings.normalize_advantages,
        grad_clip=settings.grad_clip,
    )
    threads = settings.resources.threads[0]
    if kernel is not None:
        return compiled.CompiledLearner(policy, loss, STATS, threads, kernel=kernel)
    return FusedLearner(policy, loss, STATS, threads)


def rank_learner(
    networks: tuple[ActionLayout, Architecture], settings: Config, seed: int
) -> "Learner":
    """A policy of its own with this loss, for a rank."""
    from trainables.policies.torch_policy import build_policy

    return make_learner(build_policy(networks, settings.optimizer, seed), settings)


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


def ppo_loss(
    model: "ActorCritic", minibatch: "Mapping[str, Tensor]", settings: Config
) -> "tuple[Tensor, Tensor]":
    """The loss of one minibatch, and its parts in the order of `STATS`."""
    import torch

    from trainables.policies.networks import replay_of

    replay = replay_of(minibatch)
    evaluated = model.evaluate(minibatch["observations"], minibatch["actions"], replay)
    logp = evaluated.logp
    log_ratio = logp - minibatch["logp"]
    ratio = log_ratio.exp()
    advantages = minibatch["advantages"]
    if settings.normalize_advantages:
        advantages = normalized(advantages)
    clip = settings.clip_param
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    value_loss = vf_loss(evaluated.values, minibatch, settings.vf_clip_param)
    entropy = evaluated.entropies.mean()
    loss = policy_loss - settings.entropy_coeff * entropy + settings.vf_loss_coeff * value_loss
    with torch.no_grad():
        kl = (ratio - 1.0 - log_ratio).mean()  # the k3 estimator (Schulman 2020)
        outside = ((ratio - 1.0).abs() > clip).float().mean()
        stats = torch.stack([policy_loss, value_loss, entropy, kl, outside])
    return loss, stats


def normalized(advantages: "Tensor") -> "Tensor":
    """(B,) with mean 0 and deviation 1."""
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)


def vf_loss(values: "Tensor", minibatch: "Mapping[str, Tensor]", clip: float | None) -> "Tensor":
    """Half the mean squared error of the values; clipped ones count where they are worse."""
    errors = (values - minibatch["returns"]).square()
    if clip is not None:
        moved = (values - minibatch["values"]).clamp(-clip, clip)
        errors = errors.maximum((minibatch["values"] + moved - minibatch["returns"]).square())
    return 0.5 * errors.mean()
