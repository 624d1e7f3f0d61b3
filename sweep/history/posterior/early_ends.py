"""Scores of trainings that ended at a target, made comparable with those of full length.

A target ends a training at its luckiest moment. Seeds that are added later train past the target,
so settings that have both show how far scores fall afterwards. The mean fall of these settings is
subtracted from the score of each seed that ended early. If no setting has both kinds of seeds, the
fall is unknown, and scores stay as they are.
"""

from typing import NamedTuple

import numpy as np

from sweep.history.posterior.scores import Floats, Scores, at_last_level


class Corrected(NamedTuple):
    """Scores without the luck of early ends."""

    scores: Scores
    """Scores, lowered by the mean fall times the share of the seeds that ended early."""
    doubt: Floats
    """Variance of the correction, (trials,)."""


def correct(scores: Scores) -> Corrected:
    """Return scores in which a seed that ended early counts as one of full length does, on average.

    Args:
        scores: measured scores. Only those of the seeds at each trial's last level change, and the
            sums over these. Their field `early` says which seeds ended early.

    Returns:
        The same scores and no doubt if no setting has both kinds of seeds. A mean fall below 0
        counts as 0, so scores never rise.
    """
    nothing = np.zeros(len(scores.last_levels))
    if scores.early is None:
        return Corrected(scores, nothing)
    (early, whole, first, paired_share, up, along), last = scores.early.T, scores.last_levels
    seeds = at_last_level(scores.seeds, last)
    both = (early > 0) & (whole > 0) & (early + whole == seeds)
    if not both.any():
        return Corrected(scores, nothing)
    # `up` sums the distances of early seeds from the mean of all, so these are differences between
    # the means of both kinds of seeds.
    falls = up[both] * seeds[both] / (early[both] * whole[both])
    fall = max(0.0, float(falls.mean()))
    # The spread of a single fall is unknown; it is taken to be half of the fall.
    variance = float(falls.var(ddof=1)) / len(falls) if len(falls) > 1 else (fall / 2) ** 2
    share, levels = early / seeds, np.arange(scores.level_scores.shape[1])
    is_end = (levels >= first[:, None]) & (levels <= last[:, None])
    shares = np.where(is_end, share[:, None], 0.0)
    paired_shares = np.where(levels == first[:, None], paired_share[:, None], shares)
    squares = scores.squares - 2 * fall * up + fall**2 * early * (1 - share)
    corrected = scores._replace(
        level_scores=scores.level_scores - shares * fall,
        paired_scores=scores.paired_scores - paired_shares * fall,
        squares=np.maximum(squares, 0.0),
        products=scores.products - fall * along,
    )
    return Corrected(corrected, share**2 * variance)
