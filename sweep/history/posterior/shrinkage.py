"""Expectations of settings from scores with the luck taken off, as a function of arrays.

A score is the mean of all settings, plus the effect of the setting, plus the effect of the seed,
plus the error of its evaluation. The expectation of a setting is what is left of its score when
the last two are taken off it: empirical Bayes (Efron and Morris, Stein's Estimation Rule and Its
Competitors, 1973).

1. Scores are compared at *levels*: the goals at which trials pause, and the end.
2. From each level to the next there is a regression over the trials that reached both, under the
   seeds that they had at both. Trials are promoted by their score at the lower level, so the
   regression holds for those that were not, too (Anderson, Maximum Likelihood Estimates for a
   Multivariate Normal Distribution when some Observations are Missing, 1957). It gives the mean and
   the variance that scores would have at each level, had all trials reached it, each under one
   seed; and it takes an expectation from its level to the end.
3. The share of this variance that is between seeds of one setting is pooled over the settings with
   several seeds. The mean of n seeds has an n-th of their variance, so the variance under one seed
   depends on the share, as this does on that; both are found together. The share is at least that
   between evaluations, which neighbours on a curve show. Before there is much to pool it is near
   `SHARE`.
4. A score of n seeds gives way to the mean as its noise, seeds and evaluations over n, compares
   with the variance between settings. Settings with several seeds have a noise of their own, and
   among each other a mean and a variance of their own, by a few rounds of EM.

The error is the deviation of what is not known: the setting's effect, the mean that scores give way
to, the regressions, the share, and training that no trial has had yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int_]

#: The share of seeds and evaluations in the variance between trainings, and the degrees of freedom
#: that it counts for: its mean over many tasks of reinforcement learning, and how far these differ.
SHARE, SHARE_FREEDOM = 0.3, 2.0
LEAST_SHARE, GREATEST_SHARE = 0.02, 0.9
#: Halvings of the bounds of the share.
HALVINGS = 20
#: Degrees of freedom that the noise of all settings counts for in that of one.
NOISE_FREEDOM = 2.0
#: Trials that a slope of 1 from level to level counts for.
PAIRS = 3.0
#: Trials without a change of the mean from level to level, which those that reached both join.
STILL = 1.0
#: The share of new variance from level to level, and the trials that it counts for.
NEW, NEW_PAIRS = 0.3, 2.0
#: The steepest slope from level to level, and squared deviations from its middle that count.
STEEPEST, FURTHEST = 10.0, 1e6
#: Settings that the mean of all counts for among those with several seeds, and rounds of EM.
ALL, ROUNDS = 1.5, 10
#: Variance for all of a training that no trial has had yet, by the variance of scores.
UNSEEN = 0.5
_TINY = 1e-300


class Scores(NamedTuple):
    """Measured scores, a row for each trial; greater is better, and none is much above 1."""

    at: Floats
    """Score at each level, ascending, (trials, levels); NaN if the trial did not reach it."""
    alike: Floats
    """The same of the seeds that the trial had at the level before."""
    seeds: Floats
    """The number of each trial's seeds at each level."""
    last: Whole
    """The column of each trial's last score."""
    squares: Floats
    """The sum of squares of its seeds' distances from their mean there."""
    evaluations: Floats
    """The variance of each score through its evaluation."""


@dataclass(frozen=True)
class Estimates:
    """Estimates from scores; arrays have an entry for each trial."""

    value: Floats
    """The expected score under a new seed at the end of training."""
    error: Floats
    noise: Floats
    """The variance of one further seed's score."""
    deviation: float
    """Standard deviation between trainings at the last level."""
    share: float
    """The share of the variance that is between seeds, 0 to 1."""
    evaluations: float
    """The share of the variance that is between evaluations, 0 to 1."""

    def times(self, exponent: int) -> "Estimates":
        """Return them in units that are so many powers of two smaller."""
        with np.errstate(over="ignore"):  # they may be more than a float can be
            return replace(
                self,
                value=np.ldexp(self.value, exponent),
                error=np.ldexp(self.error, exponent),
                noise=np.ldexp(self.noise, 2 * exponent),
                deviation=float(np.ldexp(self.deviation, exponent)),
            )


