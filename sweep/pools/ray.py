"""Slots on a Ray cluster: one actor for each processor of its nodes; Ray itself retries nothing.

Ray's library takes over the signals of its process, and aborts it some time after the cluster is
lost. So the driver does not import it: a separate process, the gateway, holds the connection and
forwards requests. If the gateway ends in any way, only the cluster is lost.

Every Ray process listens on all networks of its machine, even if it was started with 127.0.0.1, and
anyone who can reach it can run code there. So a cluster is used only if it refuses clients without
a token or certificate, which is tested by connecting as such a client.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import itertools
import math
import os
import re
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle

from sweep.core.errors import BadConfig, StorageError, SweepError, UsageError, without_password
from sweep.pools._shared import cluster
from sweep.pools._shared import worker as there
from trainables.core.processes.program import leave_signals_to_parent
from trainables.core.processes.starting import guard_command

#: Seconds for the gateway to start and join the cluster, for the first actors to start, and for a
#: response of the head or of this machine's node.
START_S, WORKERS_S, ANSWER_S = 60.0, 30.0, 30.0
#: Seconds between two checks of the head and its nodes, and failed checks after which it is lost.
LOOK_S, LOOKS = 1.0, 3
#: Seconds after the loss of a worker during which its node may report a regular end.
FAREWELL_S = 1.0
#: Maximum concurrent calls of an actor: its slice, requests during it, and `_Slot.stay`.
CALLS = 8
#: Ray's numbers of the reasons for a regular end of a node: stopped or drained.
EXPECTED = (1, 3, 4)

#: Example of a head node's address, for messages.
_EXAMPLE = "such as node-1:6379"
#: Instruction for starting a Ray cluster with a token.
_HOW = (
    "run `ray get-auth-token --generate`, copy its file to each machine, then run `ray start` there"
)
#: Environment variable that turns Ray's authentication on.
_MODE = "RAY_AUTH_MODE"
_LENGTH, _LAST_PORT = 8, 65_535


# ---- in the driver ------------------------------------------------------------------------------


class Pool(cluster.ClusterPool):
    """Pool on a Ray cluster, whose connection another process holds: the gateway.

    Both exchange frames over the gateway's standard input and output. A frame is the length of a
    pickled tuple and the tuple. Requests are (number, verb, arguments); responses are (number,
    True, result) or (number, False, error). Events of the cluster are (-1, name, details).
    """

    scheduler: ClassVar[str] = "Ray head"

    def __init__(self, slots: int, address: str = "") -> None:
        super().__init__(slots, _check_address(address))
        self._gateway: asyncio.subprocess.Process | None = None
        self._to_gateway: Any = None
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._lost = ""

    def resize(self, slots: int) -> None:
        """Change the maximum number of actors; the gateway starts more where there is room.

        No running actor is ended. Returns at once.
        """
        super().resize(slots)
        if self._gateway is not None:
            self._post(self._request("set_limit", slots))

    async def _connect_to_cluster(self, reach_s: float) -> Collection[str]:
        """Start the gateway process, let it join the cluster, and return its actors' addresses.

        The head node has `reach_s` seconds to answer. Then waits up to `WORKERS_S` seconds for
        actors, which may still be fewer than the free processors.

        Raises:
            StorageError: no Ray head answers at the address, or this machine cannot join.
            UsageError: the cluster is open to others.
        """
        if not await _answers(self._address, reach_s):
            raise StorageError(
                f"--address: no Ray head answers at {self._address}; start one with `ray "
                "start --head`"
            )
        begin = f"from {__name__} import gateway; gateway()"
        self._gateway = await asyncio.create_subprocess_exec(
            *guard_command([sys.executable, "-c", begin]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",  # Ray's workers import from this folder first
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
            start_new_session=True,
        )
        reader: Any = self._gateway.stdout
        self._to_gateway = self._gateway.stdin
        self._begin(self._listen(reader))
        joined = self._request("join", self._address, self._most)
        try:
            self.closed_by, found = await asyncio.wait_for(joined, START_S + WORKERS_S)
        except TimeoutError:
            late = f"the {self.scheduler} at {self._address} accepts connections but sends nothing"
            raise StorageError(f"--address: {late}; restart it, or give another address") from None
        return list(found)

    async def _listen(self, gateway: asyncio.StreamReader) -> None:
        """Handle the gateway's responses and events until it ends.

        All requests without a response then fail with StorageError.
        """
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                number, *said = await _read_frame(gateway)
                if number >= 0:
                    self._resolve(number, *said)
                else:
                    self._handle_event(*said)
        again = "nothing is lost: `sweep resume` continues"
        ended = (
            f"the process with the connection to the {self.scheduler} at {self._address} has ended"
        )
        self._lost = self._lost or f"{ended}; {again}"
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(StorageError(self._lost))
                asked.exception()  # retrieved, so that asyncio does not log it

    def _resolve(self, number: int, is_result: bool, answer: Any) -> None:
        """Set the result, or the error, of request `number`, if its caller still waits."""
        asked = self._asked.get(number)
        if asked is not None and not asked.done():
            asked.set_result(answer) if is_result else asked.set_exception(answer)

    def _handle_event(self, name: str, subject: Any) -> None:
        """Use or remove a worker, or note that the cluster is lost, as the gateway reports.

        `name` is ``came``, ``went`` or ``lost``; `subject` is an address, or (address, was
        expected).
        """
        if name == "came":
            self._add_joined(subject)
        elif name == "went":
            self._remove_worker(*subject)
        elif name == "lost":
            self._lost = self._lost_message()

    async def _request(self, verb: str, *arguments: Any) -> Any:
        """Send a request to the gateway, and return its result or raise its error.

        `verb` is the name of a method of `_Gateway` without its underscore. Raises StorageError if
        the cluster is lost.
        """
        if self._lost:
            raise StorageError(self._lost)
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._to_gateway.write(_to_frame(number, verb, arguments))
            return await self._asked[number]
        finally:
            del self._asked[number]

    async def _call_worker(
        self, address: str, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call a function in the actor at `address`, even during a slice.

        Returns its result or raises its error. If the actor is lost, it never returns, since the
        gateway reports the loss. Raises StorageError if the cluster is lost, and UsageError if the
        actor could not be started.
        """
        came = await self._request("call", address, cloudpickle.dumps((function, arguments)))
        well, answer = cloudpickle.loads(came)
        if not well:
            raise answer
        return answer

    async def _run_in_worker(self, address: str, key: str, slice_spec: bytes) -> object:
        """Run a pickled slice once in the actor at `address`, and return its outcome.

        `key` is the slice's name in later calls. Never returns if the actor is lost. Raises
        WorkerLost if the slice's process died, and StorageError if the cluster is lost.
        """
        return await self._call_worker(address, there.run, key, slice_spec, _is_always_wanted)

    async def _ping(self) -> None:
        """Wait until the Ray head answers a small request; StorageError if the cluster is lost."""
        await self._request("ping")

    async def _dismiss(self, worker: cluster.Worker, key: str) -> None:
        """Kill the actor of an abandoned worker, and with it slice `key`.

        The gateway starts a new one where there is room. Raises StorageError if the cluster is
        lost.
        """
        await self._request("drop", worker.address)

    def _describe_loss(self) -> str:
        """Return the message that the cluster or the gateway is lost; empty while both work."""
        return self._lost

    async def _disconnect(self) -> None:
        """Close the connection to the gateway, which ends its actors, and wait for its end.

        Does nothing if none was started.
        """
        if self._gateway is not None:
            self._to_gateway.close()  # this ends the gateway, which ends its actors
            await self._gateway.wait()


