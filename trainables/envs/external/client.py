"""A client of a policy server: the calls of `ExternalEnv`, from another process or machine.

It connects at the first call, and again whenever the connection is lost, for up to `timeout_s`.
Requests are numbered, so that one which is sent twice is handled once. Several threads may share a
client; one of them communicates at a time.
"""

import contextlib
import http.client
import json
import threading
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.core import strict_json
from trainables.envs.external.polled import AGENT, EpisodeError, EpisodeLost
from trainables.envs.external.tokens import shared_token
from trainables.envs.external.values import MOST_LOGP
from trainables.envs.external.wire import (
    CANNOT_RUN,
    PROTOCOL,
    decode,
    encode,
    parse_space,
    unpack,
)
from trainables.errors import TrainableError, shorten

#: Wait before the second attempt, seconds; each further wait is twice as long, up to `LONGEST_S`.
BACK_OFF_S = 0.05
#: Longest wait between two attempts, seconds.
LONGEST_S = 1.0
#: Time limit for one answer, seconds; a server says earlier that it has none yet.
ANSWER_S = 90.0
#: Statuses that ask for the same request again, later.
RETRY_STATUSES = (429, 503)


class PolicyServerError(TrainableError):
    """The policy server refuses a request of this client, or cannot be reached."""


@dataclass
class _Episode:
    """A running episode of this client: what was logged since its latest request."""

    number: int = 0
    """Number of the episode's latest request to the server; -1 before the first."""
    rewards: dict[str, float] = field(default_factory=dict)
    """Agent → sum of rewards since the latest request."""
    info: dict[str, Any] = field(default_factory=dict)
    """Infos since the latest request: agent → info, or the info of the only agent."""
    done: dict[str, bool] = field(default_factory=dict)
    """Agent → True if it has died since the latest request."""
    policies: dict[str, str] = field(default_factory=dict)
    """Agent → its policy for the episode, if the client chooses actions."""


class LocalPolicy:
    """A policy that this client computes itself in numpy, from layers that the server has sent."""

    def __init__(self, description: Mapping[str, Any], space: spaces.Space[Any]) -> None:
        self.version = int(description["version"])
        self._space = space
        self._layers = [[unpack(one) for one in pair] for pair in description["layers"]]
        self._mean, self._scale = unpack(description["mean"]), unpack(description["scale"])
        self._clip, self._log_std = description["clip"], unpack(description["log_std"])
        self._seen = np.float64 if description["exact"] else np.float32
        """Dtype of the filter's input."""
        self._tanh = description["activation"] == "tanh"
        self._stream = np.random.default_rng()

    def head(self, observation: Any) -> NDArray[np.float32]:
        """Return the network's output (A,), logits or means, for an unfiltered observation (*O)."""
        x = (np.asarray(observation, self._seen).reshape(-1) - self._mean) / self._scale
        if self._clip is not None:
            x = np.clip(x, -self._clip, self._clip)
        *hidden, (weight, bias) = self._layers
        for inner, own in hidden:
            x = x @ inner + own
            x = np.tanh(x) if self._tanh else np.maximum(x, 0.0)
        return np.asarray(x @ weight + bias, np.float32)

    def decide(self, observation: Any) -> tuple[Any, float | None]:
        """Draw an action for an observation, from this object's own random stream.

        Return it in the action space's form, real numbers clipped to their bounds, and its
        log-probability. The latter is None if clipping moved the action so far that a server would
        refuse the number.
        """
        head = self.head(observation)
        if isinstance(self._space, spaces.Discrete):
            logs = head - head.max()
            logs = logs - np.log(np.exp(logs).sum())
            choice = int((logs + self._stream.gumbel(size=len(logs))).argmax())
            return np.int64(choice + int(self._space.start)), float(logs[choice])
        assert isinstance(self._space, spaces.Box)  # noqa: S101 as the server has looked
        drawn = head + np.exp(self._log_std) * self._stream.standard_normal(len(head))
        low, high = self._space.low.reshape(-1), self._space.high.reshape(-1)
        action = np.clip(drawn, low, high).astype(self._space.dtype)
        away = (action.astype(np.float32) - head) / np.exp(self._log_std)
        logp = -0.5 * np.square(away) - self._log_std - 0.5 * np.log(2 * np.pi)
        likely = float(logp.sum())
        known = abs(likely) <= MOST_LOGP * len(head)
        return action.reshape(self._space.shape), likely if known else None


