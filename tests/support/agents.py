"""Environments of several agents: some that are learnt, some whose agents come and go."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Array = NDArray[Any]
Five = tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]
LENGTH = 8


class Targets:
    """As a PettingZoo parallel environment: each agent is shown a number, and is to say it.

    Its state is plain. Agent ``brief`` leaves after half of the episode.
    """

    possible_agents = ("left", "right", "brief")
    render_mode = None

    def __init__(self, choices: int = 3) -> None:
        self._choices = choices
        self._rng = np.random.default_rng(0)
        self.agents: list[str] = []
        self._shown: dict[str, int] = {}
        self._t = 0

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(self._choices)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(self._choices)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._t, self.agents = 0, list(self.possible_agents)
        return self._show(), {}

    def step(self, actions: Mapping[str, Any]) -> Five:
        assert set(actions) == set(self.agents)
        rewards = {a: float(actions[a] == self._shown[a]) for a in self.agents}
        self._t += 1
        ended = {a: self._t == LENGTH or (a == "brief" and self._t == 4) for a in self.agents}
        observations = self._show()
        self.agents = [a for a in self.agents if not ended[a]]
        return observations, rewards, ended, dict.fromkeys(ended, False), {}

    def _show(self) -> dict[str, int]:
        self._shown = {a: int(self._rng.integers(self._choices)) for a in self.agents}
        return dict(self._shown)

    def close(self) -> None:
        """Nothing is held."""


class Drawn(Targets):
    """The same with pictures, which are lighter with each step."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode  # type: ignore[assignment]  # the others have none

    def render(self) -> NDArray[np.uint8]:
        return np.full((64, 64, 3), 20 * self._t, dtype=np.uint8)


class Informed(Targets):
    """The same with infos: each agent's own, and the step for all of them."""

    def step(self, actions: Mapping[str, Any]) -> Five:
        *given, _ = super().step(actions)
        own = {agent: {"said": int(one)} for agent, one in actions.items()}
        return *given, {**own, "__common__": {"t": self._t}}  # type: ignore[return-value]


class Reaching(Targets):
    """The same with real numbers: the nearer to what is shown, the better."""

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, actions: Mapping[str, Any]) -> Five:
        goals = {a: float(self._shown[a]) - 1.0 for a in self.agents}
        near = {a: 1.0 - abs(float(actions[a][0]) - goal) for a, goal in goals.items()}
        observations, _, *ends = super().step(dict.fromkeys(self.agents, 0))
        return observations, near, *ends  # type: ignore[return-value]

    def _show(self) -> dict[str, Any]:
        return {a: np.array([one - 1.0, 1.0], "f4") for a, one in super()._show().items()}


class Dicts:
    """As RLlib's MultiAgentEnv; what its next steps give is put into `script` by a test."""

    script: ClassVar[list[Any]] = []
    first: ClassVar[dict[str, Any]] = {"a": 0, "b": 0}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c"]
        self.observation_spaces = {agent: spaces.Discrete(5) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}
        self._rest: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self._rest = list(type(self).script)
        return dict(type(self).first), {}

    def step(self, actions: Mapping[str, Any]) -> Any:
        return self._rest.pop(0)

    def close(self) -> None:
        """Nothing is held."""


