"""An episode that is played again on restore takes longer than a step; that is not a hang."""

import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from trainables.envs.make import EnvironmentConfig
from trainables.envs.state.replay import steps_to_replay
from trainables.envs.vector.base import WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.factory import make_vector_env

HERE = "tests.trainables.envs.test_replay_patience"
#: Seconds of a step once it is slow, seconds that one may take, and steps of the episode.
STEP_S, LIMIT_S, STEPS = 0.1, 5.0, 60


class Slow(gymnasium.Env[Any, Any]):
    """Never ends, and each step takes its time as soon as the file `slow` exists."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, slow: str) -> None:
        self.slow = Path(slow)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.slow.exists():
            time.sleep(STEP_S)
        seen = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return seen, float(action), False, False, {}


@pytest.mark.slow
def test_a_replay_may_take_longer_than_a_step_may(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    environment = EnvironmentConfig(
        env=f"{HERE}:Slow", env_config={"slow": str(slow)}, env_level="B"
    )
    timed = VectorConfig(remote_worker_envs=True, env_step_timeout_s=LIMIT_S)
    envs = make_vector_env(environment, 1, timed, WorkerContext(seed=5, worker=1))
    try:
        envs.reset([1])
        for i in range(STEPS):
            envs.step(np.array([i % 2]))
        state = envs.get_state()
        assert steps_to_replay(state) == STEPS
        expected = envs.step(np.array([1]))
        slow.touch()
        envs.set_state(state)
        again = envs.step(np.array([1]))
    finally:
        envs.close()
    assert np.array_equal(again.observations, expected.observations)
