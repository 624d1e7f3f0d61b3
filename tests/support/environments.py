"""Small environments that misbehave, or whose every number is known."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Observation = NDArray[np.float32]
Outcome = tuple[Observation, float, bool, bool, dict[str, Any]]


class Counting(gymnasium.Env[Observation, Any]):
    """Observes how many steps the episode has; ends (or is cut off) after `length` of them.

    The reward is 1 a step. `sent` keeps every action that arrived.
    """

    def __init__(self, length: int = 5, truncates: bool = True, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space: spaces.Space[Any] = (
            spaces.Box(-0.1, 0.1, (2,), np.float32) if continuous else spaces.Discrete(3, start=1)
        )
        self.length = length
        self.truncates = truncates
        self.steps = 0
        self.sent: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Outcome:
        self.sent.append(np.array(action))
        self.steps += 1
        over = self.steps >= self.length
        return self._observe(), 1.0, over and not self.truncates, over and self.truncates, {}

    def _observe(self) -> Observation:
        return np.array([self.steps], dtype=np.float32)


class Broken(Counting):
    """Gives `what` at the third step: a bad observation, a bad reward, or an exception."""

    def __init__(self, what: str) -> None:
        super().__init__(length=10)
        self.what = what

    def step(self, action: Any) -> Outcome:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps == 3:
            if self.what == "raise":
                raise ZeroDivisionError("the world ended")
            if self.what == "reward":
                reward = float("nan")
            if self.what == "observation":
                observation = np.array([np.inf], dtype=np.float32)
            if self.what == "shape":
                observation = np.zeros(4, dtype=np.float32)
        return observation, reward, terminated, truncated, info


class Hidden(Counting):
    """Its observations come out of a generator object, which is no plain data."""

    def __init__(self) -> None:
        super().__init__(length=7)
        self._numbers: Iterator[int] = iter(())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        start = int(self.np_random.integers(1000))
        self._numbers = (start + i * i for i in range(100))
        return self._observe(), {}

    def _observe(self) -> Observation:
        return np.array([next(self._numbers, 0)], dtype=np.float32)


class GlobalChance(Counting):
    """Draws from numpy's global stream, as environments written by others do."""

    def _observe(self) -> Observation:
        return np.array([np.random.random()], dtype=np.float32)  # noqa: NPY002 the point of it


class Walled(Counting):
    """Needs two-dimensional observations to be flattened."""

    def __init__(self) -> None:
        super().__init__(length=6, continuous=True)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)

    def _observe(self) -> Observation:
        return np.arange(6, dtype=np.float32).reshape(2, 3) + self.steps


class Worded(Counting):
    """Observes words: no space that a policy can live in."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Text(5)  # type: ignore[assignment]  # the point of it


def not_an_environment() -> int:
    """What it makes is no environment."""
    return 3
