"""Atari games in DeepMind's wrappers; ale-py and its games come with the dev extra."""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.support.trainers import differences, make, run
from trainables.algorithms.ppo import PPO, Config
from trainables.core.settings import parse
from trainables.envs.exactness import measuring
from trainables.envs.kinds.atari import LIFE_LOST, EpisodicLife, FireAtEachLife
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.state.replay import ReplayableEnv
from trainables.errors import ConfigError

SMALL: dict[str, Any] = {
    "env": "ALE/Pong-v5",
    "num_envs_per_worker": 1,
    "rollout_fragment_length": 8,
    "train_batch_size": 8,
    "model": {"hidden": [32]},
    "num_sgd_iter": 1,
    "observation_filter": "NoFilter",
    "normalize_rewards": False,
    "evaluation_interval": None,
}
NOOP = 0


def layers_of(env: gymnasium.Env[Any, Any]) -> list[str]:
    names = []
    while isinstance(env, gymnasium.Wrapper):
        names.append(type(env).__name__)
        env = env.env
    return names


def test_W7_atari_games_get_deepminds_wrappers() -> None:
    env = make_env(EnvironmentConfig(env="ALE/Breakout-v5"))
    assert layers_of(env)[:5] == [
        *("TransformObservation", "FrameStackObservation", "FireAtEachLife", "EpisodicLife"),
        "AtariPreprocessing",
    ]
    observation, _ = env.reset(seed=1)
    assert observation.shape == (84, 84, 4)
    assert observation.dtype == np.uint8
    assert env.observation_space.contains(observation)
    assert env.get_wrapper_attr("frame_skip") == 4
    assert env.get_wrapper_attr("noop_max") == 30
    following, *_ = env.step(NOOP)
    np.testing.assert_array_equal(following[..., :3], observation[..., 1:])
    env.close()


def test_W7_a_game_that_waits_for_no_fire_is_not_fired_at() -> None:
    env = make_env(EnvironmentConfig(env="ALE/Freeway-v5"))
    assert "FireAtEachLife" not in layers_of(env)
    env.close()


def test_W7_the_frame_stack_and_the_wrappers_can_be_left_out() -> None:
    one = EnvironmentConfig(env="ALE/Pong-v5", no_framestack=True)
    assert measuring.inspect(one).spaces.observation_shape == (84, 84, 1)
    bare = EnvironmentConfig(env="ALE/Pong-v5", preprocessor_pref="rllib")
    assert measuring.inspect(bare).spaces.observation_shape == (210, 160, 3)
    skipping = EnvironmentConfig(env="ALE/Pong-v5", env_config={"frameskip": 2})
    env = make_env(skipping)
    assert env.get_wrapper_attr("frame_skip") == 2
    env.close()


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ({}, (84, 84, 4)),
        ({"dim": 42}, (42, 42, 4)),
        ({"framestack": 2}, (84, 84, 2)),
        ({"framestack": False}, (84, 84, 1)),
        ({"framestack": 1, "dim": 80}, (80, 80, 1)),
    ],
)
def test_W7_K2_frames_are_of_the_size_and_number_that_model_says(
    model: dict[str, Any], shape: tuple[int, int, int]
) -> None:
    config = parse(Config, {"env": "ALE/Pong-v5", "model": model, "no_framestack": False})
    assert measuring.inspect(config.environment).spaces.observation_shape == shape
    env = make_env(config.environment)
    observation, _ = env.reset(seed=1)
    assert observation.shape == shape
    env.close()


@pytest.mark.slow
def test_W7_K2_small_frames_are_learnt_from_and_evaluated() -> None:
    model = {"dim": 36, "framestack": 2, "hidden": [8]}
    evaluated = {"evaluation_interval": 1, "evaluation_num_episodes": 1, "horizon": 20}
    trainer = make({**SMALL, "model": model, **evaluated})
    assert trainer.policy.model.weights()["trunk.convolutions.0.weight"].shape == (32, 2, 8, 8)
    assert trainer.train()["evaluation"]["episode_len_mean"] <= 20
    trainer.stop()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"env": "CartPole-v1", "model": {"dim": 42}},
            "model.dim: has no effect, .* is not an Atari game",
        ),
        (
            {"env": "CartPole-v1", "model": {"framestack": 1}},
            "model.framestack: has no effect, .* not an Atari",
        ),
        ({"preprocessor_pref": "rllib", "model": {"dim": 42}}, "model.dim"),
        ({"no_framestack": True, "model": {"framestack": 2}}, "no_framestack is true"),
        ({"model": {"framestack": 2, "use_lstm": True}}, "as it is with model.use_lstm"),
    ],
)
def test_W7_K2_sizes_that_nobody_would_read_are_refused(
    config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        PPO.validate_config(parse(Config, {"env": "ALE/Pong-v5", **config}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, True),
        ({"clip_rewards": False}, False),
        ({"env": "CartPole-v1"}, None),
    ],
)
def test_W7_rewards_of_atari_are_clipped_unless_set_otherwise(
    config: dict[str, Any], expected: object
) -> None:
    trainer = make({**SMALL, **config})
    workers: Any = trainer.workers
    assert workers.worker._sampler.config.clip_rewards == expected
    trainer.stop()