def _is_always_wanted() -> bool:
    """Return True: an actor ends together with its driver, so its slice is always wanted."""
    return True


def _to_frame(*items: Any) -> bytes:
    """Return a tuple as a frame: the length of its pickle in `_LENGTH` bytes, and the pickle."""
    sent = cloudpickle.dumps(items)
    return len(sent).to_bytes(_LENGTH, "big") + bytes(sent)


async def _read_frame(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    """Read one frame and return its tuple; raises IncompleteReadError at the end of the stream."""
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    return tuple(cloudpickle.loads(await reader.readexactly(length)))


# ---- the checks of an address and of its protection ---------------------------------------------


def _check_address(address: str) -> str:
    """Return the address of a Ray head, ``HOST:PORT``, unchanged after checking its form.

    The head is not contacted.

    Raises:
        BadConfig: the address is missing or invalid, Ray is not installed, or other users can read
            the token.
    """
    if importlib.util.find_spec("ray") is None:
        hint = "install it: pip install 'sweep-rl[ray]'"
        raise BadConfig("--pool", "ray", "another pool", hint, problem="Ray is not installed")
    form = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", address, re.ASCII)
    if form is None or not 0 < int(form[2]) <= _LAST_PORT:
        problem = f"'{without_password(address)}' is not an address of a Ray head"
        problem = problem if address else "the pool ray needs the address of a cluster"
        allowed = f"the head's host and port, {_EXAMPLE}"
        raise BadConfig("--address", address, allowed, problem=problem)
    token = Path.home() / ".ray" / "auth_token"
    used = not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    used = used and os.environ.get(_MODE) != "disabled" and token.is_file()
    if used and token.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        problem = f"{token} can be read by others, who could run code on the cluster with it"
        raise BadConfig(
            "--address", address, "a token that you alone can read", f"run chmod 600 {token}",
            problem=problem,
        )  # fmt: skip
    return address


def _host_and_port(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, without the brackets around an IPv6 address."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _answers(address: str, within_s: float) -> bool:
    """Return whether a connection to an address is accepted within `within_s` seconds.

    It is closed again.
    """
    try:
        opening = asyncio.open_connection(*_host_and_port(address))
        _, writer = await asyncio.wait_for(opening, within_s)
    except (OSError, UnicodeError):
        return False
    writer.close()
    return True


async def _lets_everybody_in(address: str) -> bool:
    """Return whether the server at an address answers a TLS client without a certificate.

    A server that does neither answer nor refuse within `cluster.CONNECT_S` seconds counts as open,
    and so does one that cannot be reached.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        reader, writer = await asyncio.open_connection(*_host_and_port(address), ssl=context)
        with contextlib.closing(writer):
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            return bool(await asyncio.wait_for(reader.read(1), cluster.CONNECT_S))
    except (ssl.SSLError, ConnectionResetError, BrokenPipeError):
        return False
    except OSError:  # neither accepted nor refused, so it counts as open
        return True


#: Program that connects to a head without a token; its exit code tells the result.
_STRANGER = """
import sys
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=sys.argv[1])
except AuthenticationError:
    sys.exit(3)
sys.exit(4)
"""
_TURNED_AWAY, _LET_IN = 3, 4


async def _wants_token(address: str) -> bool:
    """Return whether the Ray head at an address refuses clients without a token.

    A child process tries to connect as such a client, for up to `ANSWER_S` seconds.

    Raises:
        StorageError: the server does not respond like a Ray head.
    """
    stranger = await asyncio.create_subprocess_exec(
        *guard_command([sys.executable, "-c", _STRANGER, address]),
        env={**os.environ, _MODE: "disabled"},
        stdin=subprocess.DEVNULL,
    )
    came = None
    with contextlib.suppress(TimeoutError):
        came = await asyncio.wait_for(stranger.wait(), ANSWER_S)
    if came not in (_TURNED_AWAY, _LET_IN):
        with contextlib.suppress(ProcessLookupError):
            stranger.kill()
        raise StorageError(
            f"--address: the server at {address} is not a compatible Ray head; make sure that both "
            f"have the same version of Ray and the same RAY_USE_TLS"
        )
    return came == _TURNED_AWAY


# ---- in the gateway -----------------------------------------------------------------------------


def gateway() -> None:
    """Serve the driver that has started this process, over standard streams, until it ends.

    Then this process exits. From now on, its own output goes to standard error, and it ignores
    Ctrl-C, SIGTERM and a closed terminal.
    """
    leave_signals_to_parent()
    answers = os.dup(1)
    os.dup2(2, 1)  # Ray's prints must not mix with responses
    asyncio.run(_Gateway(answers).serve())


class _Slot:
    """Ray actor whose process is one slot: it calls the functions that it is sent."""

    def call(self, sent: bytes) -> bytes:
        """Call a pickled (function, arguments).

        Returns (True, result) or (False, error), pickled.
        """
        try:
            function, given = cloudpickle.loads(sent)
            came = (True, function(*given))
        except Exception as error:  # noqa: BLE001 raised again in the driver
            came = (False, error)
        return bytes(cloudpickle.dumps(came))

    def stay(self) -> None:
        """Block until this process ends; whoever awaits this call notices that."""
        threading.Event().wait()


class _Gateway:
    """Process that holds the connection to a Ray cluster and runs one actor per slot of its nodes.

    An actor's address is its node's name and a number. Frames for the driver are written to the
    file descriptor `answers`.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._address = ""
        self._most = 0
        self._actors: dict[str, Any] = {}
        self._places: dict[tuple[str, int], asyncio.Task[None]] = {}
        """(node, number) of each slot → task that runs its actor."""
        self._holders: dict[str, tuple[str, int]] = {}
        self._alive: set[str] = set()
        self._has_joined = False
        self._tasks: set[asyncio.Task[None]] = set()

    def _say(self, *items: Any) -> None:
        """Write a frame with these items to the driver."""
        frame = _to_frame(*items)
        while frame:
            frame = frame[os.write(self._answers, frame) :]

    async def serve(self) -> None:
        """Execute the driver's requests until it closes the connection, then exit the process.

        Ray's own cleanup is skipped.
        """
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb")
        )
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                self._begin(self._answer(*await _read_frame(reader)))
        os._exit(0)

    def _begin(self, work: Any) -> None:
        """Start a coroutine as a task, and keep a reference until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, verb: str, arguments: Sequence[Any]) -> None:
        """Call the method named by a request's verb, and send its result or error to the driver."""
        try:
            answer = await getattr(self, f"_{verb}")(*arguments)
        except SweepError as error:
            self._say(number, False, error)
        except Exception as error:  # noqa: BLE001 maybe of a class of Ray, which the driver cannot load
            said = " ".join(str(error).split())
            self._say(number, False, RuntimeError(f"{type(error).__name__}: {said}"))
        else:
            self._say(number, True, answer)

    async def _join(self, address: str, limit: int) -> tuple[str, list[str]]:
        """Join the cluster at `address` and start at most `limit` actors.

        Waits up to `WORKERS_S` seconds for as many as the free processors can take. From now on
        head and nodes are watched, and new actors reported to the driver.

        Returns:
            The protection of the cluster as a text, and the addresses of its actors.

        Raises:
            UsageError: the cluster is open to others, or requires a token that is not used.
            StorageError: no compatible Ray head answers, or this machine cannot join.
        """
        self._address, self._most = address, limit
        certificates = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
        mode = os.environ.setdefault(_MODE, "disabled" if certificates else "token")
        wants_token, _ = await asyncio.gather(
            _wants_token(address), asyncio.to_thread(importlib.import_module, "ray")
        )
        if not wants_token and (not certificates or await _lets_everybody_in(address)):
            raise UsageError(
                f"--address: the Ray cluster at {address} is open: anyone who can reach it can "
                f"run code there; make it require a token: {_HOW}"
            )
        if wants_token and mode != "token":
            raise UsageError(f"--address: {address} requires a token; set {_MODE}=token")
        try:
            await asyncio.wait_for(asyncio.to_thread(_init, address), ANSWER_S)
        except TimeoutError:
            raise _unknown_node_error(address, f"no answer within {ANSWER_S:g} s") from None
        import ray

        free = int(ray.available_resources().get("CPU", 0))
        await self._start_missing_actors()
        self._begin(self._watch())
        until = asyncio.get_running_loop().time() + WORKERS_S
        expected = min(free, len(self._places))
        while len(self._actors) < expected and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
        self._has_joined = True
        return "with a token" if wants_token else "over TLS", list(self._actors)

    def _report_actor(self, address: str) -> None:
        """Tell the driver of a new actor, unless the response to `_join` will contain it."""
        if self._has_joined:
            self._say(-1, "came", address)

    async def _set_limit(self, limit: int) -> None:
        """Change the maximum number of actors; missing ones are started at the next check.

        None is ended.
        """
        self._most = limit

    async def _ping(self) -> None:
        """Wait until the Ray head answers a request; an accepted connection is not enough."""
        import ray

        await asyncio.to_thread(ray.nodes)

    async def _drop(self, address: str) -> None:
        """Kill the actor at `address`, if it runs; another is started at the next check."""
        import ray

        actor = self._actors.get(address)
        if actor is not None and not isinstance(actor, UsageError):
            await asyncio.to_thread(ray.kill, actor, no_restart=True)

    async def _call(self, address: str, sent: bytes) -> bytes:
        """Call a pickled (function, arguments) in the actor at `address`.

        Returns the pickled answer. It never returns if the actor is lost, since `_run_actor`
        reports that. Raises UsageError if the actor could not be started.
        """
        import ray

        actor = self._actors.get(address)
        if isinstance(actor, UsageError):
            raise actor
        if actor is not None:
            try:
                return bytes(await actor.call.remote(sent))
            except ray.exceptions.ActorDiedError:
                pass
            except ray.exceptions.RayError:
                with contextlib.suppress(Exception):
                    ray.kill(actor, no_restart=True)  # as in `_run_actor`
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never  # `_run_actor` reports the loss of the worker

    async def _watch(self) -> None:
        """Check the head and its nodes every `LOOK_S` seconds, and start missing actors.

        After `LOOKS` failed checks the head is lost: tells the driver, ends the actors, and exits
        the process.
        """
        missed = 0
        while missed < LOOKS:
            await asyncio.sleep(LOOK_S)
            missed = 0 if await _answers(self._address, LOOK_S) else missed + 1
            if not missed:
                with contextlib.suppress(Exception):  # the head may end during the request
                    await asyncio.wait_for(self._start_missing_actors(), LOOKS * LOOK_S)
        self._say(-1, "lost", "")
        exits = cloudpickle.dumps((os._exit, (0,)))  # otherwise they would run for a minute
        for actor in self._actors.values():
            actor.call.remote(exits)
        await asyncio.sleep(LOOK_S)
        os._exit(0)

    async def _start_missing_actors(self) -> None:
        """List the nodes, and start the actors that they lack: one per processor, up to the limit.

        Each gets its share of the node's GPUs. Also updates the set of nodes that are alive. Does
        not wait for the actors.
        """
        import ray

        nodes = {node["NodeID"]: node for node in await asyncio.to_thread(ray.nodes)}
        self._alive = {name for name, node in nodes.items() if node["Alive"]}
        for name in self._alive:
            offered = nodes[name]["Resources"]
            slots = int(offered.get("CPU", 0))
            for number in range(slots):
                place = self._places.get((name, number))
                if (place is None or place.done()) and self._actor_count < self._most:
                    gpus = _share(offered.get("GPU", 0), slots)
                    address = self._name(name, number, nodes[name]["NodeName"])
                    life = self._run_actor(name, address, gpus)
                    self._places[name, number] = asyncio.get_running_loop().create_task(life)

    def _name(self, node: str, number: int, called: str) -> str:
        """Return an address for slot `number` of a node: ``NAME/NUMBER``.

        `node` is the node's id and `called` its name. If another node has the same name, a part of
        the id is added. The slot is noted as the holder of the address.
        """
        address = f"{called}/{number}"
        holder = self._holders.get(address, (node, number))
        if holder != (node, number) and not self._places[holder].done():
            address = f"{called}-{node[:8]}/{number}"
        self._holders[address] = (node, number)
        return address

    @property
    def _actor_count(self) -> int:
        """Number of slots whose actor runs or is starting."""
        return sum(not place.done() for place in self._places.values())

    async def _run_actor(self, node: str, address: str, gpus: float) -> None:
        """Start an actor on a node and report it, and report its loss when it has ended.

        `gpus` is its share of the node's GPUs. `_start_missing_actors` replaces it while its node
        is alive. An actor that cannot start is kept as the UsageError that explains it, which
        callers get. Nothing is reported if the node is lost before its actor starts.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = ray.remote(_Slot).options(
            num_cpus=1,
            num_gpus=gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        actor = actor.remote()
        try:
            await actor.call.remote(cloudpickle.dumps((os.getpid, ())))
        except ray.exceptions.RayError as error:
            if node not in self._alive:
                return
            *_, why = str(error).strip().splitlines()
            self._actors[address] = UsageError(f"its actor does not start: {why}")
            self._report_actor(address)
            while node in self._alive:
                await asyncio.sleep(LOOK_S)
        else:
            self._actors[address] = actor
            self._report_actor(address)
            with contextlib.suppress(ray.exceptions.RayError):
                await actor.stay.remote()
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)  # it may be disconnected but still run
        del self._actors[address]
        self._say(-1, "went", (address, await _has_left(node)))


def _share(gpus: float, slots: int) -> float:
    """Return one slot's share of a node's GPUs: a whole number of them, or a fraction of one.

    It is rounded down, so that all `slots` fit.
    """
    return gpus // slots if gpus >= slots else math.floor(gpus / slots * 1e4) / 1e4


def _init(address: str) -> None:
    """Connect this process to the Ray cluster at `address`; raises StorageError if that fails."""
    import ray

    try:
        ray.init(address, log_to_driver=False, configure_logging=False, namespace="sweep")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _unknown_node_error(address, " ".join(str(error).split())) from None


def _unknown_node_error(address: str, problem: str) -> StorageError:
    """Return the error for a machine that cannot join the cluster, with the remedy."""
    return StorageError(
        f"--address: this machine cannot join the Ray cluster at {address} ({problem}); make it "
        f"one of the nodes: `ray start --address {address}`"
    )


async def _has_left(node: str) -> bool:
    """Return whether a node that lost an actor reports soon that it was stopped or drained.

    Waits up to `FAREWELL_S` seconds for that.
    """
    import ray

    with contextlib.suppress(Exception):  # the head may be lost, too
        for _ in range(5):
            found: list[Mapping[str, Any]] = await asyncio.to_thread(ray.nodes)
            (state,) = [one for one in found if one["NodeID"] == node]
            if not state["Alive"]:
                return state["DeathReason"] in EXPECTED
            await asyncio.sleep(FAREWELL_S / 5)
    return False
