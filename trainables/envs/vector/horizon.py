"""Horizons, hard and soft: ends of episodes that the environment does not declare.

N environments. A hard horizon truncates the episode when the environment is stepped, since it must
be reset then. Soft horizons, and ends that are to be ignored, are applied here to a finished step.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainables.envs.vector.base import Step
from trainables.envs.vector.config import VectorConfig


class TimeLimit:
    """The lengths of N environments' episodes, and the settings that end episodes by length."""

    def __init__(self, config: VectorConfig, count: int) -> None:
        self._lengths = np.zeros(count, dtype=np.int64)
        self._more = 0
        """Steps of every environment that are not added to its length yet."""
        self._hard = config.hard_horizon
        self._soft = config.horizon if config.soft_horizon else None
        self._no_done = config.no_done_at_end
        self.is_set = config.horizon is not None
        """True if an episode may end although its environment does not say so."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each running episode since its start or soft end, (N,).

        Callers may write into the array, to change the lengths.
        """
        if self._more:
            self._lengths += self._more
            self._more = 0
        return self._lengths

    def count(self, envs: Sequence[int] | None = None) -> None:
        """Count one more step of the environments with these indices; None for all."""
        if envs is None:
            self._more += 1
        else:
            self.lengths[envs] += 1

    def reached_horizon(self) -> NDArray[np.bool_] | None:
        """Return flags (N,) of episodes that must be truncated now; None without a hard horizon."""
        return None if self._hard is None else self.lengths >= self._hard

    def settle(self, step: Step) -> Step:
        """Apply ``no_done_at_end`` and the soft horizon to a finished step; return the new one.

        The former marks all ends as truncations, the latter sets `Step.metric_ends`. The lengths of
        episodes that ended, failed or reached the soft horizon are set to 0.
        """
        ended = step.terminated | step.truncated
        if self._no_done:
            step = step._replace(terminated=np.zeros_like(ended), truncated=ended)
        if len(which := ended.nonzero()[0]):
            self.lengths[which] = 0
        for env_index in step.faults:
            self.lengths[env_index] = 0
        if self._soft is not None:
            soft = self.lengths >= self._soft
            self.lengths[soft] = 0
            step = step._replace(metric_ends=soft)
        return step

    def get_state(self) -> dict[str, Any]:
        """Return the entry ``lengths`` (N,)."""
        return {"lengths": self.lengths.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the episodes' lengths to those of a state that `get_state` returned."""
        self.lengths[:] = state["lengths"]
