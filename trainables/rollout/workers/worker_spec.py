"""What a rollout worker is made from; it travels to the process that the worker lives in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainables.core.logs import LogConfig
from trainables.core.resources import ResourcesConfig
from trainables.envs.exactness.levels import EXACT
from trainables.envs.make import EnvironmentConfig, deepmind
from trainables.envs.vector.config import VectorConfig
from trainables.policies.acting.actor import Actor
from trainables.policies.filters import FilterConfig
from trainables.policies.policy import Policy
from trainables.rollout.batch import Fragment, TrainBatch
from trainables.rollout.callbacks import Calls
from trainables.rollout.config import SamplingConfig
from trainables.rollout.progress import PerfConfig
from trainables.rollout.recording import RecordingPlan


class HasPolicy(Protocol):
    """What takes gradient steps, as a rank knows it."""

    @property
    def policy(self) -> Policy:
        """Whose weights it moves."""


@dataclass(frozen=True)
class LearnerSpec:
    """What a rank of data-parallel learning learns with; it travels to children."""

    make_learner: "Callable[[], HasPolicy]"
    to_rows: Callable[[Fragment], TrainBatch]
    """Its valid rows, with advantages."""
    learn: Callable[..., dict[str, float]]
    """What the learner, a batch and a stream are given to: `trainables.learners.sgd.learn`."""


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
    envs: VectorConfig
    sampling: SamplingConfig
    filters: FilterConfig
    make_actor: Callable[[], Actor]
    """What plays with the policy's weights."""
    gamma: float
    steps: int
    """Environment steps per `sample`: exactly so many, or at least, of whole episodes."""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    """What a child is given."""
    perf: PerfConfig = field(default_factory=PerfConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    calls: Calls | None = None
    """A person's callbacks; a child makes its own."""
    learner: LearnerSpec | None = None
    """In data-parallel learning: what each worker learns with."""
    columns: frozenset[str] = frozenset()
    """Of fragments, beside those that every one has and those that the actor declares: names of
    `trainables.rollout.batch.REQUESTABLE`."""
    filming: RecordingPlan | None = None
    """Where somebody looks at the first worker's first environment."""

    @property
    def worker_class(self) -> Any:
        """What is made from it; None: a plain `RolloutWorker`."""
        return None

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
