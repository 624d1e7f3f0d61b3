"""Distributions of actions, and their sampling in numpy from the outputs of a policy's head.

A head (N, logits + G) holds the logits of the columns that are choices, column after column, then
the means of G Gaussian columns. Their log standard deviations are the same in all rows (G,) or
differ (N, G). Columns are independent, so that their log-probabilities add up. N rows, K columns, M
the largest number of choices of a column.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout

Array = NDArray[np.float32]
#: Choices (B,) or rows of actions (B, K).
Actions = NDArray[np.int64] | NDArray[np.float32]
#: Natural logarithm of 2π.
LOG_2PI = math.log(2.0 * math.pi)
#: Half the natural logarithm of 2π.
HALF_LOG_2PI = 0.5 * LOG_2PI
#: Lower bound of an exponential draw, whose logarithm must be finite.
SMALLEST = np.finfo(np.float32).tiny
ZERO, ONE = np.float32(0.0), np.float32(1.0)
#: Number of rows from which on two choices are drawn with operations on whole columns.
MANY_ROWS = 32
#: Logit of a choice that is invalid or does not exist; finite, since 0 · ∞ is NaN.
NO_CHOICE = np.float32(-1e30)


def choice_grid(layout: ActionLayout) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where the logits of each of K discrete columns are in the actor's output.

    Returns indices (K, M), M the largest number of choices of a column, and flags (K, M), True for
    choices that a column does not have; there the index of its last choice is repeated.
    """
    sizes = np.array([layout.sizes[i] for i in layout.choice_columns], dtype=np.int64)
    most = int(sizes.max(initial=0))
    first = np.cumsum(sizes) - sizes
    choice = np.broadcast_to(np.arange(most), (len(sizes), most))
    return first[:, None] + np.minimum(choice, sizes[:, None] - 1), choice >= sizes[:, None]


def mask_invalid(logits: Array, rows: NDArray[Any]) -> None:
    """Set the logits (N, A) of invalid choices to `NO_CHOICE`, in place.

    `rows` (N, D) are observations that end with an action mask (A), 0 for invalid choices.
    """
    logits[rows[..., -logits.shape[-1] :] < 0.5] = NO_CHOICE


def log_softmax(logits: Array) -> Array:
    """Return log-probabilities (…, M) of logits (…, M) along the last axis."""
    # Ufuncs are called directly, since an array's methods take a detour through Python.
    shifted = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    logs: Array = shifted - np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))
    return logs


def log_softmax_of_two(logits: Array) -> Array:
    """Return `log_softmax` of logits (N, 2), equal to the bit.

    It is faster for many rows, since numpy reduces short rows one by one.
    """
    logs: Array = logits - np.maximum(logits[:, 0], logits[:, 1])[:, None]
    shares = np.exp(logs)
    logs -= np.log(shares[:, 0] + shares[:, 1])[:, None]
    return logs


@lru_cache
def _indices(count: int) -> NDArray[np.int64]:
    """Return the integers from 0 to count - 1, (count,); cached."""
    return np.arange(count)


def choose(logits: Array, stream: np.random.Generator | None) -> tuple[NDArray[np.int64], Array]:
    """Draw choices (…,) for logits (…, M) from `stream`; return them with their log-probabilities.

    Numbers drawn in advance (`PredrawnChoices`) are used up in order. Without a stream the most
    probable choice is taken.
    """
    if logits.ndim == 2 and logits.shape[1] == 2:
        if len(logits) == 1 and stream is not None:
            return _choose_of_two_in_one_row(logits[0], stream)
        if len(logits) >= MANY_ROWS:
            return _choose_of_two(logits, stream)
    logp_all = log_softmax(logits)
    scores = logp_all if stream is None else _race_scores(logp_all, stream)
    chosen = scores.argmax(axis=-1)
    if chosen.ndim == 1:
        return chosen, logp_all[_indices(len(chosen)), chosen]
    return chosen, np.take_along_axis(logp_all, chosen[..., None], axis=-1)[..., 0]


def _race_scores(logp: Array, stream: np.random.Generator) -> Array:
    """Return log p - log E (…, M), E exponential draws, so that the argmax is a random choice."""
    # The Gumbel-max trick, in its form of an exponential race.
    return logp - _next_race(logp.shape, stream)


