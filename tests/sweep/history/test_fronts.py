"""Fronts and their spread, beside slow loops that follow the definitions."""

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.history import fronts, ranking
from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.fronts import Arranged, Compared, Costs, compare
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec.objective import Constraint, Score

#: Few different numbers, so that equal ones are frequent, and any others.
NUMBER = st.one_of(st.integers(0, 4).map(float), st.floats(-1e300, 1e300))


def points(dimensions: int, most: int = 20) -> st.SearchStrategy[list[Costs]]:
    return st.lists(st.tuples(*[NUMBER] * dimensions), max_size=most)


ANY_POINTS = st.integers(1, 4).flatmap(points)


def dominates(one: Costs, other: Costs) -> bool:
    no_worse = all(a <= b for a, b in zip(one, other, strict=True))
    return no_worse and any(a < b for a, b in zip(one, other, strict=True))


def peeled(all_points: Sequence[Costs]) -> list[int]:
    """The fronts by definition: take away what nothing left dominates, again and again."""
    found: dict[int, int] = {}
    for level in itertools.count():
        left = [index for index in range(len(all_points)) if index not in found]
        if not left:
            return [found[index] for index in range(len(all_points))]
        for index in left:
            if not any(dominates(all_points[other], all_points[index]) for other in left):
                found[index] = level
    raise AssertionError


@given(ANY_POINTS)
def test_each_point_is_on_the_front_that_peeling_finds(all_points: list[Costs]) -> None:
    assert fronts.front_indices(all_points) == peeled(all_points)


@given(ANY_POINTS, st.randoms(use_true_random=False))
def test_the_order_of_points_changes_no_front(all_points: list[Costs], random: object) -> None:
    shuffled = [*range(len(all_points))]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = fronts.front_indices([all_points[index] for index in shuffled])
    assert [
        found[shuffled.index(index)] for index in range(len(all_points))
    ] == fronts.front_indices(all_points)


# ---- spread -------------------------------------------------------------------------------------


@given(ANY_POINTS)
def test_the_spread_has_every_point_once_and_starts_with_the_first(all_points: list[Costs]) -> None:
    order = fronts.spread_order(all_points)
    assert sorted(order) == [*range(len(all_points))]
    assert order[:1] == [0][: len(all_points)]


GRID = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12)


@given(GRID)
def test_the_next_point_is_always_the_farthest_from_those_before(
    grid: list[tuple[int, int]],
) -> None:
    """With both ends of the range there, scaling changes no comparison of distances."""
    corners = [(0.0, 8.0), (8.0, 0.0)]
    different = [*dict.fromkeys([*corners, *((float(a), float(b)) for a, b in grid)])]
    order = fronts.spread_order(different)
    for count in range(1, len(order)):
        gaps = {
            index: min(math.dist(different[index], different[one]) for one in order[:count])
            for index in order[count:]
        }
        assert gaps[order[count]] == max(gaps.values())
        assert order[count] == min(
            index for index, gap in gaps.items() if gap == max(gaps.values())
        )


@given(points(2, most=12), st.sampled_from([2.0**-20, 2.0**20]))
def test_the_unit_of_an_objective_changes_no_spread(all_points: list[Costs], unit: float) -> None:
    rounded = [tuple(round(cost % 1000, 3) for cost in point) for point in all_points]
    scaled = [(first, second * unit) for first, second in rounded]
    assert fronts.spread_order(scaled) == fronts.spread_order(rounded)


def test_the_ends_of_a_front_come_first_then_its_middle_and_copies_last() -> None:
    line = [(0.0, 8e6), (0.0, 8e6), (1.0, 7e6), (4.0, 4e6), (8.0, 0.0)]
    assert fronts.spread_order(line) == [0, 4, 3, 2, 1]


def test_a_range_that_no_float_holds_has_a_spread() -> None:
    assert fronts.spread_order([(-1e308, 1.0), (0.0, 0.5), (1e308, 0.0)]) == [0, 2, 1]


# ---- trials -------------------------------------------------------------------------------------

TWO = Objective(
    "score", "max", Score(), objectives=(("cost", "min"),), constraints=(Constraint("size", 1, 9),)
)


def trial(number: int, *rows: tuple[float | None, float | None, float | None]) -> Trial:
    made = Trial.new(number, {}, {}, TWO)
    replica = made.replicas[0]
    replica.curve = [Point(i, float(i), row[0], row[1:]) for i, row in enumerate(rows, start=1)]
    replica.status = Status.PAUSED
    return made


def arranged(trials: Sequence[Trial], level: float = math.inf) -> list[tuple[int, int | None]]:
    placed = fronts.arrange([compare(trial, level) for trial in trials])
    return [(one.number, one.front) for one in placed]


def test_trials_stand_front_by_front_then_incomplete_then_by_violation() -> None:
    rows = [
        (5.0, 5.0, 1.0),
        (9.0, 9.0, 1.0),
        (4.0, 6.0, 1.0),
        (99.0, None, 1.0),
        (99.0, math.nan, 0.0),
        (100.0, 0.0, 11.0),
        (0.0, 0.0, 10.0),
        (7.0, 1.0, None),
    ]
    found = arranged([trial(number, row) for number, row in enumerate(rows)])
    assert found == [(0, 1), (1, 1), (2, 2), (3, None), (4, None), (6, None), (5, None), (7, None)]


