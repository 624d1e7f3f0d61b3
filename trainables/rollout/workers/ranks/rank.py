"""A rollout worker that also learns: one rank of data-parallel learning, in a child process.

Every rank draws its minibatches from its own sample, and all take each gradient step together
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
    """The sample without its fragments, which stay in the rank; it counts their steps."""
    info: dict[str, float]
    """Statistics of the learner, equal on all ranks."""
    digest: str
    """SHA-256 of weights and optimiser after the round, hexadecimal; ranks in which it differs have
    diverged."""
    policy: dict[str, Any] | None
    """`Policy.get_state` of the policy after the round from rank 0; None from other ranks."""


class Rank(RolloutWorker):
    """A worker that samples and learns; it exists in child processes only.

    Creating it sets torch to one thread in its process.
    """

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
        """The sample that was last learnt from; not set before the first `sample_and_learn`."""
        self._learning_log = OneTimeLog(f"worker {spec.index}", is_on=spec.index == 0)

    def setup_torch_data_parallel(
        self, url: str, rank: int, world_size: int, backend: str, timeout_s: float
    ) -> None:
        """Join the torch process group of all ranks; the policy's gradients are summed over them.

        `url` is where the ranks meet; `timeout_s` is the seconds that a rank waits for the others.
        Raises ValueError if the policy is not a torch policy, ExchangeError if the other ranks did
        not join in time.
        """
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
        """Collect one batch, and learn from it in gradient steps that all ranks take together.

        Stores the sample in `latest`, draws minibatches with `stream`, and changes the learner's
        policy, not the acting one. Blocks until the other ranks take the same steps.

        Args:
            expected_batch_size: number of rows of this rank's batch, valid or not.
            num_sgd_iter: number of epochs: passes over all rows of the batch.
            sgd_minibatch_size: maximum number of this rank's rows in a minibatch.
            standardize_fields: columns that are standardised in each minibatch to mean 0 and
                deviation 1, over the rows of all ranks.

        Returns:
            Statistics over all ranks, and the environment steps of this one.

        Raises:
            WorkerError: the batch has another size, so the ranks' steps would not match.
            ExchangeError: another rank is gone or too late.
        """
        self.latest = sample = self.sample()
        size = sum(fragment.valid.size for fragment in sample.fragments)
        if size != expected_batch_size:
            raise WorkerError(
                f"batch sizes are out of step between workers: worker {self.spec.index} "
                f"sampled {size} rows; expected {expected_batch_size}"
            )
        batch = TrainBatch.join([self._spec.to_rows(one) for one in sample.fragments])
        self._learning_log.begin_round()
        self._learning_log("training batch", batch)
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
        self._learning_log("gradients", self.policy.gradients())
        return info, sample.count

    def set_global_vars(self, global_vars: Mapping[str, Any]) -> None:
        """Store the trainer's variables, and pass them to the acting and the learning policy."""
        super().set_global_vars(global_vars)
        self.policy.on_global_var_update(global_vars)

    def get_state(self) -> dict[str, Any]:
        """Return the worker's state and the random stream ``minibatch``.

        Weights and optimiser are not included.
        """
        return {**super().get_state(), "minibatch": rng.get_generator_state(self.stream)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `get_state` returned."""
        super().set_state(state)
        rng.set_generator_state(self.stream, state["minibatch"])

    def close(self) -> None:
        """Close the environments, and leave the torch process group of the ranks."""
        super().close()
        from trainables.rollout.workers.ranks.process_group import leave_group

        leave_group()


class RankServer(WorkerServer):
    """Answers the requests to a rank's process."""

    #: Class of the worker.
    worker_class = Rank
    worker: Rank
    """The worker that samples and learns."""

    def sample(self) -> Any:
        """Return a sample with its episodes, without learning from it."""
        return self.worker.sample()

    def iterate(self, *request: Any) -> Learnt:
        """Call `Rank.sample_and_learn` with these arguments, and return its result.

        The sample's fragments are left out, as the trainer does not need them.
        """
        info, count = self.worker.sample_and_learn(*request)
        state = self.worker.policy.get_state()
        return Learnt(
            sample=replace(self.worker.latest, fragments=[], trajectories=(), steps=count),
            info=info,
            digest=digest(state),
            policy=state if self.worker.spec.index == 0 else None,
        )

    def iterate_with_state(self, *request: Any) -> tuple[Learnt, dict[str, Any]]:
        """Return the result of `iterate` and the rank's state after it, for a restart."""
        return self.iterate(*request), self.get_state()

    def load_policy(self, state: Mapping[str, Any]) -> None:
        """Load a `state` of `Policy.get_state` into the learning policy, not the acting one."""
        self.worker.policy.set_state(state)

    def setup_torch_data_parallel(self, *group: Any) -> None:
        """Join the torch process group with the arguments of `Rank.setup_torch_data_parallel`."""
        self.worker.setup_torch_data_parallel(*group)


def digest(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a policy's weights and optimiser, in hexadecimal.

    `state` has ``weights``, name → array, and ``optimizer``, name → (moment → array).
    """
    sha = hashlib.sha256()
    for name, weight in state["weights"].items():
        sha.update(name.encode() + weight.tobytes())
        for moment, value in state["optimizer"][name].items():
            sha.update(moment.encode() + value.tobytes())
    return sha.hexdigest()
