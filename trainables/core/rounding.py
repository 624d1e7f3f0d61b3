"""Floating-point rounding of this process as a digest; where it differs, training gives other bits.

OpenBLAS, MKL, torch and numpy choose their routines by processor, version and environment
variables, so the processor's name says too little. This module computes a few products and
functions that training consists of, and hashes the results. They are small, so that the number of
threads does not change them. Equal digests prove nothing about other operations, such as
convolutions.
"""

import functools
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Hexadecimal digits of each digest, numpy's and torch's.
DIGITS = 16


@functools.cache
def fingerprint(in_torch: bool) -> str:
    """Return a digest of how this process rounds numbers; computed once, in a millisecond or two.

    `in_torch` is True if a part of the learning runs in torch; then torch's digest follows numpy's.
    """
    return _digest(_numpy_results()) + (_digest(_torch_results()) if in_torch else "")


def is_compatible(one: str, other: str) -> bool:
    """Return whether two fingerprints agree in the digests that both contain."""
    return one.startswith(other) or other.startswith(one)


def _digest(results: Iterable[NDArray[Any]]) -> str:
    """Hash the bytes of all `results` to `DIGITS` hexadecimal digits."""
    whole = hashlib.sha256()
    for result in results:
        whole.update(np.ascontiguousarray(result).tobytes())
    return whole.hexdigest()[:DIGITS]


def _numbers(*shape: int) -> NDArray[np.float32]:
    """Return an array of this shape with fixed, irregular float32 numbers between -0.5 and 0.5."""
    spread = np.arange(np.prod(shape), dtype=np.int64) * 2_654_435_761 % 1_009
    return (spread / 1_009 - 0.5).astype(np.float32).reshape(shape)


def _numpy_results() -> Iterator[NDArray[Any]]:
    """Yield results of numpy's products, functions and sums."""
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


def _torch_results() -> Iterator[NDArray[Any]]:
    """Yield results of torch's products, functions and sums."""
    import torch

    def tensor(*shape: int) -> Any:
        """Return a new tensor of fixed numbers."""
        return torch.from_numpy(_numbers(*shape)).clone()  # aligned as all tensors are

    yield (tensor(8, 64) @ tensor(64, 64)).numpy()
    yield (tensor(64, 48) @ tensor(48, 32)).numpy()
    for function in (torch.tanh, torch.exp, torch.sigmoid):
        yield function(tensor(200)).numpy()
    yield tensor(64, 100).sum(0).numpy()
    yield torch.linalg.vector_norm(tensor(1_000)).reshape(1).numpy()