def test_at_a_rung_every_objective_and_constraint_is_read_there() -> None:
    early = trial(0, (1.0, 8.0, 1.0), (3.0, 4.0, 99.0))
    assert early.values_at(1.0) == (1.0, 8.0)
    assert early.values_at(1.5) == (2.0, 6.0)
    assert early.values_at() == (3.0, 4.0)
    assert early.violations_at(1.0) == (-8.0,)
    assert early.violations == (90.0,)


def test_an_objective_that_is_not_reported_past_the_rung_counts_with_its_last_value() -> None:
    assert trial(0, (1.0, 8.0, 1.0), (3.0, None, 1.0)).values_at(2.0) == (3.0, 8.0)
    assert trial(0, (1.0, None, 1.0), (3.0, None, 1.0)).values_at(2.0) == (3.0, None)
    late = trial(0, (1.0, None, 1.0), (3.0, 7.0, 1.0))
    assert late.values_at(1.0) == (1.0, 7.0)


def test_an_objective_that_has_diverged_is_missing() -> None:
    nan = math.nan
    diverged = trial(0, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0), *[(1.0, nan, 1.0)] * 3)
    assert diverged.values_at(5.0) == (1.0, None)
    assert diverged.values_at(2.0) == (1.0, 1.0)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_a_bound_that_overflows_is_on_no_front(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trial(0, (1.0, 1.0, 1.0))
    monkeypatch.setattr(Trial, "values_at", lambda *_: (1.0, value))
    assert arranged([made]) == [(0, None)]


def test_equals_of_a_place_are_all_trials_with_its_numbers() -> None:
    compared = [
        Compared((False, 0.0, number), costs, 0.0)
        for number, costs in enumerate([(0.0, 1.0), (0.0, 1.0), (0.0, 2.0), (0.0, 1.0)])
    ]
    assert Arranged(compared).equal_places(1) == [2, 3]
    assert Arranged(compared).equal_places(4) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_fronts_that_are_kept_equal_those_of_all_trials(
    changes: list[tuple[int, int, int]],
) -> None:
    history = History(TWO)
    history.trials = [trial(number) for number in range(10)]

    def key(one: Trial) -> Compared | None:
        return compare(one) if one.is_known else None

    for number, score, cost in changes:
        history.trials[number].replicas[0].curve = [Point(1, 1.0, float(score), (float(cost), 0.0))]
        history.touch(number)
        kept = history.summary("fronts", lambda: fronts.FrontsSummary(key)).arranged
        there = [compare(one) for one in history.trials if one.is_known]
        there.sort(key=lambda one: one.by_metric)
        assert kept.placed == fronts.arrange(there)
        assert kept.places == {one.number: at for at, one in enumerate(kept.placed, start=1)}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 3)), max_size=20))
def test_the_kept_front_of_a_history_is_that_of_all_its_trials(
    changes: list[tuple[int, int, int]],
) -> None:
    history = History(TWO)
    history.trials = [trial(number) for number in range(10)]
    for number, score, cost in changes:
        size = 10.0 if cost == score == 3 else 0.0  # which breaks the constraint
        changed = Point(1, 1.0, float(score), (float(cost), size))
        history.trials[number].replicas[0].curve = [changed]
        history.touch(number)
        places = history.expectations.position_of
        assert history.front() == ranking.front(history.trials, TWO, places)


# ---- names and volume ---------------------------------------------------------------------------


def test_fronts_are_named_in_words() -> None:
    names = [fronts.front_text(front, 200) for front in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 111)]
    assert [name.split()[1] for name in names] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "111th"]
    )
    assert fronts.front_text(2, 4) == "the 2nd of 4 fronts"
    assert fronts.front_text(1, 1) == "the only front"


def boxes(all_points: Sequence[Costs], reference: Costs) -> float:
    """The volume by inclusion and exclusion."""
    total = 0.0
    for count in range(1, len(all_points) + 1):
        for some in itertools.combinations(all_points, count):
            corner = [max(column) for column in zip(*some, strict=True)]
            sides = [max(0.0, end - at) for at, end in zip(corner, reference, strict=True)]
            total += (-1) ** (count + 1) * math.prod(sides)
    return total


SMALL = st.integers(1, 4).flatmap(
    lambda d: st.lists(st.tuples(*[st.integers(0, 5).map(float)] * d), max_size=6)
)


@given(SMALL)
def test_the_volume_is_that_of_the_boxes_below_the_reference(all_points: list[Costs]) -> None:
    reference = (4.0,) * len(all_points[0]) if all_points else (4.0,)
    assert fronts.hypervolume(all_points, reference) == boxes(all_points, reference)


@pytest.mark.parametrize("count", [1, 10, 1000])
def test_the_volume_of_a_straight_front_approaches_a_half(count: int) -> None:
    line = [(index / count, 1 - index / count) for index in range(count + 1)]
    expected = 0.5 - 0.5 / count
    assert fronts.hypervolume(line, (1.0, 1.0)) == pytest.approx(expected, abs=1e-12)
