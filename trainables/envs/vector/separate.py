"""Separate environments, each stepped, checked, reset and restarted by itself.

N environments. An exception in one environment never affects the others.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from trainables.envs.calls.contract import Outcome, is_plain
from trainables.envs.calls.faults import close
from trainables.envs.calls.rendering import with_render_mode
from trainables.envs.make import EnvironmentConfig
from trainables.envs.registry import EnvContext
from trainables.envs.state.replay import make_sub_env
from trainables.envs.vector.base import NONE, Step, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.horizon import TimeLimit
from trainables.envs.vector.restarts import AnySlot, Restarts
from trainables.envs.vector.slot import EnvSlot
from trainables.errors import EnvError

Array = NDArray[Any]


class SeparateVectorEnv:
    """N environments with one object each, held in slots: `EnvSlot` or `RemoteEnvSlot`.

    Raises EnvError if their spaces differ.
    """

    restarts_unasked: bool = False

    def __init__(
        self,
        slots: Sequence[AnySlot],
        config: VectorConfig,
        place: WorkerContext,
    ) -> None:
        self._slots = slots
        self._config = config
        self._place = place
        self.count = self.sub_env_count = len(slots)
        first = slots[0].connector
        self.own_spaces = first.own_spaces
        self.observation_space, self.action_space = first.observation_space, first.action_space
        for env_index, slot in enumerate(slots):
            one = slot.connector
            both = one.observation_space, one.action_space
            if both != (self.observation_space, self.action_space):
                raise EnvError(
                    f"{place.name(env_index)}: its spaces {one.own_spaces} differ from environment "
                    f"0's, {self.own_spaces}; all environments of a trainer need the same"
                )
        self.before_restart: Callable[[Step], None] | None = None
        self._rows = _Rows(self.observation_space, self.count)
        self._ends = TimeLimit(config, self.count)
        self._restarts = Restarts(config.restart_failed_sub_environments, place, self.count)

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes, each with its seed if given; return observations (N, *O).

        The next step overwrites them. An environment that fails is replaced; raises EnvError if
        that is not allowed.
        """
        for env_index in range(self.count):
            self._rows.put(
                env_index, self._begin(env_index, None if seeds is None else seeds[env_index])
            )
        self._ends.lengths[:] = 0
        return cast(Array, self._rows.all_observations())

    def restart(self, sub_env: int, seed: int) -> Array:
        """Start one environment's episode with a seed; return its observation (1, *O).

        `sub_env` is its index. If it fails it is replaced; raises EnvError if that is not allowed.
        """
        self._ends.lengths[sub_env] = 0
        return np.asarray(self._begin(sub_env, seed))[None]

    def step(self, actions: Any) -> Step:
        """Make one step of every environment with actions (N, …); ended episodes are reset.

        Failed environments are replaced; raises EnvError if that is not allowed. Derived classes
        define this.
        """
        raise NotImplementedError

    def _stepped(
        self,
        envs: Iterable[int],
        outcomes: Iterable[Outcome | Exception],
        waiting: NDArray[np.bool_] | None = None,
    ) -> Step:
        """Make a `Step` of the results of the environments `envs`, after resets and restarts.

        An exception among the outcomes means that the environment failed. Observations have been
        stored before; `waiting` (N,) flags environments without a result. Horizons are applied.
        Raises EnvError if a failed environment may not be replaced.
        """
        rewards = np.zeros(self.count)
        terminated = np.zeros(self.count, dtype=np.bool_)
        truncated = np.zeros(self.count, dtype=np.bool_)
        final_observations: dict[int, Any] = {}
        infos: dict[int, Mapping[str, Any]] = {}
        faults: dict[int, Exception] = {}
        cut = self._ends.reached_horizon()
        for env_index, outcome in zip(envs, outcomes, strict=True):
            if isinstance(outcome, Exception):
                faults[env_index] = outcome
                continue
            _, rewards[env_index], terminal, short, info = outcome
            if info:
                infos[env_index] = info
            if terminal or short or (cut is not None and cut[env_index]):
                if info:  # copied: to begin the next episode it may write into what it gave
                    infos[env_index] = dict(info)
                terminated[env_index], truncated[env_index] = terminal, short or not terminal
                final_observations[env_index] = self._rows.copied(env_index)
        flags, rows = (terminated, truncated), self._rows.all_observations()
        step = Step(
            rows, rewards, *flags, final_observations, infos, faults=faults, waiting=waiting
        )
        if final_observations or faults:
            step = self._begin_next(step, final_observations, faults)
        return self._ends.settle(step)

    def render(self) -> Any:
        """Return what environment 0's `render` returns, such as a picture."""
        return self._slots[0].render()

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Seed the spaces of each environment, with one seed for each."""
        for slot, seed in zip(self._slots, seeds, strict=True):
            slot.seed_spaces(seed)

    def get_state(self) -> dict[str, Any]:
        """Return ``units``, the list of each environment's state, and ``counters``.

        The latter are what `get_counters` returns. Attributes that are not plain data are left out.
        A state has only ``gone`` if its process died and is to be replaced; other failures of it
        raise Fault.
        """
        sub_envs = [slot.get_state() for slot in self._slots]
        return {"units": sub_envs, "counters": self.get_counters()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state` in environments that were made equally and reset once."""
        for slot, one in zip(self._slots, state["units"], strict=True):
            slot.set_state(one)
        self.set_counters(state["counters"])

    def get_counters(self) -> dict[str, Any]:
        """Return ``ends`` (the episodes' lengths), and each one's ``restarts`` and ``failures``."""
        return {"ends": self._ends.get_state(), **self._restarts.get_state()}

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Restore lengths, restarts and failures that `get_counters` returned."""
        self._ends.set_state(counters["ends"])
        self._restarts.set_state(counters)

    def connector_seconds(self) -> dict[str, float]:
        """Return name of a conversion of observations or actions → total time of all, seconds."""
        each = [slot.seconds for slot in self._slots]
        return {name: sum(one[name] for one in each) for name in each[0]}

    def unsaved_attributes(self) -> list[str]:
        """Return the names of attributes that `get_state` cannot store.

        One that several environments have is listed for each. With any, a restore is inexact.
        """
        return [name for slot in self._slots for name in slot.unsaved_attributes()]

    def close(self) -> None:
        """Close the environments; errors are only logged."""
        for env_index, slot in enumerate(self._slots):
            close(slot, self._place.name(env_index))

    def _begin_next(
        self, step: Step, final_observations: Mapping[int, Any], faults: dict[int, Exception]
    ) -> Step:
        """Reset ended environments, replace failed ones; return the step with first observations.

        Failed environments have reward 0 and no flag in it. Calls `before_restart` first. Raises
        EnvError if a failed one may not be replaced.
        """
        if self.before_restart is not None:
            self.before_restart(step)
        for env_index, error in list(faults.items()):
            self._rows.put(env_index, self._recover(env_index, "step", error))
        for env_index in final_observations:
            self._rows.put(env_index, self._begin(env_index, None, follows=True))
        for column in (step.rewards, step.terminated, step.truncated) if faults else ():
            column[list(faults)] = 0
        return step._replace(observations=self._rows.all_observations())

    def _begin(self, env_index: int, seed: int | None, follows: bool = False) -> Any:
        """Reset an environment, and return the first observation; one that fails is replaced.

        With `follows`, an episode ended properly before, so the failures count from 0 again. Raises
        EnvError if it may not be replaced.
        """
        try:
            observation = self._slots[env_index].reset(seed)
        except Exception as error:  # noqa: BLE001 an environment may raise anything
            return self._recover(env_index, "reset", error)
        if follows:
            self._restarts.failures[env_index] = 0
        return observation

    def _recover(self, env_index: int, method: str, error: Exception) -> Any:
        """Replace an environment that raised `error` in `method`.

        Return its new first observation. Raises EnvError if it may not be replaced, or fails again
        too often.
        """
        failed_at = int(self._ends.lengths[env_index])
        return self._restarts.recover(self._slots[env_index], env_index, method, error, failed_at)


def environment_contexts(
    environment: EnvironmentConfig, count: int, place: WorkerContext, remote: bool = False
) -> list[tuple[EnvironmentConfig, EnvContext]]:
    """Return the settings and the `EnvContext` of each of `count` environments of a worker.

    `remote` is True if they run in their own processes. Environment 0 is rendered if `place` says
    so.
    """
    every = [environment] * count
    if place.is_rendered:
        every[0] = with_render_mode(environment)
    return [
        (one, EnvContext(one.env_config, place.worker, env_index, remote, place.num_workers))
        for env_index, one in enumerate(every)
    ]


class _Rows:
    """The latest observations of N environments, in one array if they are arrays."""

    def __init__(self, space: spaces.Space[Any], count: int) -> None:
        self._space = space
        self._plain = is_plain(space)
        array: Any = create_empty_array(space, count, np.zeros)
        self._array = array
        self._each: list[Any] = [None] * count
        self.put: Callable[[int, Any], None] = (
            array.__setitem__ if self._plain else self._each.__setitem__
        )
        """Function that stores the observation of an environment, by its index."""

    def only(self) -> Array | None:
        """Return a view (D,) of the observation of environment 0; None if it is not an array.

        The view shows later observations, too.
        """
        return self._array[:1].reshape(-1) if self._plain else None

    def copied(self, env_index: int) -> Any:
        """Return one environment's observation, copied if it is an array."""
        one = self._array[env_index] if self._plain else self._each[env_index]
        return np.array(one) if isinstance(one, np.ndarray) else one

    def all_observations(self) -> Any:
        """Return all observations: an array (N, *O), or nested arrays for nested spaces.

        It is no copy: later observations are written into the same arrays.
        """
        if self._plain:
            return self._array
        return concatenate(self._space, self._each, self._array)


