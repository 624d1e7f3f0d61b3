"""Small environments that misbehave, or whose every number is known."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tests.support import elsewhere
from tests.support.waiting import wait_until

Observation = NDArray[np.float32]
Outcome = tuple[Observation, float, bool, bool, dict[str, Any]]


class Counting(gymnasium.Env[Observation, Any]):
    """Observes how many steps the episode has; ends (or is cut off) after `length` of them.

    The reward is 1 a step. `sent` keeps every action that arrived.
    """

    def __init__(self, length: int = 5, truncates: bool = True, continuous: bool = False) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space: spaces.Space[Any] = (
            spaces.Box(-0.1, 0.1, (2,), np.float32) if continuous else spaces.Discrete(3, start=1)
        )
        self.length = length
        self.truncates = truncates
        self.steps = 0
        self.sent: list[Any] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Outcome:
        self.sent.append(np.array(action))
        self.steps += 1
        over = self.steps >= self.length
        return self._observe(), 1.0, over and not self.truncates, over and self.truncates, {}

    def _observe(self) -> Observation:
        return np.array([self.steps], dtype=np.float32)


class DrawsFromItsSpace(Counting):
    """Its first observation and its rewards are drawn from its own observation space."""

    def __init__(self) -> None:
        super().__init__(length=5)
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.drawn = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.drawn = float(self.observation_space.sample()[0])
        return np.array([self.drawn], dtype=np.float32), {}

    def step(self, action: Any) -> Outcome:
        _, _, terminated, truncated, info = super().step(action)
        return np.array([self.drawn], np.float32), self.drawn, terminated, truncated, info


class Tally:
    """An object of somebody's own: no plain data."""

    episodes = 0
    value = 0.0


class GrowsHarder(Counting):
    """Counts its episodes in an object, and changes only after many of them."""

    def __init__(self) -> None:
        super().__init__(length=20)
        self.tally = Tally()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.tally.episodes += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Outcome:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 1.0 + self.tally.episodes // 20, terminated, truncated, info


class ReusesItsArray(Counting):
    """Gives the same array again and again, with other numbers in it."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length=length)
        self.array = np.zeros(1, dtype=np.float32)

    def _observe(self) -> Observation:
        self.array[0] = self.steps
        return self.array


class Broken(Counting):
    """Gives `what` at the third step: a bad observation, a bad reward, or an exception."""

    def __init__(self, what: str) -> None:
        super().__init__(length=10)
        self.what = what

    def step(self, action: Any) -> Outcome:
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps == 3:
            if self.what == "raise":
                raise ZeroDivisionError("the world ended")
            if self.what == "reward":
                reward = float("nan")
            if self.what == "observation":
                observation = np.array([np.inf], dtype=np.float32)
            if self.what == "shape":
                observation = np.zeros(4, dtype=np.float32)
        return observation, reward, terminated, truncated, info


class Hidden(Counting):
    """Its observations come out of a generator object, which is not plain data."""

    def __init__(self) -> None:
        super().__init__(length=7)
        self._numbers: Iterator[int] = iter(())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        start = int(self.np_random.integers(1000))
        self._numbers = (start + i * i for i in range(100))
        return self._observe(), {}

    def _observe(self) -> Observation:
        return np.array([next(self._numbers, 0)], dtype=np.float32)


class GlobalChance(Counting):
    """Draws from numpy's global stream, as environments written by others do."""

    def _observe(self) -> Observation:
        return np.array([np.random.random()], dtype=np.float32)  # noqa: NPY002 the point of it


class Walled(Counting):
    """Needs two-dimensional observations to be flattened."""

    def __init__(self) -> None:
        super().__init__(length=6, continuous=True)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)

    def _observe(self) -> Observation:
        return np.arange(6, dtype=np.float32).reshape(2, 3) + self.steps


class Waits(Counting):
    """Takes no step before `released` is set."""

    released = threading.Event()

    def step(self, action: Any) -> Outcome:
        self.released.wait()
        return super().step(action)


