"""A rollout worker that also learns: one rank of data-parallel learning, in a child process.

Every rank draws its own minibatches from its own sample; all take each gradient step together
(`trainables.learners.sgd`).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from trainables.core import rng
from trainables.core.logs import OneTimeLog
from trainables.errors import WorkerError
from trainables.rollout.batch import Sample, TrainBatch
from trainables.rollout.ranks.process_group import leave_group, setup_torch_data_parallel
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_spec import LearnerSpec


@dataclass(frozen=True)
class LearntSample(Sample):
    """A sample without its fragments, which stay where they were learnt from."""

    steps: int = 0

    @property
    def count(self) -> int:
        """Environment steps."""
        return self.steps


@dataclass(frozen=True)
class Learnt:
    """What one rank did in one round."""

    sample: LearntSample
    info: dict[str, float]
    """The learner's statistics; equal on all ranks."""
    digest: str
    """Of weights and optimiser; equal on all ranks."""
    policy: dict[str, Any] | None
    """The policy's state, from rank 0 only."""


class Rank:
    """Samples and learns; exists in children only.

    Args:
        learner: what it learns with.
        worker: collects.
    """

    def __init__(self, learner: LearnerSpec, worker: RolloutWorker) -> None:
        torch.set_num_threads(1)
        self._spec = learner
        self.learner = learner.make_learner()
        self.policy = self.learner.policy
        self.stream = rng.generator(worker.spec.seed, "minibatch", worker.spec.index)
        self._worker = worker
        self._log = OneTimeLog(f"worker {worker.spec.index}", on=worker.spec.index == 0)
        self._sample: Sample | None = None

    def __getattr__(self, name: str) -> Any:
        """Whatever else the worker can be asked for."""
        return getattr(self._worker, name)

    def setup_torch_data_parallel(
        self, url: str, rank: int, world_size: int, backend: str, timeout_s: float
    ) -> None:
        """Join the group of all ranks, which meets at `url`."""
        setup_torch_data_parallel(self.policy, url, (rank, world_size), backend, timeout_s)

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Adopt weights and optimiser of the trainer."""
        self.policy.set_state(state)

    def iterate(self, *request: Any) -> Learnt:
        """`sample_and_learn`, and all that the trainer needs to know of it."""
        info, count = self.sample_and_learn(*request)
        rest = {**vars(self._sample), "fragments": [], "trajectories": ()}
        state = self.policy.get_state()
        return Learnt(
            sample=LearntSample(**rest, steps=count),
            info=info,
            digest=digest(state),
            policy=state if self._worker.spec.index == 0 else None,
        )

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
        self._sample = sample = self._worker.sample()
        size = sum(fragment.logp.size for fragment in sample.fragments)
        if size != expected_batch_size:
            raise WorkerError(
                f"batch sizes are out of step between workers: worker {self._worker.spec.index} "
                f"sampled {size} rows, expected {expected_batch_size}"
            )
        batch = TrainBatch.join([self._spec.to_rows(one) for one in sample.fragments])
        self._log.begin_round()
        self._log("training batch", batch)
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
        self._log("gradients", self.policy.gradients())
        return info, sample.count

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Tell the worker, and the policy that learns."""
        self._worker.set_global_vars(global_vars)
        self.policy.on_global_var_update(global_vars)

    def get_state(self) -> dict[str, Any]:
        """The worker's state and entry ``minibatch``; weights and optimiser are the trainer's."""
        return {**self._worker.get_state(), "minibatch": rng.get_generator_state(self.stream)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self._worker.set_state(state)
        rng.set_generator_state(self.stream, state["minibatch"])

    def close(self) -> None:
        """Let go of the environments and of the other ranks."""
        self._worker.close()
        leave_group()


def digest(state: Mapping[str, Any]) -> str:
    """SHA-256 of a policy's state."""
    sha = hashlib.sha256()
    for name, weight in state["weights"].items():
        sha.update(name.encode() + weight.tobytes())
        for moment, value in state["optimizer"][name].items():
            sha.update(moment.encode() + value.tobytes())
    return sha.hexdigest()
