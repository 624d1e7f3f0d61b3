"""The pick: what settings are expected to score under a new seed, and how sure that is."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from sweep.history import expectation
from sweep.history.curve import Point
from sweep.history.events import Goal, Status
from sweep.history.expectation import Expectations, Expected
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.spec.objective import Aggregate, Mode, Score

RUNGS = (9.0, 27.0, math.inf)
TOP = 81.0


def objective(mode: Mode = "max", aggregate: Aggregate | None = None) -> Objective:
    return Objective("m", mode, Score(), "training_iteration", aggregate or Aggregate())


def trial(
    number: int, rests: Mapping[float, Sequence[float]], wanted: Objective, steps: float = 0.0
) -> Trial:
    """A trial that came to rest at these levels, with these scores of its seeds."""
    made = Trial.new(number, {}, {}, wanted, (None,))
    for level, scores in rests.items():
        at = TOP if math.isinf(level) else level
        while len(made.replicas) < len(scores):
            made.replicas += Trial.new(number, {}, {}, wanted, (None,)).replicas
        for index, (replica, score) in enumerate(zip(made.replicas, scores, strict=True)):
            replica.index, replica.goal = index, Goal(at, TOP)
            replica.status = Status.COMPLETED if at == TOP else Status.PAUSED
            replica.steps = steps or at
            replica.curve.append(Point(len(replica.curve) + 1, at, score))
        made.milestones.append(made.milestone(number))
    return made


def history(trials: Sequence[Trial]) -> History:
    made = History(trials[0].objective)
    made.trials = list(trials)
    return made


@dataclass
class Table:
    """Settings with effects, seeds and evaluations, drawn as the model has it."""

    trials: list[Trial]
    truth: list[float]


def drawn(seed: int, settings: int = 60, several: bool = True, spread: float = 50.0) -> Table:
    """A search by rungs: a third goes on from each, and the last few get three seeds."""
    stream = np.random.default_rng(seed)
    effect = stream.normal(0, spread, settings)
    paths = {n: [stream.normal(0, 25), *stream.normal(0, 25, 2)] for n in range(settings)}
    means, growth = (200.0, 300.0, 400.0), (0.8, 0.9, 1.0)

    def score(number: int, seed_of: int, rung: int) -> float:
        own = growth[rung] * (effect[number] + paths[number][seed_of])
        return float(means[rung] + own + stream.normal(0, 10))

    rests: dict[int, dict[float, list[float]]] = {n: {} for n in range(settings)}
    alive = list(range(settings))
    for rung, level in enumerate(RUNGS):
        for n in alive:
            seeds = 3 if several and rung else 1
            rests[n][level] = [score(n, s, rung) for s in range(seeds)]
        best = sorted(alive, key=lambda n: -np.mean(rests[n][level]))
        alive = best[: len(alive) // 3]
    made = [trial(n, rests[n], objective()) for n in range(settings)]
    return Table(made, [float(means[-1] + value) for value in effect])


def expectations(trials: Sequence[Trial]) -> list[Expected]:
    past = history(trials)
    return [found for one in trials if (found := past.expected(one)) is not None]


# ---- the lucky and the good -------------------------------------------------------------------


def test_settings_that_hold_up_on_several_seeds_win_over_one_lucky_score() -> None:
    wanted = objective()
    poor = [trial(n, {math.inf: [100.0 + 10 * n]}, wanted) for n in range(20)]
    spread = [trial(20, {math.inf: [420.0, 250.0, 310.0]}, wanted)]
    lucky = trial(21, {math.inf: [500.0]}, wanted)
    good = trial(22, {math.inf: [480.0, 470.0, 490.0, 485.0, 475.0, 480.0]}, wanted)
    past = history([*poor, *spread, lucky, good])
    assert past.highest is lucky
    assert past.best is good
    expected = past.expected(lucky)
    assert expected is not None
    assert expected.value < 480 < (lucky.score or 0)


def at_a_ceiling(tops: Sequence[float], mode: Mode) -> list[Trial]:
    """Return trials with six seeds each at one of `tops`, and a better one that ended early.

    Scores grow by 60 from the first rung to the end.
    """
    sign, wanted = (1.0 if mode == "max" else -1.0), objective(mode)
    poor = [
        trial(n, {9.0: [sign * 10.0 * n], math.inf: [sign * (10.0 * n + 60)]}, wanted)
        for n in range(12)
    ]
    whole = [
        trial(12 + n, {9.0: [sign * (top - 60)], math.inf: [sign * top] * 6}, wanted)
        for n, top in enumerate(tops)
    ]
    return [*poor, *whole, trial(12 + len(tops), {9.0: [sign * 490.0]}, wanted)]


@pytest.mark.parametrize("mode", ["max", "min"])
def test_no_setting_is_expected_to_exceed_a_ceiling(mode: Mode) -> None:
    """The best score of three trials is a ceiling; three different scores near it are none."""
    at_ceiling, below = at_a_ceiling([500.0] * 3, mode), at_a_ceiling([500.0, 499.0, 498.0], mode)
    for trials, is_limited in ((at_ceiling, True), (below, False)):
        past = history(trials)
        early = past.expected(trials[-1])
        assert early is not None
        assert (abs(early.value) < 500) is is_limited
        assert (past.best is trials[12]) is is_limited


def test_where_all_trials_score_the_same_that_is_no_ceiling() -> None:
    trials = [trial(n, {math.inf: [-200.0]}, objective()) for n in range(6)]
    assert [found.value for found in expectations(trials)] == [-200.0] * 6


def test_equal_scores_do_not_show_how_much_seeds_differ() -> None:
    trials = [trial(n, {math.inf: [500.0]}, objective()) for n in range(6)]
    assert expectations(trials) == [Expected(500.0, None, None, 1)] * 6


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_best_of_many_scores_claims_less_than_it_scored(mode: Mode) -> None:
    wanted = objective(mode)
    stream = np.random.default_rng(3)
    trials = [trial(n, {math.inf: [stream.normal()]}, wanted) for n in range(40)]
    past = history(trials)
    best = past.best
    assert best is past.highest
    assert best is not None
    expected = past.expected(best)
    assert expected is not None
    assert abs(expected.value) < abs(best.score or 0)


@pytest.mark.parametrize(
    ("several", "spread"), [(False, 50.0), (True, 50.0), (False, 20.0), (True, 30.0)]
)
def test_claims_are_as_sure_as_they_say(several: bool, spread: float) -> None:
    """Within one standard error in 65 plays of a hundred, within two in ninety.

    With the smaller spread of settings seeds are more than half of the variance.
    """
    off = []
    for seed in range(60):
        table = drawn(seed, several=several, spread=spread)
        past = history(table.trials)
        best = past.best
        assert best is not None
        claim = past.expected(best)
        assert claim is not None
        assert claim.error is not None
        off.append(abs(claim.value - table.truth[best.number]) / claim.error)
    assert np.mean([one <= 1 for one in off]) >= 0.65
    assert np.mean([one <= 2 for one in off]) >= 0.9


def test_the_pick_regrets_less_than_the_best_score_does() -> None:
    lost = []
    for seed in range(200):
        table = drawn(seed)
        past = history(table.trials)
        assert past.best is not None
        assert past.highest is not None
        highest = max(table.trials, key=lambda one: one.score or 0.0)
        lost.append(table.truth[past.best.number] - table.truth[highest.number])
    assert np.mean(lost) >= 0


def test_of_equal_expectations_the_one_with_fewer_steps_wins_then_the_older_one() -> None:
    wanted = objective()
    steps = [50.0, 30.0, 30.0, 80.0]
    tied = [trial(n, {math.inf: [500.0]}, wanted, its) for n, its in enumerate(steps)]
    others = [trial(4 + n, {math.inf: [float(n)]}, wanted) for n in range(6)]
    assert list(history([*tied, *others]).expectations.order[:4]) == [1, 2, 0, 3]


def test_where_the_worst_seed_counts_scores_decide() -> None:
    wanted = objective(aggregate=Aggregate(kind="worst"))
    scores = [[100.0, 500.0], [300.0, 310.0], [250.0, 900.0], [10.0, 20.0]]
    trials = [trial(n, {math.inf: its}, wanted) for n, its in enumerate(scores)]
    assert [one.number for one in history(trials).ranked()] == [1, 2, 0, 3]


# ---- how sure ----------------------------------------------------------------------------------


def test_chances_add_up_and_the_surer_of_two_equals_has_no_more_of_them() -> None:
    table = drawn(1)
    chances = history(table.trials).expectations.chances()
    assert math.fsum(chances.values()) == pytest.approx(1.0)
    assert min(chances.values()) >= 0
    first = next(iter(chances))
    assert chances[first] == max(chances.values())


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("ceiling", [math.inf, 30.0])
def test_the_expected_improvement_is_the_mean_excess_over_the_best(
    mode: Mode, ceiling: float
) -> None:
    sign = 1.0 if mode == "max" else -1.0
    stream, wanted = np.random.default_rng(3), objective(mode)
    scores = np.minimum(np.linspace(0.0, 40.0, 20)[:, None] + stream.normal(0, 9, (20, 3)), ceiling)
    rests = [{math.inf: (sign * row[: 3 if n < 6 else 1]).tolist()} for n, row in enumerate(scores)]
    trials = [trial(n, rest, wanted) for n, rest in enumerate(rests)]
    model = Expectations(wanted)
    model.update(trials, range(20))
    best, spreads = model.order[0], model.spreads
    assert spreads is not None
    deviation = math.hypot(spreads.settings, spreads.seeds)
    found = model.improvements(range(20), best)
    over, values = model.expected(trials[best]), model._current_fit.estimates
    assert over is not None
    assert values is not None
    for number, gain in found.items():
        row = model._current_fit.rows[number]
        drawn = stream.normal(values.unlimited[row], values.error[row], 200_000)
        excess = np.maximum(np.minimum(drawn, values.ceiling) - sign * over.value, 0)
        assert gain == pytest.approx(float(excess.mean()) / deviation, abs=0.01)
    assert max(found.values()) > 0.1


@pytest.mark.parametrize("mode", ["max", "min"])
def test_settings_at_a_ceiling_share_the_probability_to_be_the_best(mode: Mode) -> None:
    """Six seeds at the ceiling make it more probable than one; a wide error wins nothing there."""
    stream, sign = np.random.default_rng(4), 1.0 if mode == "max" else -1.0
    scores = [[500.0] * 6] * 3 + [[500.0]] * 3
    scores += [[float(one)] for one in stream.uniform(100.0, 400.0, 20)]
    wanted = objective(mode)
    trials = [
        trial(n, {math.inf: [sign * one for one in its]}, wanted) for n, its in enumerate(scores)
    ]
    chances = history(trials).expectations.chances()
    assert math.fsum(chances.values()) == pytest.approx(1.0)
    first, sure, single = chances[0], chances[1], chances[3]
    assert first == pytest.approx(sure)
    assert first > 1.2 * single
    assert single > 5 * max(chances[n] for n in range(6, 26))


def test_more_seeds_tell_apart_what_they_can() -> None:
    near, far = Expected(100.0, 10.0, 200.0, 1), Expected(20.0, 10.0, 200.0, 1)
    assert near.seeds_to_tell_from(far) == 0
    equal = Expected(99.0, 10.0, 200.0, 1)
    more = near.seeds_to_tell_from(equal)
    assert more is not None
    assert more > 0
    noisy = Expected(99.9, 10.0, 1e6, 1)
    assert noisy.seeds_to_tell_from(noisy) is None
    assert near.seeds_to_tell_from(Expected(1.0, None, None, 1)) is None


def test_of_two_trials_nothing_is_said_but_their_scores() -> None:
    found = expectations([trial(n, {math.inf: [float(n)]}, objective()) for n in range(2)])
    assert [(one.value, one.error) for one in found] == [(0.0, None), (1.0, None)]


def test_a_score_without_luck_is_its_own_expectation() -> None:
    """One trial whose results may be random suffices for luck; unknown ones decide nothing."""
    trials = drawn(0, several=False).trials
    by_score = sorted(trials, key=lambda one: -(one.score or 0.0))
    top = next(one for one in by_score if one.goal.until == TOP)
    for one in trials[:-1]:
        one.replicas[0].is_random = False
    past = history(trials)
    found = past.expected(top)
    assert found is not None
    assert (found.value, found.error, past.expectations.spreads) == (top.score, None, None)
    assert past.expectations.chances() == {}
    trials[-1].replicas[0].is_random = True
    found = history(trials).expected(top)
    assert found is not None
    assert found.error is not None
    assert found.value < (top.score or 0.0)


def test_seeds_and_evaluations_are_told_from_settings() -> None:
    table = drawn(5)
    spreads = history(table.trials).expectations.spreads
    assert spreads is not None
    assert spreads.settings > spreads.seeds > 0


# ---- a function of what the trials are ----------------------------------------------------------


def test_estimates_are_the_same_to_the_bit_however_trials_came_to_be_so() -> None:
    trials = drawn(7).trials
    at_once = expectations(trials)
    past = history([Trial.new(n, {}, {}, objective()) for n in range(len(trials))])
    for number in np.random.default_rng(1).permutation(len(trials)).tolist():
        past.trials[number] = trials[number]
        past.touch(number)
        assert past.best is not None
    assert [past.expected(one) for one in trials] == at_once


@pytest.mark.parametrize("scale", [1e-300, 1e-5, 1.0, 1e150, 1e307])
def test_scores_of_any_size_are_shrunk_alike(scale: float) -> None:
    size = 2.0 ** math.floor(math.log2(scale))
    plain = [trial(n, {math.inf: [float(n * n % 7)]}, objective()) for n in range(12)]
    large = [trial(n, {math.inf: [size * (n * n % 7)]}, objective()) for n in range(12)]
    for one, other in zip(expectations(plain), expectations(large), strict=True):
        assert other.value == pytest.approx(size * one.value, rel=1e-12)
    assert history(plain).best is not None
    assert sum(history(large).expectations.chances().values()) == pytest.approx(1.0)


def test_a_decision_among_five_thousand_trials_is_not_made_from_all_of_them() -> None:
    wanted, stream = objective(), np.random.default_rng(2)
    trials = []
    for n in range(5000):
        reached = RUNGS[: 1 + (n % 3 == 0) + (n % 9 == 0)]
        seeds = 3 if n % 9 == 0 else 1
        rests = {one: [stream.normal() for _ in range(seeds)] for one in reached}
        trials.append(trial(n, rests, wanted))
    found = Expectations(wanted)
    began = time.process_time()
    found.update(trials, [])
    found.order  # noqa: B018 it is made now
    whole = time.process_time() - began
    fastest = math.inf
    touched: list[int] = []
    for n in range(9):
        touched.append(n)
        trials[n].milestones[-1] = trial(n, {RUNGS[0]: [float(n) / 10]}, wanted).milestones[0]
        began = time.process_time()
        found.update(trials, touched)
        assert found.order
        fastest = min(fastest, time.process_time() - began)
    assert fastest < whole / 10  # the best of nine, a fiftieth where nothing else runs


def test_from_level_to_level_only_seeds_that_were_at_both_are_compared() -> None:
    one = expectation._LevelScores(9.0, 1.0, (1.0,), (0.5,), 9.0)
    three = expectation._LevelScores(27.0, 4.0, (2.0, 4.0, 6.0), (1.0, 2.0, 3.0), 27.0)
    table = expectation._Table((9.0, 27.0), 0, 1)
    table.write_row(0, expectation._TrialScores((one, three), True, 0.0, 63.0, None, TOP, False))
    found = table.select(np.array([0]))
    assert (found.level_scores.tolist(), found.curves.tolist()) == ([[1.0, 4.0]], [[0.5, 2.0]])
    assert found.paired_scores.tolist() == [[1.0, 2.0]]  # of the first seed alone
    assert found.paired_curves.tolist() == [[0.5, 1.0]]