def until_a_life_is_lost(env: gymnasium.Env[Any, Any]) -> tuple[bool, dict[str, Any], int]:
    lives = env.unwrapped.ale.lives()  # type: ignore[attr-defined]  # ale-py's own
    for _ in range(500):
        _, _, terminated, _, info = env.step(NOOP)
        if info["lives"] < lives:
            return terminated, info, info["lives"]
    raise AssertionError("no life was lost")


def test_W7_a_lost_life_ends_the_episode_and_not_the_game() -> None:
    env = make_env(EnvironmentConfig(env="ALE/Breakout-v5"))
    env.reset(seed=1)
    terminated, info, lives = until_a_life_is_lost(env)
    assert terminated
    assert info[LIFE_LOST]
    _, info = env.reset()
    assert info["lives"] == lives == 4
    _, info = env.reset(seed=1)
    assert info["lives"] == 5
    env.close()


def test_W7_in_evaluation_an_episode_is_the_whole_game_and_each_life_is_fired_at() -> None:
    """Without FIRE after each lost life this game would wait for ever."""
    env = make_env(EnvironmentConfig(env="ALE/Breakout-v5"), learning=False)
    assert "EpisodicLife" not in layers_of(env)
    env.reset(seed=1)
    lost = 0
    for _ in range(1000):
        *_, terminated, _, info = env.step(NOOP)
        lost = 5 - info["lives"]
        if terminated:
            break
    assert terminated
    assert lost == 5
    env.close()


@pytest.mark.slow
def test_P10_the_metrics_of_atari_are_those_of_whole_games() -> None:
    config = {"env": "ALE/Breakout-v5", "clip_rewards": False}
    trainer = make({**SMALL, **config, "rollout_fragment_length": 600, "train_batch_size": 600})
    sample = trainer.workers.sample()[0]
    fragment = sample.fragments[0]
    ends = np.flatnonzero(fragment.terminated[:, 0])
    games = [-1, *ends[4::5]]  # five lives each
    assert len(sample.episodes) == len(games) - 1 > 0
    for episode, begin, end in zip(sample.episodes, games[:-1], games[1:], strict=True):
        assert episode.length == end - begin
        assert episode.total_reward == fragment.rewards[begin + 1 : end + 1, 0].sum()
    assert sum(episode.total_reward for episode in sample.episodes) > 0
    trainer.stop()


@pytest.mark.slow
def test_ppo_learns_evaluates_and_exports_pong_with_a_child_as_without(tmp_path: Path) -> None:
    alone = make(SMALL)
    result = run(alone, 1)[0]
    assert np.isfinite(list(result["learner"].values())).all()
    alone.export_model("onnx", tmp_path)
    assert alone.compute_action(alone.recent[0]) in range(6)
    child = make({**SMALL, "num_workers": 1})
    assert differences(result["learner"], run(child, 1)[0]["learner"]) == []
    alone.stop()
    child.stop()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_P9_evaluation_cuts_a_game_off_at_the_horizon_wherever_it_is_played(workers: int) -> None:
    config = {"horizon": 11, "evaluation_num_episodes": 2, "evaluation_num_workers": workers}
    trainer = make({**SMALL, **config})
    assert trainer.evaluate()["episode_len_mean"] == 11.0
    trainer.stop()


def test_games_that_are_not_installed_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"ALE/Pong-v9.*sweep-rl\[atari\]"):
        PPO.check_config({"env": "ALE/Pong-v9"})


def test_a_game_that_does_not_exist_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'ALE/Pong-v5'"):
        PPO.check_config({"env": "ALE/Pong-v9"})


class Lives(gymnasium.Env[Any, Any]):
    """Two lives; the game is over, by a cut, while one is left."""

    def __init__(self) -> None:
        self.observation_space = self.action_space = gymnasium.spaces.Discrete(2)
        self.ale = self
        self.left = 2

    def lives(self) -> int:
        return self.left

    def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
        self.left = 2
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return 0, 1.0, False, True, {}


def test_W7_a_game_that_is_cut_off_as_a_life_is_lost_is_truncated_and_begun_anew() -> None:
    env = FireAtEachLife(EpisodicLife(Lives()))
    env.reset()
    *_, terminated, truncated, info = env.step(NOOP)
    assert (terminated, truncated) == (False, True)
    assert LIFE_LOST not in info


@pytest.mark.slow
def test_a_game_goes_on_from_life_to_life_when_it_is_played_again() -> None:
    """Between two lives nothing is made anew; a state taken there or later leads to the same."""
    config = EnvironmentConfig(env="ALE/Breakout-v5", env_level="B")
    env, twin = (ReplayableEnv(lambda: make_env(config), 1000) for _ in range(2))
    env.reset(seed=1)
    lives: list[int] = []
    while len(lives) < 2:
        *_, terminated, _, info = env.step(NOOP)
        if terminated:
            lives.append(info["lives"])
            env.reset()
            twin.set_state(env.get_state())
            assert twin.get_state()["lost"] == ""
    assert lives == [4, 3]
    for _ in range(5):
        seen, expected = (one.step(NOOP) for one in (twin, env))
        assert (seen[0] == expected[0]).all()
        assert seen[1:] == expected[1:]
    twin.set_state(env.get_state())
    assert twin.get_state() == env.get_state()
    env.close()
    twin.close()
