"""Batches of sequences for policies with a memory; each sequence has its initial memory.

Sequences are cut where an episode begins, at rows that are not learnt from, and after a number of
steps. So no sequence contains a reset, and learning replays every row as it was played. T steps, N
environments, B rows, S sequences, M numbers of a memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.rollout.batch import Array, Fragment, TrainBatch, rows


@dataclass(frozen=True)
class SequenceBatch(TrainBatch):
    """A batch for a recurrent policy: sequences of steps, one sequence after the other."""

    memory: Array
    """State vectors (B, M) with which the policy saw each observation."""
    begins: NDArray[np.bool_]
    """Flags (B,), True for the first step of each sequence."""

    @property
    def seq_lens(self) -> NDArray[np.int64]:
        """Number of steps of each sequence, (S,)."""
        return np.diff(np.append(np.flatnonzero(self.begins), len(self)))

    def columns(self) -> dict[str, Array]:
        """Return the columns (B, …) of all sequences, in order, as `select_columns` does.

        Columns ``positions`` and ``states`` assign rows to sequences, for a recurrent network.
        """
        return self.select_columns(np.arange(np.count_nonzero(self.begins)))

    def select_columns(self, chosen: NDArray[np.int64]) -> dict[str, Array]:
        """Return the columns (B, …) of the sequences with indices `chosen`, in that order.

        In place of `memory` and `begins` there are ``positions`` (B,) and ``states`` (S, M), which
        assign rows to sequences as a `SequenceLayout` does.
        """
        lengths = self.seq_lens[chosen]
        firsts = np.flatnonzero(self.begins)[chosen]
        sequence = np.repeat(np.arange(len(chosen)), lengths)
        step = np.arange(len(sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        order = firsts[sequence] + step
        plain = {n: c for n, c in vars(self).items() if n not in ("memory", "begins")}
        return {
            **{name: column[order] for name, column in plain.items()},
            "positions": step * len(chosen) + sequence,
            "states": self.memory[firsts],
        }

    def minibatches(self, size: int, stream: np.random.Generator) -> list[dict[str, Array]]:
        """Return all sequences in a random order, divided into minibatches of about `size` rows.

        Numbers of rows differ, since sequences stay whole; minibatches without rows are left out.
        Columns are those of `select_columns`.
        """
        parts = -(-len(self) // size)
        order = stream.permutation(np.count_nonzero(self.begins))
        lengths = self.seq_lens[order]
        middles = np.cumsum(lengths) - lengths / 2
        part = (middles * parts / len(self)).astype(np.int64)
        chosen = [order[part == i] for i in range(parts)]
        return [self.select_columns(one) for one in chosen if len(one)]


def in_sequences(fragment: Fragment, batch: TrainBatch, longest: int) -> SequenceBatch:
    """Cut the valid rows of a fragment (T, N), environment by environment, into sequences.

    Args:
        batch: the T·N rows of the fragment, step by step.
        longest: largest number of steps of a sequence.
    """
    order, begins = _cut(fragment, longest)
    columns = {name: column[order] for name, column in vars(batch).items()}
    return SequenceBatch(**columns, memory=rows(fragment.memory)[order], begins=begins)


class RowsToEvaluate(NamedTuple):
    """Rows of a fragment, and observations after them, to be evaluated by the present networks."""

    batch: TrainBatch
    """Valid rows in sequences, each followed by the observation after its last step; all columns
    but observations, actions and states are 0."""
    row: NDArray[np.int64]
    """Index (B,) of each row among the T·N rows of the fragment, step by step."""
    is_next_observation: NDArray[np.bool_]
    """Flags (B,): True if a row is only the observation after the fragment's row `row`."""


def rows_to_evaluate(fragment: Fragment, longest: int) -> RowsToEvaluate:
    """Return the valid rows of a fragment and the observations after them, as one batch.

    For a policy with a memory the batch is a `SequenceBatch` of at most `longest` steps. The
    fragment (T, N) has the column ``new_obs``.
    """
    order, begins = _cut(fragment, longest)
    ends = np.append(np.flatnonzero(begins), len(order))[1:]
    row = np.insert(order, ends, order[ends - 1])
    follows = np.insert(np.zeros(len(order), dtype=np.bool_), ends, True)
    observations = rows(fragment.observations)[row]
    observations[follows] = rows(fragment.new_obs)[row[follows]]
    none = np.zeros(len(row), dtype=np.float32)
    actions = rows(fragment.actions)[row]
    columns = {"logp": none, "values": none, "advantages": none, "returns": none}
    batch = TrainBatch(observations=observations, actions=actions, **columns)
    if "memory" in fragment.declared:
        remembered = rows(fragment.memory)[row]
        begins = np.insert(begins, ends, False)
        batch = SequenceBatch(**vars(batch), memory=remembered, begins=begins)
    return RowsToEvaluate(batch, row, follows)


def _cut(fragment: Fragment, longest: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return indices (B,) of a fragment's valid rows by environment, and flags of sequence starts.

    A sequence has at most `longest` steps.
    """
    steps, envs = fragment.valid.shape
    order = np.arange(steps * envs).reshape(steps, envs).T.reshape(-1)
    fresh = np.ones((steps, envs), dtype=np.bool_)
    over = fragment.terminated | fragment.truncated | ~fragment.valid
    fresh[1:] = over[:-1]
    flat = rows(fresh)[order]
    begun = np.maximum.accumulate(np.where(flat, np.arange(len(flat)), 0))
    begins = (np.arange(len(flat)) - begun) % longest == 0
    kept = rows(fragment.valid)[order]
    return order[kept], begins[kept]
