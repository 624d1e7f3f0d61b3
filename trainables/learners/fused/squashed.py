"""Gaussians squashed by tanh: draws from the outputs of an actor, and gradients of them.

Log-probabilities are those of the squashed numbers, in (-1, 1). B rows, K numbers, H hidden units.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.policies.acting.distributions import HALF_LOG_2PI
from trainables.policies.bounded.acting import LOG_STD, MEAN_CLIP
from trainables.policies.exploration.actions import LEAST_VARIANCE

Array = NDArray[Any]
#: Natural logarithm of 2.
LOG_2 = math.log(2.0)


def log_slope(x: Array) -> Array:
    """Return log(1 - tanh(x)²), in a form that stays exact where its argument is nearly 0."""
    return 2.0 * (LOG_2 - x - np.logaddexp(0.0, -2.0 * x))


class SquashedGaussians:
    """Gaussians squashed by tanh, from heads (B, 2K): means and log standard deviations."""

    def draw(
        self, layers: list[Array], width: int, stream: np.random.Generator
    ) -> tuple[Array, Array]:
        """Draw numbers (B, K) between -1 and 1; return them and their log-probabilities (B,).

        They are kept for `gradient`. `layers` are the outputs of the actor's layers, of which the
        last is the head; `width` is K.
        """
        means, log_std = layers[-1][:, :width], layers[-1][:, width:]
        noise = stream.standard_normal(means.shape, np.float32).astype(means.dtype, copy=False)
        self._inside = (log_std >= LOG_STD[0]) & (log_std <= LOG_STD[1])
        log_std = np.clip(log_std, *LOG_STD)
        self._deviations = np.exp(log_std) * noise
        x = means + self._deviations
        self.drawn = np.tanh(x)
        each = -0.5 * np.square(noise) - log_std - HALF_LOG_2PI - log_slope(x)
        return self.drawn, np.add.reduce(each, axis=1)

    def gradient(self, rows: int, by_drawn: Array, by_logp: float) -> tuple[Array]:
        """Return the gradient (rows, 2K) of a loss with respect to the heads of the first `rows`.

        `by_drawn` (rows, K) and `by_logp` are the loss's derivatives with respect to the drawn
        numbers and to each log-probability.
        """
        drawn, away, inside = self.drawn[:rows], self._deviations[:rows], self._inside[:rows]
        # d log(1 - tanh²(x)) / dx = -2 tanh(x)
        by_x = by_drawn * (1.0 - np.square(drawn)) + 2.0 * by_logp * drawn
        return (np.concatenate([by_x, (by_x * away - by_logp) * inside], axis=1),)


class StateDependentGaussians:
    """Gaussians of means (B, K), with noise that is a matrix (H, K) times hidden units (gSDE).

    The matrix's log standard deviations (H, K) are weights, with a `gradient` (H, K).
    """

    def __init__(self, log_std: Array, gradient: Array) -> None:
        self._log_std, self._gradient = log_std, gradient

    def draw(
        self, layers: list[Array], width: int, stream: np.random.Generator
    ) -> tuple[Array, Array]:
        """Draw numbers (B, K) between -1 and 1; return them and their log-probabilities (B,).

        All rows share one matrix of noise. The numbers are kept for `gradient`. The last two
        `layers`, outputs of the actor's layers, are hidden units and head; `width` is K.
        """
        units, head = layers[-2:]
        noise = stream.standard_normal((units.shape[1], width), np.float32)
        self._inside = np.abs(head) <= MEAN_CLIP
        self._std = np.exp(self._log_std)
        self._matrix, self._units = self._std * noise.astype(head.dtype, copy=False), units
        self._deviations = units @ self._matrix
        self._variance = np.square(units) @ np.square(self._std) + LEAST_VARIANCE
        x = np.clip(head, -MEAN_CLIP, MEAN_CLIP) + self._deviations
        self.drawn = np.tanh(x)
        each = -0.5 * (np.square(self._deviations) / self._variance + np.log(self._variance))
        return self.drawn, np.add.reduce(each - HALF_LOG_2PI - log_slope(x), axis=1)

    def gradient(self, rows: int, by_drawn: Array, by_logp: float) -> tuple[Array, Array]:
        """Return the gradients of a loss with respect to heads (rows, K) and units (rows, H).

        `by_drawn` (rows, K) and `by_logp` are the loss's derivatives with respect to the drawn
        numbers and to each log-probability. Writes the gradient of the log standard deviations to
        its array.
        """
        drawn, away, variance = self.drawn[:rows], self._deviations[:rows], self._variance[:rows]
        units, scaled = self._units[:rows], away / variance
        by_x = by_drawn * (1.0 - np.square(drawn)) + 2.0 * by_logp * drawn
        by_away = by_x - by_logp * scaled
        by_variance = 0.5 * by_logp * (np.square(scaled) - 1.0 / variance)
        squares = np.square(self._std)
        by_units = by_away @ self._matrix.T + 2.0 * units * (by_variance @ squares.T)
        np.multiply(units.T @ by_away, self._matrix, out=self._gradient)
        self._gradient += 2.0 * squares * (np.square(units).T @ by_variance)
        return by_x * self._inside[:rows], by_units
