"""Slots on a cluster: each of its workers is one, whatever the engine that reaches them.

We choose the worker of each slice ourselves, and the engine may take no other one: a worker that is
lost fails its slice, which the driver begins again. A worker that was cut off and goes on for a
while writes files that the ledger never names. One that stands still answers no question: it is
given up when the driver says so, and used again when it answers. The key that signs checkpoints is
never sent: each worker reads its own file.
"""

import asyncio
import contextlib
import secrets
import threading
import time
import uuid
from abc import abstractmethod
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle

from sweep import pickled, pools
from sweep.errors import StorageError, SweepError, UsageError, WorkerLost
from sweep.pools._shared import worker as there
from sweep.slices.cache import StaleProcess
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.checkpoint import signing

#: Seconds to reach the cluster's scheduler, and for a worker to answer what it is.
CONNECT_S = 10.0
#: Seconds that workers have to end what they run for us when the pool is closed.
CLOSE_S = there.CLOSE_S
#: Seconds between two questions about a slice's process, if its driver wants to know; and if not.
MEASURE_S, LISTEN_S = 1.0, 5.0
#: Attempts to ask a worker that has just joined, as it may not be reachable yet; and their pause.
ATTEMPTS, PAUSE_S = 20, 0.5


@dataclass(eq=False)
class Worker:
    """A worker process of the cluster."""

    address: str
    name: str
    busy: bool = False
    last: tuple[str, int, int] | None = None
    """The replica that ran there last."""
    ahead_s: float = 0.0
    """Seconds by which its clock was ahead of the driver's when it joined."""
    free_since: float = 0.0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    left: bool = False
    """True if the worker left by itself or was sent away."""
    silent_s: float = 0.0
    """Seconds since its last answer."""


@dataclass(eq=False)
class _Running:
    """A slice on its way."""

    spec: SliceSpec
    key: str
    outcome: Future[SliceOutcome]
    worker: Worker | None = None
    """None while the slice waits for a free worker."""
    error: SweepError | None = None
    """Why its process was ended."""
    pid: int | None = None
    memory: int = 0
    still_s: float = 0.0
    """Seconds for which its process has stood still, as its worker reports; of a slice that waits
    for a worker, those since the last answer of the engine's scheduler."""
    wanted: bool = False
    """True if the driver has asked for one of these measurements since the last answer."""
    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def replica(self) -> tuple[str, int, int]:
        return (self.spec.sweep_id, self.spec.trial, self.spec.replica)


