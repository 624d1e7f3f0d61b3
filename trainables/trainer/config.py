"""All settings of a trainer: small sections, each defined next to the code that reads it.

Users write one flat dict; `trainables.core.settings.parse` finds the section of each key.
"""

import copy
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Self, TypeAlias

from pydantic import BeforeValidator, Field, ModelWrapValidatorHandler, model_validator

from trainables.core import legacy_names
from trainables.core.devices import DevicesConfig
from trainables.core.logs import LogConfig
from trainables.core.resources import ResourcesConfig
from trainables.core.settings import Section, Settings, WrongKey, defaults, flatten
from trainables.envs.make import EnvironmentConfig, has_deepmind_wrappers
from trainables.envs.vector.config import VectorConfig
from trainables.errors import ConfigError, in_yaml, nearest, shorten
from trainables.evaluation.config import EvaluationConfig
from trainables.learners.schedules import ScheduleConfig
from trainables.offline.config import OfflineConfig, check_offline
from trainables.policies.architecture import ModelConfig, OptimizerConfig
from trainables.policies.filters import CONCURRENT_KINDS, FilterConfig
from trainables.rollout.callbacks import CallbacksConfig
from trainables.rollout.config import SamplingConfig
from trainables.rollout.media.recording import RenderingConfig
from trainables.rollout.progress import MetricsConfig, PerfConfig
from trainables.rollout.workers.make import WorkersConfig
from trainables.rollout.workers.remote.recovery import RecoveryConfig
from trainables.trainer.reporting import RecordingConfig


class IterationConfig(Section):
    """The minimum length of an iteration, which has at least one round of sampling and learning.

    More steps or more time mean fewer results; they do not change how the trainer learns.
    """

    min_iter_time_s: float = Field(
        default=0.0,
        ge=0,
        description="Minimum duration of an iteration, in seconds. Above 0 the clock influences "
        "training, so no two runs are bit-identical.",
    )
    timesteps_per_iteration: int = Field(
        default=0, ge=0, description="Minimum number of environment steps per iteration."
    )


@contextmanager
def timed(timers: dict[str, float], name: str) -> Iterator[None]:
    """Add the milliseconds that the block takes to ``timers[name]``, unless it raises."""
    started = time.perf_counter()
    yield
    timers[name] = timers.get(name, 0.0) + 1e3 * (time.perf_counter() - started)


#: Reason for keys of RLlib that have one value only.
_IN_MEMORY = "all policies stay in memory, so there is no cache of them"
#: Key of ``multiagent`` → its only value, RLlib's default, and the reason for having no other.
_ONE_VALUE: Mapping[str, tuple[Any, str]] = {
    "replay_mode": (
        "independent",
        "each policy draws from a replay of its own transitions; drawing the same time steps for "
        "all policies is not built",
    ),
    "policy_map_capacity": (100, _IN_MEMORY),
    "policy_map_cache": (None, _IN_MEMORY),
}
#: Values of the setting ``count_steps_by``.
COUNTED = ("env_steps", "agent_steps")
#: Names of policies are names of files as well.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: Name of the only policy, as a set.
DEFAULT_POLICY = {"default_policy"}
#: The type of the setting ``lanes``.
Lanes: TypeAlias = Annotated[
    int | None,
    Field(
        gt=0,
        description="Number of trials that one compiled program trains together, each as a lane "
        "(docs/stack.md); set by the pool stack. null: the trial is trained alone.",
    ),
]


def has_policies(agents: Any) -> bool:
    """Return whether ``multiagent`` names policies, and not the default one alone.

    It is False for a value that is not valid, which is refused elsewhere.
    """
    policies = agents.get("policies") if isinstance(agents, Mapping) else None
    if isinstance(policies, str | bytes) or not isinstance(policies, Iterable):
        return False
    return {*map(str, policies)} not in (set(), DEFAULT_POLICY)


