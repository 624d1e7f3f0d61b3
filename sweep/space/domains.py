"""The domains of searched parameters: what may be proposed, and how chance is spread over it.

    domain.contains(value)   whether it may be proposed
    domain.size()            how many values there are; None: infinitely many
    domain.nth(index)        the values of a finite domain, from 0
    domain.at(quantile)      0 … 1 → value: evenly drawn quantiles are draws from the domain
    domain.describe()        in words

Every bound is included. A number with ``step`` is one of low, low + step, … high; with ``log`` its
logarithm is what is spread evenly, and a step rounds it to the nearest of these. A `Choice` or
`Ordinal` holds plain JSON data; two values differ if their canonical JSON does: Python takes 1, 1.0
and True for equal, and cannot hash lists and mappings.
"""

import json
import math
import sys
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def choice_key(value: Any) -> str:
    """The canonical JSON of a value: sorted keys, no spaces; equal values have equal keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def same(one: Any, other: Any) -> bool:
    """Return whether two values of plain data are equal; numbers by value: 1, 1.0 and True are."""
    return equality_key(one) == equality_key(other)


def equality_key(value: Any) -> str:
    """Equal for two values exactly if they are `same`."""
    return choice_key(_numbers_alike(value))


def _numbers_alike(value: Any) -> Any:
    match value:
        case dict():
            return {key: _numbers_alike(item) for key, item in value.items()}
        case list() | tuple():
            return [_numbers_alike(item) for item in value]
        case int():
            return int(value)
        case float() if value.is_integer():
            return int(value)
    return value


# ---- grids --------------------------------------------------------------------------------------

# Evenly spaced numbers, without the rounding of repeated addition. Bounds and steps are taken as
# they are written: 0.1 is a tenth here, not the nearest binary number. So value 2 of a grid from
# 0.1 in steps of 0.1 is 0.3 and not 0.30000000000000004.

#: How far a value may lie off a grid, in steps: the rounding of ``low + k * step``.
_OFF_GRID = Fraction(1, 10**8)


def written(number: float) -> Fraction:
    """The number as a person wrote it."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(float(number)))


@dataclass(frozen=True)
class Grid:
    """The numbers ``low + k * step`` with k from 0 to `last`."""

    low: Fraction
    step: Fraction
    last: int | None
    """None: without end, to both sides; then k may be negative."""

    def nth(self, index: int) -> float:
        """The number of index `index`."""
        return float(self.low + index * self.step)

    def nearest(self, value: float) -> int:
        """The index of the number nearest to `value`, never past the ends."""
        index = round((written(value) - self.low) / self.step)
        return index if self.last is None else min(max(index, 0), self.last)

    def contains(self, value: float) -> bool:
        """Return whether `value` is one of the numbers, but for the rounding of floating point."""
        if not abs(value) <= sys.float_info.max:
            return False
        steps = (written(value) - self.low) / self.step
        on_grid = abs(steps - round(steps)) < _OFF_GRID
        return on_grid and (self.last is None or 0 <= round(steps) <= self.last)


def between(low: float, high: float, step: float) -> Grid:
    """The grid from `low` to `high`; `step` divides their distance."""
    start, width = written(low), written(step)
    return Grid(start, width, int((written(high) - start) / width))


# ---- ranges and lists ---------------------------------------------------------------------------


class _Real:
    """Numbers between bounds, or without; those of a grid if there is a step."""

    low: Any
    high: Any
    log: bool
    step: Any

    @cached_property
    def grid(self) -> Grid | None:
        """The values, if there is a step; without end where there is no bound."""
        if self.step is None:
            return None
        if self.low is not None and self.high is not None:
            return between(self.low, self.high, self.step)
        anchor = self.low if self.low is not None else self.high
        return Grid(written(anchor or 0.0), written(self.step), None)

    def contains(self, value: Any) -> bool:
        """Return whether `value` may be proposed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) <= sys.float_info.max or (self.log and value <= 0):
            return False
        on_grid = self.grid is None or self.grid.contains(value)
        return on_grid and self.snap(value) == self._rounded(value)

    def size(self) -> int | None:
        """Return the number of values; None: infinitely many."""
        if self.grid is None or self.grid.last is None:
            return None
        return self.grid.last + 1

    def nth(self, index: int) -> float:
        """The value `index` steps above `low`; a domain without a step has none but its least."""
        return self.snap(-math.inf) if self.grid is None else self.grid.nth(index)

    def snap(self, value: float) -> float:
        """The value of the domain that is nearest to a number."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return min(max(self._rounded(value), low), high)

    def _rounded(self, value: float) -> float:
        return value if self.grid is None else self.grid.nth(self.grid.nearest(value))


