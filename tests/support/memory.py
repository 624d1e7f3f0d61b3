"""Environments that no policy without a memory can solve."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

from tests.support.environments import Counting

Observation = NDArray[np.float32]
Outcome = tuple[Observation, float, bool, bool, dict[str, Any]]


class CountsFromOne(Counting):
    """Its first observation leaves a trace in a memory, which 0 would not."""

    def _observe(self) -> Observation:
        return np.array([self.steps + 1], dtype=np.float32)


class Recall(gymnasium.Env[Observation, np.int64]):
    """Shows one of two cues at first and pays 1 for naming it, `delay` steps later, else -1.

    Without a memory the best mean reward is 0.
    """

    def __init__(self, delay: int = 4) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space: spaces.Space[np.int64] = spaces.Discrete(2)
        self.delay = delay
        self.cue = 0
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.cue = int(self.np_random.integers(2))
        self.steps = 0
        return np.array([2 * self.cue - 1, 0], dtype=np.float32), {}

    def step(self, action: np.int64) -> Outcome:
        self.steps += 1
        over = self.steps > self.delay
        reward = (1.0 if action == self.cue else -1.0) if over else 0.0
        asked = float(self.steps == self.delay)
        return np.array([0, asked], dtype=np.float32), reward, over, False, {}


class StatelessCartPole(gymnasium.Wrapper[Observation, Any, Any, Any]):
    """CartPole whose velocities are hidden; cut off after 500 steps."""

    def __init__(self) -> None:
        super().__init__(gymnasium.wrappers.TimeLimit(CartPoleEnv(), 500))
        high = self.env.observation_space.high[[0, 2]]  # type: ignore[attr-defined]  # a Box
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation[[0, 2]], info

    def step(self, action: Any) -> Outcome:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation[[0, 2]], float(reward), terminated, truncated, info
