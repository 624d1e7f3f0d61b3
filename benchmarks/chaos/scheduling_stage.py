"""A drawn sweep with its drivers, its people and its world; what the machine's rules do to it."""

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.chaos.scheduling_oracle import Oracle
from benchmarks.chaos.scheduling_way import Died, Trouble
from benchmarks.chaos.scheduling_world import Killed, Pool, Slice, World, claim
from sweep import spec as specs
from sweep.driver import launch
from sweep.driver.creation import creating, resolving
from sweep.driver.driver import Driver
from sweep.driver.launch import Launch
from sweep.errors import StorageError, SweepLocked
from sweep.history.events import Changed, Closed, Created, Status
from sweep.ledger import lease
from sweep.ledger.folder import Folder
from sweep.ledger.requests import Requests, Verb

#: Turns in which an undisturbed sweep must come to its end.
MOST_TURNS = 500
PLENTY = 10**9
QUIET = Trouble()
_MEMORY = Path("/dev/shm")  # noqa: S108 a folder with a name of its own is made in it


class Term:
    """One driver at work."""

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
        """Its process is gone because of `error`."""
        self.turns.close()
        with contextlib.suppress(type(error)):
            self.stack.__exit__(type(error), error, None)


class Stage:
    """A sweep, and what may happen to it; a context manager's worth of patches while it lives."""

    def __init__(self, spec: Mapping[str, Any], slots: int) -> None:
        with contextlib.ExitStack() as stack:
            memory = _MEMORY if _MEMORY.is_dir() else None
            made = tempfile.TemporaryDirectory(prefix="sweep-drawn-", dir=memory)
            place = Path(stack.enter_context(made))
            (place / "world").mkdir()
            self.world = World(place / "world")
            stack.enter_context(self.world.entered())
            source = json.dumps(dict(spec))
            resolved = resolving.resolve(specs.parse(source, "drawn"), (), new=True)
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
        """Drivers that somebody else has taken the sweep from, and who do not know it."""
        self.finished = False
        self.ended: list[str] = []
        """The ends of the terms."""
        self.asked: dict[int, tuple[Verb, Mapping[str, Any]]] = {}
        self.told: Counter[Any] = Counter()
        """Totals of trials that `sweep resume` was told, where it recorded them as a change."""
        self.pure = True
        """True while nothing from outside has changed the decisions."""

    def close(self) -> None:
        """Everything is gone."""
        with self.stack:
            for term in [*self.older, *([self.term] if self.term else [])]:
                term.leave(Killed())

    @property
    def now(self) -> Term:
        """The driver that is at work."""
        if self.term is None:
            raise RuntimeError("nobody drives the sweep")
        return self.term

    # ---- drivers --------------------------------------------------------------------------------

    def resume(self, **more: Any) -> None:
        """Another driver takes over."""
        self.pure &= not ("trials" in more or more.get("retry_failed"))
        request = Launch(self.folder, self.slots, **more)
        before = self.oracle.reader.last
        try:
            with self.world.driving():
                self.term = Term(request, self.world)
            self.finished = False
        except (Killed, StorageError) as error:
            self.ended.append(type(error).__name__)
        begun = self.oracle.reader.read(after=before)
        if "trials" in more and any(isinstance(record.event, Changed) for record in begun):
            self.told["trials", more["trials"]] += 1
        self.look()

    def turn(self) -> None:
        """The driver's next turn."""
        term = self.term
        if term is None:
            return
        try:
            with self.world.driving():
                next(term.turns)
        except StopIteration:
            self.term, self.finished = None, term.driver.history.ended == "finished"
            self.ended.append(term.driver.history.ended)
            self.look()
            self.oracle.compare(term.driver.history, whole=True)
            with self.world.driving(), contextlib.suppress(Killed, StorageError):
                term.stack.close()  # what fails here fails behind the sweep's last event
        except (Killed, StorageError) as error:
            self.gone(error)
        self.look()
        if self.term is not None:
            claim(not self.oracle.handed, f"{list(self.oracle.handed)} came back unrecorded")
            self.alive(self.term)

    def alive(self, term: Term) -> None:
        """The driver's memory is the ledger's, and it has something to wait for."""
        history = term.driver.history
        self.oracle.compare(history)
        running = {(r.trial, r.index) for r in history.replicas(Status.RUNNING)}
        claim(
            running >= {one.place for one in term.pool.under_way},
            "a slice is under way of a trial that does not run",
        )

    def gone(self, error: BaseException) -> None:
        """The driver's process ends at once."""
        term, self.term = self.now, None
        term.leave(error)
        self.ended.append(type(error).__name__)

    def second_driver(self) -> None:
        """Another one is refused while one runs."""
        try:
            with launch.open_context(Launch(self.folder, 1), lambda slots: Pool(slots, self.world)):
                claim(self.term is None, "two drivers at once")
        except SweepLocked:
            claim(self.term is not None, "refused, and nobody drives it")

    def usurp(self) -> None:
        """The lock's file is deleted and another driver takes over; the first does not know."""
        self.older.append(self.now)
        before = lease.look(self.folder.ledger).term
        (self.folder.path / "run.lock").unlink()
        self.term = None
        self.resume()
        if lease.look(self.folder.ledger).term == before:
            self.resume()  # it was stopped before the sweep was its own

    def old_driver(self) -> None:
        """A driver whom the sweep was taken from goes on, until it wants to write."""
        term = self.older[0]
        self.finished = False  # what its slices leave the next driver sweeps up
        for one in list(term.pool.under_way):
            term.pool.under_way.remove(one)
            self._answer(one, self.world.play(one, Trouble(cold=True)))
        try:
            for _ in range(20):
                next(term.turns)
        except (SweepLocked, StopIteration) as error:
            claim(isinstance(error, SweepLocked), "a driver ended the sweep of another")
            self.older.remove(term)
            term.leave(error)
        self.look()

    # ---- workers --------------------------------------------------------------------------------

    def under_way(self) -> list[Slice]:
        """The slices of the driver, by place."""
        slices = self.term.pool.under_way if self.term else []
        return sorted(slices, key=lambda one: one.place)

    def work(self, one: Slice, trouble: Trouble) -> None:
        """A slice comes back."""
        answer = self.world.play(one, trouble)
        self.now.pool.under_way.remove(one)
        key = (one.spec.term, one.spec.trial, one.spec.replica, one.spec.number)
        self.oracle.handed[key] = answer
        self._answer(one, answer)

    def _answer(self, one: Slice, answer: Any) -> None:
        if isinstance(answer, BaseException):
            one.future.set_exception(answer)
        else:
            one.future.set_result(answer)

    def orphan(self) -> None:
        """A slice whose driver is gone comes to its end, and nobody hears of it."""
        one = self.world.orphans.pop(0)
        with contextlib.suppress(Died):
            self.world.play(one, Trouble(cold=True, deaf=PLENTY))
        self.finished = False  # what it leaves the next driver sweeps up
        self.look()

    def damage(self, which: int) -> None:
        """One bit of a newest checkpoint changes, where there is one good one before it."""
        history, bad = self.oracle.mirror, self.oracle.damaged
        able = [
            (replica, replica.newest)
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
        """Somebody asks from another terminal."""
        number = self.requests.ask(verb, body)
        self.asked[number] = (verb, body)
        self.pure = False
        return number

    # ---- the end --------------------------------------------------------------------------------

    def look(self) -> None:
        """Follow the ledger, if there is something new."""
        if self.term is None or self.term.driver.history.k != self.oracle.mirror.k:
            self.oracle.look()

    def settle(self) -> None:
        """Nothing happens any more: the sweep comes to its end."""
        self.world.fuse = None
        for _ in range(MOST_TURNS):
            if self.finished:
                break
            if self.term is None:
                self.resume(max_disk=PLENTY)
                continue
            if self.term.driver.history.suspended:
                self.ask(Verb.UNPAUSE, {})
            for one in self.under_way():
                self.work(one, QUIET)
            self.turn()
        claim(self.finished, f"after {MOST_TURNS} turns it has not come to an end")
        if self.requests.pending():
            self.finished = False
            self.settle()

    def happened(self) -> Iterator[str]:
        """Yield the events of the ledger, by kind."""
        yield "sweeps"
        for record in self.oracle.records:
            event = record.event
            if isinstance(event, Closed):
                yield event.end.value
                if event.skipped:
                    yield "fell back"
            elif isinstance(event, Created):
                yield "bred" if event.births else "trials"
        for number in self.asked:
            answer = self.requests.answer_to(number)
            yield "granted" if answer is not None and answer.granted else "refused"
