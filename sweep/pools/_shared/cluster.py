"""Pools on a cluster, in which each worker is a slot; the common part of all engines.

This class, not the engine, chooses the worker of each slice. When a worker is lost, its slice
fails, and the driver starts it again. A worker that was disconnected but still runs writes files
that the ledger never names. A worker that does not respond is abandoned when the driver decides so,
and is used again when it responds. The key that signs checkpoints is never sent: each worker reads
its own file.
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

from sweep import pools
from sweep.core import pickled
from sweep.core.errors import StorageError, SweepError, UsageError, WorkerLost, with_remedy
from sweep.pools._shared import worker as there
from sweep.slices.cache import StaleProcess
from sweep.slices.messages import SliceOutcome, SliceSpec
from trainables.checkpoint import signing

#: Seconds to reach the cluster's scheduler, and for a worker to describe itself.
CONNECT_S = 10.0
#: Seconds for workers to end their slices when the pool is closed.
CLOSE_S = there.CLOSE_S
#: Seconds between two measurements of a slice's process, with and without interest of its driver.
MEASURE_S, LISTEN_S = 1.0, 5.0
#: Attempts to contact a worker that has just joined, and seconds between them.
ATTEMPTS, PAUSE_S = 20, 0.5


@dataclass(eq=False)
class Worker:
    """Worker process of the cluster, as the driver knows it."""

    address: str
    """Address by which the cluster's engine (Dask or Ray) reaches the worker."""
    name: str
    """Name for messages."""
    busy: bool = False
    """True while a slice runs on the worker."""
    last: tuple[str, int, int] | None = None
    """ID of the sweep, number of the trial and index of the replica of the worker's newest slice;
    None before the first."""
    ahead_s: float = 0.0
    """Seconds by which the worker's clock was ahead of the driver's when the worker joined."""
    free_since: float = 0.0
    """Time at which the worker's newest slice ended, in seconds of the monotonic clock; 0 before
    the first one."""
    is_lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set once the cluster has lost the worker."""
    has_left: bool = False
    """True if the worker left in an orderly way, or was sent away, and was not killed."""
    silent_s: float = 0.0
    """Seconds for which the worker has not answered questions about its slice; 0 while it
    answers."""


@dataclass(eq=False)
class _Running:
    """Submitted slice that has not ended."""

    spec: SliceSpec
    """Slice to run."""
    key: str
    """Unique name of the slice in messages to its worker."""
    outcome: Future[SliceOutcome]
    """Future that the driver got from `submit`."""
    worker: Worker | None = None
    """Worker that runs the slice; None while the slice waits for a free one."""
    error: SweepError | None = None
    """Reason for which the driver ended the slice's process; None while it has not."""
    pid: int | None = None
    """Id of the slice's process on the worker's machine at the last answer; None if unknown."""
    memory: int = 0
    """Memory of the slice's process in bytes at the last answer; 0 if unknown."""
    still_s: float = 0.0
    """Seconds for which the slice's process has been stopped (suspended), as the worker reports.
    While the slice waits for a worker, seconds since the last response of the cluster's
    scheduler."""
    wanted: bool = False
    """True if the driver has asked for a measurement since the worker's last answer, so that memory
    is measured too."""
    is_abandoned: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that is set once the slice's worker was given up, since it does not respond."""

    @property
    def replica(self) -> tuple[str, int, int]:
        """ID of the sweep, number of the trial and index of the replica."""
        return (self.spec.sweep_id, self.spec.trial, self.spec.replica)


