"""Statistics of a few noisy scores and the settings behind them: intervals and comparisons.

Scores come from independent training runs that differ only in their seeds. Levels are probabilities
from 0 to 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

#: Confidence level of all displayed intervals.
LEVEL = 0.95
#: Number of resamples of a bootstrap.
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """Estimate with its confidence interval at the level `LEVEL`."""

    value: float
    """Estimate, such as a mean or a probability."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""


@dataclass(frozen=True)
class Spread:
    """Spread of scores under different seeds, estimated from one or several settings."""

    deviation: float
    """Standard deviation of one score."""
    freedom: int
    """Degrees of freedom of the estimate: number of scores minus number of means."""


def total(values: Iterable[float]) -> float:
    """Return the sum of the values, rounded once; infinite if it exceeds the range of floats."""
    terms = list(values)
    try:
        return math.fsum(terms)
    except OverflowError:
        return math.inf if math.fsum(term / len(terms) for term in terms) > 0 else -math.inf


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value; finite if all values are finite."""
    found = total(values) / len(values)
    return weighted_mean(values, [1.0] * len(values)) if math.isinf(found) else found


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the mean of values with these weights, whose sum must be positive.

    Values of weight 0 do not count, even if they are not finite. Raises ValueError for different
    numbers of values and weights.
    """
    whole = math.fsum(weights)
    return math.fsum(w / whole * v for w, v in zip(weights, values, strict=True) if w)


def t_quantile(level: float, freedom: int) -> float:
    """Return the quantile at `level` (0 to 1) of Student's t with `freedom` degrees."""
    from scipy import special

    return float(special.stdtrit(freedom, level))


def pooled_spread(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Return the spread of scores within groups, assumed equal in all groups.

    Returns None if no group has two scores. It is infinite if the distance of scores exceeds the
    range of floats. This is the residual deviation of a one-way layout (Fisher, Statistical Methods
    for Research Workers, 1925, ch. 7).
    """
    several = [(group, mean(group)) for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group, _ in several)
    if not freedom:
        return None
    distance = math.hypot(*(x - middle for group, middle in several for x in group))
    return Spread(distance / math.sqrt(freedom), freedom)


def confidence_bound(values: Sequence[float], level: float, upper: bool) -> float:
    """Return the one-sided Student-t bound of the mean, the upper or else the lower one.

    `level` is the confidence, 0 to 1. Raises ValueError for fewer than two values.
    """
    spread = pooled_spread([values])
    if spread is None:
        raise ValueError("one score has no spread")
    reach = t_quantile(level, spread.freedom) * spread.deviation / math.sqrt(len(values))
    return mean(values) + (reach if upper else -reach)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of at least two scores with its two-sided Student-t interval at `LEVEL`.

    Raises ValueError for fewer.
    """
    tail = (1.0 + LEVEL) / 2.0
    low, high = (confidence_bound(values, tail, upper) for upper in (False, True))
    return Interval(mean(values), low, high)


def bootstrap_interval(
    values: Sequence[float], estimate: Callable[[Sequence[float]], float], seed: int
) -> Interval:
    """Return an estimate from some scores with its percentile bootstrap interval at `LEVEL`.

    `estimate` is a function of sorted scores. `seed` determines the `RESAMPLES` resamples. Agarwal
    et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, 2021, section 4.1,
    with one task.
    """
    from trainables.core import rng

    stream = rng.generator(seed, "bootstrap")
    count = len(values)
    drawn = stream.integers(count, size=(RESAMPLES, count))
    found = sorted(estimate(sorted(values[i] for i in row)) for row in drawn.tolist())
    tail = (1.0 - LEVEL) / 2.0
    low, high = found[int(tail * RESAMPLES)], found[math.ceil((1.0 - tail) * RESAMPLES) - 1]
    return Interval(estimate(sorted(values)), low, high)


def improvement(better: Sequence[float], worse: Sequence[float]) -> Interval:
    """Return the probability that a run of `better` beats one of `worse`, with its interval.

    Both are scores of runs, at least one each; higher is better, and a tie counts as half. The
    interval is at `LEVEL`. The estimate is the Mann-Whitney statistic (Agarwal et al. 2021, section
    4.3: probability of improvement) with the interval of Newcombe, Confidence intervals for an
    effect size measure based on the Mann-Whitney statistic, part 2, 2006, method 5. It is correct
    for few runs, too, where a bootstrap returns [1, 1] as soon as no runs overlap.
    """
    wins = sum((x > y) + 0.5 * (x == y) for x in better for y in worse)
    pairs = len(better) * len(worse)
    share = wins / pairs
    runs = (len(better) + len(worse)) / 2
    z = t_quantile((1.0 + LEVEL) / 2.0, 10**9)

    def too_far(theta: float) -> bool:
        """Return whether a true share `theta` is too far from the observed share."""
        return abs(theta - share) > z * math.sqrt(_variance(theta, runs, pairs))

    return Interval(share, _edge(share, 0.0, too_far), _edge(share, 1.0, too_far))


def _variance(theta: float, runs: float, pairs: int) -> float:
    """Return the variance of the Mann-Whitney statistic if its true value is `theta`.

    Hanley and McNeil, 1982. `runs` is the mean size of the two samples, `pairs` the product of
    their sizes.
    """
    overlap = (1.0 - theta) / (2.0 - theta) + theta / (1.0 + theta)
    return theta * (1.0 - theta) * (1.0 + (runs - 1.0) * overlap) / pairs


def _edge(inside: float, outside: float, too_far: Callable[[float], bool]) -> float:
    """Return the point between `inside` and `outside` from which on `too_far` is true.

    All are in [0, 1]. If it is true nowhere, the point is `outside`, up to rounding.
    """
    for _ in range(60):
        middle = (inside + outside) / 2.0
        inside, outside = (inside, middle) if too_far(middle) else (middle, outside)
    return inside
