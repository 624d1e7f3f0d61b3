"""Games whose learning curves are formulas; `seed` decides their noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.search.game import ITERATIONS, Settings, Space, State


@dataclass(frozen=True)
class Synthetic:
    """A test function as the end of learning curves: they fall towards it at different speeds.

    value(t) = -f(x) - (5 + 5 u(x)) t^-(0.5 + u(x)), with noise of 0.02; u(x) in [0, 1) is a hash of
    the settings, so early values mislead now and then.
    """

    f: Callable[[np.ndarray], float]
    space: Space
    target: float
    best: float
    seed: int
    steps: int = 1

    def play(self, settings: Settings, iteration: int, state: State) -> tuple[float, State]:
        """See `Game`."""
        u = self._hash(settings)
        rest = (5 + 5 * u) * iteration ** -(0.5 + u)
        noise = np.random.default_rng([self.seed, int(u * 2**31), iteration]).normal(0, 0.02)
        return self.worth(settings) - rest + float(noise), {}

    def worth(self, settings: Settings) -> float:
        """See `Game`."""
        return -self.f(np.array([float(settings[name]) for name in self.space]))

    def draw(self, count: int) -> list[dict[str, Any]]:
        """See `Game`."""
        return _uniform(self.space, self.seed, count)

    def _hash(self, settings: Settings) -> float:
        x = sum((i + 1) * 12.9898 * float(settings[name]) for i, name in enumerate(self.space))
        return (math.sin(x) * 43758.5453) % 1.0


def _uniform(space: Space, seed: int, count: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng([seed, 1])
    return [
        {name: float(generator.uniform(*words)) for name, (_kind, words) in space.items()}
        for _ in range(count)
    ]


def branin(x: np.ndarray) -> float:
    """Branin, 1972; least 0.397887."""
    a, b = (
        x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6,
        10 - 10 / (8 * math.pi),
    )
    return float(a**2 + b * math.cos(x[0]) + 10)


_HARTMANN_A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x: np.ndarray) -> float:
    """Hartmann in six dimensions, 1973; least -3.32237."""
    inner = (_HARTMANN_A * (x - _HARTMANN_P) ** 2).sum(1)
    return float(-(np.array([1.0, 1.2, 3.0, 3.2]) * np.exp(-inner)).sum())


@dataclass(frozen=True)
class Quadratic:
    """The toy problem of population-based training: no fixed setting is good to the end.

    Jaderberg et al., Population Based Training of Neural Networks, 2017, section 4.4: θ climbs a
    surrogate with weights h that are the settings; its true value is 1.2 - θ². With one weight zero
    that coordinate stands still.
    """

    seed: int
    space: Space = field(default_factory=lambda: {h: ("uniform", [0.0, 1.0]) for h in ("h0", "h1")})
    target: float = 0.9
    best: float = 1.2
    steps: int = 1

    def play(self, settings: Settings, iteration: int, state: State) -> tuple[float, State]:
        """See `Game`."""
        theta = [state.get(name, 0.9) for name in ("theta0", "theta1")]
        moved = [
            t - 0.02 * 2 * float(settings[h]) * t for t, h in zip(theta, self.space, strict=True)
        ]
        value = 1.2 - moved[0] ** 2 - moved[1] ** 2
        return value, {"theta0": moved[0], "theta1": moved[1]}

    def worth(self, settings: Settings) -> float:
        """See `Game`."""
        value, state = 0.0, dict[str, float]()
        for iteration in range(1, ITERATIONS + 1):
            value, found = self.play(settings, iteration, state)
            state = dict(found)
        return value

    def draw(self, count: int) -> list[dict[str, Any]]:
        """See `Game`."""
        return _uniform(self.space, self.seed, count)
