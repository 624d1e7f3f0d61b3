"""Which rows of a batch follow each other, as far as its columns tell; what follows from that.

Rows of an episode follow each other where no column says otherwise, and one column at least says
that rows stand in order: ``new_obs``, ``t``, ``eps_id`` or ``unroll_id``. Where a batch has none of
them, its rows may be drawn from anywhere: each one stands alone, and the observation after it is
not known. R rows of a batch.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from trainables.offline.batches import Array, Columns

#: Columns by which rows are known to stand in order.
IN_ORDER = ("new_obs", "t", "eps_id", "unroll_id")
#: What to do where none of them is there.
REMEDY = "give it, or t, eps_id or unroll_id, by which rows are known to follow each other"
#: Columns that together say for certain which row comes after which.
CERTAIN = frozenset({"eps_id", "t", "agent_index"})


def add_following(columns: dict[str, Array], of_agents: bool) -> None:
    """Add ``goes_on`` (R,), whether a row is followed by the next one, and ``new_obs`` if known.

    Without ``new_obs`` a row that neither ended its episode nor is followed by the next one is left
    out: nobody knows what it led to.

    Args:
        columns: checked, with ``obs``, ``terminateds`` and ``truncateds``; they are changed.
        of_agents: an agent may not act in every step of its episode.
    """
    columns["goes_on"] = np.concatenate([_follows(columns, of_agents), [False]])
    if "new_obs" in columns or (not _in_order(columns) and not columns["terminateds"].all()):
        return
    columns["new_obs"] = np.concatenate([columns["obs"][1:], columns["obs"][-1:]])
    known = columns["goes_on"] | columns["terminateds"]
    # A row that leads to one that is left out is the last one of its stretch.
    columns["goes_on"][:-1] &= known[1:]
    columns.update({name: column[known] for name, column in columns.items()})


def _follows(columns: Mapping[str, Array], of_agents: bool) -> NDArray[np.bool_]:
    """(R - 1,) whether each row but the last is followed by the next one."""
    follows = ~(columns["terminateds"] | columns["truncateds"])[:-1]
    if not _in_order(columns):
        return np.zeros_like(follows)
    for name in ("eps_id", "agent_index"):
        if name in columns:
            follows &= np.diff(columns[name]) == 0
    same_unroll = np.zeros_like(follows)
    if "unroll_id" in columns:
        same_unroll = np.diff(columns["unroll_id"]) == 0
        if not columns.keys() >= CERTAIN:
            follows &= same_unroll
    if "t" in columns:
        further = np.diff(columns["t"])
        follows &= (further == 1) | (same_unroll & (further > 0) & of_agents)
    if "new_obs" in columns:
        follows &= _same_rows(columns["new_obs"][:-1], columns["obs"][1:])
    return follows


def _in_order(columns: Mapping[str, Array]) -> bool:
    return any(name in columns for name in IN_ORDER)


def _same_rows(one: Array, other: Array) -> NDArray[np.bool_]:
    """(R,) whether rows are equal."""
    same: NDArray[np.bool_] = (one == other).all(axis=tuple(range(1, one.ndim)))
    return same


def leads_to(one: Columns, other: Columns) -> bool:
    """Return whether the first row of `other` may follow the last row of `one`.

    Both are pieces of one episode of one agent, by their ``eps_id`` and ``agent_index``.
    """
    if "t" in one and "t" in other and one["t"][-1] + 1 != other["t"][0]:
        return False
    return np.array_equal(one["new_obs"][-1], other["obs"][0])


def pieces(batch: Columns) -> Iterator[Columns]:
    """Stretches of rows that follow each other."""
    edges = np.flatnonzero(~batch["goes_on"]) + 1
    for begin, end in zip([0, *edges[:-1]], edges, strict=True):
        yield {name: column[begin:end] for name, column in batch.items()}


def numbered(batch: Columns) -> Columns:
    """The batch with ``t`` and ``eps_id``: those that are left out count its pieces' rows."""
    begins = np.concatenate([[True], ~batch["goes_on"][:-1]])
    rows = np.arange(len(begins))
    counted = {
        "t": rows - np.maximum.accumulate(np.where(begins, rows, 0)),
        "eps_id": np.cumsum(begins, dtype=np.int64) - 1,
    }
    return {**counted, **batch}


def with_episodes(batches: Iterable[Columns]) -> Iterator[Columns]:
    """The batches, with an ``eps_id`` of its own for each piece whose file gives none.

    These numbers are below 0, as those that files give are not. Batches that stand in one file or
    group afterwards are so kept apart. A batch whose rows are not known to stand in order stays as
    it is.
    """
    first = -1
    for batch in batches:
        if "eps_id" in batch or "goes_on" not in batch or "new_obs" not in batch:
            yield batch
            continue
        own = first - numbered(batch)["eps_id"]
        first = int(own[-1]) - 1
        yield {**batch, "eps_id": own}
