"""Densities over a space, estimated from some of its points: a product of kernels around each.

A point has one coordinate for each dimension: a quantile of an ordered parameter, 0 to 1; the index
of a choice; NaN if the parameter is inactive, which counts as being anywhere. Arrays are (n, d) for
n points in d dimensions.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Points = NDArray[np.float64]

#: Minimum width of a kernel.
LEAST = 1e-3
#: Maximum number of distances that are computed at once: their arrays stay below 128 KiB, from
#: which on the C library asks the system for new memory each time.
_AT_ONCE = 16_000


@dataclass(frozen=True)
class Density:
    """Probability density over a space: the mean of kernels around some points.

    In an ordered dimension a kernel is a normal distribution truncated to 0 to 1; among k choices
    the point's own has 1 - width and each other width / (k - 1) (Aitchison and Aitken, 1976).
    """

    points: Points
    """Centres of the kernels, (n, d): the index of a choice, else a quantile from 0 to 1; NaN if
    the parameter is inactive."""
    counts: tuple[int, ...]
    """Number of choices of each dimension; 0 for an ordered one."""
    widths: NDArray[np.float64]
    """Kernel width of each dimension, (d,): a standard deviation in quantiles, or a probability for
    choices."""

    @classmethod
    def fit_to(cls, points: Points, counts: tuple[int, ...]) -> "Density":
        """Return the density around points (n, d), which are coded as the field `points`.

        Its widths follow the normal reference rule (Falkner et al. 2018), without NaN. `counts` has
        the number of choices of each dimension; 0 for an ordered one.
        """
        columns = zip(points.T, counts, strict=True)
        widths = [_width(column[~np.isnan(column)], len(counts), k) for column, k in columns]
        return cls(points, counts, np.array(widths))

    def densities(self, places: Points) -> NDArray[np.float64]:
        """Return the density at each of `places` (m, d), as (m,)."""
        heights = np.ones(len(self.points))
        for d, (count, width) in enumerate(zip(self.counts, self.widths, strict=True)):
            if not count:
                there = self.points[:, d]
                heights /= np.where(np.isnan(there), 1.0, _scale(there, width))
        rows = max(1, _AT_ONCE // len(self.points))
        parts = [self._part(places[n : n + rows], heights) for n in range(0, len(places), rows)]
        return np.concatenate(parts)

    def _part(self, places: Points, heights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the density (m,) at some places (m, d), given the greatest value of each kernel.

        The exponents of all ordered dimensions are added, so that one exponential is computed.
        """
        kernels = np.tile(heights, (len(places), 1))
        squares = np.zeros_like(kernels)
        for d, (count, width) in enumerate(zip(self.counts, self.widths, strict=True)):
            wanted, centres = places[:, d, None], self.points[:, d]
            absent = np.isnan(centres)
            if count:
                factors = np.where(wanted == centres, 1 - width, width / max(count - 1, 1))
                kernels *= np.where(absent, 1.0 / count, factors)
            else:
                distances = wanted / width - centres / width
                distances[:, absent] = 0.0
                squares += np.square(distances, out=distances)
        squares *= -0.5
        kernels *= np.exp(squares, out=squares)
        densities: NDArray[np.float64] = kernels.mean(axis=1)
        return densities

    def draw(self, stream: np.random.Generator, number: int, factor: float) -> Points:
        """Return points (number, d) drawn from the density with kernels `factor` times as wide.

        They are drawn from `stream`. A coordinate in which a kernel's point is inactive is drawn
        uniformly.
        """
        drawn = self.points[stream.integers(len(self.points), size=number)].copy()
        for d, (count, width) in enumerate(zip(self.counts, self.widths, strict=True)):
            column, chance = drawn[:, d], stream.random((2, number))
            if count:
                anywhere = np.isnan(column) | (chance[0] < min(width * factor, 1.0))
                drawn[:, d] = np.where(anywhere, np.floor(chance[1] * count), column)
            else:
                inside = _cut_normal(column, width * factor, chance[1])
                drawn[:, d] = np.where(np.isnan(column), chance[1], inside)
        return drawn


def _width(values: NDArray[np.float64], dimensions: int, count: int) -> float:
    """Return the kernel width of one dimension for its known values, by the normal reference rule.

    It is at least `LEAST` and at most 1 (1 - 1 / k for k choices), and the maximum if fewer than
    two values are known. `count` is its number of choices, 0 if it is ordered, and `dimensions` the
    number of all dimensions.
    """
    if len(values) < 2:
        return 1.0 if count == 0 else 1 - 1 / count
    rule = 1.06 * float(np.std(values)) * len(values) ** (-1 / (4 + dimensions))
    return float(min(max(rule, LEAST), 1 - 1 / count if count else 1.0))


def _scale(middle: NDArray[np.float64], width: float) -> NDArray[np.float64]:
    """Return the integrals (m,) of exp(-z² / 2) from 0 to 1 around the centres `middle` (m,).

    z is the distance from the centre in units of `width`.
    """
    mass = ndtr((1 - middle) / width) - ndtr(-middle / width)
    found: NDArray[np.float64] = mass * width * np.sqrt(2 * np.pi)
    return found


def _cut_normal(middle: Points, width: float, quantile: Points) -> Points:
    """Return values at quantiles of normal distributions around `middle`, truncated to 0 to 1.

    `quantile` are the quantiles, 0 to 1. All distributions have the standard deviation `width`
    before truncation.
    """
    low, high = ndtr(-middle / width), ndtr((1 - middle) / width)
    found: Points = np.clip(middle + width * ndtri(low + quantile * (high - low)), 0.0, 1.0)
    return found
