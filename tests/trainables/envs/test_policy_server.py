"""A policy server and its clients: nothing is lost, mixed up, run, or let in."""

import contextlib
import os
import pickle  # noqa: TID251 what a hostile client may send
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.external import address_of
from tests.support.policy_clients import (
    SPACES,
    TOKEN,
    Players,
    files_below,
    length,
    raw,
    serving,
)
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from trainables.algorithms.ppo import PPO
from trainables.envs.external import (
    EpisodeError,
    EpisodeLost,
    PolicyClient,
    PolicyServer,
    PolicyServerError,
)
from trainables.envs.external.calling import MOST_QUEUED
from trainables.envs.external.client import LocalPolicy
from trainables.envs.external.polled import AGENT
from trainables.envs.external.tokens import VARIABLE, TokenError, shared_token
from trainables.envs.external.wire import decode, describe, encode, parse_space
from trainables.envs.registry import EnvContext
from trainables.errors import ConfigError, EnvError


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Tests work in a folder of their own, with a token of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def request(number: int = 0, call: str = "start", **more: Any) -> dict[str, Any]:
    given = {"client": "one", "episode": "e", "number": number, "call": call}
    if call != "start":
        given["observation"] = [0, 0, 0]
    return {**given, **more}


# ---- fifty at once -------------------------------------------------------------------------------


def test_P21_fifty_clients_that_lose_connections_lose_no_step_and_mix_no_episode() -> None:
    trainer = PPO(
        {
            "env": "trainables.envs.external:PolicyServer",
            "env_config": {**SPACES, "port": 0},
            "train_batch_size": 64,
            "rollout_fragment_length": 64,
            "num_envs_per_worker": 1,
            "model": {"hidden": [8]},
        }
    )
    worker: Any = trainer.workers.local_worker()
    address = address_of(trainer)
    players = Players(50, address)
    rows: dict[tuple[int, int], tuple[int, float]] = {}
    for _ in range(1000):
        for fragment in worker.sample().fragments:
            for t, lane in np.argwhere(~fragment.autoreset):
                number, step = (int(one * 128) for one in fragment.observations[t, lane][:2])
                assert (number, step) not in rows
                rows[number, step] = int(fragment.actions[t, lane]), fragment.rewards[t, lane]
                assert bool(fragment.terminated[t, lane]) == (step + 1 == length(number))
        if players.wanted <= rows.keys() or players.errors:
            break
    players.join()
    trainer.stop()
    players.stop()
    assert not players.errors
    for key in players.wanted:
        assert rows[key][0] == players.played[key][0]
        assert rows[key][1] == pytest.approx(players.played[key][1])


def test_what_a_client_says_reaches_the_trainer_as_it_was() -> None:
    with serving() as (server, polled), PolicyClient(server.address, name="robot") as client:
        assert client.action_space == spaces.Discrete(3)
        episode = client.start_episode(training_enabled=False)
        assert client.get_action(episode, np.array([1, 2, 3], np.float32)) == 2
        client.log_returns(episode, 0.5, {"lives": 2})
        client.log_returns(episode, 0.25)
        client.log_action(episode, [4.0, 5.0, 6.0], 1, logp=-0.5)
        client.end_episode(episode, [7, 8, 9], truncated=True)
        with pytest.raises(Exception, match="not running here: begin it first"):
            client.end_episode(episode, [7, 8, 9])
        wait_until(lambda: len(polled) >= 3)
    first, second, third = polled
    assert first.observations[episode][AGENT].tolist() == [1, 2, 3]
    assert second.rewards[episode] == {AGENT: 0.75}
    assert second.infos[episode] == {AGENT: {"training_enabled": False, "lives": 2}}
    assert second.off_policy_actions[episode] == {AGENT: 1}
    assert second.logps == {episode: {AGENT: -0.5}}
    assert third.truncateds[episode] == {"__all__": True}
    assert third.terminateds[episode] == {"__all__": False}


