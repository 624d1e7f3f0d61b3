"""Standardised advantages: by the rows of a minibatch, or of the whole batch where those are few.

A minibatch of one row has no deviation: standardised by itself its advantage is 0, and the actor
never moves. Of two rows the advantages are always 1 and -1, whatever was gained. So the mean and
deviation of a minibatch with fewer than `LEAST_ROWS` rows are those of the whole batch, in every
learner alike: the loss leaves such minibatches as they are, and the learning loop
(`trainables.learners.sgd`) standardises them before it takes a step. R rows.
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
#: Replaces tensors by their sums over all ranks.
Reduce: TypeAlias = Callable[[Sequence["Tensor"]], None]
#: Rows from which a minibatch is standardised by itself. The deviation of R normal numbers is off
#: by a share of about 1/√(2(R - 1)): by 27 % of 8 rows, by 71 % of 2.
LEAST_ROWS = 8
#: Below it a deviation counts as none; it is added to the divisor.
SMALL = 1e-8


class Moments(NamedTuple):
    """Mean and deviation by which a column is standardised."""

    mean: float
    deviation: float

    def standardized(self, column: Any) -> Any:
        """Return a column (R,), an array or a tensor, with this mean taken off, by the deviation.

        The columns from which the moments come then have mean 0 and deviation 1.
        """
        return (column - self.mean) / (self.deviation + SMALL)


def moments(column: NDArray[Any], reduce: Reduce | None = None) -> Moments:
    """Return the moments of a column (R,) over the rows of all ranks.

    A single row, which has no deviation, is left as it is; the log says so.
    """
    wide = column.astype(np.float64)[None]
    with np.errstate(all="ignore"):  # what is not finite is found in the loss
        (mean,), count = means(wide, reduce)
        (variance,), _ = means(np.square(wide - mean), reduce)
    if count == 1:
        logger.warning(
            "one row to learn from in this iteration: its advantage is not normalised, since one "
            "number has no deviation"
        )
        return Moments(0.0, 1.0)
    return Moments(float(mean), math.sqrt(variance))


def means(columns: NDArray[np.float64], reduce: Reduce | None) -> tuple[NDArray[np.float64], float]:
    """Return the means (C,) of columns (C, R) over the rows of all ranks, and how many those are.

    Without a row they are 0.
    """
    sums, count = columns.sum(axis=1), np.array([float(columns.shape[1])])
    if reduce is not None:
        import torch

        reduce([torch.from_numpy(sums), torch.from_numpy(count)])  # in place
    found: NDArray[np.float64] = sums / max(1.0, count[0])
    return found, float(count[0])