class ClusterPool(pools.Pool):
    """Pool whose slots are the usable workers of a cluster, at most `slots` of them.

    All work is done in one thread with an event loop; the driver's calls only post work to it. A
    subclass for an engine (Dask, Ray) implements the abstract methods, which run in that loop, and
    reports workers with `_add_joined` and `_remove_worker`.
    """

    blocks: ClassVar[bool] = False
    clustered: ClassVar[bool] = True
    scheduler: ClassVar[str]
    """Name, for messages, of the process that all others of the cluster need, such as ``Dask
    scheduler``."""
    closed_by: str = ""
    """Text for users on how others are kept from using the cluster, such as ``over TLS``; known
    once connected."""

    def __init__(self, slots: int, address: str) -> None:
        self.slots = 1
        self._most = slots
        self._address = address
        self._root = Path()
        self._workers: dict[str, Worker] = {}
        self._left: set[str] = set()
        """Addresses of workers that have left, maybe before they had described themselves."""
        self._changed = asyncio.Condition()
        self._running: dict[Future[SliceOutcome], _Running] = {}
        self._silent = ""
        """Message that the engine's scheduler has stopped responding; empty while it responds."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pool", daemon=True)

    # ---- implemented by an engine -----------------------------------------------------------

    @abstractmethod
    async def _connect_to_cluster(self, reach_s: float) -> Collection[str]:
        """Connect to the cluster within `reach_s` seconds and return its workers' addresses.

        From then on, workers that join or leave are to be reported.

        Raises:
            StorageError: no cluster responds.
            UsageError: the cluster is open to others.
        """

    @abstractmethod
    async def _call_worker(
        self, address: str, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call a function of `_shared.worker` in a worker; return its result or raise its error.

        The call must work even while a slice runs there.

        Raises:
            OSError: the worker cannot be reached (yet).
        """

    @abstractmethod
    async def _run_in_worker(self, address: str, key: str, slice_spec: bytes) -> object:
        """Run a pickled slice once in this worker, and nowhere else; return its outcome.

        `key` is the slice's name in later messages.

        Raises:
            WorkerLost: the worker was killed.
            StorageError: the cluster was lost.
        """

    @abstractmethod
    async def _ping(self) -> None:
        """Wait until the cluster's scheduler answers a small request; raise if it is lost."""

    @abstractmethod
    def _describe_loss(self) -> str:
        """Return a message if the connection to the cluster was lost; empty while it stands."""

    async def _dismiss(self, worker: Worker, key: str) -> None:
        """Wait until an abandoned worker responds, kill its slice `key`, and use the worker again.

        Ends without doing so if the worker leaves the cluster. An engine that replaces workers may
        end this one instead.
        """
        while worker.address not in self._left:
            try:
                await self._call_worker(worker.address, there.leave, [key, ""])
            except Exception:  # noqa: BLE001 retried until the worker is known to have left
                await asyncio.sleep(CONNECT_S)
            else:
                await self._join_later(worker.address)
                return

    @abstractmethod
    async def _disconnect(self) -> None:
        """Disconnect from the cluster, which may be lost, or not have been connected."""

    async def _ask_description(self, address: str, probe: Path) -> dict[str, Any]:
        """Return the description that a worker gives of itself, with its ``name``.

        It is that of `describe_worker`, which checks for the file `probe`; the name is the address,
        unless the engine has another.
        """
        return {"name": address, **await self._call_worker(address, there.describe_worker, probe)}

    def _exposure(self, address: str) -> str:
        """Return a text on why other people can reach the worker at `address`.

        Returns an empty text if they cannot, and by default.
        """
        return ""

    # ---- called by the driver ---------------------------------------------------------------

    def connect(self, root: Path, patience_s: float | None = None) -> None:
        """Connect to the cluster and check its workers; starts the pool's thread.

        `root` is the folder of all sweeps, in or above which a file is created for a moment, to see
        whether workers share it. Sets `slots`. A cluster without workers is no error: slices wait
        for one. `patience_s` limits the whole time in seconds; None has no limit but those of the
        steps.

        Raises:
            StorageError: no cluster responds, or the file cannot be created.
            UsageError: the cluster is open to others, or none of its workers is usable.
        """
        self._root = root.absolute()
        self._thread.start()
        with _probe(self._root) as probe:
            try:
                reach_s = min(CONNECT_S, patience_s / 2) if patience_s else CONNECT_S
                self._wait(asyncio.wait_for(self._connect(probe, reach_s), patience_s))
            except TimeoutError as error:
                late = f"the {self.scheduler} at {self._address} has not answered in time"
                todo = "check if it is overloaded, then try again"
                raise StorageError(f"--address: {late}; {todo}") from error

    @property
    def clocks(self) -> Mapping[str, float]:
        """Name of each usable worker → seconds by which its clock is ahead of this machine's."""
        return {worker.name: worker.ahead_s for worker in self._workers.values()}

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Start a slice on the next free worker and return the future of its outcome.

        The signing key is not sent. The slice waits if no worker is free. The future fails with
        WorkerLost if the worker or the slice's process is killed or abandoned, StaleProcess if the
        worker leaves in an orderly way, and StorageError if the cluster is lost.
        """
        outcome: Future[SliceOutcome] = Future()
        outcome.set_running_or_notify_cancel()
        key = f"sweep-{spec.trial:05d}_{spec.replica}-{spec.number}-{uuid.uuid4().hex}"
        running = _Running(_ready_to_travel(spec), key, outcome)
        self._running[outcome] = running
        self._post(self._run(running))
        return outcome

    def resize(self, slots: int) -> None:
        """Change the maximum number of workers that are used; updates `slots`.

        Running slices are not interrupted.
        """
        self._most = slots
        self._update_slots()

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        """Return the id of a slice's process on its worker's machine; None if unknown.

        Also asks the worker to measure the memory next time.
        """
        found = self._running.get(running)
        if found is None:
            return None
        found.wanted = True
        return found.pid

    def memory(self, running: Future[SliceOutcome]) -> int:
        """Return the memory of a slice's process in bytes at the worker's last answer.

        Returns 0 if unknown.
        """
        found = self._running.get(running)
        return 0 if found is None else found.memory

    def silence(self, running: Future[SliceOutcome]) -> float:
        """Return for how many seconds a slice's worker has been silent, or its process stopped.

        While the slice waits for a worker, the silence is that of the cluster's scheduler. Returns
        0 if the slice has ended.
        """
        found = self._running.get(running)
        if found is None:
            return 0.0
        return max(found.worker.silent_s if found.worker else 0.0, found.still_s)

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        """Let a slice's worker kill its process; a worker that does not respond is abandoned.

        Returns at once. The slice's future then fails with `error`. A slice without a worker keeps
        waiting, unless the cluster's scheduler does not respond.
        """
        found = self._running.get(running)
        if found is not None and found.error is None:
            found.error = error
            self._post(self._end(found, found.worker))

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Let idle workers that ran a replica last free the trainable that they keep in memory.

        Returns at once. `replica` is (ID of the sweep, number of the trial, index of the replica).
        """
        self._post(self._forget(replica))

    def failed(self) -> str:
        """Return a message if the cluster is lost or does not respond; empty while it works."""
        return self._silent or self._describe_loss()

    def close(self) -> None:
        """Kill the pool's slices, let workers free their memory, disconnect, and end the thread.

        Workers have `CLOSE_S` seconds for that, and the connection as many. The pool cannot be used
        afterwards.
        """
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                self._wait(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    # ---- in the event loop ------------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the pool's event loop, and block until it is done.

        It is called from other threads, and raises the coroutine's error.
        """
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _post(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine in the pool's event loop without waiting; for other threads."""
        self._loop.call_soon_threadsafe(self._begin, work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a coroutine as a task, in the event loop, and keep a reference until it ends."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, probe: Path, reach_s: float) -> None:
        """Connect to the cluster within `reach_s` seconds, and check its workers by file `probe`.

        A message to the user says if there are none yet. Raises UsageError if there are workers
        and none is usable, and the errors of `_connect_to_cluster`.
        """
        found = await self._connect_to_cluster(reach_s)
        answers = await asyncio.gather(*(self._join(address, probe) for address in found))
        refused = [said for said in answers if said]
        if refused and not self._workers:
            raise UsageError(f"--address: no worker of the cluster is usable: {refused[0]}")
        if not refused and not self._workers:
            self.say(
                f"the cluster at {self._address} has no worker yet; trials wait until one joins"
            )

    def _add_joined(self, address: str) -> None:
        """Start to check a worker that has joined the cluster, in order to use it.

        Returns at once; for engines, in the event loop.
        """
        self._left.discard(address)
        self._begin(self._join_later(address))

    async def _join_later(self, address: str) -> None:
        """Check a worker that joined after `connect`, and use it if it is usable."""
        await self._join(address, _nearest(self._root))

    def _remove_worker(self, address: str, expected: bool) -> None:
        """Remove a worker that has left the cluster, which fails its slice; updates `slots`.

        `expected` is True if it was closed in an orderly way or sent away, False if it was killed.
        """
        self._left.add(address)
        worker = self._workers.pop(address, None)
        if worker is not None:
            worker.has_left = expected
            worker.is_lost.set()
        self._update_slots()

    async def _join(self, address: str, probe: Path) -> str:
        """Check a worker and use it from now on.

        Returns a sentence on why it is not usable, or an empty text. It must describe itself, have
        the same versions, and see the file `probe` in the shared folder. A message to the user
        names a worker that is left out or lacks the signing key.
        """
        if address in self._workers:
            return ""
        description: dict[str, Any] = {"why": self._exposure(address)}
        try:
            if not description["why"]:
                description = await self._describe(address, probe)
        except Exception as error:  # noqa: BLE001 another installation may fail in any way
            description["why"] = f"it did not report its versions ({type(error).__name__}: {error})"
        if address in self._left or address in self._workers:
            return ""
        said = description.get("why") or _differences(description["has"])
        if said:
            said = f"worker {address} is not used: {said}"
            self.say(said)
            return said
        trust = signing.user_trust_if_possible()
        if description["key"] != (ours := trust.name if trust else ""):
            whose = "another one" if description["key"] else "none"
            self.say(
                f"worker {address} lacks your signing key {ours} (it has {whose}), so trials whose "
                f"checkpoints may run code fail there; copy ~/.config/sweep/key to it"
            )
        self._workers[address] = Worker(
            address, description["name"], ahead_s=description["ahead_s"]
        )
        self._update_slots()
        async with self._changed:
            self._changed.notify_all()
        return ""

    async def _describe(self, address: str, probe: Path) -> dict[str, Any]:
        """Return the description that a worker gives of itself, with ``ahead_s``.

        The value of ``ahead_s`` is the number of seconds by which the worker's clock is ahead of
        this machine's. The question is repeated `ATTEMPTS` times if the worker cannot be reached
        yet.
        """
        for last in (*(False,) * (ATTEMPTS - 1), True):
            asked = time.time()
            try:
                answer = await asyncio.wait_for(self._ask_description(address, probe), CONNECT_S)
            except TimeoutError:
                raise
            except (OSError, KeyError):
                if last:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                break
        now = answer.get("now", asked)  # another release of sweep may not send its time
        # The clock was read between question and answer, so this is the smallest possible lead.
        return {**answer, "ahead_s": max(now - time.time(), min(0.0, now - asked))}

    def _update_slots(self) -> None:
        """Set `slots` to the number of workers that may be used.

        It is at least 1, so that a slice can wait for the first worker.
        """
        self.slots = max(1, min(self._most, len(self._workers)))

    def _choose(self, running: _Running) -> Worker | None:
        """Return the free worker on which a slice should run; None if no worker is free.

        It is the replica's last worker if that is free, else the one that has been free longest.
        Nothing is reserved.
        """
        free = [worker for worker in self._workers.values() if not worker.busy]
        at_home = [worker for worker in free if worker.last == running.replica]
        return next(iter(at_home or sorted(free, key=lambda worker: worker.free_since)), None)

    async def _run(self, running: _Running) -> None:
        """Run a slice on the next free worker, and set the result or error of its future.

        If the slice's process was ended by the driver, the error is the driver's reason.
        """
        worker = await self._take_worker(running)
        try:
            came = await self._run_on(running, worker)
        except Exception as error:  # noqa: BLE001 every error ends the slice
            lost = isinstance(error, WorkerLost)
            self._free_worker(running, worker)
            running.outcome.set_exception(running.error if lost and running.error else error)
        else:
            self._free_worker(running, worker)
            running.outcome.set_result(came)
        async with self._changed:
            self._changed.notify_all()

    async def _take_worker(self, running: _Running) -> Worker | None:
        """Wait for a free worker and reserve it for a slice.

        Sets the slice's `worker`. Returns None if the cluster was lost or does not respond.
        """
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

    def _free_worker(self, running: _Running, worker: Worker | None) -> None:
        """Mark the worker of a slice as free, and remove the slice from the running ones.

        Call it before the slice's future is done.
        """
        del self._running[running.outcome]
        if worker is not None:
            worker.busy, worker.free_since = False, time.monotonic()

    async def _run_on(self, running: _Running, worker: Worker | None) -> SliceOutcome:
        """Run a slice on `worker` and return its outcome.

        Raises StorageError if `worker` is None or the cluster is lost, StaleProcess if the worker
        left in an orderly way, and WorkerLost if it was killed or abandoned.
        """
        if worker is None:
            raise StorageError(self.failed())
        sent = cloudpickle.dumps(replace(running.spec, worker=worker.name))
        result = asyncio.ensure_future(self._run_in_worker(worker.address, running.key, sent))
        gone = asyncio.ensure_future(worker.is_lost.wait())
        given_up = asyncio.ensure_future(running.is_abandoned.wait())
        heard = asyncio.ensure_future(self._listen_to(running, worker))
        try:
            ends = {result, gone, given_up}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if result.done():
                return _outcome(result.result())
        finally:
            for task in (result, gone, given_up, heard):
                task.cancel()
        if running.is_abandoned.is_set():
            raise WorkerLost(
                None, None, f"its worker {worker.name} was abandoned, since it did not respond"
            )
        if worker.has_left:
            raise StaleProcess
        raise WorkerLost(None, None, f"its worker {worker.name} was killed or lost its connection")

    async def _listen_to(self, running: _Running, worker: Worker) -> None:
        """Ask a worker about its slice again and again, one request at a time, until cancelled.

        Stores process id, memory and standstill in the slice, and the worker's silence in seconds
        in the worker. Memory is measured only if the driver has asked for it. Silence is added up
        in short intervals, so that a suspension of this process does not count as silence of the
        worker.
        """
        while True:
            wanted, running.wanted = running.wanted, False
            question = self._call_worker(worker.address, there.measure, running.key, wanted)
            answer = asyncio.ensure_future(question)
            try:
                while not (await asyncio.wait({answer}, timeout=MEASURE_S))[0]:
                    worker.silent_s += MEASURE_S
                running.pid, running.memory, running.still_s = answer.result()
                worker.silent_s = 0.0
            except Exception:  # noqa: BLE001 it responds later, or is about to be lost
                worker.silent_s += MEASURE_S
            finally:
                answer.cancel()
            for _ in range(int(LISTEN_S / MEASURE_S)):
                await asyncio.sleep(MEASURE_S)
                if running.wanted or worker.silent_s:
                    break

    async def _listen_to_scheduler(self, running: _Running) -> None:
        """Ask the cluster's scheduler for an answer again and again, until cancelled.

        Its silence in seconds is stored in the slice's `still_s`, while that waits for a worker.
        """
        while True:
            answer = asyncio.ensure_future(self._ping())
            try:
                while not (await asyncio.wait({answer}, timeout=MEASURE_S))[0]:
                    running.still_s += MEASURE_S
                answer.result()
                running.still_s = 0.0
            except Exception:  # noqa: BLE001 it responds later, or the cluster is lost
                running.still_s += MEASURE_S
            finally:
                answer.cancel()
            await asyncio.sleep(MEASURE_S if running.still_s else LISTEN_S)

    async def _end(self, running: _Running, worker: Worker | None) -> None:
        """Let the worker kill a slice's process, or abandon a worker that does not respond.

        If the cluster's scheduler does not respond either, the whole cluster counts as failed. If
        it does, and the slice still waits for a worker, the slice continues to wait. A message to
        the user names an abandoned worker, which is used again when it responds.
        """
        answers = worker is not None and worker.silent_s <= CONNECT_S
        if worker and answers and await self._answer(worker, there.end, running.key) is not None:
            return
        try:
            await asyncio.wait_for(self._ping(), CONNECT_S)
        except Exception:  # noqa: BLE001 every error means that there is no response
            self._silent = self._describe_loss() or (
                f"the {self.scheduler} at {self._address} has stopped responding; nothing is lost: "
                f"`sweep resume` continues when it responds again"
            )
            return
        if worker is None:
            running.error = None
            return
        if running.outcome in self._running and self._workers.get(worker.address) is worker:
            del self._workers[worker.address]
            self._update_slots()
            self.say(f"worker {worker.name} does not respond; it is not used until it does")
            self._begin(self._dismiss(worker, running.key))
        running.is_abandoned.set()

    async def _forget(self, replica: tuple[str, int, int]) -> None:
        """Let idle workers that ran a replica last free the memory kept for it."""
        for worker in [*self._workers.values()]:
            if worker.last == replica and not worker.busy:
                worker.last = None
                await self._answer(worker, there.forget, replica)

    async def _answer(self, worker: Worker, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return a worker's answer to a call, or None if there is none.

        A worker gives none if it takes longer than `CONNECT_S` seconds, or raises.
        """
        with contextlib.suppress(Exception):
            return await asyncio.wait_for(
                self._call_worker(worker.address, function, *arguments), CONNECT_S
            )
        return None

    async def _close(self) -> None:
        """Let all workers kill this pool's slices, cancel all tasks, and disconnect.

        Waits up to `CLOSE_S` seconds for the workers, not at all if the cluster has failed, and as
        long for the end of the connection. Raises nothing.
        """
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
        with contextlib.suppress(Exception):  # the cluster may be lost
            await asyncio.wait_for(self._disconnect(), CLOSE_S)

    def _lost_message(self) -> str:
        """Return the message that the cluster's scheduler is gone, with the remedy."""
        return (
            f"the {self.scheduler} at {self._address} is gone; nothing is lost: restart it, "
            f"then `sweep resume` continues"
        )


def _ready_to_travel(spec: SliceSpec) -> SliceSpec:
    """Return a slice for another machine: with absolute paths and without keys and signers."""
    names = ("folder", "birth_folder", "stop_file", "own_stop_file", "shared_folder")
    given = [(name, getattr(spec, name)) for name in names]
    changes: dict[str, Any] = {name: str(Path(path).absolute()) for name, path in given if path}
    if spec.script_file is not None:
        file = str(Path(spec.script_file.file).absolute())
        changes["script_file"] = replace(spec.script_file, file=file, trust=None)
    return replace(spec, trust=None, **changes)


def _outcome(result: object) -> SliceOutcome:
    """Return the object that a worker returned for a slice, checked to be an outcome.

    Raises WorkerLost for anything else.
    """
    if not isinstance(result, SliceOutcome):
        raise WorkerLost(
            None,
            None,
            f"its worker returned a value of type {type(result).__name__} instead of the "
            "results of the trial",
        )
    return result


def _differences(worker_versions: Mapping[str, str]) -> str:
    """Return a text on how a worker's versions of libraries differ from those here; empty if equal.

    `worker_versions` is name of a library → its version there.
    """
    ours = pickled.libraries()
    found = [
        f"{name} is {worker_versions.get(name)} there and {version} here"
        for name, version in ours.items()
        if worker_versions.get(name) != version
    ]
    return f"{', '.join(found)}; install the same versions" if found else ""


def _nearest(root: Path) -> Path:
    """Return `root` if that folder exists, else its nearest parent that does."""
    return next(path for path in (root, *root.parents) if path.is_dir())


@contextlib.contextmanager
def _probe(root: Path) -> Iterator[Path]:
    """Create an empty file in or above `root` while the block runs, and yield its path.

    Workers that see it share the folder of the sweeps. Raises StorageError if it cannot be created.
    """
    path = _nearest(root) / f".sweep-shared-{secrets.token_hex(8)}"
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise StorageError(f"{path}: cannot be created: {with_remedy(error)}") from error
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