def test_a_client_may_log_numbers_of_numpy_and_hears_at_once_what_cannot_be_sent() -> None:
    with serving() as (server, polled), PolicyClient(server.address) as client:
        episode = client.start_episode()
        client.get_action(episode, [1, 2, 3])
        client.log_returns(episode, np.float32(0.5), {"x": np.float32(2), "at": np.arange(2)})
        wrong: list[tuple[float, Any]] = [(np.nan, None), (1.0, {"at": object()})]
        for reward, info in [*wrong, (1.0, {(1, 2): 3})]:
            with pytest.raises(EpisodeError, match="cannot be sent as JSON"):
                client.log_returns(episode, reward, info)
        client.log_action(episode, [4, 5, 6], np.int64(1), logp=np.float32(-0.5))
        client.end_episode(episode, [7, 8, 9])
        wait_until(lambda: len(polled) >= 3)
    assert polled[1].rewards[episode] == {AGENT: 0.5}
    expected = {"training_enabled": True, "x": 2.0, "at": [0, 1]}
    assert polled[1].infos[episode] == {AGENT: expected}
    assert polled[1].logps == {episode: {AGENT: -0.5}}


def test_the_address_of_a_server_of_ip_version_6_is_one_for_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = PolicyServer(EnvContext({**SPACES, "host": "::1"}))
    listening = SimpleNamespace(server_address=("::1", 9900, 0, 0))
    with monkeypatch.context() as patch:
        patch.setattr(server, "_http", listening)
        assert server.address == "http://[::1]:9900"
        PolicyClient(server.address)


def test_an_address_whose_port_is_no_number_is_refused() -> None:
    with pytest.raises(PolicyServerError, match="abc"):
        PolicyClient("http://127.0.0.1:abc")


def test_a_request_that_comes_again_is_answered_alike_and_counts_once() -> None:
    with serving() as (server, polled):
        assert (
            raw(server, request()) == raw(server, request()) == (200, {"number": 0, "version": 0})
        )
        asked = request(1, "get_action", reward=0.0)
        assert raw(server, asked) == raw(server, asked) == (200, {"number": 1, "action": 2})
        status, said = raw(server, {**asked, "reward": 1.0})
        assert (status, said["error"]) == (
            409,
            "client one: episode e: a different request with number 1 came before",
        )
        ended = request(2, "end", reward=2.0)
        assert raw(server, ended) == raw(server, ended) == (200, {"number": 2, "version": 0})
        wait_until(lambda: len(polled) >= 2)
        assert [one.rewards["e"][AGENT] for one in polled] == [0.0, 2.0]


def test_a_decision_that_takes_long_is_asked_for_again() -> None:
    with serving(answers=False, answer_s=0.01) as (server, _):
        raw(server, request())
        asked = request(1, "get_action")
        assert raw(server, asked)[0] == raw(server, asked)[0] == 503
        wait_until(lambda: bool(server.poll().observations))
        server.send_actions({"e": {AGENT: 1}})
        assert raw(server, asked) == (200, {"number": 1, "action": 1})


def test_back_pressure_says_later_and_the_client_comes_again() -> None:
    with serving(answers=False, max_episodes=1) as (server, _):
        raw(server, request())
        for number in range(1, MOST_QUEUED + 1):
            logged = request(number, "log_action", action=0)
            assert raw(server, logged)[0] == 200
        late = request(MOST_QUEUED + 1, "log_action", action=1)
        status, said = raw(server, late)
        assert (status, "of its steps are waiting already; send" in said["error"]) == (429, True)
        assert raw(server, request(episode="another"))[0] == 429
        server.poll()
        assert raw(server, late)[0] == 200


def test_one_connection_too_many_is_told_to_come_again() -> None:
    with serving(max_clients=1) as (server, _), PolicyClient(server.address) as first:
        first.start_episode()
        with (
            PolicyClient(server.address, timeout_s=0.01) as late,
            pytest.raises(PolicyServerError, match="no answer within"),
        ):
            late.start_episode()
        first.close()
        with PolicyClient(server.address, timeout_s=120) as second:
            second.start_episode()


# ---- clients that decide by themselves -----------------------------------------------------------


class Deciding:
    """A client in a thread that decides by itself, and what it did."""

    def __init__(self, address: str) -> None:
        self.logged: list[tuple[Any, float | None, int]] = []
        """Action, log-probability and version of the weights."""
        self.over = threading.Event()
        self._address = address
        self.thread = threading.Thread(target=self._play)
        self.thread.start()

    def _play(self) -> None:
        with PolicyClient(self._address, inference="local", timeout_s=10.0) as client:
            while not self.over.is_set():
                with contextlib.suppress(EpisodeLost, PolicyServerError):
                    self._episode(client)

    def _episode(self, client: PolicyClient) -> None:
        episode = client.start_episode()
        for step in range(5):
            observation = np.array([step, 1, len(self.logged) / 128], np.float32)
            policy = client._local()
            action, logp = policy.decide(observation)
            client.log_action(episode, observation, action, logp)
            client.log_returns(episode, float(len(self.logged)))  # tells which action is meant
            self.logged.append((action, logp, policy.version))
        client.end_episode(episode, np.zeros(3))


