"""Searches beside a known front: the figures are what they say, and pruning by fronts pays."""

import math

import pytest

from benchmarks.search import fronts
from sweep.history.fronts import hypervolume
from sweep.testing import CurvePoint, simulate

OUTWARDS = "bent outwards"


@pytest.mark.parametrize("exponent", fronts.PROBLEMS.values())
def test_the_known_volume_is_that_of_settings_without_waste_that_train_for_ever(
    exponent: float,
) -> None:
    result, count = fronts.curve(exponent), 4000
    found = []
    for place in range(count + 1):
        config = {"direction": place / count, "waste": 0.0, "more_waste": 0.0, "slowness": 0.0}
        values = result(CurvePoint(0, 0, 10_000, config, {}))
        found.append((values["first"], values["second"]))
    expected = fronts.known_volume(exponent)
    assert hypervolume(found, fronts.REFERENCE) == pytest.approx(expected, rel=2e-3)
    assert hypervolume(found, fronts.REFERENCE) <= expected + 1e-9


def test_the_newest_results_are_those_of_the_first_steps_alone() -> None:
    course = simulate(
        {"trials": 3, "scheduler": "fifo", "stop": {"training_iteration": 4}},
        lambda at: {"score": 0.0, "first": at.trial, "second": at.iteration},
    )
    assert fronts.newest(course.records, 6) == [(0.0, 4.0), (1.0, 2.0)]
    assert fronts.newest(course.records, 99) == [(0.0, 4.0), (1.0, 4.0), (2.0, 4.0)]


@pytest.mark.proof
def test_at_equal_steps_fronts_find_more_than_a_sum_and_than_random_search_without_pruning() -> (
    None
):
    by_fronts, by_sum, unpruned = (
        math.fsum(fronts.play(fronts.Play(OUTWARDS, method, seed, 32)) for seed in range(3)) / 3
        for method in (
            "random, `asha` by fronts",
            "random, `asha` by the sum",
            "random, no pruning",
        )
    )
    assert by_fronts > by_sum
    assert by_fronts > unpruned


def test_the_table_has_a_line_for_each_method_and_a_column_for_each_problem() -> None:
    found = {(p, m): [1.0, 3.0] for p in fronts.PROBLEMS for m in fronts.METHODS}
    head, rule, *lines = fronts.rows(found)
    assert head.count("|") == rule.count("|") == len(fronts.PROBLEMS) + 2
    assert [line.split(" | ")[0] for line in lines] == [f"| {m}" for m in fronts.METHODS]
    assert all("2.0 ± 2.0" in line for line in lines)
