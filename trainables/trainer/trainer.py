"""The trainer that every algorithm completes: sample → learn → synchronise → evaluate → result.

An algorithm's file defines a config, a policy and `training_step`. `save_checkpoint` contains
everything that affects the future except for the settings.
"""

import copy
import logging
import math
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trainables.core import rng, rounding
from trainables.core.importing import import_object
from trainables.core.logs import system_usage
from trainables.core.resources import EnvironmentVariables, blas_threads, check_quota
from trainables.core.results import LoggerCreator
from trainables.core.settings import SettingsView, flatten, override, parse
from trainables.envs.exactness import measuring
from trainables.envs.exactness.levels import LEVELS
from trainables.envs.exactness.measuring import Inquiry, Look, known_by, resolve
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import Spread
from trainables.envs.spaces.connectors import row_shape
from trainables.envs.spaces.images import scale_warning
from trainables.envs.vector.config import check_vector_env
from trainables.errors import ConfigError, TrainableError, shorten
from trainables.evaluation.config import is_due
from trainables.evaluation.play import Played
from trainables.learners.schedules import learning_rate
from trainables.offline.batches import WRITTEN, WRITTEN_IN_LANES
from trainables.offline.config import ESTIMATED, IOContext, check_statistics
from trainables.offline.estimators import Estimates
from trainables.offline.reader import Rows
from trainables.offline.workers import Learnt, ReadingWorkers, SamplerInput
from trainables.offline.writer import Output
from trainables.policies import filters as filters_
from trainables.policies.acting.actor import Weights
from trainables.policies.architecture import Activation, Architecture, architecture
from trainables.policies.filters import make_filter, make_filters
from trainables.policies.inference import InferencePolicy
from trainables.policies.onnx import export
from trainables.policies.policy import Policy
from trainables.rollout import media
from trainables.rollout.batch import Sample, TrainBatch
from trainables.rollout.external import ExternalSpec
from trainables.rollout.progress import Progress
from trainables.rollout.recording import FOLDER, RecordingPlan
from trainables.rollout.workers.access import DEFAULT_POLICY_ID, by_policy, require_policy
from trainables.rollout.workers.make import make_workers
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_set import WorkerSet
from trainables.rollout.workers.worker_spec import WorkerSpec
from trainables.trainable import Trainable, TrialContext, gives_data
from trainables.trainer import agreement, classic, config_checks, policy_files
from trainables.trainer.config import TrainerConfig, has_policies, timed
from trainables.trainer.evaluation import PeriodicEvaluation
from trainables.trainer.reporting import EpisodeRecord, Reporter

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)
AUTO = "auto"
#: Path of the function that returns a trainer class's form for several policies.
MULTI_AGENT = "trainables.trainer.multi_agent:multi_agent_class"


