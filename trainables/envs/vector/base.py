"""Environments stepped side by side: the results of a step, and the protocol.

N environments. After a step, rows of ended episodes already hold the first observation of the next
one; the true last observation is in `Step.final_observations`. So a fragment has no autoreset
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
#: An empty mapping.
NONE: Mapping[int, Any] = types.MappingProxyType({})


class WorkerContext(NamedTuple):
    """The place of a worker, from which the seeds and names of its environments are derived."""

    seed: int = 0
    """Seed of the trial."""
    worker: int = 0
    """Index of the worker, from 0."""
    num_workers: int = 0
    """Number of child processes that collect; 0 if the trainer's own process does."""
    is_rendered: bool = False
    """True if environment 0 is rendered."""

    def name(self, env_index: int) -> str:
        """Return the name of one environment for errors."""
        return f"worker {self.worker}, environment {env_index}"


class Step(NamedTuple):
    """The results of one step of all environments. The arrays are valid until the next step."""

    observations: Array
    """Observations, (N, *O)."""
    rewards: Array
    """Rewards, (N,)."""
    terminated: NDArray[np.bool_]
    """Flags, (N,)."""
    truncated: NDArray[np.bool_]
    """Flags, (N,)."""
    final_observations: Any
    """Last observations of the episodes that this step ended, indexed by environment."""
    infos: Mapping[int, Mapping[str, Any]] = NONE
    """Environment → its info; empty infos are left out."""
    metric_ends: NDArray[np.bool_] | None = None
    """Flags (N,) of soft horizons, which end an episode for the metrics only, or None."""
    faults: Mapping[int, Exception] = NONE
    """Environment → exception that it raised in this step.

    Its episode is lost: its reward is 0, its flags are False, and its observation is the first one
    of an episode in a new environment.
    """
    restarting: NDArray[np.bool_] | None = None
    """Flags (N,) of environments whose next step only starts their next episode; None if there are
    none."""
    waiting: NDArray[np.bool_] | None = None
    """Flags (N,) of environments that have not answered yet and made no step; None if all did."""
    is_calm: bool = False
    """True if no episode ended and no environment failed, so that every flag is False."""


class VectorEnv(Protocol):
    """Protocol of N environments that are stepped together.

    Sub-environments are the environment objects, which have seeds and states: one per environment,
    or one for all. The two spaces are those of one environment, as its connector
    (`trainables.envs.spaces.connectors.EnvConnector`) makes them.
    """

    count: int
    """Number of environments, N."""
    sub_env_count: int
    """Number of environment objects: N or 1."""
    observation_space: spaces.Space[Any]
    """Space of the observations of one environment, after its connector."""
    action_space: spaces.Space[Any]
    """Space of the actions that `step` takes, of one environment."""
    own_spaces: OwnSpaces
    """Spaces of one environment before its connector."""
    restarts_unasked: bool
    """True if environments start their next episode before the caller can know that one ended."""
    before_restart: Callable[[Step], None] | None
    """Function called inside `step` after environments have ended and before their reset."""

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes; return observations (N, *O).

        There is a seed per sub-environment; None continues their random streams.
        """

    def restart(self, sub_env: int, seed: int) -> Array:
        """Start the episodes of one sub-environment; return its observations (N, *O)."""

    def step(self, actions: Array) -> Step:
        """Make one step of every environment."""

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Seed the spaces of the sub-environments, one seed each."""

    def get_state(self) -> dict[str, Any]:
        """Return ``units``, the state of each environment object, and ``counters``."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state in environments that were created equally and reset once."""

    def get_counters(self) -> dict[str, Any]:
        """Return the counts kept outside the environments, which are always exact."""

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Restore counts that `get_counters` returned."""

    def connector_seconds(self) -> dict[str, float]:
        """Return name of a step of the environments' connectors → total time, seconds."""

    def unsaved_attributes(self) -> list[str]:
        """Return the names of attributes that `get_state` cannot store.

        With any of them, a restore is inexact.
        """

    def close(self) -> None:
        """Release the environments."""
