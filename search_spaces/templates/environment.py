"""The environment that the sweep in space.yaml learns: replace it by your own."""

from typing import Any

import gymnasium as gym
import numpy as np


class Corridor(gym.Env[np.ndarray, np.int64]):
    """Walk right to the end of a corridor; every step costs a little, the end is worth 1."""

    def __init__(self, length: int = 8) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)  # left, right
        self.length, self.at, self.steps = length, 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin in the left half; chance comes from `self.np_random` alone."""
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(self.length // 2)), 0
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, info."""
        self.at = max(0, self.at + (1 if action == 1 else -1))
        self.steps += 1
        there = self.at >= self.length
        return self._look(), 1.0 if there else -0.05, there, self.steps >= 50, {}

    def _look(self) -> np.ndarray:
        return np.array([self.at / self.length, self.steps / 50], dtype=np.float32)