class ClusterPool(pools.Pool):
    """As many slots as the cluster has workers that fit, up to `slots` of them.

    Everything happens in one thread with an event loop; the driver's calls only post it work. What
    an engine does lies in its own file: the abstract methods, which run in that loop. It reports
    who comes and goes with `_came` and `_went`.
    """

    blocks: ClassVar[bool] = False
    clustered: ClassVar[bool] = True
    scheduler: ClassVar[str]
    """The engine's name for the process that all others of the cluster need."""
    closed_by: str = ""
    """The protection that closes the cluster to others, once connected."""

    def __init__(self, slots: int, address: str) -> None:
        self.slots = 1
        self._most = slots
        self._address = address
        self._root = Path()
        self._workers: dict[str, Worker] = {}
        self._left: set[str] = set()
        """Addresses of workers that are gone, maybe while they were asked what they are."""
        self._changed = asyncio.Condition()
        self._running: dict[Future[SliceOutcome], _Running] = {}
        self._silent = ""
        """That the engine's scheduler answers nothing any more, in words."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pool", daemon=True)

    # ---- what an engine does ----------------------------------------------------------------

    @abstractmethod
    async def _reach(self, reach_s: float) -> Collection[str]:
        """Reach the cluster within so many seconds; returns the addresses of its workers.

        Raises:
            StorageError: nobody answers there.
            UsageError: it is open to others.
        """

    @abstractmethod
    async def _ask(self, address: str, function: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a function of `_shared.worker` there, beside a slice, or its error.

        Raises:
            OSError: the worker cannot be reached, or not yet.
        """

    @abstractmethod
    async def _send(self, address: str, key: str, slice_spec: bytes) -> object:
        """Return the outcome of a slice on that worker; the engine tries it once, and nowhere else.

        Raises:
            WorkerLost: the worker was killed.
            StorageError: the cluster was lost.
        """

    @abstractmethod
    async def _greet(self) -> None:
        """Return when the engine's scheduler has answered."""

    @abstractmethod
    def _lost_cluster(self) -> str:
        """Why the cluster is lost, by `_gone`; empty: it is not."""

    async def _dismiss(self, worker: Worker, key: str) -> None:
        """Wait until a worker that was given up answers, end what it runs, and use it again."""
        while worker.address not in self._left:
            try:
                await self._ask(worker.address, there.leave, [key, ""])
            except Exception:  # noqa: BLE001 it is asked again, until it is known to be gone
                await asyncio.sleep(CONNECT_S)
            else:
                await self._joined(worker.address)
                return

    @abstractmethod
    async def _leave(self) -> None:
        """Cut the connection to the cluster, which may be gone."""

    async def _about(self, address: str, probe: Path) -> dict[str, Any]:
        """Return a worker's description of itself, with its name."""
        return {"name": address, **await self._ask(address, there.describe_worker, probe)}

    def _not_closed(self, address: str) -> str:
        """Why others reach the worker at that address; empty: they do not."""
        return ""

    # ---- what the driver calls --------------------------------------------------------------

    def connect(self, root: Path, patience_s: float | None = None) -> None:
        """Reach the cluster, and see which of its workers fit, for `patience_s` seconds at most.

        Raises:
            StorageError: nobody answers there.
            UsageError: it is open to others, or every worker it has differs from us.
        """
        self._root = root.absolute()
        self._thread.start()
        with _probe(self._root) as probe:
            try:
                reach_s = min(CONNECT_S, patience_s / 2) if patience_s else CONNECT_S
                self._wait(asyncio.wait_for(self._connect(probe, reach_s), patience_s))
            except TimeoutError as error:
                late = f"the {self.scheduler} at {self._address} has not answered in time"
                raise StorageError(f"--address: {late}") from error

    @property
    def clocks(self) -> Mapping[str, float]:
        """Name of each worker that fits → by how many seconds its clock is ahead of this one."""
        return {worker.name: worker.ahead_s for worker in self._workers.values()}

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run a slice on a free worker, or on the next one that is; the signing key stays here."""
        outcome: Future[SliceOutcome] = Future()
        outcome.set_running_or_notify_cancel()
        key = f"sweep-{spec.trial:05d}_{spec.replica}-{spec.number}-{uuid.uuid4().hex}"
        running = _Running(_ready_to_travel(spec), key, outcome)
        self._running[outcome] = running
        self._post(self._run(running))
        return outcome

    def resize(self, slots: int) -> None:
        """Use so many workers at most; a slice that runs on one too many ends as it would."""
        self._most = slots
        self._count()

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """The slice's process on its worker's machine."""
        found = self._running.get(running)
        if found is None:
            return None
        found.wanted = True
        return found.pid

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the bytes that the slice's process took when its worker was last asked."""
        found = self._running.get(running)
        return 0 if found is None else found.memory

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds its worker has not answered, or its process stood still.

        Where it waits for a worker, it is the engine's scheduler that has not answered.
        """
        found = self._running.get(running)
        if found is None:
            return 0.0
        return max(found.worker.silent_s if found.worker else 0.0, found.still_s)

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """Have the worker kill the slice's process with its children, or give the worker up.

        A slice that waits for a worker goes on waiting, unless the engine's scheduler is silent.
        """
        found = self._running.get(running)
        if found is not None and found.error is None:
            found.error = error
            self._post(self._end(found, found.worker))

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Have the worker that it ran on last end what is kept there."""
        self._post(self._forget(replica))

    def failed(self) -> str:
        """Why the cluster is lost, or answers nothing; empty: neither."""
        return self._silent or self._lost_cluster()

    def close(self) -> None:
        """End our slices and what is kept warm for them; then leave the cluster."""
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                self._wait(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    # ---- in the event loop ------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _post(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.call_soon_threadsafe(self._begin, work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, probe: Path, reach_s: float) -> None:
        found = await self._reach(reach_s)
        answers = await asyncio.gather(*(self._join(address, probe) for address in found))
        refused = [said for said in answers if said]
        if refused and not self._workers:
            raise UsageError(f"--address: no worker of the cluster fits: {refused[0]}")
        if not refused and not self._workers:
            self.say(f"the cluster at {self._address} has no worker yet; slices wait for one")

    def _came(self, address: str) -> None:
        """A worker came while we run; it is to see a folder that is there by now."""
        self._left.discard(address)
        self._begin(self._joined(address))

    async def _joined(self, address: str) -> None:
        await self._join(address, _nearest(self._root))

    def _went(self, address: str, expected: bool) -> None:
        """A worker is gone; `expected`: it left by itself, or was sent away."""
        self._left.add(address)
        worker = self._workers.pop(address, None)
        if worker is not None:
            worker.left = expected
            worker.gone.set()
        self._count()

    async def _join(self, address: str, probe: Path) -> str:
        """Use a worker from now on, or say why not; returns that."""
        if address in self._workers:
            return ""
        about: dict[str, Any] = {"why": self._not_closed(address)}
        try:
            if not about["why"]:
                about = await self._examined(address, probe)
        except Exception as error:  # noqa: BLE001 an installation of others may fail in any way
            about["why"] = f"it cannot be asked what it is ({type(error).__name__}: {error})"
        if address in self._left or address in self._workers:
            return ""
        said = about.get("why") or _differences(about["has"])
        if said:
            said = f"worker {address} is left out: {said}"
            self.say(said)
            return said
        trust = signing.local_if_possible()
        if about["key"] != (ours := trust.name if trust else ""):
            whose = "another one" if about["key"] else "none"
            self.say(
                f"worker {address} lacks your signing key {ours} (it has {whose}), so trials whose "
                f"checkpoints may run code fail there; copy ~/.config/sweep/key to it"
            )
        self._workers[address] = Worker(address, about["name"], ahead_s=about["ahead_s"])
        self._count()
        async with self._changed:
            self._changed.notify_all()
        return ""

    async def _examined(self, address: str, probe: Path) -> dict[str, Any]:
        """Return a worker's description and its clock's difference; it may need a while."""
        for last in (*(False,) * (ATTEMPTS - 1), True):
            asked = time.time()
            try:
                answer = await asyncio.wait_for(self._about(address, probe), CONNECT_S)
            except TimeoutError:
                raise
            except (OSError, KeyError):
                if last:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                break
        now = answer.get("now", asked)  # another release of ours may not say its time
        # It was read at some instant in between: so much apart the clocks are at the least.
        return {**answer, "ahead_s": max(now - time.time(), min(0.0, now - asked))}

    def _count(self) -> None:
        """One at least: a slice that was begun waits for the first worker."""
        self.slots = max(1, min(self._most, len(self._workers)))

    def _choose(self, running: _Running) -> Worker | None:
        free = [worker for worker in self._workers.values() if not worker.busy]
        at_home = [worker for worker in free if worker.last == running.replica]
        return next(iter(at_home or sorted(free, key=lambda worker: worker.free_since)), None)

    async def _run(self, running: _Running) -> None:
        worker = await self._taken(running)
        try:
            came = await self._sent(running, worker)
        except Exception as error:  # noqa: BLE001 whatever it is, it is the slice's end
            lost = isinstance(error, WorkerLost)
            self._let_go(running, worker)
            running.outcome.set_exception(running.error if lost and running.error else error)
        else:
            self._let_go(running, worker)
            running.outcome.set_result(came)
        async with self._changed:
            self._changed.notify_all()

    async def _taken(self, running: _Running) -> Worker | None:
        """Wait for a worker that is free, and take it; returns None if the cluster was lost."""
        heard = asyncio.ensure_future(self._listen_to_scheduler(running))
        try:
            async with self._changed:
                while (worker := self._choose(running)) is None and not self.failed():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), MEASURE_S)
                if worker is not None:
                    worker.busy, worker.last, running.worker = True, running.replica, worker
                    running.still_s = 0.0
                return worker
        finally:
            heard.cancel()

    def _let_go(self, running: _Running, worker: Worker | None) -> None:
        """Free its worker, before anybody sees from outside that the slice is over."""
        del self._running[running.outcome]
        if worker is not None:
            worker.busy, worker.free_since = False, time.monotonic()

    async def _sent(self, running: _Running, worker: Worker | None) -> SliceOutcome:
        """Return the outcome of a slice on that worker, or of the loss of either."""
        if worker is None:
            raise StorageError(self.failed())
        sent = cloudpickle.dumps(replace(running.spec, worker=worker.name))
        result = asyncio.ensure_future(self._send(worker.address, running.key, sent))
        gone = asyncio.ensure_future(worker.gone.wait())
        given_up = asyncio.ensure_future(running.given_up.wait())
        heard = asyncio.ensure_future(self._listen_to(running, worker))
        try:
            ends = {result, gone, given_up}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return _outcome(result.result())
        finally:
            for task in (result, gone, given_up, heard):
                task.cancel()
        if running.given_up.is_set():
            raise WorkerLost(None, None, f"its worker {worker.name} was given up")
        if worker.left:
            raise StaleProcess
        raise WorkerLost(None, None, f"its worker {worker.name} was killed, or cut off")

    async def _listen_to(self, running: _Running, worker: Worker) -> None:
        """Ask a worker about its slice again and again, one question at a time.

        Its silence is counted in short pauses: in a long one this process stood still itself.
        """
        while True:
            wanted, running.wanted = running.wanted, False
            question = self._ask(worker.address, there.measure, running.key, wanted)
            answer = asyncio.ensure_future(question)
            try:
                while not (await asyncio.wait({answer}, timeout=MEASURE_S))[0]:
                    worker.silent_s += MEASURE_S
                running.pid, running.memory, running.still_s = answer.result()
                worker.silent_s = 0.0
            except Exception:  # noqa: BLE001 it answers another time, or is about to be lost
                worker.silent_s += MEASURE_S
            finally:
                answer.cancel()
            for _ in range(int(LISTEN_S / MEASURE_S)):
                await asyncio.sleep(MEASURE_S)
                if running.wanted or worker.silent_s:
                    break

    async def _listen_to_scheduler(self, running: _Running) -> None:
        """Ask the engine's scheduler again and again while a slice waits for a worker."""
        while True:
            answer = asyncio.ensure_future(self._greet())
            try:
                while not (await asyncio.wait({answer}, timeout=MEASURE_S))[0]:
                    running.still_s += MEASURE_S
                answer.result()
                running.still_s = 0.0
            except Exception:  # noqa: BLE001 it answers another time, or the cluster is lost
                running.still_s += MEASURE_S
            finally:
                answer.cancel()
            await asyncio.sleep(MEASURE_S if running.still_s else LISTEN_S)

    async def _end(self, running: _Running, worker: Worker | None) -> None:
        """Have a slice's process killed; one whose worker does not answer is given up with it."""
        answers = worker is not None and worker.silent_s <= CONNECT_S
        if worker and answers and await self._answer(worker, there.end, running.key) is not None:
            return
        try:
            await asyncio.wait_for(self._greet(), CONNECT_S)
        except Exception:  # noqa: BLE001 whatever it is, there is no answer
            self._silent = self._lost_cluster() or (
                f"the {self.scheduler} at {self._address} has stopped answering; nothing is lost: "
                f"`sweep resume` goes on when it does again"
            )
            return
        if worker is None:
            running.error = None
            return
        if running.outcome in self._running and self._workers.get(worker.address) is worker:
            del self._workers[worker.address]
            self._count()
            self.say(f"worker {worker.name} does not answer: it is left out until it does")
            self._begin(self._dismiss(worker, running.key))
        running.given_up.set()

    async def _forget(self, replica: tuple[str, int, int]) -> None:
        for worker in [*self._workers.values()]:
            if worker.last == replica and not worker.busy:
                worker.last = None
                await self._answer(worker, there.forget, replica)

    async def _answer(self, worker: Worker, function: Callable[..., Any], *given: Any) -> Any:
        """Return a worker's answer; None if there is none, or if the worker is about to be lost."""
        with contextlib.suppress(Exception):
            return await asyncio.wait_for(self._ask(worker.address, function, *given), CONNECT_S)
        return None

    async def _close(self) -> None:
        if not self.failed():
            by_worker = {worker: [""] for worker in self._workers.values()}
            for running in self._running.values():
                if running.worker is not None:
                    by_worker.setdefault(running.worker, []).append(running.key)
            asked = (self._answer(one, there.leave, keys) for one, keys in by_worker.items())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(*asked), CLOSE_S)
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(Exception):  # it is gone, in whatever way
            await asyncio.wait_for(self._leave(), CLOSE_S)

    def _gone(self) -> str:
        return (
            f"the {self.scheduler} at {self._address} is gone; nothing is lost: start it again, "
            f"then `sweep resume` goes on"
        )


