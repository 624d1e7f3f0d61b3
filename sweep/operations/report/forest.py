"""A random forest over the unit cube, and the functional analysis of variance of its predictions.

Hutter, Hoos and Leyton-Brown, An Efficient Approach for Assessing Hyperparameter Importance, 2014:
a tree is constant on boxes, so the average effect of a setting over all others, and its share of
the variance, can be computed exactly. n rows, d columns, L leaves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Number of trees of a forest.
TREES = 32
#: Maximum number of rows from which a tree is grown.
MOST_ROWS = 800


@dataclass(frozen=True)
class Tree:
    """A regression tree: a partition of the unit cube into boxes, each with one predicted value."""

    low: Array
    """Lower corners of the boxes, (L, d)."""
    high: Array
    """Upper corners of the boxes, (L, d)."""
    value: Array
    """Predicted value in each box, (L,), with mean 0 over the cube."""

    @property
    def volume(self) -> Array:
        """Volume of each box, (L,)."""
        volume: Array = np.prod(self.high - self.low, axis=1)
        return volume

    @property
    def variance(self) -> float:
        """Variance of the prediction over the cube."""
        return float(self.volume @ self.value**2)

    def marginal(self, columns: Sequence[int]) -> tuple[list[Array], Array]:
        """Return the prediction averaged over all columns except `columns`.

        It is constant on cells. Returns the edges of the cells along each of `columns`, and their
        values, an array with one axis for each of `columns`.
        """
        edges = [np.unique([*self.low[:, c], *self.high[:, c]]) for c in columns]
        sums = np.zeros([len(edge) for edge in edges])
        width = np.prod(self.high[:, columns] - self.low[:, columns], axis=1)
        weight = self.volume / width * self.value
        corners = [
            [np.searchsorted(edge, side[:, c]) for side in (self.low, self.high)]
            for c, edge in zip(columns, edges, strict=True)
        ]
        for corner in np.ndindex(*(2,) * len(columns)):
            place = tuple(corners[axis][end] for axis, end in enumerate(corner))
            np.add.at(sums, place, weight * (-1.0) ** sum(corner))
        for axis in range(len(columns)):
            sums = np.cumsum(sums, axis=axis)
        return edges, sums[(slice(-1),) * len(columns)]

    def explained(self, columns: Sequence[int]) -> float:
        """Return the variance over the cube of the `marginal` prediction over `columns`.

        For a pair it includes the effect of each column alone.
        """
        edges, values = self.marginal(columns)
        cells = np.diff(edges[0])
        for edge in edges[1:]:
            cells = np.multiply.outer(cells, np.diff(edge))
        return float(np.sum(cells * values**2))


@dataclass(frozen=True)
class Forest:
    """Regression trees, and how well they predict rows that they were not grown from."""

    trees: list[Tree]
    """Trees whose predictions are averaged."""
    skill: float
    """Share of the variance of unseen rows that is predicted (R²), at least 0."""

    @property
    def variance(self) -> float:
        """Mean of the trees' variances over the cube."""
        return float(np.mean([tree.variance for tree in self.trees]))

    def shares(self, width: int) -> dict[tuple[int, ...], float]:
        """Return the share of the variance of each of `width` columns, and of pairs beyond both.

        A key is a tuple of one or two columns. Pairs are of the `_PAIRED` columns with the largest
        shares. Returns {} if the forest predicts the same everywhere.
        """
        whole = self.variance
        if whole <= 0:
            return {}

        def share(*columns: int) -> float:
            """Return the share of the variance that these columns explain together, 0 to 1."""
            return float(np.mean([tree.explained(columns) for tree in self.trees])) / whole

        found: dict[tuple[int, ...], float] = {(c,): share(c) for c in range(width)}
        main = sorted(range(width), key=lambda c: -found[c,])[:_PAIRED]
        for one, other in combinations(sorted(main), 2):
            found[one, other] = max(0.0, share(one, other) - found[one,] - found[other,])
        return found

    def surface(self, columns: Sequence[int], points: Array) -> Array:
        """Return the prediction averaged over all columns except `columns`, on a grid of `points`.

        The points (P,) are from 0 to 1. The result has one axis of length P for each of `columns`.
        """
        total = np.zeros([len(points)] * len(columns))
        for tree in self.trees:
            edges, values = tree.marginal(columns)
            cells = [
                np.clip(np.searchsorted(edge, points, side="right") - 1, 0, len(edge) - 2)
                for edge in edges
            ]
            total += values[np.ix_(*cells)]
        return total / len(self.trees)