def _validate_agents(agents: Any) -> Any:
    """Return the value of ``multiagent`` as a dict; raises ValueError, mostly WrongKey, if not.

    Keys, names, mapping, ``policies_to_train`` and ``count_steps_by`` are checked; of the settings
    of each policy only the form of ``restore``.
    """
    if not isinstance(agents, Mapping):
        raise ValueError("a dict; {} says that there is one agent")  # noqa: TRY004 for pydantic
    _check_keys(agents)
    policies = _validate_policies(agents.get("policies"))
    mapped = _mapping_items(agents.get("policy_mapping_fn"))
    named: list[tuple[tuple[str, ...], Any]] = [
        *((("policy_mapping_fn", str(agent)), pid) for agent, pid in mapped),
        *((("policies_to_train",), one) for one in _validate_trained(agents)),
    ]
    for path, pid in named:
        if not isinstance(pid, str) or pid not in policies:
            allowed = f"one of {', '.join(policies)}" if policies else ""
            hint = "" if policies else "name it under multiagent.policies, which is empty"
            raise WrongKey(path, pid, allowed, hint, f"{shorten(pid)} is not a policy")
    if (counted := agents.get("count_steps_by", "env_steps")) not in COUNTED:
        raise WrongKey(("count_steps_by",), counted, " or ".join(COUNTED))
    return dict(agents)


def _check_keys(agents: Mapping[str, Any]) -> None:
    """Raise WrongKey for an unknown key of ``multiagent``, or a value that is not supported.

    ``observation_fn`` and the keys of `_ONE_VALUE` may only have RLlib's default.
    """
    read = ("policies", "policy_mapping_fn", "policies_to_train", "count_steps_by")
    known = (*read, "observation_fn", *_ONE_VALUE)
    for key in agents:
        if key not in known:
            near = nearest(key, known) or f"the known ones are {', '.join(known)}"
            raise WrongKey((key,), agents[key], hint=near, problem="is not a known key")
    for key, (only, why) in _ONE_VALUE.items():
        if (given := agents.get(key, only)) != only:
            problem = f"{in_yaml(given)} cannot be used, because {why}"
            raise WrongKey((key,), given, hint=f"set it to {in_yaml(only)}", problem=problem)
    if (observe := agents.get("observation_fn")) is not None:
        problem = "belongs next to multiagent, not in it"
        raise WrongKey(("observation_fn",), observe, hint="move it there", problem=problem)


def _mapping_items(mapping: Any) -> Iterable[tuple[Any, Any]]:
    """Return the (agent, policy) pairs of a dict; empty for None, a function or its path.

    Raises WrongKey for any other value of ``policy_mapping_fn``.
    """
    if isinstance(mapping, Mapping):
        return mapping.items()
    is_path = isinstance(mapping, str) and ":" in mapping
    if not (mapping is None or is_path or callable(mapping)):
        allowed = "package.module:function, a callable, or a dict from agents to policies"
        raise WrongKey(("policy_mapping_fn",), mapping, allowed)
    return ()


def _validate_trained(agents: Mapping[str, Any]) -> Sequence[Any]:
    """Return ``policies_to_train``; empty if it is absent, which stands for all.

    Raises WrongKey if it is neither a list nor a tuple.
    """
    trained = agents.get("policies_to_train")
    if trained is not None and not isinstance(trained, list | tuple):
        allowed = "a list of policies, or null for all of them"
        raise WrongKey(("policies_to_train",), trained, allowed)
    return trained or ()


def _validate_policies(policies: Any) -> Mapping[str, Any]:
    """Return the policies of ``multiagent``, name → settings as given, None for a list of names.

    It is empty if there are none. Raises WrongKey for names and values that are not allowed.
    """
    if isinstance(policies, list | tuple) and all(isinstance(name, str) for name in policies):
        policies = dict.fromkeys(policies)
    if not (policies is None or isinstance(policies, Mapping)):
        raise WrongKey(
            ("policies",),
            policies,
            "a dict from the names of policies to their own settings, or null for none",
        )
    for name, given in (policies or {}).items():
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            problem = f"{shorten(name)} cannot be the name of a policy, because files have its name"
            raise WrongKey(("policies",), name, "letters, digits, _, - and .", problem=problem)
        classic = isinstance(given, list | tuple) and len(given) == 4 and _is_settings(given[3])
        if not (_is_settings(given) or classic):
            allowed = (
                "a dict of its own settings, null, or RLlib's [null, observation space, action "
                "space, settings]"
            )
            raise WrongKey(("policies", name), given, allowed)
        if classic and given[0] is not None:
            problem = (
                f"{shorten(given[0])} cannot be used, because each algorithm has its own policy "
                "class"
            )
            hint = "write null as the first of the four values"
            raise WrongKey(("policies", name, 0), given[0], hint=hint, problem=problem)
        _check_source(name, (given[3] if classic else given) or {})
    return policies or {}


