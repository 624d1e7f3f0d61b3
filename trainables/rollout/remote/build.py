"""Builds a rollout worker from its spec, in the child process that it lives in."""

from typing import TYPE_CHECKING

from trainables.core.logs import set_level, show
from trainables.rollout.remote.transport import DeferredMetrics, PackingWorker
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_spec import WorkerSpec

if TYPE_CHECKING:
    from trainables.rollout.ranks.rank import Rank


def build_worker(spec: WorkerSpec) -> "DeferredMetrics | PackingWorker | Rank":
    """What answers the trainer's requests: a rank where workers learn, else a worker."""
    set_level(spec.logs)
    if spec.shows_logs:
        show(f"{spec.role} {spec.index}")
    worker, compress = RolloutWorker(spec), spec.sampling.compress_observations
    if spec.learner:
        from trainables.rollout.ranks.rank import Rank  # it needs torch, others do not

        return Rank(spec.learner, worker)
    apart = DeferredMetrics(worker)
    return PackingWorker(apart, compress == "bulk") if compress else apart
