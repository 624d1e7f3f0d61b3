"""A search begins where other games say that settings do well, and evidence takes over."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from sweep.core.errors import UsageError
from sweep.history.events import Created, EarlierSweep, RankedSettings, Status
from sweep.searchers._shared.prior import games
from sweep.searchers._shared.prior.mixture import LEAST, ORIGIN, prior_share
from sweep.searchers._shared.prior.model import Model
from sweep.searchers._shared.prior.sources import SweepsPrior
from sweep.spec.space import Space
from sweep.testing import CurvePoint, SimulationResult, check_kills, simulate
from tests.support.trials import trial

SPEC: Mapping[str, Any] = {
    "trainable": "ppo",
    "config": {"env": "CartPole-v1"},
    "metric": "episode_reward_mean",
    "space": {
        "lr": {"loguniform": [1e-5, 1e-1]},
        "num_sgd_iter": {"randint": [1, 16]},
        "gamma": {"choice": [0.9, 0.99, 0.999]},
        "observation_filter": {"choice": ["NoFilter", "MeanStdFilter"]},
        "observation_filter_clip": {
            "uniform": [5.0, 20.0],
            "when": {"observation_filter": "MeanStdFilter"},
        },
        "_distance": {"loguniform": [0.01, 0.3]},
        "lambda_": {"value": "1 - _distance"},
    },
    "searcher": "tpe",
    "stop": {"training_iteration": 1},
    "trials": 40,
}
KEYS = [column.key for column in games.COLUMNS["ppo"]]


@cache
def whole_model() -> Model:
    return Model(games.COLUMNS["ppo"], games.known("ppo"), list(SPEC["space"]))


def expected_place(settings: Mapping[str, Any]) -> float:
    """Return the place that the shipped games expect settings to take."""
    return float(whole_model().expected([settings])[0])


def as_the_prior_says(config: Mapping[str, Any]) -> dict[str, float]:
    return {"episode_reward_mean": expected_place(config)}


def against_the_prior(config: Mapping[str, Any]) -> dict[str, float]:
    return {"episode_reward_mean": -expected_place(config)}


def origins(found: SimulationResult) -> list[bool]:
    return [trial.origin == ORIGIN for trial in found.history.trials]


def test_each_game_is_foreseen_by_the_others() -> None:
    columns = games.COLUMNS["ppo"]
    correlations = {}
    for game in games.known("ppo"):
        others = [other for other in games.known("ppo") if other is not game]
        model = Model(columns, others, KEYS)
        found = model.expected_at(game.points)
        correlations[game.name] = float(np.corrcoef(found, game.places)[0, 1])
    assert len(correlations) == 6
    assert min(correlations.values()) > 0.1, correlations
    assert np.mean(list(correlations.values())) > 0.3, correlations


def test_settings_that_did_well_elsewhere_are_proposed_first() -> None:
    with_prior = simulate(SPEC, lambda at: as_the_prior_says(at.config)).history.trials[:8]
    without = {**SPEC, "searcher": {"name": "tpe", "prior": "none"}}
    drawn = simulate(without, lambda at: as_the_prior_says(at.config)).history.trials[:8]
    assert np.median([t.score for t in with_prior]) > np.median([t.score for t in drawn]) + 0.05
    assert not any(t.origin for t in drawn)


def test_a_prior_that_is_wrong_gives_way_to_the_searcher() -> None:
    right = origins(simulate(SPEC, lambda at: as_the_prior_says(at.config)))
    wrong = origins(simulate(SPEC, lambda at: against_the_prior(at.config)))
    assert sum(right[20:]) > 2 * sum(wrong[20:])
    assert sum(wrong[20:]) < 10
    assert 0.0 < LEAST < 0.5


def test_a_prior_that_proposes_the_worst_costs_at_most_a_fifth_of_the_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other steps are the searcher's, so it takes at most 1.25 times as many as alone."""
    expected = Model.expected
    monkeypatch.setattr(Model, "expected", lambda model, found: -expected(model, found))
    rungs = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
    spec = {**SPEC, "searcher": "random", "scheduler": rungs, "stop": {"training_iteration": 9}}

    def curve(at: CurvePoint) -> dict[str, float]:
        return {
            "episode_reward_mean": float(expected(whole_model(), [at.config])[0]) * at.iteration
        }

    for seed in range(4):
        trials = simulate({**spec, "seed": seed}, curve).history.trials
        of_prior = sum(trial.iteration for trial in trials if trial.origin == ORIGIN)
        assert 0 < of_prior <= 0.2 * sum(trial.iteration for trial in trials)


