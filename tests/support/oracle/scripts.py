"""Scripts of what environments give, environments that follow them, and what they were sent.

A script is plain data, so that it travels to other processes in ``env_config``: a list of episodes
for each environment, played from the first to the last and from the first again. Whatever an agent
does, it sees what the script says; each observation says whose it is and of which step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]
AGENTS = ("a", "b", "c")
ONLY = "a"
"""The agent of an environment of one."""
ALL = "__all__"
BOX = spaces.Box(-100.0, 100.0, (4,), np.float32)
LENGTH = 3
"""Choices of an action."""
MOST_EPISODES = 20_000
"""Of one environment: with more of them a sampler does not come to its end."""
#: What an agent does: one of three choices, or a number that has to be clipped.
ACTIONS: Mapping[str, spaces.Space[Any]] = {
    "choice": spaces.Discrete(LENGTH),
    "interval": spaces.Box(-0.5, 0.5, (1,), np.float32),
}


@dataclass(frozen=True)
class Moment:
    """What one step of an environment gives, by agent."""

    seen: Sequence[str] = (ONLY,)
    """Agents that have an observation."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    terminated: Sequence[str] = ()
    """Agents that ended so, `ALL` among them."""
    truncated: Sequence[str] = ()
    infos: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fails: bool = False
    """Whether the environment raises instead."""

    @property
    def is_over(self) -> bool:
        """Whether the environment says that its episode is over for all."""
        return ALL in self.terminated or ALL in self.truncated


@dataclass(frozen=True)
class Played:
    """One episode: who has an observation as it begins, and its steps."""

    first: Sequence[str]
    steps: Sequence[Moment]


Script = list[list[Played]]


def as_config(script: Script, folder: Path, actions: str = "choice") -> dict[str, Any]:
    """The ``env_config`` of environments that follow a script; the folder is theirs alone."""
    data = [[asdict(episode) for episode in of_env] for of_env in script]
    return {"script": data, "folder": str(folder), "actions": actions}


def played(script: Script, env: int, number: int) -> Played:
    """The episode with this number, from 0, of an environment."""
    episodes = script[env % len(script)]
    return episodes[number % len(episodes)]


def observation(env: int, episode: int, t: int, agent: str) -> Array:
    """(4,) what an agent sees after `t` steps of an episode, and nobody ever else."""
    row = np.array([env + 1, episode + 1, t, 1 + AGENTS.index(agent)])
    return (row / 8).astype(np.float32)


#: (environment, episode, steps before) → agent → the action that arrived.
SENT: dict[tuple[int, int, int], dict[str, Any]] = {}


class Follows:
    """The place of an environment in its script; it outlives the object, which may be made anew."""

    def __init__(self, context: Any) -> None:
        self.index = int(context.vector_index)
        of_env = context["script"][self.index % len(context["script"])]
        self._episodes = [_read(episode) for episode in of_env]
        self._begun = Path(context["folder"]) / f"{self.index}"
        self.episode = self.t = -1

    def begin(self) -> Played:
        """The next episode."""
        with self._begun.open("ab") as file:
            file.write(b".")
            self.episode = file.tell() - 1
        self.t = 0
        self._require_few()
        return self._current

    def go_on(self, actions: Mapping[str, Any]) -> Moment:
        """The next step of the episode; notes what was sent."""
        SENT[self.index, self.episode, self.t] = {a: np.array(one) for a, one in actions.items()}
        moment = self._current.steps[self.t]
        self.t += 1
        if moment.fails:
            raise RuntimeError("the script says so")
        return moment

    def shown(self, agents: Sequence[str]) -> dict[str, Array]:
        """Agent → what it sees now."""
        return {agent: observation(self.index, self.episode, self.t, agent) for agent in agents}

    def _require_few(self) -> None:
        """Fail, by what no restart of an environment catches, where episodes have no end."""
        if self.episode > MOST_EPISODES:
            pytest.fail(f"{MOST_EPISODES} episodes were not enough: does sampling ever end?")

    @property
    def _current(self) -> Played:
        return self._episodes[self.episode % len(self._episodes)]


def _read(episode: Mapping[str, Any]) -> Played:
    return Played(episode["first"], [Moment(**one) for one in episode["steps"]])


class Alone(gymnasium.Env[Array, Any]):
    """An environment of one agent, which is always there."""

    def __init__(self, context: Any) -> None:
        self.observation_space, self.action_space = BOX, ACTIONS[context["actions"]]
        self._place = Follows(context)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._place.begin()
        return self._place.shown([ONLY])[ONLY], {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        moment = self._place.go_on({ONLY: action})
        ends = ALL in moment.terminated, ALL in moment.truncated
        info = dict(moment.infos.get(ONLY, {}))
        return self._place.shown([ONLY])[ONLY], moment.rewards.get(ONLY, 0.0), *ends, info


class Several:
    """An environment of several agents, as RLlib's MultiAgentEnv."""

    def __init__(self, context: Any) -> None:
        self.possible_agents = list(AGENTS)
        self.observation_spaces = dict.fromkeys(AGENTS, BOX)
        self.action_spaces = dict.fromkeys(AGENTS, ACTIONS[context["actions"]])
        self._place = Follows(context)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return self._place.shown(self._place.begin().first), {}

    def step(self, actions: Mapping[str, Any]) -> Any:
        moment = self._place.go_on(actions)
        terminated, truncated = (
            {ALL: False, **dict.fromkeys(ends, True)}
            for ends in (moment.terminated, moment.truncated)
        )
        shown = self._place.shown(moment.seen)
        return shown, dict(moment.rewards), terminated, truncated, dict(moment.infos)

    def close(self) -> None:
        """Nothing is held."""