@pytest.mark.parametrize(
    ("action_space", "more"),
    [
        ({"discrete": 3, "start": 2}, {"observation_filter": "MeanStdFilter"}),
        ({"box": [2], "low": -9, "high": 9}, {}),
    ],
    ids=["discrete", "box"],
)
def test_a_client_that_decides_by_itself_has_the_latest_weights_and_logs_what_it_did(
    action_space: dict[str, Any], more: dict[str, Any]
) -> None:
    trainer = PPO(
        {
            "env": "trainables.envs.external:PolicyServer",
            "env_config": {**SPACES, "action_space": action_space, "port": 0},
            "rollout_fragment_length": 64,
            "num_envs_per_worker": 1,
            "model": {"hidden": [8]},
            **more,
        }
    )
    worker: Any = trainer.workers.local_worker()
    address = address_of(trainer)
    deciding = Deciding(address)
    stored: list[tuple[int, float]] = []
    try:
        for _ in range(3):
            (fragment,) = worker.sample().fragments
            own = ~fragment.autoreset
            stored += zip(fragment.rewards[own].astype(int), fragment.logp[own], strict=True)
            trainer.train()
    finally:
        deciding.over.set()
        deciding.thread.join()
        trainer.stop()
    versions = [version for _, _, version in deciding.logged]
    assert versions == sorted(versions)
    assert len(set(versions)) > 1
    assert all(parse_space(action_space).contains(action) for action, _, _ in deciding.logged)
    assert len(stored) > 64
    for which, logp in stored:
        assert logp == pytest.approx(deciding.logged[which][1], abs=1e-6)


def test_what_a_client_computes_is_what_the_policy_computes() -> None:
    trainer = PPO({"env": "CartPole-v1", "model": {"hidden": [8, 8]}})
    trainer.train()
    actor, server = trainer.inference.actor, PolicyServer(EnvContext({"spaces_of": "CartPole-v1"}))
    layers = actor.as_layers()
    trainer.stop()
    assert layers is not None
    mean, scale = np.array([1.0, 0, 0, 0]), np.array([1.0, 2, 1, 1])
    seen_by = {"mean": mean, "scale": scale, "clip": 10.0, "exact": False}
    server.take_policies(1, {"": {**layers, **seen_by}})
    policy = LocalPolicy(server.policy(), server.action_space)
    seen = np.array([0.5, 0.25, -0.5, 1.0], np.float32)
    filtered = ((seen - mean) / scale).astype(np.float32)
    assert policy.head(seen) == pytest.approx(actor.forward(filtered[None])[0][0], abs=1e-6)
    counts = np.bincount([int(policy.decide(seen)[0]) for _ in range(2000)], minlength=2) / 2000
    _, logp = policy.decide(seen)
    assert logp is not None
    assert min(abs(counts - np.exp(logp))) < 0.05


@pytest.mark.parametrize("mean", [0.0, 20.0])
def test_what_a_client_decides_is_never_refused_by_its_server(mean: float) -> None:
    """The float32 nearest to a bound may lie beyond it, and a mean far beyond the bounds."""
    box = {"box": [1], "low": -0.1, "high": 0.1, "dtype": "float64"}
    one = {"layers": [(np.zeros((3, 1)), np.array([mean]))], "log_std": np.zeros(1)}
    seen_by = {"mean": np.zeros(1), "scale": np.ones(1), "clip": None, "exact": False}
    of_all = {**seen_by, "activation": "tanh"}
    with serving(spaces={**SPACES, "action_space": box}) as (server, polled):
        server.take_policies(1, {"": {**one, **of_all}})
        with PolicyClient(server.address, inference="local") as client:
            episode = client.start_episode()
            chosen = [client.get_action(episode, np.zeros(3)) for _ in range(20)]
            client.end_episode(episode, np.zeros(3))
        wait_until(lambda: len(polled) >= 21)
    assert {float(abs(action[0])) for action in chosen} >= {0.1}
    known = [logps[AGENT] for one in polled for logps in one.logps.values() if logps]
    assert len(known) == (0 if mean else 20)  # so far away it is as it is under the policy


