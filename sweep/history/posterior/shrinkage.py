"""Expectations of settings from scores with the luck removed, as a function of arrays.

A score is the mean of all settings, plus the effect of the setting, plus the effect of the seed,
plus the error of its evaluation. The expectation of a setting is its score without the last two:
empirical Bayes (Efron and Morris, Stein's Estimation Rule and Its Competitors, 1973).

1. Scores are compared at *levels*: the goals at which trials pause, and the end. Scores of seeds
   that ended early are corrected (`early_ends`), and each is smoothed by its curve (`smoothing`).
2. From each level to the next there is a regression over the trials that reached both, under the
   seeds that they had at both. Trials are promoted by their score at the lower level, so the
   regression is valid for trials that were not promoted, too (Anderson, Maximum Likelihood
   Estimates for a Multivariate Normal Distribution when some Observations are Missing, 1957). It
   gives the mean and variance that scores would have at each level had all trials reached it, each
   under one seed; and it transfers an expectation from its level to the end.
3. The share of this variance that is between seeds of one setting is pooled over the settings with
   several seeds. The mean of n seeds has an n-th of their variance, so the variance under one seed
   depends on the share and vice versa; both are solved together. The share is at least that between
   evaluations, which neighbours on a curve show. With little data it is near `SHARE`.
4. A score of n seeds is shrunk towards the mean by the ratio of its noise (seeds and evaluations
   over n) to the variance between settings. Settings with several seeds have a noise of their own,
   and as a group a mean and a variance of their own, by a few rounds of EM.
5. A best score that several trials share exactly is a ceiling, and no setting is expected to score
   more: what an expectation has above it counts as the ceiling. Without this, a trial that ended
   early at 490 of 500 points would be expected to reach 520, and be preferred to one with six seeds
   at 500.

The error is the standard deviation of all that is unknown: the setting's effect, the mean that
scores are shrunk towards, the regressions, the share, and training that no trial has had yet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sweep.history.posterior.early_ends import correct
from sweep.history.posterior.scores import (
    Floats,
    Scores,
    Whole,
    at_last_level,
    without_outliers,
)
from sweep.history.posterior.smoothing import smooth

#: Prior of the share of seeds and evaluations in the variance between trainings, and its weight in
#: degrees of freedom: the mean over many reinforcement learning tasks, and their spread.
SHARE, SHARE_FREEDOM = 0.3, 2.0
LEAST_SHARE, GREATEST_SHARE = 0.02, 0.9
#: Number of bisection steps for the share.
HALVINGS = 20
#: Weight of the pooled noise in the noise of one setting, in degrees of freedom.
NOISE_FREEDOM = 2.0
#: Weight of a slope of 1 between levels, in trials.
PAIRS = 3.0
#: Weight of an unchanged mean between levels, in trials, where scores rose and where they fell.
STILL, STILL_FALLEN = 1.0, 9.0
#: Prior of the share of new variance from level to level, and its weight in trials.
NEW, NEW_PAIRS = 0.3, 2.0
#: Maximum slope between levels, and maximum squared deviation from the middle.
STEEPEST, FURTHEST = 10.0, 1e6
#: Weight of the overall mean among settings with several seeds, in settings, and rounds of EM.
ALL, ROUNDS = 1.5, 10
#: Variance of a training of which nothing was seen, relative to the variance of scores.
UNSEEN = 0.5
#: Minimum number of trials with exactly the best score for it to count as a ceiling.
TIES = 3
#: Distance from the ceiling beyond which it changes nothing, in standard deviations.
FARTHEST = 8.0
#: Smallest divisor, so that nothing is divided by 0.
_TINY = 1e-300


@dataclass(frozen=True)
class Estimates:
    """Estimates of the model from scores; arrays have one entry per trial, (trials,)."""

    value: Floats
    """Expected score under a new seed at the end of training."""
    error: Floats
    """Standard error of `value`."""
    noise: Floats
    """Variance of the score of one further seed."""
    deviation: float
    """Standard deviation between trainings (of any settings and seed) at the last level."""
    share: float
    """Share of the variance between trainings that is between seeds of the same settings, 0 to
    1."""
    evaluations: float
    """Share of the variance between trainings that is between evaluations, 0 to 1."""
    unlimited: Floats
    """Expected score without regard to a ceiling; equal to `value` if there is no ceiling."""
    ceiling: float
    """Highest score that settings are expected to reach; infinity if none is known."""

    def improvements(self, rows: Whole, best: int) -> Floats:
        """Return the expected improvement of trials on the trial in row `best`.

        It is the mean of the excess over the expected score of `best`, where a negative excess
        counts as 0, in units of `deviation` (Jones et al., Efficient Global Optimization of
        Expensive Black-Box Functions, 1998, section 4.1). An improvement that exceeds the range of
        floats counts as 0.

        Args:
            rows: rows of the trials, (N,).
            best: row of the trial that is to be improved on.

        Returns:
            Expected improvements, (N,), 0 or more.
        """
        over = float(self.value[best])
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gains = self.value[rows] - limit(self.unlimited[rows], self.error[rows], over)
            gains = gains / self.deviation
        return np.where(np.isfinite(gains), gains, 0.0)

    def times(self, exponent: int) -> "Estimates":
        """Return the estimates for scores that are multiplied by 2 ** `exponent`."""
        with np.errstate(over="ignore"):  # the results may exceed the range of floats
            return replace(
                self,
                value=np.ldexp(self.value, exponent),
                error=np.ldexp(self.error, exponent),
                noise=np.ldexp(self.noise, 2 * exponent),
                deviation=float(np.ldexp(self.deviation, exponent)),
                unlimited=np.ldexp(self.unlimited, exponent),
                ceiling=float(np.ldexp(self.ceiling, exponent)),
            )


def estimate(scores: Scores, unseen: float, is_random: bool = True) -> Estimates:
    """Return the expected scores of all trials' settings, with errors, from their scores.

    Args:
        unseen: share of a full training that no trial has reached, 0 to 1.
        is_random: False if scores contain no luck, so that the model only transfers them to the
            end.
    """
    if not is_random:
        return _without_luck(scores, unseen)
    plain, (scores, early_doubt) = scores, correct(scores)
    scores, doubt = smooth(scores)
    last, moments = scores.last_levels, _moments(scores)
    seeds, last_scores = at_last_level(scores.seeds, last), at_last_level(scores.level_scores, last)
    squares = _Squares.sum_by_level(scores.squares, seeds - 1, last, scores.level_scores.shape[1])
    levels, share = _solve_share(moments, squares)
    variance = np.maximum(levels.variance[last], _TINY)
    evaluations = min(float(np.median(scores.evaluations / variance)), GREATEST_SHARE)
    if evaluations > share:
        share, levels = evaluations, _levels(moments, evaluations)
        variance = np.maximum(levels.variance[last], _TINY)
    own_freedom = NOISE_FREEDOM + seeds - 1
    noise = (NOISE_FREEDOM * share * variance + scores.squares) / own_freedom
    shrunk = _shrink(levels, share, last_scores, last, seeds, noise)
    # With few seeds or trials, widen the error as Student's t does.
    few = np.where(seeds > 1, (own_freedom + 1) / (own_freedom - 1), 1.0)
    few *= (len(last) + 1) / (len(last) - 1)
    # Add the effect of the share's own error on the expectation.
    lean = np.where(seeds > 1, shrunk.kept_share / seeds, 1.0) * (last_scores - levels.mean[last])
    of_share = lean**2 * share**2 * 2 / (SHARE_FREEDOM + float(squares.freedom.sum()))
    spread = (shrunk.spread + of_share) * few + (1 - shrunk.kept_share) ** 2 * shrunk.doubt
    spread += (1 - share) * doubt + early_doubt
    value, spread = _transfer_to_end(levels, share, shrunk.value, spread, last)
    whole = float(levels.variance[-1])
    error = np.sqrt(spread + whole * UNSEEN * unseen)
    ceiling = _ceiling(plain)
    limited = limit(value, error, ceiling)
    deviation = float(np.sqrt(whole))
    return Estimates(limited, error, noise, deviation, share, evaluations, value, ceiling)


def _without_luck(scores: Scores, unseen: float) -> Estimates:
    """Return estimates that take every score as true, and only transfer it to the end.

    `unseen` is the share of a full training that no trial has reached, 0 to 1.
    """
    levels = _levels(_moments(scores), 0.0)
    last_scores = at_last_level(scores.level_scores, scores.last_levels)
    nothing = np.zeros(len(last_scores))
    value, spread = _transfer_to_end(levels, 0.0, last_scores, nothing, scores.last_levels)
    whole = float(levels.variance[-1])
    error = np.sqrt(spread + whole * UNSEEN * unseen)
    return Estimates(value, error, nothing, math.sqrt(whole), 0.0, 0.0, value, math.inf)


def _ceiling(scores: Scores) -> float:
    """Return the best score if it is a ceiling, or infinity.

    It is a ceiling if at least `TIES` trials have exactly this score and at least one does not. If
    all scores are equal, they may be the least possible ones.
    """
    best: Floats = np.nan_to_num(scores.level_scores, nan=-np.inf).max(axis=1)
    ceiling = float(best.max())
    is_shared = int((best == ceiling).sum()) >= TIES
    return ceiling if is_shared and float(np.nanmin(scores.level_scores)) < ceiling else math.inf


def limit(value: Floats, error: Floats, ceiling: float) -> Floats:
    """Return the expectations with the part above the ceiling cut off.

    Each expectation becomes the mean of min(x, ceiling) for x ~ Normal(value, error).

    Args:
        value: expectations without a ceiling, (trials,).
        error: standard errors of these, (trials,).
        ceiling: highest score; infinity if none is known.
    """
    if math.isinf(ceiling):
        return value
    scale = np.maximum(error, _TINY)
    room = np.clip((ceiling - value) / scale, -FARTHEST, FARTHEST)
    below = np.array([math.erfc(-one / math.sqrt(2)) / 2 for one in room.tolist()])
    density = np.exp(-(room**2) / 2) / math.sqrt(2 * math.pi)
    limited = ceiling - scale * (room * below + density)
    return np.where(room < FARTHEST, np.minimum(limited, value), value)


class _Squares(NamedTuple):
    """Squared deviations of seeds from their trial's mean, summed by the trials' last levels."""

    sums: Floats
    """Sums of squares, (levels,)."""
    freedom: Floats
    """Degrees of freedom of each sum, (levels,)."""

    @classmethod
    def sum_by_level(
        cls, squares: Floats, freedom: Floats, last_levels: Whole, levels: int
    ) -> "_Squares":
        """Return the sums, by last level, of the trials' squares and degrees of freedom.

        `squares`, `freedom` and `last_levels` have one entry per trial; `levels` is the number of
        levels.
        """
        sums, counts = np.zeros(levels), np.zeros(levels)
        np.add.at(sums, last_levels, squares)
        np.add.at(counts, last_levels, freedom)
        return cls(sums, counts)

    def ratio_to_expectation(self, variance: Floats, share: float) -> float:
        """Return the ratio of the squared deviations to their expectation, both with a prior.

        `variance`, (levels,), is that of scores at each level; `share` is the part of it between
        seeds.
        """
        seen = float((self.sums / np.maximum(variance, _TINY)).sum())
        due = share * (SHARE_FREEDOM + float(self.freedom.sum()))
        return (SHARE * SHARE_FREEDOM + seen) / due


class _Pairs(NamedTuple):
    """Sums over the trials that reached both a level and the previous one.

    Their scores are those under the seeds that they had at both.
    """

    trials: int = 0
    """Number of these trials."""
    lower: float = 0.0
    """Mean of the trials' scores at the previous level."""
    upper: float = 0.0
    """Mean of the trials' scores at this level."""
    lower_squares: float = 0.0
    """Sum of squared distances from `lower`, at the previous level."""
    products: float = 0.0
    """Sum of the products of the distances at both levels."""
    upper_squares: float = 0.0
    """Sum of squared distances from `upper`, at this level."""
    part: float = 1.0
    """Mean over these trials of 1 / n, where n is a trial's number of seeds at the previous
    level."""


