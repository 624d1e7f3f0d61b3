"""The domains of searched parameters: what may be proposed, and how chance is spread over it.

    domain.contains(value)   whether it may be proposed
    domain.size()            how many values there are; None: infinitely many
    domain.nth(index)        the values of a finite domain, from 0
    domain.at(quantile)      0 … 1 → value: evenly drawn quantiles are draws from the domain
    domain.describe()        in words

Every bound is included. A number with ``step`` is one of low, low + step, … high; with ``log`` its
logarithm is what is spread evenly, and a step rounds it to the nearest of these. A `Choice` or
`Ordinal` holds plain JSON data; two values differ if their canonical JSON does.
"""

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from sweep.space.grids import Grid, between
from sweep.space.normal import Normal
from sweep.space.values import choice_key

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class _Range:
    """Numbers between two bounds, both included."""

    low: Any
    high: Any
    log: bool = False
    step: Any = None
    """Distance between neighbours; None: every number between the bounds."""

    @cached_property
    def grid(self) -> Grid | None:
        """The values, if there is a step."""
        return None if self.step is None else between(self.low, self.high, self.step)

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
        """Whether the logarithm is drawn evenly and then rounded to the grid."""
        return self.log and self.step is not None

    def contains(self, value: Any) -> bool:
        """Whether `value` may be proposed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.grid is None:
            return self.low <= value <= self.high
        return self.grid.contains(value)

    def size(self) -> int | None:
        """How many values there are; None: infinitely many."""
        return None if self.grid is None else (self.grid.last or 0) + 1

    def nth(self, index: int) -> float:
        """The value `index` steps above `low`; a domain without a step has none but `low`."""
        return self.low if self.grid is None else self.grid.nth(index)

    def at(self, quantile: float) -> float:
        """The value at `quantile`, 0 … 1."""
        if self.grid is not None and not self.log:
            return self.nth(_index(quantile, self.size() or 1))
        return self.snap(_between(*self.edges, quantile, self.log))

    def snap(self, value: float) -> float:
        """The value of the domain that is nearest to a number."""
        if self.grid is not None:
            return self.grid.nth(self.grid.nearest(value))
        return min(max(value, self.low), self.high)


@dataclass(frozen=True)
class Int(_Range):
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    step: int = 1

    @property
    def rounded(self) -> bool:
        """Whether the logarithm is drawn evenly and then rounded to every so many."""
        return self.log and self.step > 1

    def contains(self, value: Any) -> bool:
        """Whether `value` may be proposed; 1.0 and True are no whole numbers here."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def size(self) -> int:
        """How many values there are."""
        return (self.high - self.low) // self.step + 1

    def nth(self, index: int) -> int:
        """The value `index` steps above `low`."""
        return self.low + index * self.step

    def at(self, quantile: float) -> int:
        """The value at `quantile`, 0 … 1."""
        if self.log:
            return self.snap(_between(*self.edges, quantile, log=True))
        return self.nth(_index(quantile, self.size()))

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
        """Whether `value` may be proposed; 1, 1.0 and true are three values."""
        try:
            return choice_key(value) in self.by_key
        except (TypeError, ValueError):
            return False

    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    def nth(self, index: int) -> Any:
        """The value at an index, from 0."""
        return self.values[index]


@dataclass(frozen=True)
class Choice(_Listed):
    """One of some values, each plain JSON data, in no order."""

    weights: tuple[float, ...] | None = None
    """How likely each is, up to a factor, where chance decides; None: all alike."""

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

    def describe(self) -> str:
        """The domain in words."""
        return f"in order {' < '.join(self.by_key)}"


Domain = Float | Int | Choice | Ordinal | Normal


def canonical(domain: Domain, value: Any) -> Any:
    """A value of the domain as the domain itself would give it: 1.0 for 1 among real numbers."""
    return domain.snap(float(value)) if isinstance(domain, Float | Normal) else value


def sample(domain: Domain, generator: "np.random.Generator") -> Any:
    """One draw, by the domain's own spread."""
    return domain.at(generator.random())


def _index(quantile: float, count: int) -> int:
    return min(int(quantile * count), count - 1)


def _between(low: float, high: float, quantile: float, log: bool) -> float:
    if not log:
        return low + quantile * (high - low)
    bottom, top = math.log(low), math.log(high)
    return math.exp(bottom + quantile * (top - bottom))
