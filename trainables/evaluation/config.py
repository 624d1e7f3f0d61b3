"""Settings of evaluation: when it happens, its number of episodes, and differences from training.

`trainables.evaluation.play` plays the episodes. There is no state to save: everything is derived
from the trial's seed and the iteration.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from pydantic import Field

from trainables.core import legacy_names
from trainables.core.resources import WorkerCount
from trainables.core.settings import LONGEST_WAIT_S, Section, Settings, known_keys, override
from trainables.envs.exactness import measuring
from trainables.envs.make import EnvironmentConfig, EnvSpaces
from trainables.envs.vector.config import VectorConfig, check_horizon, check_processes
from trainables.errors import ConfigError, in_yaml
from trainables.rollout.callbacks import CallbacksConfig, episode_callbacks, make_calls

#: Setting that contains the settings of evaluations.
PLACE = "evaluation_config"
#: Keys of `evaluation_config`: settings that evaluation reads.
READ = (
    *("explore", "env", "env_config", "env_engine", "preprocessor_pref", "no_framestack"),
    *("horizon", "restart_failed_sub_environments", "remote_worker_envs", "env_step_timeout_s"),
    *("num_envs_per_worker", "clip_actions", "callbacks", "log_level", "seed"),
)
#: Keys that only evaluations in child processes read.
READ_BY_CHILDREN = (
    *("num_cpus_per_worker", "num_gpus_per_worker", "memory_per_worker", "extra_python_environs"),
)

#: Reasons for settings that an evaluation cannot change, and advice.
_WHOLE = "it plays whole episodes; evaluation_num_episodes is their number"
_FRESH = "its episodes are fresh ones"
_AS_THEY_ARE = "its results are sums of the environment's own rewards"
_LEARNT_SO = "the policy's observations pass through the training's filter, which is frozen"
_BESIDE = "write it next to evaluation_config, not in it"
_REPLACED = "a child that fails is replaced and plays the same episodes; see evaluation_timeout_s"
#: Setting of rollout workers → its only value in an evaluation, and the reason.
ALWAYS: Mapping[str, tuple[Any, str]] = {
    "native_vector_env": (False, "each episode has its own environment"),
    "soft_horizon": (False, "its episodes are fresh ones, so a horizon ends them"),
    "remote_env_batch_wait_ms": (0.0, "its results do not depend on which environment is ready"),
    "batch_mode": ("complete_episodes", _WHOLE),
    "sample_async": (False, "the trainer waits for it"),
    "fake_sampler": (False, _FRESH),
    "blackhole_outputs": (False, _FRESH),
    "compress_observations": (False, "none of its observations is sent anywhere"),
    "clip_rewards": (False, _AS_THEY_ARE),
    "normalize_rewards": (False, _AS_THEY_ARE),
    "data_parallel": (False, "no policy learns in it"),
}
#: Key without effect in an evaluation → the reason, where it is not `_OF_TRAINING`.
WHY_NOT: Mapping[str, str] = {
    "env_level": "its environments are not saved",
    "env_replay_limit": "its environments are not saved",
    "env_measure_timeout_s": "its environments are not saved",
    "external_timeout_s": "it uses no external environments",
    "no_done_at_end": "its steps are not stored",
    "rollout_fragment_length": _WHOLE,
    "observation_fn": "the policies see the same observations as in training",
    "observation_filter": _LEARNT_SO,
    "observation_filter_clip": _LEARNT_SO,
    "action_mask": _LEARNT_SO,
    "connectors": _LEARNT_SO,
    "normalize_actions": _LEARNT_SO,
    "synchronize_filters": _LEARNT_SO,
    "gamma": "its results are undiscounted sums of rewards",
    "sampler_perf_stats_ema_coef": "it measures no times of its parts",
    "num_workers": "evaluation_num_workers says how many children evaluate",
    "ignore_worker_failures": _REPLACED,
    "recreate_failed_workers": _REPLACED,
    "max_worker_restarts": _REPLACED,
    "sample_timeout_s": "evaluation_timeout_s is its time limit",
    "metrics_smoothing_episodes": "means are taken over its own episodes, all of them",
    "collect_metrics_timeout": "evaluation_timeout_s is its time limit",
    "record_env": "record_env: evaluation, next to evaluation_config, records evaluations",
    "record_episodes": _BESIDE,
    "evaluation_interval": _BESIDE,
    "evaluation_num_episodes": _BESIDE,
    "evaluation_num_workers": _BESIDE,
    "evaluation_timeout_s": _BESIDE,
    "evaluation_config": _BESIDE,
    "custom_resources_per_worker": "none are provided",
    "object_store_memory_per_worker": "there is no object store",
    "monitor": "the record is of the training's episodes",
}
#: Reason for settings without an effect on evaluations.
_OF_TRAINING = "only training reads it"


class EvaluationConfig(Section):
    """Settings of the policy's evaluation."""

    evaluation_interval: int | None = Field(
        default=None,
        gt=0,
        description="Number of iterations between two evaluations; the first evaluation is before "
        "training. null: no evaluation.",
    )
    evaluation_num_episodes: int = Field(
        default=10, gt=0, description="Exact number of episodes per evaluation."
    )
    evaluation_num_workers: WorkerCount = Field(
        default=0,
        description="Number of child processes that evaluate; 0: the trainer's own process "
        "evaluates. Results do not depend on this number.",
    )
    evaluation_timeout_s: float | None = Field(
        default=None,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Maximum seconds for one evaluation, after which a child process counts as "
        "hung; null: no limit.",
    )
    evaluation_config: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings that evaluations use in place of the training's: `explore` "
        "(true: actions are drawn; false, the default: the most probable ones are taken), "
        f"{', '.join(f'`{key}`' for key in READ[1:])}; with evaluation_num_workers also "
        f"{', '.join(f'`{key}`' for key in READ_BY_CHILDREN)}. `env_config` and `callbacks` "
        "replace the training's as a whole. Any other key is an error that states the reason.",
    )


