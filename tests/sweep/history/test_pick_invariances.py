"""Drawn sweeps in another unit, with another sign or other numbers: the same pick and claims."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from sweep.history.curve import Point
from sweep.history.events import Goal, Status
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec.objective import Mode, Score

RUNGS = (9.0, 27.0, 81.0)
TOP = RUNGS[-1]
#: Difference that rounding may cause, relative to the largest score.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Drawn:
    """Course of one trial: for each rung that it reached, the new values of each seed."""

    values: list[list[list[float]]]
    """Rung → seed → values since the previous rung."""
    ended_early: bool
    """True if the first seed completed at the last rung but one, as at a target."""


def drawn_sweep(seed: int) -> list[Drawn]:
    """Draw 1 to 14 trials with up to three seeds; some at a ceiling, without numbers or early."""
    stream = np.random.default_rng(seed)
    ceiling = 1.0 if seed % 3 == 0 else math.inf
    nan = 0.15 if seed % 4 == 1 else 0.0
    courses = []
    for _ in range(int(stream.integers(1, 15))):
        effect, seeds, values = stream.normal(), 1, list[list[list[float]]]()
        for rung in range(int(stream.integers(1, 4))):
            seeds = max(seeds, int(stream.choice([1, 1, 2, 3])))
            shape = (seeds, int(stream.integers(1, 9)))
            heights = np.minimum(effect + rung + stream.normal(0, 0.5, shape), ceiling)
            heights = np.round(heights * 1024) / 1024  # scaled and shifted without rounding
            heights[stream.random(shape) < nan] = math.nan
            values.append(heights.tolist())
        courses.append(Drawn(values, bool(stream.random() < 0.2)))
    return courses


def history(
    courses: Sequence[Drawn], factor: float = 1.0, offset: float = 0.0, mode: Mode = "max"
) -> History:
    """Return the history of these trials in a metric of `factor` times the values + `offset`."""
    wanted = Objective("m", mode, Score())
    made = History(wanted)
    trials = []
    for number, course in enumerate(courses):
        one, start = Trial.new(number, {}, {}, wanted), 0.0
        for level, seeds in zip(RUNGS, course.values, strict=False):
            while len(one.replicas) < len(seeds):
                one.replicas += Trial.new(number, {}, {}, wanted).replicas
                one.replicas[-1].joined_at = Goal(level, TOP)
            is_last = seeds is course.values[-1]
            for index, (replica, values) in enumerate(zip(one.replicas, seeds, strict=True)):
                is_early = is_last and course.ended_early and index == 0
                replica.index, replica.goal, replica.steps = index, Goal(level, TOP), level
                is_over = level == TOP or is_early
                replica.status = Status.COMPLETED if is_over else Status.PAUSED
                end = start + (level - start) * (0.5 if is_early else 1.0)
                times = np.linspace(start, end, len(values) + 1)[1:].tolist()
                for time, value in zip(times, values, strict=True):
                    point = Point(len(replica.curve) + 1, time, factor * value + offset)
                    replica.curve.append(point)
            one.milestones.append(one.milestone(number))
            start = level
        trials.append(one)
    made.trials = trials
    return made


def claims(past: History) -> dict[int, tuple[float, float | None]]:
    found = {one.number: past.expected(one) for one in past.trials}
    return {number: (its.value, its.error) for number, its in found.items() if its is not None}


def check_same(
    plain: History, other: History, factor: float, offset: float, numbers: Sequence[int]
) -> None:
    """Check that trial ``numbers[i]`` of `other` is as trial i of `plain`, in another unit."""
    mine, its = claims(plain), claims(other)
    assert {numbers[number] for number in mine} == set(its)
    size = max([1.0, *(abs(value) for value, _ in mine.values())])
    rounding = ROUNDING * (abs(factor) * size + abs(offset))
    for number, (value, error) in mine.items():
        its_value, its_error = its[numbers[number]]
        assert its_value == pytest.approx(factor * value + offset, rel=0, abs=rounding)
        assert (its_error is None) is (error is None)
        if error is not None:
            assert its_error == pytest.approx(abs(factor) * error, rel=0, abs=rounding)
    assert len(plain.ranked()) == len(other.ranked())
    places = [numbers.index(one.number) for one in other.ranked()]
    ranked_values = [mine[place][0] for place in places if place in mine]
    for above, below in itertools.pairwise(ranked_values):
        assert above >= below - ROUNDING * size  # only equals change places
    chances, other_chances = plain.expectations.chances(), other.expectations.chances()
    for number, chance in chances.items():
        assert other_chances[numbers[number]] == pytest.approx(chance, abs=1e-6)
    assert (plain.best is None) is (other.best is None)
    if plain.best is not None and plain.best.number in mine:
        assert other.best is not None
        best = mine[numbers.index(other.best.number)][0]
        assert best == pytest.approx(mine[plain.best.number][0], rel=0, abs=ROUNDING * size)


@pytest.mark.parametrize(
    ("factor", "offset"),
    [(2.0**20, 0.0), (2.0**-40, 0.0), (1000.0, 0.0), (1.0, 4096.0), (-1.0, 0.0), (-0.5, -8.0)],
)
def test_the_unit_and_the_sign_of_a_metric_change_no_pick(factor: float, offset: float) -> None:
    for seed in range(60):
        courses = drawn_sweep(seed)
        other = history(courses, factor, offset, "min" if factor < 0 else "max")
        check_same(history(courses), other, factor, offset, range(len(courses)))


def test_a_unit_of_a_power_of_two_and_the_sign_change_no_bit() -> None:
    for seed in range(60):
        courses = drawn_sweep(seed)
        mine, other = history(courses), history(courses, -(2.0**9), 0.0, "min")
        expected = {
            number: (-(2.0**9) * value, None if error is None else 2.0**9 * error)
            for number, (value, error) in claims(mine).items()
        }
        assert claims(other) == expected
        assert [one.number for one in other.ranked()] == [one.number for one in mine.ranked()]


def test_the_numbers_of_trials_change_no_pick() -> None:
    for seed in range(60):
        courses = drawn_sweep(seed)
        numbers = np.random.default_rng(seed).permutation(len(courses)).tolist()
        moved = [courses[numbers.index(place)] for place in range(len(courses))]
        check_same(history(courses), history(moved), 1.0, 0.0, numbers)


def test_a_trial_without_a_number_changes_no_claim() -> None:
    for seed in range(60):
        courses = drawn_sweep(seed)
        empty = Drawn([[[math.nan, math.nan]]], ended_early=False)
        more = history([*courses, empty])
        assert claims(more) == claims(history(courses))
        assert more.best is None or more.best.number < len(courses)
