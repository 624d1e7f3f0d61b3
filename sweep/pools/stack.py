"""Slots as lanes of one compiled program: hundreds of trials at once in one process, on one device.

Trials must be able to train as lanes (`Trainable.as_lane`). All slices run in one process, which
computes the next iteration of all of them at once (`sweep.slices.stacked`). If it dies, all of them
fail with `WorkerLost`, and a new process runs the next ones. If the memory of its device does not
suffice, the next process has half as many lanes; if the device is lost, no process follows.
"""

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import connection
from typing import Any, ClassVar

from sweep import pools
from sweep.core.errors import StorageError, SweepError, WorkerLost
from sweep.slices import stacked
from sweep.slices.messages import DeviceFailed, Pace, SliceOutcome, SliceSpec
from sweep.views import formatting
from trainables.core.processes.ending import kill_family
from trainables.core.processes.supervised import supervised_context

#: Seconds to wait for the end of the process when the pool is closed.
CLOSE_S = 5.0
#: Advice if the device has failed.
_RESUME = "`sweep resume` continues when there is a device with enough memory"


@dataclass(eq=False)
class _Process:
    """Process that runs all slices, and the futures of those that run."""

    process: Any
    """The process, as an object of `multiprocessing`."""
    requests: Any
    """Pipe to the process: pairs of a request's number and its slice, or None to abort that
    slice."""
    replies: Any
    """Pipe from the process: pairs of a request's number and an outcome, or of None and a `Pace` or
    `DeviceFailed`."""
    running: dict[int, Future[SliceOutcome]] = field(default_factory=dict)
    """Number of a request → future of its outcome."""
    standstill: pools.Standstill = field(default_factory=pools.Standstill)
    """Measures for how long the process has been stopped."""
    pace: Pace | None = None
    """Newest speed and number of lanes that the process reported; None before the first report."""


