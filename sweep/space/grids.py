"""Evenly spaced numbers, without the rounding of repeated addition.

Bounds and steps are taken as they are written: 0.1 is a tenth here, not the nearest binary number.
So value 2 of a grid from 0.1 in steps of 0.1 is 0.3 and not 0.30000000000000004.
"""

import sys
from dataclasses import dataclass
from fractions import Fraction

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
        """Whether `value` is one of the numbers, but for the rounding of floating point."""
        if not abs(value) <= sys.float_info.max:
            return False
        steps = (written(value) - self.low) / self.step
        on_grid = abs(steps - round(steps)) < _OFF_GRID
        return on_grid and (self.last is None or 0 <= round(steps) <= self.last)


def between(low: float, high: float, step: float) -> Grid:
    """The grid from `low` to `high`; `step` divides their distance."""
    start, width = written(low), written(step)
    return Grid(start, width, int((written(high) - start) / width))
