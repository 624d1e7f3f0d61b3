"""Games whose learning curves were trained; `seed` decides under which of its seeds each was."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.game import Settings, Space, State

TABLE = Path(__file__).with_name("curves.npz")
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