#: Number of columns, those with the largest effects, whose pairs are computed.
_PAIRED = 6


def grow(x: Array, y: Array, stream: np.random.Generator, trees: int = TREES) -> Forest:
    """Return a forest of regression trees (Breiman, Random Forests, 2001).

    `x` (n, d) has coordinates from 0 to 1, `y` (n,) the targets. From the stream are drawn the rows
    of each tree, up to `MOST_ROWS` with replacement, and the columns that each split may use. The
    skill is measured on rows that trees did not draw; it is 0 without such rows.
    """
    count = len(y)
    sums, counts = np.zeros(count), np.zeros(count)
    grown = []
    for _ in range(trees):
        drawn = stream.integers(count, size=min(count, MOST_ROWS))
        unseen = np.setdiff1d(np.arange(count), drawn)
        leaves = list(_leaves(x, y, drawn, unseen, stream))
        value = np.array([leaf.value for leaf in leaves])
        tree = Tree(
            np.array([leaf.low for leaf in leaves]), np.array([leaf.high for leaf in leaves]), value
        )
        grown.append(Tree(tree.low, tree.high, value - tree.volume @ value))
        for leaf in leaves:
            sums[leaf.unseen] += leaf.value
            counts[leaf.unseen] += 1
    known = counts > 0
    error = y[known] - sums[known] / counts[known]
    spread = float(np.var(y[known])) if known.any() else 0.0
    skill = 1.0 - float(np.mean(error**2)) / spread if spread > 0 else 0.0
    return Forest(grown, max(0.0, skill))


@dataclass
class _Leaf:
    """A box of a tree that grows, with the rows inside it."""

    rows: NDArray[np.intp]
    """Indices of the rows from which the tree grows."""
    unseen: NDArray[np.intp]
    """Indices of the other rows, which measure how well the tree predicts."""
    low: Array
    """Lower bounds of the box, one per column."""
    high: Array
    """Upper bounds of the box, one per column."""
    value: float = 0.0
    """Mean target of `rows`, which the leaf predicts."""


def _leaves(
    x: Array,
    y: Array,
    drawn: NDArray[np.intp],
    unseen: NDArray[np.intp],
    stream: np.random.Generator,
) -> Iterator[_Leaf]:
    """Grow one tree from the rows `drawn`, and yield its leaves, each with its rows of `unseen`.

    The stream draws the columns that each split may use.
    """
    width = x.shape[1]
    least = max(2, len(drawn) // 100)
    todo = [_Leaf(drawn, unseen, np.zeros(width), np.ones(width))]
    while todo:
        box = todo.pop()
        found = _split(x, y, box.rows, least, stream)
        if found is None:
            box.value = float(np.mean(y[box.rows]))
            yield box
            continue
        column, at = found
        for below in (True, False):
            low, high = box.low.copy(), box.high.copy()
            (high if below else low)[column] = at
            rows, others = (
                part[(x[part, column] <= at) == below] for part in (box.rows, box.unseen)
            )
            todo.append(_Leaf(rows, others, low, high))


def _split(
    x: Array, y: Array, rows: NDArray[np.intp], smallest: int, stream: np.random.Generator
) -> tuple[int, float] | None:
    """Return column and threshold of the split that reduces the variance most.

    Rows up to the threshold are one part, the others the other; each has at least `smallest` rows.
    The stream draws five sixths of the columns, which may be used. Returns None if no split of them
    reduces the variance.
    """
    count, width = len(rows), x.shape[1]
    if count < 2 * smallest:
        return None
    columns = stream.permutation(width)[: max(1, -(-width * 5 // 6))]
    values = x[np.ix_(rows, columns)]
    order = np.argsort(values, axis=0, kind="stable")
    values = np.take_along_axis(values, order, axis=0)
    targets = y[rows] - np.mean(y[rows])
    sums = np.cumsum(targets[order], axis=0)[smallest - 1 : count - smallest]
    left = np.arange(smallest, count - smallest + 1)[:, None]
    gain = sums**2 / left + sums**2 / (count - left)
    gain[values[smallest - 1 : count - smallest] >= values[smallest : count - smallest + 1]] = -1.0
    best = int(np.argmax(gain))
    place, column = divmod(best, gain.shape[1])
    if gain[place, column] <= 1e-12:
        return None
    at = (values[place + smallest - 1, column] + values[place + smallest, column]) / 2
    return int(columns[column]), float(at)
