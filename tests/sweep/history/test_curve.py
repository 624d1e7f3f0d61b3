"""A curve is read where it has a number, and between two of them on the line."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.spec.objective import Score

NAN = math.nan
#: A metric that is there at every fifth result, and NaN at the others.
EVALUATED = [float(i) if i % 5 == 0 else NAN for i in range(1, 33)]


def replica(
    values: Sequence[float | None], times: Sequence[float] = (), score: Score | None = None
) -> Replica:
    made = Replica(0, 0, Objective("m", "max", score or Score(), "steps"), status=Status.PAUSED)
    times = times or [float(i) for i in range(1, len(values) + 1)]
    points = enumerate(zip(times, values, strict=True), start=1)
    made.curve = [Point(i, time, value) for i, (time, value) in points]
    return made


@pytest.mark.parametrize(
    ("level", "score", "step"),
    [(3, 1.0, 7), (7, 1.0, 7), (10.5, 1.5, 10.5), (14, 2.0, 14), (16, 2.5, 16), (18, 3.0, 18)],
)
def test_a_value_between_two_results_lies_on_the_line(
    level: float, score: float, step: float
) -> None:
    """Before the first result that one counts, and says at which step it is."""
    curve = replica([1.0, None, 2.0, NAN, 3.0], [7, 9, 14, 16, 18])
    assert (curve.score_at(level), curve.step_at(level)) == (score, step)
    assert curve.reached(level)


def test_past_the_last_number_nothing_is_compared_until_the_trial_has_ended() -> None:
    curve = replica(EVALUATED)
    assert (curve.reached(30), curve.reached(31), curve.is_interrupted) == (True, False, True)
    assert (curve.known_from, curve.known_until) == (5, 30)
    curve.status = Status.COMPLETED
    assert curve.reached(31)
    assert (curve.score_at(31), curve.step_at(31)) == (30.0, 30)
    assert not curve.reached(33)


def test_nothing_is_reached_before_the_first_number() -> None:
    for values in ([None] * 9, [NAN] * 9, []):
        curve = replica(values)
        assert not curve.reached(1)
        assert not curve.is_known
        assert (curve.score_at(), curve.step_at(1)) == (None, None)


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (Score(), 30.0),
        (Score(kind="best"), 30.0),
        (Score(kind="mean_last", k=2), 27.5),
        (Score(kind="area"), 17.5),
    ],
)
def test_nan_between_evaluations_is_no_value(score: Score, expected: float) -> None:
    curve = replica(EVALUATED, score=score)
    assert curve.score_at() == expected
    assert not curve.has_diverged


@pytest.mark.parametrize(
    ("values", "diverged"),
    [
        ([1.0, NAN], False),  # of one number it is not known how often there are numbers
        ([1.0, 1.0, NAN], True),
        ([1.0, 1.0, None], False),
        ([1.0, 1.0, NAN, 1.0], False),
        ([1.0, None, None, 1.0, None, NAN], True),  # None where nothing is evaluated
        ([1.0, NAN, 1.0, NAN, NAN], False),
        ([1.0, NAN, 1.0, NAN, NAN, NAN], True),
        ([NAN] * 20 + [1.0, 1.0, NAN], True),
        ([1.0, 1.0, math.inf], False),
    ],
)
def test_nan_that_lasts_longer_than_between_two_numbers_is_divergence(
    values: list[float | None], diverged: bool
) -> None:
    curve = replica(values)
    assert curve.has_diverged == diverged
    assert curve.reached(len(values)) == (diverged or values[-1] not in (None, NAN))
    if diverged:
        assert curve.score_at() is None
        assert curve.score_at(1) == 1.0
        assert math.isnan(curve.value or 0.0)


def test_equal_values_stay_equal_at_every_step() -> None:
    for step in (1.3, 2.0, 7.7, 9.9):
        one, other = replica([0.1, 0.1], [1, 10]), replica([0.1] * 9, list(range(2, 11)))
        assert one.score_at(step) == other.score_at(step) == 0.1


def test_between_numbers_that_are_not_finite_there_is_no_line() -> None:
    curve = replica([1.0, math.inf, 3.0], [1, 3, 5])
    assert (curve.score_at(2), curve.step_at(2)) == (None, 3)
    assert (curve.score_at(4), curve.step_at(4)) == (3.0, 5)
    assert replica([-1.7e308, 1.7e308], [1, 3]).score_at(2) == 0.0


VALUES = st.lists(st.sampled_from([None, NAN, 1.0, 2.0, 5.0]), max_size=30)


@given(VALUES, VALUES, st.integers(0, 30))
def test_a_curve_that_grows_and_is_cut_reads_as_one_made_anew(
    first: list[float | None], second: list[float | None], cut: int
) -> None:
    curve = replica(first)
    assert curve.known_until == replica(first).known_until
    curve.add_results(cut, ())
    curve.count_results()
    kept = first[:cut]
    curve.curve += [
        Point(i, float(i), value) for i, value in enumerate(second, start=len(kept) + 1)
    ]
    anew = replica([*kept, *second])
    levels = [0.5, 3.0, 3.5, 11.0, math.inf]
    assert (curve.known_until, curve.has_diverged) == (anew.known_until, anew.has_diverged)
    assert curve.scores_at(levels) == [anew.score_at(level) for level in levels]
    assert repr(curve.sums_after(cut, ())) == repr(anew.sums_after(cut, ()))