def _next_race(shape: tuple[int, ...], stream: np.random.Generator) -> Array:
    """Return logarithms of exponential draws (*shape), those drawn in advance if there are any.

    Of a `PredrawnChoices` they are the numbers of its next call, whatever `shape` is.
    """
    return stream.next() if isinstance(stream, PredrawnChoices) else _draw_race(shape, stream)


def _draw_race(shape: tuple[int, ...], stream: np.random.Generator) -> Array:
    """Draw and return logarithms of exponential numbers, float32 (*shape)."""
    race = stream.standard_exponential(shape, dtype=np.float32)
    np.maximum(race, SMALLEST, out=race)
    return np.log(race, out=race)


class PredrawnChoices(np.random.Generator):
    """A random stream that holds the numbers of several calls of `choose`, drawn in advance.

    `next` returns those of the next call, and raises StopIteration after the last one.

    Args:
        stream: stream from which they are drawn at once.
        shape: (calls, N, …) of the logits.
    """

    def __init__(self, stream: np.random.Generator, shape: tuple[int, ...]) -> None:
        super().__init__(stream.bit_generator)
        self.race = _draw_race(shape, stream)
        """Logarithms of exponential draws, (calls, N, …)."""
        self.next: Callable[[], Array] = iter(self.race).__next__


class PredrawnReals(np.random.Generator):
    """A random stream that holds the numbers of several calls of `draw_reals`, drawn in advance.

    `next` returns deviations and log-probabilities of the next call, and raises StopIteration after
    the last one.

    Args:
        stream: stream from which they are drawn at once.
        shape: (calls, N, G) of the means.
        log_std: log standard deviations (G,) of every call.
    """

    def __init__(
        self, stream: np.random.Generator, shape: tuple[int, int, int], log_std: Array
    ) -> None:
        super().__init__(stream.bit_generator)
        noise = stream.standard_normal(shape, dtype=np.float32)
        self.deviations, self.logp = _scale_noise(noise, log_std)
        """Deviations from the means, (calls, N, G), and their log-probabilities `logp`, (calls,
        N)."""
        both = zip(self.deviations, self.logp, strict=True)
        self.next: Callable[[], tuple[Array, Array]] = both.__next__


def _choose_of_two_in_one_row(
    logits: Array, stream: np.random.Generator
) -> tuple[NDArray[np.int64], Array]:
    """Return `choose` of one row of logits (2,), equal to the bit.

    The result is the choice (1,), drawn from `stream`, and its log-probability (1,).
    """
    race = _next_race((1, 2), stream)
    best = int(logits[0] < logits[1])
    behind = logits[1 - best] - logits[best]
    log_sum = np.log(ONE + np.exp(behind))
    logp = [behind - log_sum] * 2
    logp[best] = ZERO - log_sum
    choice = int(logp[1] - race[0, 1] > logp[0] - race[0, 0])
    return np.array([choice]), np.array([logp[choice]])


def _choose_of_two(
    logits: Array, stream: np.random.Generator | None
) -> tuple[NDArray[np.int64], Array]:
    """Return choices (N,) for logits (N, 2) and their log-probabilities, as `choose` to the bit.

    They are drawn from `stream`; without it they are the most probable ones.
    """
    logp = log_softmax_of_two(logits)
    scores = logp if stream is None else _race_scores(logp, stream)
    second = scores[:, 1] > scores[:, 0]
    return second.astype(np.int64), np.where(second, logp[:, 1], logp[:, 0])


def draw_reals(
    means: Array, log_std: Array, stream: np.random.Generator | None
) -> tuple[Array, Array]:
    """Draw vectors (N, G) from Gaussians; return them and their log-probabilities (N,).

    Without a stream they are `means` itself. `log_std` is (G,) or (N, G); a `PredrawnReals` ignores
    it, since it has the deviations already.
    """
    if stream is None:
        highest = np.add.reduce(-log_std - np.float32(HALF_LOG_2PI), axis=-1)
        return means, np.full(len(means), highest, dtype=np.float32)
    if isinstance(stream, PredrawnReals):
        away, logp = stream.next()
    else:
        away, logp = _scale_noise(stream.standard_normal(means.shape, dtype=np.float32), log_std)
    return means + away, logp


def _scale_noise(noise: Array, log_std: Array) -> tuple[Array, Array]:
    """Scale standard normal noise (…, G) by `log_std`; return it and log-probabilities (…,)."""
    each = -0.5 * np.square(noise) - log_std - np.float32(HALF_LOG_2PI)
    return np.exp(log_std) * noise, np.add.reduce(each, axis=-1)
