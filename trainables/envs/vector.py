"""Environments stepped in lanes, each started anew in the very step that ends its episode.

N lanes. After a step, rows of ended episodes already hold the first observation of the next one;
the true last observation stands in `Step.finals`. So a fragment has no ghost steps: every row is a
transition.
"""

import types
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from trainables.envs.make import EnvironmentConfig
from trainables.envs.replay import make_unit
from trainables.envs.state import capture, left_out, restore, seed_spaces
from trainables.errors import ConfigError

Array = NDArray[Any]
NONE: Mapping[int, Any] = types.MappingProxyType({})


class Step(NamedTuple):
    """What one step of all lanes gave. The arrays are valid until the next step."""

    observations: Array
    """(N, *O)"""
    rewards: Array
    """(N,)"""
    terminated: NDArray[np.bool_]
    """(N,)"""
    truncated: NDArray[np.bool_]
    """(N,)"""
    finals: Any
    """Indexed by lane: the last observation of an episode that this step ended."""
    infos: Mapping[int, Mapping[str, Any]] = NONE
    """Lane → what the environment told beside; lanes that told nothing are absent."""
    soft_ends: NDArray[np.bool_] | None = None
    """(N,) a soft horizon was reached: an end for the metrics and for nothing else."""
    faults: Mapping[int, Exception] = NONE
    """Lane → what its environment raised in this step.

    The running episode is lost: the lane's reward is 0 and its flags are False, its observation is
    the first one of an episode in an environment made anew.
    """


class Lanes(Protocol):
    """N environments that are stepped together.

    Units are the environment objects, which are what is seeded and what has a state: one per lane,
    or one for all. The two spaces are those of one lane.
    """

    count: int
    """N."""
    unit_count: int
    """Environment objects: N, or 1."""
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes, one seed per unit; returns observations (N, *O)."""

    def restart(self, unit: int, seed: int) -> Array:
        """Start the episodes of one unit; returns its observations (lanes of the unit, *O)."""

    def step(self, actions: Array) -> Step:
        """One step of every lane."""

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Give the spaces of each unit streams of their own, one seed per unit."""

    def get_state(self) -> list[Any]:
        """The state of each unit as plain data."""

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave, in lanes that were made alike and reset once."""

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold; where there are any, it is inexact."""

    def close(self) -> None:
        """Let go of the environments."""


class _Local:
    """The state of environment objects that live in this process."""

    units: Sequence[Any]

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Give the spaces of each unit streams of their own, one seed per unit."""
        for unit, seed in zip(self.units, seeds, strict=True):
            seed_spaces(unit, seed)

    def get_state(self) -> list[Any]:
        """The state of each unit as plain data."""
        return [capture(unit) for unit in self.units]

    def set_state(self, states: Sequence[Any]) -> None:
        """Take back what `get_state` gave, in lanes that were made alike and reset once."""
        for unit, state in zip(self.units, states, strict=True):
            restore(unit, state)

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold; where there are any, it is inexact."""
        return [name for unit in self.units for name in left_out(unit)]


class _Copied(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Copies each observation: some environments give the same array again with other numbers.

    The vector keeps the last observation of an episode while it resets the environment.
    """

    def observation(self, observation: Any) -> Any:
        """The copy."""
        return np.array(observation)


class SeparateLanes(_Local):
    """One environment object per lane, in this process.

    Args:
        config: the environment.
        num_envs: N.
    """

    def __init__(self, config: EnvironmentConfig, num_envs: int) -> None:
        self._vector = SyncVectorEnv(
            [lambda: _Copied(make_unit(config))] * num_envs,
            copy=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self.units: Sequence[Any] = self._vector.envs
        self.count = self.unit_count = num_envs
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes, one seed per lane; returns observations (N, *O)."""
        observations, _ = self._vector.reset(seed=None if seeds is None else list(seeds))
        return np.asarray(observations)

    def restart(self, unit: int, seed: int) -> Array:
        """Start one lane's episode; returns its observation (1, *O)."""
        observation, _ = self.units[unit].reset(seed=seed)
        return np.asarray(observation)[None]

    def step(self, actions: Array) -> Step:
        """One step of every lane."""
        observations, rewards, terminated, truncated, infos = self._vector.step(actions)
        return Step(observations, rewards, terminated, truncated, infos.get("final_obs", ()))

    def close(self) -> None:
        """Let go of the environments."""
        self._vector.close()


class CartPoleLanes(_Local):
    """gymnasium's own vector CartPole: one object, one stream of chance, one state for all lanes.

    It starts an ended lane anew only in the following step, whose row is then no transition. Here
    the fresh start is written into its state at once, drawn from its own stream as it would have
    drawn it.

    Args:
        config: the environment.
        num_envs: N.
    """

    def __init__(self, config: EnvironmentConfig, num_envs: int) -> None:
        vector = gymnasium.make_vec(
            config.env, num_envs, vectorization_mode="vector_entry_point", **config.env_config
        ).unwrapped
        if not isinstance(vector, CartPoleVectorEnv):
            raise _no_native(config)
        self._vector: Any = vector  # gymnasium types its state as None
        self.units: Sequence[Any] = [vector]
        self.count, self.unit_count = num_envs, 1
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes from the one seed; returns observations (N, 4)."""
        return np.asarray(self._vector.reset(seed=None if seeds is None else seeds[0])[0])

    def restart(self, unit: int, seed: int) -> Array:
        """Start all episodes; returns observations (N, 4)."""
        return np.asarray(self._vector.reset(seed=seed)[0])

    def step(self, actions: Array) -> Step:
        """One step of every lane."""
        vector = self._vector
        observations, rewards, terminated, truncated, _ = vector.step(actions)
        ended = np.flatnonzero(terminated | truncated)
        finals = observations
        if len(ended):
            finals = observations.copy()
            starts = vector.np_random.uniform(vector.low, vector.high, size=(4, len(ended)))
            vector.state[:, ended] = starts
            vector.steps[ended] = 0
            vector.prev_done[ended] = False
            observations[ended] = starts.T
        return Step(observations, rewards, terminated, truncated, finals)

    def close(self) -> None:
        """Let go of the environment."""
        self._vector.close()


def make_lanes(config: EnvironmentConfig, num_envs: int) -> Lanes:
    """The lanes that the settings ask for; decided by them alone, never by measuring speed."""
    if not config.native_vector_env:
        return SeparateLanes(config, num_envs)
    spec = gymnasium.registry.get(config.env)
    if spec is None or spec.vector_entry_point is None:
        raise _no_native(config)
    return CartPoleLanes(config, num_envs)


def _no_native(config: EnvironmentConfig) -> ConfigError:
    return ConfigError(
        "native_vector_env",
        True,
        "false for this environment",
        f"{config.env} has no vector form whose episodes restart in the step that ends them",
    )
