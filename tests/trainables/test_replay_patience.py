"""An episode that is played again on restore takes longer than a step; that is no hang."""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from trainables.envs.choice import make_lanes
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.envs.replay import steps_to_replay
from trainables.envs.vector import Place

HERE = "tests.trainables.test_replay_patience"
#: Seconds of a step, and steps of the episode; a step may take ten times as long as it does.
STEP_S, STEPS = 0.02, 60


class Slow(gymnasium.Env[Any, Any]):
    """Never ends, and each step takes its time."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(STEP_S)
        seen = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return seen, float(action), False, False, {}


def test_a_replay_may_take_longer_than_a_step_may() -> None:
    environment = EnvironmentConfig(env=f"{HERE}:Slow", env_level="B")
    timed = LanesConfig(remote_worker_envs=True, env_step_timeout_s=10 * STEP_S)
    lanes = make_lanes(environment, 1, timed, Place(seed=5, worker=1))
    try:
        lanes.reset([1])
        for i in range(STEPS):
            lanes.step(np.array([i % 2]))
        state = lanes.get_state()
        assert steps_to_replay(state) == STEPS
        expected = lanes.step(np.array([1]))
        lanes.set_state(state)
        again = lanes.step(np.array([1]))
    finally:
        lanes.close()
    assert np.array_equal(again.observations, expected.observations)