def estimate(scores: Scores, unseen: float) -> Estimates:
    """Shrink the scores; no trial has had the last share `unseen` of a training yet."""
    last, moments = scores.last, _moments(scores)
    seeds, own = _own(scores.seeds, last), _own(scores.at, last)
    found = _Squares.of(scores.squares, seeds - 1, last, scores.at.shape[1])
    levels, share = _parted(moments, found)
    variance = np.maximum(levels.variance[last], _TINY)
    evaluations = min(float(np.median(scores.evaluations / variance)), GREATEST_SHARE)
    if evaluations > share:
        share, levels = evaluations, _levels(moments, evaluations)
        variance = np.maximum(levels.variance[last], _TINY)
    own_freedom = NOISE_FREEDOM + seeds - 1
    noise = (NOISE_FREEDOM * share * variance + scores.squares) / own_freedom
    shrunk = _shrunk(levels, share, own, last, seeds, noise)
    # Few seeds may all be lucky, and so may few trials: wider, as Student's t is.
    few = np.where(seeds > 1, (own_freedom + 1) / (own_freedom - 1), 1.0)
    few *= (len(last) + 1) / (len(last) - 1)
    # How the expectation moves with the share, which is known to within its own error.
    lean = np.where(seeds > 1, shrunk.kept / seeds, 1.0) * (own - levels.mean[last])
    of_share = lean**2 * share**2 * 2 / (SHARE_FREEDOM + float(found.freedom.sum()))
    spread = (shrunk.spread + of_share) * few + (1 - shrunk.kept) ** 2 * shrunk.doubt
    value, spread = _to_the_end(levels, share, shrunk.value, spread, last)
    whole = float(levels.variance[-1])
    error = np.sqrt(spread + whole * UNSEEN * unseen)
    return Estimates(value, error, noise, float(np.sqrt(whole)), share, evaluations)


def _own(of_levels: Floats, last: Whole) -> Floats:
    """Return the entry of each row at the last level of its trial."""
    found: Floats = of_levels[np.arange(len(last)), last]
    return found


class _Squares(NamedTuple):
    """Squares of seeds about the mean of their trial, level by level of the trials' last."""

    sums: Floats
    freedom: Floats
    """Degrees of freedom."""

    @classmethod
    def of(cls, squares: Floats, freedom: Floats, last: Whole, levels: int) -> "_Squares":
        """Return the sums over all trials."""
        sums, counts = np.zeros(levels), np.zeros(levels)
        np.add.at(sums, last, squares)
        np.add.at(counts, last, freedom)
        return cls(sums, counts)

    def by(self, variance: Floats, share: float) -> float:
        """Return how large they are, by what they should be with this share of the variance."""
        seen = float((self.sums / np.maximum(variance, _TINY)).sum())
        due = share * (SHARE_FREEDOM + float(self.freedom.sum()))
        return (SHARE * SHARE_FREEDOM + seen) / due


class _Pairs(NamedTuple):
    """Trials that reached a level and the one before, under the same seeds at both."""

    trials: int = 0
    lower: float = 0.0
    upper: float = 0.0
    """The means at the one before, and at the level."""
    along: float = 0.0
    together: float = 0.0
    across: float = 0.0
    """Sums about these means: squares at the one before, products, squares at the level."""
    part: float = 1.0
    """The mean of 1 / n, of the n seeds of each."""


class _Fresh(NamedTuple):
    """Trials that began at a level, so that nothing selected them."""

    trials: int = 0
    mean: float = 0.0
    variance: float = 0.0
    part: float = 1.0
    """The mean of 1 / n, of the n seeds of each."""


@dataclass
class _Levels:
    """The scores that trainings of all trials under one seed each would have at each level."""

    mean: Floats
    variance: Floats
    start: Floats
    slope: Floats
    """From the level before: start + slope · score."""
    new: Floats
    """The part of the variance that the level before does not explain."""
    pairs: Floats
    middle: Floats
    """The number of trials that reached both, and their mean at the level before."""
    gap: Floats
    """The square of the part of their change of the mean that so few trials may owe to luck."""
    doubt: Floats
    """The variance of the mean's error."""