def test_a_policy_that_clients_cannot_run_is_refused_to_them() -> None:
    with serving(answers=False) as (server, _):
        server.take_policies(1, {"": None})
        client = PolicyClient(server.address, inference="local")
        episode = client.start_episode()
        with pytest.raises(
            PolicyServerError, match='clients cannot run it; use inference="remote"'
        ):
            client.get_action(episode, [0, 0, 0])
        client.close()


# ---- who does not belong here --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (request(), {"Authorization": "Bearer wrong"}, 401, "the token is wrong or missing"),
        (request(), {"Authorization": ""}, 401, "the token is wrong or missing"),
        (request(), {"X-Sweep-Protocol": "2"}, 426, "protocol '2' is not supported; expected 1"),
        (b"{", {}, 400, "not JSON"),
        (b"[" * 4000, {}, 400, "not JSON"),
        (b'{"client": "a", "client": "b"}', {}, 400, "a key occurs twice"),
        (b"x" * 5000, {}, 413, "the request has 5000 bytes; at most 4096 are allowed"),
        (pickle.dumps({"client": "one"}), {}, 400, "not JSON"),
        (request(client="../../etc"), {}, 400, "client is '../../etc'; expected 1 to 128 letters"),
        (request(episode="a/b"), {}, 400, "client one: episode is 'a/b'; expected 1 to 128"),
        (request(episode="a\nb\x1b[2J"), {}, 400, r"client one: episode is 'a\nb\x1b[2J'"),
        (request(episode="e" * 129), {}, 400, "client one: episode is 'eeee"),
        (request(call="eval"), {}, 400, "client one: the call is 'eval' and its number 0"),
        (request(number=True), {}, 400, "client one: the call is 'start' and its number True"),
        (request(1, "get_action"), {}, 410, "episode e is unknown; begin another one"),
        (request(path="x"), {}, 400, "client one: unknown key 'path'"),
        (request(training_enabled=1), {}, 400, "client one: training_enabled is 1; expected true"),
    ],
)  # fmt: skip
def test_who_does_not_belong_here_is_refused_in_one_line(
    body: Any, headers: dict[str, str], status: int, said: str, own_folder: Path
) -> None:
    with serving(max_body_bytes=4096) as (server, polled):
        before = files_below(own_folder)
        answer, content = raw(server, body, headers)
        assert answer == status
        assert said in content["error"]
        assert content["error"].isprintable()
        assert raw(server, request())[0] == 200  # it goes on
    assert files_below(own_folder) == before
    assert not polled


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"observation": [1, 2]}, "observation has shape (2,) and dtype float32; expected shape"),
        ({"observation": [1, 2, "3"]}, "observation has shape (3,) and dtype <U"),
        ({"observation": [[1], [2, 3]]}, "nested lists of shape (3,)"),
        ({"observation": None}, "observation None does not fit"),
        ({"observation": {"a": 1}}, "observation {'a': 1} does not fit"),
        ({"observation": "AAAA"}, "base64 of 12 bytes"),
        ({"observation": "/////////////////w=="}, "base64 of 12 bytes"),
        ({"observation": "//////////////////8="[:16]}, "is not finite in float32"),
        ({"reward": "1"}, "reward '1' is not a number"),
        ({"reward": True}, "reward True is not a number"),
        ({"reward": 1e39}, "the reward 1e+39 is not a number that float32"),
        ({"observation": [0, 1e39, 0]}, "is not finite in float32"),
        ({"call": "log_action", "action": 0, "logp": -1e39}, "the logp is -1e+39; expected the"),
        ({"call": "log_action", "action": 0, "logp": -41.0}, "from -40 to 0, or None"),
        ({"call": "log_action", "action": 0, "logp": 0.5}, "from -40 to 0, or None"),
        ({"info": [1]}, "info [1] is not an object"),
        ({"call": "log_action", "action": 3}, "a whole number in Discrete(3)"),
        ({"call": "log_action", "action": 1.0}, "a whole number in Discrete(3)"),
        ({"call": "log_action"}, "action None does not fit"),
        ({"call": "end", "truncated": "no"}, "truncated is 'no'; expected true or false"),
        ({"number": 3}, "expected request 1, but request 3 came"),
        ({"client": "two"}, "client two: episode e is another client's"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_fit_names_the_client_and_changes_nothing(
    given: dict[str, Any], said: str
) -> None:
    with serving() as (server, polled):
        raw(server, request())
        status, content = raw(server, {**request(1, "get_action"), **given})
        assert status in (400, 409)
        assert said in content["error"]
        assert content["error"].startswith(f"client {given.get('client', 'one')}: ")
        assert not polled
        assert raw(server, request(1, "get_action")) == (200, {"number": 1, "action": 2})


def test_an_episode_that_is_ended_twice_is_refused() -> None:
    with serving() as (server, _):
        raw(server, request())
        raw(server, request(1, "end"))
        status, content = raw(server, request(2, "end"))
        assert (status, content["error"]) == (409, "client one: episode e has ended already")


def test_an_id_may_be_used_again_after_its_end_as_that_of_an_external_env() -> None:
    with serving() as (server, polled), PolicyClient(server.address) as client:
        for _ in range(2):
            client.start_episode("e")
            assert client.get_action("e", np.zeros(3, np.float32)) == 2
            client.end_episode("e", np.zeros(3, np.float32))
        wait_until(lambda: len(polled) >= 4)
    assert [one.terminateds["e"]["__all__"] for one in polled] == [False, True] * 2


def test_an_episode_that_was_lost_before_its_first_step_may_begin_again_under_its_id() -> None:
    with serving() as (server, _), PolicyClient(server.address) as client:
        client.start_episode("e")
        server.abandon("the trainer went back to a checkpoint")
        with pytest.raises(EpisodeLost):
            client.get_action("e", np.zeros(3, np.float32))
        client.start_episode("e")
        assert client.get_action("e", np.zeros(3, np.float32)) == 2


def test_an_episode_that_the_server_does_not_begin_is_lost_and_may_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(*_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        raise EpisodeLost("the server closes")

    with serving() as (server, _), PolicyClient(server.address) as client:
        monkeypatch.setattr(client, "_request", lose)
        with pytest.raises(EpisodeLost, match="the server closes"):
            client.start_episode("e")
        assert client.start_episode("e") == "e"


def test_a_request_that_comes_again_around_the_end_begins_nothing() -> None:
    with serving(answers=False) as (server, _):
        start, end = request(), request(1, "end")
        assert raw(server, start)[0] == raw(server, start)[0] == 200
        assert raw(server, end)[0] == raw(server, end)[0] == 200
        assert raw(server, start)[0] == 503  # the trainer has not heard of the end yet
        assert raw(server, {**start, "client": "two"})[0] == 409
        server.poll()
        assert raw(server, start)[0] == raw(server, start)[0] == 200
        assert raw(server, end)[0] == raw(server, end)[0] == 200
        assert len(server.poll().observations) == 1


def test_no_length_and_other_places_are_refused() -> None:
    with serving() as (server, _):
        chunked = {"Transfer-Encoding": "chunked"}
        assert raw(server, None, chunked)[0] == 400
        assert raw(server, None, path="/../../etc/passwd", method="GET")[0] == 400
        assert raw(server, None, path="/v1", method="GET")[0] == 200


def test_refusals_do_not_fill_a_disk(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as (server, _):
        for _ in range(70):
            raw(server, request(), {"Authorization": "Bearer wrong"})
    assert sum("the token is wrong or missing" in one.getMessage() for one in caplog.records) == 60


# ---- coming and going ----------------------------------------------------------------------------


def test_a_client_finds_the_next_server_at_the_address_and_hears_that_its_episode_is_lost() -> None:
    port = free_port()
    with serving(port=port) as (first, _):
        client = PolicyClient(first.address)
        episode = client.start_episode()
        client.get_action(episode, [0, 0, 0])
    with serving(port=port) as (_, polled):
        with pytest.raises(EpisodeLost, match="is unknown; begin another one"):
            client.get_action(episode, [0, 0, 0])
        again = client.start_episode()
        assert client.get_action(again, [0, 0, 0]) == 2
        assert len(polled) == 1
    client.close()


def test_nobody_at_an_address_is_said_in_time() -> None:
    with serving() as (server, _):
        address = server.address
    client = PolicyClient(address, timeout_s=0.05)
    with pytest.raises(PolicyServerError, match=f"{address}: no answer within 0.05 s"):
        client.start_episode()
    with pytest.raises(PolicyServerError, match="expected http://HOST:PORT"):
        PolicyClient("127.0.0.1:9900")


def test_a_wrong_token_is_said_by_the_client() -> None:
    with serving() as (server, _):
        client = PolicyClient(server.address, "something else")
        with pytest.raises(PolicyServerError, match="the token is wrong or missing"):
            client.start_episode()
        client.close()


def test_a_port_that_is_taken_is_an_error_and_of_several_the_next_one_is() -> None:
    with serving() as (first, _):
        port = int(first.address.rpartition(":")[2])
        with pytest.raises(EnvError, match=f"none of the ports .*{port}.* is free"):
            PolicyServer(EnvContext({**SPACES, "port": port})).start()
        if port < 2**16 - 8:
            with serving(port=port, ports=8) as (second, _):
                assert port < int(second.address.rpartition(":")[2]) < port + 8


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "set spaces_of, such as CartPole-v1, or both"),
        ({"observation_space": {"box": [3]}}, "set spaces_of, such as CartPole-v1, or both"),
        ({**SPACES, "action_space": {"discreet": 2}}, "is not a space"),
        ({**SPACES, "port": 70_000}, "port"),
        ({**SPACES, "prot": 1}, "port"),
    ],
)
def test_settings_that_cannot_be_are_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PolicyServer(EnvContext(config))


