"""A random sweep with its drivers, requests and environment, and the events of the machine."""

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.chaos.scheduling_oracle import Oracle
from benchmarks.chaos.scheduling_way import Died, Failure
from benchmarks.chaos.scheduling_world import Killed, Pool, Slice, World, require
from sweep import spec as specs
from sweep.core.errors import StorageError, SweepLocked
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.creation import creating, resolving
from sweep.driver.start.launch import Launch
from sweep.history.events import Closed, Created, LimitsChanged, Status
from sweep.ledger import lease
from sweep.ledger.folder import Folder
from sweep.ledger.requests import Requests, Verb

#: Number of turns within which an undisturbed sweep must end.
MOST_TURNS = 500
PLENTY = 10**9
#: No failure.
QUIET = Failure()
_MEMORY = Path("/dev/shm")  # noqa: S108 names in it are unique


class Term:
    """One running driver."""

    def __init__(self, request: Launch, world: World) -> None:
        made_pools: list[Pool] = []

        def make(slots: int) -> Pool:
            made_pools.append(Pool(slots, world))
            return made_pools[0]

        with contextlib.ExitStack() as stack:
            parts, _ = stack.enter_context(launch.open_context(request, make))
            self.pool = made_pools[0]
            self.driver = Driver(parts, lambda _records: None)
            self.turns = self.driver.turns()
            self.stack = stack.pop_all()

    def leave(self, error: BaseException) -> None:
        """End the driver by an error in its process."""
        self.turns.close()
        with contextlib.suppress(type(error)):
            self.stack.__exit__(type(error), error, None)


