"""The domains of searched parameters: what may be proposed, and draws from it.

Every bound is included. A `Float` or `Int` with ``step`` holds low, low + step, … high; with
``log`` its logarithm is what is spread evenly. A `Choice` holds plain JSON data; its values are
told apart by their canonical JSON, since Python takes 1, 1.0 and True for the same.
"""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

#: How far a value may lie off the grid of ``step``, in steps: the rounding of ``low + k * step``.
_OFF_GRID = 1e-8


def choice_key(value: Any) -> str:
    """The canonical JSON of a value: sorted keys, no spaces; equal values have equal keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def same(one: Any, other: Any) -> bool:
    """Whether two values of plain data are equal; numbers by value: 1, 1.0 and True are."""
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


@dataclass(frozen=True)
class Float:
    """Real numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    step: float | None = None
    """Distance between neighbours; None: every number between the bounds."""

    def contains(self, value: Any) -> bool:
        """Whether `value` may be proposed."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.step is None or not math.isfinite(value):
            return self.low <= value <= self.high
        steps = (value - self.low) / self.step
        on_grid = abs(steps - round(steps)) < _OFF_GRID
        return on_grid and 0 <= round(steps) <= round((self.high - self.low) / self.step)

    def size(self) -> int | None:
        """How many values there are; None: infinitely many."""
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def nth(self, index: int) -> float:
        """The value `index` steps above `low`, never past `high`."""
        return min(self.low + index * (self.step or 0.0), self.high)

    def describe(self) -> str:
        """The domain in words."""
        return _describe(self.low, self.high, self.log, self.step)


@dataclass(frozen=True)
class Int:
    """Whole numbers from `low` to `high`, both included."""

    low: int
    high: int
    log: bool = False
    step: int = 1
    """Distance between neighbours."""

    def contains(self, value: Any) -> bool:
        """Whether `value` may be proposed; 1.0 and True are no whole numbers here."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def size(self) -> int:
        """How many values there are."""
        return (self.high - self.low) // self.step + 1

    def describe(self) -> str:
        """The domain in words."""
        return f"whole numbers {_describe(self.low, self.high, self.log, self.step)}"


@dataclass(frozen=True)
class Choice:
    """One of some values, each plain JSON data."""

    values: tuple[Any, ...]

    @cached_property
    def by_key(self) -> dict[str, Any]:
        """Canonical JSON → value, in the order given."""
        return {choice_key(value): value for value in self.values}

    def contains(self, value: Any) -> bool:
        """Whether `value` may be proposed; 1, 1.0 and true are three values."""
        try:
            return choice_key(value) in self.by_key
        except (TypeError, ValueError):
            return False

    def size(self) -> int:
        """How many values there are."""
        return len(self.values)

    def describe(self) -> str:
        """The domain in words."""
        return f"one of {', '.join(self.by_key)}"


Domain = Float | Int | Choice


def sample(domain: Domain, generator: np.random.Generator) -> Any:
    """One draw, spread evenly (over the logarithm with ``log``)."""
    match domain:
        case Choice():
            return domain.values[int(generator.integers(len(domain.values)))]
        case Float(step=float()):
            return domain.nth(int(generator.integers(domain.size() or 1)))
        case Float():
            return _clip(_draw(domain.low, domain.high, domain.log, generator), domain)
        case Int(log=True):
            drawn = _draw(domain.low - 0.5, domain.high + 0.5, True, generator)
            return _clip(round(drawn), domain)
        case Int():
            return domain.low + domain.step * int(generator.integers(domain.size()))


def _draw(low: float, high: float, log: bool, generator: np.random.Generator) -> float:
    if log:
        return math.exp(generator.uniform(math.log(low), math.log(high)))
    return float(generator.uniform(low, high))


def _clip(value: Any, domain: Float | Int) -> Any:
    """Rounding in exp(log(x)) may leave the bounds by a hair."""
    return min(max(value, domain.low), domain.high)


def _describe(low: float, high: float, log: bool, step: float | None) -> str:
    text = f"{low!r} to {high!r}, both included"
    if log:
        return f"{text}, on a log scale"
    return text if step in (None, 1) else f"{text}, in steps of {step!r}"
