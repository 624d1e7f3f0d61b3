"""Sending arrays from this process to a device, several in one transfer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

#: Arrays that are sent together begin at multiples of this number of bytes.
ALIGNED = 16


def send_together(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """Return arrays by name as tensors on a device, sent in one transfer of all their bytes.

    Arrays may have different shapes and dtypes. To a GPU the transfer is from pinned memory, so
    this process does not wait for it.
    """
    ends = np.cumsum([-(-one.nbytes // ALIGNED) * ALIGNED for one in arrays.values()], dtype=int)
    whole = int(ends[-1]) if len(ends) else 0
    host = torch.empty(whole, dtype=torch.uint8, pin_memory=device.type == "cuda")
    starts = [0, *ends.tolist()]
    for start, one in zip(starts, arrays.values(), strict=False):
        own = np.require(one, requirements=["C", "W"]).reshape(-1).view(np.uint8)
        host[start : start + one.nbytes].copy_(torch.from_numpy(own))
    there = host.to(device, non_blocking=True)
    return {
        name: there[start : start + one.nbytes]
        .view(torch.from_numpy(np.zeros(0, one.dtype)).dtype)
        .reshape(one.shape)
        for start, (name, one) in zip(starts, arrays.items(), strict=False)
    }
