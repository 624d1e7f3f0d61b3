"""Trainings that ended at a target, beside seeds that train past it."""

import math

import numpy as np
import pytest

from sweep.history.events import Status
from sweep.history.posterior.early_ends import correct
from sweep.history.posterior.scores import Scores
from sweep.spec.objective import Mode
from sweep.testing import CurvePoint, SimulationResult, simulate


def scores(seeds: list[list[float]], early: list[int]) -> Scores:
    """Return scores of one level; the first `early` seeds of each trial ended early."""
    means = np.array([[np.mean(one)] for one in seeds])
    away = [np.array(one) - np.mean(one) for one in seeds]
    squares = np.array([(one**2).sum() for one in away])
    sums = np.array([[n, one[:n].sum(), 0.0] for n, one in zip(early, away, strict=True)])
    nothing, counts = np.zeros(len(seeds)), np.array([[float(len(one))] for one in seeds])
    return Scores(
        means, means, counts, np.zeros(len(seeds), int), squares, nothing, means, means,
        nothing, nothing, counts, sums,
    )  # fmt: skip


def test_the_mean_fall_is_subtracted_from_seeds_that_ended_early() -> None:
    """Falls of 3 and 6, and none with the weight of one setting, are 3 on average."""
    seeds = [[9.0, 6.0, 6.0], [9.0, 2.0, 4.0], [9.0], [5.0]]
    found, doubt = correct(scores(seeds, [1, 1, 1, 0]))
    assert found.level_scores[:, 0].tolist() == pytest.approx([6.0, 4.0, 6.0, 5.0])
    assert found.paired_scores[:, 0].tolist() == pytest.approx([6.0, 4.0, 6.0, 5.0])
    spread = np.array([[6.0, 6.0, 6.0], [6.0, 2.0, 4.0]])
    assert found.squares[:2].tolist() == pytest.approx(
        [float(((row - row.mean()) ** 2).sum()) for row in spread]
    )
    assert doubt.tolist() == pytest.approx([2 / 9, 2 / 9, 2.0, 0.0])


@pytest.mark.parametrize("early", [[0, 0], [1, 3]])
def test_without_a_setting_that_has_both_kinds_of_seeds_scores_stay_as_they_are(
    early: list[int],
) -> None:
    plain = scores([[9.0], [9.0, 6.0, 6.0]], early)
    found, doubt = correct(plain)
    assert found is plain
    assert not doubt.any()


def test_scores_that_rise_after_an_early_end_stay_as_they_are() -> None:
    plain = scores([[9.0, 12.0], [9.0]], [1, 1])
    found, _ = correct(plain)
    assert found.level_scores.tolist() == plain.level_scores.tolist()


def after_a_target(mode: Mode) -> SimulationResult:
    """Return a sweep whose trials all end at a target of 5, and would end at 1 to 2."""
    sign = 1.0 if mode == "max" else -1.0

    def falls(at: CurvePoint) -> dict[str, float]:
        end = 1.0 + at.trial / 100
        return {"score": sign * (5.0 if at.iteration == 2 else end), "timesteps_this_iter": 1}

    spec = {
        "trials": 60,
        "space": {"x": {"uniform": [0, 1]}},
        "mode": mode,
        "stop": {"training_iteration": 9, "score": {">=" if mode == "max" else "<=": sign * 5.0}},
        "scheduler": "asha",
        "seeds": "auto",
    }
    return simulate(spec, falls, slots=4)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_trial_that_ended_at_a_target_is_expected_to_score_as_tested_ones_do(mode: Mode) -> None:
    past = after_a_target(mode).history
    ended = [trial for trial in past.trials if trial.status is Status.COMPLETED]
    untested = [trial for trial in ended if len(trial.replicas) == 1]
    assert untested
    for trial in untested:
        expected = past.expected(trial)
        assert trial.score is not None
        assert math.isclose(abs(trial.score), 5.0)
        assert expected is not None
        assert 1.0 < abs(expected.value) < 2.0
