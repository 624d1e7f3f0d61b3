"""Gaussians that are squashed by tanh: numbers drawn from a head, and the gradient by the head.

The log-probability is that of the squashed number, in (-1, 1). B rows, K numbers, H hidden units.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.policies.bounded.acting import LOG_STD, MEAN_CLIP
from trainables.policies.exploration.actions import LEAST_VARIANCE

Array = NDArray[Any]
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
LOG_2 = math.log(2.0)


def log_slope(x: Array) -> Array:
    """log(1 - tanh(x)²), also where that is nearly 0."""
    return 2.0 * (LOG_2 - x - np.logaddexp(0.0, -2.0 * x))


class SquashedGaussians:
    """A head (B, 2K) is means and log standard deviations."""

    def draw(
        self, layers: list[Array], width: int, stream: np.random.Generator
    ) -> tuple[Array, Array]:
        """(B, K) numbers, and their log-probabilities (B,); the head is the last of the layers."""
        means, log_std = layers[-1][:, :width], layers[-1][:, width:]
        noise = stream.standard_normal(means.shape, np.float32).astype(means.dtype, copy=False)
        self._inside = (log_std >= LOG_STD[0]) & (log_std <= LOG_STD[1])
        log_std = np.clip(log_std, *LOG_STD)
        self._away = np.exp(log_std) * noise
        x = means + self._away
        self.drawn = np.tanh(x)
        each = -0.5 * np.square(noise) - log_std - HALF_LOG_2PI - log_slope(x)
        return self.drawn, np.add.reduce(each, axis=1)

    def gradient(self, rows: int, by_drawn: Array, by_logp: float) -> tuple[Array]:
        """(rows, 2K) by the first rows' head, of a loss with these gradients."""
        drawn, away, inside = self.drawn[:rows], self._away[:rows], self._inside[:rows]
        # d log(1 - tanh²(x)) / dx = -2 tanh(x)
        by_x = by_drawn * (1.0 - np.square(drawn)) + 2.0 * by_logp * drawn
        return (np.concatenate([by_x, (by_x * away - by_logp) * inside], axis=1),)


class StateDependentGaussians:
    """Means (B, K), and noise that is a matrix (H, K) times the last hidden units (gSDE).

    `log_std` (H, K) are weights, whose gradient is written to `gradient`.
    """

    def __init__(self, log_std: Array, gradient: Array) -> None:
        self._log_std, self._gradient = log_std, gradient

    def draw(
        self, layers: list[Array], width: int, stream: np.random.Generator
    ) -> tuple[Array, Array]:
        """(B, K) numbers by one matrix, and their log-probabilities (B,)."""
        units, head = layers[-2:]
        noise = stream.standard_normal((units.shape[1], width), np.float32)
        self._inside = np.abs(head) <= MEAN_CLIP
        self._std = np.exp(self._log_std)
        self._matrix, self._units = self._std * noise.astype(head.dtype, copy=False), units
        self._away = units @ self._matrix
        self._variance = np.square(units) @ np.square(self._std) + LEAST_VARIANCE
        x = np.clip(head, -MEAN_CLIP, MEAN_CLIP) + self._away
        self.drawn = np.tanh(x)
        each = -0.5 * (np.square(self._away) / self._variance + np.log(self._variance))
        return self.drawn, np.add.reduce(each - HALF_LOG_2PI - log_slope(x), axis=1)

    def gradient(self, rows: int, by_drawn: Array, by_logp: float) -> tuple[Array, Array]:
        """(rows, K) by the first rows' head and (rows, H) by their units, of a loss with these."""
        drawn, away, variance = self.drawn[:rows], self._away[:rows], self._variance[:rows]
        units, scaled = self._units[:rows], away / variance
        by_x = by_drawn * (1.0 - np.square(drawn)) + 2.0 * by_logp * drawn
        by_away = by_x - by_logp * scaled
        by_variance = 0.5 * by_logp * (np.square(scaled) - 1.0 / variance)
        squares = np.square(self._std)
        by_units = by_away @ self._matrix.T + 2.0 * units * (by_variance @ squares.T)
        np.multiply(units.T @ by_away, self._matrix, out=self._gradient)
        self._gradient += 2.0 * squares * (np.square(units).T @ by_variance)
        return by_x * self._inside[:rows], by_units
