"""Connectors of a person's own, ones that break their contract, and a world that pays for both."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables import Connector

Array = NDArray[Any]
ACTIONS: dict[str, spaces.Space[Any]] = {
    "choice": spaces.Discrete(3, start=2),
    "interval": spaces.Box(np.array([-1.0, 2.0], np.float32), np.array([3.0, 6.0], np.float32)),
    "mixed": spaces.Dict(
        {
            "bits": spaces.MultiBinary(2),
            "open": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            "turn": spaces.MultiDiscrete([2, 3]),
        }
    ),
}


class World(gymnasium.Env[Array, Any]):
    """Episodes of so many steps; its rewards depend on the step and on what it was sent."""

    def __init__(self, action: str = "choice", length: int = 5) -> None:
        self.observation_space = spaces.Box(-9.0, 9.0, (2,), np.float32)
        self.action_space = ACTIONS[action]
        self._length = length
        self._t = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        assert isinstance(action, np.ndarray) or self.action_space.contains(action), action
        self._t += 1
        parts = action.values() if isinstance(action, dict) else [action]
        sent = sum(float(np.sum(part)) for part in parts)
        over = self._t == self._length
        return self._observation(), self._t / 2 + sent / 8, over, False, {}

    def _observation(self) -> Array:
        drawn = self.np_random.uniform(-1, 1)
        return np.array([self._t, drawn], np.float32)


class Steps(Connector):
    """The number of the observation in its episode, after the observation, times `scale`."""

    memory_size = 1

    def __init__(self, observation_space: spaces.Box, action_space: Any, scale: float = 1) -> None:
        size = int(np.prod(observation_space.shape)) + 1
        super().__init__(spaces.Box(-np.inf, np.inf, (size,), np.float32), action_space)
        self.scale = np.float32(scale)

    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        return np.concatenate([rows, memory * self.scale], axis=1), memory + 1


class Mirrored(Connector):
    """Actions from right to left."""

    def act(self, actions: Array) -> Array:
        return -actions


class Longer(Connector):
    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        return np.concatenate([rows, rows], axis=1), memory


class Raising(Connector):
    def observe(self, rows: Array, memory: Array) -> tuple[Array, Array]:
        raise RuntimeError("no such row")


def nothing(observation_space: spaces.Box, action_space: Any) -> int:
    return 3
