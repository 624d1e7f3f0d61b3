"""Tasks of PPO with larger networks, the same for both sides of a comparison.

perceptron  two 256-256 networks on CartPole, 8 environments x 32 steps, 20 epochs of 256 rows
lstm        64 units beside perceptrons of 64 on CartPole, 8 x 128 steps, 10 epochs of 256 rows
cnn         the Nature network on prepared pictures (84, 84, 4), 8 x 64 steps, 4 epochs

This module imports only numpy and gymnasium, because it also runs in the peers' environments.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]


class Work(NamedTuple):
    """Settings for one kind of network; other settings are common."""

    steps: int
    """Steps of each environment in an iteration."""
    epochs: int
    rate: float
    """Learning rate."""
    warm_up: int
    """Number of iterations before the measurement."""
    iterations: int
    """Number of measured iterations."""


ENVS, MINIBATCH = 8, 256
WORK = {
    "perceptron": Work(32, 20, 1e-3, 5, 40),
    "lstm": Work(128, 10, 1e-3, 2, 8),
    "cnn": Work(64, 4, 2.5e-4, 1, 3),
}


class Pictures(gymnasium.Env[Picture, np.int64]):
    """Environment that shows 16 random pictures in turn and rewards the actions 0 to 5 in turn."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(6)
        shape = (16, 84, 84, 4)
        self._pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Picture, dict[str, Any]]:
        """Return the first picture."""
        super().reset(seed=seed, options=options)
        self._step = 0
        return self._pictures[0], {}

    def step(self, action: np.int64) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        """Return the next picture; an episode has 200 steps."""
        reward = float(action == self._step % 6)
        self._step += 1
        return self._pictures[self._step % 16], reward, False, self._step >= 200, {}


def environment(kind: str) -> Any:
    """Return a new environment for a kind of network."""
    return Pictures() if kind == "cnn" else gymnasium.make("CartPole-v1")
