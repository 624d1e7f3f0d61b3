"""Slots as worker processes of joblib's loky, one executor each.

A loky executor breaks as a whole when one of its workers dies. So each slot has an executor of one
worker: a death costs the slice that ran there, and the neighbours do not notice. A worker is warm:
it keeps its imports and its last trainable, and a trial goes back to the slot that it was in, if
that is free.
"""

import os
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from sweep import pools
from sweep.errors import WorkerLost
from sweep.slice import SliceOutcome, SliceSpec, run_slice
from trainables.processes import die_with_parent, ignore_terminal_signals

#: One thread per worker, set before any library reads it: trials are the parallelism.
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {
    "PYTHONHASHSEED": "0"
}


@dataclass
class _Slot:
    """A place in the pool, and the process in it."""

    number: int
    executor: ProcessPoolExecutor | None = None
    process: Any = None
    busy: bool = False
    last: tuple[str, int, int] | None = None
    """The replica that ran here last."""


class Pool(pools.Pool):
    """`slots` worker processes, started when first needed and replaced when they die."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._slots = [_Slot(number) for number in range(slots)]

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice in a free slot; WorkerLost on its future when the process dies."""
        slot = self._choose((spec.sweep_id, spec.trial, spec.replica))
        slot.busy = True
        outcome: Future[SliceOutcome] = Future()
        outcome.set_running_or_notify_cancel()
        try:
            running = self._start(slot, spec)
        except BrokenProcessPool:  # its worker died while it was idle, which costs nobody anything
            slot.executor = None
            running = self._start(slot, spec)
        running.add_done_callback(lambda done: self._finish(slot, done, outcome))
        return outcome

    def close(self) -> None:
        """Kill the workers; what they had not returned is lost."""
        for slot in self._slots:
            if slot.executor is not None:
                slot.executor.shutdown(wait=True, kill_workers=True)
                slot.executor = None

    @property
    def pids(self) -> list[int]:
        """The worker processes that are alive."""
        return [slot.process.pid for slot in self._slots if slot.executor is not None]

    def _start(self, slot: _Slot, spec: SliceSpec) -> "Future[Any]":
        slot.executor = executor = slot.executor or _start_worker()
        running: Future[Any] = executor.submit(_run_logged, spec)
        slot.process = next(iter(executor._processes.values()), slot.process)
        return running

    def _choose(self, replica: tuple[str, int, int]) -> _Slot:
        free = [slot for slot in self._slots if not slot.busy]
        at_home = [slot for slot in free if slot.last == replica]
        slot = (at_home or sorted(free, key=lambda slot: slot.last is not None))[0]
        slot.last = replica
        return slot

    def _finish(self, slot: _Slot, done: "Future[Any]", outcome: Future[SliceOutcome]) -> None:
        error = done.exception()
        if error is not None and slot.executor is not None:
            slot.executor.shutdown(wait=False, kill_workers=True)
            slot.executor = None
        slot.busy = False
        if isinstance(error, BrokenProcessPool):
            outcome.set_exception(WorkerLost(slot.process.exitcode, slot.process.pid))
        elif error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())


def _start_worker() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        max_workers=1,
        timeout=None,
        initializer=_prepare_worker,
        initargs=(os.getpid(),),
        env=THREADS,
    )


def _prepare_worker(parent: int) -> None:
    die_with_parent(parent)
    ignore_terminal_signals()


def _run_logged(spec: SliceSpec) -> SliceOutcome:
    """Run the slice with this process's output, and that of its children, in the trial's log."""
    sys.stdout.flush()
    sys.stderr.flush()
    log = os.open(Path(spec.folder) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    kept = [os.dup(1), os.dup(2)]
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        return run_slice(spec)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
        for descriptor in (log, *kept):
            os.close(descriptor)
