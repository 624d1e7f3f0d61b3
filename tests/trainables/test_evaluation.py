import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import pytest

from tests.support.environments import Broken
from tests.support.trainers import SMALL, differences, final_state, make, run
from trainables import rng
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError, EnvError, NotFiniteError, TrainableError
from trainables.evaluation_play import play
from trainables.trainable import TrialContext

HERE = "tests.support.environments"


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", f"{HERE}:GlobalChance"])
def test_evaluating_changes_the_training_curve_by_not_one_bit(env: str) -> None:
    often = make({"env": env, "evaluation_interval": 1, "evaluation_config": {"explore": True}})
    with_, with_state = run(often, 3), final_state(often)
    assert with_[0].pop("evaluation_at_start")["episodes"] == 3
    never = make({"env": env, "evaluation_interval": None})
    without, without_state = run(never, 3), final_state(never)
    for one in with_:
        assert one.pop("evaluation")["episodes"] == 3
    for results in (with_, without):
        for one in results:
            del one["config"]
    assert differences(with_, without) == []
    assert differences(with_state, without_state) == []


@pytest.mark.parametrize(("episodes", "width"), [(1, 4), (5, 2), (7, 3)])
def test_exactly_so_many_fresh_episodes_are_played(episodes: int, width: int) -> None:
    config = {
        "env": f"{HERE}:Counting",
        "env_config": {"length": 4},
        "evaluation_num_episodes": episodes,
        "num_envs_per_worker": width,
        "train_batch_size": None,
    }
    result = make(config).evaluate()
    assert result["episodes"] == episodes
    assert result["episode_reward_mean"] == result["episode_len_mean"] == 4.0


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("explore", [False, True])
def test_T16_the_result_does_not_depend_on_how_many_play_side_by_side(
    env: str, explore: bool
) -> None:
    shared: dict[str, Any] = {
        "env": env,
        "evaluation_num_episodes": 6,
        "evaluation_config": {"explore": explore},
    }
    widths = (1, 4, 6)
    override = [{"explore": explore, "num_envs_per_worker": n} for n in widths]
    results = [make({**shared, "evaluation_config": one}).evaluate() for one in override]
    assert results[0] == results[1] == results[2]


def played(trainer: PPO, iterations: int) -> list[Any]:
    try:
        return [
            [{k: v for k, v in one.items() if k != "config"} for one in run(trainer, iterations)],
            final_state(trainer),
        ]
    finally:
        trainer.stop()


def test_T15_children_that_evaluate_change_no_number_and_no_state() -> None:
    shared = {
        "evaluation_interval": 1,
        "evaluation_num_episodes": 5,
        "observation_filter": "ConcurrentMeanStdFilter",
    }
    alone = played(make(shared), 2)
    shared_out = played(make({**shared, "evaluation_num_workers": 2}), 2)
    assert differences(alone, shared_out) == []


def test_T15_a_child_that_died_is_replaced_and_its_episodes_are_played_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = {"evaluation_num_workers": 2, "evaluation_num_episodes": 5}
    trainer, alone = make(config), make()
    first = trainer.evaluate()
    pids = trainer.evaluators.pids()
    os.kill(pids[1], signal.SIGKILL)
    assert trainer.evaluate() == first
    assert "evaluation worker 1" in caplog.text
    replaced = trainer.evaluators.pids()
    assert (replaced[0] == pids[0], replaced[1] == pids[1]) == (True, False)
    processes = [psutil.Process(pid) for pid in replaced]
    trainer.stop()
    alone.stop()
    assert not any(process.is_running() for process in processes)


def test_T16_after_a_failure_nothing_of_that_evaluation_leaks_into_the_next() -> None:
    config = {
        "env": f"{HERE}:Broken",
        "env_config": {"what": ""},
        "evaluation_config": {"env_config": {"what": "reward"}},
        "evaluation_num_workers": 2,
    }
    trainer = make(config)
    for _ in range(2):
        with pytest.raises(NotFiniteError, match="evaluation episode"):
            trainer.evaluate()
        assert trainer.evaluators.pids() == []
    trainer.stop()