class _FirstScores(NamedTuple):
    """Statistics of the trials whose first score is at this level.

    No selection took place before.
    """

    trials: int = 0
    """Number of these trials."""
    mean: float = 0.0
    """Mean of the trials' scores."""
    variance: float = 0.0
    """Variance of the trials' scores."""
    part: float = 1.0
    """Mean over these trials of 1 / n, where n is a trial's number of seeds."""


@dataclass
class _Levels:
    """Distribution of scores at each level, as if all trials had reached it under one seed each."""

    mean: Floats
    """Mean at each level, (levels,)."""
    variance: Floats
    """Variance at each level, (levels,)."""
    start: Floats
    """Intercept of the regression on the previous level: start + slope · score, (levels,)."""
    slope: Floats
    """Slope of the regression on the previous level, (levels,)."""
    new: Floats
    """Part of the variance that the score at the previous level does not explain, (levels,)."""
    pairs: Floats
    """Number of trials that reached the level and the previous one, (levels,)."""
    middle: Floats
    """Mean score of those trials at the previous level, (levels,)."""
    gap: Floats
    """Square of the error that the change of the mean from the previous level may have, due to few
    trials, (levels,)."""
    doubt: Floats
    """Variance of the error of `mean`, (levels,)."""


def _moments(scores: Scores) -> list[tuple[_Pairs, _FirstScores]]:
    """Return sums of the scores at each level, ascending.

    Each level has sums over the trials that reached the previous level too, and statistics of those
    that begin there.
    """
    level_scores, paired = (
        without_outliers(scores.level_scores),
        without_outliers(scores.paired_scores),
    )
    has_score, before = ~np.isnan(level_scores), np.zeros(len(level_scores), bool)
    moments = []
    for level in range(level_scores.shape[1]):
        both = has_score[:, level - 1] & has_score[:, level] if level else before
        fresh = has_score[:, level] & ~before
        pairs, first = _Pairs(), _FirstScores()
        if both.any():
            lower, upper = level_scores[both, level - 1], paired[both, level]
            middle, above = float(lower.mean()), float(upper.mean())
            lower, upper = lower - middle, upper - above
            along, across = float((lower * lower).sum()), float((upper * upper).sum())
            together = float((lower * upper).sum())
            part = float((1 / scores.seeds[both, level - 1]).mean())
            pairs = _Pairs(len(lower), middle, above, along, together, across, part)
        if fresh.any():
            first_scores, part = (
                level_scores[fresh, level],
                float((1 / scores.seeds[fresh, level]).mean()),
            )
            first = _FirstScores(
                len(first_scores), float(first_scores.mean()), float(first_scores.var()), part
            )
        moments.append((pairs, first))
        before |= has_score[:, level]
    return moments


