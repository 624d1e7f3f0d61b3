"""The environment of a driver in one thread, with a simulated clock: workers, disk, database.

Driver, ledger, schedulers, searchers, slices and checkpoint files are real. A slice runs when the
test decides, and at once to its end, with the failures of a `Failure`. A `Fuse` kills the driver,
or lets its database fail, at a certain point. Times are in seconds.
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
from benchmarks.chaos.scheduling_way import Clock, Died, Failure, SliceRun
from benchmarks.chaos.store_cases import Failed
from sweep import pools
from sweep.core.errors import WorkerLost
from sweep.driver.start.creation import provenance
from sweep.ledger import ledger as clock
from sweep.ledger import tables
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.core import failpoints

#: Provenance, cached because it is slow.
_provenance = functools.cache(provenance.current)
#: Kinds of a `Fuse`: the failpoints of a driver, a kill before a commit, a failing statement, and a
#: failing commit.
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
    """The process of the driver is killed."""


def require(condition: bool, message: str) -> None:
    """Raise `Failed` with the message if the condition does not hold."""
    if not condition:
        raise Failed(message)


@dataclass
class Fuse:
    """Point at which the driver is killed, or its database fails."""

    kind: str
    """One of `FUSES`."""
    count: int
    """Number of passages of this point until the failure."""
    burnt: bool = False
    """True after the failure."""

    def burns(self, kind: str) -> bool:
        """Count a passage of this kind; return whether it fails."""
        if self.kind != kind or self.burnt:
            return False
        self.count -= 1
        self.burnt = self.count <= 0
        return self.burnt


@dataclass(eq=False)
class Slice:
    """A running slice."""

    spec: SliceSpec
    future: Future[SliceOutcome]

    @property
    def place(self) -> Place:
        """Trial and replica of the slice."""
        return self.spec.trial, self.spec.replica


class Pool(pools.Pool):
    """Slots whose slices run when the test decides."""

    blocks: ClassVar[bool] = False

    def __init__(self, slots: int, world: "World") -> None:
        self.slots = slots
        self.running: list[Slice] = []
        self._world = world

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Store a slice; require that there is a free slot, and no other slice of the replica."""
        new = Slice(spec, Future())
        require(len(self.running) < self.slots, "more slices than slots")
        require(new.place not in [one.place for one in self.running], f"{new.place} runs twice")
        self.running.append(new)
        return new.future

    def resize(self, slots: int) -> None:
        """Change the number of slots."""
        self.slots = slots

    def close(self) -> None:
        """End the pool; its running slices become orphans."""
        self._world.orphans += self.running
        self.running = []
        self._world.processes.clear()


class _Connection:
    """Connection to a database in which statements may fail."""

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


class _EndedSlices:
    """Queue of ended slices, like `SimpleQueue`, with waits on the simulated clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._slices: deque[Future[SliceOutcome]] = deque()
        self.put = self._slices.append

    def get(self, timeout: float) -> Future[SliceOutcome]:
        """Return the first slice; raise Empty after the timeout if there is none."""
        if not self._slices:
            self._clock.sleep(timeout)
            raise Empty
        return self.get_nowait()

    def get_nowait(self) -> Future[SliceOutcome]:
        """Return the first slice; raise Empty if there is none."""
        if not self._slices:
            raise Empty
        return self._slices.popleft()


@dataclass
class World:
    """Clocks, workers and failures."""

    folder: Path
    """Folder for its own files."""
    clock: Clock = field(default_factory=Clock)
    worker_clock: Clock = field(default_factory=Clock)
    orphans: list[Slice] = field(default_factory=list)
    """Slices whose driver has ended."""
    processes: dict[Place, Any] = field(default_factory=dict)
    """Replica → memory of the process in which it ran last."""
    fuse: Fuse | None = None
    _run: SliceRun | None = None
    _driving: int = 0
    """Id of the thread in which a driver runs; 0 if none does."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Replace time, waits, failpoints and databases of all modules by those of this world."""
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
            # Deferred writes are made by the slice itself instead of a thread with the real clock.
            wake = mock.patch.object(sweep.slices.checkpoints.Saving, "_schedule_write")
            stack.enter_context(wake)
            # Signs of life, made by a thread with the real clock, are switched off.
            never = threading.TIMEOUT_MAX
            stack.enter_context(mock.patch.object(sweep.ledger.hold, "RENEW_S", never))
            stack.enter_context(mock.patch.object(clock, "now", driver.time))
            ended_slices = functools.partial(_EndedSlices, driver)
            stack.enter_context(mock.patch.object(sweep.driver.driver, "SimpleQueue", ended_slices))
            stack.enter_context(mock.patch.object(failpoints, "reach", self._reach))
            stack.enter_context(mock.patch.object(provenance, "current", _provenance))
            stack.enter_context(mock.patch.object(Here, "on_iteration", self._on_iteration))
            stack.enter_context(mock.patch.object(cache, "_process", cache._Process()))
            opened = tables.opened
            stack.enter_context(
                mock.patch.object(tables, "opened", lambda path: _Connection(opened(path), self))
            )
            yield

    # ---- the driver -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Let fuses act on this thread meanwhile."""
        self._driving = threading.get_ident()
        try:
            yield
        finally:
            self._driving = 0

    def _reach(self, place: str) -> None:
        if self._run is not None:
            self._run.reach(place)
        elif self._burns(place):
            raise Killed(place)

    def _burns(self, kind: str) -> bool:
        is_driver = self._driving == threading.get_ident()
        return is_driver and self.fuse is not None and self.fuse.burns(kind)

    def before(self, statement: str) -> None:
        """Fail if a fuse is at this statement of a database."""
        ends = statement in ("COMMIT", "ROLLBACK")
        if not ends and self._burns("statement"):
            raise sqlite3.OperationalError("disk I/O error")
        if statement == "COMMIT" and self._burns("commit"):
            raise Killed("commit")
        if statement == "COMMIT" and self._burns("full"):
            raise sqlite3.OperationalError("database or disk is full")

    # ---- workers --------------------------------------------------------------------------------

    def run(self, one: Slice, failure: Failure) -> SliceOutcome | WorkerLost:
        """Run a slice to its end; return its outcome or the loss of its worker."""
        run = SliceRun(one.spec, failure, self.folder, self.worker_clock)
        known = None if failure.cold else self.processes.get(one.place)
        cache._process = known or cache._Process()
        self._run = run
        try:
            outcome: SliceOutcome | WorkerLost = sweep.slices.slice.run_slice(run.spec)
            self.processes[one.place] = cache._process
        except Died:
            self.processes.pop(one.place, None)
            outcome = WorkerLost(-9, 1)
        finally:
            self._run = None
            run.close()
        return outcome

    def _on_iteration(self, seconds: float) -> None:
        if self._run is not None:
            self._run.iterate(seconds)
