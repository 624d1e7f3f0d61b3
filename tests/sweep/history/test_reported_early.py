"""A slice that reported results before it ended: they decide as if they had come at its end."""

import math

import pytest

from sweep.driver.decisions import missing_metric_error
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Opened,
    Recorded,
    Reported,
    Row,
    Status,
)
from sweep.history.history import History
from tests.support.trials import objective


def at_its_rung(name: str, reported: int, views: bool = False, value: float = 1.0) -> History:
    """A trial that paused at iteration 3 and had reported some of its results before."""
    rows = tuple(Row(i, {"training_iteration": i, name: value / i}) for i in (1, 2, 3))
    events: list[Event] = [Created(0, {}, {}, 0), Opened(0, 0, 0, Goal(until=3.0), "why")]
    if reported:
        events.append(Reported(0, 0, 0, 0, rows[:reported]))
    end = Closed(
        0,
        0,
        0,
        End.GOAL,
        Status.PAUSED,
        "why",
        source=reported,
        rows=rows[reported:],
        reported_to=reported or None,
    )
    history = History(objective("max"), shows_unsaved=views)
    history.extend([Recorded(k, 0, 0.0, event) for k, event in enumerate([*events, end], start=1)])
    return history


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("reported", [0, 1, 3])
def test_results_that_were_all_reported_early_have_the_metric(reported: int, views: bool) -> None:
    history = at_its_rung("score", reported, views)
    assert history.has_metric
    assert history.trials[0].score == 1.0 / 3
    assert missing_metric_error(history, "demo", [3.0]) is None


@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("reported", [0, 1, 3])
def test_a_metric_that_is_not_a_number_yet_is_no_missing_one(reported: int, views: bool) -> None:
    history = at_its_rung("score", reported, views, math.nan)
    assert history.has_metric
    assert missing_metric_error(history, "demo", [3.0]) is None


@pytest.mark.parametrize("reported", [0, 1, 3])
def test_a_metric_that_is_missing_is_told_with_the_names_that_came_early(reported: int) -> None:
    refused = missing_metric_error(at_its_rung("scor", reported), "demo", [3.0])
    assert "no metric 'score'; they have: scor, training_iteration; did you mean 'scor'?" in str(
        refused
    )
