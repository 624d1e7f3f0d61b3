"""The CPU in place of a GPU: what is special on a GPU runs, and fetches of numbers are counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainables.core import devices

#: Methods with which Python fetches numbers of a tensor; on a GPU each waits for it.
FETCHING = ("cpu", "numpy", "tolist", "item", "__float__", "__bool__", "__int__", "__array__")


def as_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``num_gpus: 1`` use the CPU, as a device with a gigabyte of memory."""
    monkeypatch.setattr(devices, "accelerator", lambda: "cpu")
    monkeypatch.setattr(devices, "accelerator_bytes", lambda: 10**9)


class _Scalars(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as torch has it
    """Counts the numbers that torch itself fetches from a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as torch has it
        self.count = 0

    def __torch_dispatch__(  # type: ignore[no-untyped-def]  # as torch declares it
        self, func, types, args=(), kwargs=None
    ) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@contextmanager
def fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The fetches of tensors' numbers inside the block, by the names of methods."""
    found: list[str] = []

    def counted(name: str) -> Any:
        method = getattr(torch.Tensor, name)

        def fetch(tensor: torch.Tensor, *args: Any, **more: Any) -> Any:
            found.append(name)
            return method(tensor, *args, **more)

        return fetch

    with monkeypatch.context() as patched, _Scalars() as scalars:
        for name in FETCHING:
            patched.setattr(torch.Tensor, name, counted(name))
        yield found
        asked = sum(name not in ("cpu", "numpy", "tolist", "__array__") for name in found)
        found += ["_local_scalar_dense"] * max(0, scalars.count - asked)