def test_a_prior_is_judged_by_the_best_third_of_the_trials_that_have_ended() -> None:
    """Of its two trials one is among the best two of six, as is one of the searcher's four."""
    ended = [trial(n, Status.COMPLETED, [9.0 - n]) for n in range(6)]
    for one in (ended[0], ended[2]):
        one.origin = ORIGIN
    running = [trial(n, Status.RUNNING) for n in range(6, 12)]
    rates = (2 + 1) / (3 + 2), (1 + 1) / (3 + 4)
    assert prior_share([*ended, *running]) == pytest.approx(rates[0] / sum(rates))


def test_the_best_third_of_an_earlier_sweep_is_proposed_again() -> None:
    space = Space.parse({"x": {"randint": [1, 20]}})
    ranked = tuple(RankedSettings(100 + rank, rank, {"x": rank}) for rank in range(1, 10))
    prior = SweepsPrior((EarlierSweep("before", 9, ranked),), space)
    streams = (np.random.default_rng(seed) for seed in range(10))
    again = [point for stream in streams for point in prior.sample_best(space, stream)]
    assert {point.searched["x"] for point in again} == {1, 2, 3}


@pytest.mark.parametrize("value", ["auto", [0.1, 0.01], 0.0])
def test_a_value_of_an_earlier_sweep_that_is_none_here_says_nothing(value: Any) -> None:
    """There it was fixed to a text, a schedule or 0; here it is searched on a log scale."""
    space = Space.parse({"lr": {"loguniform": [1e-4, 0.1]}, "gamma": {"uniform": [0.9, 1.0]}})
    found = [{"lr": value, "gamma": 0.95}, {"lr": value, "gamma": 0.91}]
    trials = tuple(RankedSettings(n, n + 1, settings) for n, settings in enumerate(found))
    prior = SweepsPrior((EarlierSweep("earlier", 2, trials),), space)
    proposals = [space.pin({"lr": lr, "gamma": 0.95}).draw(0) for lr in (1e-3, 1e-2)]
    assert len({*prior.expected(proposals).tolist()}) == 1
    assert prior.describe(proposals[0]).startswith("in earlier sweeps")


def test_proposals_of_a_prior_are_equal_over_kills() -> None:
    check_kills({**SPEC, "trials": 8}, lambda at: as_the_prior_says(at.config), 2)


def test_the_event_of_a_trial_names_the_games_of_its_prior() -> None:
    found = simulate({**SPEC, "trials": 6}, lambda at: as_the_prior_says(at.config))
    created = [r.event for r in found.records if isinstance(r.event, Created)]
    by_prior = [event for event in created if event.origin == ORIGIN]
    assert by_prior
    assert all("Pendulum-v1" in event.reason and "%" in event.reason for event in by_prior)


def test_named_games_are_a_prior_for_any_trainable_with_the_same_settings() -> None:
    own = {"name": "random", "prior": ["ppo/Pendulum-v1", "ppo/Reacher-misc"]}
    spec = {**SPEC, "trainable": None, "metric": "score", "config": {}, "searcher": own}
    spec = {key: value for key, value in spec.items() if value is not None}
    found = simulate(spec, lambda at: {"score": expected_place(at.config)})
    assert sum(origins(found)) > 10


