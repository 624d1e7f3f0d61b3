"""The outlook: by how much more training is expected to improve the pick, as a function of arrays.

Each setting has a posterior mean, its expected score under a new seed. Let V(m) be the expectation
of the greatest of them over random m of the n settings: the tuning curve (Dodge et al., Show Your
Work: Improved Reporting of Experimental Results, 2019; Lourie, He and Cho, Show Your Work with
Confidence, 2023). V(n) is the pick's. With shares f of the n drawn independently,

    V(f n) = Σ f (1 - f)^(i - 1) v(i) / (1 - (1 - f)^n),    v(1) ≥ v(2) ≥ …

A curve of the greatest of more and more draws flattens. So w times as much training again is
expected to bring what the last of it brought:

    gain = (drawn + seen) / 2
    drawn = V(n) - V(f n),                   f = 1 / (1 + w)
    seen = v(1) - (the greatest of the first f n settings)

Drawn is what that would be in whichever order they had been tried; it is large as long as one
setting stands out. Seen is what it was in the order in which they were tried, by what is known of
them now: searchers learn, so later settings may be better, and a pick of long ago counts as a sign
that there is little to be found. In Makarova et al., Automatic Termination for Hyperparameter
Optimization, 2022, a bound of the regret takes the place of this expectation; bounds of normal
posteriors over hundreds of settings are too wide where returns have a ceiling.

The range is from a poor setting, of ten one is worse, to the pick.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Settings from which on there is an outlook, and the quantile of a poor one.
LEAST, POOR = 8, 0.1


@dataclass(frozen=True)
class Outlook:
    """Improvement that more training is expected to bring."""

    gain: float
    """By how much the expected score of the pick improves."""
    range: float
    """From a poor setting to the pick."""

    @property
    def share(self) -> float:
        """The gain as a share of the range."""
        return self.gain / self.range if self.range > 0 else 0.0


def outlook(values: Floats, more: float) -> Outlook | None:
    """Return what `more` times as much training again is expected to bring.

    Returns None if there are too few settings to say.

    Args:
        values: expected scores, more is better, in the order in which settings were tried.
        more: above 0; 1: as much as there has been.
    """
    count = len(values)
    if count < LEAST:
        return None
    scale = float(np.abs(values).max()) or 1.0  # no difference of two overflows
    small = values / scale / 2
    share = 1 / (1 + more)
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