def test_T15_what_cannot_be_sent_to_a_child_is_said() -> None:
    trainer = make({"evaluation_num_workers": 1})
    trainer.player.note = threading.Lock()  # type: ignore[attr-defined]  # somebody's own
    with pytest.raises(TrainableError, match="set evaluation_num_workers: 0"):
        trainer.evaluate()
    trainer.stop()


class Customised(PPO):
    """Counts its evaluations, and evaluates in its own way."""

    returned: ClassVar[Any] = {"evaluation": {"score": 1.0}}
    before = 0

    def _before_evaluate(self) -> None:
        self.before += 1

    def _evaluate(self) -> Any:
        return self.returned


def test_T13_a_custom_evaluation_adds_what_it_returns_after_the_hook() -> None:
    trainer = Customised({**SMALL, "evaluation_interval": 2}, TrialContext(seed=1))
    results = run(trainer, 4)
    assert [one.get("evaluation") for one in results] == [None, {"score": 1.0}] * 2
    assert results[0]["evaluation_at_start"] == {"score": 1.0}
    assert trainer.before == 3
    trainer.stop()


def test_T13_an_evaluation_that_returns_no_dict_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Customised, "returned", 5)
    trainer = Customised({**SMALL, "evaluation_interval": 1}, TrialContext(seed=1))
    with pytest.raises(TrainableError, match=r"_evaluate\(\) returned 5; expected a dict"):
        trainer.train()
    trainer.stop()


def test_T15_a_restored_trainer_is_not_evaluated_at_the_start_again(tmp_path: Path) -> None:
    first = make({"evaluation_interval": 5})
    first.train()
    path = first.save(tmp_path)
    again = make({"evaluation_interval": 5})
    again.restore(path)
    assert "evaluation_at_start" not in again.train()
    first.stop()
    again.stop()


