"""Distributions of actions, drawn from a policy's head in numpy.

A head (N, logits + G) holds the logits of the columns that are choices, column after column, then
the means of G Gaussian columns, whose log standard deviations are the same in all rows (G,), or
differ (N, G). Columns are independent: their log-probabilities add up. N rows, K columns, M choices
of a column at most.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.spaces.actions import ActionLayout

Array = NDArray[np.float32]
Actions = NDArray[np.int64] | NDArray[np.float32]
LOG_2PI = float(np.log(2.0 * np.pi))
SMALLEST = np.finfo(np.float32).tiny
ZERO, ONE = np.float32(0.0), np.float32(1.0)
#: From so many rows on, two choices are drawn column by column.
MANY_ROWS = 32
#: The logit of a choice that does not exist, where columns differ in size; finite: 0 · ∞ is NaN.
NO_CHOICE = np.float32(-1e30)


def choice_grid(layout: ActionLayout) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the index of each choice's logit in a head (K, M), and a mask of those without one."""
    sizes = np.array([layout.sizes[i] for i in layout.choice_columns], dtype=np.int64)
    most = int(sizes.max(initial=0))
    first = np.cumsum(sizes) - sizes
    choice = np.broadcast_to(np.arange(most), (len(sizes), most))
    return first[:, None] + np.minimum(choice, sizes[:, None] - 1), choice >= sizes[:, None]


def forbid(logits: Array, rows: NDArray[Any]) -> None:
    """Give choices (N, A) that are not valid the logit `NO_CHOICE`, by a mask at the rows' ends."""
    logits[rows[..., -logits.shape[-1] :] < 0.5] = NO_CHOICE


def log_softmax(logits: Array) -> Array:
    """Log-probabilities along the last axis."""
    # The ufuncs themselves: an array's methods take a detour through python.
    shifted = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    logs: Array = shifted - np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))
    return logs


def log_softmax_of_two(logits: Array) -> Array:
    """`log_softmax` of two columns (N, 2), equal to the bit.

    With many rows it is faster, since numpy reduces short rows one by one.
    """
    logs: Array = logits - np.maximum(logits[:, 0], logits[:, 1])[:, None]
    shares = np.exp(logs)
    logs -= np.log(shares[:, 0] + shares[:, 1])[:, None]
    return logs


@lru_cache
def _counting(count: int) -> NDArray[np.int64]:
    """0 … count-1."""
    return np.arange(count)


def choose(logits: Array, stream: np.random.Generator | None) -> tuple[NDArray[np.int64], Array]:
    """Choices (…,) and the log-probability of each, for logits (…, M)."""
    if logits.ndim == 2 and logits.shape[1] == 2:
        if len(logits) == 1 and stream is not None:
            return _choose_of_two_alone(logits[0], stream)
        if len(logits) >= MANY_ROWS:
            return _choose_of_two(logits, stream)
    logp_all = log_softmax(logits)
    scores = logp_all if stream is None else _race(logp_all, stream)
    chosen = scores.argmax(axis=-1)
    if chosen.ndim == 1:
        return chosen, logp_all[_counting(len(chosen)), chosen]
    return chosen, np.take_along_axis(logp_all, chosen[..., None], axis=-1)[..., 0]


def _race(logp: Array, stream: np.random.Generator) -> Array:
    """Scores, of which the highest along the last axis is a draw: log p - log E, E exponential."""
    # The Gumbel-max trick: the argmax of an exponential race.
    return logp - _race_drawn(logp.shape, stream)


def _race_drawn(shape: tuple[int, ...], stream: np.random.Generator) -> Array:
    """Logarithms of exponential draws."""
    return stream.next() if isinstance(stream, ChosenAhead) else _race_times(shape, stream)


def _race_times(shape: tuple[int, ...], stream: np.random.Generator) -> Array:
    """Logarithms of exponential draws."""
    race = stream.standard_exponential(shape, dtype=np.float32)
    np.maximum(race, SMALLEST, out=race)
    return np.log(race, out=race)


class ChosenAhead(np.random.Generator):
    """A stream from which all is drawn at once that so many calls of `choose` take.

    Args:
        stream: is drawn from.
        shape: (calls, N, …) of the logits.
    """

    def __init__(self, stream: np.random.Generator, shape: tuple[int, ...]) -> None:
        super().__init__(stream.bit_generator)
        self.race = _race_times(shape, stream)
        """(calls, N, …) all that is drawn."""
        self.next: Callable[[], Array] = iter(self.race).__next__


class MeasuredAhead(np.random.Generator):
    """A stream from which all is drawn at once that so many calls of `measure` take.

    Args:
        stream: is drawn from.
        shape: (calls, N, G) of the means.
        log_std: (G,) of every call.
    """

    def __init__(
        self, stream: np.random.Generator, shape: tuple[int, int, int], log_std: Array
    ) -> None:
        super().__init__(stream.bit_generator)
        noise = stream.standard_normal(shape, dtype=np.float32)
        self.away, self.logp = _deviations(noise, log_std)
        """(calls, N, G) how far from the means, and (calls, N) how probable that is."""
        both = zip(self.away, self.logp, strict=True)
        self.next: Callable[[], tuple[Array, Array]] = both.__next__


def _choose_of_two_alone(
    logits: Array, stream: np.random.Generator
) -> tuple[NDArray[np.int64], Array]:
    """`choose` of one finite row (2,), equal to the bit; arrays of one row cost the most."""
    race = _race_drawn((1, 2), stream)
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
    """`choose` of two columns, equal to the bit."""
    logp = log_softmax_of_two(logits)
    scores = logp if stream is None else _race(logp, stream)
    second = scores[:, 1] > scores[:, 0]
    return second.astype(np.int64), np.where(second, logp[:, 1], logp[:, 0])


def measure(
    means: Array, log_std: Array, stream: np.random.Generator | None
) -> tuple[Array, Array]:
    """Vectors (N, G) and the log-probability (N,) of each."""
    if stream is None:
        highest = np.add.reduce(-log_std - np.float32(0.5 * LOG_2PI), axis=-1)
        return means, np.full(len(means), highest, dtype=np.float32)
    if isinstance(stream, MeasuredAhead):
        away, logp = stream.next()
    else:
        away, logp = _deviations(stream.standard_normal(means.shape, dtype=np.float32), log_std)
    return means + away, logp


def _deviations(noise: Array, log_std: Array) -> tuple[Array, Array]:
    """Return the deviations of vectors (…, G) of this noise, and their log-probabilities (…,)."""
    each = -0.5 * np.square(noise) - log_std - np.float32(0.5 * LOG_2PI)
    return np.exp(log_std) * noise, np.add.reduce(each, axis=-1)
