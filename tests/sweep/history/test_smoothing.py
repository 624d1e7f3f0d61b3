"""Scores smoothed by their curves: a lucky last evaluation loses to settings that learnt early."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sweep.history.curve import Point
from sweep.history.events import Goal, Status
from sweep.history.expectation import Expectations
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.posterior import smoothing
from sweep.history.posterior.scores import Floats, Scores
from sweep.history.replica import Replica
from sweep.history.trial import Trial
from sweep.spec.objective import Aggregate, Mode, Score


def objective(mode: Mode = "max") -> Objective:
    return Objective("m", mode, Score(), "training_iteration", Aggregate())


def completed(number: int, curve: Sequence[float], mode: Mode = "max") -> Trial:
    """Return a trial of one seed that trained to its end, with this curve."""
    trial = Trial.new(number, {}, {}, objective(mode), (None,))
    (replica,) = trial.replicas
    replica.goal, replica.status = Goal(float(len(curve)), float(len(curve))), Status.COMPLETED
    replica.curve = [Point(n, float(n), value) for n, value in enumerate(curve, 1)]
    replica.steps = float(len(curve))
    trial.milestones.append(trial.milestone(number))
    return trial


def best_of(trials: Sequence[Trial]) -> Trial | None:
    past = History(trials[0].objective)
    past.trials = list(trials)
    return past.best


def scores_of(last: Floats, curves: Floats) -> Scores:
    """Return scores at one level with one seed each."""
    at, means, nothing = last[:, None], curves[:, None], np.zeros(len(last))
    return Scores(
        at, at, np.ones_like(at), nothing.astype(int), nothing, nothing, means, means, nothing,
        nothing, np.ones_like(at),
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_last_scores_the_pick_has_learnt_first(mode: Mode) -> None:
    """As at CartPole's ceiling, where a dozen trials end at 500."""
    sign = 1.0 if mode == "max" else -1.0
    curves = [[100.0 + 20 * n, 200.0 + 20 * n, 300.0 + 20 * n, 400.0] for n in range(6)]
    late = [[20.0, 30.0, 40.0, 50.0 + 10 * n] for n in range(6)]
    trials = [
        completed(n, [sign * value for value in curve], mode)
        for n, curve in enumerate([*curves, *late])
    ]
    assert best_of(trials) is trials[5]


def test_a_lucky_last_evaluation_loses_to_a_steady_curve() -> None:
    poor = [completed(n, [10.0 + 8 * n] * 4) for n in range(12)]
    lucky = completed(12, [15.0, 25.0, 20.0, 100.0])
    steady = completed(13, [96.0, 97.0, 98.0, 99.0])
    trials = [*poor, lucky, steady]
    assert max(trials, key=lambda one: one.score or 0.0) is lucky
    assert best_of(trials) is steady


def test_of_trials_that_reached_a_target_the_fastest_is_not_preferred() -> None:
    """Their curves end at different times, so they say little about what comes after."""
    whole = [completed(n, [10.0 * n] * 8) for n in range(6)]
    slow, fast = [60.0, 80.0, 90.0, 100.0], [95.0, 100.0]
    trials = [*whole, completed(6, slow), completed(7, fast), completed(8, slow)]
    past = History(objective())
    past.trials = trials
    values = [found.value for trial in trials[6:] if (found := past.expected(trial))]
    assert values[0] == values[1] == values[2]


def test_slow_trials_are_not_preferred_if_most_trials_reached_the_target() -> None:
    """Only the last two have curves of the full length; neither exceeds the target by them."""
    fast = [completed(n, [50.0 + n, 100.0]) for n in range(4)]
    slow = [completed(4, [10.0] * 7 + [100.0]), completed(5, [90.0] * 7 + [100.0])]
    past = History(objective())
    past.trials = [*fast, *slow]
    values = {found.value for trial in past.trials if (found := past.expected(trial))}
    assert len(values) == 1
    assert past.best is fast[0]


def test_curves_that_say_nothing_about_scores_leave_them() -> None:
    stream = np.random.default_rng(0)
    last, curves = stream.normal(size=400), stream.normal(size=400)
    smoothed = smoothing.smooth(scores_of(last, curves))
    assert np.abs(smoothed.scores.level_scores[:, 0] - last).max() < 0.03


def test_the_doubt_of_a_smoothed_score_is_the_variance_that_curves_leave_unexplained() -> None:
    """By hand: the slope is (2 + 2) / (6 · 2/3) = 1, so 0.5, -1 and 0.5 are left of the scores."""
    last, curves = np.array([-0.5, -1.0, 1.5]), np.array([-1.0, 0.0, 1.0])
    smoothed = smoothing.smooth(scores_of(last, curves))
    weight = 0.75 * 4 / 5.5
    assert smoothed.scores.level_scores[:, 0] == pytest.approx(last + weight * (curves - last))
    assert smoothed.doubt == pytest.approx(weight**2 * 1.5 / 2)


