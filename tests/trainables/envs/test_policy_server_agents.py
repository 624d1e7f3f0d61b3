"""A policy server of several agents: no step is lost, no agent confused; errors name the agent."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support.external import AGENTS, address_of
from tests.support.policy_clients import (
    ROLES,
    SPACES,
    TOKEN,
    TeamPlayers,
    length,
    raw,
    serving,
    who,
)
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
from trainables.envs.external.tokens import VARIABLE
from trainables.envs.registry import EnvContext
from trainables.errors import ConfigError

TWO = {"policies": ["first", "rest"], "policy_mapping_fn": {"a": "first", "b": "rest", "c": "rest"}}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Tests work in a folder of their own, with a token of their own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv(VARIABLE, TOKEN)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def team(**more: Any) -> tuple[PPO, str]:
    """A trainer of two policies, and the address of its server."""
    trainer = PPO(
        {
            "env": "trainables.envs.external:PolicyServer",
            "env_config": {**ROLES, "port": 0},
            "multiagent": TWO,
            "train_batch_size": 64,
            "rollout_fragment_length": 64,
            "num_envs_per_worker": 1,
            "model": {"hidden": [8]},
            **more,
        }
    )
    return trainer, address_of(trainer)


def test_P21_clients_of_several_agents_that_lose_connections_lose_no_step_and_mix_nothing() -> None:
    trainer, address = team()
    worker: Any = trainer.workers.local_worker()
    players = TeamPlayers(20, address)
    rows: dict[Any, tuple[int, float]] = {}
    for _ in range(1000):
        for pid, batch in worker.sample().policy_batches.items():
            for fragment in batch.fragments:
                for t, lane in np.argwhere(~fragment.autoreset):
                    seen = fragment.observations[t, lane]
                    number, step, agent = (
                        int(seen[0] * 128),
                        int(seen[1] * 128),
                        AGENTS[int(seen[2])],
                    )
                    assert (number, agent, step) not in rows
                    assert pid == TWO["policy_mapping_fn"][agent]  # type: ignore[index]
                    action, reward = int(fragment.actions[t, lane]), fragment.rewards[t, lane]
                    rows[number, agent, step] = action, reward
                    last = max(one for one in range(length(number)) if agent in who(one))
                    assert bool(fragment.terminated[t, lane]) == (step == last)
        if players.wanted <= rows.keys() or players.errors:
            break
    players.join()
    trainer.stop()
    players.stop()
    assert not players.errors
    for key in players.wanted:
        assert rows[key][0] == players.played[key][0]
        assert rows[key][1] == pytest.approx(players.played[key][1])


class Deciding(PolicyClient):
    """Decides by itself, and writes down what it did and by which policy."""

    def __init__(self, address: str) -> None:
        super().__init__(address, inference="local", timeout_s=1.0)
        self.logged: dict[tuple[int, str], tuple[int, float, str]] = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._play)
        self.thread.start()

    def _log(self, episode_id: str, observation: Any, action: Any, logp: Any, **more: Any) -> None:
        for agent, one in action.items():
            key = int(observation[agent][0] * 128), agent
            self.logged[key] = int(one), logp[agent], more["policies"][agent]
        super()._log(episode_id, observation, action, logp, **more)

    def _play(self) -> None:
        number = 0
        while not self.over.is_set():
            with contextlib.suppress(EpisodeLost, PolicyServerError):
                number += 1
                episode = self.start_episode()
                shown = {one: [number / 128, 0, AGENTS.index(one)] for one in ("a", "b")}
                actions = self.get_action(episode, shown)
                self.log_returns(episode, dict.fromkeys(actions, 1.0))
                self.end_episode(episode, {})


def test_a_client_of_several_agents_decides_by_itself_and_logs_what_it_did() -> None:
    trainer, address = team()
    worker: Any = trainer.workers.local_worker()
    deciding = Deciding(address)
    found = 0
    try:
        batch = worker.sample()
        trainer.train()
    finally:
        deciding.over.set()
        trainer.stop()
        deciding.thread.join()
        deciding.close()
    for pid, share in batch.policy_batches.items():
        for fragment in share.fragments:
            for t, lane in np.argwhere(~fragment.autoreset):
                seen = fragment.observations[t, lane]
                action, logp, policy = deciding.logged[int(seen[0] * 128), AGENTS[int(seen[2])]]
                assert (int(fragment.actions[t, lane]), pid) == (action, policy)
                assert fragment.logp[t, lane] == pytest.approx(logp, abs=1e-6)
                found += 1
    assert found >= 64


# ---- one call at a time --------------------------------------------------------------------------


def request(number: int = 0, call: str = "start", **more: Any) -> dict[str, Any]:
    given = {"client": "one", "episode": "e", "number": number, "call": call}
    return {**({"observation": {"a": [0, 0, 0]}} if number else {}), **given, **more}


def test_what_a_client_says_of_its_agents_reaches_the_trainer_as_it_was() -> None:
    with serving(spaces=ROLES) as (server, polled), PolicyClient(server.address) as client:
        assert client.action_space == dict.fromkeys("abc", spaces.Discrete(3))
        episode = client.start_episode()
        given = client.get_action(episode, {"a": [1, 2, 3], "b": [4, 5, 6]})
        assert given == {"a": 2, "b": 2}
        client.log_returns(episode, {"a": 0.5}, {"a": {"lives": 2}})
        client.log_returns(episode, {"a": 0.25, "b": 1.0}, {"a": {"left": 3}}, {"b": True})
        client.log_action(episode, {"a": [7, 8, 9]}, {"a": 1}, {"a": -0.5})
        client.end_episode(episode, {"a": [0, 0, 0]}, truncated=True)
        wait_until(lambda: len(polled) >= 3)
    first, second, third = polled
    assert first.observations[episode]["b"].tolist() == [4, 5, 6]
    assert second.rewards[episode] == {"a": 0.75, "b": 1.0}
    assert second.infos[episode]["a"] == {"training_enabled": True, "lives": 2, "left": 3}
    assert second.terminateds[episode] == {"b": True, "__all__": False}
    assert second.off_policy_actions[episode] == {"a": 1}
    assert second.logps[episode] == {"a": -0.5}
    assert third.truncateds[episode] == {"__all__": True}


def test_a_request_that_comes_again_is_answered_alike_and_back_pressure_says_later() -> None:
    with serving(spaces=ROLES) as (server, polled):
        raw(server, request())
        asked = request(1, "get_action")
        assert raw(server, asked) == raw(server, asked) == (200, {"number": 1, "action": {"a": 2}})
        paid = request(2, "end", reward={"a": 2.0})
        assert raw(server, paid) == raw(server, paid)
        wait_until(lambda: len(polled) >= 2)
        assert [one.rewards["e"] for one in polled] == [{}, {"a": 2.0}]
    with serving(answers=False, spaces=ROLES) as (server, _):
        raw(server, request())
        for number in range(1, MOST_QUEUED + 2):
            status, _ = raw(server, request(number, "log_action", action={"a": 0}))
        assert status == 429


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"observation": {"z": [0, 0, 0]}},
            "episode e: observation: there is no agent 'z'; the agents are 'a', 'b', 'c'",
        ),
        ({"observation": {"c": [0, 0, 0]}}, "agent 'c': this agent has ended, so it cannot act"),
        ({"observation": [0, 0, 0]}, "observation [0, 0, 0] does not fit; expected an object"),
        ({"observation": {"b": [0]}}, "episode e: observation of agent 'b' has shape (1,)"),
        ({"reward": {"b": 1.0}}, "agent 'b': a reward was given for an agent that has not acted"),
        ({"reward": {"z": 1.0}}, "episode 'e', agent 'z': reward of an unknown agent"),
        ({"reward": {"a": True}}, "episode 'e', agent 'a': reward True is not a number"),
        ({"reward": 1.0}, "episode 'e': reward 1.0 is not a dict with agents as keys"),
        ({"done": {"b": True}}, "agent 'b': an end was given for an agent that has not acted"),
        ({"done": ["a"]}, "episode e: done ['a'] is not an object"),
        (
            {"call": "log_action", "action": {"a": 1}, "policies": {"a": "other"}},
            "episode e, agent 'a': the agent has the policy 'own' for the whole episode, but this "
            "action is by 'other'",
        ),
        ({"call": "log_action", "action": {"a": 3}}, "action of agent 'a' 3 does not fit"),
        ({"call": "end", "observation": {}, "truncated": True}, "'a': the episode is truncated"),
        ({"call": "policies", "agents": ["z"]}, "episode 'e', agent 'z': a policy of an unknown"),
        ({"call": "policies", "agents": "a"}, "agents is 'a'; expected a list of agents"),
    ],
)  # fmt: skip
def test_what_agents_cannot_do_names_client_episode_and_agent_and_changes_nothing(
    given: Mapping[str, Any], said: str
) -> None:
    with serving(spaces=ROLES) as (server, polled):
        server.take_mapper(lambda agent, episode: "own")
        raw(server, request())
        both = {"a": [0, 0, 0], "c": [0, 0, 0]}
        raw(server, request(1, "get_action", observation=both))
        raw(server, request(2, "get_action", done={"c": True}))
        status, content = raw(server, {**request(3, "get_action"), **given})
        assert status in (400, 409)
        assert said in content["error"]
        assert content["error"].startswith("client one: ")
        assert content["error"].isprintable()
        assert len(polled) == 2
        assert raw(server, request(3, "get_action"))[0] == 200


def test_a_mapping_that_fails_is_said_to_the_client_and_asked_once_in_an_episode() -> None:
    answers = iter(["first", "second"])

    def changing(agent: str, episode: str) -> str:
        if agent == "c":
            raise KeyError("c")
        return next(answers)

    with serving(spaces=ROLES) as (server, _):
        server.take_mapper(changing)
        raw(server, request())
        for number in (1, 2):
            status, said = raw(server, request(number, "policies", agents=["a"]))
            assert (status, said["policies"]) == (200, {"a": "first"})
        status, said = raw(server, request(3, "policies", agents=["c"]))
        assert (
            said["error"]
            == "client one: episode 'e', agent 'c': policy_mapping_fn raised KeyError: 'c'"
        )


def test_one_agent_has_no_policies_to_ask_for() -> None:
    with serving() as (server, _):
        raw(server, request())
        status, said = raw(server, request(1, "policies", agents=["a"]))
        assert (status, said["error"].endswith("there is one agent")) == (400, True)


def test_a_lost_episode_and_an_unknown_agent_are_said_by_the_client() -> None:
    with serving(spaces=ROLES) as (server, _), PolicyClient(server.address) as client:
        episode = client.start_episode()
        with pytest.raises(EpisodeError, match="there is no agent 'z'"):
            client.get_action(episode, {"z": [0, 0, 0]})
        server.abandon("of a test")
        with pytest.raises(EpisodeLost, match="of a test"):
            client.get_action(episode, {"a": [0, 0, 0]})


def test_spaces_may_be_those_of_an_environment_of_several_agents() -> None:
    of = EnvContext({"spaces_of": "tests.support.agents:Targets"})
    server = PolicyServer(of)
    assert server.action_space == dict.fromkeys(("left", "right", "brief"), spaces.Discrete(3))
    assert server.observation_space["brief"] == spaces.Discrete(3)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"action_space": {"discrete": 2}}, "red: observation_space is missing; an agent needs"),
        (SPACES | {"reward": 1}, "red: reward is not a known key; an agent needs"),
        (SPACES | {"action_space": {"n": 2}}, "red.action_space: .*has no key 'box'.*discrete"),
    ],
)
def test_a_mistake_in_the_spaces_of_an_agent_is_named_by_its_key(entry: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"^env_config\.agents\.{words}"):
        PolicyServer(EnvContext({"agents": {"red": entry}}))
