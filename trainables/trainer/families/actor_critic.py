"""The trainer of actor-critic methods: fragments, advantages, gradient steps in numpy or torch.

An algorithm defines its loss twice: for torch, and as options of the fused learner. B rows.
"""

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from trainables.envs.exactness.measuring import Inquiry, Inspection
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import spread
from trainables.errors import ConfigError, in_yaml
from trainables.learners import compiling
from trainables.learners.fused import compiled
from trainables.learners.fused.policy import FlatPolicy
from trainables.learners.fused.ppo import FusedLearner, find_reason_for_torch
from trainables.learners.fused.ppo import Loss as FusedLoss
from trainables.learners.returns import generalized_advantages, next_values
from trainables.learners.schedules import Schedule, schedule_value
from trainables.learners.sequences import SequenceBatch, in_sequences
from trainables.learners.standardizing import LEAST_ROWS, moments
from trainables.policies.architecture import Architecture
from trainables.policies.exploration.actions import (
    PolicyNoiseConfig,
    PredictedStdSampling,
    StateDependentSampling,
)
from trainables.policies.own import distribution
from trainables.policies.own.distribution import OwnDistribution
from trainables.policies.policy import Scalar
from trainables.rollout.batch import Fragment, TrainBatch, rows
from trainables.trainable import gives_data
from trainables.trainer import agreement, config_checks
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.steps import on_policy_step
from trainables.trainer.trainer import Trainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.learners.sgd import Learner
    from trainables.learners.torch_learner import Loss, TorchLearner
    from trainables.policies.learning.torch_policy import ActorCriticPolicy

logger = logging.getLogger(__name__)
#: The value of `learner` that names a kernel.
COMPILED = "compiled"
#: Name in place of a kernel's where there is none.
NO_KERNEL = "numpy"


class ActorCriticConfig(TrainerConfig):
    """Settings of every actor-critic method."""

    lambda_: float = Field(
        default=0.95, ge=0, le=1, description="λ of the advantage estimate (GAE)."
    )
    vf_loss_coeff: float = Field(default=0.5, ge=0, description="Weight of the value loss.")
    entropy_coeff: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus.")
    entropy_coeff_schedule: Schedule = Field(
        default="constant",
        description="Course of entropy_coeff: constant; linear, to 0 over schedule_timesteps; or "
        "points [[environment steps, weight], …], interpolated linearly, which replace "
        "entropy_coeff.",
    )
    exploration_config: PolicyNoiseConfig = Field(
        default=PolicyNoiseConfig(),
        description="Exploration while experience is collected.",
    )
    normalize_advantages: bool = Field(
        default=True,
        description="Scale the advantages of each minibatch to mean 0 and standard deviation 1; "
        f"minibatches of fewer than {LEAST_ROWS} rows use the mean and deviation of the whole "
        "batch. A batch of one row, which has no deviation, is refused.",
    )
    grad_clip: float | None = Field(
        default=0.5,
        gt=0,
        description="Maximum norm of the gradient of all weights; null: no clipping.",
    )
    learner: Literal["auto", "compiled", "fused", "torch"] = Field(
        default="auto",
        description="Implementation of the gradients: torch; fused, in numpy, several times as "
        "fast for small networks (ppo and a2c then start without torch); compiled, in C, built by "
        "`make kernels`. auto: torch, except for MLPs that learn in one process on the CPU; these "
        "use compiled if it is built and fused if not.",
    )

    learner_compile: bool = Field(default=False, description=compiling.DESCRIPTION)

    @property
    def scheduled(self) -> dict[str, Schedule]:
        """Setting, such as ``entropy_coeff`` → its schedule, for settings of the loss.

        Those whose schedule is constant are left out.
        """
        fields = {key: getattr(self, key) for key in type(self).model_fields}
        return {
            key.removesuffix("_schedule"): schedule
            for key, schedule in fields.items()
            if key.endswith("_schedule") and schedule != "constant"
        }

    def with_schedules_at(self, timesteps: int) -> Self:
        """Return the settings with their schedules' values after `timesteps` environment steps.

        Only settings of the loss are changed, not the learning rate. Returns the settings
        themselves if no schedule is set.
        """
        length = self.schedule.schedule_timesteps
        changed = {
            key: schedule_value(getattr(self, key), schedule, length, timesteps)
            for key, schedule in self.scheduled.items()
        }
        return self.model_copy(update=changed) if changed else self


