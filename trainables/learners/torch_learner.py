"""The learner in torch: its minibatches and gradient steps, alone or with other ranks.

B rows of a minibatch, S statistics.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.learners.sequences import SequenceBatch
from trainables.learners.standardizing import LEAST_ROWS, SMALL, Moments, Reduce
from trainables.policies.learning.networks import sequence_layout_of
from trainables.policies.learning.torch_policy import ActorCriticPolicy
from trainables.policies.own.module import in_acting_mode
from trainables.policies.policy import Scalar
from trainables.rollout.batch import TrainBatch

if TYPE_CHECKING:
    from trainables.learners.graphs import Graphs
    from trainables.policies.acting.on_device import DeviceObservations

#: Name of a column → its rows (B, …).
Minibatch: TypeAlias = dict[str, Tensor]
Loss: TypeAlias = Callable[[Any, Mapping[str, Tensor]], tuple[Tensor, Tensor]]
"""Function of networks and a minibatch's columns that returns the loss () and statistics (S,)."""


class TorchLearner:
    """Makes gradient steps on any loss, which is a mean over rows, in torch; a `sgd.Learner`.

    Args:
        stats: names of its statistics.
        grad_clip: largest norm of the gradient, or None for no limit.
        frames: observations that acting has left on the policy's device; None for none.
        graphs: captures gradient steps as CUDA graphs; None for ordinary steps.
    """

    def __init__(
        self,
        policy: ActorCriticPolicy,
        loss: Loss,
        stats: tuple[str, ...],
        grad_clip: float | None,
        frames: "DeviceObservations | None" = None,
        graphs: "Graphs | None" = None,
    ) -> None:
        self.policy = policy
        self.loss = loss
        self.stats = stats
        self._grad_clip, self._frames, self._graphs = grad_clip, frames, graphs
        self._sent: dict[str, Tensor] = {}
        """Columns of the batch that is learnt from, on the policy's device; empty outside
        `learning`, and for sequences."""

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Keep the batch on the policy's device inside the block, so that it is sent once."""
        try:
            yield
        finally:
            self._sent = {}

    def minibatches(
        self, batch: TrainBatch, size: int, stream: np.random.Generator, count: int
    ) -> list[Minibatch]:
        """Return the minibatches of one epoch on the policy's device, in a random order.

        `size` is the largest number of rows of a minibatch, `count` the number of rows that decides
        the number of minibatches.
        """
        if not isinstance(batch, SequenceBatch) and not self._sent:
            self._sent = self._send(batch)
        return shuffled(batch, size, stream, self.policy.device, count, self._sent)

    def _send(self, batch: TrainBatch) -> dict[str, Tensor]:
        """Copy the columns of a batch to the policy's device.

        Observations left there are reused.
        """
        given, sent_before = batch.columns(), dict[str, Tensor]()
        kept = self._frames.take(given["observations"]) if self._frames else None
        if kept is not None:
            del given["observations"]
            sent_before["observations"] = kept
        return {**sent_before, **self.policy.on_device(given)}

    def standardize_few(self, minibatches: list[Minibatch], moments: Moments) -> None:
        """Standardise advantages of minibatches below `LEAST_ROWS` rows, by `moments`."""
        for one in minibatches:
            if len(one["advantages"]) < LEAST_ROWS:
                one["advantages"] = moments.standardized(one["advantages"])

    def evaluate(self, batch: TrainBatch) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return present log-probabilities (B,) of a batch's actions, and present values (B,).

        They are computed without gradients, a user's module in evaluation mode.
        """
        device = self.policy.device
        columns = {name: torch.from_numpy(one).to(device) for name, one in batch.columns().items()}
        model: Any = self.policy.model
        with torch.no_grad(), self.policy.autocast(), in_acting_mode(model):
            observed = columns["observations"], columns["actions"]
            found = model.evaluate(*observed, sequence_layout_of(columns))
        return found.logp.cpu().numpy(), found.values.cpu().numpy()

    def step(self, minibatch: Minibatch, rate: float, share: float = 1.0) -> tuple[Tensor, Scalar]:
        """Make one gradient step with the learning rate `rate`; return statistics (S,) and norm.

        Loss and statistics are means over rows, times `share`, the minibatch's share of all ranks'
        rows; with captured steps `share` is ignored. The norm is the gradient's before clipping. An
        empty minibatch has a gradient of 0. Raises NotFiniteError, with the weights unchanged, if
        loss or gradient is NaN or infinite, unless the policy checks its steps later.
        """
        if self._graphs is not None:
            # Ranks learn on the CPU (`data_parallel` refuses `num_gpus`), so with graphs there is
            # one learner: the share is 1, and no minibatch is empty.
            found = self._graphs.run("step", self._captured, {**minibatch, "rate": rate})
            return found["stats"], found["norm"]
        if len(minibatch["actions"]):
            with self.policy.autocast():
                loss, measured = self.loss(self.policy.model, minibatch)
        else:  # the other ranks wait for a gradient of this one: zeros
            loss = torch.stack([p.sum() for p in self.policy.model.parameters()]).sum() * 0.0
            measured = torch.zeros(len(self.stats))
        if share != 1.0:
            loss, measured = loss * share, measured * share
        return measured, self.policy.minimise(loss, rate, self._grad_clip)

    def _captured(self, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
        """Make one gradient step in a form that a CUDA graph can capture.

        `inputs` are a minibatch's columns and the learning rate ``rate``, all tensors. Returns the
        statistics ``stats`` (S,), and ``norm`` (), the gradient's before clipping.
        """
        with self.policy.autocast():
            loss, stats = self.loss(self.policy.model, inputs)
        return {
            "stats": stats,
            "norm": self.policy.minimise(loss, inputs["rate"], self._grad_clip),
        }


def shuffled(
    batch: TrainBatch,
    size: int,
    stream: np.random.Generator,
    device: torch.device | None = None,
    count: int | None = None,
    sent: Mapping[str, Tensor] | None = None,
) -> list[Minibatch]:
    """Divide a batch, in a random order, into minibatches of equal size, ±1 row.

    Sequences stay whole, so that their minibatches have about equal numbers of rows.

    Args:
        size: largest number of rows of a minibatch.
        device: device of the tensors; by default the CPU.
        count: number of rows that decides the number of minibatches, by default that of the batch.
            If it is larger than the batch, some minibatches may be empty.
        sent: columns of the batch on that device; None to send them. Sequences are always sent.
    """
    target_device = device or torch.device("cpu")
    if isinstance(batch, SequenceBatch):
        return [
            {name: torch.from_numpy(column).to(target_device) for name, column in one.items()}
            for one in batch.minibatches(size, stream)
        ]
    order = torch.from_numpy(stream.permutation(len(batch))).to(target_device)
    # `index_select` copies whole rows, where indexing copies an image byte by byte.
    given = sent or {
        name: torch.from_numpy(one).to(target_device) for name, one in vars(batch).items()
    }
    columns = {name: torch.index_select(one, 0, order) for name, one in given.items()}
    parts = -(-(len(batch) if count is None else count) // size)
    split = {name: torch.tensor_split(column, parts) for name, column in columns.items()}
    return [{name: pieces[i] for name, pieces in split.items()} for i in range(parts)]


def normalized(advantages: Tensor) -> Tensor:
    """Return advantages (B,) with mean 0 and deviation 1; fewer than `LEAST_ROWS` unchanged."""
    if len(advantages) < LEAST_ROWS:
        return advantages
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + SMALL)


def standardize_together(
    minibatches: list[Minibatch], of_batch: Mapping[str, Moments], reduce: Reduce | None
) -> list[float]:
    """Standardise columns in place, over the rows of all ranks' minibatches of one step together.

    If these are fewer than `LEAST_ROWS` rows, the moments of the whole batch are used.

    Args:
        minibatches: this rank's minibatches of one epoch.
        of_batch: column → its moments over the whole batch.
        reduce: function that replaces tensors by their sums over all ranks, or None.

    Returns:
        For each step, this rank's share of the rows of all ranks; -1 for a step without rows.
    """
    local_counts = torch.tensor(
        [float(len(m["actions"])) for m in minibatches], dtype=torch.float64
    )
    sums = torch.stack(
        [_sums(m[name]) for name in of_batch for m in minibatches] or [local_counts[:0]]
    )
    counts = local_counts.clone()
    if reduce is not None:
        reduce([counts, sums])
    grouped = sums.reshape(len(of_batch), len(minibatches), 2)
    for i, (name, whole) in enumerate(of_batch.items()):
        for k, minibatch in enumerate(minibatches):
            mean, square = (grouped[i, k] / counts[k].clamp(min=1.0)).tolist()
            moments = Moments(mean, math.sqrt(max(0.0, square - mean * mean)))
            by = moments if counts[k] >= LEAST_ROWS else whole
            minibatch[name] = by.standardized(minibatch[name])
    pairs = zip(local_counts.tolist(), counts.tolist(), strict=True)
    return [mine / all_ if all_ else -1.0 for mine, all_ in pairs]


def _sums(column: Tensor) -> Tensor:
    """Return sum and sum of squares of a column (R,), as one tensor (2,) of float64."""
    wide = column.double()
    return torch.stack([wide.sum(), wide.square().sum()])
