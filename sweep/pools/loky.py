"""Slots as worker processes of joblib's loky, one executor each.

A loky executor breaks as a whole when one of its workers dies. So each slot has an executor of one
worker: a death costs the slice that ran there, and no other. A worker stays warm: it keeps its
imports and its last trainable. A trial returns to its last slot if that is free; otherwise it gets
the slot that has been free for the longest time, so that recently paused trials stay in memory.
"""

import contextlib
import itertools
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from joblib.externals.loky.process_executor import BrokenProcessPool

from sweep import pools
from sweep.core.errors import SweepError, WorkerLost
from sweep.slices import isolated
from sweep.slices.log import redirected_into
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import run_slice
from trainables.core.processes import reaper, worker
from trainables.core.processes.ending import kill_family

#: Seconds for idle workers to clean up when the pool is closed.
FORGET_S = 5.0
#: Held while a slice ends, so that slots become free in the order in which futures are done.
_ENDING = threading.Lock()


@dataclass(eq=False)
class _Slot:
    """Slot of the pool, with the worker process in it."""

    number: int
    """Index of the slot, from 0."""
    executor: Any = None
    """loky's executor of one worker process; None before its start and after a failure."""
    process: Any = None
    """Worker process, as an object of `multiprocessing`; None before the first start."""
    busy: bool = False
    """True while a slice runs in the slot."""
    last: tuple[str, int, int] | None = None
    """ID of the sweep, number of the trial and index of the replica of the slot's newest slice;
    None before the first."""
    outcome: Future[SliceOutcome] | None = None
    """Future of the newest slice; None before the first."""
    error: SweepError | None = None
    """Reason for which the driver ended the slice's process; None while it has not."""
    standstill: pools.Standstill = field(default_factory=pools.Standstill)
    """Measures for how long the process has been stopped during the slice."""
    retired: bool = False
    """True if the slot is to close once it is idle, because the pool has shrunk."""
    free_since: float = 0.0
    """Time at which the slot's newest slice ended, in seconds of the monotonic clock; 0 before the
    first one."""

    @property
    def alive(self) -> bool:
        """True if the slot has a worker process that could take a slice now."""
        return self.executor is not None and worker.is_alive(self.executor)

    def current_process(self) -> Any:
        """Return the worker process, updated, since loky replaces one whose memory has grown.

        Returns None before the first start.
        """
        if self.executor is not None:
            self.process = worker.process_of(self.executor) or self.process
        return self.process


