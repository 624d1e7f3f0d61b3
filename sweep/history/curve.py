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
from sweep.history.results import to_number

if TYPE_CHECKING:
    from sweep.history.objective import Objective


class Point(NamedTuple):
    """Result of one iteration of a replica, reduced to the numbers by which trials are compared."""

    iteration: int
    """Number of the iteration, from 1."""
    time: float
    """Value at this iteration of the result that the spec names as `time_attr` (the horizontal
    axis: iterations, environment steps or seconds)."""
    value: float | None
    """Value of the metric, perhaps NaN; None if the result has no number for it."""
    others: tuple[float | None, ...] = ()
    """Values of the results in `Objective.other_results`: values of further objectives, then of
    constraints; None for one that the result lacks."""
    seconds: float = 0.0
    """Duration of the iteration in seconds; 0 if the result lacks it."""
    steps: float = 0.0
    """Number of environment steps in the iteration; 0 if the result lacks it."""

    @classmethod
    def from_row(cls, row: Row, objective: "Objective") -> "Point":
        """Return the point of an iteration's result, with the results that the objective compares.

        `time` is the number of the iteration if the result lacks `time_attr`, or it is not finite.
        """
        metric, others = row.metrics.get, objective.other_results
        time = to_number(metric(objective.time_attr))
        return cls(
            row.iteration,
            float(row.iteration) if time is None or not math.isfinite(time) else time,
            to_number(metric(objective.metric)),
            tuple([to_number(metric(path)) for path in others]) if others else (),
            _finite_or_zero(metric("time_this_iter_s")),
            _finite_or_zero(metric("timesteps_this_iter")),
        )


def is_known(value: float | None) -> bool:
    """Return whether a value of the metric can be used: it is neither None nor NaN."""
    return value is not None and value == value


@dataclass
class Divergence:
    """Counter of NaN values along a curve, by which a diverged metric is noticed.

    NaN also occurs where an iteration had no evaluation; these runs of NaN are short.
    """

    numbers: int = 0
    """Number of values so far that were not NaN."""
    longest_gap: int = 0
    """Length of the longest run of NaN so far that a number preceded and followed."""
    trailing: int = 0
    """Number of NaN values since the last value that was a number."""

    def add(self, value: float | None) -> None:
        """Count the metric's value of the next iteration; None (not reported) changes nothing."""
        if value is None:
            return
        if math.isnan(value):
            self.trailing += 1
            return
        if self.numbers:
            self.longest_gap = max(self.longest_gap, self.trailing)
        self.numbers, self.trailing = self.numbers + 1, 0

    @property
    def is_permanent(self) -> bool:
        """True if the metric has diverged.

        At least two values were numbers, and more than twice as many NaN followed the last one as
        ever lay between two numbers.
        """
        return self.numbers >= 2 and self.trailing > 2 * self.longest_gap


class Reading(NamedTuple):
    """Value of the metric's curve at a level (a value of `time_attr`), perhaps interpolated."""

    value: float
    """Value of the metric there."""
    step: float
    """Value of `time_attr` at which the value was taken: the level itself, or that of the adjacent
    result if nothing could be interpolated."""
    sides: tuple[Point, Point] | None = None
    """Results before and after the level if the value was interpolated between them; None if one
    result was read, or if both have the same value."""


def readings(
    points: Iterable[Point], levels: Sequence[float]
) -> Iterator[tuple[list[float], Reading | None, bool]]:
    """Read a curve at ascending levels (values of `time_attr`) in one pass.

    Yields for each level: all numbers up to it, oldest first, of which the last is the value at the
    level (always the same list object, so read it before the next step); the reading at the level,
    or None if there is none; and True if a result at or past the level has a number. Without such a
    result, the last value before the level is read. If the first number comes after the level, it
    is read as it is.
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
    """Return the reading at `level`, which lies after `before` and at or before `after`.

    The value is interpolated linearly. It is that of `after`, taken at its own `time`, if there is
    no point before or one of both values is infinite.
    """
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
class CurveSummary:
    """First and newest value of a growing curve, and its count of NaN.

    Only new points are read.
    """

    first: Point | None = field(default=None, init=False)
    """First point whose value is a number; None before there is one."""
    newest: Point | None = field(default=None, init=False)
    """Newest point whose value is a number; None before there is one."""
    divergence: Divergence = field(default_factory=Divergence, init=False)
    """Count of NaN values so far."""
    _count: int = field(default=0, init=False)
    """Number of points of the curve that were read."""
    _last: Point | None = field(default=None, init=False)
    """Last point that was read, to notice that the curve was cut since; None before the first."""

    def update(self, curve: Sequence[Point]) -> "CurveSummary":
        """Read the points that `curve` has gained since the last call, and return self.

        If the curve was cut since, it is read again from the beginning.
        """
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
    found = to_number(value)
    return found if found is not None and math.isfinite(found) else 0.0
