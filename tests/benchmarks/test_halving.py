"""Searches cut from tables: picks by smoothed scores, and plans of seeds."""

import numpy as np
import pytest

from benchmarks.search import halving, seed_plans
from benchmarks.search import smoothing as command
from benchmarks.search.game import Game, Parameter
from sweep.history.posterior import smoothing
from sweep.history.posterior.shrinkage import estimate


def game(noise: float) -> Game:
    """Return a game whose settings differ by 1 and evaluations by `noise`, 40 x 8 x 20."""
    stream = np.random.default_rng(0)
    quality = stream.normal(size=(40, 1, 1))
    curves = quality * np.linspace(0.2, 1.0, 20) + stream.normal(0, noise, (40, 8, 20))
    rows = tuple({"lr": float(row + 1)} for row in range(40))
    space = {"lr": Parameter("uniform", (0.0, 50.0))}
    final = quality[:, :, 0] + 0.01 * stream.normal(size=(40, 8))
    return Game("toy", space, rows, curves, final, 20, "ppo")


def test_smoothed_picks_are_better_with_noisy_evaluations_and_as_good_without_noise() -> None:
    weight = smoothing.WEIGHT
    plain, smoothed = command.compare(game(1.0), 60, 40)
    assert smoothed.regret < plain.regret - 1
    assert weight == smoothing.WEIGHT
    exact = command.compare(game(0.0), 60, 10)
    assert exact[0].regret == pytest.approx(exact[1].regret, abs=1.0)


def test_a_search_promotes_a_third_and_gives_seeds_at_the_top() -> None:
    toy = game(0.5)
    ended = halving.search(toy, 27, command.steps(toy), np.random.default_rng(0))
    levels = np.bincount(ended.scores.last_levels)
    assert levels.tolist() == [18, 6, 2, 1]
    top = int(ended.scores.last_levels.argmax())
    assert ended.scores.seeds[top].tolist() == [1.0, 1.0, 3.0, 4.0]


def test_a_budget_is_used_up_by_as_many_settings_as_it_is_enough_for() -> None:
    toy = game(0.5)  # 20 results, and 4 seeds for a search
    steps = seed_plans.PLANS["{top: 3, then 6}"]([1, 3, 9, 20])
    # 27 + 9 x 2 + 3 x 6 + 1 x 11 results; two further seeds need three trials at the top.
    assert halving.cost(toy, 27, steps) == 74
    assert halving.cost(toy, 81, steps) == 3 * 74 + 2 * 20
    for trainings in (1, 4, 20):
        settings = halving.affordable(toy, trainings, steps)
        costs = [halving.cost(toy, number, steps) for number in (settings, settings + 1)]
        assert costs[0] <= 20 * trainings < costs[1]


def test_further_seeds_do_not_count_as_having_come_from_the_level_below() -> None:
    toy = game(0.5)
    steps = seed_plans.PLANS["{top: 3, then 6}"](halving.rungs(toy))
    ended = halving.search(toy, 81, steps, np.random.default_rng(0))
    several = ended.scores.seeds[:, -1] > 1
    assert several.sum() == 1
    top = ended.scores.level_scores[several, -1], ended.scores.paired_scores[several, -1]
    assert top[0] != top[1]
    alone = (ended.scores.last_levels == len(halving.rungs(toy)) - 1) & ~several
    assert (ended.scores.level_scores[alone, -1] == ended.scores.paired_scores[alone, -1]).all()


def test_the_best_trial_at_the_top_is_tested_under_at_most_half_as_many_seeds() -> None:
    toy = game(0.5)
    steps = seed_plans.PLANS["auto"](halving.rungs(toy))
    assert halving.cost(toy, 216, steps, tests_best=True) == halving.cost(toy, 216, steps) + 4 * 20
    for play in range(5):
        plain, tested = (
            halving.search(toy, 216, steps, np.random.default_rng(play), tests_best=tests_best)
            for tests_best in (False, True)
        )
        top = tested.scores.last_levels == len(halving.rungs(toy)) - 1
        further = tested.scores.seeds[:, -1] - 1
        assert top.sum() == 8
        assert 0 < further.sum() <= 4
        assert not further[~top].any()
        best = estimate(plain.scores, 0.0).value[top].argmax()
        assert further[top][best] in (2, 3)
        first = plain.scores.level_scores, tested.scores.level_scores
        assert (first[0][further == 0] == first[1][further == 0])[:, 0].all()


def test_the_command_prints_regret_and_honesty_of_each_plan(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.search.game.load", lambda _: [game(0.5), game(1.0)])
    seed_plans.main(["toy.npz", "--plays", "3"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["seeds", "8", "16", "32", "64"]
    assert [line[:20].strip() for line in lines] == list(seed_plans.PLANS)
    assert all(line.count("±") == 4 and "nan" not in line for line in lines)