class ActorCriticTrainer(Trainer):
    """Base of algorithms that learn with advantages from the latest samples: PPO, A2C, IMPALA."""

    config_class: ClassVar[type[TrainerConfig]] = ActorCriticConfig
    model_keys: ClassVar[frozenset[str]] = config_checks.OF_SOME
    auto_settings: ClassVar[tuple[str, ...]] = (*Trainer.auto_settings, "learner")
    masks_actions: ClassVar[bool] = True
    spreads_actions: ClassVar[bool] = True
    stats: ClassVar[tuple[str, ...]]
    """Names of the loss's parts, in the order in which both learners return them."""
    settings: ActorCriticConfig
    policy: "ActorCriticPolicy | FlatPolicy"

    @abstractmethod
    def torch_loss(self) -> "Loss":
        """Return the loss as a function for torch, with the current values of its schedules."""

    @abstractmethod
    def fused_loss(self) -> FusedLoss:
        """Return the loss as options of the numpy learner, with the current values of schedules."""

    @abstractmethod
    def take_steps(self, learner: "Learner", batch: TrainBatch) -> dict[str, float]:
        """Take the gradient steps of one round on `batch`; return statistics by name.

        They are those of `learners.sgd.learn`: means of the loss's parts, ``grad_norm``, ``lr``,
        and ``explained_variance`` if the returns vary.
        """

    def make_policy(self, device: str) -> "ActorCriticPolicy | FlatPolicy":
        """Create the policy, with actor and critic; without torch if numpy computes gradients.

        `device` is torch's, and not used without torch. Weights are drawn from the trial's seed.
        """
        networks = (self.spaces.layout, self.architecture)
        if not self.computes_in_torch:
            return FlatPolicy(networks, self.settings.optimizer, self.seed)
        from trainables.policies.learning.torch_policy import build_policy

        return build_policy(networks, self.settings.optimizer, self.seed, device)

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together.

        Beside those of every trainer they are what does not work with ``learner_compile``, and own
        modules, other deviations, an LSTM or ``remote_env_batch_wait_ms`` with state-dependent
        noise.
        """
        super().validate_config(settings)
        if isinstance(settings, ActorCriticConfig) and settings.learner_compile:
            _check_compiling(settings)
        if isinstance(settings, ActorCriticConfig) and settings.exploration_config.state_dependent:
            only: dict[str, tuple[Any, Any]] = {
                "model.custom_model": (settings.model.custom_model, None),
                "model.custom_action_dist": (settings.model.custom_action_dist, None),
                "model.free_log_std": (settings.model.free_log_std is False, False),
                "model.log_std_init": (settings.model.log_std_init, None),
                "model.use_lstm": (settings.model.use_lstm, False),
                "remote_env_batch_wait_ms": (settings.envs.remote_env_batch_wait_ms, 0),
            }
            for key, (value, allowed) in only.items():
                if value != allowed:
                    other = "exploration_config.type: StateDependentNoise"
                    undo = "set another exploration"
                    raise ConfigError.of_conflict(key, value, other, in_yaml(allowed), undo=undo)

    @property
    def computes_in_torch(self) -> bool:
        """True if torch computes the gradients."""
        return self.settings.learner == "torch" or bool(self._why_torch)

    @cached_property
    def _why_torch(self) -> str:
        """Reason why torch must compute the gradients; empty if numpy can.

        A checkpoint that numpy computed may be restored with settings that need torch.
        """
        return self._find_reason_for_torch(self.settings, self.spaces)

    def training_step(self) -> dict[str, float]:
        """Sample, learn from the samples, and synchronise; returns the learner's statistics."""
        return on_policy_step(self, self.learn)

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → value for settings that may be ``auto``.

        ``learner`` is compiled or fused unless a setting needs torch. A user's module or
        distribution is tried.

        Raises ConfigError if a setting does not work with this environment.
        """
        cls.check_rows(settings, inspection.rows_per_step)
        if isinstance(settings, ActorCriticConfig) and settings.exploration_config.state_dependent:
            StateDependentSampling(inspection.spaces.layout, 1)
        cls._check_own(settings, inspection.spaces)
        if settings.model.free_log_std is False:
            PredictedStdSampling(inspection.spaces.layout)
        at_first = settings.model.log_std_init
        if at_first is not None and not len(inspection.spaces.layout.real_columns):
            problem = "has no effect on discrete actions, which have no standard deviation"
            raise ConfigError("model.log_std_init", at_first, hint="remove it", problem=problem)
        why = cls._find_reason_for_torch(settings, inspection.spaces)
        asked = settings.learner if isinstance(settings, ActorCriticConfig) else "auto"
        if why and asked in ("fused", COMPILED):
            raise ConfigError.of_conflict("learner", asked, "", "auto or torch", why)
        fused = COMPILED if cls._kernel(settings, inspection.spaces) else "fused"
        return {**super().choose(settings, inspection), "learner": "torch" if why else fused}

    @classmethod
    def why_acts_on_cpu(cls, settings: TrainerConfig) -> str:
        """Return the reason why the policy cannot act on the GPU; empty if it can."""
        if isinstance(settings, ActorCriticConfig) and settings.exploration_config.state_dependent:
            return "exploration_config.type is StateDependentNoise"
        return config_checks.why_acts_on_cpu(settings)

    @classmethod
    def why_no_graphs(cls, settings: TrainerConfig) -> str:
        """Return the reason why gradient steps cannot be CUDA graphs; empty if they can."""
        if settings.model.use_lstm:
            return "model.use_lstm is true"
        if isinstance(settings, ActorCriticConfig) and settings.scheduled:
            return f"{next(iter(settings.scheduled))}_schedule is not constant"
        return config_checks.why_no_graphs(settings)

    @classmethod
    def learning_rows_at_most(cls, settings: TrainerConfig) -> tuple[str, int]:
        """Return (setting that limits the rows of one gradient step, that number of rows).

        Here it is ``train_batch_size``, for one step with the whole batch.
        """
        return "train_batch_size", settings.batch_size

    @classmethod
    def check_rows(cls, settings: TrainerConfig, per_step: int) -> None:
        """Raise ConfigError if a batch has one row, but its advantages are to be normalised.

        Batches of complete episodes are not checked. `per_step` is the maximum of rows of an
        environment step, one for each agent of this policy.
        """
        if not isinstance(settings, ActorCriticConfig) or not settings.normalize_advantages:
            return
        whole = settings.sampling.batch_mode == "complete_episodes"
        if settings.batch_size * per_step == 1 and not whole:
            why, undo = "one number has no deviation", "raise train_batch_size"
            place, other = "normalize_advantages", "a batch of one row"
            raise ConfigError.of_conflict(place, True, other, "false", why, undo)

    @classmethod
    def networks(cls, settings: TrainerConfig, spaces: EnvSpaces) -> Architecture:
        """Return the architecture of the networks for these settings and spaces.

        It has state-dependent noise or a user's distribution if they are set. Raises ConfigError if
        the key ``model`` does not fit the spaces, or the distribution cannot be loaded.
        """
        architecture = super().networks(settings, spaces)
        if isinstance(settings, ActorCriticConfig) and settings.exploration_config.state_dependent:
            explored = settings.exploration_config
            architecture = replace(
                architecture, noise=(explored.log_std_init, explored.sample_freq)
            )
        if (path := settings.model.custom_action_dist) is not None:
            architecture = replace(
                architecture, distribution=OwnDistribution.of(path, spaces.action)
            )
        return architecture

    @classmethod
    def _check_own(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Try a user's distribution or module; raises ConfigError if it breaks its contract.

        A module must also learn from batches of this size, and have no buffers with
        ``data_parallel``.
        """
        tried = cls.networks(settings, spaces)
        if tried.distribution is not None:
            distribution.check(tried.distribution, spaces.layout)
        if tried.custom_model is None:
            return
        # Loaded for such a module only: to choose needs no torch.
        from trainables.policies.own.module import check, check_learning_rows

        module = check(tried, tried.count_outputs(spaces.layout), "values")
        check_learning_rows(tried, module, *cls.learning_rows_at_most(settings))
        if settings.workers.data_parallel and list(module.buffers()):
            path = tried.custom_model.path
            problem = (
                f"{path} has buffers, which would differ between the processes of data_parallel"
            )
            hint = "use a module without buffers, or remove data_parallel"
            raise ConfigError("model.custom_model", path, hint=hint, problem=problem)

    @classmethod
    def align_settled(cls, values: Mapping[str, Any], first: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chosen ``auto`` values to record with a later trial of a sweep.

        `values` are those chosen for this trial, `first` those of the sweep's first trial. Keys
        that `first` lacks are dropped. Of the learners fused and compiled, the first trial's is
        taken; torch stays as it is.
        """
        aligned = super().align_settled(values, first)
        if {aligned.get("learner"), first.get("learner")} == {"fused", COMPILED}:
            aligned["learner"] = first["learner"]
        return aligned

    @classmethod
    def _kernel(cls, settings: TrainerConfig, spaces: EnvSpaces) -> compiled.Kernel | None:
        """Return the built C kernel that computes gradients of these networks.

        Returns None if none is built, or it does not support the networks.
        """
        networks = cls.networks(settings, spaces)
        return None if compiled.find_reason_for_numpy(spaces.layout, networks) else compiled.built()

    @classmethod
    def _find_reason_for_torch(cls, settings: TrainerConfig, spaces: EnvSpaces) -> str:
        """Return the reason why torch must compute the gradients; empty if numpy can.

        Reasons are an own loss or way of learning in a subclass, state-dependent noise,
        ``learner_compile``, ``data_parallel``, a GPU, and networks or optimisers that numpy lacks.
        """
        known = {cls.defining_class("fused_loss"), ActorCriticTrainer}
        for name in ("loss", "learn", "torch_loss", "take_steps"):
            if cls.defining_class(name) not in known:
                return f"{cls.__name__} has its own way of learning"
        if isinstance(settings, ActorCriticConfig) and settings.exploration_config.state_dependent:
            return "exploration_config.type is StateDependentNoise"
        if isinstance(settings, ActorCriticConfig) and settings.learner_compile:
            return "learner_compile is true"
        if settings.workers.data_parallel:
            return "data_parallel is true"
        if settings.resources.num_gpus:
            return "num_gpus is not 0"
        networks = cls.networks(settings, spaces)
        return find_reason_for_torch(spaces.layout, networks, settings.optimizer)

    @classmethod
    def defining_class(cls, name: str) -> type:
        """Return the class, this one or a base, that defines the method `name`."""
        return next(one for one in cls.__mro__ if name in vars(one))

    # ---- the kernel of compiled gradients ---------------------------------------------------

    @property
    def kernel(self) -> str:
        """Name of the C kernel that computes the gradients; ``numpy`` if there is none."""
        if self.settings.learner != COMPILED:
            return NO_KERNEL
        found = self._kernel(self.settings, self.spaces)
        return found.name if found else NO_KERNEL

    def _build(self, settings: TrainerConfig, inquiry: Inquiry) -> None:
        """Build everything that `Collector._build` builds.

        Logs a warning if an environment that calls the trainer gets actions that are not scaled to
        its bounds.

        Raises ConfigError if ``learner`` is the compiled one, but its kernel is not built.
        """
        if self.settings.learner == COMPILED and compiled.built() is None:
            self._refuse_kernel("a compiled kernel")
        super()._build(settings, inquiry)
        seen = inquiry.inspect()
        each = [one.action for one in (*seen.agents.values(), seen.spaces)]
        if seen.calls_trainer and (wide := next((one for one in each if spread(one)), None)):
            logger.warning(
                "normalize_actions is false with an external environment: the "
                "policy's numbers, which are near 0 at first, are sent as they are, clipped to %s; "
                "let the environment take numbers from -1 to 1",
                wide,
            )

    def _refuse_kernel(self, needed: str) -> None:
        """Raise ConfigError unless the trial may continue with another kernel than `needed`.

        `needed` describes the kernel with which it was trained.
        """
        if not self.context.allows_other_kernel:
            problem = f"{COMPILED} needs the kernel with which this trial was trained, {needed}"
            hint = (
                "build that kernel with make kernels, or continue with the kernel here, "
                "which is not bit-exact: sweep resume NAME --other-kernel"
            )
            raise ConfigError("learner", COMPILED, hint=hint, problem=problem)

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the data of `TrainingLoop.save_checkpoint`.

        If ``learner`` is compiled, they have the kernel's name as ``kernel``, since other kernels
        round differently.
        """
        saved = super().save_checkpoint(checkpoint_dir)
        return {**saved, "kernel": self.kernel} if self.settings.learner == COMPILED else saved

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore a checkpoint that `save_checkpoint` returned.

        Settings that were ``auto`` get the values that they had in it. If it was saved with another
        kernel and the trial may continue with this one, `inexact` and the log name the reason why
        the curve is no longer exact.

        Raises:
            ConfigError: it was saved with another kernel, and the trial may not continue with this
                one; or as `Trainer.load_checkpoint` says.
        """
        before = self.kernel
        self._settle(checkpoint["settled"])
        if (needed := checkpoint.get("kernel", self.kernel)) != self.kernel:
            self._refuse_kernel(f"kernel {needed}, but the kernel here is {self.kernel}")
        checkpoint = self.as_computed_here(checkpoint)
        if before != self.kernel:
            self.__dict__.pop("_fused_learner", None)
        super().load_checkpoint(checkpoint)

    def as_computed_here(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a checkpoint's data as if this trainer's kernel had computed it.

        If another kernel had, the data and the log name this as the reason why the curve is no
        longer exact. The trainer's settings that were ``auto`` get the values that they had in the
        checkpoint.
        """
        self._settle(data["settled"])
        known = data.get("kernel", NO_KERNEL)
        saved = "torch" if data["settled"]["learner"] == "torch" else known
        if known == self.kernel:
            return data
        steps = int(data["progress"]["timesteps"])
        kernels = f"kernel {self.kernel} (saved with {saved})"
        why = f"restored after {steps} steps with {kernels}"
        return {**data, "kernel": self.kernel, "inexact": agreement.log_inexactness(data, why)}

    # ---- learning ----------------------------------------------------------------------------

    def learning_rows(self, fragments: list[Fragment]) -> TrainBatch:
        """Return the valid rows of all fragments with advantages; in sequences for an LSTM.

        The callback ``on_postprocess_traj`` may change them before.
        """
        batches = self.all_rows(fragments)
        self.reporter.postprocessed(self.policy, fragments, [vars(one) for one in batches])
        if self.architecture.lstm:
            pairs = zip(fragments, batches, strict=True)
            longest = self.settings.longest_sequence
            return SequenceBatch.join([in_sequences(f, b, longest) for f, b in pairs])
        valid = [rows(fragment.valid) for fragment in fragments]
        return TrainBatch.join([b.select(v) for b, v in zip(batches, valid, strict=True)])

    def all_rows(self, fragments: list[Fragment]) -> list[TrainBatch]:
        """Return all rows of each fragment, valid or not, with advantages and value targets.

        The list has one batch for each of `fragments`, in their order.
        """
        gamma, lambda_ = self.settings.gamma, self.settings.lambda_
        return [to_rows(fragment, gamma, lambda_) for fragment in fragments]

    def learn(self, fragments: list[Fragment]) -> dict[str, float]:
        """Learn from one round's fragments, and return the statistics of `take_steps`.

        It logs a warning and returns an empty dict if no row is valid.
        """
        batch = self.learning_rows(fragments)
        if len(batch) == 0:
            logger.warning(
                "the policy does not learn in this iteration, because it has no row to learn from"
            )
            return {}
        self.reporter.log("training batch", batch)
        return self.take_steps(self.learner, batch)

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Mapping[str, Scalar]]":
        """Return the loss () of a batch, column → tensor (B, …), and name → part of it.

        With ``normalize_advantages``, advantages of fewer than `LEAST_ROWS` rows are normalised
        here, as `torch_loss` leaves them unchanged.
        """
        advantages = batch["advantages"]
        if self.settings.normalize_advantages and len(advantages) < LEAST_ROWS:
            by = moments(advantages.detach().cpu().numpy())
            batch = {**batch, "advantages": by.standardized(advantages)}
        loss, parts = self.torch_loss()(self.policy.model, batch)
        return loss, dict(zip(self.stats, parts.unbind(), strict=True))

    def gradient_step_settings(self) -> tuple[float, float | None]:
        """Return (current learning rate, maximum norm of the gradient or None)."""
        return self.learning_rate, self.settings.grad_clip

    @property
    def learner(self) -> "Learner":
        """The learner that takes the gradient steps; always the same object.

        If settings of the loss have schedules, each access gives it the loss with their current
        values.
        """
        if not self.computes_in_torch:
            fused = self._fused_learner
            if self.settings.scheduled:
                fused.loss = self.fused_loss()
            return fused
        learner = self._torch_learner
        if self.settings.scheduled:
            learner.loss = self.torch_loss()
        return learner

    @cached_property
    def _fused_learner(self) -> FusedLearner:
        """Learner that computes gradients in numpy, or in C if ``learner`` is compiled.

        It is made at the first access.
        """
        threads = self.settings.resources.threads[0]
        given = (self.policy, self.fused_loss(), self.stats, threads)
        kernel = self._kernel(self.settings, self.spaces)
        if kernel is not None and self.settings.learner == COMPILED:
            return compiled.CompiledLearner(*given, kernel=kernel)
        return FusedLearner(*given)

    @cached_property
    def _torch_learner(self) -> "TorchLearner":
        """Learner that computes gradients in torch, made at the first access.

        If ``learner`` was ``auto``, the reason for torch is logged then.
        """
        from trainables.learners.torch_learner import TorchLearner

        if "learner" in self._undecided:
            why = self._why_torch or "its training began with it"
            logger.info("learner: auto is torch, as %s", why)
        loss = self.torch_loss()
        if self.settings.learner_compile:
            loss = compiling.compile_loss(loss)
        given = (self.policy.in_torch(), loss, self.stats, self.settings.grad_clip)
        return TorchLearner(*given, frames=self.frames, graphs=self.graphs)