class Rewrites(Dicts):
    """Gives the same arrays again and again, with the step in them; cut off after three."""

    def __init__(self) -> None:
        super().__init__()
        box = spaces.Box(-1e6, 1e6, (5,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)  # type: ignore[arg-type]
        self._arrays = {agent: np.zeros(5, np.float32) for agent in ("a", "b")}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return self._show(0), {}

    def step(self, actions: Mapping[str, Any]) -> Any:
        shown = self._show(int(self._arrays["a"][0]) + 1)
        cut = bool(shown["a"][0] == 3)
        return shown, dict.fromkeys(shown, 1.0), {"__all__": False}, {"__all__": cut}, {}

    def _show(self, step: int) -> dict[str, Array]:
        for array in self._arrays.values():
            array[:] = step
        return dict(self._arrays)


Transition = tuple[float, ...]


class Comings:
    """As RLlib's MultiAgentEnv: agents come, wait, go and come back by a plan drawn from the seed.

    What it notes in `told` is what is to be learnt from: observation, action, sum of the rewards
    since, the next observation, terminated, truncated, whether its episode is over by now.
    """

    told: ClassVar[list[list[Any]]] = []

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c", "d"]
        box = spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(3))
        self._rng = np.random.default_rng(0)
        self._open: dict[str, list[Any]] = {}
        self._seen: dict[str, Array] = {}
        self._episode: list[list[Any]] = []
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
            self._name = int(self._rng.integers(1000))
        self._open, self._episode, self._t = {}, [], 0
        self._length = int(self._rng.integers(1, 13))
        there = [a for a in self.possible_agents if self._rng.random() < 0.6] or ["a"]
        self._seen = {a: self._observation(a) for a in there}
        return dict(self._seen), {}

    def step(self, actions: Mapping[str, Any]) -> Five:
        assert set(actions) == set(self._seen)
        for agent, action in actions.items():
            self._open[agent] = [self._seen[agent], int(action), 0.0]
        self._t += 1
        over = self._t == self._length
        cut = over and bool(self._rng.random() < 0.5)
        observations: dict[str, Any] = {}
        rewards: dict[str, float] = {}
        terminated: dict[str, bool] = {"__all__": over and not cut}
        truncated: dict[str, bool] = {"__all__": cut}
        for agent in self.possible_agents:
            if agent in self._open:
                self._go_on(agent, (over, cut), observations, rewards, (terminated, truncated))
            elif self._rng.random() < 0.3 and not over:
                observations[agent] = self._observation(agent)
        self._seen = {
            a: one for a, one in observations.items() if not (terminated.get(a) or truncated.get(a))
        }
        if not over and not self._seen and not self._open:  # who left may come back later
            new = [a for a in self.possible_agents if a not in observations][:1]
            self._seen = {a: self._observation(a) for a in new}
            observations |= self._seen
        if over:
            for noted in self._episode:
                noted[-1] = True
        return observations, rewards, terminated, truncated, {}

    def _go_on(
        self,
        agent: str,
        ends: tuple[bool, bool],
        observations: dict[str, Any],
        rewards: dict[str, float],
        flags: tuple[dict[str, bool], dict[str, bool]],
    ) -> None:
        """One that has acted: it waits, sees something, or leaves."""
        over, cut = ends
        if self._rng.random() < 0.8:
            rewards[agent] = float(self._rng.integers(1, 100))
            self._open[agent][2] += rewards[agent]
        leaves = self._rng.random() < 0.2
        died = leaves and bool(self._rng.random() < 0.5)
        if leaves:
            flags[0 if died else 1][agent] = True
        elif not over and self._rng.random() < 0.3:
            return  # no observation in this step
        observations[agent] = self._observation(agent)
        dead = died if leaves else over and not cut
        short = leaves and not died if leaves else over and cut
        noted = [*self._open.pop(agent), observations[agent], dead, short, False]
        self._episode.append(noted)
        type(self).told.append(noted)

    def _observation(self, agent: str) -> Array:
        self._count += 1
        place = self.possible_agents.index(agent)
        return np.array([place, self._name, self._count], dtype=np.float32)

    def close(self) -> None:
        """Nothing is held."""


class Turns:
    """As RLlib's MultiAgentEnv: two players in turn, of whom only the one whose turn it is may act.

    Each sees the number of the turn, five times; it is rewarded with 1 for its own turn, and with
    10 for each turn of the other one after that.
    """

    def __init__(self, length: int = 100) -> None:
        self.possible_agents = ["a", "b"]
        box = spaces.Box(0.0, 1e6, (5,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces = dict.fromkeys(self.possible_agents, spaces.Discrete(2))
        self._turn, self._length = 0, length

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self._turn = 0
        return self._shown(), {}

    def step(self, actions: Mapping[str, Any]) -> Five:
        player, other = self._players()
        if [*actions] != [player]:
            raise ValueError(f"it is the turn of {player}, not of {[*actions]}")
        rewards = {player: 1.0, other: 10.0 if self._turn else 0.0}
        self._turn += 1
        ends = {"__all__": self._turn == self._length}
        return self._shown(), rewards, ends, {"__all__": False}, {}

    def _players(self) -> list[str]:
        return self.possible_agents[:: -1 if self._turn % 2 else 1]

    def _shown(self) -> dict[str, Any]:
        return {self._players()[0]: np.full(5, self._turn, np.float32)}