class Worded(Counting):
    """Observes words: no space that a policy can live in."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Text(5)  # type: ignore[assignment]  # the point of it


def not_an_environment() -> int:
    """What it makes is no environment."""
    return 3


class Situated(Counting):
    """Asserts that a variable of its process has a value, and holds some megabytes."""

    def __init__(self, name: str = "", value: str = "", megabytes: int = 0) -> None:
        super().__init__()
        if os.environ.get(name) != (value or None):
            raise AssertionError(f"{name} is {os.environ.get(name)!r}")
        self.held = np.ones(megabytes * 2**20, dtype=np.uint8)


class Mishap(Counting):
    """Raises in step `at`, or in the reset, of its episode number `episode`.

    Each episode's observations begin at a number drawn from its own stream, so that seeds show.
    """

    def __init__(self, at: int = 3, episode: int = 2, where: str = "step", length: int = 5) -> None:
        super().__init__(length=length)
        self.at, self.episode, self.where = at, episode, where
        self.episodes = 0
        self.drawn = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes += 1
        self.drawn = float(self.np_random.random())
        if self.where == "reset" and self.episodes == self.episode:
            raise ZeroDivisionError("no new world")
        return self._observe(), {}

    def step(self, action: Any) -> Outcome:
        if self.where == "step" and (self.episodes, self.steps + 1) == (self.episode, self.at):
            raise ZeroDivisionError("the world ended")
        return super().step(action)

    def _observe(self) -> Observation:
        return np.array([self.steps + self.drawn], dtype=np.float32)


class Perilous(Counting):
    """In its third step ever it ends its process (`how` "dies") or stays there ("hangs")."""

    def __init__(self, how: str, at: int = 3) -> None:
        super().__init__(length=20)
        self.how, self.at, self.ever = how, at, 0

    def step(self, action: Any) -> Outcome:
        self.ever += 1
        if self.ever == self.at and self.how == "dies":
            os._exit(3)
        if self.ever == self.at and self.how == "hangs":
            threading.Event().wait()
        return super().step(action)


class StartsAProcess(Counting):
    """Each step waits for a process of multiprocessing's, which a daemon may not start."""

    def step(self, action: Any) -> Outcome:
        from trainables.core.processes.starting import child_context

        process = child_context().Process(target=os.getpid)
        process.start()
        process.join()
        return super().step(action)


class Resetless(Counting):
    """It cannot be reset a second time: it raises, ends its process or stays there."""

    def __init__(self, how: str) -> None:
        super().__init__(length=3)
        self.how, self.begun = how, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.begun += 1
        if self.begun == 2:
            if self.how == "hangs":
                threading.Event().wait()
            if self.how == "dies":
                os._exit(3)
            raise ZeroDivisionError("the world ended")
        return super().reset(seed=seed)


class ChancyMishap(Counting):
    """In step 3 of episodes that begin above `above`, by their seed, it does `how`."""

    def __init__(self, how: str = "raises", above: float = 0.5) -> None:
        super().__init__(length=6)
        self.how, self.above = how, above
        self.drawn = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.drawn = float(self.np_random.random())
        return self._observe(), {}

    def step(self, action: Any) -> Outcome:
        observation, _, *rest = super().step(action)
        if self.steps == 3 and self.drawn > self.above:
            if self.how == "hangs":
                threading.Event().wait()
            if self.how == "dies":
                os._exit(3)
            raise ZeroDivisionError("the world ended")
        return observation, self.drawn, *rest  # type: ignore[return-value]  # as it was


class InContext(Counting):
    """Observes where in a trainer it stands: worker, vector index, remote, workers, `offset`."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(length=5)
        self.observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float32)
        where = env_config
        self.where = (where.worker_index, where.vector_index, where.remote, where.num_workers)
        self.offset = env_config["offset"]

    def _observe(self) -> Observation:
        return np.array([*self.where, self.offset], dtype=np.float32)


class Breaching(Counting):
    """Breaks gymnasium's interface: gives `alters(what)` where a step or reset should give more."""

    def __init__(self, what: str) -> None:
        super().__init__(length=5)
        self.what = what

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        altered: dict[str, Any] = {
            "reset gives nothing": None,
            "reset gives an observation": observation,
            "reset gives words": (np.array(["a"]), info),
        }
        given: Any = altered.get(self.what, (observation, info))
        return given  # type: ignore[no-any-return]  # the point of it

    def step(self, action: Any) -> Outcome:
        observation, reward, terminated, truncated, info = super().step(action)
        altered: dict[str, Any] = {
            "shape": (np.zeros(4, np.float32), reward, terminated, truncated, info),
            "ragged": ([[1.0], [2.0, 3.0]], reward, terminated, truncated, info),
            "dtype": (np.array([1j]), reward, terminated, truncated, info),
            "reward": (observation, None, terminated, truncated, info),
            "rewards": (observation, np.ones(2), terminated, truncated, info),
            "flag": (observation, reward, 1, truncated, info),
            "info": (observation, reward, terminated, truncated, None),
            "four": (observation, reward, terminated, info),
            "nothing": None,
        }
        given: Any = altered.get(self.what, (observation, reward, terminated, truncated, info))
        return given  # type: ignore[no-any-return]  # likewise


class Unseeded(Counting):
    """Its reset takes no seed."""

    def reset(self) -> tuple[Observation, dict[str, Any]]:  # type: ignore[override]  # the point
        return super().reset()


class Spaceless(gymnasium.Env[Any, Any]):
    """Says nothing about its spaces."""


