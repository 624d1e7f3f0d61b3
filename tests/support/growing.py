"""Environments whose observations are whole numbers that grow: a filter's statistics move."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Growing(gymnasium.Env[Any, Any]):
    """Shows its clock, [`offset` + t, t % 3]; each episode is longer than the one before.

    Every step is worth 1. The info says that both choices are valid.

    Args:
        action: "choice" of two, or "interval".
        offset: of the clock.
        dtype: of the observation.
    """

    def __init__(self, action: str = "choice", offset: float = 0.0, dtype: str = "float32") -> None:
        self.observation_space = spaces.Box(-1e12, 1e12, (2,), np.dtype(dtype))
        self.action_space: spaces.Space[Any] = spaces.Discrete(2)
        if action == "interval":
            self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._offset, self._t, self._episodes = offset, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t, self._episodes = 0, self._episodes + 1
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        observation, info = self._shown()
        return observation, 1.0, self._t >= 3 * self._episodes, False, info

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        shown = np.array([self._offset + self._t, self._t % 3], self.observation_space.dtype)
        return shown, {"action_mask": np.ones(2, np.int8)}


class GrowingImage(Growing):
    """The same, as the brightness of a small image; its clock stops at 255."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def _shown(self) -> tuple[Any, dict[str, Any]]:
        return np.full((8, 8, 1), min(self._t, 255), np.uint8), {}


class Walk(gymnasium.Env[Any, Any]):
    """Ends with the first wrong choice; which one is right alternates every 4 steps of 32.

    It shows how many steps were taken, all in all and of the last 8: an agent that learns comes
    further, and what it sees becomes larger.
    """

    LENGTH = 32

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-1e4, 1e4, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = int(action) == (self._t // 4) % 2
        self._t += 1
        return self._shown(), float(right), not right, self._t >= self.LENGTH, {}

    def _shown(self) -> Any:
        return np.array([self._t, self._t % 8], np.float32)