class PolicyClient:
    """Plays episodes with the policy of a server.

    Args:
        address: URL of the server, for example ``http://127.0.0.1:9900``.
        token: the server's token, or None to read it from `token_file`, the environment or this
            user's file.
        token_file: file with the token.
        name: name of this client in the server's errors, or None for a generated one.
        inference: ``remote`` if the server chooses actions; ``local`` if this client does, with
            the server's latest weights, and logs them without waiting for the trainer.
        timeout_s: time for which the server may be unreachable or without an answer, seconds.

    Raises:
        PolicyServerError: `address` is no URL of HTTP; the server itself is first asked later.
        TokenError: there is no usable token.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        token_file: str | Path | None = None,
        name: str | None = None,
        inference: Literal["remote", "local"] = "remote",
        timeout_s: float = 300.0,
    ) -> None:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PolicyServerError(f"address is {shorten(address)}; expected http://HOST:PORT")
        try:
            port = parts.port
        except ValueError as error:
            raise PolicyServerError(f"address {shorten(address)}: {error}") from None
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._connect = partial(kinds[parts.scheme], parts.hostname, port, timeout=ANSWER_S)
        self.address = address
        self.name = name or f"client-{uuid.uuid4().hex[:12]}"
        self._headers = {
            "Authorization": f"Bearer {token or shared_token(token_file)}",
            "X-Sweep-Protocol": str(PROTOCOL),
            "Content-Type": "application/json",
        }
        if inference not in ("remote", "local"):
            raise PolicyServerError(f"inference is {shorten(inference)}; expected remote or local")
        self._decides = inference == "local"
        self._said: dict[str, Any] = {"version": None}
        """The server's latest description of its policies."""
        self._policies: dict[str, LocalPolicy] = {}
        """Name → policy; a single agent's has an empty name."""
        self._version = 0
        """Latest version of the server's weights."""
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._lock = threading.Lock()
        self._spaces: tuple[Any, Any] | None = None
        self._episodes: dict[str, _Episode] = {}

    @property
    def action_space(self) -> Any:
        """Action space, a dict by agent if there are several.

        The first access asks the server.
        """
        return self._hello()[0]

    @property
    def observation_space(self) -> Any:
        """Observation space, a dict by agent if there are several.

        The first access asks the server.
        """
        return self._hello()[1]

    @property
    def _has_agents(self) -> bool:
        """True if the environment has several agents; the first access asks the server."""
        return not isinstance(self.action_space, spaces.Space)

    def start_episode(self, episode_id: str | None = None, training_enabled: bool = True) -> str:
        """Begin an episode on the server; return its id, a new one if none is given.

        With ``training_enabled=False`` nothing is learnt from the episode. Raises EpisodeError if
        this client's episode of that id is running, PolicyServerError if the server refuses it or
        does not answer in time.
        """
        episode_id = uuid.uuid4().hex if episode_id is None else episode_id
        if episode_id in self._episodes:
            raise EpisodeError(f"episode {episode_id!r} runs already; end it first")
        self._episodes[episode_id] = _Episode(number=-1)
        try:
            self._call(episode_id, "start", training_enabled=training_enabled)
        except BaseException:
            self._episodes.pop(episode_id, None)  # EpisodeLost has removed it already
            raise
        return episode_id

    def get_action(self, episode_id: str, observation: Any) -> Any:
        """Return the policy's action for an observation; blocks until it is known.

        With several agents both are dicts by agent. With local inference this client draws the
        action, and reports it to the server. Raises EpisodeError if the episode is not running
        here, EpisodeLost if it cannot continue, PolicyServerError if the server refuses the request
        or does not answer in time.
        """
        if self._decides:
            return self._choose_and_log(episode_id, observation)
        seen = encode(self.observation_space, observation)
        answer = self._call(episode_id, "get_action", observation=seen)
        return decode(self.action_space, answer.get("action"), "the server's action")

    def log_action(self, episode_id: str, observation: Any, action: Any, logp: Any = None) -> None:
        """Report an action that the caller chose, not the policy.

        `logp` is its log-probability when it was chosen, or None if unknown. With several agents
        all three are dicts by agent. Waits for the server's confirmation. Raises EpisodeError if
        the episode is not running here, EpisodeLost if it cannot continue, PolicyServerError if the
        server refuses the request or does not answer in time.
        """
        self._log(episode_id, observation, action, logp)

    def log_returns(
        self,
        episode_id: str,
        reward: Any,
        info: Mapping[str, Any] | None = None,
        multiagent_done_dict: Mapping[str, bool] | None = None,
    ) -> None:
        """Add a reward of the previous action; it is sent with the episode's next request.

        With several agents, `reward` and `info` are dicts by agent; `multiagent_done_dict` has True
        for those that have died. Raises EpisodeError if the episode is not running here, or a value
        cannot be sent as JSON, such as NaN; nothing is added then.
        """
        episode, before = self._require_running(episode_id), {}
        by_agent = reward if self._has_agents else {AGENT: reward}
        for agent, one in by_agent.items():
            before[agent] = episode.rewards.get(agent, 0.0) + float(one)
        _as_json([before, info, multiagent_done_dict], episode_id)
        episode.rewards.update(before)
        episode.done.update(multiagent_done_dict or {})
        if self._has_agents:
            for agent, own in (info or {}).items():
                episode.info[agent] = {**episode.info.get(agent, {}), **own}
        else:
            episode.info.update(info or {})

    def end_episode(self, episode_id: str, observation: Any, truncated: bool = False) -> None:
        """End an episode with its last observation.

        `truncated` is True if it was only cut off, so that its future would have had a value. Waits
        for the server's confirmation. Raises EpisodeError if the episode is not running here,
        EpisodeLost if it cannot continue, PolicyServerError if the server refuses the request or
        does not answer in time.
        """
        seen = encode(self.observation_space, observation)
        self._call(episode_id, "end", observation=seen, truncated=truncated)
        self._episodes.pop(episode_id, None)

    def close(self) -> None:
        """Close the connection; the server gives up this client's running episodes later.

        A later call connects again.
        """
        with self._lock:
            self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- inside ------------------------------------------------------------------------------

    def _require_running(self, episode_id: str) -> _Episode:
        """Return a running episode; raises EpisodeError if there is none of this id."""
        if episode_id not in self._episodes:
            raise EpisodeError(f"episode {shorten(episode_id)} is not running here: begin it first")
        return self._episodes[episode_id]

    def _call(self, episode_id: str, call: str, **content: Any) -> dict[str, Any]:
        """Send a numbered request for an episode; return the answer.

        `call` is its kind, such as ``get_action``; `content` are its further entries, of which None
        is left out. Except ``start`` and ``policies``, a request takes along the rewards, infos and
        deaths that were logged since the last, and an answer clears them. Raises EpisodeError if
        the episode is not running here, or `content` cannot be sent as JSON, EpisodeLost, which
        ends it here, too, or PolicyServerError.
        """
        episode = self._require_running(episode_id)
        request = {
            "client": self.name,
            "episode": episode_id,
            "number": episode.number + 1,
            "call": call,
            **{key: value for key, value in content.items() if value is not None},
        }
        if call not in ("start", "policies"):
            reward = episode.rewards if self._has_agents else episode.rewards.get(AGENT, 0.0)
            request |= {"reward": reward, "info": episode.info}
            request |= {"done": episode.done} if episode.done else {}
        try:
            answer = self._request("POST", "/v1/episode", _as_json(request, episode_id))
        except EpisodeLost:
            self._episodes.pop(episode_id, None)
            raise
        self._version = answer.get("version", self._version)
        episode.number += 1
        if call != "policies":
            episode.rewards, episode.info, episode.done = {}, {}, {}
        return answer

    def _choose_and_log(self, episode_id: str, observation: Any) -> Any:
        """Choose the action with this client's own policies, send it to the server, and return it.

        With several agents it is agent → action, and the server is asked once for each agent's
        policy. Newer weights are fetched first.
        """
        if not self._has_agents:
            action, logp = self._local().decide(observation)
            self._log(episode_id, observation, action, logp)
            return action
        bound = self._require_running(episode_id).policies
        if new := [agent for agent in observation if agent not in bound]:
            bound |= self._call(episode_id, "policies", agents=new)["policies"]
        chosen = {
            agent: self._local(bound[agent], self.action_space[agent]).decide(one)
            for agent, one in observation.items()
        }
        actions = {agent: action for agent, (action, _) in chosen.items()}
        logps = {agent: logp for agent, (_, logp) in chosen.items() if logp is not None}
        of = {agent: bound[agent] for agent in chosen}
        self._log(episode_id, observation, actions, logps, policies=of)
        return actions

    def _log(self, episode_id: str, observation: Any, action: Any, logp: Any, **more: Any) -> None:
        """Send an action that was chosen here, with its observation and log-probability `logp`.

        `more` are further entries of the request.
        """
        both = encode(self.observation_space, observation), encode(self.action_space, action)
        self._call(episode_id, "log_action", observation=both[0], action=both[1], logp=logp, **more)

    def _local(self, policy_id: str = "", space: spaces.Space[Any] | None = None) -> "LocalPolicy":
        """Return the policy of this name; its weights are fetched if the server has newer ones.

        Raises PolicyServerError if clients cannot compute it. `space` is its action space.
        """
        if self._said["version"] != self._version:
            self._said, self._policies = self._request("GET", "/v1/policy", b""), {}
            self._version = self._said["version"]
        if policy_id not in self._policies:
            said = self._said["policies"].get(policy_id) if policy_id else self._said
            if said is None:
                raise PolicyServerError(f"{self.address}: policy {policy_id!r} {CANNOT_RUN}")
            whole = {**said, "version": self._version}
            self._policies[policy_id] = LocalPolicy(whole, space or self.action_space)
        return self._policies[policy_id]

    def _hello(self) -> tuple[Any, Any]:
        """Return the action space and the observation space; the first call fetches them."""
        if self._spaces is None:
            said = self._request("GET", "/v1", b"")
            of, kinds = said.get("agents", {AGENT: said}), ("action_space", "observation_space")
            action, seen = ({one: parse_space(has[k]) for one, has in of.items()} for k in kinds)
            self._spaces = (action, seen) if "agents" in said else (action[AGENT], seen[AGENT])
        return self._spaces

    def _request(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        """Send a request until there is an answer, or `timeout_s` has passed; return the answer.

        It is sent again, after a pause, if the connection fails or the server asks for that.

        Raises:
            EpisodeLost: the episode cannot continue.
            PolicyServerError: the server refuses it, or gives no answer in time.
        """
        until = time.monotonic() + self._timeout_s
        back_off = BACK_OFF_S
        while True:
            try:
                with self._lock:
                    status, after, answer = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                wait, back_off = back_off, min(2 * back_off, LONGEST_S)
            else:
                if status == 200:
                    return answer
                why = str(answer.get("error", f"status {status}"))
                if status == 410:
                    raise EpisodeLost(f"{self.address}: {why}")
                if status not in RETRY_STATUSES:
                    raise PolicyServerError(f"{self.address}: {why}")
                wait = after
            if time.monotonic() + wait > until:
                raise PolicyServerError(
                    f"{self.address}: no answer within {self._timeout_s:g} s (timeout_s); {why}"
                )
            time.sleep(wait)

    def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, float, dict[str, Any]]:
        """Send a request once, on a new connection if there is none.

        Returns the HTTP status, the seconds to wait before it is repeated, and the answer's JSON.
        If sending or reading fails, closes the connection and raises OSError or HTTPException.
        """
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request(method, path, body or None, self._headers)
            given = self._connection.getresponse()
            content = given.read()
        except BaseException:
            self._disconnect()  # the rest of an answer may still arrive
            raise
        try:
            answer = strict_json.parse(content) if content else {}
        except (ValueError, RecursionError):
            answer = {"error": f"status {given.status}: {shorten(content[:200])}"}
        after = 0.0
        with contextlib.suppress(ValueError):
            after = float(given.headers.get("Retry-After", "0.05"))
        return (
            given.status,
            min(max(after, 0.0), LONGEST_S),
            answer if isinstance(answer, dict) else {},
        )

    def _disconnect(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _as_json(content: Any, episode_id: str) -> bytes:
    """Return the content of a request as JSON.

    Numbers and arrays of numpy, as in infos, become numbers and lists.
    Raises EpisodeError, which names the episode, for anything else that JSON lacks.
    """

    def plain(value: Any) -> Any:
        """Return a number or array of numpy as plain data; raise TypeError for anything else."""
        if isinstance(value, np.generic | np.ndarray):
            return value.tolist()
        raise TypeError(f"{shorten(value)} of type {type(value).__name__}")

    try:
        return json.dumps(content, default=plain, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        where = f"episode {shorten(episode_id)}"
        raise EpisodeError(f"{where}: the given value cannot be sent as JSON: {error}") from None
