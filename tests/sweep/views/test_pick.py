"""The pick in words: two lines with what a person must know."""

import math
from collections.abc import Sequence

import pytest

from sweep.cli.trial_tables import chance_text, final_evaluation_remarks
from sweep.spec.objective import Mode
from sweep.views import formatting, overview
from tests.sweep.history.test_expectation import history, objective, trial


def lines(scores: Sequence[Sequence[float]], mode: Mode = "max") -> list[str]:
    """What `sweep best` says of the pick among trials with these scores of their seeds."""
    wanted = objective(mode)
    past = history([trial(n, {math.inf: its}, wanted) for n, its in enumerate(scores)])
    best = past.best
    assert best is not None
    row = overview.row(best, past)
    said = {**row, "scores": row["scores"][:1], "pick": overview.pick(past, best)}
    rest = {"final_evaluation": None, "scored": 1, "is_random": True}
    return [*final_evaluation_remarks({**said, **rest})]


def test_two_lines_say_what_is_expected_the_luck_and_the_runner_up() -> None:
    first, second = lines([[500.0], [480.0], *([100.0 + 10 * n] for n in range(20))])
    assert first.startswith("expected on a new seed: ")
    assert "; its score of 500 is " in first
    assert first.endswith(" better by luck")
    assert second.startswith("runner-up: trial 1, expected ")
    assert "best of all with probability " in second
    assert "tell them apart" in second


@pytest.mark.parametrize(
    ("probability", "text"), [(0.31, "0.31"), (0.004, "less than 0.01"), (0.0, "less than 0.01")]
)
def test_no_trial_is_said_to_have_no_chance(probability: float, text: str) -> None:
    assert chance_text(probability) == text


def test_a_low_loss_is_better_by_luck() -> None:
    first, _ = lines([[1.0], *([100.0 + 10 * n] for n in range(20))], mode="min")
    assert "; its score of 1 is " in first
    assert first.endswith(" better by luck")


def test_at_a_ceiling_it_says_how_many_are_expected_to_score_as_much() -> None:
    _, second = lines([*([500.0] for _ in range(20)), *([100.0 + n] for n in range(10))])
    assert "runner-up: trial 1, first of 19 that are expected to score as much, " in second


@pytest.mark.parametrize("hour", [None, 2.5])
def test_the_outlook_is_a_sentence(hour: float | None) -> None:
    found = {"again": 3.0, "share": 0.015, "range": 200.0, "hour": hour, "hour_share": 0.0125}
    said = formatting.describe_outlook(found, "reward")
    assert said.startswith("expected to improve the best trial's reward: ")
    assert said.endswith("as much training again by 3 (1.5% of its range)")
    assert ("the next hour by 2.5 (1.2% of its range), " in said) == (hour is not None)
