"""Initial weights of perceptrons: those of torch's orthogonal initialisation, up to rounding.

A policy that learns without torch has the same initial weights as one in torch, and need not import
torch, which takes seconds. Numbers are drawn as torch draws them on a CPU: from uniform numbers of
a Mersenne Twister by the Box-Muller transform, eight pairs at a time.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Size of torch's blocks of normal numbers, each made from a block of uniform ones. Fewer numbers
#: are made one by one.
BLOCK = 16


class Normals:
    """A stream of normal random numbers, equal to torch's after ``manual_seed(seed)``."""

    def __init__(self, seed: int) -> None:
        begun = np.random.RandomState(seed % 2**32).get_state(legacy=False)
        self._words = np.random.MT19937()
        self._words.state = {"bit_generator": "MT19937", "state": dict(begun)["state"]}
        self._next: float | None = None
        """Second number of a pair that was made alone, or None."""

    def draw(self, count: int) -> NDArray[np.float32]:
        """Draw the next `count` normal numbers, as ``torch.randn(count)`` would."""
        if count < BLOCK:
            return np.array([self._draw_one() for _ in range(count)], dtype=np.float32)
        even = self._uniform(count)
        whole = count // BLOCK * BLOCK
        made = np.empty(count, dtype=np.float32)
        made[:whole] = _box_muller(even[:whole])
        if whole < count:  # torch draws the last block again, over the end of the one before
            made[-BLOCK:] = _box_muller(self._uniform(BLOCK))
        return made

    def _uniform(self, count: int) -> NDArray[Any]:
        """Draw `count` uniform numbers from 0 to below 1, of 24 bits."""
        return (self._words.random_raw(count) & np.uint64(2**24 - 1)) * 2.0**-24

    def _draw_one(self) -> float:
        """Draw one normal number.

        Every second call makes a pair, from uniform numbers of 53 bits.
        """
        if self._next is not None:
            made, self._next = self._next, None
            return made
        words = self._words.random_raw(4).astype(np.uint64)
        pair = (words[::2] << np.uint64(32) | words[1::2]) & np.uint64(2**53 - 1)
        angle, chance = (pair * 2.0**-53).tolist()
        radius = math.sqrt(-2.0 * math.log1p(-chance))
        self._next = radius * math.sin(2.0 * math.pi * angle)
        return radius * math.cos(2.0 * math.pi * angle)


def _box_muller(uniform: NDArray[Any]) -> NDArray[Any]:
    """Return normal numbers (n,) made from uniform ones (n,) as torch does, block by block.

    The number n is a multiple of `BLOCK`.
    """
    first, second = np.moveaxis(uniform.reshape(-1, 2, BLOCK // 2), 1, 0)
    radius, angle = np.sqrt(-2.0 * np.log(1.0 - first)), 2.0 * math.pi * second
    pairs: NDArray[Any] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return pairs.reshape(-1)


def orthogonal(shape: tuple[int, int], gain: float, normals: Normals) -> NDArray[np.float32]:
    """Draw a random matrix with orthogonal rows or columns (Saxe et al. 2013), times `gain`."""
    drawn = normals.draw(math.prod(shape)).reshape(shape)
    wide = shape[0] < shape[1]
    q, r = np.linalg.qr(drawn.T if wide else drawn)
    q = q * np.sign(np.diag(r))
    made: NDArray[np.float32] = (q.T if wide else q) * np.float32(gain)
    return made
