"""A learning curve, interpolated between its results.

A result without the metric, or with the metric as NaN, is ignored: a training loop that evaluates
only now and then reports these in between. A trial is therefore at a rung from the first result at
or past it that has a number, and its value at the rung is interpolated linearly between that result
and the one before. So trials that report at different steps are compared at equal ones.

Permanent NaN is different. A trial whose metric has been NaN for more than twice as many results as
ever between two numbers has diverged (`Divergence`), and is not waited for.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sweep.history.events import Row, Scalar
from sweep.history.results import number

if TYPE_CHECKING:
    from sweep.history.objective import Objective


class Point(NamedTuple):
    """One iteration on a curve.

    `time` is the value of `time_attr`, and `value` is None if not reported.
    """

    iteration: int
    """Number of the iteration, from 1."""
    time: float
    """Value of `time_attr` at this iteration."""
    value: float | None
    """Value of the metric; None if the result lacks it."""
    others: tuple[float | None, ...] = ()
    """Results named by `Objective.other_results`: further objectives, then constraints; None for a
    result that is missing."""
    seconds: float = 0.0
    """Duration of the iteration in seconds."""
    steps: float = 0.0
    """Number of environment steps in the iteration."""

    @classmethod
    def of(cls, row: Row, objective: "Objective") -> "Point":
        """Return the point of a result, with the numbers by which trials are compared."""
        metric, others = row.metrics.get, objective.other_results
        time = number(metric(objective.time_attr))
        return cls(
            row.iteration,
            float(row.iteration) if time is None else time,
            number(metric(objective.metric)),
            tuple([number(metric(path)) for path in others]) if others else (),
            _finite_or_zero(metric("time_this_iter_s")),
            _finite_or_zero(metric("timesteps_this_iter")),
        )


def is_known(value: float | None) -> bool:
    """Return whether a value of the metric can be used: it is neither None nor NaN."""
    return value is not None and value == value


@dataclass
class Divergence:
    """Counter of NaN values, which tells permanent NaN from NaN between two evaluations."""

    numbers: int = 0
    """Number of values that were numbers."""
    longest: int = 0
    """Largest number of successive NaN between two numbers."""
    missing: int = 0
    """Number of NaN values after the last value that was a number."""

    def add(self, value: float | None) -> None:
        """Add the next value of the metric; None is ignored."""
        if value is None:
            return
        if math.isnan(value):
            self.missing += 1
            return
        if self.numbers:
            self.longest = max(self.longest, self.missing)
        self.numbers, self.missing = self.numbers + 1, 0

    @property
    def is_permanent(self) -> bool:
        """True if the metric has been NaN for too long; needs at least two earlier numbers."""
        return self.numbers >= 2 and self.missing > 2 * self.longest


class Reading(NamedTuple):
    """A value of a curve, and the `time_attr` at which it was read."""

    value: float
    """Value of the metric at the step."""
    step: float
    """Value of `time_attr` at which the curve was read."""
    sides: tuple[Point, Point] | None = None
    """Results before and after the step if the value was interpolated between them, else None."""


def readings(
    points: Iterable[Point], levels: Sequence[float]
) -> Iterator[tuple[list[float], Reading | None, bool]]:
    """Read a curve at ascending levels in one pass.

    Yields for each level: the values up to it, oldest first, the last being the value at the level
    (the same list object each time, so read it at once); that value with its step, or None if there
    is none; and True if a result at or past the level has a number. Without such a result, the last
    value before the level is used. If the first number comes after the level, it is used as it is.
    """
    values: list[float] = []
    known = (point for point in points if is_known(point.value))
    before: Point | None = None
    after = next(known, None)
    for level in levels:
        while after is not None and after.time < level:
            values.append(after.value or 0.0)
            before, after = after, next(known, None)
        if after is None:
            yield values, None if before is None else Reading(values[-1], before.time), False
            continue
        reading = _interpolate(before, after, level)
        values.append(reading.value)
        yield values, reading, True
        values.pop()


def _interpolate(before: Point | None, after: Point, level: float) -> Reading:
    """Return the value at `level`, interpolated between two results if there is one before."""
    late = after.value or 0.0
    if before is None or after.time == level:
        return Reading(late, after.time)
    early = before.value or 0.0
    if early == late:
        return Reading(late, level)  # without rounding, so that equal trials stay equal
    if not (math.isfinite(early) and math.isfinite(late)):
        return Reading(late, after.time)  # no interpolation is possible
    share = (level - before.time) / (after.time - before.time)
    return Reading(early * (1.0 - share) + late * share, level, (before, after))


@dataclass
class Followed:
    """Summary of a whole curve, updated as the curve grows."""

    first: Point | None = field(default=None, init=False)
    """First point whose value is a number; None before there is one."""
    newest: Point | None = field(default=None, init=False)
    """Newest point whose value is a number; None before there is one."""
    divergence: Divergence = field(default_factory=Divergence, init=False)
    """Count of NaN values so far, by which divergence is noticed."""
    _count: int = field(default=0, init=False)
    """Number of points read."""
    _last: Point | None = field(default=None, init=False)
    """Last point read, by which a cut of the curve is noticed; None before the first."""

    def update(self, curve: Sequence[Point]) -> "Followed":
        """Read the points added since the last call, or all if the curve was cut; return self."""
        count = self._count
        if count == len(curve) and (not count or curve[-1] is self._last):
            return self
        if count > len(curve) or (count and curve[count - 1] is not self._last):
            self.first = self.newest = None
            self.divergence, count = Divergence(), 0
        for point in curve[count:]:
            self.divergence.add(point.value)
            if is_known(point.value):
                self.first, self.newest = self.first or point, point
        self._count, self._last = len(curve), curve[-1] if curve else None
        return self


def _finite_or_zero(value: Scalar | None) -> float:
    """Return a value as a float; 0 for None and for anything but a finite number."""
    found = number(value)
    return found if found is not None and math.isfinite(found) else 0.0