def test_equal_and_unknown_curves_leave_scores_to_the_bit() -> None:
    last = np.random.default_rng(0).normal(size=20)
    for curves in (last, np.full(20, np.nan), np.full(20, 3.0)):
        smoothed = smoothing.smooth(scores_of(last, curves))
        assert (smoothed.scores.level_scores[:, 0] == last).all()
        assert (smoothed.doubt == 0).all()


def test_a_trial_without_a_known_curve_keeps_its_score_among_others() -> None:
    stream = np.random.default_rng(0)
    quality = stream.normal(size=20)
    last, curves = quality + stream.normal(0, 0.3, 20), quality.copy()
    curves[7] = np.nan
    smoothed = smoothing.smooth(scores_of(last, curves))
    changed = smoothed.scores.level_scores[:, 0] != last
    assert not changed[7]
    assert changed.sum() == 19
    assert smoothed.doubt[7] == 0


def test_smoothed_picks_are_better_where_evaluations_are_noisy() -> None:
    """Settings differ by 1, seeds by 0.5, and each of 20 evaluations by 1."""
    stream, worths = np.random.default_rng(5), {"smoothed": 0.0, "plain": 0.0}
    for _ in range(60):
        quality = stream.normal(size=30)
        level = quality + stream.normal(0, 0.5, 30)
        curves = level[:, None] * np.linspace(0.2, 1.0, 20) + stream.normal(size=(30, 20))
        trials = [completed(n, curve.tolist()) for n, curve in enumerate(curves)]
        best = best_of(trials)
        assert best is not None
        worths["smoothed"] += quality[best.number]
        worths["plain"] += quality[curves[:, -1].argmax()]
    assert worths["smoothed"] > worths["plain"] + 60 * 0.05


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0], 3.0),
        ([0.0, 3.0], 2.0),
        ([0.0, None, math.nan, 3.0], 2.0),
        ([], None),
        ([1.0, 2.0, math.nan, math.nan, math.nan], None),
        ([1e308, 1e308, 1e308], 1e308),
        ([1.0, math.inf], None),
        ([-math.inf, math.inf, 1.0], None),
    ],
)
def test_the_mean_of_a_curve_counts_later_results_more(
    values: Sequence[float | None], expected: float | None
) -> None:
    replica = Replica(0, 0, objective())
    replica.curve = [Point(n, float(n), value) for n, value in enumerate(values, 1)]
    assert replica.curve_mean == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("values", "score", "expected"),
    [
        ([3.0], "last", 3.0),
        ([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 2.0, 4.0], "last", 3.0),
        ([9.0, 9.0, 9.0, 9.0, 9.0, 9.0, None, 4.0], "last", 4.0),
        ([9.0, 9.0, 9.0, 9.0, 7.0, 3.0, None, None], "last", 3.0),
        ([9.0, 9.0, 9.0, 6.0, 2.0, 1.0, 3.0, 3.0], {"mean_last": 5}, 3.0),
        ([math.inf, 2.0, 2.0, 3.0], "last", 3.0),
        ([1.0, 2.0, 2.0, math.inf], "last", None),
        ([1.0, 2.0], "best", None),
        ([1.0, 2.0], "area", None),
        ([], "last", None),
        ([1.0, 2.0, math.nan, math.nan, math.nan], "last", None),
    ],
)
def test_the_late_mean_is_that_of_the_last_quarter(
    values: Sequence[float | None], score: object, expected: float | None
) -> None:
    replica = Replica(0, 0, replace(objective(), score=Score.read(score)))
    replica.curve = [Point(n, float(n), value) for n, value in enumerate(values, 1)]
    assert replica.late_mean == (None if expected is None else pytest.approx(expected))
    if values:
        replica.sums, late = replica.sums_after(len(values), []), replica.late_mean
        assert replica.late_mean == late


def test_sums_without_curves_give_the_same_expectations() -> None:
    trials = [completed(n, [float(n), 2.0 * n % 7, 3.0 * n % 5]) for n in range(8)]
    summed = [completed(n, [float(n), 2.0 * n % 7, 3.0 * n % 5]) for n in range(8)]
    for trial in summed:
        (replica,) = trial.replicas
        replica.sums, replica.curve = replica.sums_after(3, []), []
        trial.milestones = [trial.milestone(trial.number)]
    for one in (trials, summed):
        assert all(trial.milestones[-1].curve_means[0] is not None for trial in one)
    values = []
    for one in (trials, summed):
        expectations = Expectations(objective())
        expectations.update(one, range(len(one)))
        values.append([expectations.expected(trial) for trial in one])
    assert values[0] == values[1]
