"""Off-policy actor-critics: their shared settings, conflicts among them, and their round."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core import rng
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError, in_yaml
from trainables.learners import compiling
from trainables.learners.replay import ReplayBuffer, ReplayConfig, check_replay
from trainables.policies.architecture import EPS, Activation, OptimizerConfig
from trainables.policies.policy import Scalar
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainer import config_checks
from trainables.trainer.base.algorithm import Stateful
from trainables.trainer.config import TrainerConfig
from trainables.trainer.families.steps import learn_on_rows, off_policy_step
from trainables.trainer.trainer import Trainer

if TYPE_CHECKING:
    from trainables.policies.bounded.twins import TwinsPolicy

#: Name of a column → its rows (B, …).
Rows = Mapping[str, NDArray[Any]]
#: Kinds of exploration whose noise depends on earlier steps.
FOLLOWING = ("OrnsteinUhlenbeckNoise", "ParameterNoise", "StateDependentNoise")
#: Inputs of a captured update in addition to the batch: learning rates of critics and others.
RATES = ("critic_rate", "rate")


class OffPolicyOptimizerConfig(OptimizerConfig):
    """The optimiser, by default Adam with eps 1e-8; an actor's gradients are too small for 1e-5."""

    eps: float = Field(default=1e-8, gt=0, description=EPS)


class OffPolicyConfig(TrainerConfig):
    """Settings of an actor with twin critics that learn from a replay.

    The ratio of two settings decides how much is learnt from each step: in a round
    `train_batch_size` steps are sampled (by default one fragment of every environment), then
    `updates_per_step` updates are made.
    """

    sampling: SamplingConfig = SamplingConfig(rollout_fragment_length=1)
    replay: ReplayConfig = ReplayConfig(
        buffer_size=100_000, replay_batch_size=256, target_network_update_freq=1
    )
    optimizer: OffPolicyOptimizerConfig = Field(
        default=OffPolicyOptimizerConfig(), description="Optimizer of the weights."
    )
    tau: float = Field(
        default=0.005,
        gt=0,
        le=1,
        description="Fraction by which the target networks move towards the learned ones after "
        "each update. Usually 0.002 to 0.02.",
    )
    critic_lr: float | None = Field(
        default=None,
        gt=0,
        description="Initial learning rate of the critics, to which lr_schedule also applies; "
        "null: lr. Usually 3e-4 to 3e-3.",
    )
    grad_clip: float | None = Field(
        default=None,
        gt=0,
        description="Maximum norm of each network's gradient; null: no clipping. Usually 1 to 40.",
    )
    learner: Literal["auto", "fused", "torch"] = Field(
        default="auto",
        description="Implementation of the gradients: torch; fused, in numpy, 1.8 to 2.6 times as "
        "fast. auto: fused for sac and td3 on the CPU, otherwise torch.",
    )
    learner_compile: bool = Field(default=False, description=compiling.DESCRIPTION)

    @property
    def exploration(self) -> str:
        """Value of ``exploration_config.type``; empty here, for algorithms without it."""
        return ""


