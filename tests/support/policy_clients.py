"""Clients of a policy server, careful and careless, and a trainer's stand-in."""

import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.external import seen, seen_by
from trainables.envs.external import EpisodeLost, PolicyClient, PolicyServer, PolicyServerError
from trainables.envs.external.polled import Polled
from trainables.envs.registry import EnvContext

TOKEN = "a token of the tests, long enough"  # noqa: S105 of a server that lives for a test
SPACES: dict[str, Any] = {"observation_space": {"box": [3]}, "action_space": {"discrete": 3}}
ROLES = {"agents": dict.fromkeys(("a", "b", "c"), SPACES)}
"""Of three agents."""


@contextmanager
def serving(
    answers: bool = True, spaces: Mapping[str, Any] = SPACES, **config: Any
) -> Iterator[tuple[PolicyServer, list[Polled]]]:
    """A server whose episodes are answered with 2, and what was polled."""
    server = PolicyServer(EnvContext({**spaces, "port": 0, **config}))
    server.start()
    polled: list[Polled] = []
    over = threading.Event()

    def answer() -> None:
        while not over.is_set():
            latest = server.poll()
            if latest.observations or latest.lost:
                polled.append(latest)
                shown = latest.observations.items()
                server.send_actions({one: dict.fromkeys(of, 2) for one, of in shown})

    thread = threading.Thread(target=answer)
    if answers:
        thread.start()
    try:
        yield server, polled
    finally:
        over.set()
        if answers:
            thread.join()
        server.close()


class Forgetful(PolicyClient):
    """Loses its connection after every so many requests, when they are sent or before."""

    lost = 0

    def _exchange(self, method: str, path: str, body: bytes) -> Any:
        self.lost += 1
        if self.lost % 5 == 0:
            self._disconnect()
            raise ConnectionResetError("lost before it was sent")
        answered = super()._exchange(method, path, body)
        if self.lost % 3 == 0:
            self._disconnect()
            raise ConnectionResetError("the answer is lost")
        return answered


class Players:
    """Clients in threads that play episodes of known observations, two each, and record them.

    One more plays on until it is told, so that the trainer always has something to wait for.

    Args:
        address: of the server.
    """

    def __init__(self, count: int, address: str) -> None:
        self.played: dict[Any, tuple[int, float]] = {}
        """(episode, step) → action and reward."""
        self.errors: list[BaseException] = []
        self.wanted = {one for n in range(2 * count) for one in self.steps(n)}
        self._enough = threading.Event()
        self._count, self._address = count, address
        self._threads = [threading.Thread(target=self._twice, args=(i,)) for i in range(count)]
        self._last = threading.Thread(target=self._on_and_on)
        for one in (*self._threads, self._last):
            one.start()

    def steps(self, number: int) -> set[Any]:
        """What is played in an episode."""
        return {(number, step) for step in range(length(number))}

    def join(self) -> None:
        """Wait for all but the one that plays on."""
        for one in self._threads:
            one.join()

    def stop(self) -> None:
        """End the one that plays on."""
        self._enough.set()
        self._last.join()

    def _play(self, client: PolicyClient, number: int) -> None:
        episode = client.start_episode()
        for step in range(length(number)):
            action, reward = (
                int(client.get_action(episode, seen(number, step))),
                number + step / 128,
            )
            client.log_returns(episode, reward)
            self.played[number, step] = action, reward
        client.end_episode(episode, seen(number, length(number)))

    def _twice(self, which: int) -> None:
        try:
            with Forgetful(self._address) as client:
                for number in (which, which + self._count):
                    self._play(client, number)
        except BaseException as error:  # noqa: BLE001 the test shows it
            self.errors.append(error)

    def _on_and_on(self) -> None:
        for number in range(2 * self._count, 10**9):
            if self._enough.is_set():
                return
            client = PolicyClient(self._address, timeout_s=1.0)
            with client, contextlib.suppress(EpisodeLost, PolicyServerError):
                self._play(client, number)


class TeamPlayers(Players):
    """The same with three agents: one acts always, one now and then, one dies in the middle."""

    def steps(self, number: int) -> set[Any]:
        """(episode, agent, step)."""
        every = [(step, who(step)) for step in range(length(number))]
        return {(number, agent, step) for step, there in every for agent in there}

    def _play(self, client: PolicyClient, number: int) -> None:
        episode = client.start_episode()
        latest: dict[str, int] = {}
        for step in range(length(number)):
            shown = {agent: seen_by(agent, number, step) for agent in who(step)}
            for agent, action in client.get_action(episode, shown).items():
                latest[agent] = step
                self.played[number, agent, step] = int(action), 0.0
            if step == 1:
                client.log_returns(episode, {"c": float(number)}, None, {"c": True})
                action, reward = self.played[number, "c", latest.pop("c")]
                self.played[number, "c", 1] = action, reward + number
            for agent, then in latest.items():
                action, reward = self.played[number, agent, then]
                self.played[number, agent, then] = action, reward + step / 128
            client.log_returns(episode, dict.fromkeys(latest, step / 128))
        client.end_episode(episode, {})


def who(step: int) -> list[str]:
    """The agents that act in a step of `TeamPlayers`."""
    return ["a", *("b" for _ in range(step % 2 == 0)), *("c" for _ in range(step < 2))]


def length(number: int) -> int:
    """Steps of an episode."""
    return 3 + number % 3


def raw(
    server: PolicyServer,
    body: bytes | Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    path: str = "/v1/episode",
    method: str = "POST",
) -> tuple[int, dict[str, Any]]:
    """Status and content of one request, which may be anything."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    sent = json.dumps(body).encode() if isinstance(body, Mapping) else body
    given = {"Authorization": f"Bearer {server.token}", "X-Sweep-Protocol": "1", **(headers or {})}
    try:
        connection.request(method, path, sent, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(content) if content else {}


def files_below(folder: Path) -> list[str]:
    """All that lies there."""
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))
