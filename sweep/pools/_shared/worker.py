"""A worker of a cluster: its one slot, and the functions that the driver calls while a slice runs.

A slice runs in a child of the cluster's worker, in the slot of a pool on this machine, so it runs
as without a cluster: with its threads, its log, its warm trainable, and children of its own. If it
is killed, the cluster's worker survives. The signing key is read from the file on this machine.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle

from sweep import pools
from sweep.core import pickled
from sweep.core.errors import WorkerLost
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.checkpoint import signing
from trainables.errors import SigningError

#: Seconds between two checks whether the driver still wants a slice.
LOOK_S = 0.2
#: Seconds without work after which the slot is closed.
IDLE_S = 600.0
#: Seconds for a worker to end its slices when the pool is closed.
CLOSE_S = 5.0


class _WorkerSlot:
    """The one slot of this process of a cluster: a pool with one child process, and its slices."""

    def __init__(self) -> None:
        self.taken = threading.Lock()
        self.slot: pools.Pool | None = None
        self.running: dict[str, Future[SliceOutcome]] = {}
        self.idle: threading.Timer | None = None

    def open_slot(self) -> pools.Pool:
        """Return the pool of one slot, created if closed, and stop the timer that closes it.

        From now on this process may have children, also if the cluster started it as a daemon.
        """
        if self.idle is not None:
            self.idle.cancel()
        multiprocessing.current_process().daemon = False  # a nanny's workers are; ours watch theirs
        self.slot = self.slot or pools.find(pools.DEFAULT)(1)
        return self.slot

    def close_when_idle(self) -> None:
        """Start a timer that closes the slot after `IDLE_S` seconds, unless a slice runs then.

        The next slice stops it. This frees the slot if its driver has died without notice.
        """
        self.idle = threading.Timer(IDLE_S, self.empty)
        self.idle.daemon = True
        self.idle.start()

    def empty(self) -> None:
        """Close the slot and end its child process, unless a slice runs in it."""
        if self.taken.acquire(blocking=False):
            try:
                slot, self.slot = self.slot, None
                if slot is not None:
                    slot.close()
            finally:
                self.taken.release()


#: The slot of this worker process.
_here = _WorkerSlot()


def describe_worker(probe: Path) -> dict[str, Any]:
    """Return what the driver must know of this worker.

    The dict has the keys ``has`` (versions of libraries), ``now`` (time in seconds since 1970) and
    ``key`` (name of the worker's signing key). ``why``, the reason in words, is added if the worker
    cannot be used: it does not see the file `probe`, or its key, which is then missing, cannot be
    read.
    """
    description: dict[str, Any] = {"has": pickled.libraries(), "now": time.time()}
    try:
        description["key"] = signing.load_trust().name
    except SigningError as error:
        description["why"] = str(error)
    if not probe.exists():
        description["why"] = (
            f"it does not see {probe}; sweeps on a cluster must be in a folder that "
            f"all machines share under the same path"
        )
    return description


def run(key: str, sent: bytes, is_wanted: Callable[[], bool]) -> SliceOutcome:
    """Run a pickled slice in this worker's slot and return its outcome; blocks until it has ended.

    Waits for a slice that still runs there. Checks `is_wanted` every `LOOK_S` seconds: once it
    returns False, the slice's process is killed and WorkerLost raised. It is also raised if the
    process dies; SigningError if the key file on this machine cannot be read. `key` is the slice's
    name in later calls. The slot closes after `IDLE_S` seconds without another slice.
    """
    while not _here.taken.acquire(timeout=LOOK_S):  # another driver's slice, or one to be killed
        if not is_wanted():
            raise WorkerLost(None, None, "its driver has disconnected")
    try:
        spec: SliceSpec = cloudpickle.loads(sent)
        trust = signing.load_trust()
        kept = None if spec.script_file is None else replace(spec.script_file, trust=trust)
        slot = _here.open_slot()
        running = _here.running[key] = slot.submit(replace(spec, trust=trust, script_file=kept))
        while not wait([running], LOOK_S).done:
            if not is_wanted():
                slot.end(
                    running, WorkerLost(None, slot.pid(running), "its driver has disconnected")
                )
        return running.result()
    finally:
        _here.running.pop(key, None)
        _here.close_when_idle()
        _here.taken.release()


def measure(key: str, memory: bool) -> tuple[int | None, int, float]:
    """Return process id, memory in bytes and seconds of standstill of slice `key`.

    The memory is 0 unless `memory` is True. Returns (None, 0, 0.0) if the slice does not run here.
    """
    running, slot = _here.running.get(key), _here.slot
    if running is None or slot is None:
        return None, 0, 0.0
    return slot.pid(running), slot.memory(running) if memory else 0, slot.silence(running)


def end(key: str) -> bool:
    """Kill the process of slice `key` if it runs here, which then fails with WorkerLost.

    Returns True in any case, which shows that this worker responds.
    """
    running, slot = _here.running.get(key), _here.slot
    if running is not None and slot is not None:
        slot.end(running, WorkerLost(None, slot.pid(running), "the driver ended it"))
    return True


def forget(replica: tuple[str, int, int]) -> None:
    """Free the trainable that is kept in memory for an ended replica.

    Does nothing while a slice runs here. `replica` is (ID of the sweep, number of the trial, index
    of the replica).
    """
    if _here.taken.acquire(blocking=False):
        try:
            if _here.slot is not None:
                _here.slot.forget(replica)
        finally:
            _here.taken.release()


def leave(keys: Sequence[str]) -> None:
    """Kill the processes of these slices and close the slot, unless a slice still runs in it.

    Waits up to `CLOSE_S` seconds for their end. Keys of slices that do not run here are skipped.
    """
    left = [running for key in keys if (running := _here.running.get(key)) is not None]
    for key in keys:
        end(key)
    wait(left, CLOSE_S)
    _here.empty()
