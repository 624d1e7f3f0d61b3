"""Lanes of separate environments, each stepped, checked, reset and restarted by itself.

N lanes. What an environment raises touches its own lane only, whether it is restarted or not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from trainables.envs.contract import Outcome, is_plain
from trainables.envs.ends import Ends
from trainables.envs.lanes import LanesConfig
from trainables.envs.make import EnvironmentConfig
from trainables.envs.registry import EnvContext
from trainables.envs.rendering import rendered
from trainables.envs.restarts import AnySeat, Restarts
from trainables.envs.vector import Place, Step
from trainables.errors import EnvError

Array = NDArray[Any]


class SeparateLanes:
    """One environment object per lane.

    Args:
        seats: where the environments are, N of them.
        env_spaces: observation and action space of each; they must be alike.
        config: horizon and restarts.
        place: of the worker.
    """

    restarts_unasked: bool = False

    def __init__(
        self,
        seats: Sequence[AnySeat],
        env_spaces: Sequence[tuple[spaces.Space[Any], spaces.Space[Any]]],
        config: LanesConfig,
        place: Place,
    ) -> None:
        self._seats = seats
        self._config = config
        self._place = place
        self.count = self.unit_count = len(seats)
        self.observation_space, self.action_space = env_spaces[0]
        for lane, one in enumerate(env_spaces):
            if one != env_spaces[0]:
                raise EnvError(
                    f"{place.name(lane)}: its spaces {one} differ from those of environment 0, "
                    f"{env_spaces[0]}; all environments of a trainer must have the same"
                )
        self.before_restart: Callable[[Step], None] | None = None
        self._rows = _Rows(self.observation_space, self.count)
        self._ends = Ends(config, self.count)
        self._restarts = Restarts(config.restart_failed_sub_environments, place, self.count)

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes, one seed per lane; returns observations (N, *O)."""
        for lane in range(self.count):
            self._rows.put(lane, self._begin(lane, None if seeds is None else seeds[lane]))
        self._ends.lengths[:] = 0
        return cast(Array, self._rows.together())

    def restart(self, unit: int, seed: int) -> Array:
        """Start one lane's episode; returns its observation (1, *O)."""
        self._ends.lengths[unit] = 0
        return np.asarray(self._begin(unit, seed))[None]

    def step(self, actions: Any) -> Step:
        """One step of every lane."""
        self._ends.count()
        return self._stepped(range(self.count), self._outcomes(actions))

    def _stepped(
        self,
        lanes: Iterable[int],
        outcomes: Iterable[Outcome | Exception],
        waiting: NDArray[np.bool_] | None = None,
    ) -> Step:
        """What these lanes' environments gave, whose steps are counted; the others wait."""
        rewards = np.zeros(self.count)
        terminated = np.zeros(self.count, dtype=np.bool_)
        truncated = np.zeros(self.count, dtype=np.bool_)
        finals: dict[int, Any] = {}
        infos: dict[int, Mapping[str, Any]] = {}
        faults: dict[int, Exception] = {}
        cut = self._ends.cut()
        put = self._rows.put
        for lane, outcome in zip(lanes, outcomes, strict=True):
            if isinstance(outcome, Exception):
                faults[lane] = outcome
                continue
            observation, rewards[lane], terminal, short, info = outcome
            if info:
                infos[lane] = info
            if terminal or short or (cut is not None and cut[lane]):
                terminated[lane], truncated[lane] = terminal, short or not terminal
                finals[lane] = _copied(observation)
            put(lane, observation)
        flags = (terminated, truncated)
        step = Step(
            self._rows.together(), rewards, *flags, finals, infos, faults=faults, waiting=waiting
        )
        if finals or faults:
            step = self._begin_next(step, finals, faults)
        return self._ends.settle(step)

    def render(self) -> Any:
        """What environment 0 draws."""
        return self._seats[0].render()

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Give the spaces of each environment streams of their own, one seed per lane."""
        for seat, seed in zip(self._seats, seeds, strict=True):
            seat.seed_spaces(seed)

    def get_state(self) -> dict[str, Any]:
        """Entries ``units``, the state of each environment, and ``counters``."""
        units = [seat.get_state() for seat in self._seats]
        return {"units": units, "counters": self.get_counters()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave, in lanes that were made alike and reset once."""
        for seat, one in zip(self._seats, state["units"], strict=True):
            seat.set_state(one)
        self.set_counters(state["counters"])

    def get_counters(self) -> dict[str, Any]:
        """Entries ``ends``, ``restarts`` and ``failures`` (N,)."""
        return {
            "ends": self._ends.get_state(),
            **self._restarts.get_state(),
        }

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Take back what `get_counters` gave."""
        self._ends.set_state(counters["ends"])
        self._restarts.set_state(counters)

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold; where there are any, it is inexact."""
        return [name for seat in self._seats for name in seat.left_out()]

    def close(self) -> None:
        """Let go of the environments."""
        for seat in self._seats:
            seat.close()

    def _outcomes(self, actions: Iterable[Any]) -> Iterable[Outcome | Exception]:
        """Of each lane in turn, what its step gave or raised."""
        raise NotImplementedError

    def _begin_next(
        self, step: Step, finals: Mapping[int, Any], faults: dict[int, Exception]
    ) -> Step:
        """The step, with the first observations of new episodes where one has ended or failed."""
        if self.before_restart is not None:
            self.before_restart(step)
        for lane, error in list(faults.items()):
            self._rows.put(lane, self._recovered(lane, "step", error))
        for lane in finals:
            self._rows.put(lane, self._following(lane))
        for lane in faults:
            step.rewards[lane], step.terminated[lane], step.truncated[lane] = 0.0, False, False
        return step._replace(observations=self._rows.together())

    def _begin(self, lane: int, seed: int | None) -> Any:
        try:
            return self._seats[lane].reset(seed)
        except Exception as error:  # noqa: BLE001 an environment may raise anything
            return self._recovered(lane, "reset", error)

    def _following(self, lane: int) -> Any:
        """The first observation of the next episode, after one that ended and is kept."""
        try:
            observation = self._seats[lane].reset(None)
        except Exception as error:  # noqa: BLE001 likewise
            return self._recovered(lane, "reset", error)
        self._restarts.episode_ended(lane)
        return observation

    def _recovered(self, lane: int, method: str, error: Exception) -> Any:
        failed_at = int(self._ends.lengths[lane])
        return self._restarts.recovered(self._seats[lane], lane, method, error, failed_at)


