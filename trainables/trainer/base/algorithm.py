"""Base class of algorithms: their declarations, and the parsing of a config into settings."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from trainables.core.importing import import_object
from trainables.core.settings import flatten, override, parse
from trainables.envs.exactness import measuring
from trainables.envs.exactness.measuring import Inspection
from trainables.envs.make import EnvSpaces
from trainables.envs.spaces.actions import spread
from trainables.errors import ConfigError
from trainables.offline.batches import WRITTEN
from trainables.offline.config import ESTIMATED, check_statistics
from trainables.policies.architecture import Activation, Architecture, architecture
from trainables.policies.policy import Policy, Scalar
from trainables.rollout.workers.access import DEFAULT_POLICY_ID
from trainables.trainable import Trainable
from trainables.trainer import agreement, classic, config_checks, policy_files
from trainables.trainer.config import TrainerConfig, has_policies

if TYPE_CHECKING:
    from torch import Tensor

#: Value of a setting that the trainer chooses.
AUTO = "auto"
#: Path of the function that returns a trainer class's form for several policies.
MULTI_AGENT = "trainables.trainer.multi_agent.trainer:multi_agent_class"


class Stateful(Protocol):
    """An object whose state is a part of its trainer's checkpoints."""

    def get_state(self) -> dict[str, Any]:
        """Return everything of the object that affects the future, as plain data."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""


class Algorithm(Trainable):
    """Base class of trainers: the methods that an algorithm defines, and its settings."""

    config_class: ClassVar[type[TrainerConfig]] = TrainerConfig
    takes_other_settings: ClassVar[bool] = False
    depends_on_seed: ClassVar[bool] = True
    settings: TrainerConfig
    fixed_keys: ClassVar[frozenset[str]] = agreement.FIXED
    usual_networks: ClassVar[tuple[tuple[int, ...], Activation]] = ((64, 64), "tanh")
    """Hidden layers and activation for vectors, used if ``model`` does not set them."""
    learns_from_others: ClassVar[bool] = False
    """True if the algorithm can learn from other policies' experience (``input``)."""
    keeps_rows: ClassVar[bool] = False
    """True if the algorithm also learns from rows of earlier rounds, such as rows of a replay
    buffer or of files: workers then return unfiltered rows, and `filter_rows` filters them when
    they are drawn."""
    spreads_actions: ClassVar[bool] = False
    """True if the policy's real numbers are learnt unbounded, as Gaussians, so that
    ``normalize_actions`` can scale them to the bounds of actions."""
    model_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of ``model`` that this algorithm reads and not every algorithm does."""
    learns_in_ranks: ClassVar[bool] = False
    """True if the algorithm supports ``data_parallel``: its `worker_spec` then has a learner, so
    that workers learn as well."""
    masks_actions: ClassVar[bool] = False
    """True if the policy applies action masks when it acts and learns."""
    samples_on: ClassVar[bool] = False
    """True if child processes sample while the trainer learns (`remote.asynchronous`)."""
    written_columns: ClassVar[frozenset[str]] = WRITTEN
    """Names of columns that workers must return if the setting ``output`` writes experience."""
    auto_settings: ClassVar[tuple[str, ...]] = ("native_vector_env", "normalize_actions")
    """Names of the settings that may be ``auto``."""

    def __new__(cls, config: Mapping[str, Any] | None = None, *_: Any, **__: Any) -> Self:
        """Make an object of the class that `of` returns for these settings."""
        return super().__new__(cls.of(config or {}))

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> type[Self]:
        """Return the class for these settings: this one, or its form for several policies.

        The latter if ``multiagent`` names policies other than the default one.
        """
        if not (isinstance(config, Mapping) and has_policies(config.get("multiagent"))):
            return cls
        # Imported by name, since that module imports this one.
        made: type[Self] = import_object(MULTI_AGENT)(cls)  # type: ignore[operator]
        return made

    # ---- methods that an algorithm defines ------------------------------------------------------

    def make_policy(self, device: str) -> Policy:
        """Create the policy that learns on `device`, ``cpu`` or ``cuda``.

        It is called once, when `settings`, `spaces`, `architecture` and `seed` are known.
        """
        raise NotImplementedError

    def make_parts(self) -> dict[str, Stateful]:
        """Return the algorithm's own parts, for example a replay, by their names in checkpoints.

        By default there are none.
        """
        return {}

    def after_loading_weights(self) -> None:
        """Let parts that follow the policy's weights, such as a target network, take them over.

        It is called after other weights than those of a checkpoint were loaded into the policy. By
        default there are no such parts.
        """

    def training_step(self) -> dict[str, float]:
        """Make one round of sampling and learning, and return the learner's statistics by name.

        A round ends with `end_round`, which sends the weights to the workers and counts the
        samples. `trainer.families.steps` has such rounds.
        """
        raise NotImplementedError

    def skip_round(self, steps: int) -> None:
        """Do what is due in a round of `steps` environment steps without rows of this policy.

        It is called in place of `training_step`, with several policies, and does nothing by
        default.
        """

    def loss(self, batch: "Mapping[str, Tensor]") -> "tuple[Tensor, Mapping[str, Scalar]]":
        """Return the loss () of a batch, column → tensor (B, …), and name → part of it.

        `compute_gradients` and `learn_on_batch` use it. Raises NotImplementedError if the algorithm
        does not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no loss(batch), so it cannot return gradients"
        )

    def log_likelihoods(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[Any]:
        """Return log-probabilities (R,) of actions for filtered observations (R, *S).

        Off-policy estimators use it. Raises NotImplementedError if the algorithm does not define
        it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no log_likelihoods(), "
            "which estimators of input_evaluation need"
        )

    def gradient_step_settings(self) -> tuple[float, float | None]:
        """Return (current learning rate, maximum norm of the gradient or None) for one step.

        `apply_gradients` and `learn_on_batch` use it. Raises NotImplementedError if the algorithm
        does not define it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no gradient_step_settings(), "
            "which single gradient steps need"
        )

    @property
    def computes_in_torch(self) -> bool:
        """True if torch computes a part of the learning."""
        return True

    @classmethod
    def choose(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return setting → best value for each of `auto_settings` in this environment.

        `inspection` is what was found out about the environment. `native_vector_env` is already
        settled in `settings`. ``normalize_actions`` is True if the class sets `spreads_actions` and
        actions have bounds other than -1 and 1, unless the environment calls the trainer or the
        distribution of actions is the user's own. Raises ConfigError if one of them is set to a
        value that does not work here.
        """
        as_they_are = inspection.calls_trainer or settings.model.custom_action_dist is not None
        spreads = cls.spreads_actions and spread(inspection.spaces.action) is not None
        return {
            "native_vector_env": settings.environment.is_native,
            "normalize_actions": spreads and not as_they_are,
        }

    @classmethod
    def networks(cls, settings: TrainerConfig, spaces: EnvSpaces) -> Architecture:
        """Return the architecture of the networks for these settings and spaces.

        An algorithm may override it to add parts of its own. Raises ConfigError if the key
        ``model`` has a value that does not work here.
        """
        layout = settings.environment.observation_settings.layout
        if layout not in (None, spaces.image_settings.layout):
            problem = "cannot be set for one policy alone"
            hint = "write it next to multiagent, for all policies"
            raise ConfigError("model.image_layout", layout, hint=hint, problem=problem)
        shape, masks = spaces.observation_shape, spaces.masks
        made = architecture(settings.model, shape, cls.usual_networks, masks)
        highest, floats = spaces.divisor, spaces.observation_dtype == np.float32
        is_scaled = settings.filters.observation_filter != "NoFilter" or not floats
        number = 1.0 if is_scaled else highest
        return replace(made, highest_byte=highest, highest_number=number)

    # ---- settings -------------------------------------------------------------------------------

    @classmethod
    def validate_config(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work together, or not with this algorithm.

        Beside those of `config_checks.check_together` they are stored experience, filters of
        workers, action masks, keys of ``model``, the GPU, and ``data_parallel``.
        """
        config_checks.check_together(settings)
        if settings.offline.reads_experience and not cls.learns_from_others:
            why = "it learns only from experience of its own policy"
            undo = "train bc, dqn, iql, sac or td3, which learn from stored experience"
            given, name = settings.offline.input, cls.__name__
            raise ConfigError.of_conflict("input", given, name, "sampler", why, undo)
        check_statistics(settings.offline, flatten(settings), cls.keeps_rows)
        filters = settings.filters
        apart = filters.observation_filter != "NoFilter" and not filters.synchronize_filters
        if apart and cls.keeps_rows:
            place, other = "synchronize_filters", f"{cls.__name__} and an observation_filter"
            why = "rows are filtered when they are drawn, with the statistics of all workers"
            undo = "remove observation_filter"
            raise ConfigError.of_conflict(place, False, other, "true", why, undo)
        if settings.offline.reads_experience:
            cls._check_reading(settings)
        if (source := settings.environment.action_mask) and not cls.masks_actions:
            undo = "train ppo, a2c, impala or dqn, which apply masks"
            place, name = "action_mask", cls.__name__
            raise ConfigError.of_conflict(place, source, name, "null", undo=undo)
        config_checks.check_model(settings.model, cls.model_keys, cls.__name__)
        cls._check_devices(settings)
        if settings.workers.data_parallel:
            if not cls.learns_in_ranks:
                why, name = "it does not learn in several processes at once", cls.__name__
                raise ConfigError.of_conflict("data_parallel", True, name, "false", why)
            config_checks.check_data_parallel(settings)

    @classmethod
    def _check_reading(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for settings that do not work with experience read from files.

        They are ``postprocess_inputs`` without ``n_step``, and estimators without
        `log_likelihoods`.
        """
        if settings.offline.postprocess_inputs and not hasattr(settings, "n_step"):
            why, undo = "it learns from single steps", "train dqn, which has n_step"
            place, name = "postprocess_inputs", cls.__name__
            raise ConfigError.of_conflict(place, True, name, "false", why, undo)
        asked, gives = settings.offline.input_evaluation, cls.log_likelihoods
        if gives is Algorithm.log_likelihoods and asked not in (ESTIMATED, ["simulation"], []):
            why = "its policy gives no probabilities for the estimates"
            place, allowed, name = "input_evaluation", "[simulation] or []", cls.__name__
            undo = "train bc or iql, whose policies do"
            raise ConfigError.of_conflict(place, asked, name, allowed, why, undo)

    @classmethod
    def _check_devices(cls, settings: TrainerConfig) -> None:
        """Raise ConfigError for ``act_on``, ``graphs`` or ``precision`` without a GPU to use.

        For ``act_on`` the reason is `why_acts_on_cpu`, for the others ``num_gpus: 0``.
        """
        if settings.devices.act_on == "gpu" and (why := cls.why_acts_on_cpu(settings)):
            raise ConfigError.of_conflict("act_on", "gpu", "", "auto or cpu", why)
        other, undo = "num_gpus: 0", "set num_gpus to 1"
        if settings.devices.graphs == "on" and not settings.resources.num_gpus:
            why = "CUDA graphs need a GPU"
            raise ConfigError.of_conflict("graphs", "on", other, "auto or off", why, undo)
        if (asked := settings.devices.precision) != "float32" and not settings.resources.num_gpus:
            raise ConfigError.of_conflict("precision", asked, other, "float32", undo=undo)

    @classmethod
    def why_acts_on_cpu(cls, settings: TrainerConfig) -> str:
        """Return the reason why the policy cannot act on the GPU; empty if it can.

        By default it never can.
        """
        return f"{cls.__name__} acts in numpy alone"

    @classmethod
    def why_no_graphs(cls, settings: TrainerConfig) -> str:
        """Return the reason why gradient steps cannot be CUDA graphs; empty if they can.

        By default they never can.
        """
        return f"those of {cls.__name__} are not captured"

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for settings that cannot work on this machine and environment.

        An environment is made and closed, the networks' sizes are computed, and the file that
        ``restore`` names is read, but no trainer is made.
        """
        if (asked := cls.of(config)) is not cls:
            asked.check_config(config)
            return
        settings = cls._settle_stepping(parse(cls.config_class, config))
        cls.validate_config(settings)
        if settings.restore is not None:
            policy_files.read_source("restore", settings.restore, DEFAULT_POLICY_ID)
        config_checks.check_by_trying(settings, cls.networks)
        cls._checked_choice(settings, measuring.inspect(settings.environment))

    @classmethod
    def lane_shape(cls, config: Mapping[str, Any]) -> Hashable:
        """Return a value that is equal for settings whose trials can share one compiled program.

        It is that of the class that `of` returns for these settings; None if that is this class,
        which trains every trial alone.
        """
        return None if (asked := cls.of(config)) is cls else asked.lane_shape(config)

    @classmethod
    def settle_config(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return setting → value that `choose` gives to settings that are ``auto``.

        If there are such settings, an environment is made and inspected; otherwise the dict is
        empty. Raises ConfigError for settings that do not work with it.
        """
        cls = cls.of(config)  # noqa: PLW0642
        settings = parse(cls.config_class, config)
        if not (undecided := cls.automatic_settings(settings)):
            return {}
        settings = cls._settle_stepping(settings)
        chosen = cls._checked_choice(settings, measuring.inspect(settings.environment))
        return {key: chosen[key] for key in undecided}

    @classmethod
    def automatic_settings(cls, settings: TrainerConfig) -> tuple[str, ...]:
        """Return the names of those of `auto_settings` that are ``auto``."""
        flat = flatten(settings)
        return tuple(key for key in cls.auto_settings if flat[key] == AUTO)

    @classmethod
    def _checked_choice(cls, settings: TrainerConfig, inspection: Inspection) -> dict[str, Any]:
        """Return what `choose` returns, after checking policies against the environment's agents.

        Raises ConfigError if they do not fit, or a setting does not work with an environment that
        calls the trainer.
        """
        config_checks.check_agents(settings, inspection)
        if inspection.calls_trainer:
            config_checks.check_calling_environment(settings)
        return cls.choose(settings, inspection)

    @classmethod
    def _settle_stepping(cls, settings: TrainerConfig) -> TrainerConfig:
        """Return the settings with True or False for `native_vector_env` if it is ``auto``.

        It becomes True unless `config_checks.why_separate` has a reason against it. It is settled
        before `choose` is called, since the environment is measured meanwhile.
        """
        if settings.environment.native_vector_env != AUTO:
            return settings
        native = not config_checks.why_separate(settings)
        return override(settings, {"native_vector_env": native}, "config")

    @classmethod
    def complete_config(
        cls, config: Mapping[str, Any], stop: Mapping[str, float]
    ) -> dict[str, Any]:
        """Return a copy of the settings with ``schedule_timesteps``.

        If it is not set, it becomes ``stop["timesteps_total"]``, or stays absent without that.
        """
        completed = dict(config)
        if "timesteps_total" in stop and completed.get("schedule_timesteps") is None:
            completed["schedule_timesteps"] = int(stop["timesteps_total"])
        return completed

    @classmethod
    def show_metrics(cls, config: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
        """Return a copy of the settings, with ``classic_results: true`` if a metric needs it.

        `names` are the metrics that a sweep reads. If the settings have ``classic_results``
        already, it is not changed.
        """
        is_asked = any(map(classic.is_classic, names))
        return {"classic_results": True, **config} if is_asked else dict(config)

    @classmethod
    def result_names(cls, config: Mapping[str, Any]) -> Collection[str] | None:
        """Return the names that results may have, nested ones as paths.

        A name that ends with ``/`` stands for all names below it; `results.ANY_NAME` is included if
        callbacks may add names. Returns None, for any name, in classes defined elsewhere.
        """
        shipped = cls.__module__.startswith("trainables.algorithms.")
        return classic.result_names(parse(cls.config_class, config)) if shipped else None

    @classmethod
    def default_resource_request(cls, config: Mapping[str, Any]) -> dict[str, float]:
        """Return resource → number that a trial with these settings needs.

        ``cpu``, ``gpu`` and ``memory`` (bytes) are the trainer's own, ``extra_*`` those of all its
        children together.
        """
        return config_checks.resource_request(parse(cls.config_class, config))

    @classmethod
    def gpu_remark(cls, config: Mapping[str, Any]) -> str:
        """Return one line of advice if training on a GPU is slower: the networks are small.

        It is empty without a GPU, for large networks, a module of the user's, and several policies.
        An environment is made and closed if that depends on it.
        """
        settings = parse(cls.config_class, config)
        several = has_policies(settings.agents.multiagent)
        if not settings.resources.num_gpus or several or settings.model.custom_model:
            return ""
        made = cls.networks(settings, measuring.inspect(settings.environment).spaces)
        if config_checks.pays_to_act_on_gpu(made):
            return ""
        layers = "-".join(map(str, made.hidden)) or "linear"
        return (
            f"faster on the CPU: {layers} networks; num_gpus: {settings.resources.num_gpus:g} pays "
            f"for pictures and for layers of {config_checks.WIDE} units or more"
        )

    @classmethod
    def resource_help(cls, config: Mapping[str, Any]) -> str:
        """Return the advice for a trial that asks for more resources than there are.

        It names the settings that decide about them, and shows `config`.
        """
        return (
            "num_workers and evaluation_num_workers set how many child processes a trial has, "
            "num_gpus what it learns on; this trial's settings: "
            f"{dict(config)}"
        )