@dataclass(frozen=True)
class _Range(_Real):
    low: Any
    high: Any
    log: bool = False
    step: Any = None
    """Distance between neighbours; None: every number between the bounds."""

    @property
    def edges(self) -> tuple[float, float]:
        """From where to where a logarithm is drawn: the ends of a grid get a cell like others."""
        if self.step is None:
            return self.low, self.high
        half = self.step / 2
        low = max(self.low - half, self.low / 2) or self.low
        return low, min(self.high + half, sys.float_info.max)

    def describe(self) -> str:
        """The domain in words."""
        text = f"{self.low!r} to {self.high!r}, both included"
        if self.log:
            text = f"{text}, on a log scale"
        return text if self.step in (None, 1) else f"{text}, in steps of {self.step!r}"


@dataclass(frozen=True)
class Float(_Range):
    """Real numbers from `low` to `high`, both included."""

    low: float
    high: float
    step: float | None = None

    @property
    def rounded(self) -> bool:
        """True if the logarithm is drawn evenly and then rounded to the grid."""
        return self.log and self.step is not None

    def at(self, quantile: float) -> float:
        """The value at `quantile`, 0 … 1."""
        if self.grid is not None and not self.log:
            return self.nth(_index(quantile, self.size() or 1))
        return self.snap(_between(*self.edges, quantile, self.log))

    def quantile(self, value: float) -> float:
        """Return the middle one of the quantiles, 0 … 1, at which the domain has `value`."""
        if self.log:
            return _share(*map(math.log, (*self.edges, value)))
        half = (self.step or 0.0) / 2
        return _share(self.low - half, self.high + half, value)


