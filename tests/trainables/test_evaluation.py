from typing import Any

import numpy as np
import pytest

from tests.support.trainers import differences, final_state, make, run

HERE = "tests.support.environments"


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", f"{HERE}:GlobalChance"])
def test_evaluating_changes_the_training_curve_by_not_one_bit(env: str) -> None:
    often = make({"env": env, "evaluation_interval": 1, "evaluation_config": {"explore": True}})
    with_, with_state = run(often, 3), final_state(often)
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


def test_the_result_does_not_depend_on_how_many_play_side_by_side() -> None:
    shared: dict[str, Any] = {"evaluation_num_episodes": 6, "train_batch_size": None}
    results = [make({**shared, "num_envs_per_worker": n}).evaluate() for n in (1, 6)]
    assert results[0] == results[1]


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
