"""Environments of one's own train in lanes, and what they learnt goes on without lanes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.algorithms.dqn import DQN
from trainables.algorithms.ppo import PPO
from trainables.errors import ConfigError
from trainables.stacks.trainer import LaneTrainer
from trainables.trainable import TrialContext
from trainables.trainer.trainer import Trainer

MODULE = "jax:tests.support.corridors"
CONFIG: dict[str, Any] = {
    "env": f"{MODULE}:Corridor",
    "env_config": {"length": 4},
    "num_envs_per_worker": 8,
    "rollout_fragment_length": 32,
    "sgd_minibatch_size": 64,
    "lr": 1e-2,
    "model": {"hidden": [8]},
    "evaluation_interval": 4,
    "evaluation_num_episodes": 40,
    "lanes": 1,
}


def made(cls: type[Trainer] = PPO, **more: Any) -> Trainer:
    return cls({**CONFIG, **more}, TrialContext(seed=1))


def test_a_lane_learns_in_an_environment_of_ones_own_and_the_process_plays_on(
    tmp_path: Path,
) -> None:
    lane = made()
    assert isinstance(lane, LaneTrainer)
    results = [lane.train() for _ in range(8)]
    last = results[-1]["evaluation"]
    assert results[0]["evaluation_at_start"]["episode_len_mean"] > 8
    assert last["episode_len_mean"] < 6
    assert last["episode_reward_mean"] > 3
    theirs = Trainer.evaluate(lane)
    assert theirs["episode_len_mean"] == pytest.approx(last["episode_len_mean"], abs=1.0)
    plain = made(lanes=None, native_vector_env=False)
    plain.restore(lane.save(tmp_path))
    assert plain.train()["timesteps_total"] == 9 * 256
    assert plain.train()["exactness"].startswith("D")  # since it went on without lanes
    episodes = plain.play(20, seed=3)
    assert 3 < np.mean([one["episode_len"] for one in episodes]) < 7


def test_actions_of_several_columns_reach_their_own_bounds() -> None:
    lane = made(env=f"{MODULE}:Points", env_config={}, num_envs_per_worker=2, sgd_minibatch_size=32)
    assert isinstance(lane, LaneTrainer)
    assert lane.policy.weights()["log_std"].shape == (2,)
    result = lane.train()
    assert result["timesteps_total"] == 64
    assert result["hist_stats"]["episode_lengths"] == [8] * 8
    theirs, mine = Trainer.evaluate(lane), lane.evaluate()
    assert mine["episode_reward_mean"] == pytest.approx(theirs["episode_reward_mean"], abs=6.0)


@pytest.mark.slow
def test_dqn_learns_in_an_environment_of_ones_own() -> None:
    changes = {"learning_starts": 200, "replay_batch_size": 32, "updates_per_step": 16}
    own = {key: one for key, one in CONFIG.items() if key not in ("sgd_minibatch_size",)}
    lane = DQN({**own, **changes, "rollout_fragment_length": 4}, TrialContext(seed=1))
    assert [lane.train() for _ in range(40)][-1]["evaluation"]["episode_len_mean"] < 6


def test_lanes_of_other_settings_of_an_environment_are_in_other_programs() -> None:
    shapes = {made(env_config={"length": length}).shape for length in (4, 4, 5)}  # type: ignore[attr-defined]
    assert len(shapes) == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"env": f"{MODULE}:NoStep", "env_config": {}},
            r"no function step; expected step\(key, state, action\)",
        ),
        ({"env": "CartPole-v1", "env_config": {"a": 1}}, "env_config: .* in a compiled program"),
        ({"env_config": {"length": 3, "wide": 2}}, "env_config: .*unexpected keyword argument"),
    ],
)
def test_what_no_program_can_step_is_refused_before_training(
    changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected):
        PPO.check_config({**CONFIG, **changes})
