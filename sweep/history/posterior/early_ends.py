"""Scores of trainings that ended early, as at a target, made comparable with those of full length.

A target ends a training at its luckiest moment. Seeds that are added later train past the target,
so settings that have both show how far scores fall afterwards. The mean fall of these settings is
subtracted from the score of each seed that ended early. Where no setting has both, nothing is known
about a fall, and scores stay as they are.
"""

from typing import NamedTuple

import numpy as np

from sweep.history.posterior.scores import Floats, Scores, at_last_level

#: Weight of no fall, in settings that have both kinds of seeds.
NO_FALL = 1.0


class Corrected(NamedTuple):
    """Scores without the luck of early ends."""

    scores: Scores
    """Scores, lowered at each trial's last level by the mean fall times the share of its seeds that
    ended early."""
    doubt: Floats
    """Variance of the correction, (trials,)."""


def correct(scores: Scores) -> Corrected:
    """Return scores in which a seed that ended early counts as one of full length does, on average.

    Args:
        scores: measured scores. Only those at each trial's last level change, and the sums over its
            seeds. Their field `early` says which seeds ended early.

    Returns:
        The same scores and no doubt if no setting has both kinds of seeds. A mean fall below 0 is
        taken for 0: later ends never raise a score.
    """
    nothing = np.zeros(len(scores.last_levels))
    if scores.early is None or not scores.early[:, 0].any():
        return Corrected(scores, nothing)
    (early, up, along), last = scores.early.T, scores.last_levels
    seeds = at_last_level(scores.seeds, last)
    both = (early > 0) & (early < seeds)
    if not both.any():
        return Corrected(scores, nothing)
    # `up` sums the distances of early seeds from the mean of all, so these are differences between
    # the means of both kinds of seeds.
    falls = up[both] * seeds[both] / (early[both] * (seeds[both] - early[both]))
    weight = len(falls) + NO_FALL
    fall = max(0.0, float(falls.sum()) / weight)
    variance = (float(((falls - fall) ** 2).sum()) + NO_FALL * fall**2) / weight**2
    share, rows = early / seeds, np.arange(len(last))
    level_scores, paired = scores.level_scores.copy(), scores.paired_scores.copy()
    level_scores[rows, last] -= share * fall
    paired[rows, last] -= share * fall
    squares = scores.squares - 2 * fall * up + fall**2 * early * (1 - share)
    corrected = scores._replace(
        level_scores=level_scores,
        paired_scores=paired,
        squares=np.maximum(squares, 0.0),
        products=scores.products - fall * along,
    )
    return Corrected(corrected, share**2 * variance)
