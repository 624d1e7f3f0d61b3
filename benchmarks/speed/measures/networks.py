"""PPO with networks that are no small perceptron: the work that both sides of a comparison do.

perceptron  two 256-256 networks on CartPole, 8 environments x 32 steps, 20 epochs of 256 rows
lstm        64 units beside perceptrons of 64 on CartPole, 8 x 128 steps, 10 epochs of 256 rows
cnn         the Nature network on pictures (84, 84, 4) that cost nothing, 8 x 64 steps, 4 epochs

Nothing but numpy and gymnasium is imported here: it runs in the peers' environment as well.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]


class Work(NamedTuple):
    """Settings with which one kind of networks learns, beside the common ones."""

    steps: int
    """Of each environment in an iteration."""
    epochs: int
    rate: float
    warm_up: int
    """Iterations before the clock starts."""
    iterations: int
    """That are measured."""


ENVS, MINIBATCH = 8, 256
WORK = {
    "perceptron": Work(32, 20, 1e-3, 5, 40),
    "lstm": Work(128, 10, 1e-3, 2, 8),
    "cnn": Work(64, 4, 2.5e-4, 1, 3),
}


class Pictures(gymnasium.Env[Picture, np.int64]):
    """Pictures drawn beforehand, one after the other; reward for a choice that changes in turn."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(6)
        shape = (16, 84, 84, 4)
        self._pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Picture, dict[str, Any]]:
        """The first picture."""
        super().reset(seed=seed, options=options)
        self._step = 0
        return self._pictures[0], {}

    def step(self, action: np.int64) -> tuple[Picture, float, bool, bool, dict[str, Any]]:
        """The next picture; an episode has 200."""
        reward = float(action == self._step % 6)
        self._step += 1
        return self._pictures[self._step % 16], reward, False, self._step >= 200, {}


def environment(kind: str) -> Any:
    """One environment."""
    return Pictures() if kind == "cnn" else gymnasium.make("CartPole-v1")
