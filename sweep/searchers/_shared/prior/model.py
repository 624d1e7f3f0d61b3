"""Expected success of settings on a new game, from known games.

The model is additive: the probability that settings are among the best quarter of a game's is the
mean plus one function of each setting. Each function is linear between `KNOTS` coordinates, and
large values and steep slopes are penalised (a smoothing spline of order 1). So a range of one
setting in which good settings are frequent is found from a few games, while interactions, which
differ from game to game, are not learnt.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from sweep.searchers._shared.prior.games import Array, Game

#: Share of a game's settings, the best ones, that count as successes.
BEST = 1 / 4
#: Number of coordinates between which the function of a setting is linear.
KNOTS = 7
#: Penalty of squared values and of squared slopes, in settings.
SHRINKAGE, SMOOTHNESS = 3.0, 3.0
#: Length scale, in coordinates, within which settings are similar.
LENGTH = 0.5
#: Distance from the games' range, in coordinates, up to which a value counts as inside.
ROUNDING = 1e-6


class Column(Protocol):
    """Protocol of a setting as a coordinate."""

    @property
    def key(self) -> str:
        """Name of the setting."""
        ...

    def coordinate(self, value: Any) -> float:
        """Return the coordinate of a value, 0 to 1 in the games' range; NaN if unreadable."""
        ...


class Model:
    """Expected success of settings on a new game, fitted to some games.

    It has the settings (columns) that a sweep shares with the games.
    """

    def __init__(
        self, columns: Sequence[Column], games: Sequence[Game], has: Sequence[str]
    ) -> None:
        """Select the columns that the sweep shares with the games.

        Columns whose coordinate is unknown in every game are left out.

        Args:
            has: dotted names of all settings that the sweep searches or fixes.
        """
        known = ~np.isnan(np.concatenate([game.points for game in games])).all(axis=0)
        shared = [place for place, one in enumerate(columns) if one.key in has and known[place]]
        self.columns = [columns[place] for place in shared]
        self.games = games
        points = [game.points[:, shared] for game in games]
        self._middle: Array = np.nanmean(np.concatenate(points), axis=0)
        self._points = [np.where(np.isnan(one), self._middle, one) for one in points]

    @cached_property
    def _weights(self) -> Array:
        """Value of each setting's function at its knots, (columns · KNOTS,); fitted once."""
        basis = _basis(np.concatenate(self._points))
        successes = np.concatenate([game.places for game in self.games]) > 0.5 - BEST
        slopes = np.diff(np.eye(KNOTS), axis=0) * math.sqrt(KNOTS - 1)
        one = SHRINKAGE * np.eye(KNOTS) + SMOOTHNESS * slopes.T @ slopes
        penalty = np.kron(np.eye(len(self.columns)), one)
        weights: Array = np.linalg.solve(basis.T @ basis + penalty, basis.T @ (successes - BEST))
        return weights

    def expected(self, settings: Sequence[Mapping[str, Any]]) -> Array:
        """Return by how much each of some settings is likelier than random ones to succeed, (n,).

        Settings map a column's key to a value; one that is missing or cannot be read counts as the
        mean of the games. Success is to be among the best `BEST` of a game; the result is a
        difference of probabilities.
        """
        return self.expected_at(self._read(settings))

    def expected_at(self, points: Array) -> Array:
        """Return the same as `expected` for points given by coordinates, (points, columns).

        Outside the games' range a setting counts as at its end, but at most as random settings do:
        that larger learning rates are better up to the end says nothing about still larger ones.
        """
        by_knot = _basis(points) * self._weights
        effects = by_knot.reshape(len(points), len(self.columns), KNOTS).sum(axis=2)
        is_outside = (points < -ROUNDING) | (points > 1 + ROUNDING)
        found: Array = np.where(is_outside, np.minimum(effects, 0.0), effects).sum(axis=1)
        return found

    def place_in_games(self, settings: Mapping[str, Any]) -> list[float]:
        """Return, for each game, the share of its settings beaten by settings like these.

        Shares are 0 to 1; 0.5 if no setting of the game is similar.
        """
        at = self._read([settings])
        places = []
        for game, points in zip(self.games, self._points, strict=True):
            near = _kernel(at, points)[0]
            total = float(near.sum())
            mean = float(near @ game.places) / total if total > 1e-9 else 0.0
            places.append(0.5 + mean)
        return places

    def _read(self, settings: Sequence[Mapping[str, Any]]) -> Array:
        """Return the coordinates of some settings, (settings, columns).

        Missing ones, and those that cannot be read, get the mean of the games.
        """
        rows = [
            [column.coordinate(one.get(column.key, math.nan)) for column in self.columns]
            for one in settings
        ]
        points = np.array(rows, dtype=float).reshape(len(rows), len(self.columns))
        return np.where(np.isnan(points), self._middle, points)


def _basis(points: Array) -> Array:
    """Return the weight of each knot at each point, (points, columns · KNOTS).

    A coordinate between two knots has two weights, whose sum is 1.
    """
    rows, columns = points.shape
    at = np.clip(points, 0.0, 1.0) * (KNOTS - 1)
    left = np.minimum(at.astype(int), KNOTS - 2)
    found = np.zeros((rows, columns, KNOTS))
    row, column = np.ogrid[:rows, :columns]
    found[row, column, left] = 1.0 - (at - left)
    found[row, column, left + 1] = at - left
    return found.reshape(rows, columns * KNOTS)


def _kernel(points: Array, other: Array) -> Array:
    """Return the similarity (m, n), 0 to 1, of `points` (m, d) to points `other` (n, d).

    It is a Gaussian kernel of their distance.
    """
    squares = (points**2).sum(1)[:, None] + (other**2).sum(1)[None, :] - 2.0 * points @ other.T
    kernel: Array = np.exp(np.maximum(squares, 0.0) / (-2.0 * LENGTH**2))
    return kernel
