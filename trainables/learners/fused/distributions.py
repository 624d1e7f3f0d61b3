"""Log-probabilities and entropies of actions that were taken, and their gradients by the heads.

As `policies.networks.ActorCritic` computes them in torch. K columns of choices, M choices of a
column at most, G columns of real numbers, B rows. A head is (A, B): the logits of all choices, then
the means.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.distributions import NO_CHOICE, choice_grid

Array = NDArray[Any]
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class Choices:
    """Independent columns of choices."""

    def __init__(self, layout: ActionLayout) -> None:
        _, absent = choice_grid(layout)
        self.shape = absent.shape
        """(K, M)."""
        self._present = ~absent if absent.any() else None
        self._columns = list(layout.choice_columns)
        self._scalar = layout.scalar

    @property
    def rows(self) -> int:
        """Rows that `taken` gives."""
        return math.prod(self.shape)

    def taken(self, actions: Array) -> Array:
        """(K·M, B) ones where a choice was taken, of actions (B,) or (B, columns)."""
        chosen = actions[:, None] if self._scalar else actions[:, self._columns]
        choices = np.arange(self.shape[1])
        ones: Array = chosen.T.astype(np.int64)[:, None, :] == choices[:, None]
        return ones.reshape(self.rows, -1)

    def evaluate(self, head: Array, taken: Array) -> tuple[Array, Array]:
        """(B,) log-probabilities of what was taken, and (B,) entropies."""
        logits = head
        if self._present is not None:
            logits = np.full((*self.shape, head.shape[1]), NO_CHOICE, dtype=head.dtype)
            logits[self._present] = head
        shifted = logits.reshape(*self.shape, -1)
        shifted = shifted - np.maximum.reduce(shifted, axis=1, keepdims=True)
        powers = np.exp(shifted)
        sums = np.add.reduce(powers, axis=1, keepdims=True)
        powers /= sums
        shifted -= np.log(sums, out=sums)
        self._taken = taken.reshape(shifted.shape)
        self._logs, self._probabilities = shifted, powers
        self._entropies = -np.add.reduce(powers * shifted, axis=1, keepdims=True)
        logp = np.add.reduce(self._taken * shifted, axis=(0, 1))
        return logp, np.add.reduce(self._entropies, axis=(0, 1))

    def gradient(self, by_logp: Array, by_entropy: float, out: Array) -> None:
        """Write the loss's gradient by the logits to `out`, after `evaluate`.

        `by_logp` (B,) is its gradient by each log-probability, `by_entropy` by each row's entropy.
        """
        error = (self._taken - self._probabilities) * by_logp
        if by_entropy:
            # dH/dz = -p (log p + H)
            self._logs += self._entropies
            self._logs *= self._probabilities
            self._logs *= -by_entropy
            error += self._logs
        out[:] = error[self._present] if self._present is not None else error.reshape(out.shape)


class Reals:
    """Independent Gaussian columns, whose deviations do not depend on the observation.

    Their logarithms `log_std` (G,) are weights, whose gradient (G,) is written to `gradient`.
    """

    def __init__(self, layout: ActionLayout, log_std: Array, gradient: Array) -> None:
        self.rows = len(layout.real_columns)
        self._columns = list(layout.real_columns)
        self._log_std, self._gradient = log_std, gradient

    def taken(self, actions: Array) -> Array:
        """(G, B) of actions (B, columns)."""
        numbers: Array = actions[:, self._columns].T
        return numbers

    def evaluate(self, means: Array, taken: Array) -> tuple[Array, float]:
        """(B,) log-probabilities of what was taken, and the entropy of every row."""
        self._inverse = np.exp(-self._log_std)[:, None]
        self._scaled = (taken - means) * self._inverse
        self._squares = np.square(self._scaled)
        terms = -0.5 * self._squares - self._log_std[:, None] - HALF_LOG_2PI
        return np.add.reduce(terms, axis=0), float((self._log_std + (0.5 + HALF_LOG_2PI)).sum())

    def gradient(self, by_logp: Array, by_entropy: float, out: Array) -> None:
        """Write the loss's gradients by the means, and by the deviations; see `Choices`."""
        np.multiply(self._scaled * self._inverse, by_logp, out=out)
        np.matmul(self._squares - 1.0, by_logp, out=self._gradient)
        self._gradient += by_entropy * len(by_logp)