def _solve_share(
    moments: Sequence[tuple[_Pairs, _FirstScores]], squares: _Squares
) -> tuple["_Levels", float]:
    """Return the distributions at all levels, and the share of variance between seeds.

    The share is found by bisection: the larger it is, the larger the variance under one seed, and
    the smaller `squares` divided by this variance. If seeds differ more than even the largest share
    allows, the variances are raised.
    """
    low, high = LEAST_SHARE, GREATEST_SHARE
    for _ in range(HALVINGS):
        share = (low + high) / 2
        if squares.ratio_to_expectation(_levels(moments, share).variance, share) > 1:
            low = share
        else:
            high = share
    levels = _levels(moments, high)
    # If seeds differ more than the trials do, the trials were similar by luck: raise the variance.
    more = max(1.0, squares.ratio_to_expectation(levels.variance, high))
    least = squares.sums / (squares.freedom + SHARE_FREEDOM)
    levels.variance = np.maximum(more * levels.variance, least)
    levels.new = more * levels.new
    return levels, high


def _levels(moments: Sequence[tuple[_Pairs, _FirstScores]], share: float) -> _Levels:
    """Return the distribution of scores at each level; `share` of the variance is between seeds."""
    result, begun = _Levels(*(np.zeros(len(moments)) for _ in range(9))), 0
    mean = variance = doubt = 0.0
    for level, (pairs, fresh) in enumerate(moments):
        if begun:
            slope, line = _regress(result, level, pairs, mean, variance, share)
            mean = result.start[level] + slope * mean
            variance = slope**2 * variance + result.new[level]
            doubt = slope**2 * doubt + line
        if fresh.trials:
            whole = begun + fresh.trials
            both = (begun * mean + fresh.trials * fresh.mean) / whole
            apart = (mean - both) ** 2, (fresh.mean - both) ** 2
            own = fresh.variance / _variance_factor(share, fresh.part)
            parts = begun * (variance + apart[0]) + fresh.trials * (own + apart[1])
            doubt = (begun**2 * doubt + fresh.trials * own) / whole**2
            mean, variance, begun = both, parts / max(1, whole - 1), whole
        result.mean[level], result.variance[level], result.doubt[level] = mean, variance, doubt
    return result


