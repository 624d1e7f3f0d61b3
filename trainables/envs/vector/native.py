"""Native vector environments: one object, one random stream, one state for all N environments.

Such an object decides when it starts the next episode of an environment, and declares it in
``metadata["autoreset_mode"]``: at once (SAME_STEP: the last observation is in its infos), in the
next step (NEXT_STEP: whose row is then not a transition) or on request (DISABLED).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode
from gymnasium.vector import VectorEnv as GymnasiumVectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from trainables.envs.calls.faults import close
from trainables.envs.make import EnvironmentConfig, make_connector, make_vector
from trainables.envs.spaces.connectors import EnvConnector
from trainables.envs.state.capture import capture, restore, seed_spaces, unsaved_attributes
from trainables.envs.vector.base import NONE, Array, Step, VectorEnv, WorkerContext
from trainables.envs.vector.config import VectorConfig
from trainables.envs.vector.horizon import TimeLimit
from trainables.errors import ConfigError, EnvError

#: Flags (N,).
Flags = NDArray[np.bool_]


def make_native(
    environment: EnvironmentConfig, num_envs: int, config: VectorConfig, place: WorkerContext
) -> VectorEnv:
    """Make N environments as one object, in the environment's own vector form.

    Raises ConfigError if it has none, restarts in an unknown way, or restarts by itself although a
    horizon must truncate its episodes.
    """
    vector = make_vector(environment, num_envs)
    spaces = vector.single_observation_space, vector.single_action_space
    connector = make_connector(environment, *spaces)
    if isinstance(vector.unwrapped, CartPoleVectorEnv):
        return CartPoleNative(vector.unwrapped, connector, config, place)
    mode = vector.metadata.get("autoreset_mode")
    if mode not in KINDS:
        problem = (
            f"metadata['autoreset_mode'] of {environment.env} is {mode!r}, so it is unknown which "
            "of its rows are transitions"
        )
        allowed = f"one of {', '.join(str(one) for one in KINDS)}"
        raise ConfigError("env", environment.env, allowed, problem=problem)
    if config.hard_horizon is not None and mode is not AutoresetMode.DISABLED:
        raise ConfigError.of_conflict(
            "horizon",
            config.horizon,
            "this native vector environment",
            "null",
            f"it resets its environments by itself ({mode}), and none when asked",
            "set native_vector_env to false; a limit of its own may be set in env_config",
        )
    return KINDS[mode](vector, connector, config, place)


class NativeVectorEnv:
    """Base class of the adapters of native vector environments, one for each autoreset mode.

    One converter of observations and actions serves all N environments.
    """

    restarts_unasked: bool = False

    def __init__(
        self,
        vector: GymnasiumVectorEnv[Any, Any, Any],
        connector: EnvConnector,
        config: VectorConfig,
        place: WorkerContext,
    ) -> None:
        self._vector: Any = vector  # its state is its own affair
        self._connector = connector
        self._place = place
        self.sub_envs: Sequence[Any] = [vector]
        self.count, self.sub_env_count = vector.num_envs, 1
        self.own_spaces = connector.own_spaces
        self.observation_space = connector.observation_space
        self.action_space = connector.action_space
        self._ends = TimeLimit(config, self.count)
        self.before_restart: Callable[[Step], None] | None = None

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes; return observations (N, *O).

        `seeds` has one entry, the seed of the whole vector environment; None continues its streams.
        Lengths of episodes count from 0. Raises EnvError if the environment raises.
        """
        self._ends.lengths[:] = 0
        return self._reset(seed=None if seeds is None else seeds[0])

    def restart(self, sub_env: int, seed: int) -> Array:
        """Start all episodes with a seed; return observations (N, *O).

        `sub_env` is 0, the only object.
        """
        return self.reset([seed])

    def step(self, actions: Array) -> Step:
        """Make one step of every environment with actions (N, …); ended episodes are reset.

        Raises EnvError if the environment raises or returns something else than five values.
        """
        self._ends.count()
        if self._connector.acts:
            actions = self._connector.act_all(actions)
        given = self._call("step", 5, "five: observations … infos", actions)
        step = self._to_step((self._to_observations(given[0]), *given[1:]))
        return step if step.is_calm else self._ends.settle(step)

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Seed each space of the one object with its own stream of the one seed in `seeds`."""
        seed_spaces(self._vector, seeds[0])

    def get_state(self) -> dict[str, Any]:
        """Return ``units``, a list with the object's state, and ``counters``."""
        return {"units": [capture(self._vector)], "counters": self.get_counters()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state` in environments that were made equally and reset once."""
        restore(self._vector, state["units"][0])
        self.set_counters(state["counters"])

    def get_counters(self) -> dict[str, Any]:
        """Return the entry ``ends``: the state of `TimeLimit`, the episodes' lengths."""
        return {"ends": self._ends.get_state()}

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Set the episodes' lengths to those that `get_counters` returned."""
        self._ends.set_state(counters["ends"])

    def connector_seconds(self) -> dict[str, float]:
        """Return name of a conversion of observations or actions → total time of all, seconds."""
        return self._connector.seconds

    def unsaved_attributes(self) -> list[str]:
        """Return the names of attributes that `get_state` cannot store.

        With any of them, a restore is inexact.
        """
        return unsaved_attributes(self._vector)

    def close(self) -> None:
        """Close the environment; an error is only logged."""
        close(self._vector, f"worker {self._place.worker}, native vector environment")

    def _to_step(self, returned: tuple[Any, ...]) -> Step:
        """Return a `Step` for the five values of the environment's `step`.

        The observations among them are already converted. In gymnasium's mode DISABLED,
        environments that have ended are reset here. Derived classes define this.
        """
        raise NotImplementedError

    def _reset(self, **how: Any) -> Array:
        """Call the environment's `reset` with these arguments; return observations (N, *O).

        Raises EnvError if it raises.
        """
        return self._to_observations(self._call("reset", 2, "(observations, infos)", **how)[0])

    def _to_observations(self, observations: Any) -> Array:
        """Return the environment's observations after conversion, an array (N, *O)."""
        if not self._connector.observes:
            return np.asarray(observations)
        batched = batch_space(self._connector.own_spaces[0], self.count)
        return self._connector.observe_all(iterate(batched, observations))

    def _call(
        self, method: str, parts: int, expected: str, *args: Any, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method of the vector environment, and return its result, a tuple of `parts` items.

        Raises EnvError if it raises, or returns something else; `expected` describes the right
        result.
        """
        try:
            given: Any = getattr(self._vector, method)(*args, **kwargs)
        except Exception as error:
            raise EnvError(
                f"worker {self._place.worker}, native vector environment: {method}() raised "
                f"{type(error).__name__}: {error}; all environments are one object, of which no "
                "part can be restarted: with native_vector_env: false, "
                "restart_failed_sub_environments: true creates a failed environment again"
            ) from error
        if not isinstance(given, tuple) or len(given) != parts:
            raise EnvError(
                f"worker {self._place.worker}, native vector environment: {method}() returned "
                f"{given!r:.80}; expected {expected}"
            )
        return given


class SameStepVectorEnv(NativeVectorEnv):
    """An adapter of environments that start the next episode in the step that ends one."""

    restarts_unasked = True

    def _to_step(self, returned: tuple[Any, ...]) -> Step:
        """Return a `Step`; raises EnvError if an ended episode's last observation is missing."""
        observations, rewards, terminated, truncated, infos = returned
        final_observations = infos.get("final_obs", ())
        see = self._connector.observe
        if self._connector.observes:
            final_observations = [None if one is None else see(one) for one in final_observations]
        for env_index in np.flatnonzero(terminated | truncated).tolist():
            if len(final_observations) <= env_index or final_observations[env_index] is None:
                raise EnvError(
                    f"{self._place.name(env_index)}: step() ended an episode without its last "
                    "observation; in the mode SAME_STEP infos['final_obs'] has to hold it"
                )
        # The info returned with an end comes from the reset; the step's own info is final_info.
        envs = {**_per_env(infos, self.count), **_per_env(infos.get("final_info"), self.count)}
        return Step(observations, rewards, terminated, truncated, final_observations, envs)


class NextStepVectorEnv(NativeVectorEnv):
    """An adapter of environments whose step after an episode's end only resets.

    The step that ended an episode is flagged in `Step.restarting`, since the next one is no
    transition.
    """

    restarts_unasked = True

    def __init__(
        self,
        vector: GymnasiumVectorEnv[Any, Any, Any],
        connector: EnvConnector,
        config: VectorConfig,
        place: WorkerContext,
    ) -> None:
        super().__init__(vector, connector, config, place)
        self._restarting: Flags = np.zeros(self.count, dtype=np.bool_)

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes as `NativeVectorEnv.reset`; no environment is then restarting."""
        self._restarting = np.zeros(self.count, dtype=np.bool_)
        return super().reset(seeds)

    def get_counters(self) -> dict[str, Any]:
        """Return the entries ``ends``, the episodes' lengths, and ``restarting``, flags (N,)."""
        return {**super().get_counters(), "restarting": self._restarting.copy()}

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Set the episodes' lengths and the flags to those that `get_counters` returned."""
        super().set_counters(counters)
        self._restarting = np.array(counters["restarting"], dtype=np.bool_)

    def _to_step(self, returned: tuple[Any, ...]) -> Step:
        """Return a `Step` with the ended environments marked as restarting, also for the next step.

        Lengths of episodes that this step has started are set to 0.
        """
        observations, rewards, terminated, truncated, infos = returned
        self._ends.lengths[self._restarting] = 0  # this step was none of an episode
        self._restarting = terminated | truncated
        step = (observations, rewards, terminated, truncated, observations)
        return Step(*step, _per_env(infos, self.count), restarting=self._restarting)


class DisabledVectorEnv(NativeVectorEnv):
    """An adapter of environments that are reset on request (autoreset mode DISABLED)."""

    def _to_step(self, returned: tuple[Any, ...]) -> Step:
        """Return a `Step`, after resetting the environments whose episodes ended.

        Episodes at the hard horizon are truncated. `before_restart` is called before the reset.
        """
        observations, rewards, terminated, truncated, infos = returned
        cut = self._ends.reached_horizon()
        if cut is not None:
            truncated = truncated | (cut & ~terminated)
        ended = terminated | truncated
        env_indices = ended.nonzero()[0]
        now = observations, rewards, terminated, truncated
        each = _per_env(infos, self.count)
        if not len(env_indices):
            return Step(*now, observations, each, is_calm=not self._ends.is_set)
        # Copied: to begin the next episodes it may write into what it gave.
        final, rewards, terminated, truncated = map(np.array, now)
        rest = rewards, terminated, truncated
        if self.before_restart is not None:
            self.before_restart(Step(final, *rest, final, each))
        return Step(
            self._restart_ended(ended, env_indices, observations, final), *rest, final, each
        )

    def _restart_ended(
        self, has_ended: Flags, indices: NDArray[np.int64], observations: Array, final: Array
    ) -> Array:
        """Start the next episode of ended environments; return all observations (N, *O).

        The result may be `observations`, overwritten.

        Args:
            has_ended: flags of environments that ended, (N,).
            indices: indices of these environments.
            observations: the environment's observations, which may be overwritten.
            final: a copy of `observations` that nothing overwrites.
        """
        fresh = self._reset(options={"reset_mask": has_ended})
        return np.where(has_ended.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, final)


class CartPoleNative(DisabledVectorEnv):
    """An adapter of gymnasium's own vector CartPole.

    By itself that would restart an ended environment only in the following step. Here the new start
    is written into its state at once, drawn from its own stream as it would have drawn it.
    """

    def _restart_ended(
        self, has_ended: Flags, indices: NDArray[np.int64], observations: Array, final: Array
    ) -> Array:
        """Start the next episode of ended environments; return all observations (N, *O).

        Writes into CartPole's state and into `observations`, which are returned, at `indices`; the
        starts are drawn from CartPole's stream.
        """
        vector = self._vector
        starts = vector.np_random.uniform(vector.low, vector.high, size=(4, len(indices)))
        vector.state[:, indices] = starts
        vector.steps[indices] = 0
        vector.prev_done[indices] = False
        observations[indices] = self._to_observations(starts.T.astype(np.float32))
        return observations


#: Autoreset mode → class.
KINDS: Mapping[Any, type[NativeVectorEnv]] = {
    AutoresetMode.SAME_STEP: SameStepVectorEnv,
    AutoresetMode.NEXT_STEP: NextStepVectorEnv,
    AutoresetMode.DISABLED: DisabledVectorEnv,
}


def _per_env(infos: Any, count: int) -> Mapping[int, Mapping[str, Any]]:
    """Return environment index → its own info, from gymnasium's dict of arrays.

    There each ``key`` has a mask ``_key`` of the environments that set it. The keys ``final_obs``
    and ``final_info`` are left out.
    """
    if not infos:
        return NONE
    envs: dict[int, dict[str, Any]] = {}
    for key, values in infos.items():
        mask = infos.get(f"_{key}")
        if mask is None or key in ("final_obs", "final_info"):
            continue
        nested = _per_env(values, count) if isinstance(values, dict) else None
        for env_index in np.flatnonzero(mask).tolist():
            one = values[env_index] if nested is None else nested.get(env_index, {})
            envs.setdefault(env_index, {})[key] = one
    return envs
