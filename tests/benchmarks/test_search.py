"""The comparison of searches: every game can be played, and the page says what was played."""

import math
from typing import Any

import pytest

from benchmarks.search import games, report
from benchmarks.search.__main__ import Match, play, read
from benchmarks.search.trace import Report, Trace


@pytest.mark.slow
@pytest.mark.parametrize("game", games.NAMES)
def test_a_scheduler_plays_every_game_with_the_settings_that_all_are_given(game: str) -> None:
    figures = play(Match("schedulers", "sweep", "asha", game, 0), "")
    assert figures["budget"] / 2 < figures["spent"] <= figures["budget"]
    assert all(math.isfinite(regret) and regret >= 0 for regret in figures["regret"].values())


@pytest.mark.slow
def test_a_match_repeats_itself() -> None:
    match = Match("searchers", "sweep", "tpe, asha", "hartmann", 3)
    assert play(match, "") == play(match, "")


@pytest.mark.slow
@pytest.mark.parametrize("game", games.BRED)
def test_a_population_is_bred_on_every_game_for_it(game: str) -> None:
    figures = play(Match("populations", "sweep", "pbt", game, 1), "")
    assert figures["spent"] == figures["budget"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "method"),
    [("schedulers", "SuccessiveHalvingPruner"), ("searchers", "TPE, SuccessiveHalvingPruner")],
)
def test_optuna_plays_a_game_whose_settings_are_nested_and_listed(kind: str, method: str) -> None:
    figures = play(Match(kind, "Optuna", method, "CartPole-v1", 0), "")
    assert figures["budget"] / 2 < figures["spent"] <= figures["budget"]


def test_the_recommended_trial_is_the_best_of_those_that_came_furthest() -> None:
    game = games.load("branin", 0)
    near, far = {"x0": math.pi, "x1": 2.275}, {"x0": -5.0, "x1": 0.0}
    trace = Trace()
    for trial, iteration, value, settings in [
        (0, 1, 9.0, near),
        (1, 1, 1.0, far),
        (1, 2, 2.0, far),
    ]:
        trace.add(Report(trial, iteration, value, settings))
    assert trace.regret(game, 1) == pytest.approx(0.0, abs=1e-3)
    assert trace.regret(game, 3) > 100


def played(who: str, targets: list[float | None]) -> list[dict[str, Any]]:
    return [
        {"who": who, "method": who, "seed": seed, "target": target, "budget": 100}
        for seed, target in enumerate(targets)
    ]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ([10.0] * 10, "-10 (-10 to -10), **better**"),
        ([10.0, 30.0] * 5, "+0 (-10 to +10)"),
        ([None] * 10, "+80 (+80 to +80), **worse**"),
    ],
)
def test_a_verdict_is_given_where_the_interval_of_the_differences_leaves_zero_out(
    ours: list[float | None], verdict: str
) -> None:
    others = [*played("slow", [50.0] * 10), *played("quick", [20.0] * 10)]
    assert report._beside(played("sweep", ours), others, report._time) == f"{verdict} | quick quick"


@pytest.mark.slow
def test_the_page_says_what_was_played() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(read())
