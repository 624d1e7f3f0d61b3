"""What a rollout worker is made from; it travels to the process that the worker lives in."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from trainables.callbacks import Calls
from trainables.envs.lanes import LanesConfig
from trainables.envs.levels import EXACT
from trainables.envs.make import EnvironmentConfig, deepmind
from trainables.filter_config import FilterConfig
from trainables.logs import LogConfig, set_level, show
from trainables.policies.architecture import Architecture
from trainables.resources import ResourcesConfig
from trainables.rollout.compression import PackingWorker
from trainables.rollout.filming import Filming
from trainables.rollout.perf import PerfConfig
from trainables.rollout.sampling import SamplingConfig

if TYPE_CHECKING:  # ranks need torch
    from trainables.rollout.apart import MetricsApart
    from trainables.rollout.rank import LearnerSpec, Rank


@dataclass(frozen=True)
class WorkerSpec:
    """Everything a worker is made from; it travels to children."""

    seed: int
    """Seed of the trial's streams."""
    index: int
    """Which worker of its trainer."""
    num_workers: int
    """Child processes that collect; 0: the trainer's own process does."""
    environment: EnvironmentConfig
    lanes: LanesConfig
    sampling: SamplingConfig
    filters: FilterConfig
    architecture: Architecture
    """Of the policy's networks."""
    gamma: float
    steps: int
    """Environment steps per `sample`: exactly so many, or at least, of whole episodes."""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    """What a child is given."""
    perf: PerfConfig = field(default_factory=PerfConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    shows_logs: bool = False
    """Whether the trainer's process shows what is logged; a child then does so too."""
    calls: Calls | None = None
    """A person's callbacks; a child makes its own."""
    learner: "LearnerSpec | None" = None
    """In data-parallel learning: what each worker learns with."""
    filming: Filming | None = None
    """Where somebody looks at the first worker's first environment."""

    #: How errors call the process that is made from it.
    role: ClassVar[str] = "rollout worker"
    timeout_key: ClassVar[str] = "sample_timeout_s"

    @property
    def keeps_environments(self) -> bool:
        """Whether a checkpoint holds the environments, and with them the episodes in flight."""
        return self.environment.env_level in EXACT

    @property
    def effective_sampling(self) -> SamplingConfig:
        """Rewards of Atari games are clipped unless the settings say otherwise."""
        if self.sampling.clip_rewards is None and deepmind(self.environment):
            return self.sampling.model_copy(update={"clip_rewards": True})
        return self.sampling

    def build(self) -> "MetricsApart | PackingWorker | Rank":
        """The worker, in the process that it lives in."""
        from trainables.rollout.apart import MetricsApart
        from trainables.rollout.worker import RolloutWorker

        set_level(self.logs)
        if self.shows_logs:
            show(f"{self.role} {self.index}")
        worker, compress = RolloutWorker(self), self.sampling.compress_observations
        if self.learner:
            return self.learner.enlist(worker)
        apart = MetricsApart(worker)
        return PackingWorker(apart, compress == "bulk") if compress else apart
