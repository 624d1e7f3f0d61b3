"""Log-probabilities and entropies of actions taken, and their gradients with respect to the heads.

They are those of `ActorCritic` (`policies.learning.networks`) in torch. K columns of choices, M the
largest number of choices of a column, G columns of real numbers, B rows. A head is (A, B): the
logits of all choices, then the means.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout
from trainables.policies.acting.distributions import HALF_LOG_2PI, NO_CHOICE, choice_grid

Array = NDArray[Any]


class Choices:
    """The distribution of K independent columns of choices, each of at most M."""

    def __init__(self, layout: ActionLayout) -> None:
        _, absent = choice_grid(layout)
        self.shape = absent.shape
        """Shape (K, M) of the grid of choices."""
        self._present = ~absent if absent.any() else None
        self._columns = list(layout.choice_columns)
        self._scalar = layout.scalar

    @property
    def rows(self) -> int:
        """Number of rows of the arrays that `columns_of` returns."""
        return math.prod(self.shape)

    def columns_of(self, actions: Array) -> Array:
        """Return actions (B,) or (B, columns) as flags (K·M, B), True for a choice taken."""
        chosen = actions[:, None] if self._scalar else actions[:, self._columns]
        choices = np.arange(self.shape[1])
        ones: Array = chosen.T.astype(np.int64)[:, None, :] == choices[:, None]
        return ones.reshape(self.rows, -1)

    def evaluate(self, head: Array, choices: Array) -> tuple[Array, Array]:
        """Return log-probabilities (B,) of the choices taken, and entropies (B,).

        Intermediate results are kept for one call of `gradient`.

        Args:
            head: logits (A, B).
            choices: result of `columns_of`, (K·M, B).
        """
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
        self._taken = choices.reshape(shifted.shape)
        self._logs, self._probabilities = shifted, powers
        self._entropies = -np.add.reduce(powers * shifted, axis=1, keepdims=True)
        logp = np.add.reduce(self._taken * shifted, axis=(0, 1))
        return logp, np.add.reduce(self._entropies, axis=(0, 1))

    def gradient(self, by_logp: Array, by_entropy: float, out: Array) -> None:
        """Write the gradient of a loss with respect to the logits of `evaluate` to `out` (A, B).

        To be called at most once after each `evaluate`, whose results it overwrites. `by_logp` (B,)
        are the loss's derivatives with respect to each log-probability, `by_entropy` that with
        respect to each row's entropy.
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
    """The distribution of G independent Gaussian columns with the same deviations in all rows.

    The log standard deviations (G,) are weights, with a `gradient` (G,).
    """

    def __init__(self, layout: ActionLayout, log_std: Array, gradient: Array) -> None:
        self.rows = len(layout.real_columns)
        self._columns = list(layout.real_columns)
        self._log_std, self._gradient = log_std, gradient

    def columns_of(self, actions: Array) -> Array:
        """Return the columns of real numbers, (G, B), of actions (B, columns)."""
        numbers: Array = actions[:, self._columns].T
        return numbers

    def evaluate(self, means: Array, actions: Array) -> tuple[Array, float]:
        """Return log-probabilities (B,) of the numbers taken, and the entropy, equal for all rows.

        Intermediate results are kept for `gradient`.

        Args:
            means: means (G, B).
            actions: result of `columns_of`, (G, B).
        """
        self._inverse = np.exp(-self._log_std)[:, None]
        self._scaled = (actions - means) * self._inverse
        self._squares = np.square(self._scaled)
        terms = -0.5 * self._squares - self._log_std[:, None] - HALF_LOG_2PI
        return np.add.reduce(terms, axis=0), float((self._log_std + (0.5 + HALF_LOG_2PI)).sum())

    def gradient(self, by_logp: Array, by_entropy: float, out: Array) -> None:
        """Write the gradient of a loss with respect to the means to `out` (G, B).

        That with respect to the log standard deviations is written to their gradient. `by_logp`
        (B,) are the loss's derivatives with respect to each log-probability, `by_entropy` that with
        respect to each row's entropy.
        """
        np.multiply(self._scaled * self._inverse, by_logp, out=out)
        np.matmul(self._squares - 1.0, by_logp, out=self._gradient)
        self._gradient += by_entropy * len(by_logp)
