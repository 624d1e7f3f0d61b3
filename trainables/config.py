"""Everything that can be set about a trainer: small sections, each defined beside its reader.

People write one flat dict; `trainables.settings.parse` finds the section of each key.
"""

from pydantic import Field

from trainables.envs.make import EnvironmentConfig
from trainables.evaluation import EvaluationConfig
from trainables.filter_config import FilterConfig
from trainables.policies.networks import ModelConfig
from trainables.rollout.metrics import MetricsConfig
from trainables.rollout.recovery import RecoveryConfig
from trainables.rollout.sampler import SamplingConfig
from trainables.rollout.worker_set import WorkersConfig
from trainables.schedules import ScheduleConfig
from trainables.settings import Section, Settings


class ResourcesConfig(Section):
    """What one trial occupies."""

    num_cpus_for_driver: int = Field(
        default=1, ge=1, description="CPUs of the trainer's own process."
    )
    num_cpus_per_worker: int = Field(
        default=1, ge=1, description="CPUs of each child that collects."
    )


class TrainerConfig(Settings):
    """Settings that every trainer has; each section stands beside the code that reads it."""

    environment: EnvironmentConfig
    sampling: SamplingConfig = SamplingConfig()
    workers: WorkersConfig = WorkersConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    filters: FilterConfig = FilterConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    metrics: MetricsConfig = MetricsConfig()
    resources: ResourcesConfig = ResourcesConfig()
    model: ModelConfig = Field(default=ModelConfig(), description="The networks.")
    seed: int | None = Field(
        default=None, ge=0, lt=2**63, description="Seed of all streams; null: the trial's."
    )
    gamma: float = Field(default=0.99, ge=0, le=1, description="Discount per environment step.")
    train_batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Environment steps per iteration, with complete_episodes at least; null: one "
        "fragment of every environment.",
    )
    adam_epsilon: float = Field(
        default=1e-5, gt=0, description="Added to the root of Adam's second moment."
    )

    @property
    def fragment_size(self) -> int:
        """Environment steps of one fragment of every environment."""
        per_worker = self.sampling.num_envs_per_worker * self.sampling.rollout_fragment_length
        return per_worker * max(1, self.workers.num_workers)

    @property
    def batch_size(self) -> int:
        """Environment steps per iteration, with complete episodes at least."""
        return self.train_batch_size or self.fragment_size
