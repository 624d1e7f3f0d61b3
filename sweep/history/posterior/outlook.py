"""The outlook: the expected improvement of the pick from more training, as a function of arrays.

Each setting has a posterior mean, its expected score under a new seed. Let V(m) be the expectation
of the greatest of them over random m of the n settings: the tuning curve (Dodge et al., Show Your
Work: Improved Reporting of Experimental Results, 2019; Lourie, He and Cho, Show Your Work with
Confidence, 2023). V(n) is the pick's. With shares f of the n drawn independently,

    V(f n) = Σ f (1 - f)^(i - 1) v(i) / (1 - (1 - f)^n),    v(1) ≥ v(2) ≥ …

The expected maximum of a growing sample flattens. So w times the training so far is expected to
bring as much as the last part of it brought:

    gain = (drawn + seen) / 2
    drawn = V(n) - V(f n),                   f = 1 / (1 + w)
    seen = v(1) - (the greatest of the first f n settings)

`drawn` averages over all orders in which the settings could have been tried; it is large while one
setting stands out. `seen` uses the actual order, by present expectations: searchers learn, so later
settings may be better, and a pick found long ago suggests that little more can be found. Makarova
et al., Automatic Termination for Hyperparameter Optimization, 2022, use a bound of the regret
instead; bounds from normal posteriors over hundreds of settings are too wide if returns have a
ceiling.

The range is from a poor setting, which is better than one in ten, to the pick.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Minimum number of settings for an outlook, and the quantile of a poor setting.
LEAST, POOR = 8, 0.1


@dataclass(frozen=True)
class Outlook:
    """Improvement of the best settings to expect from more training."""

    gain: float
    """Expected increase of the best settings' expected score, in units of the score."""
    range: float
    """Difference between the expected scores of the best settings and of a poor one, which is
    better than one in ten."""

    @property
    def relative_gain(self) -> float:
        """Gain as a fraction of `range`; 0 if the range is 0."""
        return self.gain / self.range if self.range > 0 else 0.0


def outlook(values: Floats, training: float) -> Outlook | None:
    """Return the improvement to expect from `training` times the training so far.

    `values`, (settings,), has the expected scores in the order in which settings were tried,
    greater being better. Returns None with fewer than `LEAST` settings.
    """
    count = len(values)
    if count < LEAST:
        return None
    scale = float(np.abs(values).max()) or 1.0  # so that no difference overflows
    small = values / scale / 2
    share = 1 / (1 + training)
    falling = np.sort(small)[::-1]
    best = falling[0]
    left = (1 - share) ** np.arange(count)
    drawn = best - float((share * left * falling).sum()) / -float(
        np.expm1(count * np.log1p(-share))
    )
    first = small[: max(1, int(share * count))]
    seen = best - float(first.max())
    poor = float(np.quantile(small, POOR))
    size = 2 * scale
    return Outlook(size * max(0.0, float(drawn + seen) / 2), size * float(best - poor))
