"""Trainings that ended at a target, beside seeds that train past it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sweep.history.events import Status
from sweep.history.posterior.early_ends import correct
from sweep.history.posterior.scores import Scores
from sweep.spec.objective import Mode
from sweep.testing import CurvePoint, SimulationResult, simulate


def scores(seeds: list[list[float]], early: list[int], paired: list[float] | None = None) -> Scores:
    """Return scores of one level.

    The first `early` seeds of each trial ended early, and the others were trained to the end.
    `paired` are the shares of early ones among the seeds of `paired_scores`.
    """
    means = np.array([[np.mean(one)] for one in seeds])
    away = [np.array(one) - np.mean(one) for one in seeds]
    squares = np.array([(one**2).sum() for one in away])
    shares = paired or [n / len(one) for n, one in zip(early, seeds, strict=True)]
    sums = np.array(
        [
            [n, len(one) - n, 0, share, one[:n].sum(), 0.0]
            for n, one, share in zip(early, away, shares, strict=True)
        ]
    )
    nothing, counts = np.zeros(len(seeds)), np.array([[float(len(one))] for one in seeds])
    return Scores(
        means, means, counts, np.zeros(len(seeds), int), squares, nothing, means, means,
        nothing, nothing, counts, sums,
    )  # fmt: skip


def test_the_mean_fall_is_subtracted_from_seeds_that_ended_early() -> None:
    """Falls of 3 and 6 are 4.5 on average."""
    seeds = [[9.0, 6.0, 6.0], [9.0, 2.0, 4.0], [9.0], [5.0]]
    found, doubt = correct(scores(seeds, [1, 1, 1, 0], [1.0, 1 / 3, 1.0, 0.0]))
    assert found.level_scores[:, 0].tolist() == pytest.approx([5.5, 3.5, 4.5, 5.0])
    assert found.paired_scores[:, 0].tolist() == pytest.approx([2.5, 3.5, 4.5, 5.0])
    spread = np.array([[4.5, 6.0, 6.0], [4.5, 2.0, 4.0]])
    assert found.squares[:2].tolist() == pytest.approx(
        [float(((row - row.mean()) ** 2).sum()) for row in spread]
    )
    assert doubt.tolist() == pytest.approx([2.25 / 9, 2.25 / 9, 2.25, 0.0])


def test_the_doubt_of_a_single_fall_is_half_of_it() -> None:
    found, doubt = correct(scores([[9.0, 6.0], [9.0]], [1, 1]))
    assert found.level_scores[:, 0].tolist() == pytest.approx([6.0, 6.0])
    assert doubt.tolist() == pytest.approx([9 / 16, 9 / 4])


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
        assert 0.9 < abs(expected.value) < 2.0


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("aggregate", ["mean", "median"])
def test_settings_that_fall_between_results_are_not_the_best(mode: Mode, aggregate: str) -> None:
    """All trials meet a target of 5; settings with an even number fall, and end at 5 again."""
    sign = 1.0 if mode == "max" else -1.0

    def curve(at: CurvePoint) -> dict[str, float]:
        falls = at.trial % 2 == 0 and at.iteration in (7, 8)
        later = 1.0 if falls else 5.0 if at.trial % 2 == 0 else 4.8
        return {"score": sign * (5.0 if at.iteration == 2 else later), "timesteps_this_iter": 1}

    spec = {
        "trials": 60,
        "space": {"x": {"uniform": [0, 1]}},
        "mode": mode,
        "aggregate": aggregate,
        "stop": {"training_iteration": 9, "score": {">=" if mode == "max" else "<=": sign * 5.0}},
        "scheduler": "asha",
        "seeds": "auto",
    }
    past = simulate(spec, curve, slots=4).history
    tested = [trial for trial in past.trials if len(trial.replicas) > 1]
    assert {trial.number % 2 for trial in tested} == {0, 1}
    assert past.best is not None
    assert past.best.number % 2 == 1
    falling = next(trial for trial in tested if trial.number % 2 == 0)
    expected = past.expected(falling)
    assert expected is not None
    assert abs(expected.value) < 4


def test_seeds_that_are_there_from_the_start_show_no_fall() -> None:
    """Of three seeds, those that miss a target are no later stages of those that meet it."""

    def either(at: CurvePoint) -> dict[str, float]:
        has_met = (at.trial + at.seed_index) % 3 > 0 and at.iteration == 2
        return {"score": 50.0 if has_met else 15.0, "timesteps_this_iter": 1}

    spec = {
        "trials": 12,
        "space": {"x": {"uniform": [0, 1]}},
        "stop": {"training_iteration": 9, "score": 50.0},
        "scheduler": {"name": "asha", "max_t": 9, "grace_period": 9},
        "seeds": 3,
    }
    past = simulate(spec, either, slots=4).history
    best = past.expected(past.ranked()[0])
    assert best is not None
    assert best.value > 30


def test_further_seeds_that_a_limit_stops_count_in_the_expectation() -> None:
    def slow(at: CurvePoint) -> dict[str, float]:
        end = 1.0 + at.trial / 100
        score = 5.0 if at.iteration == 2 else end
        return {"score": score, "timesteps_this_iter": 1, "time_this_iter_s": 1.0}

    spec = {
        "trials": 30,
        "space": {"x": {"uniform": [0, 1]}},
        "stop": {"training_iteration": 9, "score": 5.0},
        "scheduler": "asha",
        "seeds": "auto",
        "limits": {"trial_s": 5},
    }
    past = simulate(spec, slow, slots=4).history
    stopped = [one for one in past.trials if one.replicas[1:] and one.status is Status.STOPPED]
    assert stopped
    for trial in stopped:
        expected = past.expected(trial)
        assert expected is not None
        assert expected.seeds == len(trial.replicas)
        assert expected.value < 4


def test_a_later_end_makes_no_end_early() -> None:
    """Trials that ended at the top have not ended at a target, wherever the top is now."""
    past = after_a_target("max").history
    tested = next(trial for trial in past.trials if trial.replicas[1:])
    for trial in past.trials:
        for replica in trial.replicas:
            replica.goal = replace(replica.goal, top=27.0)
    assert [milestone.is_early for milestone in tested.milestones][-1] == (True, *[False] * 5)