class Liberal(Counting):
    """Gives what means the same: lists, 64 bits, numpy's own flags, an array of one reward."""

    def step(self, action: Any) -> Outcome:
        observation, _, terminated, truncated, info = super().step(action)
        given: Any = (observation.tolist(), np.ones(1), np.bool(terminated), truncated, info)
        return given  # type: ignore[no-any-return]  # the point of it

    def _observe(self) -> Observation:
        given: Any = np.array([self.steps], dtype=np.float64)
        return given  # type: ignore[no-any-return]  # likewise


def from_settings(config: dict[str, Any]) -> Counting:
    """A creator of the classic kind."""
    return Counting(**config)


class Unreadable(Counting):
    """Its state is in an object, and an episode is decided by its seed and actions alone.

    `remembers`: where it counts its episodes, which changes its rewards after a thousand of them.
    """

    episodes = 0

    def __init__(self, remembers: str = "nowhere", chance: str = "seeded") -> None:
        super().__init__(length=23)
        del self.sent
        self.remembers = remembers
        self.chance = chance
        self.world = Tally()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        if self.remembers == "class":
            Unreadable.episodes += 1
        elif self.remembers == "elsewhere":
            elsewhere.episodes += 1
        elif self.remembers != "nowhere":
            (SHARED if self.remembers == "module" else self.world).episodes += 1
        self.steps = 0
        self.world.value = float(self.np_random.normal())
        return self._observe(), {}

    def step(self, action: Any) -> Outcome:
        self.steps += 1
        noise = UNSEEDED.normal() if self.chance == "unseeded" else self.np_random.normal()
        self.world.value += float(noise) + 0.1 * float(action)
        harder = (Unreadable.episodes + SHARED.episodes + self.world.episodes) // 1000
        terminated = self.steps >= self.length
        return self._observe(), self.world.value - harder, terminated, False, {}

    def _observe(self) -> Observation:
        return np.array([self.world.value], dtype=np.float32)


SHARED = Tally()
UNSEEDED = np.random.default_rng()


class Awaits(Counting):
    """In its third step ever, environment 0 waits until environment 1 has made `steps`; files tell
    of them."""

    def __init__(self, env_config: Any) -> None:
        super().__init__(length=env_config.get("length", 7), truncates=False)
        self.folder, self.env_index = Path(env_config["folder"]), env_config.vector_index
        self.until = self.folder / f"1-{env_config['steps']}"
        self.ever = 0

    def step(self, action: Any) -> Outcome:
        self.ever += 1
        (self.folder / f"{self.env_index}-{self.ever}").touch()
        if (self.env_index, self.ever) == (0, 3):
            wait_until(self.until.exists)
        return super().step(action)


class OfSpaces(Counting):
    """Has the spaces that it is asked for, which are built from their words."""

    def __init__(self, observation: str = "", action: str = "") -> None:
        super().__init__()
        named = {**vars(spaces), "np": np}
        if observation:
            self.observation_space = eval(observation, named)  # noqa: S307 a test's own words
        if action:
            self.action_space = eval(action, named)  # noqa: S307 likewise


class _Agents:
    """What both of PettingZoo's interfaces share."""

    possible_agents = ("first", "second")
    agents = ("first", "second")

    def observation_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def close(self) -> None:
        """Nothing is held."""


class ParallelAgents(_Agents):
    """As PettingZoo's ParallelEnv: all agents act at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        return dict.fromkeys(self.agents, 0), {}

    def step(self, actions: Any) -> Any:
        return {}, {}, {}, {}, {}


class AgentsInTurn(_Agents):
    """As PettingZoo's AECEnv: one agent after the other."""

    metadata: ClassVar[dict[str, Any]] = {"name": "in turn", "is_parallelizable": False}
    render_mode = None

    def agent_iter(self) -> Iterator[str]:
        return iter(self.agents)

    def step(self, action: Any) -> None:
        """It is the next one's turn."""


class HangsWhenMade(Counting):
    """Its constructor does not come back."""

    def __init__(self) -> None:
        super().__init__()
        threading.Event().wait()


class Unclosable(Counting):
    """Raises when it is closed: always, or only after a reset."""

    def __init__(self, after: bool = False, render_mode: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.metadata = {"render_modes": ["rgb_array"]}
        self.after = after
        self.is_used = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.is_used, self.sent = True, []
        return super().reset(seed=seed)

    def render(self) -> NDArray[np.uint8]:
        return np.zeros((16, 16, 3), dtype=np.uint8)

    def close(self) -> None:
        if self.is_used or not self.after:
            raise ConnectionError("the simulator\nhas gone")


class Wide(gymnasium.Env[Observation, Any]):
    """Takes a number from 50 to 150; its share of that interval, from 0 to 1, is the reward."""

    def __init__(self, low: float = 50.0, high: float = 150.0) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Box(low, high, (1,), np.float32)
        self.low, self.high = low, high
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Outcome:
        self.steps += 1
        share = (float(action[0]) - self.low) / (self.high - self.low)
        return np.zeros(1, np.float32), share, self.steps == 8, False, {}
