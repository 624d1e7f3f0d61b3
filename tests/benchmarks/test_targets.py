"""How often a score falls after a target: the tables of docs/seeds.md."""

import numpy as np
import pytest

from benchmarks.search import game as tables
from benchmarks.search import targets


@pytest.mark.parametrize(
    ("consecutive", "ends"), [(1, [1, 3, 0, 2]), (2, [4, 4, 0, 0]), (3, [0, 5, 0, 0])]
)
def test_a_training_meets_a_target_once_enough_consecutive_values_have_met_it(
    consecutive: int, ends: list[int]
) -> None:
    curves = np.array([[9, 0, 9, 9, 0], [0, 0, 9, 9, 9], [0, 8, 8, 8, 8], [0, 9, 0, 9, 0]], float)
    assert targets.first_met(curves, 9.0, consecutive).tolist() == ends


def test_the_table_of_the_page_is_measured_from_the_shipped_curves() -> None:
    (game,) = tables.load(targets.TABLE)
    rows = [targets.measure(game, targets.TARGET, count) for count in targets.COUNTS]
    assert "\n".join(targets.text(rows)) in targets.PAGE.read_text("utf-8")
    assert [row.score for row in rows] == sorted(row.score for row in rows)


def test_the_table_of_choices_is_measured_from_the_shipped_curves() -> None:
    (game,) = tables.load(targets.TABLE)
    stream = np.random.default_rng(0)
    rows = [targets.choose(game, targets.TARGET, seeds, stream) for seeds in targets.FURTHER]
    assert "\n".join(targets.late_text(rows)) in targets.PAGE.read_text("utf-8")
    assert all(row.late > row.last for row in rows)
