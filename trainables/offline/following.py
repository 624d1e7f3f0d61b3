"""The order of a batch's rows as its columns show it, and consequences of that order.

Rows of an episode follow each other unless a column says otherwise, provided that one column at
least shows the order of rows: ``new_obs``, ``t``, ``eps_id`` or ``unroll_id``. In a batch with none
of them rows may be drawn from anywhere: each row stands alone, and the observation after it is not
known. R rows of a batch.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from trainables.offline.batches import Array, Columns

#: Columns that show the order of rows.
IN_ORDER = ("new_obs", "t", "eps_id", "unroll_id")
#: Advice for batches with none of them.
REMEDY = "write this column, or t, eps_id or unroll_id, which show the order of the rows"
#: Columns that together determine the order of rows.
CERTAIN = frozenset({"eps_id", "t", "agent_index"})


def add_following(columns: dict[str, Array], is_multi_agent: bool) -> None:
    """Add a column ``has_next`` (R,), True where the next row is the next step, and ``new_obs``.

    Checked `columns` are changed in place; they have at least ``obs``, ``terminateds`` and
    ``truncateds``. Without ``new_obs``, rows that are not terminated and not followed by the next
    row are removed, since the observation after them is not known. If there is no column of
    `IN_ORDER`, such as ``t``, ``has_next`` is False, and ``new_obs`` is added only if all rows are
    terminated.
    `is_multi_agent` is True if an agent may not act in every step of its episode.
    """
    columns["has_next"] = np.concatenate([_follows(columns, is_multi_agent), [False]])
    if "new_obs" in columns or (not _in_order(columns) and not columns["terminateds"].all()):
        return
    columns["new_obs"] = np.concatenate([columns["obs"][1:], columns["obs"][-1:]])
    known = columns["has_next"] | columns["terminateds"]
    # A row before a removed one is the last of its stretch.
    columns["has_next"][:-1] &= known[1:]
    columns.update({name: column[known] for name, column in columns.items()})


def _follows(columns: Mapping[str, Array], is_multi_agent: bool) -> NDArray[np.bool_]:
    """Return flags (R - 1,), True where the next row is the next step of the same episode.

    It is judged by the numbers of episode, agent, unroll and step, and by the observations, as far
    as there are such columns. All are False if there is no column of `IN_ORDER`.
    """
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
        follows &= (further == 1) | (same_unroll & (further > 0) & is_multi_agent)
    if "new_obs" in columns:
        follows &= _equal_rows(columns["new_obs"][:-1], columns["obs"][1:])
    return follows


def _in_order(columns: Mapping[str, Array]) -> bool:
    """Return whether there is a column that shows the order of rows, one of `IN_ORDER`."""
    return any(name in columns for name in IN_ORDER)


def _equal_rows(rows: Array, other: Array) -> NDArray[np.bool_]:
    """Return flags (R,), True where a row equals the row of `other` with the same index."""
    same: NDArray[np.bool_] = (rows == other).all(axis=tuple(range(1, rows.ndim)))
    return same


def is_followed_by(columns: Columns, other: Columns) -> bool:
    """Return whether the first row of `other` may be the next step after the last row of `columns`.

    Both are pieces of one agent's episode, by their ``eps_id`` and ``agent_index``. The step
    numbers, if there are any, and the observations decide.
    """
    if "t" in columns and "t" in other and columns["t"][-1] + 1 != other["t"][0]:
        return False
    return np.array_equal(columns["new_obs"][-1], other["obs"][0])


def pieces(batch: Columns) -> Iterator[Columns]:
    """Yield the stretches of a batch in which each row is the next step of the one before.

    They are shown by its column ``has_next``.
    """
    edges = np.flatnonzero(~batch["has_next"]) + 1
    for begin, end in zip([0, *edges[:-1]], edges, strict=True):
        yield {name: column[begin:end] for name, column in batch.items()}


def with_numbers(batch: Columns) -> Columns:
    """Return the batch with the columns ``t`` and ``eps_id``, counted if missing.

    Each stretch of rows that follow each other (``has_next``) is then an episode; both count from
    0.
    """
    begins = np.concatenate([[True], ~batch["has_next"][:-1]])
    rows = np.arange(len(begins))
    counted = {
        "t": rows - np.maximum.accumulate(np.where(begins, rows, 0)),
        "eps_id": np.cumsum(begins, dtype=np.int64) - 1,
    }
    return {**counted, **batch}


def with_episodes(batches: Iterable[Columns]) -> Iterator[Columns]:
    """Yield batches that have a column ``eps_id``: a new number for each piece without one.

    These numbers are negative, unlike those in files, so batches that are later in one file or
    group stay apart. A batch without ``has_next`` or ``new_obs`` is not changed.
    """
    first = -1
    for batch in batches:
        if "eps_id" in batch or "has_next" not in batch or "new_obs" not in batch:
            yield batch
            continue
        own = first - with_numbers(batch)["eps_id"]
        first = int(own[-1]) - 1
        yield {**batch, "eps_id": own}
