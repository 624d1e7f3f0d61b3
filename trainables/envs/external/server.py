"""A policy server: an environment whose episodes are played by clients, over HTTP.

    GET  /v1          protocol version and spaces
    GET  /v1/policy   the policy's layers, for clients that choose actions themselves
    POST /v1/episode  one call of one episode: start, policies, get_action, log_action, end

A request carries the token, the client's name and, within its episode, a number that rises by one.
A client without an answer sends the same request again: a number that was answered gets the same
answer, one that is pending keeps waiting, so that no step is lost or counted twice. Refusals are
JSON of one line that names the client: 400 a request that does not fit, 401 no token, 409 out of
order, 410 the episode is lost, 413 too large, 426 another protocol; 429 and 503 mean: repeat it
after ``Retry-After`` seconds.
"""

import contextlib
import hashlib
import hmac
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from trainables.core import strict_json
from trainables.core.settings import parse
from trainables.envs.calls.faults import close
from trainables.envs.external.calling import REMEMBERED, ExternalEnv
from trainables.envs.external.config import ServerConfig
from trainables.envs.external.polled import AGENT, EpisodeError, EpisodeLost, Full
from trainables.envs.external.tokens import VARIABLE, shared_token
from trainables.envs.external.wire import (
    CANNOT_RUN,
    PROTOCOL,
    Spaces,
    decode,
    describe,
    encode,
    pack,
    parse_space,
)
from trainables.envs.kinds.agents import AgentsEnv
from trainables.envs.registry import EnvContext
from trainables.errors import ConfigError, EnvError, shorten

#: Pattern of clients' names and episode ids; they are never used as file names.
NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
#: Calls of an episode.
CALLS = ("start", "policies", "get_action", "log_action", "end")
#: Keys of a request.
KEYS = frozenset(
    {"client", "episode", "number", "call", "observation", "action", "reward", "info", "logp"}
    | {"training_enabled", "truncated", "done", "agents", "policies"}
)
#: Seconds after which a client should repeat its request.
RETRY_S = 0.05
#: Bytes that are read of a refused request.
DRAINED = 2**20
#: Seconds that reading the rest of a refused request may take.
DRAIN_S = 1.0
#: Largest number of refusals that are logged in a minute, so that nobody can fill a disk.
LOGGED_A_MINUTE = 60

logger = logging.getLogger(__name__)


class Refused(Exception):
    """Raised to refuse a client's request, with the HTTP status and a reason of one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass
class _Remote:
    """A client's episode as the server knows it: its latest request, to detect repeated ones."""

    client: str
    """Name that the client has given itself."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Lock that is held while one of the episode's requests is handled."""
    number: int = -1
    """Number of the latest request that was handled; -1 before the first."""
    digest: bytes = b""
    """SHA-256 of the latest request that was handled."""
    waits_for_action: bool = False
    """True if the latest request asked for an action."""


