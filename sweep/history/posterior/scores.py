"""Measured scores as arrays: the input of the model behind the pick."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Whole = NDArray[np.int_]


class Scores(NamedTuple):
    """Measured scores with one row for each trial; greater is better, and none is much above 1.

    A score with several seeds is their mean, and so is a curve's mean.
    """

    level_scores: Floats
    """Score at each level, ascending, (trials, levels); NaN if the trial did not reach it."""
    paired_scores: Floats
    """Scores like `level_scores`, but only over the seeds that the trial had at the previous
    level."""
    seeds: Floats
    """Number of each trial's seeds at each level, (trials, levels)."""
    last_levels: Whole
    """Column of each trial's last score, (trials,)."""
    squares: Floats
    """Sum of squared distances of each trial's seeds from their mean at its last level,
    (trials,)."""
    evaluations: Floats
    """Variance of each score that is due to the episodes of its evaluation, (trials,)."""
    curves: Floats
    """Mean of the curve up to each level, in which later results count more, (trials, levels);
    NaN if unknown."""
    paired_curves: Floats
    """Means like `curves`, but only over the seeds that the trial had at the previous level."""
    products: Floats
    """Sum like `squares`, of each seed's distance times that of the mean of its curve,
    (trials,)."""
    curve_squares: Floats
    """Sum like `squares`, but of the means of curves, (trials,)."""
    lengths: Floats
    """Length of each trial's shortest curve at each level, (trials, levels)."""
    early: Floats | None = None
    """Seeds at each trial's last level that ended early, as at a target, (trials, 6): their number;
    the number of those that were added later and trained to the end; the first of the levels that
    have these seeds' scores; the share of early ones among the seeds of `paired_scores` there; and
    the sums over early ones of the distances in `squares` and of those of their curves' means in
    `curve_squares`. None if no seed ended early."""


def at_last_level(of_levels: Floats, last_levels: Whole) -> Floats:
    """Return each trial's entry of `of_levels`, (trials, levels), at its last level, (trials,)."""
    found: Floats = of_levels[np.arange(len(last_levels)), last_levels]
    return found


def without_outliers(scores: Floats) -> Floats:
    """Return a copy of the scores (trials, levels) with very low ones raised.

    In each column with more than three scores, none stays further below the lowest tenth than the
    best is above it. NaN stays NaN.
    """
    out = scores.copy()
    for column in out.T:
        there = column[~np.isnan(column)]
        if len(there) > 3:
            tenth = np.quantile(there, 0.1)
            np.maximum(column, 2 * tenth - there.max(), out=column)
    return out
