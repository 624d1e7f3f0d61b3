"""Pools run slices in slots; one file each.

    pool.connect(root)                     # called first: checks the workers of a cluster
    future = pool.submit(slice_spec)       # a concurrent.futures.Future of a SliceOutcome
    pool.close()                           # ends its processes

A pool has a number of slots and never gets more slices than that at once. If the process of a slice
dies, only the future of that slice fails, with `sweep.core.errors.WorkerLost`; if the process
cannot be used any more, it fails with `sweep.slices.cache.StaleProcess`.

The name of a pool on a cluster contains the cluster's address, as in ``dask@tls://node-1:8786`` or
``ray@node-1:6379``. The ledger stores the whole name, so `sweep resume` uses the same cluster.
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

from sweep.core import plugins
from sweep.core.errors import BadConfig, SweepError
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.errors import printable

PACKAGE = __name__
#: Seconds between two checks whether a worker is stopped.
LOOK_S = 1.0
#: Default pool.
DEFAULT = "loky"


class Pool(Protocol):
    """The part of the concurrent.futures interface that a driver needs."""

    slots: int
    """Number of slices that may run at a time."""
    blocks: ClassVar[bool]
    """True if `submit` returns only when the slice is done."""
    clustered: ClassVar[bool] = False
    """True if the constructor takes a cluster's address, whose workers are the slots."""
    lanes: ClassVar[bool] = False
    """True if trials have to be lanes of one program (`Trainable.as_lane`)."""
    say: Callable[[str], None] = staticmethod(lambda _text: None)
    """Shows a message to the user, from any thread; set by the driver."""

    def __init__(self, slots: int) -> None: ...

    def connect(self, root: Path) -> None:
        """Connect to the workers and check that they are usable; called once, before other methods.

        Args:
            root: the folder of all sweeps, which workers must see under the same path.

        Raises:
            SweepError: the cluster cannot be reached, or no worker is usable.
        """
        return

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice in a free slot, preferably the one in which the trial ran last."""

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Set the environment variables of worker processes, given by the number of the slot."""
        return

    def resize(self, slots: int) -> None:
        """Change the number of slots; slices in slots that are removed still run to their end."""
        return

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """Return the id of the process that runs a slice, or None if it has none (yet)."""
        return None

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the memory of the slice's process and its children in bytes; 0 while unknown."""
        pid = self.pid(running)
        return 0 if pid is None else memory_of(pid)

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds the slice's worker has been stopped or has not responded."""
        return 0.0

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """Kill the process of a slice and its children; its future fails with `error`.

        A worker that does not respond is abandoned: later results of the slice are ignored.
        """
        return

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Free the memory kept for an ended replica, given as (sweep, trial, number)."""
        return

    def describe_speed(self) -> str:
        """Return one line about the device that runs the slices and its speed; empty if unknown."""
        return ""

    def failed(self) -> str:
        """Return why no slice can run any more, or an empty text.

        If there is a reason, slices fail with StorageError.
        """
        return ""

    def close(self) -> None:
        """End all slots and the slices that still run in them."""


KIND: plugins.Kind[Pool] = plugins.Kind("pool", PACKAGE, Pool, "Pool", ("submit", "close"))


class Standstill:
    """Duration of a standstill, measured by repeated checks; long gaps count as one interval."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked_at = -math.inf

    def check(self, is_still: Callable[[], bool]) -> float:
        """Check at most every `LOOK_S` seconds; return the seconds of standstill so far."""
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
    """Return the resident memory of a process and its living descendants, in bytes."""
    used = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used += int(member.memory_info().rss)
    return used


def find(chosen: str, paths: Iterable[str] = ()) -> Callable[[int], Pool]:
    """Return the constructor of the pool `chosen`, searched also in `paths`.

    It takes the number of slots.

    Raises SweepError if there is no such pool, or it cannot use the address.
    """
    name, _, address = chosen.partition("@")
    kind = KIND.find(name, paths)
    if kind.clustered:
        return partial(kind, address=address)  # type: ignore[call-arg]  # see `Pool.clustered`
    if address:
        hint = "remove --address, or choose a pool on a cluster: --pool dask or --pool ray"
        problem = f"the pool '{printable(name)}' has no cluster"
        raise BadConfig("--address", address, "no such option", hint, problem=problem)
    return kind


def has_lanes(chosen: str, paths: Iterable[str] = ()) -> bool:
    """Return whether a pool requires trials that can be lanes of one program."""
    return KIND.find(chosen.partition("@")[0], paths).lanes


def is_clustered(chosen: str) -> bool:
    """Return whether the slots of a pool are the workers of a cluster."""
    return "@" in chosen


def check(chosen: str, paths: Iterable[str], root: Path) -> None:
    """Raise a SweepError if a sweep in `root` could not use the pool; the pool is closed again."""
    with contextlib.closing(find(chosen, paths)(1)) as pool:
        pool.connect(root)


def choose_pool(option: str | None, before: str = "") -> str:
    """Return the requested pool (`option`), else the sweep's last one (`before`), else the default.

    A name alone, or ``@`` and an address alone, keeps the other part of `before`.
    """
    name, _, address = (option or "").partition("@")
    name_before, _, address_before = before.partition("@")
    name = name or name_before or DEFAULT
    if name == name_before:
        address = address or address_before
    return f"{name}@{address}" if address else name
