"""What the scores of a trial's replicas count as together.

aggregate: mean      the arithmetic mean
aggregate: iqm       the interquartile mean: of the middle half, its ends counted by their share
aggregate: median    the middle one; of two middle ones their mean
aggregate: worst     the least where more is better, the greatest where less is
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from sweep.spec.score import Mode

Aggregate = Literal["mean", "iqm", "median", "worst"]


def combine(values: Sequence[float], aggregate: Aggregate, mode: Mode) -> float:
    """One number for the scores of at least one replica; NaN if one of them is NaN."""
    if any(math.isnan(value) for value in values):
        return math.nan
    if aggregate == "worst":
        return min(values) if mode == "max" else max(values)
    return _CENTRES[aggregate](sorted(values))


def _mean(ordered: Sequence[float]) -> float:
    return math.fsum(ordered) / len(ordered)


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[-1 - middle]) / 2


def interquartile_mean(ordered: Sequence[float]) -> float:
    """The mean of the middle half of ascending values.

    A value at an end of that half counts by the share of it that lies inside: of five values the
    second and the fourth count three quarters. Agarwal et al., Deep Reinforcement Learning at the
    Edge of the Statistical Precipice, 2021, section 4.3, recommend it for few runs.
    """
    low, high = len(ordered) / 4, len(ordered) * 3 / 4
    weights = [max(0.0, min(i + 1, high) - max(i, low)) for i in range(len(ordered))]
    weighted = (weight * value for weight, value in zip(weights, ordered, strict=True) if weight)
    return math.fsum(weighted) / math.fsum(weights)


_CENTRES: Mapping[Aggregate, Callable[[Sequence[float]], float]] = {
    "mean": _mean,
    "iqm": interquartile_mean,
    "median": _median,
}
