"""Standardised advantages: by the rows of a minibatch, or of the whole batch if those are few.

A minibatch of one row has no deviation: standardised by itself its advantage is 0, and the actor
never changes. The advantages of two rows would always be 1 and -1, whatever the rewards were. So
minibatches with fewer than `LEAST_ROWS` rows get mean and deviation of the whole batch, in every
learner: the loss leaves such minibatches unchanged, and the learning loop
(`trainables.learners.sgd`) standardises them before a step. R rows.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)
#: Function that replaces tensors by their sums over all ranks.
Reduce: TypeAlias = Callable[[Sequence["Tensor"]], None]
#: Least number of rows that are standardised by their own moments. The relative error of the
#: deviation of R normal numbers is about 1/√(2(R - 1)): 27 % for 8 rows, 71 % for 2.
LEAST_ROWS = 8
#: Number added to a deviation before it divides.
SMALL = 1e-8


class Moments(NamedTuple):
    """Mean and standard deviation with which a column is standardised."""

    mean: float
    """Mean of the column."""
    deviation: float
    """Standard deviation of the column."""

    def standardized(self, column: Any) -> Any:
        """Return a column (R,), array or tensor, minus the mean and divided by the deviation."""
        return (column - self.mean) / (self.deviation + SMALL)


def moments(column: NDArray[Any], reduce: Reduce | None = None) -> Moments:
    """Return mean and deviation of a column (R,) over the rows of all ranks.

    `reduce` sums over ranks, None for one rank. A single row has no deviation: its moments are 0
    and 1, and a warning is logged.
    """
    wide = column.astype(np.float64)[None]
    with np.errstate(all="ignore"):  # the loss reports numbers that are not finite
        (mean,), count = means(wide, reduce)
        (variance,), _ = means(np.square(wide - mean), reduce)
    if count == 1:
        logger.warning(
            "this iteration has only one row to learn from, so its advantage is not normalised"
        )
        return Moments(0.0, 1.0)
    return Moments(float(mean), math.sqrt(variance))


def means(columns: NDArray[np.float64], reduce: Reduce | None) -> tuple[NDArray[np.float64], float]:
    """Return the means (C,) of columns (C, R) over the rows of all ranks, and the number of rows.

    `reduce` sums over ranks, None for one rank. Without rows the means are 0.
    """
    sums, count = columns.sum(axis=1), np.array([float(columns.shape[1])])
    if reduce is not None:
        import torch

        reduce([torch.from_numpy(sums), torch.from_numpy(count)])  # in place
    found: NDArray[np.float64] = sums / max(1.0, count[0])
    return found, float(count[0])