def _variance_factor(share: float, part: float) -> float:
    """Return the variance of the mean over n seeds, divided by the variance under one seed.

    `share` of the latter is between seeds; `part` is 1 / n.
    """
    return 1 - share * (1 - part)


def _regress(
    levels: _Levels, level: int, pairs: _Pairs, mean: float, variance: float, share: float
) -> tuple[float, float]:
    """Regress scores at a level on those at the previous one, and store the result in `levels`.

    `mean` and `variance` are those of the previous level; `share` of the variance is between seeds.
    Returns the slope, and the variance that the regression's error adds to that of the mean.
    """
    less = _variance_factor(share, pairs.part)
    middle, above = (pairs.lower, pairs.upper) if pairs.trials else (mean, mean)
    along = pairs.lower_squares + PAIRS * less * variance
    slope = 1.0
    if along > 0:
        slope = min(max(0.0, (pairs.products + PAIRS * less * variance) / along), STEEPEST)
    products, lower_squares = pairs.products, pairs.lower_squares
    residual = pairs.upper_squares - 2 * slope * products + slope * slope * lower_squares
    residual = max(0.0, residual)
    # Training seldom makes settings worse on average, so a few bad trainings count less.
    counted = pairs.trials + (STILL if above > middle else STILL_FALLEN)
    start = middle + (above - middle) * pairs.trials / counted - slope * middle
    new = (residual / less + NEW_PAIRS * NEW * variance) / (pairs.trials + NEW_PAIRS)
    levels.start[level], levels.slope[level], levels.new[level] = start, slope, new
    levels.pairs[level], levels.middle[level] = pairs.trials, middle
    levels.gap[level] = ((above - middle) / counted) ** 2
    off = (mean - middle) ** 2 / max(variance, _TINY)
    return slope, new / (pairs.trials + 1) * (1 + min(off, FURTHEST)) + float(levels.gap[level])