class OffPolicyTrainer(Trainer):
    """Base of actor-critics with target networks that learn from a replay: SAC, TD3, IQL."""

    config_class: ClassVar[type[TrainerConfig]] = OffPolicyConfig
    usual_networks: ClassVar[tuple[tuple[int, ...], Activation]] = ((256, 256), "relu")
    fixed_keys: ClassVar[frozenset[str]] = Trainer.fixed_keys | {"buffer_size"}
    learns_from_others: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    auto_settings: ClassVar[tuple[str, ...]] = (*Trainer.auto_settings, "learner")
    has_closed_form: ClassVar[bool] = True
    """True if the gradients are also known in closed form, so that numpy can compute them."""
    settings: OffPolicyConfig
    policy: "TwinsPolicy"

    @classmethod
    def check_spaces(cls, settings: TrainerConfig, spaces: EnvSpaces) -> None:
        """Raise ConfigError for action spaces that the algorithm does not support; none here."""

    def update(self, rows: Rows) -> dict[str, Scalar]:
        """Make one update of all networks from filtered transitions, column → (B, …).

        Returns its statistics by name. Subclasses define it.
        """
        raise NotImplementedError

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → value for settings that may be ``auto``.

        ``learner`` is fused unless a setting needs torch. Raises ConfigError if observations are
        images, the action space does not fit, the replay cannot be where ``replay_on`` says, or
        ``learner`` is fused and needs torch.
        """
        if len(inspection.spaces.observation_shape) != 1:
            shape = inspection.spaces.observation_shape
            problem = f"observations are images, {shape}, and {cls.__name__} reads only vectors"
            hint = "set model.image_layout to flat, which reads their numbers as a vector"
            raise ConfigError("env", str(inspection.spaces.raw), hint=hint, problem=problem)
        cls.check_spaces(settings, inspection.spaces)
        if isinstance(settings, OffPolicyConfig):
            config_checks.check_replay_on(settings, settings.replay, inspection.spaces)
        why = cls._find_reason_for_torch(settings)
        if why and isinstance(settings, OffPolicyConfig) and settings.learner == "fused":
            raise ConfigError.of_conflict("learner", "fused", "", "auto or torch", why)
        return {**super().choose(settings, inspection), "learner": "torch" if why else "fused"}

    @classmethod
    def _find_reason_for_torch(cls, settings: TrainerConfig) -> str:
        """Return the reason why torch must compute the gradients; empty if numpy can.

        Reasons are an algorithm without `has_closed_form`, a GPU, and ``learner_compile``.
        """
        if not cls.has_closed_form:
            return f"{cls.__name__} knows its gradients by torch alone"
        if settings.resources.num_gpus:
            return "num_gpus is not 0"
        if isinstance(settings, OffPolicyConfig) and settings.learner_compile:
            return "learner_compile is true"
        return ""

    @classmethod
    def why_acts_on_cpu(cls, settings: TrainerConfig) -> str:
        """Return the reason why the policy cannot act on the GPU; empty if it can."""
        noise = "ParameterNoise"  # its weights differ from row to row, and are made in numpy
        if isinstance(settings, OffPolicyConfig) and settings.exploration == noise:
            return f"exploration_config.type is {noise}"
        return config_checks.why_acts_on_cpu(settings)

    @classmethod
    def why_no_graphs(cls, settings: TrainerConfig) -> str:
        """Return the reason why gradient steps cannot be CUDA graphs; empty if they can."""
        return config_checks.why_no_graphs(settings)

    @property
    def is_fused(self) -> bool:
        """True if numpy computes the gradients.

        A checkpoint of a trainer that used numpy may be restored where torch has to compute the
        gradients.
        """
        return self.settings.learner == "fused" and not self._find_reason_for_torch(self.settings)

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together.

        Beside those of every trainer they are an LSTM, ``normalize_actions: true`` without
        `spreads_actions`, ``target_network_update_freq`` other than 1, ``critic_lr`` with points of
        ``lr_schedule``, noise that continues with ``remote_env_batch_wait_ms``, and what
        `check_replay` refuses.
        """
        super().validate_config(settings)
        if not isinstance(settings, OffPolicyConfig):
            return
        replay = settings.replay
        check_replay(replay)
        only: dict[str, tuple[Any, Any, str]] = {
            "model.use_lstm": (settings.model.use_lstm, False, "a replay holds no sequences"),
            "normalize_actions": (
                settings.sampling.spreads_actions and not cls.spreads_actions,
                False,
                "its actions are within the bounds already",
            ),
            "target_network_update_freq": (
                replay.target_network_update_freq,
                1,
                "its targets move by the fraction tau after every update",
            ),
        }
        for key, (value, allowed, why) in only.items():
            if value != allowed:
                name, usable = cls.__name__, in_yaml(allowed)
                raise ConfigError.of_conflict(key, value, name, usable, why)
        if settings.learner_compile:
            compiling.check_compiler()
        if settings.critic_lr is not None and not isinstance(settings.schedule.lr_schedule, str):
            other, undo = "a list of points as lr_schedule", "set lr_schedule to constant or linear"
            why = "these replace lr, of which critic_lr is a multiple"
            given = settings.critic_lr
            raise ConfigError.of_conflict("critic_lr", given, other, "null", why, undo)
        wait = settings.envs.remote_env_batch_wait_ms
        if wait and settings.exploration in FOLLOWING:
            other = f"exploration_config.type: {settings.exploration}"
            why = "this noise needs environments that step together, but they would step apart"
            place, undo = "remote_env_batch_wait_ms", "set another exploration"
            raise ConfigError.of_conflict(place, wait, other, "0", why, undo)

    def make_parts(self) -> dict[str, Stateful]:
        """Create the replay buffer, and return it as ``replay``; also create the stream of updates.

        The buffer becomes the trainer's `replay`. It is on the GPU if the settings say so.
        """
        self.streams["update"] = rng.generator(self.seed, "update")
        of, device = self.settings, None
        if config_checks.holds_replay_on_gpu(of, of.replay, self.spaces):
            device = self.policy.device
        self.replay = ReplayBuffer(of.replay.buffer_size, self.seed, device)
        return {"replay": self.replay}

    def worker_spec(self) -> WorkerSpec:
        """Return the specification of workers, with the column ``new_obs``."""
        spec = super().worker_spec()
        return replace(spec, columns=spec.columns | {"new_obs"})

    def training_step(self) -> dict[str, float]:
        """Make a round of sampling and updates, and return the means of the statistics.

        There are none before ``learning_starts`` environment steps.
        """
        # The gradients' norms show values that are not finite, so numpy need not warn of them.
        with np.errstate(all="ignore"):
            return off_policy_step(
                self, self.replay, self.settings.replay, self.update, lambda: None
            )

    def learn_on_batch(self, batch: Any) -> dict[str, dict[str, float]]:
        """Make one update of all networks from rows, and send the weights to all workers.

        Returns policy → the update's statistics and ``batch_count``. Raises NotFiniteError if a
        loss or gradient was not finite.

        Args:
            batch: column → (B, …), as ``replay.sample(B)`` returns them: unfiltered
                ``observations``, ``actions``, ``rewards``, ``new_obs`` and ``terminated``.
        """
        return learn_on_rows(self, self.filter_rows(batch), self.update)

    def compute_gradients(self, batch: Any) -> Any:
        """Raise NotImplementedError, since with several optimisers there is no single gradient."""
        raise NotImplementedError(
            f"{type(self).__name__} learns by several optimisers, one after the other, so there is "
            "no gradient to give; learn_on_batch makes an update"
        )

    def apply_gradients(self, gradients: Any) -> float:
        """Raise NotImplementedError, as `compute_gradients` does."""
        self.compute_gradients(gradients)
        return 0.0

    @property
    def critic_learning_rate(self) -> float:
        """Current learning rate of the critics: `learning_rate` times ``critic_lr`` / ``lr``.

        It is `learning_rate` itself if ``critic_lr`` is not set.
        """
        of = self.settings
        return self.learning_rate * (of.critic_lr or of.schedule.lr) / of.schedule.lr