class Stage:
    """A sweep and its events; until `close`, modules of sweep are patched."""

    def __init__(self, spec: Mapping[str, Any], slots: int) -> None:
        with contextlib.ExitStack() as stack:
            memory = _MEMORY if _MEMORY.is_dir() else None
            made = tempfile.TemporaryDirectory(prefix="sweep-drawn-", dir=memory)
            place = Path(stack.enter_context(made))
            (place / "world").mkdir()
            self.world = World(place / "world")
            stack.enter_context(self.world.entered())
            source = json.dumps(dict(spec))
            resolved = resolving.resolve(specs.parse(source, "drawn"), (), is_new=True)
            self.folder = Folder(place, resolved.spec.name)
            creating.create(self.folder, resolved, source)
            self.oracle = Oracle(self.folder)
            stack.callback(self.oracle.close)
            self.requests = Requests(self.folder.ledger)
            stack.callback(self.requests.close)
            self.stack = stack.pop_all()
        self.slots = slots
        self.term: Term | None = None
        self.older: list[Term] = []
        """Drivers that have lost the sweep to another driver, and do not know it."""
        self.finished = False
        self.ends: list[str] = []
        """End of each term: how its driver ended."""
        self.requested: dict[int, tuple[Verb, Mapping[str, Any]]] = {}
        """Number of a request → verb and body."""
        self.changed_trials: Counter[Any] = Counter()
        """Numbers of trials given to `sweep resume` that were recorded as changes."""
        self.is_undisturbed = True
        """True until a request or an option may change decisions."""

    def close(self) -> None:
        """End all drivers, and remove the patches."""
        with self.stack:
            for term in [*self.older, *([self.term] if self.term else [])]:
                term.leave(Killed())

    @property
    def active(self) -> Term:
        """The running driver; RuntimeError if there is none."""
        if self.term is None:
            raise RuntimeError("the sweep has no driver")
        return self.term

    # ---- drivers --------------------------------------------------------------------------------

    def resume(self, **more: Any) -> None:
        """Start another driver, with options of its launch in `more`."""
        self.is_undisturbed &= not ("trials" in more or more.get("retry_failed"))
        request = Launch(self.folder, self.slots, **more)
        before = self.oracle.reader.last
        try:
            with self.world.driving():
                self.term = Term(request, self.world)
            self.finished = False
        except (Killed, StorageError) as error:
            self.ends.append(type(error).__name__)
        begun = self.oracle.reader.read(after=before)
        if "trials" in more and any(isinstance(record.event, LimitsChanged) for record in begun):
            self.changed_trials["trials", more["trials"]] += 1
        self.look()

    def turn(self) -> None:
        """Make the driver's next turn."""
        term = self.term
        if term is None:
            return
        try:
            with self.world.driving():
                next(term.turns)
        except StopIteration:
            self.term, self.finished = None, term.driver.history.ended == "finished"
            self.ends.append(term.driver.history.ended)
            self.look()
            self.oracle.compare(term.driver.history, whole=True)
            with self.world.driving(), contextlib.suppress(Killed, StorageError):
                term.stack.close()  # failures here are after the sweep's last event
        except (Killed, StorageError) as error:
            self.end_driver(error)
        self.look()
        if self.term is not None:
            require(
                not self.oracle.handed, f"{list(self.oracle.handed)} ended but were not recorded"
            )
            self.check_driver(self.term)

    def check_driver(self, term: Term) -> None:
        """Require that the driver's history is the ledger's, and its slices are those of trials."""
        history = term.driver.history
        self.oracle.compare(history)
        running = {(r.trial, r.index) for r in history.replicas(Status.RUNNING)}
        require(
            running >= {one.place for one in term.pool.running},
            "a slice of a trial runs that is not RUNNING",
        )

    def end_driver(self, error: BaseException) -> None:
        """End the driver's process at once."""
        term, self.term = self.active, None
        term.leave(error)
        self.ends.append(type(error).__name__)

    def second_driver(self) -> None:
        """Start a second driver; require that it is refused if one runs."""
        try:
            with launch.open_context(Launch(self.folder, 1), lambda slots: Pool(slots, self.world)):
                require(self.term is None, "two drivers at the same time")
        except SweepLocked:
            require(self.term is not None, "a driver was refused although none runs")

    def usurp(self) -> None:
        """Delete the file of the lock and start another driver; the first one does not know."""
        self.older.append(self.active)
        before = lease.read_file(self.folder.ledger).term
        (self.folder.path / "run.lock").unlink()
        self.term = None
        self.resume()
        if lease.read_file(self.folder.ledger).term == before:
            self.resume()  # the new driver ended before it had the lease

    def old_driver(self) -> None:
        """Continue a driver that has lost the sweep; require that its next write is refused."""
        term = self.older[0]
        self.finished = False  # the next driver deletes the files of its slices
        for one in list(term.pool.running):
            term.pool.running.remove(one)
            self._answer(one, self.world.run(one, Failure(cold=True)))
        try:
            for _ in range(20):
                next(term.turns)
        except (SweepLocked, StopIteration) as error:
            require(isinstance(error, SweepLocked), "a driver ended the sweep of another driver")
            self.older.remove(term)
            term.leave(error)
        self.look()

    # ---- workers --------------------------------------------------------------------------------

    def running_slices(self) -> list[Slice]:
        """Return the running slices of the driver, sorted by trial and replica."""
        slices = self.term.pool.running if self.term else []
        return sorted(slices, key=lambda one: one.place)

    def end_slice(self, one: Slice, failure: Failure) -> None:
        """Run a slice, and give its outcome to the driver."""
        answer = self.world.run(one, failure)
        self.active.pool.running.remove(one)
        key = (one.spec.term, one.spec.trial, one.spec.replica, one.spec.number)
        self.oracle.handed[key] = answer
        self._answer(one, answer)

    def _answer(self, one: Slice, answer: Any) -> None:
        if isinstance(answer, BaseException):
            one.future.set_exception(answer)
        else:
            one.future.set_result(answer)

    def orphan(self) -> None:
        """Run a slice whose driver has ended; no driver receives its outcome."""
        one = self.world.orphans.pop(0)
        with contextlib.suppress(Died):
            self.world.run(one, Failure(cold=True, deaf=PLENTY))
        self.finished = False  # the next driver deletes its files
        self.look()

    def damage(self, which: int) -> None:
        """Change one bit of a newest checkpoint that has a good one before it, if there is one."""
        history, bad = self.oracle.mirror, self.oracle.damaged
        able = [
            (replica, replica.newest_checkpoint)
            for replica in history.replicas(*Status)
            if len(replica.checkpoints) > 1 and not bad & set(replica.checkpoints)
        ]
        replica, newest = able[which % len(able)] if able else (None, None)
        if replica is None or newest is None:
            return
        path = self.folder.trial(replica.trial, replica.index) / newest.file
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        bad.add(newest.digest)

    # ---- people ---------------------------------------------------------------------------------

    def ask(self, verb: Verb, body: Mapping[str, Any]) -> int:
        """Send a request; return its number."""
        number = self.requests.ask(verb, body)
        self.requested[number] = (verb, body)
        self.is_undisturbed = False
        return number

    # ---- the end --------------------------------------------------------------------------------

    def look(self) -> None:
        """Let the oracle read new events of the ledger."""
        if self.term is None or self.term.driver.history.k != self.oracle.mirror.k:
            self.oracle.look()

    def finish(self) -> None:
        """Drive the sweep to its end without further events."""
        self.world.fuse = None
        for _ in range(MOST_TURNS):
            if self.finished:
                break
            if self.term is None:
                self.resume(max_disk=PLENTY)
                continue
            if self.term.driver.history.suspended:
                self.ask(Verb.UNPAUSE, {})
            for one in self.running_slices():
                self.end_slice(one, QUIET)
            self.turn()
        require(self.finished, f"the sweep has not ended after {MOST_TURNS} turns")
        if self.requests.pending():
            self.finished = False
            self.finish()

    def events(self) -> Iterator[str]:
        """Yield the kind of each event of the ledger, for the figures of the case."""
        yield "sweeps"
        for record in self.oracle.records:
            event = record.event
            if isinstance(event, Closed):
                yield event.end.value
                if event.skipped:
                    yield "fell back"
            elif isinstance(event, Created):
                yield "bred" if event.births else "trials"
        for number in self.requested:
            answer = self.requests.answer_to(number)
            yield "granted" if answer is not None and answer.granted else "refused"