class _Shrunk(NamedTuple):
    """Expectations of trials at their own last levels."""

    value: Floats
    """Expected scores, (trials,)."""
    spread: Floats
    """Variances of the expectations, given the mean that they are shrunk towards, (trials,)."""
    doubt: Floats
    """Variance of the error of that mean, (trials,)."""
    kept_share: Floats
    """Part of a score's distance from the mean that is kept, 0 to 1, (trials,)."""


def _shrink(
    levels: _Levels, share: float, scores: Floats, last_levels: Whole, seeds: Floats, noise: Floats
) -> _Shrunk:
    """Shrink each score towards the mean of its trial's last level.

    `scores`, `last_levels`, `seeds` (numbers of seeds) and `noise` (variances of one seed's score)
    have one entry per trial; `share` of the variance is between seeds.
    """
    mean, between_settings = levels.mean.copy(), (1 - share) * levels.variance
    doubt = levels.doubt.copy()
    several = np.flatnonzero(seeds > 1)
    fresh = 1 - 1 / seeds[several]  # the first seed's luck was selected
    for _ in range(ROUNDS if len(several) else 0):
        at = last_levels[several]
        kept = _shrinkage_factor(between_settings[at], noise[several] / seeds[several])
        value = mean[at] + kept * (scores[several] - mean[at])
        spread = (1 - kept) * between_settings[at]
        for level in np.unique(at):
            here, prior = at == level, (1 - share) * levels.variance[level]
            weight = ALL + float(fresh[here].sum())
            middle = (ALL * levels.mean[level] + float((fresh * value)[here].sum())) / weight
            around = spread[here] + (value[here] - middle) ** 2
            mean[level] = middle
            between_settings[level] = (ALL * prior + float((fresh[here] * around).sum())) / weight
            doubt[level] = levels.variance[level] / weight
    # Trials with one seed use the mean of all: the others were chosen by their first seed's luck.
    one = seeds == 1
    centre = np.where(one, levels.mean[last_levels], mean[last_levels])
    prior = np.where(one, (1 - share) * levels.variance[last_levels], between_settings[last_levels])
    unsure = np.where(one, levels.doubt[last_levels], doubt[last_levels])
    kept = _shrinkage_factor(prior, noise / seeds)
    return _Shrunk(centre + kept * (scores - centre), (1 - kept) * prior, unsure, kept)


def _shrinkage_factor(variance: Floats, noise: Floats) -> Floats:
    """Return the variance between settings as a share of the total with noise, 0 to 1.

    Returns 1 if both are 0.
    """
    whole = variance + noise
    return np.where(whole > 0, variance / np.maximum(whole, _TINY), 1.0)


def _transfer_to_end(
    levels: _Levels, share: float, value: Floats, spread: Floats, last_levels: Whole
) -> tuple[Floats, Floats]:
    """Return expectations and variances at the last level from those at the trials' own.

    `value`, `spread` and `last_levels` have one entry per trial; `share` of the variance is between
    seeds.
    """
    for level in range(1, len(levels.mean)):
        rises, slope, new = last_levels < level, levels.slope[level], levels.new[level]
        width = max(float(levels.variance[level - 1]), _TINY)
        off = np.minimum((value - levels.middle[level]) ** 2 / width, FURTHEST)
        line = new / (levels.pairs[level] + 1) * (1 + off) + levels.gap[level]
        spread = np.where(rises, slope**2 * spread + (1 - share) * new + line, spread)
        value = np.where(rises, levels.start[level] + slope * value, value)
    return value, spread