class Stateful(Protocol):
    """An object with its own part of a trainer's checkpoint."""

    def get_state(self) -> dict[str, Any]:
        """Return everything of the object that affects the future, as plain data."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""


class Trainer(Trainable):
    """Base of all algorithms; also works without a sweep: ``PPO({"env": "CartPole-v1"}).train()``.

    Args:
        config: the settings.
        env: takes precedence over ``config["env"]``. Like every trainable, a trainer may also be
            given its context here: ``PPO(config, TrialContext(seed=1))``.
        logger_creator: as for every trainable.
        context: seed, name and folder.
    """

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    takes_other_settings: ClassVar[bool] = False
    depends_on_seed: ClassVar[bool] = True
    settings: TrainerConfig
    fixed_keys: ClassVar[frozenset[str]] = frozenset(
        (*agreement.COLLECTING, *agreement.FILTERING, "restore")
    )
    #: Hidden layers and activation for vectors, where ``model`` leaves them open.
    usual_networks: ClassVar[tuple[tuple[int, ...], Activation]] = ((64, 64), "tanh")
    #: True if it can learn from other policies' experience (``input``).
    learns_from_others: ClassVar[bool] = False
    #: True if its rows outlive their round, as those of a replay and of files do: workers then
    #: return unfiltered rows, and `filter_rows` filters them when they are drawn.
    keeps_rows: ClassVar[bool] = False
    #: Keys of ``model`` that only some algorithms read, this one among them.
    model_keys: ClassVar[frozenset[str]] = frozenset()
    #: True if its workers can be ranks (``data_parallel``): their spec then has a learner.
    learns_in_ranks: ClassVar[bool] = False
    #: True if its policy applies action masks when it acts and learns.
    masks_actions: ClassVar[bool] = False
    #: True if children sample while the trainer learns (`remote.asynchronous`).
    samples_on: ClassVar[bool] = False
    #: Columns that are requested of workers whose experience is written.
    written: ClassVar[frozenset[str]] = WRITTEN
    #: Setting that may be ``auto`` → its value in trials and checkpoints from before the choice.
    before_auto: ClassVar[Mapping[str, Any]] = {
        "native_vector_env": False,
        "normalize_actions": False,
    }
    _unread_source: ConfigError | None = None
    """Error of the file that ``restore`` names, which a trial restored from a checkpoint does not
    need."""

    def __new__(cls, config: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> Self:
        """Make a trainer of several policies if ``multiagent`` names them."""
        return super().__new__(cls.of(config or {}))

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> type[Self]:
        """Return the class for these settings: this one, or its form for several policies."""
        if not (isinstance(config, Mapping) and has_policies(config.get("multiagent"))):
            return cls
        # Imported by name, since that module imports this one.
        made: type[Self] = import_object(MULTI_AGENT)(cls)  # type: ignore[operator]
        return made

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        env: str | type | Callable[..., Any] | TrialContext | None = None,
        logger_creator: LoggerCreator | None = None,
        context: TrialContext | None = None,
    ) -> None:
        if isinstance(env, TrialContext):
            if context is not None:
                raise TypeError("two contexts; give one of them")
            env, context = None, env
        needed = ("config_class", "make_policy", "training_step")
        above = type(self).mro()[: type(self).mro().index(Trainer)]
        missing = [name for name in needed if not any(name in vars(one) for one in above)]
        if missing:
            raise NotImplementedError(f"{type(self).__name__} must define {', '.join(missing)}")
        given = {} if env is None else {"env": env}
        super().__init__({**(config or {}), **given}, context, logger_creator)

    # ---- methods that an algorithm defines ---------------------------------------------------

    def make_policy(self, device: str) -> Policy:
        """Return the policy that learns on `device`, ``cpu`` or ``cuda``."""
        raise NotImplementedError

    def make_parts(self) -> dict[str, Stateful]:
        """Return the algorithm's own parts, for example a replay, by their names in checkpoints."""
        return {}

    def training_step(self) -> dict[str, float]:
        """Make one round of sampling and learning (`trainer.steps`), and return its statistics."""
        raise NotImplementedError

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, dict[str, float]]":
        """Return the loss () of the columns of a `TrainBatch`, and its parts.

        The methods for single gradients use it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no loss(batch), so it has no gradients to give"
        )

    def log_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return log-probabilities (R,) of actions for observations (R, *S).

        Off-policy estimators use it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no log_likelihoods()")

    def judged_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return the result of `log_likelihoods`, (R,), for unfiltered observations (R, *S)."""
        return self.log_likelihoods(
            self.filter_rows({"observations": observations})["observations"], actions
        )

    def gradient_step(self) -> tuple[float, float | None]:
        """Return the current learning rate, and the bound on the whole gradient's norm or None."""
        raise NotImplementedError(f"{type(self).__name__} defines no gradient_step()")

    @classmethod
    def choose(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        """Return the best value for each setting of `before_auto` in this environment.

        The stepping of environments is already settled in `settings`.

        Raises:
            ConfigError: one of them has a value that does not work here.
        """
        return {"native_vector_env": settings.environment.is_native, "normalize_actions": False}

    @classmethod
    def networks(cls, settings: TrainerConfig, spaces: EnvSpaces) -> Architecture:
        """Return the architecture of the networks, to which an algorithm adds its own parts.

        Raises:
            ConfigError: the key ``model`` has a value that does not work here.
        """
        layout = settings.environment.sight.layout
        if layout not in (None, spaces.asked.layout):
            allowed = "the same for all policies, beside multiagent"
            raise ConfigError("model.image_layout", layout, allowed)
        shape, masks = spaces.observation_shape, spaces.masks
        made = architecture(settings.model, shape, cls.usual_networks, masks)
        highest, floats = spaces.divisor, spaces.observation_dtype == np.float32
        is_scaled = settings.filters.observation_filter != "NoFilter" or not floats
        number = 1.0 if is_scaled else highest
        return replace(made, highest_byte=highest, highest_number=number)

    @classmethod
    def _checked_choice(cls, settings: TrainerConfig, seen: Look) -> dict[str, Any]:
        """Return the choices of `choose`; raises ConfigError if policies and agents do not fit."""
        config_checks.check_agents(settings, seen)
        if seen.calls_us:
            config_checks.check_called(settings)
        return cls.choose(settings, seen)

    @classmethod
    def _settle_stepping(cls, settings: TrainerConfig, chosen: bool = True) -> TrainerConfig:
        """Return the settings with `native_vector_env` settled.

        It is settled before `choose` is called, since the environment is measured meanwhile.
        `chosen` is False if it must not be True.
        """
        if settings.environment.native_vector_env != AUTO:
            return settings
        native = chosen and not config_checks.why_separate(settings)
        return override(settings, {"native_vector_env": native}, "config")

    @property
    def computes_in_torch(self) -> bool:
        """True if torch computes a part of the learning."""
        return True

    @property
    def learning_rate(self) -> float:
        """The learning rate after the environment steps sampled so far, by the schedule."""
        return learning_rate(self.settings.schedule, self.progress.timesteps)

    def _before_evaluate(self) -> None:
        """Do nothing; called before each evaluation, for algorithms to override."""

    def _evaluate(self) -> dict[str, Any]:
        """Return the part of the result that an evaluation adds."""
        return {"evaluation": self.evaluate()}

    # ---- settings ----------------------------------------------------------------------------

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that are valid one by one but do not work together."""
        config_checks.check_together(settings)
        if settings.offline.reads_experience and not cls.learns_from_others:
            allowed = f"sampler with {cls.__name__}, which learns from what its own policy does"
            raise ConfigError(
                "input", settings.offline.input, allowed, "bc, dqn, iql, sac and td3 read"
            )
        check_statistics(settings.offline, flatten(settings), cls.keeps_rows)
        filters = settings.filters
        apart = filters.observation_filter != "NoFilter" and not filters.synchronize_filters
        if apart and cls.keeps_rows:
            allowed = f"true with {cls.__name__} and an observation_filter"
            hint = "rows are filtered when they are drawn, by what all workers have seen"
            raise ConfigError("synchronize_filters", False, allowed, hint)
        if settings.offline.reads_experience:
            cls._check_reading(settings)
        if (source := settings.environment.action_mask) and not cls.masks_actions:
            hint = f"{cls.__name__} rules no choice out by a mask; ppo, a2c, impala and dqn do"
            raise ConfigError("action_mask", source, f"null with {cls.__name__}", hint)
        config_checks.check_model(settings.model, cls.model_keys, cls.__name__)
        if settings.workers.data_parallel:
            if not cls.learns_in_ranks:
                hint = f"{cls.__name__} does not learn in ranks"
                raise ConfigError("data_parallel", True, "false", hint)
            config_checks.check_data_parallel(settings)

    @classmethod
    def _check_reading(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work with rows that are read."""
        if settings.sampling.spreads_actions:
            hint = "actions in files are the environment's, and learnt so"
            raise ConfigError("normalize_actions", True, "false or auto with this input", hint)
        if settings.offline.postprocess_inputs and not hasattr(settings, "n_step"):
            hint = "it learns from single steps, of which nothing is made; dqn has n_step"
            raise ConfigError("postprocess_inputs", True, f"false with {cls.__name__}", hint)
        asked, gives = settings.offline.input_evaluation, cls.log_likelihoods
        if gives is Trainer.log_likelihoods and asked not in (ESTIMATED, ["simulation"], []):
            hint = (
                "its policy gives no probabilities, from which is estimated; those of bc and iql do"
            )
            raise ConfigError(
                "input_evaluation", asked, f"[simulation] or [] with {cls.__name__}", hint
            )

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that cannot work on this machine and environment."""
        if (asked := cls.of(config)) is not cls:
            asked.check_config(config)
            return
        settings = cls._settle_stepping(parse(cls.config_class, config))
        cls.validate_config(settings)
        if settings.restore is not None:
            policy_files.read_source("restore", settings.restore, DEFAULT_POLICY_ID)
        config_checks.check_by_trying(settings, cls.networks)
        cls._checked_choice(settings, measuring.look(settings.environment))

    @classmethod
    def complete_config(
        cls, config: Mapping[str, Any], stop: Mapping[str, float]
    ) -> dict[str, Any]:
        """Return the settings with `schedule_timesteps`, by default the limit of steps."""
        completed = dict(config)
        if "timesteps_total" in stop and completed.get("schedule_timesteps") is None:
            completed["schedule_timesteps"] = int(stop["timesteps_total"])
        return completed

    @classmethod
    def show_metrics(cls, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return the settings with `classic_results` if one of these names needs it.

        A set `classic_results` is not changed.
        """
        is_asked = any(map(classic.is_classic, names))
        return {"classic_results": True, **config} if is_asked else dict(config)

    @classmethod
    def result_names(cls, config: Mapping[str, Any]) -> Collection[str] | None:
        """Return the names that results may have; None for any, in classes defined elsewhere."""
        shipped = cls.__module__.startswith("trainables.algorithms.")
        return classic.result_names(parse(cls.config_class, config)) if shipped else None

    @classmethod
    def settle_config(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that `choose` gives to settings that are ``auto``."""
        cls = cls.of(config)  # noqa: PLW0642
        settings = parse(cls.config_class, config)
        if not (undecided := cls.automatic_settings(settings)):
            return {}
        settings = cls._settle_stepping(settings)
        chosen = cls._checked_choice(settings, measuring.look(settings.environment))
        return {key: chosen[key] for key in undecided}

    @classmethod
    def automatic_settings(cls, settings: TrainerConfig) -> tuple[str, ...]:
        """Return the settings of `before_auto` that are ``auto``."""
        flat = flatten(settings)
        return tuple(key for key in cls.before_auto if flat[key] == AUTO)

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> dict[str, float]:
        """Return ``cpu``, ``gpu``, ``memory`` (bytes) of the trainer, ``extra_*`` of children."""
        return config_checks.resource_request(parse(cls.config_class, config))

    @classmethod
    def resource_help(cls, config: Mapping[str, Any]) -> str:
        """Return the advice for a trial that asks for more resources than there are."""
        return (
            "num_workers and evaluation_num_workers set how many child processes a trial has, "
            "num_gpus what it learns on; this trial's settings: "
            f"{dict(config)}"
        )

    @property
    def raw_user_config(self) -> dict[str, Any]:
        """A copy of the given settings, without defaults."""
        return copy.deepcopy(dict(self._given))

    # ---- Trainable ---------------------------------------------------------------------------

    def setup(self, config: dict[str, Any]) -> None:
        """Build policy, filters and workers from the settings."""
        settings = parse(self.config_class, config)
        self._undecided = self.automatic_settings(settings)
        self.settings = self._settle_stepping(settings, chosen=not self.context.settled)
        self.validate_config(self.settings)
        self._given = self.config
        with ExitStack() as undo:
            undo.callback(EnvironmentVariables(self.settings.resources.environs).undo)
            # The environment is measured in a child process beside what is built here.
            with closing(self._inquiry()) as inquiry:
                self._build(self.settings, inquiry)
            undo.callback(lambda: self.workers.close())  # noqa: PLW0108 they may have been replaced
            undo.callback(self.evaluation.workers.close)
            self.reporter.begin()
            self._synchronise([])
            self._undo = undo.pop_all()

    def _inquiry(self) -> Inquiry:
        """Return the inquiry about the environment."""
        restarts = self.settings.envs.restart_failed_sub_environments
        known, shared = self.context.remembered, self.context.shared
        return Inquiry(self.settings.stepped, restarts, known, shared)

    def _build(self, settings: TrainerConfig, inquiry: Inquiry) -> None:
        """Build reporter, progress, policy, workers and evaluation."""
        config_checks.set_threads(settings.resources)
        self.seed = self.context.seed if settings.seed is None else settings.seed
        rng.seed_global(self.seed, "global")
        self.inexact = ""
        """Reasons why the curve is not that of its settings and seed; empty if it is."""
        self.timers: dict[str, float] = {}
        """Milliseconds of this iteration's parts."""
        self._log_batch_size(settings)
        me = weakref.proxy(self)  # a trainer without references is freed at once, with its workers
        record = EpisodeRecord(settings.recording, lambda: me.logdir)
        whole = settings.sampling.batch_mode == "complete_episodes"
        output = Output(self._io_context(self.seed), self.context, whole)
        self.reporter = Reporter(settings.callbacks, settings.logs, record, output)
        seen = inquiry.look()
        chosen = self._checked_choice(settings, seen)
        self._settle({} if self.context.settled else chosen)
        settings = self.settings
        check_vector_env(settings.environment, settings.envs, seen.limit)
        self.calls_us = output.in_lanes = seen.calls_us
        """True if the environment calls the trainer."""
        output.spread_of = lambda pid: me.spread_of(pid)  # noqa: PLW0108 a method holds it
        self.progress = Progress(settings.metrics)
        self._build_policy(settings, seen)
        self.environment, self.level = resolve(
            settings.stepped, bool(settings.by_clock), lambda _: inquiry.measured()
        )
        if settings.offline.only_reads and not settings.by_clock:
            self.level = "A"
        self._remembered, self._measured = inquiry.as_data(), settings.environment
        self.fps = config_checks.check_pictures_of(settings)
        self.workers: WorkerSet = self._make_workers(self.seed)
        if settings.evaluation.evaluation_interval is not None:
            self.reporter.log("evaluation_config", settings.evaluation.evaluation_config)
        self.evaluation = PeriodicEvaluation(
            settings, self.seed, self.inference, self.reporter.calls, lambda: me.environment
        )

    def _build_policy(self, settings: TrainerConfig, seen: Look) -> None:
        """Build the learning and the acting policy for the spaces of the inspected environment."""
        self.spaces = seen.spaces
        is_filtered = settings.filters.observation_filter != "NoFilter"
        if note := self.spaces.note or ("" if is_filtered else scale_warning(self.spaces.seen)):
            logger.warning(note)
        shape, masks = row_shape(self.spaces.filtered), self.spaces.masks
        self.architecture = self.networks(settings, self.spaces)
        if (own := self.architecture.own) is not None:
            in_torch = "%s acts and learns in torch; built-in networks act in numpy, faster"
            logger.info(in_torch, own.path)
        self.policy = self.make_policy(config_checks.learning_device(settings.resources))
        self.filters = make_filters(settings.filters, shape, masks=masks)
        self.streams = {
            name: rng.generator(self.seed, name) for name in ("minibatch", "compute_action")
        }
        self.parts = self.make_parts()
        self.gives_copies = self._gives_copies()
        sampling, observed = settings.sampling, self.filters["observation"]
        between = self.spaces.connected(
            "player",
            observed,
            sampling.clip_actions,
            sampling.spreads_actions,
            exact=filters_.is_filtering(observed),
        )
        self.recent: NDArray[Any] = np.zeros((0, *self.spaces.row_shape), between.row_dtype)
        self.inference = InferencePolicy(self.policy.make_actor(), self.spaces, between)
        if settings.restore is not None:
            try:
                self.load_trained("restore", settings.restore, DEFAULT_POLICY_ID)
            except ConfigError as error:
                self._unread_source = error

    def load_trained(self, key: str, path: str, name: str) -> None:
        """Load the weights and filter of a trained policy, in this process only.

        Raises:
            ConfigError: as `policy_files.load_trained`.
        """
        policy_files.load_trained(self.policy, self.filters["observation"], key, path, name)

    def step(self) -> dict[str, Any]:
        """Make one iteration, and return its result.

        It has rounds of sampling and learning until it is long enough.

        Raises:
            ConfigError: the file that ``restore`` names cannot be read.
        """
        if self._unread_source is not None:
            raise self._unread_source
        check_quota(self.settings.resources.memory)
        self.set_global_vars({"timestep": self.progress.timesteps})
        at_start = self._evaluation_at_start()
        timers: dict[str, float] = {}
        self.timers = timers
        least, began = self.settings.iteration, time.monotonic()
        self.progress.begin_iteration()
        with self._limited_threads():
            learner = self.training_step()
            while (
                self.progress.timesteps_this_iteration < least.timesteps_per_iteration
                or time.monotonic() - began < least.min_iter_time_s
            ):
                learner = self.training_step()
        result: dict[str, Any] = {
            **self.collect_metrics(),
            **system_usage(self.settings.logs),
            "learner": learner,
            "num_healthy_workers": self.workers.healthy(),
            **({"fake_sampler": True} if self.settings.sampling.fake_sampler else {}),
            "timers": timers,
            **({"exactness": self.exactness} if self.inexact else {}),
            **({"train_batch_size": self.settings.batch_size} if self.settings.rounded else {}),
            **at_start,
        }
        if self.settings.offline.reads_experience:
            result.update(self._off_policy_results())
        if is_due(self.settings.evaluation, self.iteration + 1):
            with timed(timers, "evaluation_time_ms"):
                result.update(self._run_evaluation(self.iteration + 1))
        if self.settings.metrics.classic_results:
            result.update(classic.results(result))
        return result

    def _limited_threads(self) -> AbstractContextManager[object]:
        """Return a context in which numpy uses as many threads as torch.

        With more threads, products of matrices wait for busy cores: acting on pictures took 57 ms a
        step instead of 1 beside another training on two cores (measured).
        """
        return blas_threads(self.settings.resources.threads[0])

    @gives_data
    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return everything that affects the future, as plain data; filters are not flushed."""
        settled = {key: self.config[key] for key in self.before_auto}
        return {
            **self._learnt_state(checkpoint_dir),
            "progress": self.progress.get_state(),
            "workers": self.workers.get_state(),
            "collected": dict(self._collected),
            **({"settled": settled} if settled else {}),
            "rounding": rounding.fingerprint(self.computes_in_torch),
            **({"inexact": self.inexact} if self.inexact else {}),
            **self.reporter.get_state(),
        }

    def load_checkpoint(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore the state that `save_checkpoint` returned.

        Raises:
            ConfigError: it was saved with other filters, or by workers of another kind or number.
        """
        self._settle(checkpoint.get("settled", {}))
        agreement.check(checkpoint, self._collected)
        self._adopt_level()
        self._restore_learnt(checkpoint)
        self.progress.set_state(checkpoint["progress"])
        self.inexact = agreement.inexact_reasons(checkpoint, self.computes_in_torch)
        if checkpoint["workers"] is None:
            self._replace_workers()
        else:
            self.workers.set_state(checkpoint["workers"])
        self.reporter.set_state(checkpoint, self.progress.timesteps)
        if checkpoint["workers"] is None:
            self.reporter.begin_anew()
        self._synchronise([])

    def _learnt_state(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the state of policy, filters, streams and parts, without workers and counters."""
        return {
            "policy": self.policy.get_state(),
            "filters": filters_.get_state(self.filters),
            "streams": {
                name: rng.get_generator_state(stream) for name, stream in self.streams.items()
            },
            "recent_observations": self.recent.copy(),
            **{name: part.get_state() for name, part in self.parts.items()},
        }

    def _restore_learnt(self, checkpoint: Mapping[str, Any]) -> None:
        """Restore what `_learnt_state` returned."""
        self._unread_source = None
        self.policy.set_state(checkpoint["policy"])
        filters_.set_state(self.filters, checkpoint["filters"])
        for name, stream in self.streams.items():
            rng.set_generator_state(stream, checkpoint["streams"][name])
        for name, part in self.parts.items():
            part.set_state(checkpoint[name])
        self.recent = np.array(checkpoint["recent_observations"], dtype=self.recent.dtype)

    def adapt_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state without its workers if this trainer's workers collect in another way.

        Policy and counters stay, and new episodes are begun. The returned state and the log name
        the reason why the curve is no longer exact.
        """
        given = state["trainable"].get("data")
        if not isinstance(given, Mapping):
            return state
        data = self.computed_here(given)
        if data.get("workers"):
            self._settle(data.get("settled", {}))
            if changes := agreement.changed_settings(data, self._collected):
                why = agreement.describe_changes(changes, int(data["progress"]["timesteps"]))
                reasons = agreement.no_longer_exact(data, why, "new episodes are begun, and ")
                data = {**data, "workers": None, "inexact": reasons}
        return {**state, "trainable": {**state["trainable"], "data": data}}

    def computed_here(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a checkpoint's data as if this machine had computed it.

        If it was computed in another way, the returned data and the log name this as the reason why
        the curve is no longer exact.
        """
        return data

    def cleanup(self) -> None:
        """End the workers, and restore the process's environment variables."""
        self._undo.close()

    # ---- queries -----------------------------------------------------------------------------

    def remembers(self) -> dict[str, Any]:
        """Return the measured exactness of the environment, for all trials of a sweep."""
        return self._remembered

    @property
    def exactness(self) -> str:  # type: ignore[override]  # measured per trial, not per class
        """Measured exactness of checkpoints, such as "A exact state"."""
        if self.inexact:
            return f"{LEVELS['D']}: {self.inexact}"
        if self.level == "D" and self.settings.by_clock:
            return f"{LEVELS['D']}: a clock steers ({', '.join(self.settings.by_clock)})"
        return LEVELS["D" if self.progress.late else self.level]

    def collect_metrics(self, selected_workers: Sequence[int] | None = None) -> dict[str, Any]:
        """Return the episodes and steps of the latest result: the same keys, the same numbers.

        Args:
            selected_workers: indices of the workers to include; None for all. Totals always include
                all.
        """
        return self.progress.collect(selected_workers)

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Send variables, such as ``timestep``, to the policy and all workers."""
        self.policy.on_global_var_update(global_vars)
        self.workers.set_global_vars(global_vars)

    # ---- evaluation --------------------------------------------------------------------------

    @property
    def videos(self) -> str:
        """Folder of the trial's videos, which need not exist."""
        return str(Path(self.logdir) / FOLDER)

    def evaluate(self) -> dict[str, Any]:
        """Play `evaluation_num_episodes` new episodes; see `PeriodicEvaluation.evaluate`."""
        self._update_exploration()
        with self._limited_threads():
            return self.evaluation.evaluate(self.iteration + 1, self.progress.timesteps)

    def play(
        self,
        episodes: int,
        seed: int,
        video: Path | None = None,
        window: bool = False,
        most_steps: float = math.inf,
    ) -> list[dict[str, float]]:
        """Play new episodes as evaluations do, with frozen filters and `evaluation_config`.

        The arguments are those of `PeriodicEvaluation.play`.

        Returns:
            ``episode_reward`` and ``episode_len`` of each episode.
        """
        self._update_exploration()
        with self._limited_threads():
            return _episodes(self.evaluation.play(episodes, seed, video, window, most_steps))

    @classmethod
    def play_exported(
        cls,
        file: Path,
        card: Mapping[str, Any],
        episodes: int,
        seed: int,
        video: Path | None = None,
        window: bool = False,
    ) -> list[dict[str, float]]:
        """Play episodes with an exported file as `play` does, without callbacks and exploration.

        Args:
            file: the exported model.
            card: its description, with the trainer's settings.
            episodes: number of episodes.
            seed: seed of the episodes.
            video: folder of videos; None for no videos.
            window: True to show the episodes in a window.

        Returns:
            ``episode_reward`` and ``episode_len`` of each episode.
        """
        plain = {**card["config"], "callbacks": None}
        if own := plain.get("evaluation_config"):
            plain["evaluation_config"] = {k: v for k, v in own.items() if k != "callbacks"}
        settings = cls._settle_stepping(parse(cls.config_class, plain))
        seen = measuring.look(settings.environment)
        if settings.sampling.normalize_actions == AUTO:
            chosen = cls._checked_choice(settings, seen)["normalize_actions"]
            settings = override(settings, {"normalize_actions": chosen}, "config")
        spaces = seen.spaces
        inputs = card["model"]["inputs"]
        memory = sum(inputs[name]["shape"][1] for name in export.STATES_IN if name in inputs)
        sampling = settings.sampling
        between = spaces.connected(
            "player",
            filters_.NoFilter(),
            sampling.clip_actions,
            sampling.spreads_actions,
            exact=any(one["dtype"] == "float64" for one in inputs.values()),
        )
        policy = policy_files.ExportedPolicy(file, spaces, memory, between)
        evaluation = PeriodicEvaluation(settings, seed, policy, None, lambda: None)
        return _episodes(evaluation.play(episodes, seed, video, window))

    def _run_evaluation(self, iteration: int) -> dict[str, Any]:
        """Return the checked result of `_evaluate`; the global random streams are not changed.

        Args:
            iteration: iteration that this evaluation ends; 0 for the evaluation at the start.

        Raises:
            TrainableError: `_evaluate` returned no dict.
        """
        streams = rng.capture_global()
        self._before_evaluate()
        with self._limited_threads():
            evaluated: object = self._evaluate()
        rng.restore_global(streams)
        if not isinstance(evaluated, dict):
            raise TrainableError(
                f"{type(self).__name__}._evaluate() returned {shorten(evaluated)}; "
                f"expected a dict to add to the result"
            )
        if self.settings.rendering.records_evaluation:
            self.evaluation.record(iteration, self.progress.timesteps, self.videos)
        return evaluated

    def _off_policy_results(self) -> dict[str, Any]:
        """Return ``off_policy`` → the results of `input_evaluation`; empty if there are none."""
        found: dict[str, Any] = {}
        if "simulation" in self.settings.offline.input_evaluation:
            found["simulation"] = self._run_evaluation(self.iteration + 1)["evaluation"]
            found["simulation"] = found["simulation"]["episode_reward_mean"]
        samples = isinstance(self.workers, ReadingWorkers) and self.workers.samples_for_reader
        if type(self).log_likelihoods is not Trainer.log_likelihoods and not samples:
            found |= self._make_estimates()
        return {"off_policy": found} if found else {}

    def _make_estimates(self) -> dict[str, Any]:
        """Return off-policy estimates from the episodes that are read."""
        return self.estimates.of(self.judged_likelihoods, self.iteration + 1)

    def _evaluation_at_start(self) -> dict[str, Any]:
        """Return the untrained policy's evaluation, for the first result; empty for later ones.

        An evaluation that cannot work thus fails before anything is trained.
        """
        if self.iteration or self.settings.evaluation.evaluation_interval is None:
            return {}
        return {f"{name}_at_start": value for name, value in self._run_evaluation(0).items()}

    # ---- actions -----------------------------------------------------------------------------

    def compute_action(
        self,
        obs: Any,
        state: Sequence[NDArray[Any]] | None = None,
        prev_action: Any = None,
        prev_reward: float | None = None,
        info: Mapping[str, Any] | None = None,
        policy_id: str = DEFAULT_POLICY_ID,
        full_fetch: bool = False,
        explore: bool = False,
    ) -> Any:
        """Return the action for one raw observation, both as the environment knows them.

        The observation is preprocessed and filtered (without updating the filter), the action
        mapped back. Training is not disturbed: drawn actions use their own stream.

        Args:
            obs: observation as the environment gives it: an array, a number, a tuple, a dict.
            state: state that the last call returned for this episode; None at its start.
            prev_action: last action as the environment took it, if the policy reads it
                (`lstm_use_prev_action`); None for the one in the state, or none.
            prev_reward: last reward, likewise.
            info: not used.
            policy_id: ``default_policy``.
            full_fetch: True to return policy outputs, too.
            explore: True to draw the action; otherwise it is the most probable one.

        Returns:
            The action; with a state or `full_fetch` (action, state, outputs), where the outputs are
            ``logp`` and ``value``, and the state is for the next observation.

        Raises:
            ConfigError: there is no such policy.
            ValueError: the state does not fit this policy.
        """
        require_policy(policy_id)
        stream = self.acting_stream(explore)
        given = self.get_initial_state() if state is None else state
        memory = self.inference.join_state(given)
        memory = self.inference.with_previous(memory, prev_action, prev_reward)
        action, following, fetches = self.inference.answer(obs, memory, stream)
        if state is None and not full_fetch:
            return action
        return action, self.inference.split_state(following), fetches

    compute_single_action = compute_action

    def compute_actions(
        self, observations: Mapping[Any, Any], explore: bool = False
    ) -> dict[Any, Any]:
        """Return name → action, for raw observations by name, as `compute_action` does for one.

        For a policy with a memory each observation begins an episode; `Policy.compute_actions`
        takes states.
        """
        if not observations:
            return {}
        actions, _, _ = classic.Policy(self).compute_actions(
            list(observations.values()), None, explore
        )
        return dict(zip(observations, actions, strict=True))

    def spread_of(self, policy_id: str) -> Spread | None:
        """Return how a policy's numbers are spread before they are sent; None if they are not."""
        return self.inference.connectors.adapter.spread

    def acting_stream(self, explore: bool) -> np.random.Generator | None:
        """Return the random stream of callers' actions; None if actions are not drawn."""
        self._update_exploration()
        return self.streams["compute_action"] if explore else None

    def get_initial_state(self, policy_id: str = DEFAULT_POLICY_ID) -> list[NDArray[Any]]:
        """Return the state with which an episode of a policy begins.

        For an LSTM it is outputs and cells, each (U,); without a memory it is empty.

        Raises:
            ConfigError: there is no such policy.
        """
        require_policy(policy_id)
        return self.inference.split_state(self.inference.initial_memory())

    # ---- weights and gradients -----------------------------------------------------------------

    def get_policy(self, policy_id: str = DEFAULT_POLICY_ID) -> classic.Policy | None:
        """Return the policy with this name; None if there is none."""
        return classic.Policy(self) if policy_id == DEFAULT_POLICY_ID else None

    def get_weights(self, policies: Sequence[str] | None = None) -> dict[str, Weights]:
        """Return policy → copy of its weights, for these policies or for all if None."""
        return by_policy(policies, self.policy.weights())

    def set_weights(self, weights: Mapping[str, Weights]) -> None:
        """Load policy → weights, here and in every worker; the optimiser keeps its state.

        Raises:
            ConfigError: the names or shapes are not this policy's, or there is a NaN; nothing is
                changed.
        """
        for pid, one in weights.items():
            require_policy(pid)
            self.adopt(one, pid)
        self.broadcast()

    def adopt(self, weights: Weights, policy_id: str) -> None:
        """Load the weights of one policy, in this process only.

        Raises:
            ConfigError: as `set_weights`.
        """
        if problem := policy_files.misfit(weights, self.policy.weights()):
            allowed = "this policy's weights"
            raise ConfigError(f"weights.{policy_id}", sorted(weights), allowed, problem)
        self.policy.load_weights(weights)

    def compute_gradients(
        self, batch: TrainBatch
    ) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
        """Return parameter → gradient of the loss of B rows, and the loss's parts.

        The parts include ``batch_count``.
        """
        tensors = self._tensors(batch)
        loss, parts = self.loss(tensors)
        count = len(tensors["observations"])
        return self.policy.in_torch().compute_gradients(loss), {**parts, "batch_count": count}

    def apply_gradients(self, gradients: Mapping[str, NDArray[Any]]) -> float:
        """Take one step of the optimiser, and return the norm of the gradient.

        Every worker is sent the weights.
        """
        norm = self.policy.in_torch().apply_gradients(gradients, *self.gradient_step())
        self.broadcast()
        return norm

    def learn_on_batch(self, batch: TrainBatch) -> dict[str, dict[str, float]]:
        """Take one gradient step on B rows, and return policy → the loss's parts.

        The parts include ``batch_count``.
        """
        loss, parts = self.loss(self._tensors(batch))
        norm = self.policy.in_torch().minimise(loss, *self.gradient_step())
        self.broadcast()
        info = {**parts, "batch_count": len(batch), "grad_norm": norm}
        return {DEFAULT_POLICY_ID: info}

    def broadcast(self) -> None:
        """Send the weights and the filters to all workers."""
        self._synchronise([])

    # ---- files -------------------------------------------------------------------------------

    def export_policy_model(self, export_dir: str, policy_id: str = DEFAULT_POLICY_ID) -> str:
        """Write ``policy.onnx``, checked on observations that were seen; returns its path."""
        require_policy(policy_id)
        return self._export_model(["onnx"], export_dir)["onnx"]

    def export_policy_checkpoint(
        self,
        export_dir: str,
        filename_prefix: str = "model",
        policy_id: str = DEFAULT_POLICY_ID,
    ) -> str:
        """Write the weights, without filters, as ``{prefix}.safetensors``; returns its path."""
        require_policy(policy_id)
        path = Path(export_dir) / f"{filename_prefix}{policy_files.SUFFIX}"
        return policy_files.save_weights(self.policy.weights(), path)

    def import_policy_weights(self, path: str | Path, policy_id: str = DEFAULT_POLICY_ID) -> None:
        """Load weights that `export_policy_checkpoint`, or another program, wrote.

        Raises:
            CheckpointError: the file has no such weights; nothing is changed.
        """
        require_policy(policy_id)
        found = policy_files.read_weights(path, self.policy.weights())
        self.set_weights({policy_id: found})

    import_model = import_policy_weights

    def describe_model(self) -> dict[str, Any]:
        """Return the inputs and outputs of the exported model: plain data for its card."""
        return export.describe(self.policy, self.inference)

    def _export_model(self, export_formats: Sequence[str], export_dir: str) -> dict[str, str]:
        """Write the policy in these formats, and return format → path.

        ``onnx`` and others are one file, ``model`` is a folder, ``checkpoint`` a folder with
        weights.
        """
        return policy_files.export_formats(
            self.policy, self.inference, self.recent, export_formats, Path(export_dir)
        )

    def columns_learnt(self, batch: Any) -> Mapping[str, NDArray[Any]]:
        """Return the columns (B, …) of a batch as the loss reads them."""
        columns: Mapping[str, NDArray[Any]] = batch.columns()
        return columns

    def _tensors(self, batch: Any) -> "dict[str, Tensor]":
        """Return the columns of a batch as tensors on the policy's device."""
        import torch

        device = self.policy.in_torch().device
        columns = self.columns_learnt(batch)
        return {name: torch.from_numpy(one).to(device) for name, one in columns.items()}

    # ---- inside ------------------------------------------------------------------------------

    def _settle(self, chosen: Mapping[str, Any]) -> None:
        """Give each setting that was ``auto`` its chosen value, or else that of `before_auto`."""
        values = {key: chosen.get(key, self.before_auto[key]) for key in self._undecided}
        if hasattr(self, "inference"):  # the actor is made: a checkpoint of the other kind fails
            values.pop("normalize_actions", None)
        if isinstance(self.config, SettingsView) and values.items() <= self.config.items():
            return  # as nearly always: the checkpoint has the same choices
        if values:
            self.settings = override(self.settings, values, "config")
        self.config = SettingsView(flatten(self.settings))
        self._collected = agreement.collection_settings(self.config)

    def _gives_copies(self) -> bool:
        """Return whether a checkpoint consists of copies only.

        A replay's data and that of user code are not copied.
        """
        mine = type(self).get_state is Trainable.get_state and not self.writes_files()
        known = type(self.policy).get_state is Policy.get_state
        filters = self.settings.filters.observation_filter in filters_.KINDS
        others = self.parts or self.reporter.calls or self.settings.offline.output
        return mine and known and filters and not others

    def _update_exploration(self) -> None:
        """Pass the number of sampled steps to the actor, whose exploration depends on it."""
        self.inference.actor.on_global_var_update({"timestep": self.progress.timesteps})

    def merge_filters(self, samples: Sequence[Sample]) -> list[Sample]:
        """Merge the statistics of the workers' filters before learning from these samples.

        Returns the samples without the statistics, so that `end_round` does not count them twice.
        """
        filters_.synchronise(self.filters, [one.deltas for one in samples])
        return [replace(one, deltas={}) for one in samples]

    def filter_rows(
        self, rows: Mapping[str, NDArray[Any]], weight: float = 1.0
    ) -> dict[str, NDArray[Any]]:
        """Return unfiltered rows (B, …) as the policy sees them with the current filter statistics.

        ``observations`` and ``new_obs`` are filtered, and ``rewards`` divided by the deviation of
        the return. The statistics do not change within a round.

        Args:
            rows: column → (B, …) as a replay stores them; every column is optional.
            weight: sum of the weights of the rewards that a value of ``rewards`` adds up; the
                clipping to ±10 grows with it.
        """
        found = dict(rows)
        if filters_.is_filtering(self.filters["observation"]):
            for name in ("observations", "new_obs"):
                if name in found:
                    found[name] = self.inference.connectors.filtered_rows(found[name])
        stat = self.filters.get("reward")
        if isinstance(stat, filters_.MeanStdFilter) and "rewards" in found:
            found["rewards"] = stat.scale(found["rewards"] / weight) * np.float32(weight)
        return found

    def end_round(self, samples: Sequence[Sample]) -> None:
        """End a round: synchronise with the workers, and count their samples."""
        ages = [self.workers.version - one.version for one in samples]
        with timed(self.timers, "synch_time_ms"):
            self._synchronise(samples)
        self.progress.count_ages(ages)
        for one in samples:
            self.progress.count(one.index, one.count, one.episodes, one.perf)
            self.progress.late += one.late

    def worker_spec(self) -> WorkerSpec:
        """Return the specification of workers."""
        settings = self.settings
        kind = ExternalSpec if self.calls_us else WorkerSpec
        return kind(
            seed=self.seed,
            index=0,
            num_workers=settings.workers.num_workers,
            environment=self.environment,
            envs=settings.envs,
            sampling=settings.sampling,
            filters=settings.filters,
            make_actor=self.policy.make_actor,
            gamma=settings.gamma,
            steps=-(-settings.batch_size // max(1, settings.workers.num_workers)),
            resources=settings.resources,
            perf=settings.perf,
            logs=settings.logs,
            calls=self.reporter.calls,
            columns=self._columns(),
            unfiltered=self.keeps_rows,
            filming=RecordingPlan(settings.rendering, self.videos, self.fps) if self.fps else None,
        )

    def _columns(self) -> frozenset[str]:
        """Return the columns of fragments that output and callbacks request."""
        calls = self.reporter.calls
        written = WRITTEN_IN_LANES if self.calls_us else self.written
        written = written if self.settings.offline.output else frozenset()
        return written | (calls.columns if calls else frozenset())

    def _complete(self, result: dict[str, Any], elapsed: float) -> dict[str, Any]:
        """Complete a result, write its media as files, and call `on_train_result`."""
        completed = super()._complete({"config": self._given, **result}, elapsed)
        step = completed["training_iteration"]
        completed = media.with_files(completed, lambda: Path(self.logdir) / media.FOLDER, step)
        self.reporter.train_result(self, completed)
        return completed

    def _adopt_level(self) -> None:
        """Make workers for the exactness of the checkpoint's trainer, if it is another one."""
        of, context = self.settings, self.context
        mine = self._remembered
        alike = bool(mine) and mine.items() <= dict(context.remembered).items()
        if of.offline.only_reads or (alike and of.environment == self._measured):
            return
        self._measured = of.environment
        restarts = of.envs.restart_failed_sub_environments
        known = known_by(of.environment, restarts, context.remembered)
        if known is None and of.environment.is_native == self.environment.is_native:
            return
        inquired = Inquiry(of.environment, restarts, context.remembered, context.shared)
        with closing(inquired) as inquiry:
            by_clock = bool(of.by_clock)
            made, level = resolve(of.environment, by_clock, lambda _: inquiry.measured())
            self._remembered = inquiry.as_data()
        if made == self.environment and level == self.level:
            return
        self.workers.close()
        self.environment, self.level = made, level
        self.workers = self._make_workers(self.seed)

    @staticmethod
    def _log_batch_size(settings: TrainerConfig) -> None:
        """Log that the batch size was rounded up."""
        if settings.rounded:
            logger.info(
                "train_batch_size: %s is rounded up to %s: whole rounds of %s steps, a fragment of "
                "every environment",
                *(settings.train_batch_size, settings.batch_size, settings.fragment_size),
            )

    def _make_workers(self, seed: int) -> WorkerSet:
        """Return the workers that sample, or read experience, or do both."""
        of, offline = self.settings, self.settings.offline
        spec = replace(self.worker_spec(), seed=seed)
        at_once = of.batch_size if self.samples_on else None
        sampling = None
        if not offline.only_reads:
            sampling = make_workers(spec, of.workers, of.recovery, of.metrics, at_once)
        if sampling is not None and not offline.reads_experience:
            return sampling
        made = [sampling] if sampling else []
        asked: list[SamplerInput] = []

        may_ask = sampling is None

        def find_sampler() -> SamplerInput | None:
            if may_ask and not asked:
                columns = WRITTEN_IN_LANES if self.calls_us else self.written
                more = replace(spec, columns=spec.columns | columns - {"infos"})
                made.append(make_workers(more, of.workers, of.recovery, of.metrics))
                asked.append(SamplerInput(made[0], self.calls_us))
            return asked[0] if asked else None

        context = replace(
            self._io_context(seed),
            find_worker=lambda: made[0].local_worker() if made else None,
            find_sampler=find_sampler,
        )
        index = max(1, of.workers.num_workers) if sampling else 0
        try:
            reading = self._make_reading(context, index, sampling, spec)
        except BaseException:
            for one in made:
                one.close()
            raise
        may_ask = False
        if asked:
            reading.take_sampler(asked[0])
            self.level = "C"
        return reading

    def _io_context(self, seed: int) -> IOContext:
        """Return the argument of user-defined readers and writers."""
        me = weakref.proxy(self)

        def find_worker() -> RolloutWorker | None:
            workers: WorkerSet | None = getattr(me, "workers", None)
            return workers.local_worker() if workers else None

        return IOContext(
            config=SettingsView(flatten(self.settings)),
            offline=self.settings.offline,
            folder=lambda: me.logdir,
            seed=seed,
            find_worker=find_worker,
        )

    def _make_reading(
        self, context: IOContext, index: int, sampling: WorkerSet | None, spec: WorkerSpec
    ) -> ReadingWorkers:
        """Return workers that read experience, and prepare the off-policy estimates."""
        rows = self.row_form()
        self.estimates = Estimates(context, rows, self.spaces, self.settings.gamma)
        given = context, rows, self.settings.batch_size, index, sampling, Learnt.of(spec)
        config, shape = self.settings.filters, row_shape(self.spaces.filtered)
        return ReadingWorkers(*given, lambda _: make_filter(config, shape))

    def row_form(self, of_agents: bool = False) -> Rows:
        """Return the form that rows of files must have; `of_agents` is True with several agents."""
        return Rows(self.spaces, of_agents, filters_.is_filtering(self.filters["observation"]))

    def _replace_workers(self) -> None:
        """Replace the workers by new ones, with new episodes and streams."""
        self.workers.close()
        self.workers = self._make_workers(
            rng.integer(self.seed, "restored", self.progress.timesteps)
        )
        if not self.settings.filters.synchronize_filters:
            known = self.filter_states()
            states = self.workers.get_state()
            self.workers.set_state([{**state, "filters": known} for state in states])

    def filter_states(self) -> dict[str, Any]:
        """Return the filters' states by their names in a worker."""
        return filters_.get_state(self.filters)

    def _synchronise(self, samples: Sequence[Sample]) -> None:
        """Merge the statistics of the workers' filters, in worker order.

        All workers are sent the weights and the merged filters.
        """
        merged = filters_.synchronise(self.filters, [one.deltas for one in samples if one.deltas])
        weights = self.policy.acting_weights()
        self.inference.actor.load(weights)
        if isinstance(self.workers, RankGroup) and not samples:
            self.workers.load_policy(self.policy.get_state())
        self.workers.sync(weights, merged)
        if samples:
            self.recent = samples[0].recent


def _episodes(played: Sequence[Played]) -> list[dict[str, float]]:
    """Return ``episode_reward`` and ``episode_len`` of episodes, as `Trainable.play` does."""
    found = [one.metrics for one in played]
    return [{"episode_reward": m.total_reward, "episode_len": float(m.length)} for m in found]
