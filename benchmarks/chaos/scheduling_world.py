"""Everything that a driver meets, in one thread and on a clock of its own: workers, disk, database.

The driver, the ledger, schedulers, searchers, slices and checkpoint files are the real ones. A
slice does not run before it is told to, and then runs at once to its end, as a process that nobody
disturbs; `Trouble` says what happens to it on its way. A `Fuse` ends the driver, or makes its
database fail, at a place that it passes. Times are seconds.
"""

import contextlib
import functools
import sqlite3
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any, ClassVar
from unittest import mock

import sweep.driver.driver
import sweep.driver.limits
import sweep.ledger.hold
import sweep.ledger.ledger
import sweep.ledger.requests
import sweep.slices.checkpoints
import sweep.slices.reports
import sweep.slices.slice
import trainables.trainable
from benchmarks.chaos.scheduling_walk import Here
from benchmarks.chaos.scheduling_way import Clock, Died, Trouble, Way
from benchmarks.chaos.store_cases import Failed
from sweep import pools
from sweep.driver.creation import provenance
from sweep.errors import WorkerLost
from sweep.ledger import ledger as clock
from sweep.ledger import tables
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.core import failpoints

#: The same for all, and slow to find out.
_provenance = functools.cache(provenance.current)
#: What a `Fuse` may be at: each failpoint that a driver passes; just before a commit; a statement
#: that fails; a commit that does.
FUSES = (
    "decided",
    "submitted",
    "recorded",
    *failpoints.REQUEST_PLACES,
    "commit",
    "statement",
    "full",
)
Place = tuple[int, int]
"""Trial and replica."""


class Killed(BaseException):
    """The driver's process is gone, at once."""


def claim(holds: bool, what: str) -> None:
    """Raises `Failed` if it does not hold."""
    if not holds:
        raise Failed(what)


@dataclass
class Fuse:
    """The point at which the driver ends, or its database fails."""

    kind: str
    """One of `FUSES`."""
    count: int
    """The how-manieth time."""
    burnt: bool = False

    def at(self, kind: str) -> bool:
        """Return whether the fuse burns now."""
        if self.kind != kind or self.burnt:
            return False
        self.count -= 1
        self.burnt = self.count <= 0
        return self.burnt


@dataclass(eq=False)
class Slice:
    """A slice on its way."""

    spec: SliceSpec
    future: Future[SliceOutcome]

    @property
    def place(self) -> Place:
        """Whose it is."""
        return self.spec.trial, self.spec.replica


class Pool(pools.Pool):
    """Slots whose slices run when the world says so."""

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int, world: "World") -> None:
        self.slots = slots
        self.under_way: list[Slice] = []
        self._world = world

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Take a slice; a pool is never given more than it has slots, nor two of one replica."""
        new = Slice(spec, Future())
        claim(len(self.under_way) < self.slots, "more slices than slots")
        claim(new.place not in [one.place for one in self.under_way], f"{new.place} runs twice")
        self.under_way.append(new)
        return new.future

    def resize(self, slots: int) -> None:
        """From now on."""
        self.slots = slots

    def close(self) -> None:
        """The driver is gone; what ran may go on for a while."""
        self._world.orphans += self.under_way
        self.under_way = []
        self._world.processes.clear()


class _Connection:
    """A connection to a database of ours, in a world that may refuse each statement."""

    def __init__(self, inner: sqlite3.Connection, world: "World") -> None:
        self._inner = inner
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        self._world.before(statement)
        return self._inner.execute(statement, *parameters)

    def executemany(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        self._world.before(statement)
        return self._inner.executemany(statement, *parameters)


class _Ended:
    """Slices that have ended, as a `SimpleQueue` that is waited for on a clock of this world."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slices: deque[Future[SliceOutcome]] = deque()
        self.put = self._slices.append

    def get(self, timeout: float) -> Future[SliceOutcome]:
        """The first; Empty if there is none, also if one ends meanwhile."""
        if not self._slices:
            self._clock.sleep(timeout)
            raise Empty
        return self.get_nowait()

    def get_nowait(self) -> Future[SliceOutcome]:
        """The first; Empty if there is none."""
        if not self._slices:
            raise Empty
        return self._slices.popleft()


