"""All rollout workers of a trainer, in its own process or in children, behind one interface.

Whatever they return stands in the order of their indices, never of arrival.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from pydantic import Field

from trainables.core.resources import WorkerCount
from trainables.core.settings import LONGEST_WAIT_S, Section
from trainables.envs.make import for_children
from trainables.policies.actor import Actor, Weights
from trainables.rollout.batch import Sample
from trainables.rollout.progress import MetricsConfig
from trainables.rollout.ranks.group import RankGroup
from trainables.rollout.remote.recovery import RecoveryConfig
from trainables.rollout.remote.worker_set import ChildWorkers, require_as_many
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_spec import WorkerSpec

T = TypeVar("T")


class WorkersConfig(Section):
    """Where experience is collected."""

    num_workers: WorkerCount = Field(
        default=0,
        description="Child processes that collect; 0: the trainer's own process does.",
    )
    data_parallel: bool = Field(
        default=False,
        description="Each child learns from its own sample; gradients are averaged over all.",
    )
    data_parallel_timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Seconds that a child waits for the others in one exchange of gradients, and "
        "that the trainer waits for a child that it only tells something.",
    )


class WorkerSet(Protocol):
    """What a trainer asks of its workers."""

    def sample(self) -> list[Sample]:
        """One sample of each worker."""

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to each worker."""

    def get_state(self) -> Sequence[Any]:
        """The state of each worker; None for one that was left out."""

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave."""

    def healthy(self) -> int:
        """Child processes that answered last: no result depends on the instant of a death."""

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tell each worker and its policy, for example the ``timestep``."""

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """``function(worker)`` of each, where it lives; what it changes there is in no checkpoint.

        Raises:
            TrainableError: the function raised in a child, or cannot cross to it and back.
        """

    def close(self) -> None:
        """End them all."""


def foreach_env(workers: WorkerSet, function: Callable[[Any], T]) -> list[list[T]]:
    """``function(env)`` of each unwrapped environment, worker by worker."""
    return workers.foreach_worker(lambda worker: worker.foreach_env(function))


def foreach_policy(workers: WorkerSet, function: Callable[[Actor, str], T]) -> list[T]:
    """``function(policy, name)`` of each policy of each worker."""
    of_each = workers.foreach_worker(lambda worker: worker.foreach_policy(function))
    return [answer for answers in of_each for answer in answers]


class LocalWorkers:
    """The one worker with index 0, in this process."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.worker = RolloutWorker(spec)

    def sample(self) -> list[Sample]:
        """One sample; its arrays are written again by the next call."""
        return [self.worker.sample()]

    def sync(self, weights: Weights, filters: Mapping[str, Any]) -> None:
        """Give the learner's weights and the merged filters to the worker."""
        self.worker.sync(weights, filters)

    def get_state(self) -> list[dict[str, Any]]:
        """The worker's state."""
        return [self.worker.get_state()]

    def set_state(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Take back what `get_state` gave."""
        require_as_many(states, 0)
        self.worker.set_state(states[0])

    def healthy(self) -> int:
        """No children, so 0."""
        return 0

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tell the worker and its policy."""
        self.worker.set_global_vars(global_vars)

    def foreach_worker(self, function: Callable[[RolloutWorker], T]) -> list[T]:
        """``[function(worker)]``."""
        return [self.worker.apply(function)]

    def close(self) -> None:
        """Close its environments."""
        self.worker.close()


def make_workers(
    spec: WorkerSpec,
    config: WorkersConfig,
    recovery: RecoveryConfig,
    metrics: MetricsConfig | None = None,
) -> LocalWorkers | ChildWorkers | RankGroup:
    """The workers that the settings ask for, made from `spec` but for their index."""
    if config.num_workers == 0:
        return LocalWorkers(spec)
    spec = replace(spec, environment=for_children(spec.environment))
    specs = [replace(spec, index=i) for i in range(config.num_workers)]
    if config.data_parallel:
        return RankGroup(specs, recovery, config.data_parallel_timeout_s)
    timeout_s = (metrics or MetricsConfig()).collect_metrics_timeout
    return ChildWorkers(specs, recovery, timeout_s)
