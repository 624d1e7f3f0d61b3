"""Environments that no package has."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class CartPoleWithoutVelocities(gymnasium.ObservationWrapper[NDArray[np.float32], int, Any]):
    """CartPole of which only position (m) and angle (rad) are seen, so that a policy must remember.

    Its return is that of CartPole-v1: at most 500.
    """

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))
        whole = self.env.observation_space
        assert isinstance(whole, spaces.Box)  # noqa: S101 as CartPole has it
        self.observation_space = spaces.Box(whole.low[::2], whole.high[::2], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """(2,) position and angle."""
        return observation[::2]
