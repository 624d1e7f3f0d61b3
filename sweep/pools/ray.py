"""Slots on a Ray cluster: an actor for each processor of its nodes, and nothing is tried twice.

Ray's library takes over the signals of the process that it is in, and aborts it some time after the
cluster is lost. So it is not loaded into the driver: a process of its own, the gateway, holds the
connection and hands on what it is given. However it ends, the cluster is lost and nothing else.

Every process of Ray's listens on all networks of its machine, also one that was started with
127.0.0.1, and who reaches it can run code there. So we use a cluster only if it turns away who
shows no token or no certificate, and see for ourselves that it does.
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

from sweep.errors import BadConfig, StorageError, SweepError, UsageError, without_password
from sweep.pools._shared import cluster
from sweep.pools._shared import worker as there
from trainables.core.processes.program import leave_signals_to_parent
from trainables.core.processes.starting import guard_command

#: Seconds that the gateway has to start and to join the cluster, and that then actors have to start
#: for which there is room; and that a head has for an answer, and this machine's node.
START_S, WORKERS_S, ANSWER_S = 60.0, 30.0, 30.0
#: Seconds between two looks at the head and its nodes; and how many in a row it may not answer.
LOOK_S, LOOKS = 1.0, 3
#: Seconds after the loss of a worker in which its node may say that it leaves.
FAREWELL_S = 1.0
#: Calls that an actor takes at once: its slice, what is asked beside it, and `_Slot.stay`.
CALLS = 8
#: Why a node is gone, as Ray counts it, where nobody is to blame: it was stopped, or drained.
EXPECTED = (1, 3, 4)

_EXAMPLE = "such as node-1:6379"
_HOW = "`ray get-auth-token --generate`, its file on each machine, then `ray start` there"
_MODE = "RAY_AUTH_MODE"
_LENGTH, _LAST_PORT = 8, 65_535


# ---- in the driver ------------------------------------------------------------------------------


class Pool(cluster.ClusterPool):
    """Talks with the gateway in frames over its standard input and output.

    A frame is a pickled tuple behind its length: of ours (number, verb, arguments), of its own
    (number, whether it went well, the answer or the error). Number -1 is news: (-1, name, about).
    """

    scheduler: ClassVar[str] = "Ray head"

    def __init__(self, slots: int, address: str = "") -> None:
        super().__init__(slots, _checked(address))
        self._gateway: asyncio.subprocess.Process | None = None
        self._to_gateway: Any = None
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._lost = ""

    def resize(self, slots: int) -> None:
        """Use so many workers at most; more of them are started where there is room."""
        super().resize(slots)
        if self._gateway is not None:
            self._post(self._request("use", slots))

    async def _reach(self, reach_s: float) -> Collection[str]:
        if not await _answers(self._address, reach_s):
            raise StorageError(
                f"--address: no Ray head answers at {self._address}; `ray start --head` starts one"
            )
        begin = f"from {__name__} import gateway; gateway()"
        self._gateway = await asyncio.create_subprocess_exec(
            *guard_command([sys.executable, "-c", begin]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",  # Ray has its workers import from here first
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
            late = f"the {self.scheduler} at {self._address} takes connections and says nothing"
            raise StorageError(f"--address: {late}") from None
        return list(found)

    async def _listen(self, gateway: asyncio.StreamReader) -> None:
        """Take what the gateway says, until its end."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                number, *said = await _frame(gateway)
                if number >= 0:
                    self._answered(number, *said)
                else:
                    self._news(*said)
        again = "nothing is lost: `sweep resume` goes on"
        ended = f"the process that spoke to the {self.scheduler} at {self._address} was killed"
        self._lost = self._lost or f"{ended}; {again}"
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(StorageError(self._lost))
                asked.exception()  # a question whose asker has gone is no error

    def _answered(self, number: int, well: bool, answer: Any) -> None:
        asked = self._asked.get(number)
        if asked is not None and not asked.done():
            asked.set_result(answer) if well else asked.set_exception(answer)

    def _news(self, name: str, about: Any) -> None:
        if name == "came":
            self._came(about)
        elif name == "went":
            self._went(*about)
        elif name == "lost":
            self._lost = self._gone()

    async def _request(self, verb: str, *given: Any) -> Any:
        if self._lost:
            raise StorageError(self._lost)
        number = next(self._numbers)
        self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._to_gateway.write(_framed(number, verb, given))
            return await self._asked[number]
        finally:
            del self._asked[number]

    async def _ask(self, address: str, function: Callable[..., Any], *given: Any) -> Any:
        came = await self._request("call", address, cloudpickle.dumps((function, given)))
        well, answer = cloudpickle.loads(came)
        if not well:
            raise answer
        return answer

    async def _send(self, address: str, key: str, slice_spec: bytes) -> object:
        return await self._ask(address, there.run, key, slice_spec, _always)

    async def _greet(self) -> None:
        await self._request("greet")

    async def _dismiss(self, worker: cluster.Worker, key: str) -> None:
        """Have its actor ended; where there is room for another one, that one comes."""
        await self._request("drop", worker.address)

    def _lost_cluster(self) -> str:
        """Return the loss of the head in words; its running slices are then unknown."""
        return self._lost

    async def _leave(self) -> None:
        if self._gateway is not None:
            self._to_gateway.close()  # at its end the gateway ends, and its actors with it
            await self._gateway.wait()


