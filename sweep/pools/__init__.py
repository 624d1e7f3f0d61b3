"""Pools run slices in slots; one file each.

    pool.connect(root)                     # first of all: a cluster is asked whether it fits
    future = pool.submit(slice_spec)       # a concurrent.futures.Future of a SliceOutcome
    pool.close()                           # ends its processes

A pool has a fixed number of slots and is never given more slices than that at once. A slice whose
process dies fails its own future with `sweep.errors.WorkerLost`, and no other; one whose process
must not be used any more fails it with `sweep.slices.cache.StaleProcess`.

A pool on a cluster is named with the cluster's address, as in ``dask@tls://node-1:8786`` or
``ray@node-1:6379``. So the ledger has it where it has the pool, and `sweep resume` goes back there.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

import psutil

from sweep import plugins
from sweep.errors import BadConfig, SweepError
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.errors import printable

PACKAGE = __name__
#: Seconds between two looks whether a worker stands still.
LOOK_S = 1.0
#: The pool of a sweep for which no other is named.
DEFAULT = "loky"


class Pool(Protocol):
    """The part of the concurrent.futures interface that a driver needs."""

    slots: int
    blocks: ClassVar[bool]
    """True if `submit` returns only when the slice is done."""
    clustered: ClassVar[bool] = False
    """True if it is made with a cluster's address, too; its slots come and go with workers."""
    lanes: ClassVar[bool] = False
    """True if trials have to be lanes of one program (`Trainable.as_lane`)."""
    say: Callable[[str], None] = staticmethod(lambda _text: None)
    """Shows a person what happens in it, from any thread; its driver sets this."""

    def __init__(self, slots: int) -> None: ...

    def connect(self, root: Path) -> None:
        """Reach its workers and see whether they fit; called once, before all else.

        Args:
            root: the folder of all sweeps, which workers must find under the same path.

        Raises:
            SweepError: it cannot be reached, or no slice may run there.
        """
        return

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice in a free slot, the trial's last one if that is free."""

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Give processes of their own these environment variables, by the number of the slot."""
        return

    def resize(self, slots: int) -> None:
        """Have so many slots from now on; a slice that runs in one too many ends as it would."""
        return

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """The process in which a slice runs; None: there is none of its own, or not yet."""
        return None

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Bytes that this process takes with its children; 0: not known yet."""
        pid = self.pid(running)
        return 0 if pid is None else memory_of(pid)

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds the slice's worker has stood still, or answered nothing."""
        return 0.0

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """End the process of a slice and its children; its future fails with `error`.

        A worker that does not answer is given up: what it does when it goes on, nobody takes.
        """
        return

    def forget(self, replica: tuple[str, int, int]) -> None:
        """End what is kept in memory of a replica that has ended, by sweep, trial and number."""
        return

    def describe_speed(self) -> str:
        """Return one line about what computes its slices, and how fast; empty if unknown."""
        return ""

    def failed(self) -> str:
        """Why it can run nothing any more; empty: it can. Its slices fail with StorageError."""
        return ""

    def close(self) -> None:
        """End all slots, with whatever still runs in them."""


KIND: plugins.Kind[Pool] = plugins.Kind("pool", PACKAGE, Pool, "Pool", ("submit", "close"))


class Standstill:
    """For how long something stands still, by looks at it; a pause between two counts as one."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked_at = -math.inf

    def look(self, is_still: Callable[[], bool]) -> float:
        """Look, if the last look was a while ago; returns the seconds."""
        passed = time.monotonic() - self._looked_at
        if passed >= LOOK_S:
            self._looked_at = time.monotonic()
            self.seconds = self.seconds + min(passed, 2 * LOOK_S) if is_still() else 0.0
        return self.seconds


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP; one that a debugger holds is not."""
    try:
        about = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # it is gone, or the system has no such files
        return False
    return about.rpartition(b")")[2].split()[:1] == [b"T"]


def memory_of(pid: int) -> int:
    """Resident memory of a process and all its descendants, those that are gone left out."""
    used = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used += int(member.memory_info().rss)
    return used


def find(chosen: str, paths: Iterable[str] = ()) -> Callable[[int], Pool]:
    """Return the maker of the pool that `chosen` names, which takes the number of its slots.

    Raises:
        SweepError: there is no such pool, or it cannot use the address.
    """
    name, _, address = chosen.partition("@")
    kind = KIND.find(name, paths)
    if kind.clustered:
        return partial(kind, address=address)  # type: ignore[call-arg]  # what `clustered` says
    if address:
        hint = "leave --address out, or name a pool on a cluster: --pool dask or --pool ray"
        problem = f"the pool '{printable(name)}' has no cluster"
        raise BadConfig("--address", address, "no such option", hint, problem=problem)
    return kind


def has_lanes(chosen: str, paths: Iterable[str] = ()) -> bool:
    """Return whether the trials of a pool have to be lanes of one program."""
    return KIND.find(chosen.partition("@")[0], paths).lanes


def is_clustered(chosen: str) -> bool:
    """Return whether the slots of a pool are the workers of a cluster."""
    return "@" in chosen


def check(chosen: str, paths: Iterable[str], root: Path) -> None:
    """Raise the SweepError that a sweep in `root` would meet with that pool; nothing is kept."""
    with contextlib.closing(find(chosen, paths)(1)) as pool:
        pool.connect(root)


def choose_pool(asked: str | None, before: str = "") -> str:
    """The pool that a person asked for, else the one that the sweep was run with, else ours.

    A name alone, or ``@`` and an address alone, leaves the other half as it was.
    """
    name, _, address = (asked or "").partition("@")
    name_before, _, address_before = before.partition("@")
    name = name or name_before or DEFAULT
    if name == name_before:
        address = address or address_before
    return f"{name}@{address}" if address else name
