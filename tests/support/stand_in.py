"""The CPU in place of a GPU: what is special on a GPU runs, and fetches of numbers are counted."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from trainables.core import devices
from trainables.learners.graphs import Graph
from trainables.trainer.trainer import Trainer

#: Methods with which Python fetches numbers of a tensor; on a GPU each waits for it.
FETCHING = ("cpu", "numpy", "tolist", "item", "__float__", "__bool__", "__int__", "__array__")
#: Operations that make tensors of the host's numbers, which would then be sent to a GPU.
SENT = (torch.ops.aten.lift.default, torch.ops.aten.lift_fresh.default)
#: Functions that make tensors in the host's memory unless they are given a device.
MAKING = (torch.arange, torch.empty, torch.full, torch.ones, torch.rand, torch.randn, torch.zeros)


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


def fetches_of(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, iterations_before: int = 1
) -> list[str]:
    """The fetches of tensors' numbers in an iteration that learns, by the names of methods.

    The trainer is stopped after it.
    """
    for _ in range(iterations_before):
        trainer.train()
    with fetches(monkeypatch) as found:
        assert trainer.train()["learner"]
    trainer.stop()
    return sorted(found)


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


class _OnDevice(TorchFunctionMode):
    """Refuses tensors that would be in the host's memory beside those on a GPU."""

    def __torch_function__(  # type: ignore[no-untyped-def]  # as torch declares it
        self, func, types, args=(), kwargs=None
    ) -> Any:
        if func in MAKING and "device" not in (kwargs or {}):
            raise RuntimeError(f"{func.__name__}: no device was named")
        return func(*args, **(kwargs or {}))


class _Tape(TorchDispatchMode):  # type: ignore[no-untyped-call]  # as torch has it
    """Records the operations of a step, and repeats exactly these on the same tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as torch has it
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(  # type: ignore[no-untyped-def]  # as torch declares it
        self, func, types, args=(), kwargs=None
    ) -> Any:
        kwargs = kwargs or {}
        fetched = func is torch.ops.aten._local_scalar_dense.default
        if fetched or func in SENT:
            raise RuntimeError(f"{func}: operation not permitted when stream is capturing")
        found = func(*args, **kwargs)
        self._calls.append((func, args, kwargs, found))
        return found

    @torch.no_grad()
    def replay(self) -> None:
        """Repeat the operations; their results replace the recorded ones in place."""
        for func, args, kwargs, found in self._calls:
            before = {one.untyped_storage().data_ptr() for one in _tensors((args, kwargs))}
            if func._schema.is_mutable:
                func(*args, **kwargs)
                continue
            if any(one.untyped_storage().data_ptr() in before for one in _tensors(found)):
                continue  # a view, which shows what is in its memory
            again = func(*args, **kwargs)
            for old, new in zip(_tensors(found), _tensors(again), strict=True):
                old.detach().copy_(new)


def _tensors(values: Any) -> list[torch.Tensor]:
    """All tensors in nested values."""
    return [one for one in tree_flatten(values)[0] if isinstance(one, torch.Tensor)]


def replay_captured_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let captured steps repeat the operations of their capture alone, as CUDA graphs do.

    All that the step's Python does besides, such as drawing random numbers, then happens once, in
    the capture. Numbers can neither be fetched nor sent there.
    """

    def capture(graph: Graph) -> Callable[[], None]:
        tape, launches = _Tape(), itertools.count()
        with _OnDevice(), tape, fetches(monkeypatch) as found:
            graph._results = graph._step_to_vector()
        if found:
            raise RuntimeError(f"operation not permitted when stream is capturing: {found}")

        def launch() -> None:
            if next(launches):  # the capture has made the first step
                tape.replay()

        return launch

    monkeypatch.setattr(Graph, "_capture", capture)
