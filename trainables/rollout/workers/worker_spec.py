"""Specification of a rollout worker, which is sent to the worker's process."""

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
from trainables.rollout.media.recording import RecordingPlan
from trainables.rollout.progress import PerfConfig


class HasPolicy(Protocol):
    """A learner in a rank of data-parallel learning: it takes gradient steps on its policy."""

    @property
    def policy(self) -> Policy:
        """Policy whose weights the learner changes."""


@dataclass(frozen=True)
class LearnerSpec:
    """Specification of the learner of a data-parallel rank; it is sent to child processes."""

    make_learner: "Callable[[], HasPolicy]"
    """Function that makes the learner, called once in each rank's process."""
    to_rows: Callable[[Fragment], TrainBatch]
    """Function of a fragment that returns its valid rows with advantages."""
    learn: Callable[..., dict[str, float]]
    """Function that takes the gradient steps and returns statistics by name:
    `trainables.learners.sgd.learn`."""


@dataclass(frozen=True)
class WorkerSpec:
    """The specification of a worker; it is sent to child processes."""

    seed: int
    """Seed of the trial, from which all random streams are derived."""
    index: int
    """Index of the worker in its trainer, from 0."""
    num_workers: int
    """Number of child processes that collect; 0 if the trainer's own process does."""
    environment: EnvironmentConfig
    """Settings of the environment."""
    envs: VectorConfig
    """Settings of the stepping of environments."""
    sampling: SamplingConfig
    """Settings of the collection of experience."""
    filters: FilterConfig
    """Settings of the filters of observations and rewards."""
    make_actor: Callable[[], Actor]
    """Function that makes the actor, which chooses actions with the policy's weights."""
    gamma: float
    """Discount factor of the running return whose spread scales the rewards."""
    steps: int
    """Environment steps of one `sample`: exactly this number; at least this number with whole
    episodes, several agents or an environment that calls the trainer."""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)
    """CPUs, GPUs and memory of each process."""
    perf: PerfConfig = field(default_factory=PerfConfig)
    """Settings of the averages of the sampler's times."""
    logs: LogConfig = field(default_factory=LogConfig)
    """Settings of the log."""
    calls: Calls | None = None
    """The user's callbacks; None without callbacks. Pickling for a child process makes a new object
    without the state of this one."""
    learner: LearnerSpec | None = None
    """Learner of each worker in data-parallel learning; None otherwise."""
    columns: frozenset[str] = frozenset()
    """Requested columns of fragments, names of `trainables.rollout.batch.REQUESTABLE`.

    They are added to the standard columns and those that the actor declares.
    """
    unfiltered: bool = False
    """True if fragments store observations before the filter, and rewards before scaling. Learners
    that store rows need this, since they filter the rows that they draw with the statistics at that
    time."""
    recording: RecordingPlan | None = None
    """Plan for pictures of the first worker's first environment; None for no pictures."""

    @property
    def worker_class(self) -> Any:
        """Class of the worker that is made from the specification; None for `RolloutWorker`."""
        return None

    @property
    def keeps_environments(self) -> bool:
        """True if checkpoints contain the environments, and with them the running episodes.

        That is so at the levels of exactness A (their state) and B (replay of their actions).
        """
        return self.environment.env_level in EXACT

    @property
    def effective_sampling(self) -> SamplingConfig:
        """Sampling settings in which `clip_rewards` has its final value.

        If it is None it becomes True for Atari games in DeepMind's wrappers; otherwise these are
        the given settings.
        """
        if self.sampling.clip_rewards is None and has_deepmind_wrappers(self.environment):
            return self.sampling.model_copy(update={"clip_rewards": True})
        return self.sampling
