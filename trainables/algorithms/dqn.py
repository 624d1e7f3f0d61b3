"""Deep Q-learning (Mnih et al. 2015), with extensions of Rainbow (Hessel et al. 2018) as options.

The value of a choice is learnt towards the reward plus the discounted value, by a target network,
of the best next choice. With double Q-learning (van Hasselt et al. 2016) the trained network
selects that choice. Truncated episodes are bootstrapped from the value of their last observation,
terminated ones are not. B rows, A choices, Z atoms.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from trainables.core.settings import defaults, flatten, parse
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.make import EnvSpaces
from trainables.errors import ConfigError, in_yaml
from trainables.learners.fused.dqn import FusedQLearner, Learnt, find_reason_for_torch
from trainables.learners.replay import (
    NStep,
    PrioritizedReplay,
    PrioritizedReplayConfig,
    ReplayBuffer,
    ReplayConfig,
    check_replay,
)
from trainables.learners.schedules import ScheduleConfig
from trainables.learners.statistics import fetch
from trainables.policies.architecture import Activation, Architecture
from trainables.policies.exploration.actions import EpsilonGreedyConfig
from trainables.policies.policy import Scalar
from trainables.policies.q.actor import QArchitecture
from trainables.rollout.config import SamplingConfig
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainer import config_checks
from trainables.trainer.base.algorithm import Stateful
from trainables.trainer.config import Lanes, TrainerConfig
from trainables.trainer.config_checks import lane_class
from trainables.trainer.families.steps import is_target_due, learn_on_rows, off_policy_step
from trainables.trainer.trainer import Trainer

if TYPE_CHECKING:
    from torch import Tensor

    from trainables.policies.q.networks import QPolicy

#: Name of a column → its rows (B, …).
Rows = Mapping[str, NDArray[Any]]


class Config(TrainerConfig):
    """Settings of DQN; the defaults suit classic control."""

    sampling: SamplingConfig = SamplingConfig(num_envs_per_worker=8, rollout_fragment_length=8)
    schedule: ScheduleConfig = ScheduleConfig(lr=1e-3)
    replay: ReplayConfig = ReplayConfig(
        buffer_size=100_000,
        replay_batch_size=128,
        updates_per_step=32,
        target_network_update_freq=256,
    )
    prioritized: PrioritizedReplayConfig = PrioritizedReplayConfig()
    exploration_config: EpsilonGreedyConfig = Field(
        default=EpsilonGreedyConfig(), description="Exploration of choices, unless noisy is set."
    )
    double_q: bool = Field(
        default=True,
        description="Double Q-learning: the learned network selects the next action and the "
        "target network evaluates it, which reduces overestimation.",
    )
    dueling: bool = Field(
        default=False,
        description="Two heads of the network: the value of a state, and the advantage of each "
        "action.",
    )
    n_step: int = Field(
        default=3,
        gt=0,
        description="Number of environment steps whose rewards are summed in a target before the "
        "value estimate is added; larger numbers propagate rewards faster but less exactly. "
        "Usually 1 to 5.",
    )
    noisy: bool = Field(
        default=False,
        description="Explore with noise on the weights, whose scale is learned (noisy networks), "
        "instead of epsilon-greedily.",
    )
    sigma0: float = Field(
        default=0.5,
        gt=0,
        description="With noisy: initial scale of the noise. A weight's standard deviation is "
        "this scale divided by the square root of its layer's number of inputs.",
    )
    num_atoms: int = Field(
        default=1,
        gt=0,
        description="Number of possible returns whose probabilities are learned (C51 has 51); 1: "
        "only the mean return is learned.",
    )
    v_min: float = Field(
        default=-10.0, description="With num_atoms above 1: the smallest possible return."
    )
    v_max: float = Field(
        default=10.0, description="With num_atoms above 1: the largest possible return."
    )
    tau: float | None = Field(
        default=0.005,
        gt=0,
        le=1,
        description="Fraction by which the target network moves towards the learned one after "
        "each update; null: it is replaced every target_network_update_freq environment steps.",
    )
    cql_alpha: float = Field(
        default=0.0,
        ge=0,
        description="Weight of the conservative penalty (CQL, Kumar et al. 2020) for stored "
        "experience. The penalty lowers the values of actions that do not occur in the files; 0: "
        "no penalty. Usually 0.5 to 5.",
    )
    grad_clip: float | None = Field(
        default=10.0,
        gt=0,
        description="Maximum norm of the gradient of all weights; null: no clipping.",
    )
    learner: Literal["auto", "fused", "torch"] = Field(
        default="auto",
        description="Implementation of the gradients: torch; fused, in numpy, several times as "
        "fast for small networks. auto: torch, except for MLPs on the CPU with default settings "
        "of dueling, noisy, num_atoms and cql_alpha; these use fused.",
    )
    lanes: Lanes = None


class Differences(NamedTuple):
    """Losses and errors of a batch, of which an update is made."""

    losses: "Tensor"
    """Huber losses of the temporal differences, (B,); cross-entropies with distributions.

    With ``cql_alpha`` the conservative penalty is added.
    """
    errors: "Tensor"
    """Absolute temporal differences, (B,), as priorities of the replay; with distributions the
    cross-entropies."""
    values: "Tensor"
    """Q-values of the choices taken, (B,)."""


def _check_module(settings: Config) -> None:
    """Raise ConfigError for settings that do not work with a user's torch module as network.

    They are two heads, noise, distributions, any exploration but epsilon-greedy, and action masks.
    """
    why = "your module itself returns the value of each action"
    given = {key: getattr(settings, key) for key in ("dueling", "noisy", "num_atoms")}
    given["exploration_config.type"] = settings.exploration_config.type
    given["action_mask"] = settings.environment.action_mask
    only_ones = (False, False, 1, "EpsilonGreedy", None)
    for (key, value), only in zip(given.items(), only_ones, strict=True):
        if value != only:
            own = "model.custom_model"
            raise ConfigError.of_conflict(key, value, own, in_yaml(only), why, f"remove {own}")


def _check_read(settings: Config) -> None:
    """Raise ConfigError for a setting that was changed, but has no effect with the others.

    They are settings of noise, atoms and priorities that are switched off,
    ``target_network_update_freq`` with ``tau``, and ``n_step`` where rows are read one by one.
    """
    flat, usual, offline = flatten(settings), defaults(Config), settings.offline
    joins_rows = offline.postprocess_inputs or not offline.only_reads
    for is_read, needed, keys in (
        (settings.noisy, "noisy: true", ("sigma0",)),
        (settings.num_atoms > 1, "num_atoms above 1", ("v_min", "v_max")),
        (settings.tau is None, "tau: null", ("target_network_update_freq",)),
        (joins_rows or settings.n_step == 1, "postprocess_inputs: true", ("n_step",)),
        (
            settings.prioritized.prioritized_replay,
            "prioritized_replay: true",
            PrioritizedReplayConfig.model_fields,
        ),
    ):
        for key in () if is_read else keys:
            if flat[key] != usual[key]:
                hint, problem = f"remove it, or set {needed}", f"has no effect without {needed}"
                raise ConfigError(key, flat[key], hint=hint, problem=problem)


class DQN(Trainer):
    """Deep Q-learning, with its usual extensions as settings."""

    config_class: ClassVar[type[TrainerConfig]] = Config
    usual_networks: ClassVar[tuple[tuple[int, ...], Activation]] = ((128, 128), "relu")
    fixed_keys: ClassVar[frozenset[str]] = Trainer.fixed_keys | {
        *("buffer_size", "prioritized_replay", "n_step", "dueling", "noisy", "num_atoms"),
    }
    model_keys: ClassVar[frozenset[str]] = frozenset({"custom_model"})
    learns_from_others: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    auto_settings: ClassVar[tuple[str, ...]] = (*Trainer.auto_settings, "learner")
    masks_actions: ClassVar[bool] = True
    settings: Config
    policy: "QPolicy"

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> type[Self]:
        """Return the class to make with these settings: usually this one.

        With ``lanes`` set, it is the class for trials that share one compiled program.

        Raises:
            ConfigError: ``lanes`` is set, but JAX is not installed or this class is derived from
                DQN.
        """
        return lane_class(cls, config, "trainables.stacks.dqn:LaneDQN") or super().of(config)

    @classmethod
    def as_lane(cls, config: Mapping[str, Any], lanes: int) -> dict[str, Any]:
        """Return the settings for training in one compiled program with others: ``lanes`` set."""
        return {**config, "lanes": lanes}

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together, or not with DQN.

        DQN itself checks replay, ``n_step``, atoms, exploration, an LSTM and a user's module.
        """
        super().validate_config(settings)
        if not isinstance(settings, Config):
            return
        check_replay(settings.replay)
        if settings.n_step > (size := settings.replay.buffer_size):
            problem = f"{settings.n_step} is more than buffer_size, which is {size}"
            hint = "lower n_step, or raise buffer_size"
            raise ConfigError("n_step", settings.n_step, hint=hint, problem=problem)
        if settings.model.use_lstm:
            why = "it learns from single transitions, not from sequences"
            raise ConfigError.of_conflict("model.use_lstm", True, "dqn", "false", why)
        if settings.model.custom_model is not None:
            _check_module(settings)
        if settings.num_atoms > 1 and settings.v_min >= settings.v_max:
            problem = f"{settings.v_min} is not less than v_max, which is {settings.v_max}"
            hint = "all returns must be between the two: lower v_min, or raise v_max"
            raise ConfigError("v_min", settings.v_min, hint=hint, problem=problem)
        if settings.noisy and settings.exploration_config != EpsilonGreedyConfig():
            hint = "remove it, or set noisy to false"
            raise ConfigError(
                "exploration_config",
                settings.exploration_config,
                hint=hint,
                problem="has no effect with noisy: true, because noisy networks explore instead",
            )
        noise = settings.exploration_config.type == "ParameterNoise"
        if noise and (wait := settings.envs.remote_env_batch_wait_ms):
            other = "exploration_config.type: ParameterNoise"
            why = "this noise needs environments that step together, but they would step apart"
            undo = "set another exploration"
            place = "remote_env_batch_wait_ms"
            raise ConfigError.of_conflict(place, wait, other, "0", why, undo)

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that cannot work here, or have no effect.

        The latter only for new trials: sweeps that began with such settings may continue.
        """
        if (asked := cls.of(config)) is not cls:
            asked.check_config(config)
            return
        settings = parse(cls.config_class, config)
        if isinstance(settings, Config):
            _check_read(settings)
        super().check_config(config)

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → value for settings that may be ``auto``, chosen for this environment.

        The learner is fused (in numpy) unless a setting needs torch. A user's module is imported
        and tried.

        Raises:
            ConfigError: actions are not one choice, the user's module does not fit, or the setting
                ``learner`` cannot work.
            TypeError: the settings are not DQN's.
        """
        if not inspection.spaces.layout.scalar:
            actions = inspection.spaces.action
            problem = (
                f"the environment's actions are {actions}, but dqn needs Discrete actions, because "
                "it learns a value for each"
            )
            hint = "train ppo instead, which supports other actions"
            raise ConfigError("env", f"actions {actions}", hint=hint, problem=problem)
        if not isinstance(settings, Config):
            raise TypeError(f"{type(settings).__name__} is no {Config.__qualname__} of DQN")
        if settings.model.custom_model is not None:
            # Imported for a user's module only: the choice otherwise needs no torch.
            from trainables.policies.own.module import check, check_learning_rows

            tried = cls.networks(settings, inspection.spaces)
            module = check(tried, inspection.spaces.layout.logits)
            most = settings.replay.replay_batch_size
            check_learning_rows(tried, module, "replay_batch_size", most)
        config_checks.check_replay_on(settings, settings.replay, inspection.spaces)
        why = cls._find_reason_for_torch(settings, inspection.spaces)
        if why and settings.learner == "fused":
            raise ConfigError.of_conflict("learner", "fused", "", "auto or torch", why)
        return {**super().choose(settings, inspection), "learner": "torch" if why else "fused"}

    @classmethod
    def why_acts_on_cpu(cls, settings: TrainerConfig) -> str:
        """Return the reason why the policy cannot act on the GPU; empty if it can."""
        if isinstance(settings, Config) and settings.exploration_config.type == "ParameterNoise":
            return "exploration_config.type is ParameterNoise"
        return config_checks.why_acts_on_cpu(settings)

    @classmethod
    def why_no_graphs(cls, settings: TrainerConfig) -> str:
        """Return the reason why gradient steps cannot be captured as CUDA graphs.

        Empty if they can.
        """
        is_noisy = isinstance(settings, Config) and settings.noisy
        if is_noisy and cls.differences is not DQN.differences:  # which may draw noise in the step
            return f"noisy is true, and {cls.__name__} has its own way of learning"
        return config_checks.why_no_graphs(settings)

    @classmethod
    def _find_reason_for_torch(cls, settings: Config, spaces: EnvSpaces) -> str:
        """Return the reason why torch has to compute the gradients, not numpy.

        Empty if it need not.
        """
        if cls.differences is not DQN.differences:
            return f"{cls.__name__} has its own way of learning"
        if settings.resources.num_gpus:
            return "num_gpus is not 0"
        if settings.cql_alpha:
            return "cql_alpha is not 0"
        made = cls._q_architecture(settings, cls.networks(settings, spaces))
        return find_reason_for_torch(made, settings.optimizer)

    @classmethod
    def _q_architecture(cls, settings: Config, architecture: Architecture) -> QArchitecture:
        """Return the description of the Q-network: `architecture` with DQN's own settings."""
        atoms = (
            np.linspace(settings.v_min, settings.v_max, settings.num_atoms)
            if settings.num_atoms > 1
            else ()
        )
        support = tuple(float(atom) for atom in atoms)
        return QArchitecture.of(
            architecture, settings.dueling, settings.sigma0 if settings.noisy else 0.0, support
        )

    def setup(self, config: dict[str, Any]) -> None:
        """Build policy, filters, workers and replay from the settings.

        Raises ConfigError for a setting without an effect, unless the sweep began with it.
        """
        settings = parse(self.config_class, config)
        if isinstance(settings, Config) and not self.context.has_settled_config:
            _check_read(settings)
        super().setup(config)

    def make_policy(self, device: str) -> "QPolicy":
        """Return a new policy with the Q-network, on this torch device."""
        from trainables.policies.q.networks import build_q_policy

        settings, layout = self.settings, self.spaces.layout
        networks = layout, self._q_architecture(settings, self.architecture)
        arguments = settings.exploration_config, settings.optimizer, self.seed, device
        if self.architecture.custom_model is not None:
            from trainables.policies.q.own import build_own_q_policy

            return build_own_q_policy(networks, *arguments)
        return build_q_policy(networks, *arguments)

    def make_parts(self) -> dict[str, Stateful]:
        """Make the parts that checkpoints contain: ``replay``, ``target`` and perhaps ``n_step``.

        The last one only if ``n_step`` is above 1. Sets the attributes `replay`, prioritised with
        ``prioritized_replay``, `target`, a copy of the network, and `n_step`, None for single
        steps.
        """
        from trainables.policies.q.networks import Target

        settings, size = self.settings, self.settings.replay.buffer_size
        device = None
        if config_checks.holds_replay_on_gpu(settings, settings.replay, self.spaces):
            device = self.policy.device
        self.replay: ReplayBuffer = ReplayBuffer(size, self.seed, device)
        if settings.prioritized.prioritized_replay:
            self.replay = PrioritizedReplay(size, self.seed, settings.prioritized, device)
        self.target = Target(self.policy.model)
        self.n_step = NStep(settings.n_step, settings.gamma) if settings.n_step > 1 else None
        parts: dict[str, Stateful] = {"replay": self.replay, "target": self.target}
        return {**parts, **({"n_step": self.n_step} if self.n_step else {})}

    def worker_spec(self) -> WorkerSpec:
        """Return the description of workers, whose samples also have the next observation.

        With ``n_step`` above 1 they have the number of the step in its episode, too.
        """
        spec, columns = super().worker_spec(), {"new_obs", "t"} if self.n_step else {"new_obs"}
        return replace(spec, columns=spec.columns | columns)

    def training_step(self) -> dict[str, float]:
        """Sample, store the transitions, and make updates; return the means of the statistics.

        Workers are then synchronised. No update is made, and the result is empty, before
        ``learning_starts`` environment steps. Raises NotFiniteError if a loss or gradient is NaN or
        infinite.
        """
        parts = self.settings.replay, self.update, self.update_target
        learning = fused.learning if (fused := self._fused) else nullcontext
        return off_policy_step(self, self.replay, *parts, self.n_step, learning)

    def skip_round(self, steps: int) -> None:
        """Copy the trained network to the target network if that is due, as in other rounds."""
        now = self.progress.timesteps
        if is_target_due(self.settings.replay, now, now + steps):
            self.update_target()

    def columns_learnt(self, batch: Any) -> Rows:
        """Return the columns of a batch (B, …) with filtered observations and scaled rewards."""
        return self.filter_rows(batch, self.n_step.weight if self.n_step else 1.0)

    def learn_on_batch(self, batch: Any) -> dict[str, dict[str, float]]:
        """Make one update from a user's rows, and send the workers the weights.

        Returns policy → name → statistic. The target network moves, too, if ``tau`` is set.

        `batch` has columns (B, …) as ``replay.sample(B)`` returns them: unfiltered
        ``observations``, ``actions``, ``rewards``, ``new_obs`` and ``terminated``; with `n_step`
        also ``discounts``. Rows without ``indices`` are not from the replay, and change no
        priorities.
        """
        learning = fused.learning if (fused := self._fused) else nullcontext
        with learning():
            return learn_on_rows(self, self.columns_learnt(batch), self.update)

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Mapping[str, Scalar]]":
        """Return the loss () of filtered rows (B, …), and ``mean_q``, that of the choices taken.

        Losses of rows are multiplied by ``weights``, if the batch has that column. Noisy layers get
        drawn noise.
        """
        with self.policy.autocast():
            td = self.differences(batch)
        losses = td.losses * batch["weights"] if "weights" in batch else td.losses
        return losses.mean(), {"mean_q": td.values.mean()}

    def gradient_step_settings(self) -> tuple[float, float | None]:
        """Return the present learning rate, and the largest norm of the gradient or None."""
        return self.learning_rate, self.settings.grad_clip

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state that `save_checkpoint` returned, as `Trainer.load_checkpoint`.

        The exponent of the replay's importance weights follows the steps sampled so far.
        """
        super().load_checkpoint(checkpoint)
        self.replay.set_timesteps(self.progress.timesteps)

    def after_loading_weights(self) -> None:
        """Copy the loaded weights to the target network, too."""
        self.target.update_targets(1.0)

    def update_target(self) -> None:
        """Copy the trained network to the target network, unless `tau` moves it every update."""
        if self.settings.tau is None:
            self.target.update_targets(1.0)

    def update(self, rows: Rows) -> dict[str, Scalar]:
        """Make one gradient step on filtered rows (B, …); return its statistics.

        They are ``loss``, ``mean_q`` and ``grad_norm``, the norm before clipping.

        Sets the rows' priorities in a prioritised replay, and moves the target network by ``tau``,
        if that is set. Raises NotFiniteError if loss or gradient is NaN or infinite.
        """
        fused = self._fused
        learnt = fused.update(rows, self.learning_rate) if fused else self._learn(rows)
        if isinstance(self.replay, PrioritizedReplay) and "indices" in rows:
            self.replay.prioritize(rows["indices"], fetch([learnt.errors])[0])
        if self.settings.tau is not None:
            self.target.update_targets(self.settings.tau)
        return {"loss": learnt.loss, "mean_q": learnt.mean_q, "grad_norm": learnt.norm}

    @property
    def _fused(self) -> FusedQLearner | None:
        """Learner in numpy, or None if torch computes the gradients."""
        return self._fused_learner if self.settings.learner == "fused" else None

    @cached_property
    def _fused_learner(self) -> FusedQLearner | None:
        """Learner in numpy, made at the first access.

        None if the settings need torch on this machine.
        """
        settings = self.settings
        if self._find_reason_for_torch(
            settings, self.spaces
        ):  # restored from a checkpoint of another machine
            return None
        return FusedQLearner(
            self.policy,
            self.target.network,
            double=settings.double_q,
            gamma=settings.gamma,
            grad_clip=settings.grad_clip,
            threads=settings.resources.threads[0],
        )

    def _learn(self, rows: Rows) -> Learnt:
        """Make one gradient step on filtered rows (B, …) in torch, as a CUDA graph if possible.

        Returns loss, mean Q-value, norm of the gradient, and errors (B,).
        """
        batch = self.policy.on_device({**rows, **self._draw_noise()})
        if self.graphs is None:
            return self._step(batch, self.learning_rate)
        batch.pop("indices", None)

        def step(inputs: "Mapping[str, Tensor]") -> "Mapping[str, Any]":
            """Take a gradient step on a minibatch; return its statistics and errors."""
            return self._step(inputs, inputs["rate"])._asdict()

        return Learnt(**self.graphs.run("step", step, {**batch, "rate": self.learning_rate}))

    def _step(self, batch: "Mapping[str, Tensor]", rate: Scalar) -> Learnt:
        """Make one gradient step on filtered rows, tensors (B, …) on the policy's device.

        `rate` is the learning rate, a number or a tensor (). Returns loss, mean Q-value, norm of
        the gradient, and errors (B,).
        """
        with self.policy.autocast():
            td = self.differences(batch)
        loss = (td.losses * batch["weights"]).mean() if "weights" in batch else td.losses.mean()
        norm = self.policy.minimise(loss, rate, self.settings.grad_clip)
        return Learnt(loss.detach(), td.values.mean(), norm, td.errors)

    def differences(self, batch: "Mapping[str, Tensor]") -> "Differences":
        """Return loss, absolute temporal difference and Q-value of each of the rows (B, …).

        The rows' observations are filtered. Targets come from the target network, without a
        gradient, discounted by the column ``discounts`` if there is one, else by ``gamma``. Noisy
        layers get the noise in the batch, as `_draw_noise` returns it, or noise that is drawn now.
        With ``cql_alpha`` the loss includes the conservative penalty.
        """
        import torch

        from trainables.policies.own.module import in_acting_mode

        model, target = self.policy.model, self.target.network
        rows = torch.arange(len(batch["actions"]), device=self.policy.device)
        noise = self._noise_of(batch)
        with torch.no_grad():
            following = target.outputs(batch["new_obs"], noise["target"])
            selecting_outputs = following
            if self.settings.double_q:  # this pass only selects a choice
                with in_acting_mode(model):
                    selecting_outputs = model.outputs(batch["new_obs"], noise["selecting"])
            next_outputs = following[rows, model.best(selecting_outputs, batch["new_obs"])]
            discounts = batch.get("discounts", self.settings.gamma) * ~batch["terminated"]
        outputs = model.outputs(batch["observations"], noise["learnt"])
        taken = outputs[rows, batch["actions"]]
        if self.settings.num_atoms > 1:
            goal = model.project(next_outputs.softmax(1), batch["rewards"], discounts)
            losses = -(goal * taken.log_softmax(1)).sum(1)
            values = model.values(taken.detach()[:, None]).squeeze(1)
            differences = Differences(losses, losses.detach(), values)
        else:
            values = taken.squeeze(1)
            goal = batch["rewards"] + discounts * next_outputs.squeeze(1)
            losses = torch.nn.functional.smooth_l1_loss(values, goal, reduction="none")
            differences = Differences(losses, (goal - values.detach()).abs(), values.detach())
        if not (alpha := self.settings.cql_alpha):
            return differences
        every = model.valid_values(outputs, batch["observations"])
        # An invalid choice that was taken all the same is valued as it is.
        overrated = every.logsumexp(1) - model.values(outputs)[rows, batch["actions"]]
        return differences._replace(losses=differences.losses + alpha * overrated)

    def _noise_of(self, batch: "Mapping[str, Tensor]") -> "dict[str, dict[str, Tensor]]":
        """Return the noise of noisy layers: pass of an update → name → factors (units,).

        It is that of the batch, or drawn now if the batch has none.
        """
        import torch

        sizes = self.policy.model.architecture.noise_sizes(self.spaces.layout.logits)
        if not sizes:
            return {one: {} for one in self._passes}
        noise = batch.get("noise")
        if noise is None:
            noise = self.policy.on_device(self._draw_noise())["noise"]
        split = [torch.split(row, list(sizes.values())) for row in noise]
        return {
            one: dict(zip(sizes, parts, strict=True))
            for one, parts in zip(self._passes, split, strict=True)
        }

    def _draw_noise(self) -> dict[str, NDArray[np.float32]]:
        """Draw the noise of noisy layers for an update, from the stream ``minibatch``.

        Returns ``noise``, a row (units,) for each pass; an empty dict without such layers. It is
        data of the update, so that a captured update needs no random stream of its own.
        """
        rows = [list(self.noise().values()) for _ in self._passes]
        return {"noise": np.stack([np.concatenate(row) for row in rows])} if rows[0] else {}

    @property
    def _passes(self) -> tuple[str, ...]:
        """Names of the passes of an update, in the order in which their noise is drawn."""
        return ("target", "selecting", "learnt") if self.settings.double_q else ("target", "learnt")

    def noise(self) -> dict[str, NDArray[np.float32]]:
        """Draw the noise of noisy layers for one pass, from the stream ``minibatch``.

        Returns name → (units,); without such layers it is empty, and nothing is drawn.
        """
        stream = self.streams["minibatch"]
        return self.policy.model.architecture.draw_noise(self.spaces.layout.logits, stream)
