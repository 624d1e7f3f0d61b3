"""A worker of a cluster: its one slot, and what its driver asks of it beside a slice.

A slice runs in a child of the cluster's worker, in one slot of our own pool, so it runs as it would
on one machine: with its threads, its log, its warm trainable, and with children of its own. What
kills it costs the cluster nothing. The signing key was not sent: it is read from the file here.
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

from sweep import pickled, pools
from sweep.errors import WorkerLost
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.checkpoint import signing
from trainables.errors import SigningError

#: Seconds between two looks whether somebody still waits for a slice.
LOOK_S = 0.2
#: Seconds for which a trainable is kept warm when nothing runs here.
IDLE_S = 600.0
#: Seconds that a worker has to end what it runs for a pool that is closed.
CLOSE_S = 5.0


class _Here:
    """The one slot of this process, and what runs in it."""

    def __init__(self) -> None:
        self.taken = threading.Lock()
        self.slot: pools.Pool | None = None
        self.running: dict[str, Future[SliceOutcome]] = {}
        self.idle: threading.Timer | None = None

    def open_slot(self) -> pools.Pool:
        """The slot; its process is allowed to have children, which die with it."""
        if self.idle is not None:
            self.idle.cancel()
        multiprocessing.current_process().daemon = False  # a nanny's workers are; ours watch theirs
        self.slot = self.slot or pools.find(pools.DEFAULT)(1)
        return self.slot

    def release_if_idle(self) -> None:
        """Let the slot go if nobody uses it for a while: its driver may have been killed."""
        self.idle = threading.Timer(IDLE_S, self.empty)
        self.idle.daemon = True
        self.idle.start()

    def empty(self) -> None:
        """Let the slot go, unless something runs in it."""
        if self.taken.acquire(blocking=False):
            try:
                slot, self.slot = self.slot, None
                if slot is not None:
                    slot.close()
            finally:
                self.taken.release()


_here = _Here()


def describe_worker(probe: Path) -> dict[str, Any]:
    """Return this worker's versions and key, or the reason why it cannot be used."""
    found: dict[str, Any] = {"has": pickled.libraries(), "now": time.time()}
    try:
        found["key"] = signing.load_trust().name
    except SigningError as error:
        found["why"] = str(error)
    if not probe.exists():
        found["why"] = (
            f"it does not see {probe}; sweeps on a cluster lie in a folder that "
            f"all machines share under one path"
        )
    return found


def run(key: str, sent: bytes, is_wanted: Callable[[], bool]) -> SliceOutcome:
    """Run the slice `key` in this worker's slot, as long as somebody waits for it."""
    while not _here.taken.acquire(timeout=LOOK_S):  # another driver's slice, or one to be killed
        if not is_wanted():
            raise WorkerLost(None, None, "its driver has left")
    try:
        spec: SliceSpec = cloudpickle.loads(sent)
        trust = signing.load_trust()
        kept = None if spec.kept is None else replace(spec.kept, trust=trust)
        slot = _here.open_slot()
        running = _here.running[key] = slot.submit(replace(spec, trust=trust, kept=kept))
        while not wait([running], LOOK_S).done:
            if not is_wanted():
                slot.end(running, WorkerLost(None, slot.pid(running), "its driver has left"))
        return running.result()
    finally:
        _here.running.pop(key, None)
        _here.release_if_idle()
        _here.taken.release()


def measure(key: str, memory: bool) -> tuple[int | None, int, float]:
    """Process, memory if asked for, and seconds of standstill, of a slice that runs here."""
    running, slot = _here.running.get(key), _here.slot
    if running is None or slot is None:
        return None, 0, 0.0
    return slot.pid(running), slot.memory(running) if memory else 0, slot.silence(running)


def end(key: str) -> bool:
    """Kill the process of a slice; the answer says that this worker does not stand still."""
    running, slot = _here.running.get(key), _here.slot
    if running is not None and slot is not None:
        slot.end(running, WorkerLost(None, slot.pid(running), "it was ended"))
    return True


def forget(replica: tuple[str, int, int]) -> None:
    """End what is kept warm of a replica that has ended, unless a slice runs here by now."""
    if _here.taken.acquire(blocking=False):
        try:
            if _here.slot is not None:
                _here.slot.forget(replica)
        finally:
            _here.taken.release()


def leave(keys: Sequence[str]) -> None:
    """Kill the processes of these slices, then let go of what is kept warm."""
    left = [running for key in keys if (running := _here.running.get(key)) is not None]
    for key in keys:
        end(key)
    wait(left, CLOSE_S)
    _here.empty()
