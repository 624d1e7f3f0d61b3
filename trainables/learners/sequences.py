"""Rows for a policy with a memory: whole sequences, each with the memory it began with.

A sequence is cut where an episode begins, where a row is not to be learnt from, and after so many
steps. So none holds a reset, and every row that is learnt from is replayed just as
it was played. T steps, N environments, B rows, S sequences, M numbers of memory.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.rollout.batch import Array, Fragment, TrainBatch, rows


@dataclass(frozen=True)
class SequenceBatch(TrainBatch):
    """Sequence after sequence, each step after step."""

    memory: Array
    """(B, M) with which the policy saw each observation."""
    begins: NDArray[np.bool_]
    """(B,) True at the first step of a sequence."""

    @property
    def seq_lens(self) -> NDArray[np.int64]:
        """(S,) steps of each sequence."""
        return np.diff(np.append(np.flatnonzero(self.begins), len(self)))

    def columns(self) -> dict[str, Array]:
        """All sequences."""
        return self.replayed(np.arange(np.count_nonzero(self.begins)))

    def replayed(self, chosen: NDArray[np.int64]) -> dict[str, Array]:
        """Columns of these sequences, with ``positions`` and ``states`` as in `networks.Replay`."""
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
        """All sequences in a drawn order, in as many parts as minibatches of `size` rows.

        Parts are of about as many rows: sequences stay whole.
        """
        parts = -(-len(self) // size)
        order = stream.permutation(np.count_nonzero(self.begins))
        lengths = self.seq_lens[order]
        middles = np.cumsum(lengths) - lengths / 2
        part = (middles * parts / len(self)).astype(np.int64)
        chosen = [order[part == i] for i in range(parts)]
        return [self.replayed(one) for one in chosen if len(one)]


def in_sequences(fragment: Fragment, batch: TrainBatch, longest: int) -> SequenceBatch:
    """The valid rows of a fragment (T, N), environment after environment, cut into sequences.

    `batch` is its T·N rows, step after step; a sequence has at most `longest` of them.
    """
    order, begins = _cut(fragment, longest)
    columns = {name: column[order] for name, column in vars(batch).items()}
    return SequenceBatch(**columns, memory=rows(fragment.memory)[order], begins=begins)


class Judged(NamedTuple):
    """Rows of a fragment for the current networks: the valid ones and their successors."""

    batch: TrainBatch
    """B rows in sequences, each with a row more: the observation after its last step."""
    row: NDArray[np.int64]
    """(B,) of the fragment's T·N."""
    follows: NDArray[np.bool_]
    """(B,) it is the observation that came after that row."""


def to_judge(fragment: Fragment, longest: int) -> Judged:
    """The valid rows of a fragment with the column ``new_obs``, to be evaluated by other weights.

    For a policy with a memory the batch is one of sequences.
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
    return Judged(batch, row, follows)


def _cut(fragment: Fragment, longest: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The valid ones of the T·N rows, environment after environment, and where sequences begin."""
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
