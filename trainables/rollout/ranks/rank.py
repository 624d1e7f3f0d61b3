"""A rollout worker that also learns: one rank of data-parallel learning, in a child process.

Every rank draws its own minibatches from its own sample. Minibatch k of an epoch is the union of
all ranks' minibatches k: means, standardised fields and the gradient are those of the union, so
that the weights are what one process would have made of it. R rows of one rank's minibatch.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.core import rng
from trainables.core.logs import OneTimeLog
from trainables.errors import WorkerError
from trainables.rollout.batch import Sample, TrainBatch
from trainables.rollout.ranks.process_group import leave_group, setup_torch_data_parallel
from trainables.rollout.worker import RolloutWorker
from trainables.rollout.worker_spec import LearnerSpec

Minibatch = dict[str, Tensor]
#: Below it a deviation counts as none; it is added to the divisor.
SMALL = 1e-8


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
        self.learner = learner
        self.policy = learner.make_policy()
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
        size = sum(fragment.valid.size for fragment in sample.fragments)
        if size != expected_batch_size:
            raise WorkerError(
                f"batch sizes are out of step between workers: worker {self._worker.spec.index} "
                f"sampled {size} rows, expected {expected_batch_size}"
            )
        batch = TrainBatch.join([self.learner.to_rows(one) for one in sample.fragments])
        self._log.begin_round()
        self._log("training batch", batch)
        parts = -(-expected_batch_size // sgd_minibatch_size)
        info = self._learn(batch, num_sgd_iter, parts, standardize_fields, learning_rate)
        self._log("gradients", self.policy.gradients())
        return info, sample.count

    def _learn(
        self, batch: TrainBatch, epochs: int, parts: int, fields: Sequence[str], rate: float
    ) -> dict[str, float]:
        stats: list[Tensor] = []
        norms: list[float] = []
        for _ in range(epochs):
            minibatches = split(batch, parts, self.stream)
            shares = self._standardize(minibatches, fields)
            # A minibatch without a valid row on any rank is one for all of them: none takes a step.
            taken = [(m, share) for m, share in zip(minibatches, shares, strict=True) if share >= 0]
            if not taken:
                return {}
            epoch = torch.stack([self._step(m, share, rate, norms) for m, share in taken])
            self.policy.reduce([epoch])
            stats.append(epoch)
            kl = float(epoch[:, self.learner.stats.index("kl")].mean())
            if self.learner.target_kl and kl > self.learner.target_kl:
                break
        means = torch.cat(stats).mean(0).tolist()
        return {
            **dict(zip(self.learner.stats, means, strict=True)),
            **self._explained_variance(batch),
            "lr": rate,
            "grad_norm": float(np.mean(norms)),
        }

    def _step(self, minibatch: Minibatch, share: float, rate: float, norms: list[float]) -> Tensor:
        """One step of all ranks; returns this one's part of the union's statistics."""
        if len(minibatch["actions"]):
            loss, measured = self.learner.loss(self.policy.model, minibatch)
        else:
            loss = torch.stack([p.sum() for p in self.policy.model.parameters()]).sum() * 0.0
            measured = torch.zeros(len(self.learner.stats))
        norms.append(self.policy.minimise(loss * share, rate, self.learner.grad_clip))
        return measured * share

    def _standardize(self, minibatches: list[Minibatch], fields: Sequence[str]) -> list[float]:
        """Standardise in place over all ranks' rows; returns this rank's share of each union.

        A share of -1 says that the union has no row at all.
        """
        own = torch.tensor([float(len(m["actions"])) for m in minibatches], dtype=torch.float64)
        sums = torch.stack([_sums(m[name]) for name in fields for m in minibatches] or [own[:0]])
        counts = own.clone()
        self.policy.reduce([counts, sums])
        grouped = sums.reshape(len(fields), len(minibatches), 2)
        for i, name in enumerate(fields):
            for k, minibatch in enumerate(minibatches):
                mean, square = (grouped[i, k] / counts[k].clamp(min=1.0)).tolist()
                deviation = math.sqrt(max(0.0, square - mean * mean))
                minibatch[name] = (minibatch[name] - mean) / (deviation + SMALL)
        pairs = zip(own.tolist(), counts.tolist(), strict=True)
        return [mine / all_ if all_ else -1.0 for mine, all_ in pairs]

    def _explained_variance(self, batch: TrainBatch) -> dict[str, float]:
        returns = torch.from_numpy(batch.returns.astype(np.float64))
        errors = returns - torch.from_numpy(batch.values.astype(np.float64))
        sums = torch.stack([_sums(returns), _sums(errors)])
        count = torch.tensor([float(len(batch))], dtype=torch.float64)
        self.policy.reduce([sums, count])
        means = sums / count
        variance, unexplained = (means[:, 1] - means[:, 0].square()).tolist()
        return {"explained_variance": 1.0 - unexplained / variance} if variance > 0.0 else {}

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


def split(batch: TrainBatch, parts: int, stream: np.random.Generator) -> list[Minibatch]:
    """The batch in a drawn order, in exactly so many minibatches; some are empty if rows are few.

    The number does not depend on the rows that are valid: all ranks take the same number of steps.
    """
    order = torch.from_numpy(stream.permutation(len(batch)))
    columns = {name: torch.from_numpy(column)[order] for name, column in vars(batch).items()}
    pieces = {name: torch.tensor_split(column, parts) for name, column in columns.items()}
    return [{name: piece[i] for name, piece in pieces.items()} for i in range(parts)]


def digest(state: Mapping[str, Any]) -> str:
    """SHA-256 of a policy's state."""
    sha = hashlib.sha256()
    for name, weight in state["weights"].items():
        sha.update(name.encode() + weight.tobytes())
        for moment, value in state["optimizer"][name].items():
            sha.update(moment.encode() + value.tobytes())
    return sha.hexdigest()


def _sums(column: Tensor) -> Tensor:
    """(2,) sum and sum of squares, in float64."""
    wide = column.double()
    return torch.stack([wide.sum(), wide.square().sum()])