# -------------------------------------------------------------------------------------------------
# Separate environments in this process, stepped one after another.


class InProcessVectorEnv(SeparateVectorEnv):
    """N environments in this process, with one object each."""

    def __init__(
        self,
        environment: EnvironmentConfig,
        num_envs: int,
        config: VectorConfig,
        place: WorkerContext,
    ) -> None:
        self._local = [
            EnvSlot(partial(make_sub_env, made, context), made)
            for made, context in environment_contexts(environment, num_envs, place)
        ]
        super().__init__(self._local, config, place)
        self._acts = self._local[0].connector.acts
        self._no_flags = np.zeros(num_envs, dtype=np.bool_)
        self._no_flags.flags.writeable = False

    @property
    def sub_envs(self) -> list[Any]:
        """Present environment objects with their wrappers, by index, in a new list.

        A failed environment is replaced by another object.
        """
        return [slot.env for slot in self._local]

    def step(self, actions: Any) -> Step:
        """Make one step of every environment with actions (N, …); ended episodes are reset.

        Failed environments are replaced; raises EnvError if that is not allowed.
        """
        self._ends.count()
        is_calm, put = not self._ends.is_set, self._rows.put
        outcomes: list[Outcome | Exception] = []
        rewards: list[float] = []
        infos: dict[int, Mapping[str, Any]] = {}
        if self._acts:
            own = zip(self._local, actions, strict=True)
            actions = [slot.connector.act(action) for slot, action in own]
        for env_index, (slot, action) in enumerate(zip(self._local, actions, strict=True)):
            try:
                outcome = slot.check(slot.env.step(action))
            except Exception as error:  # noqa: BLE001 an environment may raise anything
                outcomes.append(error)
                is_calm = False
                continue
            observation, reward, terminated, truncated, info = outcome
            # At once: some environments give the same array again, with other numbers in it.
            put(env_index, observation)
            if terminated or truncated:
                is_calm = False
            if info:
                infos[env_index] = info
            rewards.append(reward)
            outcomes.append(outcome)
        if not is_calm:
            return self._stepped(range(self.count), outcomes)
        rows, none = self._rows.all_observations(), self._no_flags
        return Step(rows, np.array(rewards), none, none, NONE, infos, is_calm=True)

    @property
    def only_row(self) -> Array | None:
        """View (D,) of the only environment's current observation.

        It shows later observations, too. None with several environments, nested actions, an
        observation that is no array, or a horizon that may end an episode.
        """
        alone = self.count == 1 and not (self._acts or self._ends.is_set)
        return self._rows.only() if alone else None

    def step_alone(self, action: Any) -> float | Step:
        """Make one step of the only environment: a faster `step`.

        Returns only the reward if the episode continues normally, else a `Step`, also if the info
        has the entry ``training_enabled``. With the reward alone, the new observation is in
        `only_row`, and the info is dropped. Raises EnvError if the environment fails and may not be
        replaced.
        """
        self._ends.count()
        slot = self._local[0]
        outcome: Outcome | Exception
        try:
            outcome = slot.check(slot.env.step(action))
        except Exception as error:  # noqa: BLE001 an environment may raise anything
            outcome = error
        else:
            observation, reward, terminated, truncated, info = outcome
            self._rows.put(0, observation)
            if not (terminated or truncated or "training_enabled" in info):
                return reward
        return self._stepped((0,), (outcome,))