def _check_compiling(settings: ActorCriticConfig) -> None:
    """Raise ConfigError for settings that do not work with ``learner_compile``.

    They are schedules of the loss, an LSTM and ``data_parallel``, with which the loss would be
    compiled again and again. The error is also raised if this machine has no compiler.
    """
    again = {f"{key}_schedule": (value, "constant") for key, value in settings.scheduled.items()}
    only: dict[str, tuple[Any, Any]] = {
        **again,
        "model.use_lstm": (settings.model.use_lstm, False),
        "data_parallel": (settings.workers.data_parallel, False),
    }
    for key, (value, allowed) in only.items():
        if value != allowed:
            other, why = "learner_compile", "the loss would be compiled again and again"
            usable, undo = in_yaml(allowed), "remove learner_compile"
            raise ConfigError.of_conflict(key, value, other, usable, why, undo)
    compiling.check_compiler()


def to_rows(fragment: Fragment, gamma: float, lambda_: float) -> TrainBatch:
    """Return a fragment (T, N) as T·N rows, valid or not, with advantages and value targets.

    The rows are in order of their steps. The fragment needs ``logp`` and the critic's columns.
    `gamma` is the discount factor, `lambda_` the λ of the advantage estimate.
    """
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
    """Return the valid rows of a fragment (T, N), with advantages and value targets."""
    return to_rows(fragment, gamma, lambda_).select(rows(fragment.valid))
