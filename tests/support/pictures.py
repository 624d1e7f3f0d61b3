"""Environments whose observations are pictures and planes of every type, bounds and layout."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Outcome = tuple[Any, float, bool, bool, dict[str, Any]]


class Planes(gymnasium.Env[Any, Any]):
    """Of two planes (8, 8) one has a single entry; the action that names that plane pays 1.

    Args:
        highest: the entry, and the upper bound of all of them; the lower one is 0.
        dtype: of the observation.
        axes: where the environment has the axes of (8, 8, 2).
        nested: whether the observation is a Dict with the planes beside a number.
    """

    def __init__(
        self,
        highest: float = 1,
        dtype: str = "uint8",
        axes: Sequence[int] = (0, 1, 2),
        nested: bool = False,
    ) -> None:
        self.highest, self.axes, self.nested = highest, tuple(axes), nested
        shape = tuple(np.zeros((8, 8, 2)).transpose(self.axes).shape)
        self.box: spaces.Box = spaces.Box(0, highest, shape, np.dtype(dtype).type)
        self.observation_space: spaces.Space[Any] = self.box
        if nested:
            other = spaces.Box(-1.0, 1.0, (1,), np.float32)
            self.observation_space = spaces.Dict({"other": other, "planes": self.box})
        self.action_space = spaces.Discrete(2)
        self.plane, self.steps = 0, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Outcome:
        reward = float(action == self.plane)
        self.steps += 1
        return self._seen(), reward, self.steps >= 6, False, {}

    def _seen(self) -> Any:
        self.plane = int(self.np_random.integers(2))
        planes: NDArray[Any] = np.zeros((8, 8, 2), self.box.dtype)
        row, column = self.np_random.integers(8, size=2)
        planes[row, column, self.plane] = self.highest
        seen = np.ascontiguousarray(planes.transpose(self.axes))
        return {"other": np.ones(1, np.float32), "planes": seen} if self.nested else seen


class Pictures(gymnasium.Env[Any, Any]):
    """Draws its observations within the bounds of a Box; an episode has five steps.

    Args:
        shape: of the Box.
    """

    def __init__(
        self,
        shape: Sequence[int] = (8, 8, 2),
        dtype: str = "uint8",
        low: float = 0,
        high: float = 255,
    ) -> None:
        self.box: spaces.Box = spaces.Box(low, high, tuple(shape), np.dtype(dtype).type)
        self.observation_space: spaces.Space[Any] = self.box
        self.action_space = spaces.Discrete(3)
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.draw(), {}

    def step(self, action: Any) -> Outcome:
        self.steps += 1
        observation = self.draw()
        return observation, float(observation.mean()), self.steps == 5, False, {}

    def draw(self) -> NDArray[Any]:
        """Return an observation."""
        box = self.box
        low, high = float(np.min(box.low)), float(np.max(box.high))
        drawn = self.np_random.uniform(low, high, box.shape)
        return (drawn if box.dtype.kind == "f" else np.rint(drawn)).astype(box.dtype)


class Broken(Pictures):
    """Draws floats, and in the third step one that is not a number."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape, "float32")

    def step(self, action: Any) -> Outcome:
        observation, _, *rest = super().step(action)
        if self.steps == 3:
            observation.flat[0] = np.nan
        return observation, 0.0, *rest


class ChannelsFirst:
    """A preprocessor that lays images (H, W, C) out as (C, H, W)."""

    def __init__(self, space: spaces.Box) -> None:
        low, high = space.low.transpose(2, 0, 1), space.high.transpose(2, 0, 1)
        self.observation_space = spaces.Box(low, high, dtype=space.dtype.type)

    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation.transpose(2, 0, 1)
