"""The domains of searched parameters: possible values and their random distribution.

    domain.contains(value)   True if the value may be proposed
    domain.size()            number of values; None if infinite
    domain.at_index(index)   the values of a finite domain, from 0
    domain.value_at(quantile)  value at a quantile, 0 to 1: uniform quantiles give random values
    domain.describe()        description as a text

All bounds are included. A number with ``step`` is one of low, low + step, … high; with ``log`` its
logarithm is distributed uniformly, and a step rounds it to the nearest of these. A `Choice` or
`Ordinal` holds plain JSON data; two values differ if their canonical JSON does, since Python
considers 1, 1.0 and True equal, and cannot hash lists and mappings.
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
    """Return the canonical JSON of a value, with sorted keys; equal values have equal keys.

    1, 1.0 and True have different ones. Raises ValueError or TypeError if JSON cannot represent it.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def are_equal(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal.

    Numbers, also inside lists and mappings, are compared by value, so 1 equals 1.0 and True.
    """
    return equality_key(one) == equality_key(other)


def equality_key(value: Any) -> str:
    """Return a text that is the same for two values exactly if `are_equal` holds for them."""
    return choice_key(_numbers_alike(value))


def _numbers_alike(value: Any) -> Any:
    """Return a copy of plain data in which whole floats and booleans are integers."""
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
# their decimal texts: 0.1 is a tenth here, not the nearest binary number. So value 2 of a grid from
# 0.1 in steps of 0.1 is 0.3 and not 0.30000000000000004.

#: Maximum distance of a value from the grid, in steps, due to rounding of ``low + k * step``.
_OFF_GRID = Fraction(1, 10**8)


def exact_decimal(number: float) -> Fraction:
    """Return the exact number that a float's decimal text means: 1/10 for 0.1."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(float(number)))


@dataclass(frozen=True)
class Grid:
    """Evenly spaced numbers ``low + k * step`` with k from 0 to `last`, computed exactly."""

    low: Fraction
    """Number for k = 0."""
    step: Fraction
    """Distance between neighbours, above 0."""
    last: int | None
    """Largest k; None for an infinite grid, in which k may also be negative."""

    def at_index(self, index: int) -> float:
        """Return the number ``low + index * step``, also for an index beyond the ends."""
        return float(self.low + index * self.step)

    def nearest(self, value: float) -> int:
        """Return the index of the number nearest to `value`, clipped to the ends."""
        index = round((exact_decimal(value) - self.low) / self.step)
        return index if self.last is None else min(max(index, 0), self.last)

    def contains(self, value: float) -> bool:
        """Return whether `value` is on the grid, up to floating-point rounding."""
        if not abs(value) <= sys.float_info.max:
            return False
        steps = (exact_decimal(value) - self.low) / self.step
        on_grid = abs(steps - round(steps)) < _OFF_GRID
        return on_grid and (self.last is None or 0 <= round(steps) <= self.last)


def grid_between(low: float, high: float, step: float) -> Grid:
    """Return the grid from `low` to `high`; that their distance is whole steps is not checked."""
    start, width = exact_decimal(low), exact_decimal(step)
    return Grid(start, width, int((exact_decimal(high) - start) / width))


# ---- ranges and lists ---------------------------------------------------------------------------


class _Real:
    """Base of domains of numbers with optional bounds and an optional step."""

    low: Any
    """Lower bound, or None if there is none."""
    high: Any
    """Upper bound, or None if there is none."""
    log: bool
    """True if values are distributed on a logarithmic scale."""
    step: Any
    """Distance between neighbours; None if all numbers between the bounds are allowed."""

    @cached_property
    def grid(self) -> Grid | None:
        """Allowed values if there is a step, else None; infinite if a bound is missing."""
        if self.step is None:
            return None
        if self.low is not None and self.high is not None:
            return grid_between(self.low, self.high, self.step)
        anchor = self.low if self.low is not None else self.high
        return Grid(exact_decimal(anchor or 0.0), exact_decimal(self.step), None)

    def contains(self, value: Any) -> bool:
        """Return whether `value` is a number within the bounds, and on the grid up to rounding.

        A boolean is not, nor 0 or less with `log`.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not abs(value) <= sys.float_info.max or (self.log and value <= 0):
            return False
        on_grid = self.grid is None or self.grid.contains(value)
        return on_grid and self.snap(value) == self._rounded(value)

    def size(self) -> int | None:
        """Return the number of values; None if it is infinite."""
        if self.grid is None or self.grid.last is None:
            return None
        return self.grid.last + 1

    def at_index(self, index: int) -> float:
        """Return the value `index` steps above `low`; without a step, `low` at any index.

        A normal distribution without `low` counts from `high`, else from 0; without a step its
        value is -inf.
        """
        return self.snap(-math.inf) if self.grid is None else self.grid.at_index(index)

    def snap(self, value: float) -> float:
        """Return the value of the domain that is nearest to a number."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return min(max(self._rounded(value), low), high)

    def _rounded(self, value: float) -> float:
        """Return the nearest number of the grid; `value` itself without a grid."""
        return value if self.grid is None else self.grid.at_index(self.grid.nearest(value))


@dataclass(frozen=True)
class _Range(_Real):
    """Base of domains with two bounds, both included."""

    low: Any
    """Lower bound, which is included."""
    high: Any
    """Upper bound, which is included."""
    log: bool = False
    """True if values are distributed uniformly on a logarithmic scale."""
    step: Any = None
    """Distance between neighbours; None if all numbers between the bounds are allowed."""

    @property
    def edges(self) -> tuple[float, float]:
        """Ends of the interval from which a number is drawn on a log scale, before it is rounded.

        With a step they are half a step beyond the bounds, so that these are drawn as often as
        other values, but the lower one is at least half of `low`. Without a step they are the
        bounds.
        """
        if self.step is None:
            return self.low, self.high
        half = self.step / 2
        low = max(self.low - half, self.low / 2) or self.low
        return low, min(self.high + half, sys.float_info.max)

    def describe(self) -> str:
        """Return a description for people, such as ``0.1 to 0.4, both included``."""
        text = f"{self.low!r} to {self.high!r}, both included"
        if self.log:
            text = f"{text}, on a log scale"
        return text if self.step in (None, 1) else f"{text}, in steps of {self.step!r}"


@dataclass(frozen=True)
class Float(_Range):
    """The domain of ``uniform`` and ``loguniform``: real numbers, both bounds included."""

    low: float
    """Lower bound, which is included."""
    high: float
    """Upper bound, which is included."""
    step: float | None = None
    """Distance between neighbours; None if all numbers between the bounds are allowed."""

    @property
    def is_rounded(self) -> bool:
        """True if a logarithm is drawn uniformly and its number then rounded to the grid."""
        return self.log and self.step is not None

    def value_at(self, quantile: float) -> float:
        """Return the value at `quantile`: 0 gives `low`, 1 gives `high`."""
        if self.grid is not None and not self.log:
            return self.at_index(_index(quantile, self.size() or 1))
        return self.snap(_interpolate(*self.edges, quantile, self.log))

    def quantile(self, value: float) -> float:
        """Return the quantile, 0 to 1, of a value; numbers beyond the ends have 0 or 1.

        On a grid it is the middle of the quantiles that give the value; with `log` it is the place
        of the value's logarithm between those of `edges`.
        """
        if self.log:
            return _relative_position(*map(math.log, (*self.edges, value)))
        half = (self.step or 0.0) / 2
        return _relative_position(self.low - half, self.high + half, value)


@dataclass(frozen=True)
class Int(_Range):
    """The domain of ``randint`` and ``lograndint``: integers, both bounds included."""

    low: int
    """Lower bound, which is included."""
    high: int
    """Upper bound, which is included."""
    step: int = 1
    """Distance between neighbours."""

    @property
    def is_rounded(self) -> bool:
        """True if a logarithm is drawn uniformly and its number then rounded to a grid.

        With a step of 1, which only makes it whole, it is false.
        """
        return self.log and self.step > 1

    def contains(self, value: Any) -> bool:
        """Return whether `value` is an integer of the domain; 1.0 and True are none."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def size(self) -> int:
        """Return the number of values."""
        return (self.high - self.low) // self.step + 1

    def at_index(self, index: int) -> int:
        """Return the value `index` steps above `low`."""
        return self.low + index * self.step

    def value_at(self, quantile: float) -> int:
        """Return the value at `quantile`: 0 gives `low`, 1 gives `high`."""
        if self.log:
            return self.snap(_interpolate(*self.edges, quantile, log=True))
        return self.at_index(_index(quantile, self.size()))

    def quantile(self, value: float) -> float:
        """Return the middle of the quantiles, 0 to 1, at which the domain has `value`.

        With `log` it is the place of the value's logarithm between those of `edges`. Numbers beyond
        the ends have 0 or 1.
        """
        if self.log:
            return _relative_position(*map(math.log, (*self.edges, value)))
        # Exact: floats beyond 2**52 have no halves.
        place = (2 * (value - self.low) + self.step) / (2 * self.step * self.size())
        return min(max(place, 0.0), 1.0)

    def snap(self, value: float) -> int:
        """Return the integer of the domain that is nearest to a number."""
        return self.at_index(grid_between(self.low, self.high, self.step).nearest(value))

    def describe(self) -> str:
        """Return a description for people, such as ``whole numbers 1 to 20, both included``."""
        return f"whole numbers {super().describe()}"


@dataclass(frozen=True)
class _Listed:
    """Base of domains that list their values, each plain JSON data."""

    values: tuple[Any, ...]
    """Possible values, all different, in the order of the file."""

    @cached_property
    def values_by_key(self) -> dict[str, Any]:
        """Value in canonical JSON → value, in the order of the file."""
        return {choice_key(value): value for value in self.values}

    @cached_property
    def index(self) -> dict[str, int]:
        """Value in canonical JSON → its index in `values`."""
        return {key: index for index, key in enumerate(self.values_by_key)}

    def contains(self, value: Any) -> bool:
        """Return whether `value` is listed; 1, 1.0 and true are three different values."""
        try:
            return choice_key(value) in self.values_by_key
        except (TypeError, ValueError):
            return False

    def size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def at_index(self, index: int) -> Any:
        """Return the value at an index, from 0."""
        return self.values[index]


@dataclass(frozen=True)
class Choice(_Listed):
    """The domain of ``choice`` and ``grid``: values without an order."""

    weights: tuple[float, ...] | None = None
    """Relative frequency of each value in random draws; None if all are equal."""

    def value_at(self, quantile: float) -> Any:
        """Return the value at `quantile`, 0 to 1.

        In the order of `values`, each has an interval of quantiles as long as its share of the
        weights.
        """
        if self.weights is None:
            return self.values[_index(quantile, len(self.values))]
        return self.values[min(bisect_right(self.ends, quantile), len(self.values) - 1)]

    @cached_property
    def ends(self) -> tuple[float, ...]:
        """Quantile, 0 to 1, at which the interval of each value ends."""
        sums = list(accumulate(self.weights or (1.0,) * len(self.values)))
        return tuple(one / sums[-1] for one in sums)

    def describe(self) -> str:
        """Return a description for people, such as ``one of "tanh", "relu"``."""
        if self.weights is None:
            return f"one of {', '.join(self.values_by_key)}"
        total = math.fsum(self.weights)
        shares = zip(self.values_by_key, self.weights, strict=True)
        return f"one of {', '.join(f'{key} ({weight / total:.0%})' for key, weight in shares)}"


@dataclass(frozen=True)
class Ordinal(_Listed):
    """The domain of ``ordinal``: values in ascending order."""

    def value_at(self, quantile: float) -> Any:
        """Return the value at `quantile`, 0 to 1; all have intervals of one length, in order."""
        return self.values[_index(quantile, len(self.values))]

    def quantile(self, value: Any) -> float:
        """Return the middle of the quantiles, 0 to 1, at which the domain has `value`.

        Raises KeyError if the domain does not have it.
        """
        return (self.index[choice_key(value)] + 0.5) / len(self.values)

    def describe(self) -> str:
        """Return a description for people, such as ``in order 1 < 2``."""
        return f"in order {' < '.join(self.values_by_key)}"


# ---- normal and log-normal numbers --------------------------------------------------------------

# Samplers do not know normal distributions. They search the quantile, 0 to 1, which is uniform;
# `Normal.value_at` maps it to the number that people see by the inverse cumulative distribution
# (Wichura's algorithm AS241, in Python's ``statistics``), and `Normal.quantile` maps it back.

#: Probability of each tail that is never drawn: beyond it floating-point quantiles are coarse.
TAIL = 1e-9
#: Minimum probability of the range between the bounds.
LEAST_MASS = 1e-6
#: Normal distribution of mean 0 and deviation 1.
_STANDARD = NormalDist()


@dataclass(frozen=True)
class Normal(_Real):
    """The domain of ``normal`` and ``lognormal``: numbers, or their logarithms, around a mean.

    Bounds truncate the distribution. With `step`, a number is rounded to the nearest one of the
    grid.
    """

    mu: float
    """Mean of the numbers, or of their natural logarithms with `log`."""
    sigma: float
    """Standard deviation of the numbers, or of their natural logarithms with `log`."""
    log: bool = False
    """True if the numbers' natural logarithm is normally distributed."""
    low: float | None = None
    """Lower bound; None for none, which leaves six standard deviations."""
    high: float | None = None
    """Upper bound; None for none, which leaves six standard deviations."""
    step: float | None = None
    """Distance between neighbours of a grid that contains `low`, else `high`, else 0; None for no
    grid."""

    @property
    def mass(self) -> float:
        """Probability, 0 to 1, that the distribution without bounds is between the bounds."""
        bottom, top = self._quantile_range
        return top - bottom

    def value_at(self, quantile: float) -> float:
        """Return the value at `quantile`, 0 to 1, of the truncated distribution."""
        bottom, top = self._quantile_range
        inner = _STANDARD.inv_cdf(bottom + quantile * (top - bottom))
        value = self.mu + self.sigma * inner
        return self.snap(math.exp(value) if self.log else value)

    def quantile(self, value: float) -> float:
        """Return the quantile, 0 to 1, of a value in the truncated distribution.

        Numbers beyond its ends have 0 or 1. Raises ValueError with `log` for 0 and less.
        """
        bottom, top = self._quantile_range
        return min(max((self._cumulative(value) - bottom) / (top - bottom), 0.0), 1.0)

    def describe(self) -> str:
        """Return a description for people, such as ``normal, mean 0.0 and deviation 1.0``."""
        what = "log-normal" if self.log else "normal"
        of = " of the logarithm" if self.log else ""
        text = f"{what}, mean {self.mu!r} and deviation {self.sigma!r}{of}"
        if self.low is not None:
            text += f", at least {self.low!r}"
        if self.high is not None:
            text += f", at most {self.high!r}"
        return text if self.step is None else f"{text}, in steps of {self.step!r}"

    @cached_property
    def _quantile_range(self) -> tuple[float, float]:
        """Quantiles at which the bounds cut the distribution, 0 to 1.

        With a step it is cut half a step beyond a bound; without a bound, `TAIL` from 0 or 1.
        """
        half = (self.step or 0.0) / 2
        bottom, top = TAIL, 1.0 - TAIL
        if self.low is not None:
            edge = max(self.low - half, self.low / 2) if self.log else self.low - half
            bottom = max(bottom, self._cumulative(edge))
        if self.high is not None:
            top = min(top, self._cumulative(self.high + half))
        return bottom, top

    def _cumulative(self, value: float) -> float:
        """Return the probability, 0 to 1, that the distribution without bounds is below `value`."""
        inner = ((math.log(value) if self.log else value) - self.mu) / self.sigma
        return 0.5 * math.erfc(-inner / math.sqrt(2.0))


Ordered = Float | Int | Ordinal | Normal
"""Domain whose values have an order, so that each has a quantile."""
#: Domain of a parameter: ordered values, or choices without an order.
Domain = Ordered | Choice


def extend(domain: Domain, value: Any) -> Domain:
    """Return a domain that also contains `value`, of a trial from before a change of the space.

    It is `domain` itself if that contains the value. Else a number moves the nearer end of a range,
    which then has no step; a normal distribution becomes such a range. A value that a list lacks
    becomes its last one, and weights are dropped.
    """
    if domain.contains(value):
        return domain
    match domain:
        case Choice(values):
            return Choice((*values, value))
        case Ordinal(values):
            return Ordinal((*values, value))
        case Int(low, high):
            low, high = min(low, value), max(high, value)
            return Int(low, high, domain.log and low > 0)
    low, high = min(domain.value_at(0.0), value), max(domain.value_at(1.0), value)
    return Float(low, high, domain.log and low > 0)


def canonical(domain: Domain, value: Any) -> Any:
    """Return a value in the number type of its domain, such as 1.0 for 1 among real numbers.

    A real number becomes the nearest value of its domain; other values are returned unchanged.
    """
    return domain.snap(float(value)) if isinstance(domain, Float | Normal) else value


def sample(domain: Domain, generator: "np.random.Generator") -> Any:
    """Draw a random value of the domain: one number of the generator is a quantile."""
    return domain.value_at(generator.random())


def _index(quantile: float, count: int) -> int:
    """Return the index, 0 to `count` - 1, of the equal interval of 0 to 1 with this quantile."""
    return min(int(quantile * count), count - 1)


def _relative_position(low: float, high: float, value: float) -> float:
    """Return the position of a value between `low` and `high`, 0 to 1; 0.5 if they are equal."""
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def _interpolate(low: float, high: float, quantile: float, log: bool) -> float:
    """Return the number at `quantile`, 0 to 1, between `low` and `high`.

    On a log scale if `log`.
    """
    if not log:
        return low + quantile * (high - low)
    bottom, top = math.log(low), math.log(high)
    return math.exp(bottom + quantile * (top - bottom))
