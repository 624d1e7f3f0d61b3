"""Pools run slices in slots; one file each.

    future = pool.submit(slice_spec)       # a concurrent.futures.Future of a SliceOutcome
    pool.close()                           # ends its processes

A pool has a fixed number of slots and is never given more slices than that at once. A slice whose
process dies fails its own future with `sweep.errors.WorkerLost`, and no other; one whose process
must not be used any more fails it with `sweep.slices.cache.StaleProcess`.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import ClassVar, Protocol

from sweep import plugins
from sweep.errors import SweepError
from sweep.slices.messages import SliceOutcome, SliceSpec

PACKAGE = __name__
#: The pool of a sweep for which no other is named.
DEFAULT = "loky"


class Pool(Protocol):
    """The part of the concurrent.futures interface that a driver needs."""

    slots: int
    blocks: ClassVar[bool]
    """Whether `submit` returns only when the slice is done."""

    def __init__(self, slots: int) -> None: ...

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice in a free slot, the trial's last one if that is free."""

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Give processes of their own these environment variables, by the number of the slot."""
        return

    def resize(self, slots: int) -> None:
        """Have so many slots from now on; a slice that runs in one too many ends as it would."""
        return

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """The process in which a slice runs; None: there is none of its own."""
        return None

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """End the process of a slice and its children; its future fails with `error`."""
        return

    def close(self) -> None:
        """End all slots, with whatever still runs in them."""


KIND: plugins.Kind[Pool] = plugins.Kind("pool", PACKAGE, Pool, "Pool")
find = KIND.find


def again(asked: str | None, before: str = "") -> str:
    """The pool that a person asked for, else the one that the sweep was run with, else ours."""
    return (before or DEFAULT) if asked is None else asked
