"""Proximal policy optimisation (Schulman et al. 2017) with its implementation details (Huang 2022).

One iteration: sample fragments of fixed length → generalised advantages → epochs of shuffled
minibatches on the clipped objective. B rows.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field

from trainables.envs.make import importable_config
from trainables.envs.spaces.actions import ActionLayout
from trainables.errors import ConfigError
from trainables.learners.fused import ppo as fused
from trainables.learners.schedules import Schedule
from trainables.policies.architecture import Architecture
from trainables.rollout.batch import TrainBatch
from trainables.rollout.callbacks import CallbacksConfig
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.rollout.workers.worker_spec import LearnerSpec, WorkerSpec
from trainables.trainer.config import Lanes, TrainerConfig
from trainables.trainer.config_checks import lane_class
from trainables.trainer.families.actor_critic import (
    ActorCriticConfig,
    ActorCriticTrainer,
    valid_rows,
)
from trainables.trainer.families.steps import on_policy_step, step_in_ranks

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.learners.sgd import Learner
    from trainables.learners.torch_learner import Loss
    from trainables.policies.learning.networks import Stochastic

#: Names of the loss's parts.
STATS = ("policy_loss", "vf_loss", "entropy", "kl", "clip_fraction")


class Config(ActorCriticConfig):
    """Settings of PPO; the defaults suit classic control."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=128)
    clip_param: float = Field(
        default=0.2,
        gt=0,
        description="Maximum distance of the probability ratio from 1 (the clip range).",
    )
    clip_param_schedule: Schedule = Field(
        default="constant",
        description="Course of clip_param: constant; linear, to 0 over schedule_timesteps; or "
        "points [[environment steps, clip range], …], interpolated linearly, which replace "
        "clip_param.",
    )
    vf_clip_param: float | None = Field(
        default=None,
        gt=0,
        description="Maximum change in a value prediction in one iteration; null: no clipping.",
    )
    num_sgd_iter: int = Field(default=10, gt=0, description="Number of epochs over each batch.")
    sgd_minibatch_size: int | None = Field(
        default=None,
        gt=0,
        description="Maximum number of rows in a minibatch; null: a quarter of a batch's "
        "environment steps.",
    )
    target_kl: float | None = Field(
        default=None,
        gt=0,
        description="Mean KL divergence of an epoch above which the remaining epochs over the "
        "batch are skipped; null: no limit.",
    )

    lanes: Lanes = None

    @property
    def minibatch_size(self) -> int:
        """Largest number of rows of a minibatch; a quarter of `batch_size` if it is not set."""
        return self.sgd_minibatch_size or max(1, self.batch_size // 4)


class PPO(ActorCriticTrainer):
    """Proximal policy optimisation: epochs of minibatches with clipped ratios."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    learns_in_ranks: ClassVar[bool] = True
    stats: ClassVar[tuple[str, ...]] = STATS
    settings: Config

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> type[Self]:
        """Return the class to make with these settings: usually this one.

        With ``lanes`` set, it is the class for trials that share one compiled program.

        Raises:
            ConfigError: ``lanes`` is set, but JAX is not installed or this class is derived from
                PPO.
        """
        return lane_class(cls, config, "trainables.stacks.ppo:LanePPO") or super().of(config)

    @classmethod
    def as_lane(cls, config: Mapping[str, Any], lanes: int) -> dict[str, Any]:
        """Return the settings for training in one compiled program with others: ``lanes`` set."""
        return {**config, "lanes": lanes}

    def training_step(self) -> dict[str, float]:
        """Sample fragments, learn from them, and synchronise workers; return statistics.

        With ``data_parallel`` each rank, a child process, learns from its own fragments. The result
        is empty if no row is valid. Raises NotFiniteError if a loss or gradient is NaN or infinite.
        """
        if isinstance(self.workers, RankGroup):
            return step_in_ranks(self, self.workers, *self.rank_request())
        return on_policy_step(self, self.learn)

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together, or not with PPO.

        With ``data_parallel``, also for minibatches of fewer rows than workers, and schedules of
        the loss.
        """
        super().validate_config(settings)
        if not isinstance(settings, Config):
            return
        if not settings.workers.data_parallel:
            return
        if settings.minibatch_size < settings.workers.num_workers:
            number = settings.workers.num_workers
            raise ConfigError(
                "sgd_minibatch_size",
                settings.sgd_minibatch_size,
                hint=f"raise it to at least {number}, or lower num_workers",
                problem=f"{settings.minibatch_size} rows are too few to give each of {number} "
                "workers a share, as data_parallel does",
            )
        for key, schedule in settings.scheduled.items():
            other, why = "data_parallel", "the workers would keep its first value"
            undo = "remove data_parallel"
            raise ConfigError.of_conflict(f"{key}_schedule", schedule, other, "constant", why, undo)

    @classmethod
    def learning_rows_at_most(cls, settings: TrainerConfig) -> tuple[str, int]:
        """Return (``sgd_minibatch_size``, maximum number of rows of a gradient step)."""
        most = settings.minibatch_size if isinstance(settings, Config) else settings.batch_size
        return "sgd_minibatch_size", most

    @classmethod
    def check_rows(cls, settings: TrainerConfig, per_step: int) -> None:
        """Raise ConfigError for minibatches that are larger than a batch can be.

        Also for what `ActorCriticTrainer.check_rows` refuses. `per_step` is the number of rows that
        one environment step may give.
        """
        super().check_rows(settings, per_step)
        most = settings.batch_size * per_step
        if isinstance(settings, Config) and settings.minibatch_size > most:
            raise ConfigError(
                "sgd_minibatch_size",
                settings.sgd_minibatch_size,
                hint="lower it, or raise train_batch_size",
                problem=f"{settings.minibatch_size} is more than the {most} rows of a batch",
            )

    def torch_loss(self) -> "Loss":
        """Return the loss function for torch, with the present values of scheduled settings."""
        return partial(ppo_loss, settings=self.settings.with_schedules_at(self.progress.timesteps))

    def fused_loss(self) -> fused.Loss:
        """Return the options of the loss for learners in numpy or C, with scheduled values."""
        return fused_options(self.settings.with_schedules_at(self.progress.timesteps))

    def take_steps(self, learner: "Learner", batch: TrainBatch) -> dict[str, float]:
        """Learn from a batch in epochs of shuffled minibatches; return statistics by name.

        They are means of `STATS`, ``grad_norm``, ``lr``, and ``explained_variance`` if the returns
        vary. The order is drawn from the stream ``minibatch``. No epoch follows one whose mean KL
        divergence exceeds ``target_kl``. Raises NotFiniteError if a loss or gradient is NaN or
        infinite.
        """
        from trainables.learners.sgd import learn

        settings = self.settings
        return learn(
            learner,
            batch,
            self.streams["minibatch"],
            epochs=settings.num_sgd_iter,
            minibatch_size=settings.minibatch_size,
            rate=self.learning_rate,
            target_kl=settings.target_kl,
            normalize_advantages=settings.normalize_advantages,
        )

    def worker_spec(self) -> WorkerSpec:
        """Return the description of workers.

        With ``data_parallel`` it includes a learner for each.
        """
        learner = self.learner_spec() if self.settings.workers.data_parallel else None
        return replace(super().worker_spec(), learner=learner)

    def learner_spec(self) -> LearnerSpec:
        """Return the description of the learner in each rank, which can be sent to a process.

        Its loss does not standardise advantages: that is done over all ranks before. Raises
        ConfigError if a process cannot import the environment.
        """
        from trainables.learners.sgd import learn

        settings = self.settings
        networks = (self.spaces.layout, self.architecture)
        # Settings that can be sent to other processes, without functions written by users.
        changed: dict[str, object] = {
            "environment": importable_config(settings.environment),
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
        """Return what each rank has to do in an iteration: equal parts of batch and minibatches.

        The values are environment steps, epochs, rows of a minibatch, columns to standardise, and
        learning rate.
        """
        settings, ranks = self.settings, self.settings.workers.num_workers
        return (
            settings.batch_size // ranks,
            settings.num_sgd_iter,
            settings.minibatch_size // ranks,
            ("advantages",) if settings.normalize_advantages else (),
            self.learning_rate,
        )


def fused_options(settings: Config) -> fused.Loss:
    """Return the options of the loss for the learner in numpy or C, from these settings."""
    return fused.Loss(
        clip_param=settings.clip_param,
        vf_clip_param=settings.vf_clip_param,
        vf_loss_coeff=settings.vf_loss_coeff,
        entropy_coeff=settings.entropy_coeff,
        normalize_advantages=settings.normalize_advantages,
        grad_clip=settings.grad_clip,
    )


def rank_learner(
    networks: tuple[ActionLayout, Architecture], settings: Config, seed: int
) -> "Learner":
    """Make the learner of one rank: a new policy in torch, with PPO's loss.

    Runs in a child process.
    """
    from trainables.learners.torch_learner import TorchLearner
    from trainables.policies.learning.torch_policy import build_policy

    policy = build_policy(networks, settings.optimizer, seed)
    return TorchLearner(policy, partial(ppo_loss, settings=settings), STATS, settings.grad_clip)


def ppo_loss(
    model: "Stochastic", minibatch: "Mapping[str, Tensor]", settings: Config
) -> "tuple[Tensor, Tensor]":
    """Return PPO's loss () of one minibatch, and its parts (S,) in the order of `STATS`.

    The minibatch maps column → tensor (B, …): ``observations``, ``actions``, ``logp`` and
    ``values`` of sampling time, ``advantages`` and ``returns``. With ``normalize_advantages``,
    those of at least `LEAST_ROWS` rows are standardised first. The parts have no gradient.
    """
    import torch

    from trainables.learners.torch_learner import normalized
    from trainables.policies.learning.networks import sequence_layout_of

    replay = sequence_layout_of(minibatch)
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


def vf_loss(values: "Tensor", minibatch: "Mapping[str, Tensor]", clip: float | None) -> "Tensor":
    """Return half the mean squared error () of values; of clipped ones where those are worse.

    The minibatch has ``values``, from sampling time, and ``returns``; `clip` is the largest change
    of a value, or None.
    """
    errors = (values - minibatch["returns"]).square()
    if clip is not None:
        moved = (values - minibatch["values"]).clamp(-clip, clip)
        errors = errors.maximum((minibatch["values"] + moved - minibatch["returns"]).square())
    return 0.5 * errors.mean()
