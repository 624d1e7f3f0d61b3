"""Specification of a rollout worker, which travels to the worker's process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainables.core.logs import LogConfig
from trainables.core.resources import ResourcesConfig
from trainables.envs.exactness.levels import EXACT
from trainables.envs.make import EnvironmentConfig, has_deepmind_wrappers
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
    """A learner as a rank knows it: it takes gradient steps."""

    @property
    def policy(self) -> Policy:
        """Whose weights it moves."""


@dataclass(frozen=True)
class LearnerSpec:
    """Specification of the learner of a data-parallel rank; it travels to children."""

    make_learner: "Callable[[], HasPolicy]"
    to_rows: Callable[[Fragment], TrainBatch]
    """Its valid rows, with advantages."""
    learn: Callable[..., dict[str, float]]
    """Function of the learner, a batch and a stream: `trainables.learners.sgd.learn`."""


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
    """Makes the actor that plays with the policy's weights."""
    gamma: float
    steps: int
    """Environment steps per `sample`: exactly so many, or at least, of whole episodes."""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    """Resources of a child."""
    perf: PerfConfig = field(default_factory=PerfConfig)
    logs: LogConfig = field(default_factory=LogConfig)
    calls: Calls | None = None
    """A person's callbacks; a child makes its own."""
    learner: LearnerSpec | None = None
    """In data-parallel learning: what each worker learns with."""
    columns: frozenset[str] = frozenset()
    """Of fragments, beside those that every one has and those that the actor declares: names of
    `trainables.rollout.batch.REQUESTABLE`."""
    unfiltered: bool = False
    """True if fragments hold observations as the filter receives them, and rewards before they are
    scaled: the learner keeps rows for long, and filters what it draws by the statistics of then."""
    filming: RecordingPlan | None = None
    """Plan for the video of the first worker's first environment, if one is wanted."""

    @property
    def worker_class(self) -> Any:
        """The class to be made from it; None for a plain `RolloutWorker`."""
        return None

    @property
    def keeps_environments(self) -> bool:
        """True if a checkpoint holds the environments, and with them the episodes in flight."""
        return self.environment.env_level in EXACT

    @property
    def effective_sampling(self) -> SamplingConfig:
        """Rewards of Atari games are clipped unless the settings say otherwise."""
        if self.sampling.clip_rewards is None and has_deepmind_wrappers(self.environment):
            return self.sampling.model_copy(update={"clip_rewards": True})
        return self.sampling
