"""Environments that no package has."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class CartPoleWithoutVelocities(gymnasium.ObservationWrapper[NDArray[np.float32], int, Any]):
    """CartPole whose observations lack the velocities, so that a policy needs a memory.

    An observation is (position in m, angle in rad). The return is that of CartPole-v1: at most 500.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))
        space = self.env.observation_space
        assert isinstance(space, spaces.Box)  # noqa: S101 for mypy
        self.observation_space = spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return position and angle, (2,), of CartPole's observation (4,)."""
        return observation[::2]
