"""Expected ranks of settings on a new game, from known games.

Kernel ridge regression of the ranks that settings had in each game. Settings far from all tried
ones are expected to be average, so nothing is claimed about them.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sweep.searchers._shared.prior.games import Array, Game

#: Length scale of the kernel, in coordinates.
LENGTH = 0.5
#: Variance of a rank between seeds, relative to the kernel's height.
NOISE = 3.0


class Column(Protocol):
    """A setting as a coordinate."""

    @property
    def key(self) -> str:
        """Name of the setting."""
        ...

    def coordinate(self, value: Any) -> float:
        """Return the coordinate of a value, from 0 to 1; NaN if it cannot be read."""
        ...


class Model:
    """The expected rank of settings, from the columns that a sweep shares with the games."""

    def __init__(
        self, columns: Sequence[Column], games: Sequence[Game], has: Sequence[str]
    ) -> None:
        """Select the columns that the sweep shares with the games.

        Args:
            columns: columns of the games.
            games: tables to learn from.
            has: dotted names of all settings that the sweep searches or fixes.
        """
        shared = [place for place, column in enumerate(columns) if column.key in has]
        self.columns = [columns[place] for place in shared]
        self.games = games
        points = [game.points[:, shared] for game in games]
        self._middle: Array = np.nanmean(np.concatenate(points), axis=0)
        self._points = [np.where(np.isnan(one), self._middle, one) for one in points]

    @cached_property
    def _weights(self) -> Array:
        """Weights of the kernel regression, (points,)."""
        points = np.concatenate(self._points)
        places = np.concatenate([game.places for game in self.games])
        kernel = _kernel(points, points)
        kernel[np.diag_indices_from(kernel)] += NOISE
        weights: Array = np.linalg.solve(kernel, places)
        return weights

    def expected(self, settings: Sequence[Mapping[str, Any]]) -> Array:
        """Return the expected rank of each of some settings, from -0.5 (worst) to 0.5 (best)."""
        return self.expected_at(self._read(settings))

    def expected_at(self, points: Array) -> Array:
        """Return the expected rank at each of some points (points, columns)."""
        found: Array = _kernel(points, np.concatenate(self._points)) @ self._weights
        return found

    def place_in_games(self, settings: Mapping[str, Any]) -> list[float]:
        """Return, for each game, the share of its settings beaten by those most like `settings`."""
        at = self._read([settings])
        found = []
        for game, points in zip(self.games, self._points, strict=True):
            near = _kernel(at, points)[0]
            total = float(near.sum())
            mean = float(near @ game.places) / total if total > 1e-9 else 0.0
            found.append(0.5 + mean)
        return found

    def _read(self, settings: Sequence[Mapping[str, Any]]) -> Array:
        """Return coordinates (settings, columns); inactive parameters are average."""
        rows = [
            [column.coordinate(one.get(column.key, math.nan)) for column in self.columns]
            for one in settings
        ]
        points = np.array(rows, dtype=float).reshape(len(rows), len(self.columns))
        return np.where(np.isnan(points), self._middle, points)


def _kernel(one: Array, other: Array) -> Array:
    """Return the Gaussian kernel between two sets of points."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None, :] - 2.0 * one @ other.T
    kernel: Array = np.exp(np.maximum(squares, 0.0) / (-2.0 * LENGTH**2))
    return kernel
