"""What a trial's curves count as, under several seeds and with values that are not numbers."""

import math
from collections.abc import Sequence

import pytest

from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec import Score
from sweep.spec.objective import Aggregate, Kind

Curve = Sequence[float | None]


def trial(number: int, score: Score, curves: Sequence[Curve], kind: Kind) -> Trial:
    objective = Objective("m", "max", score, "training_iteration", Aggregate(kind=kind))
    made = Trial.new(number, {}, {}, objective, (None,) * len(curves))
    for replica, values in zip(made.replicas, curves, strict=True):
        replica.status = Status.PAUSED
        replica.curve = [Point(i, float(i), value) for i, value in enumerate(values, start=1)]
    return made


TWO: Sequence[Curve] = ([1.0, 2.0, 3.0], [5.0, 4.0, math.nan])


@pytest.mark.parametrize(
    ("score", "whole", "at_2"),
    [
        (Score(kind="last"), None, 3.0),
        (Score(kind="best"), 4.0, 3.5),
        (Score(kind="mean_last", k=2), None, 3.0),
        (Score(kind="mean_last", k=1), None, 3.0),
        (Score(kind="area"), None, 3.0),
    ],
)
def test_a_trial_of_which_a_seed_diverged_has_no_score_but_the_best(
    score: Score, whole: float | None, at_2: float | None
) -> None:
    made = trial(0, score, TWO, "mean")
    assert (made.score, made.score_at(2)) == (whole, at_2)


def test_iterations_without_the_metric_do_not_count() -> None:
    curves: Sequence[Curve] = ([None, 2.0, None], [4.0, None, 8.0])
    for score, expected in (("last", 5.0), ("best", 5.0), ("area", 4.0)):
        made = trial(0, Score.model_validate({"kind": score}), curves, "mean")
        assert made.score == expected
    assert trial(0, Score(), curves, "worst").score == 2.0
    assert trial(0, Score(), ([None, None], [4.0, 5.0]), "mean").score is None


def test_a_trial_without_a_score_ranks_last_and_keeps_its_place_by_number() -> None:
    curves: Sequence[Sequence[Curve]] = ([[math.nan]], [[1.0]], [[]], [[math.inf]], [[2.0]])
    history = History(Objective("m", "max", Score()))
    history.trials = [trial(n, Score(), curve, "mean") for n, curve in enumerate(curves)]
    assert [t.number for t in history.ranked()] == [4, 1]