def test_few_games_of_a_trainable_are_a_prior_only_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(games, "ENOUGH", len(games.known("dqn")) + 1)
    space = {"lr": {"loguniform": [1e-4, 1e-2]}, "n_step": {"randint": [1, 5]}}
    spec = {**SPEC, "trainable": "dqn", "space": space, "trials": 12}
    unasked = simulate(spec, lambda _at: {"episode_reward_mean": 1.0})
    assert not any(origins(unasked))
    named = {**spec, "searcher": {"name": "random", "prior": ["dqn/CartPole-v1"]}}
    assert any(origins(simulate(named, lambda _at: {"episode_reward_mean": 1.0})))


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": "min"},
        {"metric": "episode_len_mean"},
        {"space": {"train_batch_size": {"choice": [500, 1000]}}, "trials": 2},
        {"searcher": "cmaes"},
        {"searcher": {"name": "random", "prior": "none"}},
    ],
)
def test_without_a_suitable_prior_the_searcher_proposes_all_settings(
    changes: Mapping[str, Any],
) -> None:
    spec = {**SPEC, "trials": 6, **changes}
    found = simulate(spec, lambda _at: {spec["metric"]: 1.0})
    assert not any(origins(found))


def test_a_list_of_games_is_the_prior_and_others_are_refused() -> None:
    only = {"name": "random", "prior": ["ppo/Pendulum-v1"]}
    found = simulate({**SPEC, "searcher": only}, lambda at: as_the_prior_says(at.config))
    why = [r.event.reason for r in found.records if isinstance(r.event, Created) and r.event.reason]
    assert why
    assert all("Pendulum-v1" in text and "Acrobot-v1" not in text for text in why)
    unknown = {"name": "random", "prior": ["ppo/Pendulum-v1", "ppo/Pong"]}
    with pytest.raises(UsageError, match=r"searcher\.prior.*ppo/Pong.*ppo/Acrobot-v1"):
        simulate({**SPEC, "searcher": unknown}, lambda at: as_the_prior_says(at.config))


@pytest.mark.parametrize(
    ("steps", "is_used"), [(100_000, True), (1_000_000, True), (1_000_001, False)]
)
def test_the_prior_ignores_learning_rates_in_long_trainings(steps: int, is_used: bool) -> None:
    spec = {**SPEC, "space": {"lr": SPEC["space"]["lr"]}, "stop": {"timesteps_total": steps}}
    found = simulate({**spec, "trials": 20}, lambda at: {"episode_reward_mean": 0.0, "done": True})
    assert any(origins(found)) == is_used


def test_the_prior_promises_nothing_beyond_the_range_of_the_games() -> None:
    points = np.linspace(0, 1, 100)[:, None]
    rising = games.Game("toy", points, (np.arange(100) + 0.5) / 100 - 0.5)
    model = Model([games.Column("lr", 1e-4, 1e-2, "log")], [rising], ["lr"])
    rates = (1e-6, 1e-4, 1e-2, 1e-2 * (1 + 1e-9), 2e-2, 1.0)
    below, low, high, rounded, above, far = model.expected([{"lr": rate} for rate in rates])
    assert below == low < 0.0
    assert rounded == pytest.approx(high)
    assert high > 0.2
    assert above == far == 0.0


def test_the_best_range_of_one_setting_is_found_although_others_vary() -> None:
    """Of two settings, only one matters, and it does well in the middle."""
    stream = np.random.default_rng(0)
    columns = [games.Column("a", 0.0, 1.0), games.Column("b", 0.0, 1.0)]
    found = []
    for _ in range(3):
        points = stream.random((100, 2))
        score = -abs(points[:, 0] - 0.5) + 0.1 * stream.normal(size=100)
        places = (score.argsort().argsort() + 0.5) / 100 - 0.5
        found.append(games.Game("toy", points, places))
    model = Model(columns, found, ["a", "b"])
    at = np.array([[place, 0.5] for place in (0.0, 0.5, 1.0)])
    low, middle, high = model.expected_at(at)
    assert middle > 0.1 > 0.0 > max(low, high)
    assert np.ptp(model.expected_at(at[:, ::-1])) < 0.1