def _ready_to_travel(spec: SliceSpec) -> SliceSpec:
    """A slice without the signing key, with paths that mean the same in every folder."""
    names = ("folder", "birth_folder", "stop_file", "own_stop_file", "shared_folder")
    given = [(name, getattr(spec, name)) for name in names]
    changes: dict[str, Any] = {name: str(Path(path).absolute()) for name, path in given if path}
    if spec.kept is not None:
        file = str(Path(spec.kept.file).absolute())
        changes["kept"] = replace(spec.kept, file=file, trust=None)
    return replace(spec, trust=None, **changes)


def _outcome(came: object) -> SliceOutcome:
    if not isinstance(came, SliceOutcome):
        raise WorkerLost(None, None, f"its worker returned {type(came).__name__}")
    return came


def _differences(theirs: Mapping[str, str]) -> str:
    """Return the differences of a worker's versions from ours, in words; empty if equal."""
    ours = pickled.libraries()
    found = [
        f"{name} is {theirs.get(name)} there, {version} here"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]
    return f"{', '.join(found)}; install the same versions" if found else ""


def _nearest(root: Path) -> Path:
    """The folder of all sweeps, or where it will lie."""
    return next(path for path in (root, *root.parents) if path.is_dir())


@contextlib.contextmanager
def _probe(root: Path) -> Iterator[Path]:
    """A file by which workers show that they share the folder that the sweeps are in."""
    path = _nearest(root) / f".sweep-shared-{secrets.token_hex(8)}"
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise StorageError(f"{path}: cannot be made: {error.strerror}") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
