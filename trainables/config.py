"""Everything that can be set about a trainer: small sections, each defined beside its reader.

People write one flat dict; `trainables.settings.parse` finds the section of each key.
"""

from pydantic import Field

from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.evaluation import EvaluationConfig
from trainables.filter_config import FilterConfig
from trainables.neutral import MultiAgentConfig, OfflineConfig, RecordingConfig
from trainables.policies.networks import ModelConfig
from trainables.policies.torch_policy import OptimizerConfig
from trainables.resources import ResourcesConfig
from trainables.rollout.metrics import MetricsConfig
from trainables.rollout.recovery import RecoveryConfig
from trainables.rollout.sampler import SamplingConfig
from trainables.rollout.worker_set import WorkersConfig
from trainables.schedules import ScheduleConfig
from trainables.settings import Settings


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
    resources: ResourcesConfig = ResourcesConfig()
    offline: OfflineConfig = OfflineConfig()
    agents: MultiAgentConfig = MultiAgentConfig()
    recording: RecordingConfig = RecordingConfig()
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
    optimizer: OptimizerConfig = Field(
        default=OptimizerConfig(), description="How gradients move the weights."
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