def _always() -> bool:
    """Return True: a slice ends with its actor, and that with its driver."""
    return True


def _framed(*said: Any) -> bytes:
    sent = cloudpickle.dumps(said)
    return len(sent).to_bytes(_LENGTH, "big") + bytes(sent)


async def _frame(reader: asyncio.StreamReader) -> tuple[Any, ...]:
    length = int.from_bytes(await reader.readexactly(_LENGTH), "big")
    return tuple(cloudpickle.loads(await reader.readexactly(length)))


# ---- who may be talked to -----------------------------------------------------------------------


def _checked(address: str) -> str:
    """The address of a head.

    Raises:
        BadConfig: it is missing or none, Ray is not installed, or others can read our token.
    """
    if importlib.util.find_spec("ray") is None:
        hint = "pip install 'sweep-rl[ray]'"
        raise BadConfig("--pool", "ray", "another pool", hint, problem="Ray is not installed")
    form = re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", address, re.ASCII)
    if form is None or not 0 < int(form[2]) <= _LAST_PORT:
        problem = f"'{without_password(address)}' is no head of a Ray cluster"
        problem = problem if address else "the pool ray has no cluster"
        allowed = f"the head's host and port, {_EXAMPLE}"
        raise BadConfig("--address", address, allowed, problem=problem)
    own = Path.home() / ".ray" / "auth_token"
    used = not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    used = used and os.environ.get(_MODE) != "disabled" and own.is_file()
    if used and own.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        problem = f"{own} can be read by others, who could run code on the cluster with it"
        raise BadConfig(
            "--address", address, "a token that you alone can read", f"chmod 600 {own}",
            problem=problem,
        )  # fmt: skip
    return address


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


async def _answers(address: str, within_s: float) -> bool:
    """Return whether connections to an address are accepted."""
    try:
        opening = asyncio.open_connection(*_host_and_port(address))
        _, writer = await asyncio.wait_for(opening, within_s)
    except (OSError, UnicodeError):
        return False
    writer.close()
    return True


async def _lets_everybody_in(address: str) -> bool:
    """Return whether a request without a certificate of ours succeeds over TLS."""
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
    except OSError:  # it was not said, so it is not known
        return True