@dataclass
class World:
    """Clocks, workers, and what goes wrong; `folder` is for its own files."""

    folder: Path
    clock: Clock = field(default_factory=Clock)
    worker_clock: Clock = field(default_factory=Clock)
    orphans: list[Slice] = field(default_factory=list)
    """Slices whose driver is gone."""
    processes: dict[Place, Any] = field(default_factory=dict)
    """The memory of the process in which a replica ran last."""
    fuse: Fuse | None = None
    _way: Way | None = None
    _driving: int = 0
    """The thread in which a driver is at work; 0: none."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Whoever asks for the time, sleeps, waits or passes a failpoint asks this world."""
        driver, worker = self.clock, self.worker_clock
        with contextlib.ExitStack() as stack:
            for module in (
                sweep.driver.driver,
                sweep.driver.limits,
                sweep.slices.reports,
                sweep.ledger.requests,
                sweep.ledger.ledger,
                sweep.driver.limits,
            ):
                stack.enter_context(mock.patch.object(module, "time", driver))
            for module in (sweep.slices.slice, sweep.slices.checkpoints, trainables.trainable):
                stack.enter_context(mock.patch.object(module, "time", worker))
            # What is held is written by a thread on the real clock: here only a slice itself does.
            wake = mock.patch.object(sweep.slices.checkpoints.Saving, "_schedule_write")
            stack.enter_context(wake)
            # Signs of life are given by a thread on the real clock: here nobody hears any.
            never = threading.TIMEOUT_MAX
            stack.enter_context(mock.patch.object(sweep.ledger.hold, "RENEW_S", never))
            stack.enter_context(mock.patch.object(clock, "now", driver.time))
            ended = functools.partial(_Ended, driver)
            stack.enter_context(mock.patch.object(sweep.driver.driver, "SimpleQueue", ended))
            stack.enter_context(mock.patch.object(failpoints, "reach", self._reach))
            stack.enter_context(mock.patch.object(provenance, "current", _provenance))
            stack.enter_context(mock.patch.object(Here, "beside", self._beside))
            stack.enter_context(mock.patch.object(cache, "_process", cache._Process()))
            opened = tables.opened
            stack.enter_context(
                mock.patch.object(tables, "opened", lambda path: _Connection(opened(path), self))
            )
            yield

    # ---- the driver -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """While this is entered, it is the driver whom a fuse meets."""
        self._driving = threading.get_ident()
        try:
            yield
        finally:
            self._driving = 0

    def _reach(self, place: str) -> None:
        if self._way is not None:
            self._way.reach(place)
        elif self._meets(place):
            raise Killed(place)

    def _meets(self, kind: str) -> bool:
        its = self._driving == threading.get_ident()
        return its and self.fuse is not None and self.fuse.at(kind)

    def before(self, statement: str) -> None:
        """A statement is about to be sent to a database of ours."""
        ends = statement in ("COMMIT", "ROLLBACK")
        if not ends and self._meets("statement"):
            raise sqlite3.OperationalError("disk I/O error")
        if statement == "COMMIT" and self._meets("commit"):
            raise Killed("commit")
        if statement == "COMMIT" and self._meets("full"):
            raise sqlite3.OperationalError("database or disk is full")

    # ---- workers --------------------------------------------------------------------------------

    def play(self, one: Slice, trouble: Trouble) -> SliceOutcome | WorkerLost:
        """Run a slice to its end, and hand over what came of it."""
        way = Way(one.spec, trouble, self.folder, self.worker_clock)
        known = None if trouble.cold else self.processes.get(one.place)
        cache._process = known or cache._Process()
        self._way = way
        try:
            outcome: SliceOutcome | WorkerLost = sweep.slices.slice.run_slice(way.spec)
            self.processes[one.place] = cache._process
        except Died:
            self.processes.pop(one.place, None)
            outcome = WorkerLost(-9, 1)
        finally:
            self._way = None
            way.close()
        return outcome

    def _beside(self, seconds: float) -> None:
        if self._way is not None:
            self._way.iterate(seconds)
