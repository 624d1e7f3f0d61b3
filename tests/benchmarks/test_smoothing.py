"""The comparison of picks by plain and by smoothed scores."""

import numpy as np
import pytest

from benchmarks.search import smoothing as command
from benchmarks.search.game import Game, Parameter
from sweep.history.posterior import smoothing


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
    ended = command.search(game(0.5), 27, np.random.default_rng(0))
    levels = np.bincount(ended.scores.last)
    assert levels.tolist() == [18, 6, 2, 1]
    top = int(ended.scores.last.argmax())
    assert ended.scores.seeds[top].tolist() == [1.0, 1.0, 3.0, 4.0]