class Pool(pools.Pool):
    """Pool whose slots are lanes of one compiled program, in one process."""

    blocks: ClassVar[bool] = False
    lanes: ClassVar[bool] = True

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._variables: Mapping[str, str] = {}
        self._now: _Process | None = None
        self._numbers = itertools.count()
        self._most: int | None = None
        """Greatest number of lanes for which the device has memory; None while that has
        sufficed."""
        self._failure = ""
        self._lock = threading.Lock()

    def equip(self, variables: Callable[[int], Mapping[str, str]]) -> None:
        """Set the environment variables that the process gets when it is started next.

        `variables` is a function from a slot's index to the slot's variables; it is called once,
        now, for slot 0.
        """
        self._variables = variables(0)

    def resize(self, slots: int) -> None:
        """Change the number of slots, up to the number of lanes for which the device has memory."""
        self.slots = slots if self._most is None else min(slots, self._most)

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Send a slice to the process that all slices share, which is started if needed.

        Returns the future of its outcome, which fails with WorkerLost if the process dies, and with
        StorageError if the device is lost or its memory does not suffice.
        """
        outcome: Future[SliceOutcome] = Future()
        outcome.set_running_or_notify_cancel()
        with self._lock:
            if self._failure:
                outcome.set_exception(StorageError(self._failure))
                return outcome
            now = self._now
            if now is None or not now.process.is_alive():
                now = self._now = self._start()
            number = next(self._numbers)
            now.running[number] = outcome
        with contextlib.suppress(OSError):  # it has died; `_listen` reports that
            now.requests.send((number, spec))
        return outcome

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """Return the id of the process of all slices; None before it has started."""
        return self._now.process.pid if self._now is not None else None

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the resident memory of the process and its children per running slice, in bytes.

        Returns 0 before the process has started.
        """
        now = self._now
        if now is None:
            return 0
        return pools.memory_of(now.process.pid) // max(1, len(now.running))

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds the process of all slices has been stopped.

        Returns 0 while it runs, and before it has started.
        """
        now = self._now
        if now is None:
            return 0.0
        return now.standstill.check(lambda: pools.is_stopped(now.process.pid))

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """Abort a slice, whose future then fails with `error`; the process continues.

        With WorkerLost the process is killed, and all other slices with it. Does nothing if the
        slice has ended.
        """
        if (now := self._now) is None:
            return
        with self._lock:
            numbers = [number for number, one in now.running.items() if one is running]
            for number in numbers:
                del now.running[number]
        if numbers and isinstance(error, WorkerLost):
            kill_family(now.process.pid)
        elif numbers:
            with contextlib.suppress(OSError):
                now.requests.send((numbers[0], None))
        if numbers:
            running.set_exception(error)

    def failed(self) -> str:
        """Return a sentence on why the device cannot compute any more; empty while it can."""
        return self._failure

    def describe_speed(self) -> str:
        """Return a line with the number of lanes, environment steps per second, and device.

        Returns an empty text before the first report of the process.
        """
        pace = self._now.pace if self._now is not None else None
        if pace is None:
            return ""
        lanes, steps = formatting.plural(pace.lanes, "lane"), pace.steps_per_s
        speed = "" if steps is None else f", {steps:,.0f} environment steps/s"
        return f"{lanes}{speed}" + (f" on {pace.device}" if pace.device else "")

    def close(self) -> None:
        """End the process and wait for that; slices that still run are killed with it.

        An idle process has `CLOSE_S` seconds before it is killed.
        """
        now, self._now = self._now, None
        if now is None:
            return
        now.requests.close()
        if now.running:
            kill_family(now.process.pid)
        now.process.join(CLOSE_S)
        if now.process.is_alive():
            kill_family(now.process.pid)
            now.process.join()

    def _start(self) -> _Process:
        """Start a process for slices, and a thread that receives its replies."""
        requests, theirs = connection.Pipe()
        replies, their_replies = connection.Pipe()
        given = (theirs, their_replies, dict(self._variables), self._most)
        process = supervised_context().Process(target=_serve, args=given)
        process.start()
        theirs.close()
        their_replies.close()
        made = _Process(process, requests, replies)
        threading.Thread(target=self._listen, args=(made,), daemon=True).start()
        return made

    def _listen(self, process: _Process) -> None:
        """Set the futures of slices from the replies of a process, until the process has ended.

        The futures of those that then still run fail with WorkerLost, or with StorageError if the
        process reported that its device failed. Reports of speed go to ``process.pace``. Runs in a
        thread of its own.
        """
        while True:
            try:
                number, message = process.replies.recv()
            except (EOFError, OSError):
                break
            if isinstance(message, Pace):
                process.pace = message
                continue
            if isinstance(message, DeviceFailed):
                self._give_up(process, message)
                return
            with self._lock:
                running = process.running.pop(number, None)
            if running is not None:
                running.set_result(message)
        process.process.join()
        with self._lock:
            left = list(process.running.values())
            process.running.clear()
        for running in left:
            running.set_exception(WorkerLost(process.process.exitcode, process.process.pid))

    def _give_up(self, process: _Process, failure: DeviceFailed) -> None:
        """Kill a process whose device failed.

        Its slices fail with StorageError, which no trial is blamed for. If the memory did not
        suffice, the next process and the pool's slots get half as many lanes, with a message to
        the user; if the device was lost or had one lane, the pool has failed.
        """
        with self._lock:  # no other process may start while this one has the device's memory
            kill_family(process.process.pid)
            process.process.join()
            if failure.lanes is None:
                why = self._failure = f"the device was lost ({failure.reason}); {_RESUME}"
            elif failure.lanes == 1:
                why = f"the device has too little memory for a single trial ({failure.reason})"
                why = self._failure = f"{why}; {_RESUME}"
            else:
                self._most = failure.lanes // 2
                self.slots = min(self.slots, self._most)
                why = (
                    f"the device has too little memory for {failure.lanes} trials at once; the "
                    f"sweep continues with {self._most}"
                )
            if self._now is process:
                self._now = None
            left = list(process.running.values())
            process.running.clear()
        if not self._failure:
            self.say(why)
        for running in left:
            running.set_exception(StorageError(why))


def _serve(requests: Any, replies: Any, variables: Mapping[str, str], limit: int | None) -> None:
    """Run slices until the pool closes the pipe; the main function of the process.

    `variables` are environment variables to set first. `limit` is the greatest number of lanes;
    None sets no limit.
    """
    os.environ.update(variables)
    stacked.serve(requests, replies, limit)
