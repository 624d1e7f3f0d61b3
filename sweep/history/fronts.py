"""Fronts of several objectives: non-dominated sorting, and the spread of a front.

Everything here works on costs: one number per objective, less being better. One point dominates
another if it is nowhere worse and somewhere better. The first front is what no point dominates,
the second what only points of the first dominate, and so on.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sweep.history.objective import rank
from sweep.history.order import Summary
from sweep.history.trial import Trial

#: Costs of one point, one per objective.
Costs = tuple[float, ...]


def front_indices(points: Sequence[Costs]) -> list[int]:
    """Return the index of each point's front, from 0; equal points are on the same front.

    The first front is what no point dominates, the next what only points of earlier fronts
    dominate. A point has one cost per objective, less being better.

    Zhang et al., An Efficient Approach to Nondominated Sorting for Evolutionary Multiobjective
    Optimization, 2015, with binary search: in lexicographic order no later point dominates an
    earlier one, and a point that a front dominates is dominated by each front before.
    """
    fronts: list[list[Costs]] = []
    level_of: dict[Costs, int] = {}
    for point in sorted(set(points)):
        low, high = 0, len(fronts)
        while low < high:
            middle = (low + high) // 2
            if _is_beaten(point, fronts[middle]):
                low = middle + 1
            else:
                high = middle
        if low == len(fronts):
            fronts.append([])
        fronts[low].append(point)
        level_of[point] = low
    return [level_of[point] for point in points]


def _is_beaten(point: Costs, front: Sequence[Costs]) -> bool:
    """Return whether a point of `front` dominates `point`.

    All points of the front must precede `point` in lexicographic order. With two objectives it is
    enough to test the newest of them, which has the least second cost.
    """
    if len(point) == 2:
        return front[-1][1] <= point[1]
    return any(_dominates(other, point) for other in reversed(front))


def _dominates(one: Costs, other: Costs) -> bool:
    """Return whether `one` is in no objective worse than `other`, and in some objective better."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def spread_order(points: Sequence[Costs]) -> list[int]:
    """Return the indices of a front's points in an order of which every beginning covers the front.

    The first point comes first, then always the one that is farthest from its nearest predecessor,
    with each objective scaled to its range in the front. Of equally far points the one with the
    lower index is next, and copies of a point come after all different ones. Schmucker et al.,
    Multi-objective Asynchronous Successive Halving, 2021, call it an epsilon-net.
    """
    import numpy as np  # not at the top: most commands need none

    firsts: dict[Costs, int] = {}
    for index, point in enumerate(points):
        firsts.setdefault(point, index)
    indices, columns = [*firsts.values()], np.array(_scaled([*firsts])).T
    order, gaps = list[int](), np.full(len(indices), math.inf)
    for _ in indices:
        chosen = int(np.argmax(gaps))  # the first of equals
        order.append(indices[chosen])
        distances = np.zeros(len(indices))
        for column in columns:  # elementwise, so that every machine gets the same bits
            away = column - column[chosen]
            distances += away * away
        np.minimum(gaps, distances, out=gaps)
        gaps[chosen] = -1.0
    there = {*order}
    return [*order, *(index for index in range(len(points)) if index not in there)]


def _scaled(points: Sequence[Costs]) -> list[Costs]:
    """Return the points with each objective scaled linearly to 0 to 1.

    An objective in which all are equal becomes 0.
    """
    ranges = [(min(column), max(column)) for column in zip(*points, strict=True)]
    return [
        tuple(_share(cost, *between) for cost, between in zip(point, ranges, strict=True))
        for point in points
    ]


def _share(cost: float, low: float, high: float) -> float:
    """Return the position of a cost between `low` and `high` as a fraction, 0 to 1.

    Returns 0 if they are equal.
    """
    width = high / 2 - low / 2  # halves, so that no range of floats is infinite
    return (cost / 2 - low / 2) / width if width else 0.0


# ---- trials -------------------------------------------------------------------------------------


class Compared(NamedTuple):
    """Numbers by which a trial is compared with others in several objectives.

    They sort by the metric alone, since `by_metric` is the first field.
    """

    by_metric: tuple[bool, float, int]
    """Sort key by the metric: True if the trial has no score, its cost (0 without a score), and its
    number."""
    costs: Costs | None
    """Costs in all objectives, the metric's first; None if one is missing or not finite."""
    violation: float
    """Sum of the amounts by which the trial violates constraints; 0 if it violates none."""

    @property
    def number(self) -> int:
        """Number of the trial."""
        return self.by_metric[-1]


def compare(trial: Trial, level: float = math.inf) -> Compared:
    """Return the numbers by which a trial is compared at `level`, a value of `time_attr`.

    By default they are those at its present end.
    """
    values, objective = trial.values_at(level), trial.objective
    found = [value for value in values if value is not None and math.isfinite(value)]
    complete = len(found) == len(values)
    costs = tuple(-sign * value for sign, value in zip(objective.signs, found, strict=False))
    violation = sum(excess for excess in trial.violations_at(level) if excess > 0)
    by_metric = rank(objective, values[0], trial.number)
    return Compared(by_metric, costs if complete else None, violation)


class Placed(NamedTuple):
    """A trial's number and front, as an element of a list that is ordered best first."""

    number: int
    """Number of the trial."""
    front: int | None
    """Number of the trial's front, from 1; None if it lacks a score or violates a constraint."""


