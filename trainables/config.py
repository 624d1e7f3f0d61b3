"""Everything that can be set about a trainer: small sections, each defined beside its reader.

People write one flat dict; `trainables.settings.parse` finds the section of each key.
"""

import copy
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from trainables.callbacks import CallbacksConfig
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.errors import ConfigError
from trainables.evaluation import EvaluationConfig
from trainables.filter_config import CONCURRENT_KINDS, FilterConfig
from trainables.iteration import IterationConfig
from trainables.logs import LogConfig
from trainables.monitor import RecordingConfig
from trainables.neutral import MultiAgentConfig, OfflineConfig
from trainables.policies.architecture import ModelConfig
from trainables.policies.torch_policy import OptimizerConfig
from trainables.resources import ResourcesConfig
from trainables.rollout.filming import RenderingConfig
from trainables.rollout.perf import PerfConfig
from trainables.rollout.progress import MetricsConfig
from trainables.rollout.recovery import RecoveryConfig
from trainables.rollout.sampling import SamplingConfig
from trainables.rollout.worker_set import WorkersConfig
from trainables.schedules import ScheduleConfig
from trainables.settings import Settings, defaults, flatten


class TrainerConfig(Settings):
    """Settings that every trainer has; each section stands beside the code that reads it."""

    environment: EnvironmentConfig
    lanes: LanesConfig = LanesConfig()
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
    offline: OfflineConfig = OfflineConfig()
    agents: MultiAgentConfig = MultiAgentConfig()
    recording: RecordingConfig = RecordingConfig()
    rendering: RenderingConfig = RenderingConfig()
    model: ModelConfig = Field(default=ModelConfig(), description="The networks.")
    seed: int | None = Field(
        default=None, ge=0, lt=2**63, description="Seed of all streams; null: the trial's."
    )
    gamma: float = Field(default=0.99, ge=0, le=1, description="Discount per environment step.")
    train_batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Environment steps per round of learning, at least: rounded up to whole "
        "fragments of every environment, with complete_episodes to whole episodes; null: one "
        "fragment of every environment.",
    )
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(), description="How gradients move the weights."
    )

    @model_validator(mode="wrap")
    @classmethod
    def _unstacked(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """A policy with a memory sees single frames of Atari games."""
        made = validate(given)
        if not made.model.use_lstm:
            return made
        environment = made.environment.model_copy(update={"no_framestack": True})
        return made.model_copy(update={"environment": environment})

    @property
    def fragment_size(self) -> int:
        """Environment steps of one fragment of every environment."""
        per_worker = self.sampling.num_envs_per_worker * self.sampling.rollout_fragment_length
        return per_worker * max(1, self.workers.num_workers)

    @property
    def by_clock(self) -> tuple[str, ...]:
        """Keys by which a clock steers the training: with any of them nothing is bit-exact."""
        steered = {
            "sample_async": self.sampling.sample_async,
            "min_iter_time_s": self.iteration.min_iter_time_s > 0,
            "remote_env_batch_wait_ms": self.lanes.remote_env_batch_wait_ms > 0,
        }
        return tuple(key for key, steers in steered.items() if steers)

    @property
    def longest_sequence(self) -> int:
        """Steps through which an LSTM learns at a time, at most."""
        return self.model.max_seq_len or self.sampling.rollout_fragment_length

    @property
    def batch_size(self) -> int:
        """Environment steps per round of learning, with complete episodes at least."""
        asked = self.train_batch_size or self.fragment_size
        if self.sampling.batch_mode == "complete_episodes":
            return asked
        return -(-asked // self.fragment_size) * self.fragment_size

    @property
    def rounded(self) -> bool:
        """Whether a batch has more steps than `train_batch_size` says."""
        return self.train_batch_size is not None and self.batch_size > self.train_batch_size


def with_base_config(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of `base` with `extra` merged in, dict into dict; neither is changed."""
    merged = copy.deepcopy(dict(base))
    for key, value in extra.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = with_base_config(before, value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


def with_common_config(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults that all trainers share, with `extra` merged in."""
    return with_base_config(default_config(TrainerConfig), extra)


def default_config(model: type[TrainerConfig]) -> dict[str, Any]:
    """Every key of a trainer's flat config that has a default, with it, as plain data."""
    return {key: value for key, value in defaults(model).items() if key != "env"}


def check_fit(settings: TrainerConfig) -> None:
    """Raise ConfigError for settings that are fine one by one but do not fit together."""
    kind = settings.filters.observation_filter
    if settings.sampling.sample_async and kind not in CONCURRENT_KINDS:
        raise ConfigError(
            "observation_filter",
            kind,
            " or ".join(CONCURRENT_KINDS),
            "with sample_async one thread filters while another synchronises",
        )
    if settings.lanes.remote_env_batch_wait_ms:
        _check_polling(settings)
    sampling = settings.sampling
    if sampling.blackhole_outputs and not (sampling.sample_async and sampling.fake_sampler):
        raise ConfigError(
            "blackhole_outputs",
            True,
            "false without sample_async: true and fake_sampler: true",
            "what is sampled is dropped, so another batch must be there to learn from",
        )
    if settings.schedule.lr_schedule == "linear" and not settings.schedule.schedule_timesteps:
        raise ConfigError(
            "schedule_timesteps",
            None,
            "the environment steps over which a linear lr_schedule runs",
            "set it, or stop.timesteps_total from which it is taken",
        )


def _check_polling(settings: TrainerConfig) -> None:
    allowed: dict[str, tuple[str | bool, ...]] = {
        "batch_mode": ("truncate_episodes",),
        "sample_async": (False,),
        "record_env": (False, "evaluation"),
        "render_env": (False,),
    }
    given = flatten(settings)
    for key, values in allowed.items():
        if given[key] not in values:
            only = " or ".join(str(value) for value in values)
            raise ConfigError(
                key,
                given[key],
                f"{only} with remote_env_batch_wait_ms",
                "each environment then fills a fragment of fixed length at its own pace: all are "
                "at rest between two fragments only, and no pictures are taken on the way; "
                "remote_env_batch_wait_ms: 0 makes them step together",
            )
