"""Normal and log-normal numbers, reached through their quantiles.

Samplers know no normal distribution. What they search is the quantile, 0 … 1, which is spread
evenly; `Normal.at` maps it to the number that people see by the inverse of the cumulative
distribution (Wichura's algorithm AS241, in python's ``statistics``), `Normal.quantile` back.
"""

import math
import sys
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

from sweep.space.grids import Grid, between, written

#: The share of each end that is never drawn: beyond it the quantiles of floating point get coarse.
TAIL = 1e-9
#: The share of the distribution that bounds must leave.
LEAST_MASS = 1e-6
_STANDARD = NormalDist()


@dataclass(frozen=True)
class Normal:
    """Real numbers around `mu`; with `log`, numbers whose natural logarithm is.

    Numbers out of the bounds are not drawn; the others are as likely, compared with each other, as
    without bounds. With `step`, a number is rounded to the nearest one of the grid.
    """

    mu: float
    sigma: float
    log: bool = False
    low: float | None = None
    """The least value; None: no bound, so six standard deviations are the most that is drawn."""
    high: float | None = None
    step: float | None = None
    """Distance between neighbours, counted from `low`, else from `high`, else from 0."""

    @cached_property
    def grid(self) -> Grid | None:
        """The values, if there is a step; without end where there is no bound."""
        if self.step is None:
            return None
        if self.low is not None and self.high is not None:
            return between(self.low, self.high, self.step)
        anchor = self.low if self.low is not None else self.high
        return Grid(written(anchor or 0.0), written(self.step), None)

    @property
    def mass(self) -> float:
        """The share of the distribution that lies within the bounds."""
        bottom, top = self._stretch
        return top - bottom

    def contains(self, value: Any) -> bool:
        """Whether `value` may be proposed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) <= sys.float_info.max or (self.log and value <= 0):
            return False
        if self.grid is not None:
            return self.grid.contains(value) and self._within(
                self.grid.nth(self.grid.nearest(value))
            )
        return self._within(value)

    def size(self) -> int | None:
        """How many values there are; None: infinitely many."""
        if self.grid is None or self.grid.last is None:
            return None
        return self.grid.last + 1

    def nth(self, index: int) -> float:
        """The value `index` steps above `low`; only for a finite domain."""
        return self.mu if self.grid is None else self.grid.nth(index)

    def at(self, quantile: float) -> float:
        """The value at `quantile`, 0 … 1."""
        bottom, top = self._stretch
        inner = _STANDARD.inv_cdf(bottom + quantile * (top - bottom))
        value = self.mu + self.sigma * inner
        return self.snap(math.exp(value) if self.log else value)

    def snap(self, value: float) -> float:
        """The value of the domain that is nearest to a number."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if self.grid is None:
            return min(max(value, low), high)
        rounded = self.grid.nth(self.grid.nearest(value))
        return min(max(rounded, low), high)

    def quantile(self, value: float) -> float:
        """The quantile of a value, 0 … 1."""
        bottom, top = self._stretch
        return min(max((self._cumulative(value) - bottom) / (top - bottom), 0.0), 1.0)

    def describe(self) -> str:
        """The domain in words."""
        what = "log-normal" if self.log else "normal"
        of = " of the logarithm" if self.log else ""
        text = f"{what}, mean {self.mu!r} and deviation {self.sigma!r}{of}"
        if self.low is not None:
            text += f", at least {self.low!r}"
        if self.high is not None:
            text += f", at most {self.high!r}"
        return text if self.step is None else f"{text}, in steps of {self.step!r}"

    def _within(self, value: float) -> bool:
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)

    @cached_property
    def _stretch(self) -> tuple[float, float]:
        """Where quantiles 0 and 1 of the domain lie in the whole distribution."""
        half = (self.step or 0.0) / 2
        bottom, top = TAIL, 1.0 - TAIL
        if self.low is not None:
            edge = max(self.low - half, self.low / 2) if self.log else self.low - half
            bottom = max(bottom, self._cumulative(edge))
        if self.high is not None:
            top = min(top, self._cumulative(self.high + half))
        return bottom, top

    def _cumulative(self, value: float) -> float:
        """The share of the whole distribution that lies below `value`."""
        inner = ((math.log(value) if self.log else value) - self.mu) / self.sigma
        return 0.5 * math.erfc(-inner / math.sqrt(2.0))
