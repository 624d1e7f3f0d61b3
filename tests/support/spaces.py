"""An environment of any spaces, drawn from its own stream; it keeps and checks what it is sent."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation

Outcome = tuple[Any, float, bool, bool, dict[str, Any]]


def observations() -> dict[str, spaces.Space[Any]]:
    """A space of each kind by name; made anew, for spaces keep streams."""
    return {
        "box": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
        "wide box": spaces.Box(-1.0, 1.0, (3,), np.float64),
        "bytes": spaces.Box(0, 255, (6,), np.uint8),
        "number": spaces.Box(-1.0, 1.0, (), np.float32),
        "discrete": spaces.Discrete(4, start=2),
        "multi discrete": spaces.MultiDiscrete([2, 3, 4], start=[5, 0, -1]),
        "multi binary": spaces.MultiBinary(np.array([2, 2])),
        "tuple": spaces.Tuple(
            (spaces.Discrete(3, start=-1), spaces.Box(-1.0, 1.0, (2,), np.float32))
        ),
        "dict": spaces.Dict(
            {
                "place": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3))),
                "picture": spaces.Box(0, 255, (2, 2, 3), np.uint8),
                "areas": spaces.MultiDiscrete(np.array([[2, 3], [4, 2]])),
                "speed": spaces.Box(-1.0, 1.0, (1,), np.float64),
            }
        ),
        "image": spaces.Box(0, 255, (12, 10, 3), np.uint8),
        "large image": spaces.Box(0, 255, (40, 40, 1), np.uint8),
    }


def actions() -> dict[str, spaces.Space[Any]]:
    """A space of each kind by name."""
    return {
        "discrete": spaces.Discrete(4, start=2),
        "multi discrete": spaces.MultiDiscrete([2, 5, 3], start=[1, 0, -2]),
        "multi discrete of two axes": spaces.MultiDiscrete(np.array([[2, 3], [3, 2]])),
        "multi binary": spaces.MultiBinary(4),
        "box": spaces.Box(-0.1, 0.1, (2, 2), np.float32),
        "wide box": spaces.Box(-0.1, 0.1, (2,), np.float64),
        "tuple": spaces.Tuple(
            (spaces.Discrete(3, start=5), spaces.Box(-0.1, 0.1, (2,), np.float32))
        ),
        "tuple of choices": spaces.Tuple((spaces.Discrete(3, start=5), spaces.MultiBinary(2))),
        "dict": spaces.Dict(
            {
                "steer": spaces.Box(-0.1, 0.1, (1, 2), np.float64),
                "inner": spaces.Tuple((spaces.MultiDiscrete([2, 6]), spaces.MultiBinary(2))),
                "gear": spaces.Discrete(3, start=1),
            }
        ),
    }


class AnySpaces(gymnasium.Env[Any, Any]):
    """Observes samples of its space, and ends after `length` steps.

    Args:
        observation: name of its observation space.
        action: name of its action space.
        length: of an episode.
    """

    def __init__(self, observation: str = "box", action: str = "discrete", length: int = 7) -> None:
        self.observation_space = observations()[observation]
        self.action_space = actions()[action]
        self.length = length
        self.steps = 0
        self.sent: list[Any] = []
        self.seen: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Outcome:
        box = isinstance(self.action_space, spaces.Box)
        if not self.action_space.contains(action) or (
            box and action.dtype != self.action_space.dtype
        ):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.sent.append(action)
        self.steps += 1
        return self._observe(), 1.0, self.steps >= self.length, False, {}

    def _observe(self) -> Any:
        observation = self.observation_space.sample()
        self.seen.append(observation)
        return observation


class HalfOpen(AnySpaces):
    """Takes numbers of 64 bits, of which one has no bounds and one has a lower one."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(np.array([-np.inf, -0.1]), np.inf, dtype=np.float64)


class Told(gymnasium.Env[Any, Any]):
    """Two numbers and a mission in words; an episode has five steps."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"mission": spaces.Text(8), "numbers": spaces.Box(-1.0, 1.0, (2,), np.float32)}
        )
        self.action_space = spaces.Discrete(2)
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Outcome:
        self.steps += 1
        return self._seen(), 1.0, self.steps == 5, False, {}

    def _seen(self) -> dict[str, Any]:
        return {"mission": "go", "numbers": np.full(2, 0.1 * self.steps, np.float32)}


def without_words() -> gymnasium.Env[Any, Any]:
    """What a person writes so that a policy can live in `Told`."""
    return FilterObservation(Told(), ["numbers"])


class Reuses(AnySpaces):
    """Gives the same dict with the same array again, with other numbers in them."""

    def __init__(self) -> None:
        super().__init__(length=3)
        self.observation_space = spaces.Dict(
            {"place": spaces.Discrete(9), "speed": spaces.Box(0.0, 9.0, (2,), np.float32)}
        )
        self._given: dict[str, Any] = {"speed": np.zeros(2, np.float32)}

    def _observe(self) -> Any:
        self._given["place"] = self.steps
        self._given["speed"][:] = self.steps
        return self._given