def arrange(trials: Sequence[Compared]) -> list[Placed]:
    """Return trials best first: front by front, then those without a score, then infeasible ones.

    Each front is in the order of `spread_order`, of which every beginning covers the front. Trials
    that lack a finite score in an objective are ordered by the metric, infeasible ones by their
    total violation. The first trial of a front, and that of equals, is the one that comes first in
    `trials`.
    """
    complete = [one for one in trials if one.costs is not None and one.violation <= 0]
    found = front_indices([one.costs or () for one in complete])
    placed = []
    for level in range(max(found, default=-1) + 1):
        members = [one for one, its in zip(complete, found, strict=True) if its == level]
        order = spread_order([one.costs or () for one in members])
        placed += [Placed(members[index].number, level + 1) for index in order]
    behind = [one for one in trials if one.costs is None or one.violation > 0]
    behind.sort(key=lambda one: (one.violation, one.by_metric[:2]))
    return [*placed, *(Placed(one.number, None) for one in behind)]


class Arranged:
    """Trials ordered by `arrange`, with look-ups of their places."""

    def __init__(self, trials: Sequence[Compared]) -> None:
        self._compared = {one.number: one for one in trials}
        self.placed = arrange(trials)

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Number of a trial → its place in the order, from 1."""
        return {one.number: place for place, one in enumerate(self.placed, start=1)}

    @property
    def fronts(self) -> int:
        """Number of different fronts; 0 if no trial is feasible with all scores."""
        return max((one.front or 0 for one in self.placed), default=0)

    def equal_places(self, place: int) -> list[int]:
        """Return the later places whose trials equal the one at `place` in costs and violation.

        Places count from 1, best first.
        """
        its = self._compared[self.placed[place - 1].number]
        return [
            other
            for other in range(place + 1, len(self.placed) + 1)
            if _is_equal(self._compared[self.placed[other - 1].number], its)
        ]


def _is_equal(one: Compared, other: Compared) -> bool:
    """Return whether two trials have the same score, costs and violation."""
    return (one.by_metric[:2], *one[1:]) == (other.by_metric[:2], *other[1:])


#: Trial → the numbers by which it is compared, or None if it is not.
CompareKey = Callable[[Trial], Compared | None]


@dataclass
class FrontsSummary(Summary):
    """All trials that take part in a comparison, ordered by fronts only when that is read."""

    key: CompareKey
    """Function that returns the numbers of a trial, or None to leave the trial out."""
    _of: dict[int, Compared] = field(default_factory=dict)
    """Number of a trial → its numbers at the last update."""
    _arranged: Arranged | None = None
    """Order of all entries; None if an entry has changed since it was computed."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Read the numbers of the trials that changed since the last call.

        `touched` lists the numbers of all trials changed so far, in the order of the changes.
        """
        for number in self.changed(trials, touched):
            entry = self.key(trials[number])
            if entry == self._of.get(number):
                continue
            self._arranged = None
            if entry is None:
                del self._of[number]
            else:
                self._of[number] = entry

    @property
    def arranged(self) -> Arranged:
        """Trials that take part, best first, ordered now if an entry has changed."""
        if self._arranged is None:
            self._arranged = Arranged(sorted(self._of.values(), key=lambda one: one.by_metric))
        return self._arranged


def front_text(front: int, fronts: int) -> str:
    """Return a text that names a front by its number from 1, such as ``the 2nd of 4 fronts``.

    `fronts` is their count; if it is 1, the text is ``the only front``.
    """
    if fronts == 1:
        return "the only front"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(front % 10, "th")
    return f"the {front}{'th' if front % 100 in (11, 12, 13) else ending} of {fronts} fronts"


@dataclass
class CurrentFront(Summary):
    """First front of all feasible trials by their present scores, recomputed after changes."""

    _costs: dict[int, Costs] = field(default_factory=dict)
    """Number of a feasible trial with all scores → its costs, one per objective; lower is
    better."""
    _numbers: list[int] | None = None
    """Sorted numbers of the front's trials; None if a cost has changed since they were computed."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Read the costs of the trials that changed since the last call.

        `touched` lists the numbers of all trials changed so far, in the order of the changes.
        """
        for number in self.changed(trials, touched):
            found, before = compare(trials[number]), self._costs.pop(number, None)
            if found.costs is not None and found.violation <= 0:
                self._costs[number] = found.costs
            if self._costs.get(number) != before:
                self._numbers = None

    @property
    def numbers(self) -> list[int]:
        """Numbers of the trials on the front, ascending."""
        if self._numbers is None:
            found = zip(self._costs, front_indices([*self._costs.values()]), strict=True)
            self._numbers = sorted(number for number, level in found if level == 0)
        return self._numbers


# ---- volume -------------------------------------------------------------------------------------


def hypervolume(points: Sequence[Costs], reference: Costs) -> float:
    """Return the volume between a reference point and the points that dominate it.

    Points that are not better than the reference in every objective add nothing. From three
    objectives on, the time grows with the number of points to the power of the number of objectives
    minus one.
    """
    inside = [p for p in set(points) if all(a < b for a, b in zip(p, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(inside)[0]
    if len(reference) == 2:
        return _area(inside, reference)
    inside.sort(key=lambda point: point[-1])
    total, ends = 0.0, [*(point[-1] for point in inside[1:]), reference[-1]]
    for count, (point, end) in enumerate(zip(inside, ends, strict=True), start=1):
        if end > point[-1]:
            below = [other[:-1] for other in inside[:count]]
            total += hypervolume(below, reference[:-1]) * (end - point[-1])
    return total


def _area(points: Sequence[Costs], reference: Costs) -> float:
    """Return the area that points of two costs dominate, below the reference point in both."""
    total, least = 0.0, reference[1]
    for first, second in sorted(points):
        if second < least:
            total += (reference[0] - first) * (least - second)
            least = second
    return total
