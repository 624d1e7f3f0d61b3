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
    """Base of all pools: runs slices at once, each in a slot, and returns a future for each.

    A slice is one stretch of a trial's training. The driver calls the methods from its thread.
    """

    slots: int
    """Number of slices that may run at once; the driver submits no more."""
    blocks: ClassVar[bool]
    """True if `submit` runs the slice itself and returns only when it is done."""
    clustered: ClassVar[bool] = False
    """True if the constructor also takes the `address` of a cluster, whose workers are the
    slots."""
    lanes: ClassVar[bool] = False
    """True if all trials must be able to train in one compiled program, as its lanes
    (`Trainable.as_lane`)."""
    say: Callable[[str], None] = staticmethod(lambda _text: None)
    """Function that shows a message to the user, callable from any thread; the driver sets it."""

    def __init__(self, slots: int) -> None: ...

    def connect(self, root: Path) -> None:
        """Connect to the workers and check that they are usable; called once, before `submit`.

        Does nothing by default.

        Args:
            root: the folder of all sweeps, which workers must see under the same path.

        Raises:
            SweepError: the cluster cannot be reached, or no worker is usable.
        """
        return

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Start a slice in a free slot, which must exist, and return the future of its outcome.

        The slot in which the trial ran last is preferred if slots have processes of their own. The
        future fails with WorkerLost if the process dies, with StaleProcess if it cannot be used any
        more, and with StorageError if the cluster or device is lost. If `blocks` is true, it is
        already done.
        """

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Set a function that returns the environment variables of a slot's worker process.

        It is called with the slot's index, from 0. Processes that run already keep theirs. Does
        nothing by default.
        """
        return

    def resize(self, slots: int) -> None:
        """Change the number of slots; slices in slots that are removed still run to their end.

        Does nothing by default.
        """
        return

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """Return the id of the process that runs a slice; None if it has none, or none yet.

        On a cluster it is an id on the worker's machine. `running` is the future that `submit`
        returned. Returns None by default.
        """
        return None

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the resident memory of a slice's process and its children, in bytes.

        If slices share the process, it is the slice's share. Returns 0 while unknown. `running` is
        the future that `submit` returned.
        """
        pid = self.pid(running)
        return 0 if pid is None else memory_of(pid)

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds a slice's worker has been stopped or has not responded.

        `running` is the future that `submit` returned. Returns 0 while the worker responds, and by
        default.
        """
        return 0.0

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """End a slice, with its process and children; its future then fails with `error`.

        If slices share the process, it is killed only for WorkerLost, with all of them; for other
        errors only the slice is aborted. A worker that does not respond is abandoned: later results
        of the slice are ignored. Does nothing for a slice that has ended, and by default.
        """
        return

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Let the worker free the trainable that it keeps in memory for an ended replica.

        `replica` is (ID of the sweep, number of the trial, index of the replica). Does nothing by
        default.
        """
        return

    def describe_speed(self) -> str:
        """Return a line for users about the device that runs the slices and its speed.

        Returns an empty text if unknown.
        """
        return ""

    def failed(self) -> str:
        """Return a sentence on why no slice can run any more; empty while slices can run.

        If there is a reason, slices fail with StorageError, and the driver stops. Returns an empty
        text by default.
        """
        return ""

    def close(self) -> None:
        """Kill the slices that still run, and end the workers or the connection to them."""


KIND: plugins.Kind[Pool] = plugins.Kind("pool", PACKAGE, Pool, "Pool", ("submit", "close"))


class Standstill:
    """Seconds for which something has not moved, measured by repeated checks.

    A long gap between two checks counts as two intervals at most, since this process may have been
    suspended itself.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._looked_at = -math.inf

    def check(self, is_still: Callable[[], bool]) -> float:
        """Return the seconds of standstill so far; 0 once `is_still` returns False.

        Calls `is_still` at most every `LOOK_S` seconds; between, the last result is returned. If it
        returns True, the time since its last call is added, but at most 2 * `LOOK_S`, and just that
        at the first call.
        """
        passed = time.monotonic() - self._looked_at
        if passed >= LOOK_S:
            self._looked_at = time.monotonic()
            self.seconds = self.seconds + min(passed, 2 * LOOK_S) if is_still() else 0.0
        return self.seconds


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine is stopped, as by SIGSTOP.

    One that a debugger holds is not, and neither is one that is gone.
    """
    try:
        about = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # it is gone, or the system has no such files
        return False
    return about.rpartition(b")")[2].split()[:1] == [b"T"]


def memory_of(pid: int) -> int:
    """Return the resident memory of a process and its living descendants, in bytes.

    Returns 0 if it is gone.
    """
    used = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used += int(member.memory_info().rss)
    return used


def find(chosen: str, paths: Iterable[str] = ()) -> Callable[[int], Pool]:
    """Return the constructor of a pool, which takes the number of slots.

    `chosen` is the pool's name, or ``NAME@ADDRESS`` for one on a cluster. `paths` are folders to be
    searched for modules, too. The pool is imported. Raises UsageError if there is no such pool, or
    an address is given for one without a cluster; the address itself is checked later.
    """
    name, _, address = chosen.partition("@")
    kind = KIND.find(name, paths)
    if kind.clustered:
        return partial(kind, address=address)  # type: ignore[call-arg]  # see `Pool.clustered`
    if address:
        hint = "remove --address, or choose a pool on a cluster: --pool dask or --pool ray"
        problem = f"the pool '{printable(name)}' has no cluster"
        raise BadConfig("--address", address, hint=hint, problem=problem)
    return kind


def has_lanes(chosen: str, paths: Iterable[str] = ()) -> bool:
    """Return whether the pool `chosen` requires trials that can be lanes of one compiled program.

    `chosen` is the pool's name, or ``NAME@ADDRESS``; `paths` are folders to be searched for
    modules, too. The pool is imported. Raises UsageError if there is no such pool.
    """
    return KIND.find(chosen.partition("@")[0], paths).lanes


def is_clustered(chosen: str) -> bool:
    """Return whether the name `chosen` contains the address of a cluster."""
    return "@" in chosen


def check(chosen: str, paths: Iterable[str], root: Path) -> None:
    """Raise a SweepError if a sweep in `root` could not use the pool `chosen`.

    Connects to the pool for that, and closes it again.
    """
    with contextlib.closing(find(chosen, paths)(1)) as pool:
        pool.connect(root)


def choose_pool(option: str | None, before: str = "") -> str:
    """Return the name of the pool to use, as ``NAME`` or ``NAME@ADDRESS``.

    `option` is the user's request or None, and `before` the pool that the sweep used last, empty
    for a new one. ``@`` and an address alone keep the name of `before`; that name alone, or no
    request, keeps its address; another name does not. Without any name, it is `DEFAULT`.
    """
    name, _, address = (option or "").partition("@")
    name_before, _, address_before = before.partition("@")
    name = name or name_before or DEFAULT
    if name == name_before:
        address = address or address_before
    return f"{name}@{address}" if address else name
