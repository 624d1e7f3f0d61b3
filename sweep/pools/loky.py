"""Slots as worker processes of joblib's loky, one executor each.

A loky executor breaks as a whole when one of its workers dies. So each slot has an executor of one
worker: a death costs the slice that ran there, and the neighbours do not notice. A worker is warm:
it keeps its imports and its last trainable, and a trial goes back to the slot that it was in, if
that is free.
"""

import contextlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any, ClassVar

from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from sweep import pools, warm
from sweep.errors import WorkerLost
from sweep.slice import SliceOutcome, SliceSpec, run_slice
from trainables.processes import (
    TERMINAL_SIGNALS,
    Parent,
    die_with_parent,
    ignore_terminal_signals,
    this_process,
)

#: One thread per worker, set before any library reads it: trials are the parallelism.
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1") | {
    "PYTHONHASHSEED": "0"
}
#: Seconds that idle workers have to clean up when the pool is closed.
FORGET_S = 5.0


@dataclass
class _Slot:
    """A place in the pool, and the process in it."""

    number: int
    executor: Any = None
    """A ProcessPoolExecutor of one worker; None: not started, or it failed."""
    process: Any = None
    busy: bool = False
    last: tuple[str, int, int] | None = None
    """The replica that ran here last."""

    @property
    def alive(self) -> bool:
        """Whether there is a process that could take a slice now."""
        return self.executor is not None and not connection.wait([self.process.sentinel], 0)


class Pool(pools.Pool):
    """`slots` worker processes, started when first needed and replaced when they die."""

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int) -> None:
        # loky replaces a worker that has grown by 300 MB between two slices, and says so.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        self.slots = slots
        self._slots = [_Slot(number) for number in range(slots)]

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice in a free slot; WorkerLost on its future when the process dies."""
        slot = self._choose((spec.sweep_id, spec.trial, spec.replica))
        slot.busy = True
        outcome: Future[SliceOutcome] = Future()
        outcome.set_running_or_notify_cancel()
        self._start(slot, spec, outcome)
        return outcome

    def close(self) -> None:
        """Let idle workers end what they keep in memory, then kill all; slices there are lost."""
        slots = [slot for slot in self._slots if slot.alive]
        idle = [slot.executor.submit(warm.forget) for slot in slots if not slot.busy]
        wait(idle, timeout=FORGET_S)
        for slot in self._slots:
            _end(slot)

    @property
    def pids(self) -> list[int]:
        """The worker processes that are alive."""
        return [slot.process.pid for slot in self._slots if slot.executor is not None]

    def _choose(self, replica: tuple[str, int, int]) -> _Slot:
        free = [slot for slot in self._slots if not slot.busy]
        at_home = [slot for slot in free if slot.last == replica]
        slot = (at_home or sorted(free, key=lambda slot: slot.last is not None))[0]
        slot.last = replica
        return slot

    def _start(self, slot: _Slot, spec: SliceSpec, outcome: Future[SliceOutcome]) -> None:
        # Until a worker has handlers of its own, and for loky's own helper process for good.
        with _blocked(*TERMINAL_SIGNALS):
            if not slot.alive:
                _end(slot)  # if its worker died while it was idle, that costs nobody anything
                slot.executor = _start_worker()
            running: Future[SliceOutcome] = slot.executor.submit(_run_logged, spec)
        slot.process = next(iter(slot.executor._processes.values()), slot.process)
        running.add_done_callback(lambda done: _finish(slot, done, outcome))


def _finish(slot: _Slot, done: Future[SliceOutcome], outcome: Future[SliceOutcome]) -> None:
    """Hand on what came of a slice; an executor that failed is replaced at its next use."""
    error = done.exception()
    if error is not None:
        _end(slot)
    slot.busy = False
    if isinstance(error, BrokenProcessPool):
        outcome.set_exception(WorkerLost(slot.process.exitcode, slot.process.pid))
    elif error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())


def _end(slot: _Slot) -> None:
    executor, slot.executor = slot.executor, None
    if executor is not None:
        executor.shutdown(wait=False, kill_workers=True)


@contextlib.contextmanager
def _blocked(*numbers: signal.Signals) -> Iterator[None]:
    """While it is entered, signals wait; in processes started in it, until they are unblocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_worker() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        max_workers=1,
        timeout=None,
        initializer=_prepare_worker,
        initargs=(this_process(),),
        env=THREADS,
    )


def _prepare_worker(parent: Parent) -> None:
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
