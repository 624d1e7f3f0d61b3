"""A learning curve, read at steps between its results.

A result without the metric says nothing, and one where it is NaN says as little: a loop that
evaluates now and then reports the one or the other in between. A rung is therefore taken at the
first result at or past it that has a number, and the value at the rung lies on the line between
that result and the one before: trials that report at other steps are compared at equal ones.

NaN that stays is another thing. A trial whose metric has been NaN for more than twice as many
results as ever between two numbers has diverged (`Divergence`): nothing is waited for.
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
    """One iteration on a curve; `time` is the value of ``time_attr``; None: not reported there."""

    iteration: int
    time: float
    value: float | None
    others: tuple[float | None, ...] = ()
    """The results that `Objective.also` names, then those of the constraints."""
    seconds: float = 0.0
    """Seconds that the iteration took."""
    steps: float = 0.0
    """Environment steps of the iteration."""

    @classmethod
    def of(cls, row: Row, objective: "Objective") -> "Point":
        """Return the point of a result: the numbers by which it is compared."""
        found, others = row.metrics.get, objective.other_results
        time = number(found(objective.time_attr))
        return cls(
            row.iteration,
            float(row.iteration) if time is None else time,
            number(found(objective.metric)),
            tuple([number(found(path)) for path in others]) if others else (),
            _amount(found("time_this_iter_s")),
            _amount(found("timesteps_this_iter")),
        )


def is_known(value: float | None) -> bool:
    """Return whether a result says something: it has the metric, and not as NaN."""
    return value is not None and value == value


@dataclass
class Divergence:
    """Tells NaN that stays from NaN between two evaluations, one value after the other."""

    numbers: int = 0
    longest: int = 0
    """The most NaN in a row between two numbers."""
    since: int = 0
    """NaN since the last number."""

    def add(self, value: float | None) -> None:
        """Take in one more result; one without the metric is none."""
        if value is None:
            return
        if math.isnan(value):
            self.since += 1
            return
        if self.numbers:
            self.longest = max(self.longest, self.since)
        self.numbers, self.since = self.numbers + 1, 0

    @property
    def is_there(self) -> bool:
        """True if the metric has been NaN for too long, measured by two numbers at least."""
        return self.numbers >= 2 and self.since > 2 * self.longest


class Reading(NamedTuple):
    """A value of a curve, and the step of ``time_attr`` that it is of."""

    value: float
    step: float
    sides: tuple[Point, Point] | None = None
    """The results before and after the step, if the value was interpolated between them."""


def readings(
    points: Iterable[Point], levels: Sequence[float]
) -> Iterator[tuple[list[float], Reading | None, bool]]:
    """Read a curve at ascending levels, once.

    Yields for each level the values up to it, oldest first, of which the last is the one at the
    level (the same list each time, to be read at once); that one with its step, None if there is
    none; and whether a result at or past the level has a number. Without one, the last value before
    the level stands. Where the first number comes after the level, it is taken as it is.
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
        reading = _between(before, after, level)
        values.append(reading.value)
        yield values, reading, True
        values.pop()


def _between(before: Point | None, after: Point, level: float) -> Reading:
    """Return the value at a level on the line between two results, or that of the later one."""
    late = after.value or 0.0
    if before is None or after.time == level:
        return Reading(late, after.time)
    early = before.value or 0.0
    if early == late:
        return Reading(late, level)  # not rounded: equal trials stay equal
    if not (math.isfinite(early) and math.isfinite(late)):
        return Reading(late, after.time)  # there is no line
    share = (level - before.time) / (after.time - before.time)
    return Reading(early * (1.0 - share) + late * share, level, (before, after))


@dataclass
class Followed:
    """Summary of a whole curve, updated as the curve grows."""

    first: Point | None = field(default=None, init=False)
    """The first result with a number."""
    newest: Point | None = field(default=None, init=False)
    divergence: Divergence = field(default_factory=Divergence, init=False)
    _count: int = field(default=0, init=False)
    _last: Point | None = field(default=None, init=False)

    def bring_up(self, curve: Sequence[Point]) -> "Followed":
        """Take in the points that were added; a curve that was cut is read anew."""
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


def _amount(value: Scalar | None) -> float:
    """Return a value to be summed over iterations; 0 if it is no finite number."""
    found = number(value)
    return found if found is not None and math.isfinite(found) else 0.0
