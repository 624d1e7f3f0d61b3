"""Lanes of DQN: what they explore, when they learn, and their replay."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import lanes
from tests.support.lanes import assert_same, curve
from trainables.algorithms.dqn import DQN
from trainables.stacks.dqn import LaneDQN, replay_places

made = functools.partial(lanes.made, DQN)


def test_replays_of_many_sizes_have_few_numbers_of_places() -> None:
    sizes = (1, 2048, 2049, 10_000, 32_768, 32_769, 100_000)
    assert [replay_places(one) for one in sizes] == [2048, 2048, 8192, 32768, 32768, 131072, 131072]


def test_what_a_lane_has_learnt_goes_on_without_lanes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lane = made()
    curve(lane, 2)
    path = lane.save(tmp_path)
    plain = made(lanes=None)
    plain.restore(path)
    assert_same(lane.policy.weights(), plain.policy.weights())
    target = plain.target.network.weights()
    assert_same(lane.target.network.weights(), target)
    assert any(not np.array_equal(one, plain.policy.weights()[n]) for n, one in target.items())
    # Of each environment the last two steps may still grow.
    assert len(plain.replay) in range(64 - 4, 64 + 1)
    rows = plain.replay.sample(50)
    assert {name: column.dtype.str for name, column in rows.items()} == {
        "observations": "<f4",
        "actions": "<i8",
        "rewards": "<f4",
        "new_obs": "<f4",
        "terminated": "|b1",
        "discounts": "<f4",
    }
    assert "new episodes are begun" in caplog.text
    result = plain.train()
    assert result["timesteps_total"] == 3 * 32
    assert len(plain.replay) > 64
    assert result["exactness"].startswith("D")


@pytest.mark.slow
def test_exploring_choices_are_as_many_as_epsilon_says() -> None:
    found = {}
    for epsilon in (0.0, 0.5):
        explored = {"initial_epsilon": epsilon, "final_epsilon": epsilon}
        given: dict[str, Any] = {
            "exploration_config": explored,
            "learning_starts": 100,
            "n_step": 1,
        }
        lane = made(**given, observation_filter="NoFilter")
        curve(lane, 3)
        plain = made(**given, observation_filter="NoFilter", lanes=None)
        plain.replay.set_state(lane.get_state()["trainable"]["data"]["replay"])
        rows = plain.replay.sample(500)
        best = [lane.compute_action(one) for one in rows["observations"]]
        found[epsilon] = float(np.mean(rows["actions"] == best))
    assert found[0.0] > 0.99
    assert 0.6 < found[0.5] < 0.9


def test_nothing_is_learnt_before_learning_starts() -> None:
    lane = made(learning_starts=80)
    before = lane.policy.weights()
    assert [learnt for learnt, *_ in curve(lane, 2)] == [{}, {}]
    assert_same(before, lane.policy.weights())
    assert set(curve(lane, 1)[0][0]) == {"loss", "mean_q", "grad_norm"}


def test_the_rates_of_each_round_are_those_of_its_first_step() -> None:
    """Rounds have 16 steps; learning starts within the second round of the iteration."""
    scheduled: dict[str, Any] = {
        "lr": 1e-2,
        "lr_schedule": "linear",
        "schedule_timesteps": 160,
        "exploration_config": {"epsilon_timesteps": 64, "final_epsilon": 0.0},
        "tau": None,
        "target_network_update_freq": 40,
    }
    lane = made(**scheduled, timesteps_per_iteration=64)
    assert isinstance(lane, LaneDQN)
    lane.progress.timesteps = 16
    rates = lane.rates()
    np.testing.assert_allclose(rates.lr, [9e-3, 8e-3, 7e-3, 6e-3], rtol=1e-6)
    np.testing.assert_allclose(rates.epsilon, [0.75, 0.5, 0.25, 0.0], atol=1e-6)
    assert rates.updates.tolist() == [3, 3, 3, 3]
    assert rates.copies_target.tolist() == [False, True, False, True]
    lane.progress.timesteps = 0
    assert lane.rates().updates.tolist() == [0, 3, 3, 3]
    lane.stop()
    follows = made(tau=0.25, timesteps_per_iteration=64)
    follows.progress.timesteps = 480  # the third round passes 500 steps
    assert isinstance(follows, LaneDQN)
    assert not follows.rates().copies_target.any()
    follows.stop()


def test_a_target_that_waits_becomes_what_is_learnt() -> None:
    lane = made(tau=None, target_network_update_freq=64)
    first = lane.target.network.weights()
    curve(lane, 1)
    lane.get_state()
    assert_same(first, lane.target.network.weights())
    curve(lane, 1)
    learnt = lane.policy.weights()
    assert_same(learnt, lane.target.network.weights())


@pytest.mark.slow
def test_a_lane_learns_to_balance_a_pole() -> None:
    trainer = made(
        num_envs_per_worker=8,
        replay_batch_size=64,
        updates_per_step=32,
        learning_starts=500,
        buffer_size=10_000,
        timesteps_per_iteration=640,
        gamma=0.98,
        observation_filter="NoFilter",
        exploration_config={"epsilon_timesteps": 4000},
        model={"hidden": [32, 32]},
    )
    first = trainer.train()
    last = [trainer.train() for _ in range(19)][-1]
    assert first["timesteps_total"] == 640
    assert last["timesteps_total"] == 20 * 640
    assert last["episode_reward_mean"] > 3 * first["episode_reward_mean"] > 30
