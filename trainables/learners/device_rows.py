"""Rows of a replay in the memory of a GPU, so that drawn rows need not travel.

A row is the bytes of its columns, one after the other, as in a checkpoint. R rows, B rows of a
batch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


class DeviceRows:
    """A structured numpy array (R,) in the memory of a torch device, for the rows of a replay.

    Args:
        kind: the array's structured dtype, without gaps between columns.
        capacity: number of rows R.
    """

    def __init__(self, kind: np.dtype[Any], capacity: int, device: torch.device) -> None:
        self._kind, self._device = kind, device
        self._bytes = torch.zeros((capacity, kind.itemsize), dtype=torch.uint8, device=device)

    def write(self, chosen: NDArray[np.int64], rows: Mapping[str, Array]) -> None:
        """Copy rows to the device in one transfer.

        Args:
            chosen: indices (B,) of the rows.
            rows: name of every column → (B, …).
        """
        together = np.empty(len(chosen), dtype=self._kind)
        for name, column in rows.items():
            together[name] = column
        given = torch.from_numpy(together.view(np.uint8).reshape(len(chosen), -1))
        there = torch.from_numpy(chosen).to(self._device)
        self._bytes.index_copy_(0, there, given.to(self._device))

    def read(self, chosen: NDArray[np.int64]) -> dict[str, Tensor]:
        """Return copies of rows: name → column (B, …) on the device.

        Args:
            chosen: indices (B,) of the rows; an index may occur twice.
        """
        drawn = self._bytes.index_select(0, torch.from_numpy(chosen).to(self._device))
        found: dict[str, Tensor] = {}
        for name, (kind, offset, *_) in (self._kind.fields or {}).items():
            # Cloned: `contiguous` returns a view of one row, whose bytes may lie at any offset.
            part = drawn[:, offset : offset + kind.itemsize]
            part = part.clone(memory_format=torch.contiguous_format)
            of = torch.from_numpy(np.zeros(0, kind.base)).dtype
            found[name] = part.view(of).reshape(len(chosen), *kind.shape)
        return found

    def fetch(self, count: int) -> NDArray[np.uint8]:
        """Copy the first `count` rows from the device as bytes, (count, bytes per row)."""
        return self._bytes[:count].cpu().numpy().copy()

    def load(self, rows: NDArray[np.uint8]) -> None:
        """Copy rows to the device as the first ones, from bytes that `fetch` returned."""
        given = torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        self._bytes[: len(rows)].copy_(given.reshape(len(rows), -1))
