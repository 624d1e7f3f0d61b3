"""Rounding of this process: a digest of small sums; where it differs, training gives other bits.

OpenBLAS, MKL, torch and numpy choose routines by the processor, by their versions, and by variables
of the environment, so a processor's name tells too little. A few products and functions, such as
training is made of, are computed, and their results are compared. They are small, so that no number
of threads changes them. Equal digests prove nothing of what is not among them, as convolutions.
"""

import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Hexadecimal digits of a digest, of numpy or of torch.
DIGITS = 16


@functools.cache
def fingerprint(in_torch: bool) -> str:
    """The digest, computed once in a process; that takes a millisecond or two.

    What `in_torch` computes a part of what is learnt has a second digest behind that of numpy.
    """
    return _digest(_by_numpy()) + (_digest(_by_torch()) if in_torch else "")


def alike(one: str, other: str) -> bool:
    """Return whether two digests agree in all that both of them are made from."""
    return one.startswith(other) or other.startswith(one)


def _digest(results: Iterable[NDArray[Any]]) -> str:
    whole = hashlib.sha256()
    for result in results:
        whole.update(np.ascontiguousarray(result).tobytes())
    return whole.hexdigest()[:DIGITS]


def _numbers(*shape: int) -> NDArray[np.float32]:
    """Numbers between -0.5 and 0.5, the same everywhere."""
    spread = np.arange(np.prod(shape), dtype=np.int64) * 2_654_435_761 % 1_009
    return (spread / 1_009 - 0.5).astype(np.float32).reshape(shape)


def _by_numpy() -> Iterator[NDArray[Any]]:
    for rows, inside, columns in ((8, 4, 64), (8, 64, 64), (64, 48, 32), (1, 64, 2)):
        left, right = _numbers(rows, inside), _numbers(inside, columns)
        yield left @ right
        yield left.T @ (left @ right)
        yield left.astype(np.float64) @ right
    yield np.matmul(_numbers(2, 8, 64), _numbers(2, 64, 64))
    values = _numbers(200)
    for function in (np.tanh, np.exp, np.sin):
        yield function(values)
        yield function(values.astype(np.float64))
    yield np.log(values + np.float32(1.0))
    yield np.add.reduce(_numbers(64, 100), axis=0)
    yield np.add.reduce(_numbers(64, 100), axis=1)


def _by_torch() -> Iterator[NDArray[Any]]:
    import torch

    def tensor(*shape: int) -> Any:
        return torch.from_numpy(_numbers(*shape)).clone()  # aligned as all tensors are

    yield (tensor(8, 64) @ tensor(64, 64)).numpy()
    yield (tensor(64, 48) @ tensor(48, 32)).numpy()
    for function in (torch.tanh, torch.exp, torch.sigmoid):
        yield function(tensor(200)).numpy()
    yield tensor(64, 100).sum(0).numpy()
    yield torch.linalg.vector_norm(tensor(1_000)).reshape(1).numpy()
