"""What is searched in the benchmarks: learning curves that cost nothing to play.

A game says what each setting would report after each iteration. It needs numpy alone, so that every
peer plays the same one in an environment of its own. More is better in all of them; a search may
spend `trials` settings of at most `ITERATIONS` iterations.

    game = load("CartPole-v1", seed)
    value, state = game.play(settings, iteration, state)

`seed` decides the noise: under which of its seeds a tabulated curve was trained. `state` is what a
checkpoint holds; settings that go on from the state of other ones are how populations are bred.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

TABLE = Path(__file__).with_name("curves.npz")
ITERATIONS = 27
Settings = Mapping[str, Any]
State = Mapping[str, float]
#: Name → (kind, arguments), the words of a spec's space.
Space = Mapping[str, tuple[str, Sequence[Any]]]
#: What the tabulated curves were drawn from.
SPACE: Space = {
    "lr": ("loguniform", [1e-5, 3e-2]),
    "gamma": ("choice", [0.9, 0.95, 0.98, 0.99, 0.999]),
    "lambda_": ("uniform", [0.7, 1.0]),
    "clip_param": ("uniform", [0.05, 0.5]),
    "entropy_coeff": ("loguniform", [1e-5, 3e-2]),
    "num_sgd_iter": ("randint", [1, 8]),
    "sgd_minibatch_size": ("choice", [128, 256, 512]),
    "model.hidden": ("choice", [[32, 32], [64, 64], [128, 128]]),
    "model.activation": ("choice", ["tanh", "relu"]),
}


class Game(Protocol):
    """One thing to search."""

    space: Space
    target: float
    """A value that few settings reach."""
    steps: int
    """Environment steps, or one, per iteration."""

    def play(self, settings: Settings, iteration: int, state: State) -> tuple[float, State]:
        """The value after `iteration`, and the state there; `state` is the one before it."""
        ...

    def worth(self, settings: Settings) -> float:
        """The value that these settings end with, without noise."""
        ...

    @property
    def best(self) -> float:
        """The greatest worth there is."""
        ...

    def draw(self, count: int) -> list[dict[str, Any]]:
        """Settings at random, the same for every search under this seed."""
        ...


# ---- synthetic functions ------------------------------------------------------------------------


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


# ---- tabulated curves ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Tabulated:
    """Curves that were trained; settings in between count as the nearest ones in the table.

    A setting that goes on from the state of another one goes on where its own curve first came as
    high.
    """

    env: str
    seed: int
    space: Space = field(default_factory=lambda: SPACE)

    @cached_property
    def _table(self) -> Mapping[str, np.ndarray]:
        with np.load(TABLE) as file:
            return {name: file[name] for name in file.files}

    @cached_property
    def _settings(self) -> list[dict[str, Any]]:
        return [json.loads(str(text)) for text in self._table["settings"]]

    @cached_property
    def _values(self) -> np.ndarray:
        """(settings, seeds, iterations); before the first episode has ended: the least value."""
        values = self._table[f"{self.env}/value"].astype(float)
        return np.where(np.isnan(values), np.nanmin(values), values)

    @cached_property
    def _worths(self) -> np.ndarray:
        worths: np.ndarray = self._values[:, :, -3:].mean((1, 2))
        return worths

    @property
    def best(self) -> float:
        """See `Game`."""
        return float(self._worths.max())

    @property
    def target(self) -> float:
        """Nine tenths of the way from a usual setting's worth to the best one's."""
        return float(np.median(self._worths) + 0.9 * (self.best - np.median(self._worths)))

    @property
    def steps(self) -> int:
        """See `Game`."""
        return int(self._table[f"{self.env}/steps"])

    @cached_property
    def _points(self) -> np.ndarray:
        return np.array([self._place(settings) for settings in self._settings])

    @property
    def shape(self) -> tuple[int, ...]:
        """Settings, seeds and iterations in the table."""
        return self._values.shape

    def nearest(self, settings: Settings) -> int:
        """The row of the table that counts for these settings."""
        distances = ((self._points - np.array(self._place(settings))) ** 2).sum(1)
        return int(distances.argmin())

    def _place(self, settings: Settings) -> list[float]:
        place: list[float] = []
        for name, (kind, words) in self.space.items():
            value = settings[name]
            if kind == "choice":
                place += [0.7 * float(value == word) for word in words]
            elif kind == "loguniform":
                place.append(math.log(value / words[0]) / math.log(words[1] / words[0]))
            else:
                place.append((value - words[0]) / (words[1] - words[0]))
        return place

    def play(self, settings: Settings, iteration: int, state: State) -> tuple[float, State]:
        """See `Game`."""
        row = self.nearest(settings)
        curve = self._values[row, self.seed % self._values.shape[1]]
        at = int(state.get("at", 0))
        if state and int(state["row"]) != row:
            reached = np.maximum.accumulate(curve) >= state["value"]
            at = int(reached.argmax()) + 1 if reached.any() else len(curve) - 1
        at = min(at, len(curve) - 1)
        value = float(curve[at])
        return value, {"row": float(row), "at": float(at + 1), "value": value}

    def worth(self, settings: Settings) -> float:
        """See `Game`."""
        return float(self._worths[self.nearest(settings)])

    def draw(self, count: int) -> list[dict[str, Any]]:
        """Settings of the table, each once, in an order of this seed's own."""
        order = np.random.default_rng([self.seed, 1]).permutation(len(self._settings))
        return [self._settings[i] for i in order[:count]]


def load(name: str, seed: int) -> Game:
    """The game of this name."""
    if name == "branin":
        space: Space = {"x0": ("uniform", (-5.0, 10.0)), "x1": ("uniform", (0.0, 15.0))}
        return Synthetic(branin, space, -1.5, -0.397887, seed)
    if name == "hartmann":
        space = {f"x{i}": ("uniform", (0.0, 1.0)) for i in range(6)}
        return Synthetic(hartmann, space, 0.6, 3.32237, seed)
    return Quadratic(seed) if name == "quadratic" else Tabulated(name, seed)


NAMES = ("branin", "hartmann", "CartPole-v1", "Acrobot-v1")
BRED = ("quadratic", "CartPole-v1", "Acrobot-v1")