#: Asks a head who it is as somebody without a token, and exits with what came of it.
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
    """Return whether clients without a token are refused; only Ray's own word for that counts.

    Raises:
        StorageError: nobody answers who speaks as Ray does.
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
            f"--address: what answers at {address} is no Ray head that speaks as we do; see that "
            f"both have the same Ray and the same RAY_USE_TLS"
        )
    return came == _TURNED_AWAY


# ---- in the gateway -----------------------------------------------------------------------------


def gateway() -> None:
    """Join a cluster for the driver that has started this process, and end with it."""
    leave_signals_to_parent()
    answers = os.dup(1)
    os.dup2(2, 1)  # what Ray prints is no answer
    asyncio.run(_Gateway(answers).serve())


class _Slot:
    """An actor: calls what it is sent, in a process that is one slot."""

    def call(self, sent: bytes) -> bytes:
        """Return the pickled result of a function, or its error."""
        try:
            function, given = cloudpickle.loads(sent)
            came = (True, function(*given))
        except Exception as error:  # noqa: BLE001 it is the driver's
            came = (False, error)
        return bytes(cloudpickle.dumps(came))

    def stay(self) -> None:
        """Wait for the end of this process."""
        threading.Event().wait()


class _Gateway:
    """Actors on the nodes of a cluster, by their addresses: name of the node and a number."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._address = ""
        self._most = 0
        self._actors: dict[str, Any] = {}
        self._places: dict[tuple[str, int], asyncio.Task[None]] = {}
        """Node and number of each slot → the life of its actors."""
        self._holders: dict[str, tuple[str, int]] = {}
        self._alive: set[str] = set()
        self._has_joined = False
        self._tasks: set[asyncio.Task[None]] = set()

    def _say(self, *said: Any) -> None:
        frame = _framed(*said)
        while frame:
            frame = frame[os.write(self._answers, frame) :]

    async def serve(self) -> None:
        """Answer the driver until it leaves; Ray itself would then wait for a head that is gone."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb")
        )
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                self._begin(self._answer(*await _frame(reader)))
        os._exit(0)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, verb: str, given: Sequence[Any]) -> None:
        try:
            answer = await getattr(self, f"_{verb}")(*given)
        except SweepError as error:
            self._say(number, False, error)
        except Exception as error:  # noqa: BLE001 of Ray's own kind, which the driver does not load
            said = " ".join(str(error).split())
            self._say(number, False, RuntimeError(f"{type(error).__name__}: {said}"))
        else:
            self._say(number, True, answer)

    async def _join(self, address: str, most: int) -> tuple[str, list[str]]:
        """Join the cluster and start actors.

        Returns:
            by what it is closed to others, and the addresses of the actors that are there.
        """
        self._address, self._most = address, most
        certificates = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
        mode = os.environ.setdefault(_MODE, "disabled" if certificates else "token")
        wants_token, _ = await asyncio.gather(
            _wants_token(address), asyncio.to_thread(importlib.import_module, "ray")
        )
        if not wants_token and (not certificates or await _lets_everybody_in(address)):
            raise UsageError(
                f"--address: the Ray cluster at {address} is open to everybody who reaches it, and "
                f"who does can run code there; have it ask for a token: {_HOW}"
            )
        if wants_token and mode != "token":
            raise UsageError(f"--address: {address} asks for a token, too; set {_MODE}=token")
        try:
            await asyncio.wait_for(asyncio.to_thread(_init, address), ANSWER_S)
        except TimeoutError:
            raise _no_node(address, f"no answer within {ANSWER_S:g} s") from None
        import ray

        free = int(ray.available_resources().get("CPU", 0))
        await self._look()
        self._begin(self._watch())
        until = asyncio.get_running_loop().time() + WORKERS_S
        expected = min(free, len(self._places))
        while len(self._actors) < expected and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.1)
        self._has_joined = True
        return "with a token" if wants_token else "over TLS", list(self._actors)

    def _came(self, address: str) -> None:
        """Say who is there, but for those who are in the answer of `_join`."""
        if self._has_joined:
            self._say(-1, "came", address)

    async def _use(self, most: int) -> None:
        self._most = most

    async def _greet(self) -> None:
        """Return when the head has answered; that it takes connections is not enough."""
        import ray

        await asyncio.to_thread(ray.nodes)

    async def _drop(self, address: str) -> None:
        """End an actor that answers nothing."""
        import ray

        actor = self._actors.get(address)
        if actor is not None and not isinstance(actor, UsageError):
            await asyncio.to_thread(ray.kill, actor, no_restart=True)

    async def _call(self, address: str, sent: bytes) -> bytes:
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
                    ray.kill(actor, no_restart=True)  # as in `_live`
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await never  # that the worker went is said by `_live`

    async def _watch(self) -> None:
        """Look at the head and its nodes all the time; leave when the head is gone."""
        missed = 0
        while missed < LOOKS:
            await asyncio.sleep(LOOK_S)
            missed = 0 if await _answers(self._address, LOOK_S) else missed + 1
            if not missed:
                with contextlib.suppress(Exception):  # it may go while it is asked
                    await asyncio.wait_for(self._look(), LOOKS * LOOK_S)
        self._say(-1, "lost", "")
        exits = cloudpickle.dumps((os._exit, (0,)))  # nobody else would end them for a minute
        for actor in self._actors.values():
            actor.call.remote(exits)
        await asyncio.sleep(LOOK_S)
        os._exit(0)

    async def _look(self) -> None:
        """See which nodes there are, and have an actor for each processor that they offer."""
        import ray

        nodes = {node["NodeID"]: node for node in await asyncio.to_thread(ray.nodes)}
        self._alive = {name for name, node in nodes.items() if node["Alive"]}
        for name in self._alive:
            offered = nodes[name]["Resources"]
            slots = int(offered.get("CPU", 0))
            for number in range(slots):
                place = self._places.get((name, number))
                if (place is None or place.done()) and self._taken < self._most:
                    gpus = _share(offered.get("GPU", 0), slots)
                    address = self._name(name, number, nodes[name]["NodeName"])
                    life = self._live(name, address, gpus)
                    self._places[name, number] = asyncio.get_running_loop().create_task(life)

    def _name(self, node: str, number: int, called: str) -> str:
        """The address of a slot: as its node is called, where no other one is called like that."""
        address = f"{called}/{number}"
        holder = self._holders.get(address, (node, number))
        if holder != (node, number) and not self._places[holder].done():
            address = f"{called}-{node[:8]}/{number}"
        self._holders[address] = (node, number)
        return address

    @property
    def _taken(self) -> int:
        return sum(not place.done() for place in self._places.values())

    async def _live(self, node: str, address: str, gpus: float) -> None:
        """One actor from its start to its end; while its node is there, the next look has another.

        One that cannot start stays in its place with the reason, which whoever calls it is given.
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
            self._came(address)
            while node in self._alive:
                await asyncio.sleep(LOOK_S)
        else:
            self._actors[address] = actor
            self._came(address)
            with contextlib.suppress(ray.exceptions.RayError):
                await actor.stay.remote()
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)  # it may be cut off, and go on
        del self._actors[address]
        self._say(-1, "went", (address, await _has_left(node)))


def _share(gpus: float, slots: int) -> float:
    """Return one slot's share of a node's GPUs: some of them whole, or a part of one."""
    return gpus // slots if gpus >= slots else math.floor(gpus / slots * 1e4) / 1e4


def _init(address: str) -> None:
    import ray

    try:
        ray.init(address, log_to_driver=False, configure_logging=False, namespace="sweep")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise _no_node(address, " ".join(str(error).split())) from None


def _no_node(address: str, said: str) -> StorageError:
    return StorageError(
        f"--address: this machine cannot join the Ray cluster at {address} ({said}); it has to be "
        f"one of its nodes: `ray start --address {address}`"
    )


async def _has_left(node: str) -> bool:
    """Return whether a node whose worker was lost says soon that it was stopped or drained."""
    import ray

    with contextlib.suppress(Exception):  # nor does it say so, where the head is gone
        for _ in range(5):
            found: list[Mapping[str, Any]] = await asyncio.to_thread(ray.nodes)
            (state,) = [one for one in found if one["NodeID"] == node]
            if not state["Alive"]:
                return state["DeathReason"] in EXPECTED
            await asyncio.sleep(FAREWELL_S / 5)
    return False
