"""Slots as worker processes of joblib's loky, one executor each.

A loky executor breaks as a whole when one of its workers dies. So each slot has an executor of one
worker: a death costs the slice that ran there, and the neighbours do not notice. A worker is warm:
it keeps its imports and its last trainable, and a trial goes back to the slot that it was in, if
that is free; others go where the last slice ended longest ago. So a trial that rests, and was
not looked at yet, is not driven out by a new one.
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
from sweep.errors import SweepError, WorkerLost
from sweep.slices import isolated
from sweep.slices.log import led_into
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import run_slice
from trainables.core.processes import reaper, worker
from trainables.core.processes.ending import kill_family

#: Seconds that idle workers have to clean up when the pool is closed.
FORGET_S = 5.0
#: Held while a slice ends, so that slots are free in the order in which that is seen from outside.
_ENDING = threading.Lock()


@dataclass(eq=False)
class _Slot:
    """A slot of the pool, and the process in it."""

    number: int
    executor: Any = None
    """A ProcessPoolExecutor of one worker; None: not started, or it failed."""
    process: Any = None
    busy: bool = False
    last: tuple[str, int, int] | None = None
    """The replica that ran here last."""
    outcome: Future[SliceOutcome] | None = None
    """Of the slice that runs here."""
    error: SweepError | None = None
    """Why its process was ended."""
    standstill: pools.Standstill = field(default_factory=pools.Standstill)
    """Of the process while the slice runs."""
    retired: bool = False
    """True if the slot closes once it is idle, because the pool was made smaller."""
    free_since: float = 0.0
    """When its newest slice ended, by the monotonic clock; 0: it has had none."""

    @property
    def alive(self) -> bool:
        """True if there is a process that could take a slice now."""
        return self.executor is not None and worker.is_alive(self.executor)

    def look(self) -> Any:
        """Its process now: loky, which replaces one that has grown, may just have done so."""
        if self.executor is not None:
            self.process = worker.process_of(self.executor) or self.process
        return self.process


class Pool(pools.Pool):
    """`slots` worker processes, replaced when they die.

    Each is started when it is first needed, unless one was started early (`worker.prestarted`).
    """

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int) -> None:
        # loky replaces a worker that has grown by 300 MB between two slices, and says so.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        self.slots = slots
        self._slots = [_Slot(number) for number in range(slots)]
        self._variables: Callable[[int], Mapping[str, str]] = lambda _number: {}

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice in a free slot; WorkerLost on its future when the process dies."""
        slot = self._choose((spec.sweep_id, spec.trial, spec.replica))
        slot.busy = True
        outcome: Future[SliceOutcome] = Future()
        slot.outcome = outcome
        slot.standstill = pools.Standstill()
        outcome.set_running_or_notify_cancel()
        if not slot.alive:
            _end(slot)  # if its worker died while it was idle, that costs nobody anything
            slot.executor = worker.start(self._variables(slot.number))
        with worker.submitting():
            running: Future[SliceOutcome] = slot.executor.submit(
                run_slice, spec, _into_log, isolated.run_isolated
            )
        slot.look()
        running.add_done_callback(lambda done: _finish(slot, done, outcome))
        return outcome

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Give workers that are started from now on these variables too."""
        self._variables = variables

    def resize(self, slots: int) -> None:
        """Start workers when they are needed, or end those that are idle, then those that were."""
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
        """The worker in which a slice runs."""
        slot = self._of(running)
        process = slot.look() if slot is not None else None
        return process.pid if process is not None else None

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds its worker, or its trial's own process, was seen stopped."""
        slot = self._of(running)
        process = slot.look() if slot is not None else None
        if slot is None or process is None:
            return 0.0
        pid = process.pid
        return slot.standstill.look(lambda: any(map(pools.is_stopped, (pid, *_own(pid)))))

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the bytes of memory of the trial's process, be it its own or the slot's."""
        pid = self.pid(running)
        return 0 if pid is None else pools.memory_of(min(_own(pid), default=pid))

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """Kill the worker of a slice with its children; the slot gets another one."""
        slot = self._of(running)
        if slot is None or slot.look() is None:
            return
        slot.error = error
        kill_family(slot.process.pid)

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Have the slot that it ran in last end what is kept there, with all its processes."""
        for slot in self._slots:
            if slot.last == replica and not slot.busy and slot.alive:
                slot.last = None
                slot.executor.submit(isolated.forget)

    def _of(self, running: Future[SliceOutcome]) -> _Slot | None:
        return next((s for s in self._slots if s.busy and s.outcome is running), None)

    def close(self) -> None:
        """Let idle workers end what they keep in memory, then kill all; slices there are lost."""
        slots = [slot for slot in self._slots if slot.alive]
        idle = [slot.executor.submit(isolated.forget) for slot in slots if not slot.busy]
        wait(idle, timeout=FORGET_S)
        for slot in self._slots:
            _end(slot)

    @property
    def pids(self) -> list[int]:
        """The worker processes that are alive."""
        return [slot.look().pid for slot in self._slots if slot.executor is not None]

    def _choose(self, replica: tuple[str, int, int]) -> _Slot:
        free = [slot for slot in self._slots if not slot.busy and not slot.retired]
        at_home = [slot for slot in free if slot.last == replica]
        slot = (at_home or sorted(free, key=lambda slot: slot.free_since))[0]
        slot.last = replica
        return slot


def _finish(slot: _Slot, done: Future[SliceOutcome], outcome: Future[SliceOutcome]) -> None:
    """Hand on what came of a slice; an executor that failed is replaced at its next use."""
    error = done.exception()
    if error is not None and not isinstance(error, WorkerLost):  # of the trial's own process
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
            outcome.set_result(done.result())


def _own(pid: int) -> Iterator[int]:
    """Processes that a worker has forked for a trial, or that such ones have left there."""
    for child in reaper.children(pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == isolated.NAME:
                yield child


def _end(slot: _Slot) -> None:
    executor, slot.executor = slot.executor, None
    if executor is not None:
        worker.end(executor)


@contextlib.contextmanager
def _into_log(spec: SliceSpec) -> Iterator[None]:
    """Lead this process's output, and that of its children, into the trial's log."""
    worker.measure_memory()
    with led_into(Path(spec.folder), spec.log_bytes):
        yield
