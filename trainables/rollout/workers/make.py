"""Makes the rollout workers that the settings describe."""

from dataclasses import replace

from pydantic import Field

from trainables.core.resources import WorkerCount
from trainables.core.settings import LONGEST_WAIT_S, Section
from trainables.envs.make import importable_config
from trainables.rollout.progress import MetricsConfig
from trainables.rollout.workers.ranks.group import RankGroup
from trainables.rollout.workers.remote.asynchronous import AsyncWorkers
from trainables.rollout.workers.remote.recovery import RecoveryConfig
from trainables.rollout.workers.remote.worker_set import ChildWorkers
from trainables.rollout.workers.worker_set import LocalWorkers, WorkerSet
from trainables.rollout.workers.worker_spec import WorkerSpec


class WorkersConfig(Section):
    """The number of workers and their settings."""

    num_workers: WorkerCount = Field(
        default=0,
        description="Number of child processes that collect experience; 0: the trainer's own "
        "process collects.",
    )
    data_parallel: bool = Field(
        default=False,
        description="Let each child process learn from its own sample, with gradients averaged "
        "over all of them.",
    )
    data_parallel_timeout_s: float = Field(
        default=300.0,
        gt=0,
        le=LONGEST_WAIT_S,
        description="Maximum seconds that a child waits for the others when gradients are "
        "exchanged, and that the trainer waits for a child to receive data.",
    )


def make_workers(
    spec: WorkerSpec,
    config: WorkersConfig,
    recovery: RecoveryConfig,
    metrics: MetricsConfig,
    batch_size: int | None = None,
) -> WorkerSet:
    """Create the workers that the settings describe, and start their processes, if any.

    Without child processes it is one worker in this process. Children also learn if
    ``data_parallel`` is set; they sample while the trainer learns if there is a `batch_size`.

    Args:
        spec: specification of all workers except for their index.
        batch_size: minimum number of rows that `sample` returns; children then sample while the
            trainer learns. None for children that sample on request. Not used without children and
            with ``data_parallel``.

    Raises:
        ConfigError: children cannot import the environment.
    """
    if config.num_workers == 0:
        return LocalWorkers(spec)
    spec = replace(spec, environment=importable_config(spec.environment))
    specs = [replace(spec, index=i) for i in range(config.num_workers)]
    if config.data_parallel:
        return RankGroup(specs, recovery, config.data_parallel_timeout_s)
    if batch_size is not None:
        return AsyncWorkers(specs, recovery, metrics.collect_metrics_timeout, batch_size)
    return ChildWorkers(specs, recovery, metrics.collect_metrics_timeout)
