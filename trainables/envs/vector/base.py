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
    """A worker's place in its trial, from which seeds and names of its environments are derived."""

    seed: int = 0
    """Seed of the trial."""
    worker: int = 0
    """Index of the worker, from 0."""
    num_workers: int = 0
    """Number of child processes that collect; 0 if the trainer's own process does."""
    is_rendered: bool = False
    """True if environment 0 is rendered."""

    def name(self, env_index: int) -> str:
        """Return an environment's name for errors, such as ``worker 1, environment 3``."""
        return f"worker {self.worker}, environment {env_index}"


class Step(NamedTuple):
    """The results of one step of all environments. The arrays are valid until the next step."""

    observations: Array
    """Observations, (N, *O).

    If an episode ended, its environment's row is the first observation of the next episode, or
    still the last one of the ended episode if `restarting` is True.
    """
    rewards: Array
    """Rewards, (N,)."""
    terminated: NDArray[np.bool_]
    """Flags of episodes that ended by themselves, (N,)."""
    truncated: NDArray[np.bool_]
    """Flags of episodes that were cut off, (N,)."""
    final_observations: Any
    """Last observations of episodes that ended in this step, to be read by environment index.

    A dict of these, or an array or list of all environments, in which the other entries mean
    nothing.
    """
    infos: Mapping[int, Mapping[str, Any]] = NONE
    """Environment index → its info; empty infos are left out."""
    metric_ends: NDArray[np.bool_] | None = None
    """Flags (N,) of episodes that end for the metrics only (``soft_horizon``), or None for none."""
    faults: Mapping[int, Exception] = NONE
    """Environment index → exception that it raised in this step.

    Its episode is lost: its reward is 0, its flags are False, and its observation is the first one
    of an episode in a new environment.
    """
    restarting: NDArray[np.bool_] | None = None
    """Flags (N,) of environments whose next step only starts their next episode; None if there are
    none."""
    waiting: NDArray[np.bool_] | None = None
    """Flags (N,) of environments that have not answered yet and made no step; None if all did."""
    is_calm: bool = False
    """True if no episode ended and no environment failed, so that every flag is False.

    False may also mean that this was not looked at, as with a horizon.
    """


class VectorEnv(Protocol):
    """Protocol of N environments that are stepped together.

    Sub-environments are the environment objects, which have seeds and states: one per environment,
    or a single one for all. Observations and actions are those after an `EnvConnector`, which
    converts nested ones to arrays.
    """

    count: int
    """Number of environments, N."""
    sub_env_count: int
    """Number of environment objects: N, or 1 for a native vector environment."""
    observation_space: spaces.Space[Any]
    """Space of one environment's observations, as `step` returns them."""
    action_space: spaces.Space[Any]
    """Space of one environment's actions, as `step` takes them."""
    own_spaces: OwnSpaces
    """Observation space and action space of one environment before any conversion."""
    restarts_unasked: bool
    """True if environments restart by themselves, in the step that ends an episode or in the next.

    `before_restart` is then never called.
    """
    before_restart: Callable[[Step], None] | None
    """Function called inside `step` after environments have ended or failed, before their reset.

    It gets the step with the episodes' last observations. None for none. It is never called if
    `restarts_unasked`.
    """

    def reset(self, seeds: Sequence[int] | None) -> Array:
        """Start all episodes; return observations (N, *O).

        There is a seed per sub-environment; None continues their random streams. Lengths of
        episodes count from 0. Raises EnvError if an environment fails and may not be replaced.
        """

    def restart(self, sub_env: int, seed: int) -> Array:
        """Start the episodes of one environment object with a seed; return its observations.

        They are (1, *O) of a separate environment, with index `sub_env`; (N, *O) of a native vector
        environment.
        """

    def step(self, actions: Array) -> Step:
        """Make one step of every environment with actions (N, …); ended episodes are reset.

        The arrays of the result are valid until the next step. Raises EnvError if an environment
        fails and may not be replaced.
        """

    def seed_spaces(self, seeds: Sequence[int]) -> None:
        """Seed the spaces of the environment objects, with one seed for each."""

    def get_state(self) -> dict[str, Any]:
        """Return ``units``, the list of each environment object's state, and ``counters``.

        The latter are what `get_counters` returns.
        """

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state of `get_state` in environments that were made equally and reset once."""

    def get_counters(self) -> dict[str, Any]:
        """Return counts such as episode lengths, which are not part of the environment objects."""

    def set_counters(self, counters: Mapping[str, Any]) -> None:
        """Restore counts that `get_counters` returned, without the environment objects."""

    def connector_seconds(self) -> dict[str, float]:
        """Return name of a conversion of observations or actions → total time of all, seconds."""

    def unsaved_attributes(self) -> list[str]:
        """Return the names of attributes that `get_state` cannot store.

        With any of them, a restore is inexact.
        """

    def close(self) -> None:
        """Close all environments; errors are only logged."""
