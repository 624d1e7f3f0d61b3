"""Expectations of settings from scores with the luck taken off, as a function of arrays.

A score is the mean of all settings, plus the effect of the setting, plus the effect of the seed,
plus the error of its evaluation. The expectation of a setting is what is left of its score when
the last two are taken off it: empirical Bayes (Efron and Morris, Stein's Estimation Rule and Its
Competitors, 1973).

1. Scores are compared at *levels*: the goals at which trials pause, and the end.
2. From each level to the next there is a regression over the trials that reached both. Trials are
   promoted by their score at the lower level, so the regression holds for those that were not, too
   (Anderson, Maximum Likelihood Estimates for a Multivariate Normal Distribution when some
   Observations are Missing, 1957). It gives the mean and the variance that scores would have at
   each level, had all trials reached it; and it takes an expectation from its level to the end.
3. The share of this variance that is between seeds of one setting is pooled over the settings with
   several seeds. It is at least that between evaluations, which neighbours on a curve show. Before
   there is much to pool it is near `SHARE`.
4. A score of n seeds gives way to the mean as its noise, seeds and evaluations over n, compares
   with the variance between settings. Settings with several seeds have a noise of their own, and
   among each other a mean and a variance of their own, by a few rounds of EM.

The error is the deviation of what is not known: the setting's effect, the regressions, the share,
and training that no trial has had yet.
"""

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
    last: Whole
    """The column of each trial's last score."""
    seeds: Floats
    """The number of each trial's seeds there."""
    squares: Floats
    """The sum of squares of the seeds' distances from their mean."""
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
    last, seeds, squares = scores.last, scores.seeds, scores.squares
    own = scores.at[np.arange(len(last)), last]
    levels = _levels(_without_outliers(scores.at))
    variance = np.maximum(levels.variance[last], _TINY)
    freedom = SHARE_FREEDOM + float((seeds - 1).sum())
    share = (SHARE * SHARE_FREEDOM + float((squares / variance).sum())) / freedom
    evaluations = min(float(np.median(scores.evaluations / variance)), GREATEST_SHARE)
    share = min(max(share, evaluations, LEAST_SHARE), GREATEST_SHARE)
    noise = (NOISE_FREEDOM * share * variance + squares) / (NOISE_FREEDOM + seeds - 1)
    value, spread, kept = _shrunk(levels, share, own, last, seeds, noise)
    own_freedom = NOISE_FREEDOM + seeds - 1  # few seeds may all be lucky: wider, as Student's t is
    spread = np.where(seeds > 1, spread * (own_freedom + 1) / (own_freedom - 1), spread)
    # How the expectation moves with the share, which is known to within its own error.
    lean = np.where(seeds > 1, kept / seeds, 1.0) * (own - levels.mean[last])
    spread = spread + lean**2 * share**2 * 2 / freedom
    value, spread = _to_the_end(levels, share, value, spread, last)
    whole = float(levels.variance[-1])
    error = np.sqrt(spread + whole * UNSEEN * unseen)
    return Estimates(value, error, noise, float(np.sqrt(whole)), share, evaluations)


@dataclass
class _Levels:
    """The scores that all trials would have at each level."""

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


def _without_outliers(scores: Floats) -> Floats:
    """Return scores of which none is further below the worst tenth than the best is above it."""
    out = scores.copy()
    for column in out.T:
        there = column[~np.isnan(column)]
        if len(there) > 3:
            tenth = np.quantile(there, 0.1)
            np.maximum(column, 2 * tenth - there.max(), out=column)
    return out


def _levels(scores: Floats) -> _Levels:
    """Estimate the scores at each level, were all trials there."""
    count = scores.shape[1]
    found = _Levels(*(np.zeros(count) for _ in range(7)))
    there, before = ~np.isnan(scores), np.zeros(len(scores), bool)
    for level in range(count):
        here, begun = scores[:, level], int(before.sum())
        mean = variance = 0.0
        if begun:
            mean, variance = _regress(found, level, scores[there[:, level - 1] & there[:, level]])
        fresh = here[there[:, level] & ~before]  # began above the lower levels: not selected
        if len(fresh):
            whole = begun + len(fresh)
            own, among = float(fresh.mean()), float(fresh.var())
            both = (begun * mean + len(fresh) * own) / whole
            apart = (mean - both) ** 2, (own - both) ** 2
            parts = begun * (variance + apart[0]) + len(fresh) * (among + apart[1])
            mean, variance = both, parts / max(1, whole - 1)
        found.mean[level], found.variance[level] = mean, variance
        before |= there[:, level]
    return found


def _regress(found: _Levels, level: int, both: Floats) -> tuple[float, float]:
    """Regress a level on the one before; returns mean and variance there, were all trials there."""
    mean, variance = found.mean[level - 1], found.variance[level - 1]
    lower, upper = both[:, level - 1], both[:, level]
    middle, above = (float(x.mean()) if len(both) else float(mean) for x in (lower, upper))
    along = float(((lower - middle) ** 2).sum()) + PAIRS * variance
    slope = 1.0
    if along > 0:
        together = float(((lower - middle) * (upper - above)).sum()) + PAIRS * variance
        slope = min(max(0.0, together / along), STEEPEST)
    rest = float(((upper - above - slope * (lower - middle)) ** 2).sum())
    start = middle + (above - middle) * len(both) / (len(both) + STILL) - slope * middle
    found.start[level], found.slope[level] = start, slope
    found.new[level] = (rest + NEW_PAIRS * NEW * variance) / (len(both) + NEW_PAIRS)
    found.pairs[level], found.middle[level] = len(both), middle
    return start + slope * mean, slope**2 * variance + found.new[level]


def _shrunk(
    levels: _Levels, share: float, own: Floats, last: Whole, seeds: Floats, noise: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return expectations at the trials' own levels, variances, and the part kept of scores."""
    mean, between = levels.mean.copy(), (1 - share) * levels.variance
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
    # Trials with one seed keep the mean of all: theirs were chosen by the luck of that seed.
    one = seeds == 1
    centre = np.where(one, levels.mean[last], mean[last])
    prior = np.where(one, (1 - share) * levels.variance[last], between[last])
    kept = _kept(prior, noise / seeds)
    return centre + kept * (own - centre), (1 - kept) * prior, kept


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
        line = new / (levels.pairs[level] + 1) * (1 + off)
        spread = np.where(rises, slope**2 * spread + (1 - share) * new + line, spread)
        value = np.where(rises, levels.start[level] + slope * value, value)
    return value, spread