def _without_outliers(scores: Floats) -> Floats:
    """Return scores of which none is further below the worst tenth than the best is above it."""
    out = scores.copy()
    for column in out.T:
        there = column[~np.isnan(column)]
        if len(there) > 3:
            tenth = np.quantile(there, 0.1)
            np.maximum(column, 2 * tenth - there.max(), out=column)
    return out


def _moments(scores: Scores) -> list[tuple[_Pairs, _Fresh]]:
    """Return sums of the scores at each level."""
    at, alike = _without_outliers(scores.at), _without_outliers(scores.alike)
    there, before = ~np.isnan(at), np.zeros(len(at), bool)
    found = []
    for level in range(at.shape[1]):
        both = there[:, level - 1] & there[:, level] if level else before
        fresh = there[:, level] & ~before
        pairs, first = _Pairs(), _Fresh()
        if both.any():
            lower, upper = at[both, level - 1], alike[both, level]
            middle, above = float(lower.mean()), float(upper.mean())
            lower, upper = lower - middle, upper - above
            along, across = float((lower * lower).sum()), float((upper * upper).sum())
            together = float((lower * upper).sum())
            part = float((1 / scores.seeds[both, level - 1]).mean())
            pairs = _Pairs(len(lower), middle, above, along, together, across, part)
        if fresh.any():
            own, part = at[fresh, level], float((1 / scores.seeds[fresh, level]).mean())
            first = _Fresh(len(own), float(own.mean()), float(own.var()), part)
        found.append((pairs, first))
        before |= there[:, level]
    return found


def _parted(moments: Sequence[tuple[_Pairs, _Fresh]], squares: _Squares) -> tuple["_Levels", float]:
    """Return the levels, and the share of seeds in their variance.

    The larger the share, the larger the variance under one seed, and the smaller are squares by it:
    so the share is found by halving.
    """
    low, high = LEAST_SHARE, GREATEST_SHARE
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if squares.by(_levels(moments, share).variance, share) > 1:
            low = share
        else:
            high = share
    levels = _levels(moments, high)
    # Seeds may differ more than all trials seem to, which then must have been alike by luck.
    more = max(1.0, squares.by(levels.variance, high))
    least = squares.sums / (squares.freedom + SHARE_FREEDOM)
    levels.variance = np.maximum(more * levels.variance, least)
    levels.new = more * levels.new
    return levels, high


def _levels(moments: Sequence[tuple[_Pairs, _Fresh]], share: float) -> _Levels:
    """Estimate the scores at each level, were all trials there."""
    found, begun = _Levels(*(np.zeros(len(moments)) for _ in range(9))), 0
    mean = variance = doubt = 0.0
    for level, (pairs, fresh) in enumerate(moments):
        if begun:
            slope, line = _regress(found, level, pairs, mean, variance, share)
            mean = found.start[level] + slope * mean
            variance = slope**2 * variance + found.new[level]
            doubt = slope**2 * doubt + line
        if fresh.trials:
            whole = begun + fresh.trials
            both = (begun * mean + fresh.trials * fresh.mean) / whole
            apart = (mean - both) ** 2, (fresh.mean - both) ** 2
            own = fresh.variance / _of_means(share, fresh.part)
            parts = begun * (variance + apart[0]) + fresh.trials * (own + apart[1])
            doubt = (begun**2 * doubt + fresh.trials * own) / whole**2
            mean, variance, begun = both, parts / max(1, whole - 1), whole
        found.mean[level], found.variance[level], found.doubt[level] = mean, variance, doubt
    return found


def _of_means(share: float, part: float) -> float:
    """Return the variance of means of n seeds by that under one seed; `part` is 1 / n."""
    return 1 - share * (1 - part)


