"""Preprocessors of a person's own, and ones that break their contract."""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Positions:
    """The one of docs/own-networks.md: every second number, so CartPole without velocities."""

    def __init__(self, space: spaces.Box) -> None:
        self.observation_space = spaces.Box(space.low[::2], space.high[::2])

    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation[::2]


class Numbers:
    """Of a Dict with words in it, which no policy reads, its numbers alone."""

    def __init__(self, space: spaces.Dict) -> None:
        self.observation_space = space["numbers"]

    def __call__(self, observation: dict[str, Any]) -> Any:
        return observation["numbers"]


class Picture:
    """A vector as an image."""

    def __init__(self, space: spaces.Box) -> None:
        self.observation_space = spaces.Box(0, 255, (2, 2, 1), np.uint8)

    def __call__(self, observation: NDArray[Any]) -> Any:
        return np.clip(observation * 10 + 100, 0, 255).reshape(2, 2, 1).astype(np.uint8)


def positions(space: spaces.Box) -> Positions:
    return Positions(space)


class Longer(Positions):
    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation


class Infinite(Positions):
    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation[::2] * np.float32(np.nan)


class Unsaid:
    def __init__(self, space: spaces.Box) -> None:
        pass


class Discrete(Positions):
    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.observation_space = spaces.Discrete(2)  # type: ignore[assignment]


class Shrinking(Positions):
    """Forgets a number from its fifth call on; the first one is a trial."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.calls = 0

    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        self.calls += 1
        return observation[::2] if self.calls < 5 else observation[:1]


class Chance(Positions):
    """Draws from no stream that anybody knows."""

    def __call__(self, observation: NDArray[Any]) -> NDArray[Any]:
        return observation[::2] + np.float32(np.random.default_rng().random())