@pytest.mark.parametrize(
    ("config", "place", "words"),
    [
        ({"lr": 0.1}, "evaluation_config.lr", "a key that evaluation reads"),
        ({"env_level": "A"}, "evaluation_config.env_level", "a key that evaluation reads"),
        ({"env_replay_limit": 5}, "evaluation_config.env_replay_limit", "evaluation reads"),
        ({"explore": 1}, "evaluation_config.explore", "true or false"),
        ({"num_envs_per_worker": 0}, "evaluation_config.num_envs_per_worker", "greater than 0"),
        ({"env": "CartPole-v9"}, "evaluation_config.env", "did you mean 'CartPole-v1'"),
        ({"env": "Pendulum-v1"}, "evaluation_config.env_config", "the training's spaces"),
    ],
)
def test_T15_what_is_different_is_checked_like_any_setting(
    config: dict[str, Any], place: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        PPO.check_config({"env": "CartPole-v1", "evaluation_config": config})
    assert caught.value.place == place
    assert words in str(caught.value)


def test_greedy_evaluation_repeats_itself_and_exploring_differs() -> None:
    greedy, exploring = make(), make({"evaluation_config": {"explore": True}})
    assert greedy.evaluate() == greedy.evaluate()
    assert greedy.evaluate() != exploring.evaluate()


def test_the_environment_of_evaluation_can_be_another() -> None:
    config = {
        "env": f"{HERE}:Counting",
        "env_config": {"length": 4},
        "evaluation_config": {"env_config": {"length": 9}},
    }
    assert make(config).evaluate()["episode_len_mean"] == 9.0


def test_filters_are_frozen_while_evaluating() -> None:
    trainer = make()
    trainer.train()
    before = trainer.filters["observation"].get_state()
    trainer.evaluate()
    np.testing.assert_equal(trainer.filters["observation"].get_state(), before)


def test_each_evaluation_has_seeds_of_its_own() -> None:
    trainer = make(
        {
            "lr": 1e-12,
            "lr_schedule": "constant",
            "evaluation_interval": 1,
            "observation_filter": "NoFilter",
        }
    )
    results = [one["evaluation"] for one in run(trainer, 3)]
    assert len({one["episode_reward_mean"] for one in results}) > 1


FAULTY: dict[str, Any] = {
    "env": f"{HERE}:ChancyMishap",
    "env_level": "C",
    "restart_failed_sub_environments": True,
    "normalize_rewards": False,
    "evaluation_num_episodes": 7,
}


def evaluated(config: dict[str, Any]) -> dict[str, float]:
    trainer = make({**FAULTY, **config})
    try:
        return trainer.evaluate()
    finally:
        trainer.stop()


@pytest.mark.parametrize("explore", [False, True])
def test_T16_E4_an_episode_whose_environment_fails_is_played_anew_wherever_it_is_played(
    explore: bool,
) -> None:
    widths = [{"num_envs_per_worker": n, "explore": explore} for n in (1, 2, 7)]
    results = [evaluated({"evaluation_config": one}) for one in widths]
    children = evaluated({"evaluation_config": widths[1], "evaluation_num_workers": 2})
    assert results[0] == results[1] == results[2] == children
    assert results[0]["episodes"] == 7
    assert results[0]["episode_len_mean"] == 6.0
    assert results[0]["num_faulty_episodes"] > 0
    assert results[0]["episode_reward_max"] <= 6 * 0.5  # no part of an episode that failed counts


@pytest.mark.parametrize("how", ["hangs", "dies"])
def test_E4_environments_of_an_evaluation_are_cut_off_in_processes_of_their_own(how: str) -> None:
    trainer = make({**FAULTY, "num_envs_per_worker": 2, "train_batch_size": None})
    plan = trainer.evaluation_plan(trainer.settings)
    here = play(trainer.player, plan, 5, range(2))
    assert sum(one.faults for one in here) == 1
    own = {"remote_worker_envs": True, "env_step_timeout_s": 1.0}
    lanes = plan.lanes.model_copy(update=own)
    environment = plan.environment.model_copy(update={"env_config": {"how": how}})
    assert play(trainer.player, replace(plan, environment=environment, lanes=lanes), 5, [0, 1]) == (
        here
    )
    trainer.stop()


def test_T16_an_evaluation_that_fails_again_and_again_ends_with_the_cause() -> None:
    with pytest.raises(EnvError, match=r"evaluation episode 0: .*failed 9 times in a row.*world"):
        evaluated({"evaluation_config": {"env_config": {"above": -1.0}}})


class RaisesAgainWhenClosed(Broken):
    """Raises once in its process, and when it is closed after that."""

    failed: ClassVar[bool] = False

    def step(self, action: Any) -> Any:
        if self.steps == 2 and not RaisesAgainWhenClosed.failed:
            self.what, RaisesAgainWhenClosed.failed = "raise and close", True
            raise ZeroDivisionError("the world ended")
        return super().step(action)

    def close(self) -> None:
        if self.what == "raise and close":
            raise ConnectionError("nothing to close")


@pytest.mark.parametrize("restarts", [True, False])
def test_T16_what_closing_raises_hides_no_failure_and_hinders_no_restart(
    restarts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"env": f"{__name__}:RaisesAgainWhenClosed", "env_config": {"what": ""}}
    trainer = make({**FAULTY, **env, "restart_failed_sub_environments": restarts})
    plan = trainer.evaluation_plan(trainer.settings)
    monkeypatch.setattr(RaisesAgainWhenClosed, "failed", False)
    before = rng.capture_global()
    if restarts:
        played = play(trainer.player, plan, 5, range(2))
        assert [one.metrics.length for one in played] == [10, 10]
        assert sum(one.faults for one in played) == 1
    else:
        with pytest.raises(EnvError, match="the world ended"):
            play(trainer.player, plan, 5, range(2))
    assert differences(rng.capture_global(), before) == []
    trainer.stop()


@pytest.mark.parametrize("workers", [0, 1])
def test_T16_an_environment_that_may_not_be_restarted_is_named_with_what_would_help(
    workers: int,
) -> None:
    config = {"restart_failed_sub_environments": False, "evaluation_num_workers": workers}
    with pytest.raises(EnvError, match=r"evaluation episode \d: step\(\) raised ZeroDivision.*at "):
        evaluated(config)
