"""Initial weights of perceptrons: those of torch's orthogonal initialisation, up to rounding.

A policy that learns here begins where the same one in torch does, and torch, which takes seconds to
import, is not needed for it. Numbers are drawn as torch draws them on a CPU: by a Mersenne Twister,
of whose even numbers Box and Muller make normal ones, eight pairs at a time.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Numbers that torch makes at once, of so many evenly drawn ones; fewer are made one by one.
BLOCK = 16


class Normals:
    """Normal numbers of the stream that ``torch.Generator().manual_seed(seed)`` begins."""

    def __init__(self, seed: int) -> None:
        begun = np.random.RandomState(seed % 2**32).get_state(legacy=False)
        self._words = np.random.MT19937()
        self._words.state = {"bit_generator": "MT19937", "state": dict(begun)["state"]}
        self._next: float | None = None
        """The second number of a pair, where they are made one by one."""

    def draw(self, count: int) -> NDArray[np.float32]:
        """(count,)."""
        if count < BLOCK:
            return np.array([self._one() for _ in range(count)], dtype=np.float32)
        even = self._even(count)
        whole = count // BLOCK * BLOCK
        made = np.empty(count, dtype=np.float32)
        made[:whole] = _normal(even[:whole])
        if whole < count:  # the last block is drawn anew, and lies over the one before
            made[-BLOCK:] = _normal(self._even(BLOCK))
        return made

    def _even(self, count: int) -> NDArray[Any]:
        """Between 0 and 1, of 24 bits."""
        return (self._words.random_raw(count) & np.uint64(2**24 - 1)) * 2.0**-24

    def _one(self) -> float:
        """One number, of pairs with 53 bits."""
        if self._next is not None:
            made, self._next = self._next, None
            return made
        words = self._words.random_raw(4).astype(np.uint64)
        pair = (words[::2] << np.uint64(32) | words[1::2]) & np.uint64(2**53 - 1)
        angle, chance = (pair * 2.0**-53).tolist()
        radius = math.sqrt(-2.0 * math.log1p(-chance))
        self._next = radius * math.sin(2.0 * math.pi * angle)
        return radius * math.cos(2.0 * math.pi * angle)


def _normal(even: NDArray[Any]) -> NDArray[Any]:
    """(n,) normal numbers of evenly drawn ones, in blocks."""
    first, second = np.moveaxis(even.reshape(-1, 2, BLOCK // 2), 1, 0)
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - first)), 2.0 * math.pi * second
    pairs: NDArray[Any] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return pairs.reshape(-1)


def orthogonal(shape: tuple[int, int], gain: float, normals: Normals) -> NDArray[np.float32]:
    """A matrix with orthogonal rows or columns (Saxe et al. 2013), times `gain`."""
    drawn = normals.draw(math.prod(shape)).reshape(shape)
    wide = shape[0] < shape[1]
    q, r = np.linalg.qr(drawn.T if wide else drawn)
    q = q * np.sign(np.diag(r))
    made: NDArray[np.float32] = (q.T if wide else q) * np.float32(gain)
    return made
