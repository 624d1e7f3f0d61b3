import copy
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest

from tests.support.trainers import make
from trainables.envs.exactness.measuring import measure
from trainables.envs.make import EnvironmentConfig, make_env
from trainables.envs.state.capture import capture, restore
from trainables.errors import EnvError

HERE = "tests.support.environments"
EXACT = [
    "CartPole-v1",
    "Pendulum-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    f"{HERE}:Counting",
    f"{HERE}:GlobalChance",
]


def level(env: str, **settings: Any) -> str:
    return measure(EnvironmentConfig(env=env, **settings)).level


@pytest.mark.slow
@pytest.mark.parametrize("env", EXACT)
def test_environments_of_plain_attributes_are_exact(env: str) -> None:
    assert level(env) == "A"


def test_the_native_vector_environment_is_exact() -> None:
    assert level("CartPole-v1", native_vector_env=True) == "A"


class DrawsFromItsParts(gymnasium.Env[Any, Any]):
    """Rewards are drawn from one of several spaces, which a list and a deque contain."""

    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, parts: int = 2) -> None:
        self.parts = [gymnasium.spaces.Discrete(1000) for _ in range(parts)]
        self.queue = deque([gymnasium.spaces.Discrete(1000)])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        for part in (*self.parts, *self.queue):
            part.seed(seed)
        return 0, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return 0, float(self.parts[0].sample() + self.queue[0].sample()), False, False, {}


def test_spaces_in_lists_and_deques_draw_on_where_they_were_saved() -> None:
    original, restored = DrawsFromItsParts(), DrawsFromItsParts()
    original.reset(seed=1)
    original.step(0)
    restored.reset(seed=2)
    restore(restored, copy.deepcopy(capture(original)))
    assert [original.step(0)[1] for _ in range(5)] == [restored.step(0)[1] for _ in range(5)]
    assert restored.parts[1] == gymnasium.spaces.Discrete(1000)


def test_a_space_without_a_counterpart_in_the_new_environment_is_refused() -> None:
    saved = capture(DrawsFromItsParts(parts=3))
    with pytest.raises(EnvError, match="has a space that the newly created environment lacks"):
        restore(DrawsFromItsParts(parts=2), saved)


def test_an_environment_with_hidden_state_is_detected() -> None:
    assert level(f"{HERE}:Hidden") == "C"


@pytest.mark.slow
def test_leaving_a_wrappers_counter_out_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainables.envs.exactness import levels
    from trainables.envs.state import capture as state

    monkeypatch.setattr(state, "STRUCTURE", state.STRUCTURE | {"steps"})
    assert levels.examine(EnvironmentConfig(env=f"{HERE}:Counting")).level == "C"


def test_a_restored_copy_goes_on_across_resets_and_the_time_limit() -> None:
    config = EnvironmentConfig(env="CartPole-v1", env_config={"max_episode_steps": 30})
    original, restored = make_env(config), make_env(config)
    original.reset(seed=3)
    for _ in range(12):
        original.step(0 if original.unwrapped.state[2] < 0 else 1)  # type: ignore[attr-defined]
    saved = copy.deepcopy(capture(original))
    restored.reset(seed=99)
    restore(restored, saved)
    cut_off = 0
    for _ in range(100):
        action = 0 if original.unwrapped.state[2] < 0 else 1  # type: ignore[attr-defined]
        seen, expected = restored.step(action), original.step(action)
        assert seen[0].tobytes() == expected[0].tobytes()
        assert seen[1:4] == expected[1:4]
        if expected[2] or expected[3]:
            cut_off += int(expected[3])
            assert restored.reset()[0].tobytes() == original.reset()[0].tobytes()
    assert cut_off > 0


def test_measuring_leaves_the_global_streams_alone() -> None:
    np.random.seed(4)  # noqa: NPY002, TID251 what it must leave alone
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(4)  # noqa: NPY002, TID251
    level(f"{HERE}:GlobalChance")
    assert np.random.random() == expected  # noqa: NPY002


@pytest.mark.slow
def test_state_that_would_be_left_out_is_never_called_exact() -> None:
    """It matters only after more episodes than are measured, so the measure cannot see it."""
    assert level(f"{HERE}:GrowsHarder") == "C"


def test_streams_of_spaces_are_part_of_the_state() -> None:
    env, other = gymnasium.make("CartPole-v1"), gymnasium.make("CartPole-v1")
    env.reset(seed=1)
    env.action_space.seed(5)
    env.action_space.sample()
    other.reset(seed=2)
    restore(other, copy.deepcopy(capture(env)))
    assert [env.action_space.sample() for _ in range(20)] == [
        other.action_space.sample() for _ in range(20)
    ]


def test_the_trainer_says_what_its_checkpoints_hold() -> None:
    assert make().exactness == "A exact state"
    assert make({"env": f"{HERE}:Hidden"}).exactness == "C episode boundary"


def test_without_exact_state_the_episode_in_flight_is_dropped_and_the_next_has_a_derived_seed() -> (
    None
):
    config = {"env": f"{HERE}:Hidden", "observation_filter": "NoFilter"}
    trainer = make(config)
    trainer.train()
    state = copy.deepcopy(trainer.get_state())
    results = []
    for _ in range(2):
        again = make(config)
        again.set_state(state)
        worker = again.workers.get_state()[0]["sampler"]
        assert worker["episodes"]["rewards"].tolist() == [0.0] * 3
        assert worker["discounted_returns"].tolist() == [0.0] * 3
        results.append(worker["observations"].tolist())
    assert results[0] == results[1]
    assert len({row[0] for row in results[0]}) == 3
