"""Count, mean and squared deviations of rows seen one batch after the other, mergeable.

Batches and whole statistics are merged with the parallel-variance formula (Chan et al. 1979). B
rows; everything is float64.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class RunningStat:
    """Count, mean and sum of squared deviations of all rows seen; each feature by itself."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.count = 0
        self.mean = np.zeros(shape)
        self.m2 = np.zeros(shape)

    def push(self, rows: Array) -> None:
        """Count a batch (B, *shape) in one vectorised step."""
        if len(rows) == 0:
            return
        batch = np.asarray(rows, dtype=np.float64)
        mean = batch.mean(axis=0)
        self._merge(len(batch), mean, np.square(batch - mean).sum(axis=0))

    def merge(self, other: "RunningStat") -> None:
        """Count everything that `other` has counted."""
        self._merge(other.count, other.mean, other.m2)

    def copy_from(self, other: "RunningStat") -> None:
        """Become equal to `other`."""
        self.count, self.mean, self.m2 = other.count, other.mean, other.m2

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self.mean = np.zeros_like(self.mean)
        self.m2 = np.zeros_like(self.m2)

    def std(self) -> Array:
        """Population standard deviation; 1 before the second row."""
        if self.count < 2:
            return np.ones_like(self.mean)
        return np.asarray(np.sqrt(self.m2 / self.count))

    def get_state(self) -> dict[str, Any]:
        """Entries ``count``, ``mean``, ``m2``."""
        return {"count": self.count, "mean": np.array(self.mean), "m2": np.array(self.m2)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.count = int(state["count"])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self.m2 = np.array(state["m2"], dtype=np.float64)

    def _merge(self, count: int, mean: Array, m2: Array) -> None:
        total = self.count + count
        if count == 0:
            return
        delta = mean - self.mean
        self.mean = self.mean + delta * (count / total)  # never in place: copies share these arrays
        self.m2 = self.m2 + m2 + np.square(delta) * (self.count * count / total)
        self.count = total
