"""Environments stepped side by side: what one step of all gives, and what they promise.

N environments. After a step, rows of ended episodes already hold the first observation of the next
one; the true last observation stands in `Step.final_observations`. So a fragment has no autoreset
steps: every row is a transition. The one exception is a native vector environment that restarts
only in its next step, which marks those rows (`Step.restarting`).
"""

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from trainables.envs.spaces.connectors import OwnSpaces

Array = NDArray[Any]
NONE: Mapping[int, Any] = types.MappingProxyType({})


class WorkerContext(NamedTuple):
    """The place of environments: the sources of their seeds, and their names in errors."""

    seed: int = 0
    """Of the trial."""
    worker: int = 0
    """Index of the worker, from 0."""
    num_workers: int = 0
    """Child processes that collect; 0: the trainer's own process does."""
    is_drawn: bool = False
    """True if environment 0 is rendered."""

    def name(self, env_index: int) -> str:
        """Return the name of one environment in errors."""
        return f"worker {self.worker}, environment {env_index}"


class Step(NamedTuple):
    """The results of one step of all environments. The arrays are valid until the next step."""

    observations: Array
    """(N, *O)"""
    rewards: Array
    """(N,)"""
    terminated: NDArray[np.bool_]
    """(N,)"""
    truncated: NDArray[np.bool_]
    """(N,)"""
    final_observations: Any
    """Indexed by environment: the last observation of an episode that this step ended."""
    infos: Mapping[int, Mapping[str, Any]] = NONE
    """Environment → its info; those with an empty info are absent."""
    metric_ends: NDArray[np.bool_] | None = None
    """(N,) a soft horizon was reached: an end for the metrics and for nothing else."""
    faults: Mapping[int, Exception] = NONE
    """Lane → what its environment raised in this step.

    The running episode is lost: the environment's reward is 0 and its flags are False, its
    observation is the first one of an episode in an environment made anew.
    """
    restarting: NDArray[np.bool_] | None = None
    """(N,) the next step of these environments is no transition: it only starts their next
    episode."""
    waiting: NDArray[np.bool_] | None = None
    """(N,) True where no step was made, since the environment had not answered yet. None: all
    did."""
    is_calm: bool = False
    """True if it is known that no episode ended and none failed: every flag is False."""


class VectorEnv(Protocol):
    """N environments that are stepped together.

    Units are the environment objects, which are what is seeded and what has a state: one per
    environment, or one for all. The two spaces are those of one environment, as the connector at it
    (`trainables.envs.spaces.connectors.EnvConnector`) makes them.
    """

    count: int
    """N."""
    sub_env_count: int
    """Environment objects: N, or 1."""
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    own_spaces: OwnSpaces
    restarts_unasked: bool
    """True if environments begin their next episode before anybody can know that one has
    ended."""
    before_restart: Callable[[Step], None] | None
    """Called inside `step` when environments have ended and before they are reset."""

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes, one seed per unit; returns observations (N, *O)."""

    def restart(self, sub_env: int, seed: int) -> Array:
        """Start the episodes of one sub-environment; returns its observations (N, *O)."""

    def step(self, actions: Array) -> Step:
        """One step of every environment."""

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Give the spaces of each unit streams of their own, one seed per unit."""

    def get_state(self) -> dict[str, Any]:
        """Entries ``sub_envs``, the state of each, and ``counters``; plain data."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave, in environments that were made alike and reset once."""

    def get_counters(self) -> dict[str, Any]:
        """Return the counts beside the environments: they are exact even where these are not."""

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Take back what `get_counters` gave."""

    def connector_seconds(self) -> dict[str, float]:
        """Step of the connectors at the environments → how long it took, all in all."""

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold; where there are any, it is inexact."""

    def close(self) -> None:
        """Let go of the environments."""
