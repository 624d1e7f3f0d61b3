"""The densities of BOHB, against the paper's rules and where a rung holds promoted trials only."""

import math
from typing import Any

import numpy as np
import pytest

from sweep.history.events import Status
from sweep.searchers import Request, bohb
from sweep.searchers._shared.kernels import Density
from sweep.testing import CurvePoint, simulate
from tests.support.searches import LEVELS, MIXED, Search, build
from trainables.core import rng

BEST_X = 0.7
ASHA: dict[str, Any] = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
#: Sweeps of 24 trials, of which the best 8 come to rung 3.
SEEDS = range(10)


def curve(at: CurvePoint) -> dict[str, Any]:
    return {"score": -((at.config["x"] - BEST_X) ** 2) - 1 / at.iteration}


def proposals(searcher: Any, seed: int, trials: int) -> list[float]:
    """What was tried, in a sweep under successive halving."""
    spec = {
        "trials": trials,
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "stop": {"training_iteration": 9},
        "searcher": searcher,
        "scheduler": ASHA,
        "seed": seed,
    }
    return [trial.searched["x"] for trial in simulate(spec, curve, slots=2).history.trials]


def test_where_a_rung_holds_promoted_trials_only_their_neighbours_are_proposed() -> None:
    """24 trials, of which the best 8 are at rung 3; the ends of the range are not proposed."""
    made = Search("bohb", {"x": {"uniform": [0.0, 1.0]}}, options={"random_fraction": 0.0})
    made.quality = lambda settings: -((settings["x"] - BEST_X) ** 2)
    made.ends = [Status.PAUSED] * 3  # at rung 1
    made.start(24)
    for trial in made.history.trials:
        trial.searched["x"] = trial.config["x"] = (trial.number + 0.5) / 24
        made.end(trial.number)
    close = sorted(made.history.trials, key=lambda trial: abs(trial.searched["x"] - BEST_X))
    for trial in close[:8]:
        made.ends = [Status.COMPLETED]
        made.go_on(trial.number)
    found = [proposal["x"] for proposal in made.propose(12)]
    assert all(abs(x - BEST_X) < 0.25 for x in found), found


@pytest.mark.slow
def test_it_comes_nearer_to_the_best_settings_than_chance_under_halving() -> None:
    def miss(searcher: Any) -> list[float]:
        tried = [proposals(searcher, seed, 40)[20:] for seed in SEEDS]
        return [float(np.mean([abs(x - BEST_X) for x in late])) for late in tried]

    ours, chance = miss("bohb"), miss("random")
    assert np.mean(ours) < 0.75 * np.mean(chance)
    assert sum(a < b for a, b in zip(ours, chance, strict=True)) >= 8


def test_with_several_objectives_it_proposes_near_the_first_fronts_and_along_them() -> None:
    """Waste helps no objective; by the score alone, the greatest x would be the best."""

    def traded(at: CurvePoint) -> dict[str, Any]:
        x, waste = at.config["x"], at.config["waste"]
        return {"score": x - waste, "cost": 1e6 * (x + waste)}

    spec = {
        "trials": 48,
        "space": {name: {"uniform": [0.0, 1.0]} for name in ("x", "waste")},
        "objectives": {"cost": "min"},
        "stop": {"training_iteration": 9},
        "searcher": {"name": "bohb", "random_fraction": 0.0},
        "scheduler": {**ASHA, "name": "bohb"},
    }
    late = [trial.searched for trial in simulate(spec, traded).history.trials[24:]]
    assert np.mean([searched["waste"] for searched in late]) < 0.3
    assert 0.3 < np.mean([searched["x"] for searched in late]) < 0.7


def modelled(made: Search) -> int:
    """How many trials the next proposal is made from."""
    request = Request(made.space, made.objective, made.history.trials, LEVELS, 0)
    searcher = made.proposer.searcher
    assert isinstance(searcher, bohb.Searcher)
    rungs = searcher._update_rungs(request)
    level = rungs.highest_with(searcher._least_points(request) + 2)
    return 0 if level is None else len(rungs.ranked_points(request, level))


def test_the_highest_rung_with_two_trials_more_than_are_needed_is_modelled() -> None:
    made = Search("bohb", MIXED, options={"min_points": 3})
    made.ends = [Status.PAUSED] * 6 + [Status.COMPLETED] * 10
    counts = []
    for _ in range(12):
        counts.append(modelled(made))
        made.run(len(made.proposals) + 1)
    assert counts == [0] * 5 + [5, 6, 7, 8, 9, 10, 5]


def test_the_default_needs_one_trial_more_than_parameters_and_two_more() -> None:
    made = Search("bohb", {"a": {"uniform": [0, 1]}, "b": {"uniform": [0, 1]}})
    made.ends = [Status.COMPLETED]
    counts = [modelled(made.run(number)) for number in range(4, 7)]
    assert counts == [0, 5, 6]


def test_a_third_of_the_proposals_is_drawn_at_random_all_the_same() -> None:
    drawn = 0
    made = Search("bohb", {"x": {"uniform": [0.0, 1.0]}}).run(12)
    for seed in range(300):
        request = Request(made.space, made.objective, made.history.trials, LEVELS, seed)
        drawn += build("bohb").suggest(request) == made.space.draw(seed)
    assert drawn == pytest.approx(100, abs=25)


@pytest.mark.parametrize("counts", [(0,), (0, 3), (4,)])
def test_a_density_is_one_over_the_whole_space(counts: tuple[int, ...]) -> None:
    stream = rng.generator(1, "points")
    columns = [stream.random(6) if k == 0 else stream.integers(k, size=6) for k in counts]
    points = np.stack(columns, axis=1).astype(np.float64)
    points[2, 0] = math.nan
    axes = [(np.arange(2000) + 0.5) / 2000 if k == 0 else np.arange(k) for k in counts]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes)], axis=1).astype(np.float64)
    cell = math.prod(1 / 2000 if k == 0 else 1 for k in counts)
    assert Density.fit_to(points, counts).densities(grid).sum() * cell == pytest.approx(1, abs=1e-3)


def test_draws_lie_in_the_space_and_near_the_points() -> None:
    points = np.array([[0.98, 0.0], [0.95, 0.0], [0.99, math.nan]])
    drawn = Density.fit_to(points, (0, 3)).draw(rng.generator(1, "draws"), 500, 3.0)
    assert drawn[:, 0].max() <= 1
    assert drawn[:, 0].min() > 0.8
    assert set(drawn[:, 1].tolist()) == {0.0, 1.0, 2.0}
    assert np.mean(drawn[:, 1] == 0) > 0.6
