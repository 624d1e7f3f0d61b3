"""Numbers that no training should report, and what the history makes of them."""

import math
from typing import Any

import pytest

from sweep.history.events import (
    Closed,
    Created,
    Dropped,
    End,
    Goal,
    Opened,
    Recorded,
    Row,
    Saved,
    Status,
    TermBegan,
    TermEnded,
)
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.spec.objective import Score
from sweep.testing import CurvePoint, simulate

THREE: dict[str, Any] = {"trials": 3, "scheduler": "fifo", "seeds": 3}


@pytest.mark.parametrize(
    ("keys", "scores"),
    [
        ({"aggregate": {"lower_bound": 0.9}}, (1e160, 2e160, 3e160)),
        ({"aggregate": "mean"}, (1.7e308,) * 3),
        ({"aggregate": "iqm"}, (1.7e308, -1.7e308, 1.7e308)),
        ({"aggregate": "median"}, (1.7e308,) * 3),
        ({"score": {"mean_last": 3}}, (1.7e308,) * 3),
        ({"score": "area"}, (-1.7e308,) * 3),
    ],
)
def test_scores_of_any_size_are_compared(keys: dict[str, Any], scores: tuple[float, ...]) -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        score = scores[at.seed_index] if at.trial < 2 else 1.0
        return {"score": score, "done": at.iteration == 3}

    course = simulate({**THREE, **keys}, curve, slots=2)
    assert [trial.status for trial in course.history.trials] == [Status.COMPLETED] * 3
    assert len(course.history.ranked()) == 3


@pytest.mark.parametrize("amount", [1.7e308, math.inf, -math.inf, math.nan])
def test_absurd_seconds_and_steps_are_taken_in(amount: float) -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        told = {"score": 1.0, "timesteps_this_iter": amount, "done": at.iteration == 3}
        return told if math.isnan(amount) else {**told, "time_this_iter_s": amount}

    course = simulate({"trials": 1, "scheduler": "fifo"}, curve)
    assert course.history.trials[0].status is Status.COMPLETED


def test_what_is_written_while_nobody_drives_takes_no_time_of_the_budget() -> None:
    saved = (Saved(1, "aa", "a.swck", 1), Saved(2, "bb", "b.swck", 1))
    rows = (Row(1, {"score": 1.0}), Row(2, {"score": 1.0}))
    day = 86400.0
    history = History(Objective("score", "max", Score()))
    history.extend(
        [
            Recorded(1, 1, 1000.0, TermBegan("host", 1, 1)),
            Recorded(2, 1, 1001.0, Created(0, {}, {}, 0)),
            Recorded(3, 1, 1002.0, Opened(0, 0, 0, Goal(), "")),
            Recorded(
                4, 1, 1060.0, Closed(0, 0, 0, End.ASKED, Status.PAUSED, "", saved=saved, rows=rows)
            ),
            Recorded(5, 1, 1060.0, TermEnded("stopped")),
            Recorded(6, 2, 1060.0 + day, Dropped(0, 0, ("bb",))),
            Recorded(7, 3, 1070.0 + day, TermBegan("host", 1, 1)),
            Recorded(8, 4, 1080.0 + day, TermBegan("host", 1, 1, unrecorded_s=8.0)),
            Recorded(9, 5, 1081.0 + day, TermBegan("host", 1, 1, unrecorded_s=-1e300)),
        ]
    )
    assert history.spent_s == 68.0