def test_spaces_are_those_of_an_environment_or_of_a_class() -> None:
    of_cartpole = PolicyServer(EnvContext({"spaces_of": "CartPole-v1"}))
    assert of_cartpole.action_space == spaces.Discrete(2)

    class Own(PolicyServer):
        action_space = spaces.Discrete(5)
        observation_space = spaces.MultiBinary(3)

    assert Own(EnvContext({})).observation_space == spaces.MultiBinary(3)


# ---- tokens --------------------------------------------------------------------------------------


def test_a_token_is_made_once_and_for_oneself(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    token = shared_token()
    assert token == shared_token()
    (path,) = [one for one in (own_folder / "config").rglob("*") if one.is_file()]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) == 64
    path.chmod(0o644)
    with pytest.raises(TokenError, match="others can read this token; run chmod 600"):
        shared_token()


def test_a_file_that_is_named_may_be_a_link_as_mounted_secrets_are(own_folder: Path) -> None:
    secret, named = own_folder / "..2026" / "token", own_folder / "token"
    secret.parent.mkdir()
    secret.write_text("secret" * 8)
    secret.chmod(0o400)
    named.symlink_to("..2026/token")
    assert shared_token(named) == "secret" * 8
    secret.chmod(0o444)
    with pytest.raises(TokenError, match="others can read this token"):
        shared_token(named)