@dataclass(frozen=True)
class Int(_Range):
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    step: int = 1

    @property
    def rounded(self) -> bool:
        """True if the logarithm is drawn evenly and then rounded to multiples of the step."""
        return self.log and self.step > 1

    def contains(self, value: Any) -> bool:
        """Return whether `value` may be proposed; 1.0 and True are no whole numbers here."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def size(self) -> int:
        """Return the number of values."""
        return (self.high - self.low) // self.step + 1

    def nth(self, index: int) -> int:
        """The value `index` steps above `low`."""
        return self.low + index * self.step

    def at(self, quantile: float) -> int:
        """The value at `quantile`, 0 … 1."""
        if self.log:
            return self.snap(_between(*self.edges, quantile, log=True))
        return self.nth(_index(quantile, self.size()))

    def quantile(self, value: float) -> float:
        """Return the middle one of the quantiles, 0 … 1, at which the domain has `value`."""
        if self.log:
            return _share(*map(math.log, (*self.edges, value)))
        # Exact where halves are not: a float has none beyond 2**52.
        place = (2 * (value - self.low) + self.step) / (2 * self.step * self.size())
        return min(max(place, 0.0), 1.0)

    def snap(self, value: float) -> int:
        """The value of the domain that is nearest to a number."""
        return self.nth(between(self.low, self.high, self.step).nearest(value))

    def describe(self) -> str:
        """The domain in words."""
        return f"whole numbers {super().describe()}"


@dataclass(frozen=True)
class _Listed:
    """One of some values, each plain JSON data."""

    values: tuple[Any, ...]

    @cached_property
    def by_key(self) -> dict[str, Any]:
        """Canonical JSON → value, in the order given."""
        return {choice_key(value): value for value in self.values}

    @cached_property
    def index(self) -> dict[str, int]:
        """Canonical JSON → index of the value, from 0."""
        return {key: index for index, key in enumerate(self.by_key)}

    def contains(self, value: Any) -> bool:
        """Return whether `value` may be proposed; 1, 1.0 and true are three values."""
        try:
            return choice_key(value) in self.by_key
        except (TypeError, ValueError):
            return False

    def size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def nth(self, index: int) -> Any:
        """The value at an index, from 0."""
        return self.values[index]


@dataclass(frozen=True)
class Choice(_Listed):
    """One of some values, each plain JSON data, in no order."""

    weights: tuple[float, ...] | None = None
    """The probability of each value, up to a factor, where chance decides; None: all alike."""

    def at(self, quantile: float) -> Any:
        """The value at `quantile`, 0 … 1; each has a stretch of the length of its weight."""
        if self.weights is None:
            return self.values[_index(quantile, len(self.values))]
        return self.values[min(bisect_right(self.ends, quantile), len(self.values) - 1)]

    @cached_property
    def ends(self) -> tuple[float, ...]:
        """The quantile at which the stretch of each value ends."""
        sums = list(accumulate(self.weights or (1.0,) * len(self.values)))
        return tuple(one / sums[-1] for one in sums)

    def describe(self) -> str:
        """The domain in words."""
        if self.weights is None:
            return f"one of {', '.join(self.by_key)}"
        total = math.fsum(self.weights)
        shares = zip(self.by_key, self.weights, strict=True)
        return f"one of {', '.join(f'{key} ({weight / total:.0%})' for key, weight in shares)}"


@dataclass(frozen=True)
class Ordinal(_Listed):
    """One of some values, each plain JSON data, ordered from little to much."""

    def at(self, quantile: float) -> Any:
        """The value at `quantile`, 0 … 1."""
        return self.values[_index(quantile, len(self.values))]

    def quantile(self, value: Any) -> float:
        """Return the middle one of the quantiles, 0 … 1, at which the domain has `value`."""
        return (self.index[choice_key(value)] + 0.5) / len(self.values)

    def describe(self) -> str:
        """The domain in words."""
        return f"in order {' < '.join(self.by_key)}"


# ---- normal and log-normal numbers --------------------------------------------------------------

# Samplers know no normal distribution. What they search is the quantile, 0 … 1, which is spread
# evenly; `Normal.at` maps it to the number that people see by the inverse of the cumulative
# distribution (Wichura's algorithm AS241, in python's ``statistics``), `Normal.quantile` back.

#: The share of each end that is never drawn: beyond it the quantiles of floating point get coarse.
TAIL = 1e-9
#: The share of the distribution that bounds must leave.
LEAST_MASS = 1e-6
_STANDARD = NormalDist()


@dataclass(frozen=True)
class Normal(_Real):
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

    @property
    def mass(self) -> float:
        """The share of the distribution that lies within the bounds."""
        bottom, top = self._stretch
        return top - bottom

    def at(self, quantile: float) -> float:
        """The value at `quantile`, 0 … 1."""
        bottom, top = self._stretch
        inner = _STANDARD.inv_cdf(bottom + quantile * (top - bottom))
        value = self.mu + self.sigma * inner
        return self.snap(math.exp(value) if self.log else value)

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

    @cached_property
    def _stretch(self) -> tuple[float, float]:
        """The quantiles of the whole distribution at which the domain begins and ends."""
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


Ordered = Float | Int | Ordinal | Normal
"""A domain whose values have an order, so that each has a quantile."""
Domain = Ordered | Choice


def canonical(domain: Domain, value: Any) -> Any:
    """A value of the domain as the domain itself would give it: 1.0 for 1 among real numbers."""
    return domain.snap(float(value)) if isinstance(domain, Float | Normal) else value


def sample(domain: Domain, generator: "np.random.Generator") -> Any:
    """One draw, by the domain's own spread."""
    return domain.at(generator.random())


def _index(quantile: float, count: int) -> int:
    return min(int(quantile * count), count - 1)


def _share(low: float, high: float, value: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _between(low: float, high: float, quantile: float, log: bool) -> float:
    if not log:
        return low + quantile * (high - low)
    bottom, top = math.log(low), math.log(high)
    return math.exp(bottom + quantile * (top - bottom))