class Pool(pools.Pool):
    """Pool of worker processes on this machine, each replaced when it dies.

    A process starts when its slot is first needed, unless one was started early
    (`worker.prestarted`).
    """

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int) -> None:
        # loky replaces a worker that has grown by 300 MB between two slices, and warns about it.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        self.slots = slots
        self._slots = [_Slot(number) for number in range(slots)]
        self._variables: Callable[[int], Mapping[str, str]] = lambda _number: {}

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Start a slice in a free slot, which must exist, and return the future of its outcome.

        The slot in which the trial ran last is preferred. A worker process is started if the slot
        has none that lives. The future fails with WorkerLost if the process dies.
        """
        slot = self._choose((spec.sweep_id, spec.trial, spec.replica))
        slot.busy = True
        outcome: Future[SliceOutcome] = Future()
        slot.outcome = outcome
        slot.standstill = pools.Standstill()
        outcome.set_running_or_notify_cancel()
        if not slot.alive:
            _end(slot)  # its worker may have died while it was idle, which costs nothing
            slot.executor = worker.start(self._variables(slot.number))
        with worker.submitting():
            running: Future[SliceOutcome] = slot.executor.submit(
                run_slice, spec, _redirect_output, isolated.run_isolated
            )
        slot.current_process()
        running.add_done_callback(lambda done: _finish(slot, done, outcome))
        return outcome

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Set a function that returns additional environment variables of a slot's worker.

        It is called with the slot's index, for processes that start from now on.
        """
        self._variables = variables

    def resize(self, slots: int) -> None:
        """Change the number of slots; surplus idle workers end now, busy ones after their slice."""
        by_use = sorted(self._slots, key=lambda slot: (not slot.busy, slot.retired, slot.number))
        for index, slot in enumerate(by_use):
            slot.retired = index >= slots
        taken = {slot.number for slot in by_use[:slots]}
        spare = (number for number in itertools.count() if number not in taken)
        more = [_Slot(number) for number in itertools.islice(spare, slots - len(taken))]
        self._slots = [slot for slot in by_use if slot.busy or not slot.retired] + more
        self.slots = slots
        for slot in by_use:
            if slot not in self._slots:
                _end(slot)

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """Return the process id of the worker that runs a slice; None if the slice has ended.

        The trial may run in a process that this worker has forked.
        """
        slot = self._slot_of(running)
        process = slot.current_process() if slot is not None else None
        return process.pid if process is not None else None

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds a slice's worker has been stopped; 0 while it runs.

        The process that the worker forked for the trial counts like the worker. Returns 0 if the
        slice has ended.
        """
        slot = self._slot_of(running)
        process = slot.current_process() if slot is not None else None
        if slot is None or process is None:
            return 0.0
        pid = process.pid
        return slot.standstill.check(
            lambda: any(map(pools.is_stopped, (pid, *_trial_processes(pid))))
        )

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the memory of the process that runs a slice's trial and its children, in bytes.

        Returns 0 if it has ended.
        """
        pid = self.pid(running)
        return 0 if pid is None else pools.memory_of(min(_trial_processes(pid), default=pid))

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """Kill the worker of a slice with its children; the slice's future then fails with `error`.

        The slot gets a new worker with its next slice. Does nothing if the slice has ended.
        """
        slot = self._slot_of(running)
        if slot is None or slot.current_process() is None:
            return
        slot.error = error
        kill_family(slot.process.pid)

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Let the replica's last slot, if idle, free the trainable and processes that it keeps."""
        for slot in self._slots:
            if slot.last == replica and not slot.busy and slot.alive:
                slot.last = None
                slot.executor.submit(isolated.forget)

    def _slot_of(self, running: Future[SliceOutcome]) -> _Slot | None:
        """Return the slot in which a slice runs; None if the slice has ended."""
        return next((s for s in self._slots if s.busy and s.outcome is running), None)

    def close(self) -> None:
        """Let idle workers free what they keep, then kill all workers.

        Waits up to `FORGET_S` seconds for the idle ones.
        """
        slots = [slot for slot in self._slots if slot.alive]
        idle = [slot.executor.submit(isolated.forget) for slot in slots if not slot.busy]
        wait(idle, timeout=FORGET_S)
        for slot in self._slots:
            _end(slot)

    @property
    def pids(self) -> list[int]:
        """Process ids of the slots' present workers, without slots that have none."""
        return [slot.current_process().pid for slot in self._slots if slot.executor is not None]

    def _choose(self, replica: tuple[str, int, int]) -> _Slot:
        """Return a free slot for a replica, noting the replica as its last one.

        It is the replica's last slot if that is free, else the one that has been free longest. The
        pool must have a free slot.
        """
        free = [slot for slot in self._slots if not slot.busy and not slot.retired]
        at_home = [slot for slot in free if slot.last == replica]
        slot = (at_home or sorted(free, key=lambda slot: slot.free_since))[0]
        slot.last = replica
        return slot


def _finish(slot: _Slot, future: Future[SliceOutcome], outcome: Future[SliceOutcome]) -> None:
    """Free the slot of a slice that has ended, and set the result or error of its future `outcome`.

    `future` is loky's future of the slice. The error is the driver's reason if it ended the
    process, WorkerLost if the process died, else that of the slice. A failed executor is ended, and
    replaced at its next use; a retired slot ends its executor, too.
    """
    error = future.exception()
    if error is not None and not isinstance(error, WorkerLost):  # not the trial's own process
        _end(slot)
    ended, slot.error = slot.error, None
    with _ENDING:
        slot.free_since, slot.busy = time.monotonic(), False
        if slot.retired:
            _end(slot)
        if isinstance(error, BrokenProcessPool | WorkerLost) and ended is not None:
            outcome.set_exception(ended)
        elif isinstance(error, BrokenProcessPool):
            outcome.set_exception(WorkerLost(slot.process.exitcode, slot.process.pid))
        elif error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(future.result())


def _trial_processes(pid: int) -> Iterator[int]:
    """Yield the ids of processes that worker `pid` has forked for trials (`slices.isolated`)."""
    for child in reaper.children(pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == isolated.NAME:
                yield child


def _end(slot: _Slot) -> None:
    """End the executor and process of a slot, if it has one."""
    executor, slot.executor = slot.executor, None
    if executor is not None:
        worker.end(executor)


@contextlib.contextmanager
def _redirect_output(spec: SliceSpec) -> Iterator[None]:
    """Write the output of this process and its children into the trial's log, inside the block.

    Runs in the worker. The log is rotated above the spec's limit.
    """
    worker.measure_memory()
    with redirected_into(Path(spec.folder), spec.log_bytes):
        yield