def _regress(
    found: _Levels, level: int, pairs: _Pairs, mean: float, variance: float, share: float
) -> tuple[float, float]:
    """Regress a level on the one before; returns the slope, and the error of the mean by it."""
    less = _of_means(share, pairs.part)
    middle, above = (pairs.lower, pairs.upper) if pairs.trials else (mean, mean)
    along = pairs.along + PAIRS * less * variance
    slope = 1.0
    if along > 0:
        slope = min(max(0.0, (pairs.together + PAIRS * less * variance) / along), STEEPEST)
    rest = max(0.0, pairs.across - 2 * slope * pairs.together + slope * slope * pairs.along)
    start = middle + (above - middle) * pairs.trials / (pairs.trials + STILL) - slope * middle
    new = (rest / less + NEW_PAIRS * NEW * variance) / (pairs.trials + NEW_PAIRS)
    found.start[level], found.slope[level], found.new[level] = start, slope, new
    found.pairs[level], found.middle[level] = pairs.trials, middle
    found.gap[level] = ((above - middle) / (pairs.trials + STILL)) ** 2
    off = (mean - middle) ** 2 / max(variance, _TINY)
    return slope, new / (pairs.trials + 1) * (1 + min(off, FURTHEST)) + float(found.gap[level])


class _Shrunk(NamedTuple):
    """Expectations of trials at their own levels."""

    value: Floats
    spread: Floats
    """Their variances, were the mean known that they give way to."""
    doubt: Floats
    """The variance of this mean's error."""
    kept: Floats
    """The part of a score's distance from the mean that is kept."""


def _shrunk(
    levels: _Levels, share: float, own: Floats, last: Whole, seeds: Floats, noise: Floats
) -> _Shrunk:
    """Take the luck off scores, each at its trial's own level."""
    mean, between = levels.mean.copy(), (1 - share) * levels.variance
    doubt = levels.doubt.copy()
    several = np.flatnonzero(seeds > 1)
    fresh = 1 - 1 / seeds[several]  # the first seed was selected with its luck
    for _ in range(ROUNDS if len(several) else 0):
        at = last[several]
        kept = _kept(between[at], noise[several] / seeds[several])
        value = mean[at] + kept * (own[several] - mean[at])
        spread = (1 - kept) * between[at]
        for level in np.unique(at):
            here, prior = at == level, (1 - share) * levels.variance[level]
            weight = ALL + float(fresh[here].sum())
            middle = (ALL * levels.mean[level] + float((fresh * value)[here].sum())) / weight
            around = spread[here] + (value[here] - middle) ** 2
            mean[level] = middle
            between[level] = (ALL * prior + float((fresh[here] * around).sum())) / weight
            doubt[level] = levels.variance[level] / weight
    # Trials with one seed keep the mean of all: theirs were chosen by the luck of that seed.
    one = seeds == 1
    centre = np.where(one, levels.mean[last], mean[last])
    prior = np.where(one, (1 - share) * levels.variance[last], between[last])
    unsure = np.where(one, levels.doubt[last], doubt[last])
    kept = _kept(prior, noise / seeds)
    return _Shrunk(centre + kept * (own - centre), (1 - kept) * prior, unsure, kept)


def _kept(between: Floats, noise: Floats) -> Floats:
    """Return which part of a score's distance from the mean is of the setting."""
    whole = between + noise
    return np.where(whole > 0, between / np.maximum(whole, _TINY), 1.0)


def _to_the_end(
    levels: _Levels, share: float, value: Floats, spread: Floats, last: Whole
) -> tuple[Floats, Floats]:
    """Take expectations and their variances from the trials' own levels to the last one."""
    for level in range(1, len(levels.mean)):
        rises, slope, new = last < level, levels.slope[level], levels.new[level]
        width = max(float(levels.variance[level - 1]), _TINY)
        off = np.minimum((value - levels.middle[level]) ** 2 / width, FURTHEST)
        line = new / (levels.pairs[level] + 1) * (1 + off) + levels.gap[level]
        spread = np.where(rises, slope**2 * spread + (1 - share) * new + line, spread)
        value = np.where(rises, levels.start[level] + slope * value, value)
    return value, spread