def _check_source(name: str, entry: Mapping[str, Any]) -> None:
    """Raise WrongKey unless ``restore`` in a policy's settings has an allowed form.

    That is None, a path, or ``{path: …, policy: …}`` of texts; files are not looked for. `entry`
    are the settings of the policy `name`.
    """
    source = entry.get("restore")
    named = source if isinstance(source, Mapping) else {"path": source, "policy": ""}
    texts = all(isinstance(one, str) for one in named.values())
    if source is not None and not (named.keys() == {"path", "policy"} and texts):
        allowed = (
            "a path, or {path: PATH, policy: NAME}, a checkpoint and the name of a policy in it"
        )
        raise WrongKey(("policies", name, "restore"), source, allowed)


def _is_settings(entry: Any) -> bool:
    """Return whether a policy's entry is null or a dict of settings."""
    return entry is None or isinstance(entry, Mapping)


def _refuse_former_names(agents: Any) -> Any:
    """Return the value of ``multiagent`` unchanged, before it is validated.

    Raises WrongKey, with the current name, for a key of an earlier version of RLlib.
    """
    for key in agents if isinstance(agents, dict) else ():
        if found := legacy_names.find_entry(f"multiagent.{key}", ()):
            raise WrongKey((key,), agents[key], hint=str(found), problem="is not a known key")
    return agents


class MultiAgentConfig(Section):
    """Settings of several policies, for an environment of several agents."""

    multiagent: Annotated[
        dict[str, Any],
        BeforeValidator(_validate_agents),
        BeforeValidator(_refuse_former_names),
    ] = Field(
        default_factory=dict,
        description="Policies of an environment with several agents. `policies`: name → the "
        "policy's own settings (`{shared: null}`: one policy for all agents), which may include "
        "`restore`, the file of a trained policy from which it starts; `policy_mapping_fn`: agent "
        "→ policy, as a dict or package.module:function (default: the only policy, or the one "
        "with the agent's name); `policies_to_train`: a list (null: all); `count_steps_by`: the "
        "unit of train_batch_size, env_steps (default) or agent_steps.",
    )