class PolicyServer(ExternalEnv):
    """An environment whose episodes are played by `PolicyClient` programs, over HTTP.

    Args:
        context: settings (`ServerConfig`) and the worker's index: each worker has its own port.

    Raises:
        ConfigError: a setting is invalid, or there are no spaces.
    """

    action_space: Any = None
    """Action space of clients' environments, if a derived class sets it; None to take it from the
    settings."""
    observation_space: Any = None
    """Observation space of clients' environments, if a derived class sets it; None to take it from
    the settings."""

    def __init__(self, context: EnvContext) -> None:
        try:
            self.config = parse(ServerConfig, dict(context))
        except ConfigError as error:
            raise error.nested_under("env_config") from None
        self.episode_timeout_s = self.config.episode_timeout_s
        super().__init__(*self._spaces())
        self._worker, self._workers = context.worker_index, max(1, context.num_workers)
        self._remotes: dict[str, _Remote] = {}
        self._gone: dict[str, _Remote] = {}
        """The latest ended episodes, whose last request may be repeated."""
        self._table = threading.Lock()
        self._http: _Http | None = None
        self._policies: tuple[int, dict[str, Any]] = 0, {}
        """Version of the weights, and policy → data for clients."""
        self.token = ""

    @property
    def address(self) -> str:
        """URL of the server for its clients; EnvError before the server listens."""
        if self._http is None:
            raise EnvError(
                "there is no address yet: a policy server listens from its trainer's first "
                "iteration on"
            )
        host, port = str(self._http.server_address[0]), self._http.server_address[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Open the port and start to serve in a thread; a second call does nothing.

        Sets `token`, which is read or made, and logs the address, with a warning if other machines
        can reach it. Raises EnvError if no port is free, TokenError if there is no usable token.
        """
        if self._http is not None:
            return
        self.token = shared_token(self.config.token_file)
        self._http = self._open_port()
        if self.config.host not in ("127.0.0.1", "localhost", "::1"):
            logger.warning(
                "the policy server at %s is open to other machines, and what they send is not "
                "encrypted: put a proxy that speaks TLS before it",
                self.address,
            )
        logger.info("worker %d: policy server at %s", self._worker, self.address)
        super().start()

    def run(self) -> None:
        """Serve requests until `close`; runs in the environment's thread."""
        assert self._http is not None  # noqa: S101 as `start` has made it
        self._http.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        """Stop answering, release the port, and wait for the thread; a second call does nothing."""
        if self._http is not None and not self._is_closed:
            self._http.shutdown()
            super().close()
            self._http.close_all()
        super().close()

    # ---- requests ----------------------------------------------------------------------------

    def hello(self) -> dict[str, Any]:
        """Return the answer to a client's first request.

        Entry ``protocol`` is its version. ``agents`` are agent → ``observation_space`` and
        ``action_space``, described; with one agent these two stand beside ``protocol``.
        """
        both = {
            agent: {
                "observation_space": describe(one),
                "action_space": describe(self._actions[agent]),
            }
            for agent, one in self._observations.items()
        }
        return {"protocol": PROTOCOL, **({"agents": both} if self.has_agents else both[AGENT])}

    def take_policies(self, version: int, layers: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Set the policies that clients may fetch to choose actions: name → layers.

        Layers are None if clients cannot compute the policy; `version` is the version of the
        weights. Does nothing if it is the present version.
        """
        if version != self._policies[0]:
            self._policies = (
                version,
                {pid: one and _pack_layers(one) for pid, one in layers.items()},
            )

    def policy(self) -> dict[str, Any]:
        """Return ``version`` and the layers of the latest policy, as `LocalPolicy` takes them.

        With several agents the layers are in ``policies``, name → layers; those of a policy that
        clients cannot compute are None. Raises Refused: 503 before there is a policy, 409 if
        clients cannot compute the only one.
        """
        version, layers = self._policies
        if version == 0:
            raise Refused(503, "there is no policy yet; send the same request again")
        if self.has_agents:
            return {"version": version, "policies": layers}
        (one,) = layers.values()
        if one is None:
            raise Refused(409, f"this policy {CANNOT_RUN}")
        return {"version": version, **one}

    def handle_call(self, body: bytes) -> dict[str, Any]:
        """Execute the request in the JSON `body`, about one episode, and return the answer.

        The answer has its ``number``, and the ``action`` that was asked for or else the ``version``
        of the policies; for ``policies`` also these, agent → policy. Waits up to the setting
        `answer_s` for an action. Raises Refused, with the HTTP status, for any mistake, and if the
        request must be repeated.
        """
        try:
            request = strict_json.parse(body)
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the request is not JSON: {shorten(str(error))}") from None
        if not isinstance(request, dict):
            raise Refused(400, "the request is not a JSON object")
        client = _name(request, "client", "?")
        try:
            return self._handle(client, request, hashlib.sha256(body).digest())
        except Refused as error:
            raise Refused(error.status, f"client {client}: {error}") from None
        except EpisodeLost as error:
            raise Refused(410, f"client {client}: {error}") from None
        except EpisodeError as error:
            raise Refused(400, f"client {client}: {error}") from None
        except SystemExit:
            raise Refused(410, f"client {client}: the trainer has closed the server") from None

    def _handle(self, client: str, request: dict[str, Any], digest: bytes) -> dict[str, Any]:
        """Execute a client's parsed request, unless it is a repeated one, and return the answer.

        The answer is that of `handle_call`. `digest` is the SHA-256 of the request's body. Raises
        Refused, EpisodeError, EpisodeLost, or SystemExit after `close`.
        """
        if unknown := sorted(request.keys() - KEYS):
            raise Refused(
                400, f"unknown key {shorten(unknown[0])}; expected one of {', '.join(KEYS)}"
            )
        episode_id, call = _name(request, "episode", client), request.get("call")
        number = request.get("number")
        if call not in CALLS or type(number) is not int or (number == 0) is not (call == "start"):
            raise Refused(
                400,
                f"the call is {shorten(call)} and its number {shorten(number)}; expected start "
                f"with number 0, then {', '.join(CALLS[1:])} with 1, 2, …",
            )
        remote = self._remote(client, episode_id, call == "start")
        with remote.lock:
            self._accept(remote, episode_id, request, digest)
        answer = {"number": number, "version": self._policies[0]}
        if call == "policies":
            return {**answer, "policies": self.policies_of(episode_id, request["agents"])}
        if call != "get_action":
            return answer
        action = self._wait_for_action(episode_id, self.config.answer_s)
        return {"number": number, "action": encode(self.action_space, action)}

    def _accept(
        self, remote: _Remote, episode_id: str, request: dict[str, Any], digest: bytes
    ) -> None:
        """Execute a request if it is the episode's next one; a repeated one is not executed again.

        Raises Refused for any other number, a repeated number with another `digest`, or while the
        trainer has not answered the request before; and what `_take` raises.
        """
        number, expected = request["number"], remote.number + 1
        if number == remote.number:
            if digest != remote.digest:
                raise Refused(
                    409,
                    f"episode {episode_id}: a different request with number {number} came before",
                )
            return
        if self._gone.get(episode_id) is remote:
            raise Refused(409, f"episode {episode_id} has ended already")
        if number != expected:
            raise Refused(
                409, f"episode {episode_id}: expected request {expected}, but request {number} came"
            )
        if remote.waits_for_action:
            self._wait_for_action(episode_id, 0.0)
        self._take(remote, episode_id, request)
        remote.number, remote.digest = number, digest
        remote.waits_for_action = request["call"] == "get_action"

    def _remote(self, client: str, episode_id: str, begins: bool) -> _Remote:
        """Return the record of a request's episode; make it if the request `begins` the episode.

        Raises Refused if it is unknown or another client's, or too many episodes are running.
        """
        with self._table:
            remote = self._remotes.get(episode_id) or self._gone.get(episode_id)
            own = remote is not None and remote.client == client and remote.number >= 0
            if own and begins and not self.is_running(episode_id):
                remote = None
            if remote is None and begins:
                if len(self._remotes) >= self.config.max_episodes:
                    for lost in [one for one in self._remotes if not self.is_running(one)]:
                        del self._remotes[lost]
                if len(self._remotes) >= self.config.max_episodes:
                    raise Refused(
                        429,
                        f"{len(self._remotes)} episodes are running already (max_episodes); end "
                        "one first",
                    )
                self._gone.pop(episode_id, None)
                remote = self._remotes[episode_id] = _Remote(client)
            if remote is None:
                raise Refused(410, f"episode {episode_id} is unknown; begin another one")
            if remote.client != client:
                raise Refused(409, f"episode {episode_id} is another client's")
            return remote

    def _take(self, remote: _Remote, episode_id: str, request: dict[str, Any]) -> None:
        """Execute a request of one of the `CALLS`; one that is refused adds no event or episode.

        Raises Refused, EpisodeError or EpisodeLost.
        """
        call = request["call"]
        if call == "start":
            enabled = _flag(request, "training_enabled", default=True)
            if not self.is_polled(episode_id):
                why = (
                    f"episode {episode_id}: its end has not been recorded yet; send the same "
                    "request again"
                )
                raise Refused(503, why)
            try:
                self.start_episode(episode_id, enabled)
            except EpisodeError:
                with self._table:
                    del self._remotes[episode_id]
                raise
            return
        if call == "policies":
            self._bind(episode_id, request.get("agents"))
            return
        self._step(episode_id, request)
        if call == "end":
            with self._table:
                self._gone[episode_id] = self._remotes.pop(episode_id)
                if len(self._gone) > REMEMBERED:
                    del self._gone[next(iter(self._gone))]

    def _step(self, episode_id: str, request: dict[str, Any]) -> None:
        """Report a request's observation, reward and action, or the end, to the trainer.

        Raises Refused or EpisodeError for invalid values, Refused if too many events wait.
        """
        call, place = request["call"], f"episode {episode_id}"
        observation = decode(
            self.observation_space, request.get("observation"), f"{place}: observation"
        )
        reward = self._numbers(request, "reward", {} if self.has_agents else 0.0)
        cut, info = _flag(request, "truncated", default=False), request.get("info") or {}
        done = request.get("done") or {}
        for name, given in (("info", info), ("done", done)):
            if not isinstance(given, dict):
                raise Refused(400, f"{place}: {name} {shorten(given)} is not an object")
        event: dict[str, Any] = {}
        if call == "log_action":
            action = decode(self.action_space, request.get("action"), f"{place}: action")
            event = {"action": action, "logp": self._numbers(request, "logp", None)}
            self._require_bound(episode_id, request.get("policies") or {})
        elif call == "end":
            event = {"ended": "truncated" if cut else "terminated"}
        try:
            self.step_episode(episode_id, observation, reward, info, done, **event)
        except Full as error:
            raise Refused(429, str(error)) from None

    def _bind(self, episode_id: str, agents: Any) -> None:
        """Choose a policy for each of these agents in the episode, unless it has one.

        Raises Refused unless they are a list that is not empty, or if the environment has only one
        agent.
        """
        if not (self.has_agents and isinstance(agents, list) and agents):
            allowed = "a list of agents" if self.has_agents else "none, as there is one agent"
            raise Refused(
                400, f"episode {episode_id}: agents is {shorten(agents)}; expected {allowed}"
            )
        self.policies_of(episode_id, agents)

    def _require_bound(self, episode_id: str, claimed: Any) -> None:
        """Raise Refused if a client's action is by another policy than the agent's in this episode.

        Also if `claimed` is no dict: agent → policy, by the client's word. An agent without a
        policy gets one now.
        """
        if not isinstance(claimed, dict):
            raise Refused(
                400, f"episode {episode_id}: policies {shorten(claimed)} is not an object"
            )
        for agent, bound in self.policies_of(episode_id, claimed).items():
            if claimed[agent] != bound:
                raise Refused(
                    409,
                    f"episode {episode_id}, agent {agent!r}: the agent has the policy {bound!r} "
                    f"for the whole episode, but this action is by {shorten(claimed[agent])}",
                )

    def _numbers(self, request: dict[str, Any], key: str, default: Any) -> Any:
        """Return the request's entry `key`, a number or agent → number; `default` if it is missing.

        Raises Refused for other values.
        """
        value = request.get(key)
        if value is None:
            return default
        for _, where, one in self._by_agent(request["episode"], key, value):
            if isinstance(one, bool) or not isinstance(one, int | float):
                raise Refused(400, f"{where}: {key} {shorten(one)} is not a number")
        return value

    def _wait_for_action(self, episode_id: str, timeout_s: float) -> Any:
        """Wait for the trainer's action and return it; raises Refused (503) if the time is over."""
        try:
            return self.answer(episode_id, timeout_s)
        except TimeoutError:
            why = (
                f"episode {episode_id}: the trainer has not chosen an action yet; send the same "
                "request again"
            )
            raise Refused(503, why) from None

    # ---- inside ------------------------------------------------------------------------------

    def _spaces(self) -> tuple[Spaces, Spaces]:
        """Return the action and the observation space from the settings, or raise ConfigError.

        They are dicts by agent if there are several. For ``spaces_of``, that environment is made
        and closed.
        """
        config = self.config
        if config.spaces_of is not None:
            # By its name: what makes environments imports what these are.
            from trainables.envs.make import EnvironmentConfig, make_raw_env

            with_spaces = make_raw_env(parse(EnvironmentConfig, {"env": config.spaces_of}))
            found: tuple[Spaces, Spaces]
            found = with_spaces.action_space, with_spaces.observation_space
            if isinstance(with_spaces, AgentsEnv):
                found = with_spaces.action_space.of, with_spaces.observation_space.of
            close(with_spaces, config.spaces_of)
            return found
        if config.agents is not None:
            kinds = ("action_space", "observation_space")
            both = [{one: parse_space(has[k]) for one, has in config.agents.items()} for k in kinds]
            return both[0], both[1]
        plain = [
            None if one is None else parse_space(one)
            for one in (config.action_space, config.observation_space)
        ]
        action, observation = (
            plain[0] or type(self).action_space,
            plain[1] or type(self).observation_space,
        )
        if action is None or observation is None:
            hint = (
                "set spaces_of, such as CartPole-v1, or both observation_space and action_space, "
                "such as {box: [4]} and {discrete: 2}, or agents"
            )
            problem = "the spaces of the environment are missing"
            raise ConfigError("env_config.spaces_of", None, hint=hint, problem=problem)
        return action, observation

    def _open_port(self) -> "_Http":
        """Return an HTTP server on the first free port of this worker's; EnvError if there is none.

        They are as many as the setting `ports` says, from `port` on, and of no other worker; 0 is
        any port.
        """
        config = self.config
        step = self._workers if config.ports > 1 else 1
        first = config.port + self._worker if config.port else 0
        tried = [first + step * i for i in range(config.ports if config.port else 1)]
        for port in tried:
            try:
                return _Http((config.host, port), self)
            except (OSError, OverflowError) as error:
                latest = error
        hint = "set another port, or ports to try several, or port: 0 for any free port"
        raise EnvError(f"none of the ports {tried} at {config.host} is free ({latest}); {hint}")


def _name(request: dict[str, Any], key: str, client: str) -> str:
    """Return the entry `key` of a client's request, a name; Refused if it is missing or invalid."""
    value = request.get(key)
    if not isinstance(value, str) or not NAME.fullmatch(value):
        why = f"{key} is {shorten(value)}; expected 1 to 128 letters, digits, _, ., : and -"
        raise Refused(400, f"client {client}: {why}" if client == "?" else why)
    return value


def _pack_layers(layers: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's layers, whose arrays become JSON."""
    arrays = {name: pack(layers[name]) for name in ("mean", "scale", "log_std")}
    pairs = [[pack(one) for one in pair] for pair in layers["layers"]]
    plain = {name: layers[name] for name in ("activation", "clip", "exact")}
    return {**arrays, **plain, "layers": pairs}


def _flag(request: dict[str, Any], key: str, default: bool) -> bool:
    """Return the entry `key` of a request, a bool; Refused for other values."""
    value = request.get(key, default)
    if not isinstance(value, bool):
        raise Refused(400, f"{key} is {shorten(value)}; expected true or false")
    return value


# ---- HTTP ----------------------------------------------------------------------------------------


class _Http(ThreadingHTTPServer):
    """An HTTP server with one thread per connection, up to the setting ``max_clients``."""

    #: Threads of requests do not keep the process alive.
    daemon_threads = True
    #: Closing the server does not wait for requests.
    block_on_close = False
    #: Number of connections that may wait to be accepted.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], server: PolicyServer) -> None:
        self.policy = server
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._logged: list[float] = []
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in its own thread; answer 503 if there are too many."""
        with self._guard:
            full = len(self._open) >= self.policy.config.max_clients
            if not full:
                self._open.add(request)
        if full:
            answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 0.2\r\nContent-Length: 0\r\n\r\n"
            with contextlib.suppress(OSError):
                request.settimeout(1.0)
                request.sendall(answer)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, which then counts no more."""
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_all(self) -> None:
        """Release the port and close all connections."""
        self.server_close()
        with self._guard:
            left = list(self._open)
        for one in left:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a broken connection at DEBUG."""
        logger.debug("the connection of %s broke off", client_address, exc_info=True)

    def log_refusal(self, line: str) -> None:
        """Log a refusal as a warning, unless `LOGGED_A_MINUTE` were logged in the last minute."""
        now = time.monotonic()
        with self._guard:
            self._logged = [one for one in self._logged if one > now - 60.0]
            if len(self._logged) >= LOGGED_A_MINUTE:
                return
            self._logged.append(now)
        logger.warning("policy server: %s", line)


class _Handler(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    #: Version of HTTP, which keeps connections open.
    protocol_version = "HTTP/1.1"
    #: Answers are sent at once.
    disable_nagle_algorithm = True
    server: _Http
    """HTTP server that has accepted the connection."""

    def setup(self) -> None:
        """Set the time limit for reading requests."""
        super().setup()
        self.connection.settimeout(self.server.policy.config.read_timeout_s)

    def do_GET(self) -> None:
        """Answer a GET request: the spaces, or the policy's layers."""
        if self.path == "/v1/policy":
            self._serve(self.path, self.server.policy.policy)
        else:
            self._serve("/v1", self.server.policy.hello)

    def do_POST(self) -> None:
        """Answer a POST request: one call of an episode."""
        self._serve("/v1/episode", lambda: self.server.policy.handle_call(self._body()))

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: served requests are not logged."""

    def _serve(self, path: str, answer: Any) -> None:
        """Check path and headers, and send what `answer()` returns, or the Refused it raises.

        `path` is the only one allowed. Refusals that point to a mistake are logged. The connection
        is closed if the request's body was not read.
        """
        self._is_read = "Content-Length" not in self.headers and self.command == "GET"
        try:
            self._check(path)
            self._send(200, answer())
        except Refused as refused:
            line = str(refused)
            if refused.status not in (410, 429, 503):
                self.server.log_refusal(f"{self.client_address[0]}: {line}")
            if not self._is_read:  # what comes next on this connection is not a request
                self.close_connection = True
                self._drain()
            self._send(refused.status, {"error": line})

    def _check(self, path: str) -> None:
        """Raise Refused for a wrong token, protocol or path, before the body is read."""
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(
            given.encode("utf-8", "replace"), self.server.policy.token.encode()
        ):
            raise Refused(
                401,
                "the token is wrong or missing; the server's token is in its token_file or "
                f"{VARIABLE}",
            )
        spoken = self.headers.get("X-Sweep-Protocol", "")
        if spoken != str(PROTOCOL):
            raise Refused(426, f"protocol {shorten(spoken)} is not supported; expected {PROTOCOL}")
        if self.path != path:
            raise Refused(
                400,
                f"{self.command} {shorten(self.path)} is not offered; use GET /v1 or POST "
                "/v1/episode",
            )

    def _body(self) -> bytes:
        """Read the request's body; raises Refused if it is too long or its length is missing."""
        length, most = (
            self.headers.get("Content-Length", ""),
            self.server.policy.config.max_body_bytes,
        )
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise Refused(400, "the request has no valid Content-Length")
        if int(length) > most:
            raise Refused(
                413, f"the request has {length} bytes; at most {most} are allowed (max_body_bytes)"
            )
        body: bytes = self.rfile.read(int(length))
        self._is_read = True
        return body

    def _drain(self) -> None:
        """Read more of a refused request, since a client that is still sending reads no answer.

        At most `DRAINED` bytes, and about `DRAIN_S` seconds.
        """
        length = self.headers.get("Content-Length", "")
        with contextlib.suppress(OSError, ValueError):
            self.connection.settimeout(DRAIN_S)
            self.rfile.read(min(int(length), DRAINED))

    def _send(self, status: int, content: dict[str, Any]) -> None:
        """Send a status and JSON content to the client, with ``Retry-After`` for 429 and 503."""
        body = json.dumps(content).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status in (429, 503):
            self.send_header("Retry-After", str(RETRY_S))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