def test_a_token_that_is_none_is_refused(own_folder: Path) -> None:
    file = own_folder / "token"
    for content in ("short", "", "two\nlines of some length"):
        file.write_text(content)
        file.chmod(0o600)
        with pytest.raises(
            TokenError, match="there is no valid token; write one of 16 to 4096 printable"
        ):
            shared_token(file)
    os.mkfifo(own_folder / "pipe")
    for name in ("pipe", "absent"):
        with pytest.raises(TokenError):
            shared_token(own_folder / name)


# ---- what is exchanged ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(-np.inf, np.inf, (300,), np.float64),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        spaces.Box(0, 255, (16, 16, 3), np.uint8),
        spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
        spaces.Discrete(4, start=-1),
        spaces.MultiDiscrete([2, 3], start=[1, 0]),
        spaces.MultiBinary([2, 2]),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Box(0, 1)])}),
    ],
    ids=str,
)  # fmt: skip
def test_spaces_and_what_is_in_them_come_back_as_they_were(space: spaces.Space[Any]) -> None:
    assert parse_space(describe(space)) == space
    space.seed(0)
    for _ in range(3):
        value = space.sample()
        back = decode(space, encode(space, value), "it")
        assert space.contains(back)
        both: list[Any] = [spaces.flatten(space, one) for one in (back, value)]
        assert np.array_equal(*both)