S = TypeVar("S", bound=Settings)


def evaluation_settings(settings: S, config: EvaluationConfig) -> tuple[S, bool]:
    """Return the settings of an evaluation, and whether its actions are drawn (explore).

    These are `settings`, changed by ``evaluation_config``. With another ``env``, ``env_config`` is
    empty unless that is given, too. With ``remote_worker_envs: false``, ``env_step_timeout_s`` is
    None unless given.

    Raises:
        ConfigError: a key of `evaluation_config` that evaluation does not read, or a wrong value.
    """
    changes = dict(config.evaluation_config)
    explore = changes.pop("explore", False)
    if not isinstance(explore, bool):
        raise ConfigError(f"{PLACE}.explore", explore, "true or false")
    for key, value in list(changes.items()):
        if key in ALWAYS:
            _require_always(key, value)
            del changes[key]
        elif key in READ_BY_CHILDREN and not config.evaluation_num_workers:
            problem = (
                "has no effect, because evaluations run in the trainer's own process, with its "
                "resources"
            )
            hint = "remove it, or set evaluation_num_workers to 1 or more"
            raise ConfigError(f"{PLACE}.{key}", value, hint=hint, problem=problem)
        elif key not in READ and key not in READ_BY_CHILDREN:
            raise _no_effect_error(key, value, known_keys(type(settings)))
    if "env" in changes:
        changes.setdefault("env_config", {})
    if changes.get("remote_worker_envs") is False:
        changes.setdefault("env_step_timeout_s", None)
    return override(settings, changes, PLACE), explore


def evaluation_envs(envs: VectorConfig) -> VectorConfig:
    """Return the environments' settings for an evaluation: `envs` with the values of `ALWAYS`."""
    always = {key: value for key, (value, _) in ALWAYS.items() if key in VectorConfig.model_fields}
    return envs.model_copy(update=always)


def _require_always(key: str, value: object) -> None:
    """Raise ConfigError unless a key of ``evaluation_config`` has the only possible value."""
    only, why = ALWAYS[key]
    if value != only or isinstance(value, bool) != isinstance(only, bool):
        problem = (
            f"{in_yaml(value)} cannot be used in an evaluation, where it is always "
            f"{in_yaml(only)}: {why}"
        )
        raise ConfigError(f"{PLACE}.{key}", value, hint="remove it", problem=problem)


def _no_effect_error(key: str, value: object, keys: list[str]) -> ConfigError:
    """Return the error for a key of ``evaluation_config`` that an evaluation does not read.

    `keys` are all keys of the trainer's settings; for another key the error says that it is
    unknown, and names similar ones.
    """
    place = f"{PLACE}.{key}"
    if key in keys:
        problem = f"has no effect in an evaluation: {WHY_NOT.get(key, _OF_TRAINING)}"
        return ConfigError(place, value, hint="remove it", problem=problem)
    hint = legacy_names.unknown_key_advice(place, [*READ, *READ_BY_CHILDREN])
    return ConfigError(place, value, hint=hint, problem="is not a known key")


def check_evaluation(
    environments: tuple[EnvironmentConfig, EnvironmentConfig],
    envs: VectorConfig,
    config: EvaluationConfig,
    training: EnvSpaces,
) -> None:
    """Raise ConfigError if a policy with the spaces `training` cannot play in the evaluation.

    `environments` are those of the evaluation and of training, `envs` the evaluation's vector
    settings. Makes and closes an environment to look at it, once per process.
    """
    environment, trained_on = environments
    with _inside_evaluation_config():
        seen = measuring.inspect(environment)
        spaces = training if environment == trained_on else seen.spaces
        check_processes(envs)
        if config.evaluation_config.get("horizon") is not None:
            check_horizon(environment, envs, seen.limit)
    if _essentials(spaces) != _essentials(training):
        problem = (
            f"the evaluation's environment has observations {spaces.raw} and actions "
            f"{spaces.action}, but the training's has {training.raw} and {training.action}"
        )
        hint = "use an environment with the training's spaces, since the same policy plays in both"
        raise ConfigError(f"{PLACE}.env_config", environment.env_config, hint=hint, problem=problem)


def check_callbacks_of_evaluation(callbacks: CallbacksConfig, config: EvaluationConfig) -> None:
    """Raise ConfigError for callbacks that an evaluation cannot call, here or in child processes.

    Makes the callbacks to check them. Only those of episodes count.
    """
    own = "callbacks" in config.evaluation_config
    with _inside_evaluation_config() if own else nullcontext():
        calls = episode_callbacks(make_calls(callbacks))
        if calls and config.evaluation_num_workers:
            calls.portable()


@contextmanager
def _inside_evaluation_config() -> Iterator[None]:
    """Make ConfigErrors inside the block name their key below ``evaluation_config``."""
    try:
        yield
    except ConfigError as error:
        raise error.nested_under(PLACE) from error


def _essentials(spaces: EnvSpaces) -> tuple[Any, ...]:
    """Return those properties of spaces that must be equal in training and evaluation.

    They are shapes, type and scale of observations, and the action space.
    """
    seen = spaces.observation_shape, spaces.observation_dtype, spaces.divisor
    return spaces.observation.shape, *seen, spaces.action


def is_due(config: EvaluationConfig, iteration: int) -> bool:
    """Return whether an evaluation follows this iteration, where 1 is the first.

    It is False without ``evaluation_interval``, and says nothing about the evaluation that precedes
    training.
    """
    interval = config.evaluation_interval
    return interval is not None and iteration % interval == 0