class TrainerConfig(Settings):
    """Settings that every trainer has; each section is defined next to the code that reads it."""

    environment: EnvironmentConfig
    envs: VectorConfig = VectorConfig()
    sampling: SamplingConfig = SamplingConfig()
    workers: WorkersConfig = WorkersConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    filters: FilterConfig = FilterConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    metrics: MetricsConfig = MetricsConfig()
    perf: PerfConfig = PerfConfig()
    iteration: IterationConfig = IterationConfig()
    callbacks: CallbacksConfig = CallbacksConfig()
    logs: LogConfig = LogConfig()
    resources: ResourcesConfig = ResourcesConfig()
    devices: DevicesConfig = DevicesConfig()
    offline: OfflineConfig = OfflineConfig()
    agents: MultiAgentConfig = MultiAgentConfig()
    recording: RecordingConfig = RecordingConfig()
    rendering: RenderingConfig = RenderingConfig()
    model: ModelConfig = Field(default=ModelConfig(), description="Architecture of the networks.")
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="Seed of all random streams of the trainer; null: the seed of the trial.",
    )
    restore: str | None = Field(
        default=None,
        description="File of a trained policy with which training starts (its weights and "
        "filter): a checkpoint, exported safetensors, or a folder with one of them, such as a "
        "trial's; null: new random weights.",
    )
    gamma: float = Field(
        default=0.99, ge=0, le=1, description="Discount factor per environment step."
    )
    train_batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Minimum number of environment steps per round of learning, rounded up to "
        "whole fragments of every environment, or to whole episodes with complete_episodes; null: "
        "one fragment of every environment.",
    )
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(), description="Optimizer of the weights."
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Raise TypeError for a preset that is lost once the user sets another key of its part.

        ``optimizer: {alpha: 0.9}`` is read over the defaults of the class that the field names, so
        an algorithm that presets other values needs a subclass. Sections need none.
        """
        super().__pydantic_init_subclass__(**kwargs)
        for key, field in cls.model_fields.items():
            kind = field.annotation
            if not isinstance(kind, type) or not issubclass(kind, Settings):
                continue
            if not issubclass(kind, Section) and field.default != kind():
                raise TypeError(
                    f"{cls.__name__}.{key} is {field.default!r} by default, not {kind()!r}: write "
                    f"a subclass of {kind.__name__} with these defaults, and name it in {key}"
                )

    @model_validator(mode="wrap")
    @classmethod
    def _with_observation_settings(
        cls, raw: Any, validate: ModelWrapValidatorHandler[Self]
    ) -> Self:
        """Validate, and put settings of ``model`` about observations into the environment's.

        With an LSTM, ``no_framestack`` becomes True: Atari frames are not stacked.
        """
        config = validate(raw)
        environment, observation_settings = config.environment, config.model.observation_settings
        if config.model.use_lstm:
            environment = environment.model_copy(update={"no_framestack": True})
        if environment.observation_settings != observation_settings:
            environment = environment.with_observation_settings(observation_settings)
        if environment is config.environment:
            return config
        return config.model_copy(update={"environment": environment})

    @property
    def fragment_size(self) -> int:
        """Environment steps of one fragment of every environment, in all workers together."""
        per_worker = self.sampling.num_envs_per_worker * self.sampling.rollout_fragment_length
        return per_worker * max(1, self.workers.num_workers)

    @property
    def stepped(self) -> EnvironmentConfig:
        """Settings of the environment that is stepped.

        If experience is only read from files, its ``env_level`` is C, so that nothing is measured.
        """
        if not self.offline.only_reads:
            return self.environment
        return self.environment.model_copy(update={"env_level": "C"})

    @property
    def clock_settings(self) -> tuple[str, ...]:
        """Keys of set settings by which a clock influences training, which then is not bit-exact.

        Possible are ``sample_async``, ``min_iter_time_s`` and ``remote_env_batch_wait_ms``.
        """
        steered = {
            "sample_async": self.sampling.sample_async,
            "min_iter_time_s": self.iteration.min_iter_time_s > 0,
            "remote_env_batch_wait_ms": self.envs.remote_env_batch_wait_ms > 0,
        }
        return tuple(key for key, steers in steered.items() if steers)

    @property
    def longest_sequence(self) -> int:
        """Maximum number of steps of a sequence through which an LSTM's gradient flows.

        It is ``model.max_seq_len``, or the length of a fragment if that is not set.
        """
        return self.model.max_seq_len or self.sampling.rollout_fragment_length

    @property
    def batch_size(self) -> int:
        """Environment steps per round of learning; a minimum with complete episodes.

        Otherwise it is ``train_batch_size``, rounded up to a multiple of `fragment_size`, which is
        also its value if ``train_batch_size`` is not set.
        """
        asked = self.train_batch_size or self.fragment_size
        if self.sampling.batch_mode == "complete_episodes":
            return asked
        return -(-asked // self.fragment_size) * self.fragment_size

    @property
    def rounded(self) -> bool:
        """True if ``train_batch_size`` was rounded up; False with complete episodes."""
        return self.train_batch_size is not None and self.batch_size > self.train_batch_size


def with_base_config(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of `base` in which values of `extra` are added or replace those there.

    Two dicts under one key are merged in the same way. Neither argument is changed.
    """
    merged = copy.deepcopy(dict(base))
    for key, value in extra.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = with_base_config(before, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def with_common_config(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat defaults that all trainers share, with `extra` merged by `with_base_config`.

    Keys are not checked.
    """
    return with_base_config(default_config(TrainerConfig), extra)


def default_config(model: type[TrainerConfig]) -> dict[str, Any]:
    """Return key → default, as plain data, for every key of a flat config but ``env``."""
    return {key: value for key, value in defaults(model).items() if key != "env"}


def validate_config(settings: TrainerConfig) -> None:
    """Raise ConfigError for settings that are valid one by one but do not work together.

    They concern ``sample_async``, ``remote_env_batch_wait_ms``, observations,
    ``blackhole_outputs``, stored experience, and linear schedules without ``schedule_timesteps``.
    """
    kind = settings.filters.observation_filter
    if settings.sampling.sample_async and kind not in CONCURRENT_KINDS:
        why, undo = (
            "one thread updates the filter while another synchronises it",
            "set sample_async to false",
        )
        place, allowed = "observation_filter", " or ".join(CONCURRENT_KINDS)
        raise ConfigError.of_conflict(place, kind, "sample_async", allowed, why, undo)
    if settings.envs.remote_env_batch_wait_ms:
        _check_polling(settings)
    _check_observation_keys(settings.environment, settings.model)
    sampling = settings.sampling
    if sampling.blackhole_outputs and not (sampling.sample_async and sampling.fake_sampler):
        raise ConfigError(
            "blackhole_outputs",
            True,
            hint="set it to false, or set both sample_async and fake_sampler to true",
            problem="true cannot be used without sample_async and fake_sampler, because samples "
            "are dropped, and there is no other batch to learn from",
        )
    flat = flatten(settings)
    usual = defaults(type(settings)) if settings.offline.reads_experience else {}
    check_offline(settings.offline, flat, usual)
    linear = [key for key, value in flat.items() if is_linear(key, value)]
    if linear and not settings.schedule.schedule_timesteps:
        problem = f"is not set, but {linear[0]}: linear needs it as the length of the schedule"
        hint = "set it to a number of environment steps, or set stop.timesteps_total, its default"
        raise ConfigError("schedule_timesteps", None, hint=hint, problem=problem)


def _check_observation_keys(environment: EnvironmentConfig, model: ModelConfig) -> None:
    """Raise ConfigError for keys of ``model`` about observations that do not fit the environment.

    With an action mask there is no preprocessor or connector; only Atari games in DeepMind's
    wrappers have ``dim`` and ``framestack``, and their layout cannot be channels_first.
    """
    if (own := model.custom_preprocessor) is not None and environment.action_mask is not None:
        place = "model.custom_preprocessor"
        raise ConfigError.of_conflict(place, own, "action_mask", "null", _MASKS_LAST, _NO_MASK)
    if environment.connectors and environment.action_mask is not None:
        given = environment.connectors
        raise ConfigError.of_conflict(
            "connectors", given, "action_mask", "[]", _MASKS_LAST, _NO_MASK
        )
    if model.image_layout == "channels_first" and has_deepmind_wrappers(environment):
        other, allowed = "DeepMind's wrappers of Atari games", "null, channels_last or flat"
        why = "their channels are last"
        raise ConfigError.of_conflict("model.image_layout", model.image_layout, other, allowed, why)
    for key in ("dim", "framestack"):
        value = getattr(model, key)
        if repr(value) == repr(ModelConfig.model_fields[key].default):  # 1 == True, yet differs
            continue
        if not has_deepmind_wrappers(environment):
            problem = (
                f"has no effect, as {environment.env} is not an Atari game in DeepMind's wrappers"
            )
            raise ConfigError(f"model.{key}", value, hint="remove it", problem=problem)
        if key == "framestack" and value is not False and environment.no_framestack:
            why = "no_framestack is true, as it is with model.use_lstm"
            raise ConfigError.of_conflict("model.framestack", value, "", "false", why)


def is_linear(key: str, value: object) -> bool:
    """Return whether the setting `key` is a linear schedule, which needs `schedule_timesteps`."""
    return key.endswith("_schedule") and value == "linear"


#: Reason for which masks exclude another setting.
_MASKS_LAST = "masks are at the end of the rows that policies read"
#: Advice to do without masks.
_NO_MASK = "remove action_mask"


def _check_polling(settings: TrainerConfig) -> None:
    """Raise ConfigError for settings that do not work with `remote_env_batch_wait_ms`.

    They are complete episodes, ``sample_async``, and pictures while sampling. Call it only if
    `remote_env_batch_wait_ms` is set: its value is not looked at.
    """
    allowed: dict[str, tuple[str | bool, ...]] = {
        "batch_mode": ("truncate_episodes",),
        "sample_async": (False,),
        "record_env": (False, "evaluation"),
        "render_env": (False,),
    }
    given = flatten(settings)
    for key, values in allowed.items():
        if given[key] not in values:
            only = " or ".join(in_yaml(value) for value in values)
            other = "remote_env_batch_wait_ms"
            why = "each environment then fills a fragment of fixed length at its own pace"
            undo = f"set {other} to 0, so that all step together"
            raise ConfigError.of_conflict(key, given[key], other, only, why, undo)
