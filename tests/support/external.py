"""Environments that call: small ones that play by themselves and write down what they did."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tests.support.trainers import only_worker
from trainables.envs.external import EpisodeLost, ExternalEnv
from trainables.trainer.trainer import Trainer


def address_of(trainer: Trainer) -> str:
    """Where the policy server that a trainer has begun answers."""
    worker = only_worker(trainer)
    worker.envs.reset(None)
    (address,) = worker.foreach_env(lambda server: server.address)
    return str(address)


Record = dict[str, list[tuple[Any, ...]]]
#: Episode → (observation, action, reward) step by step; of all environments of this process.
PLAYED: Record = {}
BOX = spaces.Box(-10.0, 10.0, (3,), np.float32)


def seen(episode: int, step: int) -> np.ndarray[Any, Any]:
    """The observation that is made for a step of an episode, and for no other."""
    return np.array([episode / 128, step / 128, 1.0], dtype=np.float32)


#: As `PLAYED`, by (episode, agent): observation, action, sum of the rewards until it saw something
#: again or ended, and how it ended.
ROLES: dict[tuple[int, str], list[list[Any]]] = {}
AGENTS = ("a", "b", "c")


def seen_by(agent: str, episode: int, step: int) -> np.ndarray[Any, Any]:
    """The observation that is made for an agent's step of an episode, and for no other."""
    return np.array([episode / 128, step / 128, AGENTS.index(agent)], dtype=np.float32)


class CartPole(ExternalEnv):
    """gymnasium's CartPole, played in a thread."""

    def __init__(self) -> None:
        self.env = gymnasium.make("CartPole-v1")
        super().__init__(self.env.action_space, self.env.observation_space)

    def run(self) -> None:
        for number in range(10**9):
            observation, _ = self.env.reset(seed=number)
            episode = self.start_episode()
            over = cut = False
            while not (over or cut):
                action = self.get_action(episode, observation)
                observation, reward, over, cut, _ = self.env.step(action)
                self.log_returns(episode, float(reward))
            self.end_episode(episode, observation, truncated=cut)


class Dialled(ExternalEnv):
    """Takes numbers from 50 to 150, and plays nothing."""

    def __init__(self) -> None:
        super().__init__(spaces.Box(50.0, 150.0, (1,), np.float32), BOX)

    def run(self) -> None:
        pass


class Counting(ExternalEnv):
    """Several threads that play episodes of known observations, and record all of it."""

    #: Set by tests; not settings, so that all of them are looked at as one environment.
    threads = 4
    length = 7
    logs = False

    def __init__(self) -> None:
        super().__init__(spaces.Discrete(3), BOX)

    def run(self) -> None:
        others = [
            threading.Thread(target=self._guarded, args=(i,), daemon=True)
            for i in range(1, self.threads)
        ]
        for one in others:
            one.start()
        self._guarded(0)

    def _guarded(self, which: int) -> None:
        with contextlib.suppress(SystemExit):  # as a thread does by itself, outside pytest
            for number in self._numbers(which):
                self.play(number)

    def _numbers(self, which: int) -> Iterator[int]:
        yield from range(which, 10**9, self.threads)

    def play(self, number: int) -> None:
        episode = self.start_episode(f"counted {number}")
        steps = PLAYED.setdefault(episode, [])
        for step in range(self.length + number % 3):
            observation = seen(number, step)
            if self.logs and step % 2:
                action = (number + step) % 3
                self.log_action(episode, observation, action)
            else:
                action = int(self.get_action(episode, observation))
            reward = number + step / 128
            self.log_returns(episode, reward)
            steps.append((observation, action, reward))
        self.end_episode(episode, seen(number, self.length + number % 3))


class Roles(Counting):
    """The same with three agents: one acts always, one now and then, one comes late and dies."""

    cuts = False
    """Whether odd episodes are cut off."""

    def __init__(self) -> None:
        ExternalEnv.__init__(
            self,
            {agent: spaces.Discrete(3) for agent in AGENTS},
            dict.fromkeys(AGENTS, BOX),
        )

    def play(self, number: int) -> None:
        episode = self.start_episode(f"counted {number}")
        played: dict[str, list[list[Any]]] = {
            one: ROLES.setdefault((number, one), []) for one in AGENTS
        }
        length = self.length + number % 3
        for step in range(length):
            there = [one for one, acts in zip(AGENTS, self.who(step), strict=True) if acts]
            shown = {one: seen_by(one, number, step) for one in there}
            if self.logs and step % 2:
                actions = dict.fromkeys(there, (number + step) % 3)
                self.log_action(episode, shown, actions)
            else:
                actions = self.get_action(episode, shown)
            for one in there:
                played[one].append([shown[one], int(actions[one]), 0.0, "goes on"])
            living = [one for one in AGENTS if played[one] and played[one][-1][3] == "goes on"]
            for one in living:
                played[one][-1][2] += number + step / 128
            rewards = dict.fromkeys(living, number + step / 128)
            if step == 4:
                played["c"][-1][3] = "terminated"
            self.log_returns(episode, rewards, {"a": {"step": step}}, {"c": step == 4})
        cut = self.cuts and number % 2 == 1
        for one in "ab":
            played[one][-1][3] = "truncated" if cut else "terminated"
        last = {one: seen_by(one, number, length) for one in ("a", "b")}
        self.end_episode(episode, last if cut else {}, truncated=cut)

    @staticmethod
    def who(step: int) -> tuple[bool, bool, bool]:
        """Which agents act in a step."""
        return True, step % 3 == 0, 2 <= step <= 4


def note_lost_episodes(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why episodes were lost from now on, of players of `kind`, who begin another one then."""
    lost: list[str] = []
    play = kind.play

    def patiently(self: Any, number: int) -> None:
        try:
            play(self, number)
        except EpisodeLost as error:
            lost.append(str(error))

    monkeypatch.setattr(kind, "play", patiently)
    return lost
