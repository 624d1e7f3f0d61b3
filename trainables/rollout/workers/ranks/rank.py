"""A rollout worker that also learns: one rank of data-parallel learning, in a child process.

Every rank draws its own minibatches from its own sample; all take each gradient step together
(`trainables.learners.sgd`).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainables.core import rng
from trainables.core.logs import OneTimeLog
from trainables.errors import WorkerError
from trainables.rollout.batch import Sample, TrainBatch
from trainables.rollout.workers.remote.server import WorkerServer
from trainables.rollout.workers.worker import RolloutWorker
from trainables.rollout.workers.worker_spec import WorkerSpec


@dataclass(frozen=True)
class Learnt:
    """The result of one rank's round of learning."""

    sample: Sample
    """Without its fragments, which stay where they were learnt from."""
    info: dict[str, float]
    """The learner's statistics; equal on all ranks."""
    digest: str
    """Of weights and optimiser; equal on all ranks."""
    policy: dict[str, Any] | None
    """The policy's state, from rank 0 only."""


class Rank(RolloutWorker):
    """Samples and learns; exists in children only."""

    def __init__(self, spec: WorkerSpec) -> None:
        assert spec.learner is not None  # noqa: S101 as a group of ranks makes it
        import torch

        super().__init__(spec)
        torch.set_num_threads(1)
        self._spec = spec.learner
        self.learner = spec.learner.make_learner()
        self.policy = self.learner.policy
        self.stream = rng.generator(spec.seed, "minibatch", spec.index)
        self.latest: Sample
        """The sample from which it learnt last."""
        self._learning = OneTimeLog(f"worker {spec.index}", on=spec.index == 0)

    def setup_torch_data_parallel(
        self, url: str, rank: int, world_size: int, backend: str, timeout_s: float
    ) -> None:
        """Join the group of all ranks, which meets at `url`."""
        from trainables.rollout.workers.ranks.process_group import setup_torch_data_parallel

        setup_torch_data_parallel(self.policy, url, rank, world_size, backend, timeout_s)

    def sample_and_learn(
        self,
        expected_batch_size: int,
        num_sgd_iter: int,
        sgd_minibatch_size: int,
        standardize_fields: Sequence[str],
        learning_rate: float,
    ) -> tuple[dict[str, float], int]:
        """Collect one batch and learn from it together with all other ranks.

        Args:
            expected_batch_size: rows of this rank's batch, valid or not.
            num_sgd_iter: epochs.
            sgd_minibatch_size: this rank's rows of a minibatch, at most.
            standardize_fields: columns that get mean 0 and deviation 1 in each minibatch, over the
                rows of all ranks.
            learning_rate: of every step.

        Returns:
            Statistics over all ranks, and the environment steps of this one.

        Raises:
            WorkerError: the batch has another size; the ranks' steps would not fit together.
        """
        self.latest = sample = self.sample()
        size = sum(fragment.valid.size for fragment in sample.fragments)
        if size != expected_batch_size:
            raise WorkerError(
                f"batch sizes are out of step between workers: worker {self.spec.index} "
                f"sampled {size} rows, expected {expected_batch_size}"
            )
        batch = TrainBatch.join([self._spec.to_rows(one) for one in sample.fragments])
        self._learning.begin_round()
        self._learning("training batch", batch)
        info = self._spec.learn(
            self.learner,
            batch,
            self.stream,
            epochs=num_sgd_iter,
            minibatch_size=sgd_minibatch_size,
            rate=learning_rate,
            batch_size=expected_batch_size,
            standardize=standardize_fields,
        )
        self._learning("gradients", self.policy.gradients())
        return info, sample.count

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Give variables to the worker, and to the policy that learns."""
        super().set_global_vars(global_vars)
        self.policy.on_global_var_update(global_vars)

    def get_state(self) -> dict[str, Any]:
        """The worker's state and entry ``minibatch``; weights and optimiser are the trainer's."""
        return {**super().get_state(), "minibatch": rng.get_generator_state(self.stream)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        super().set_state(state)
        rng.set_generator_state(self.stream, state["minibatch"])

    def close(self) -> None:
        """Let go of the environments and of the other ranks."""
        super().close()
        from trainables.rollout.workers.ranks.process_group import leave_group

        leave_group()


class RankServer(WorkerServer):
    """All that a rank's process can be asked for."""

    worker_class = Rank
    worker: Rank

    def sample(self) -> Any:
        """A sample, with its episodes."""
        return self.worker.sample()

    def iterate(self, *request: Any) -> Learnt:
        """`Rank.sample_and_learn`, and all that the trainer needs to know of it."""
        info, count = self.worker.sample_and_learn(*request)
        state = self.worker.policy.get_state()
        return Learnt(
            sample=replace(self.worker.latest, fragments=[], trajectories=(), steps=count),
            info=info,
            digest=digest(state),
            policy=state if self.worker.spec.index == 0 else None,
        )

    def iterate_with_state(self, *request: Any) -> tuple[Learnt, dict[str, Any]]:
        """Return the result of a round, and the state of the rank after it."""
        return self.iterate(*request), self.get_state()

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Adopt weights and optimiser of the trainer."""
        self.worker.policy.set_state(state)

    def setup_torch_data_parallel(self, *group: Any) -> None:
        """Join the group of all ranks."""
        self.worker.setup_torch_data_parallel(*group)


def digest(state: Mapping[str, Any]) -> str:
    """SHA-256 of a policy's state."""
    sha = hashlib.sha256()
    for name, weight in state["weights"].items():
        sha.update(name.encode() + weight.tobytes())
        for moment, value in state["optimizer"][name].items():
            sha.update(moment.encode() + value.tobytes())
    return sha.hexdigest()