def standing(
    environment: EnvironmentConfig, count: int, place: Place, remote: bool = False
) -> list[tuple[EnvironmentConfig, EnvContext]]:
    """What the environment of each lane is made from: its settings, and where it stands."""
    every = [environment] * count
    if place.is_drawn:
        every[0] = rendered(environment)
    return [
        (one, EnvContext(one.env_config, place.worker, lane, remote, place.num_workers))
        for lane, one in enumerate(every)
    ]


class _Rows:
    """The current observation of each lane, side by side.

    Args:
        space: of one observation.
        count: N.
    """

    def __init__(self, space: spaces.Space[Any], count: int) -> None:
        self._space = space
        self._plain = is_plain(space)
        array: Any = create_empty_array(space, count, np.zeros)
        self._array = array
        self._each: list[Any] = [None] * count
        self.put: Callable[[int, Any], None] = (
            array.__setitem__ if self._plain else self._each.__setitem__
        )
        """Takes the observation of a lane."""

    def together(self) -> Any:
        """All of them; an array (N, *O) for plain spaces."""
        if self._plain:
            return self._array
        return concatenate(self._space, self._each, self._array)


def _copied(observation: Any) -> Any:
    """Some environments give the same array again, with other numbers in it."""
    return np.array(observation) if isinstance(observation, np.ndarray) else observation
