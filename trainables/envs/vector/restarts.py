"""Environments that fail are made anew, one by one, from seeds of their own.

N environments. The seed of a restart is one of (trial, worker, environment, restarts of the
environment).
"""

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from trainables.core import rng
from trainables.envs.contract import EnvContractError, Outcome
from trainables.envs.faults import close, described
from trainables.envs.spaces.connectors import EnvConnector
from trainables.envs.vector.base import WorkerContext
from trainables.errors import EnvError

logger = logging.getLogger(__name__)

#: Failures of one environment without an episode that ended, or so many steps, in between.
MAX_FAILURES_IN_A_ROW = 8
STEPS_THAT_COUNT = 100
#: Seconds before the second attempt; each further one waits twice as long.
BACK_OFF_S = 0.05
SETTING = "restart_failed_sub_environments: true"


class AnySlot(Protocol):
    """One environment, wherever it runs."""

    connector: EnvConnector
    """The connector of the environment."""

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds that the connector's steps took, all in all."""

    def send_step(self, action: Any) -> None:
        """Ask for a step."""

    def receive_step(self) -> Outcome:
        """Return the result of a step; the observation may be overwritten by the next request."""

    def reset(self, seed: int | None) -> Any:
        """The first observation of the next episode."""

    def render(self) -> Any:
        """Return a picture of the environment."""

    def remake(self, seed: int) -> None:
        """An environment made anew; `seed` is for streams of the process, where it has its own."""

    def seed_spaces(self, seed: int) -> None:
        """Give the spaces streams of their own."""

    def get_state(self) -> dict[str, Any]:
        """The environment's state."""

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""

    def left_out(self) -> list[str]:
        """Names of attributes that `get_state` cannot hold."""

    def close(self) -> None:
        """Let go of the environment."""


class Restarts:
    """Counts restarts and failures of each environment and does what can be done.

    Args:
        allowed: whether environments may be made anew.
        place: of the worker.
        count: N.
    """

    def __init__(self, allowed: bool, place: WorkerContext, count: int) -> None:
        self._allowed = allowed
        self._place = place
        self.restarts = np.zeros(count, dtype=np.int64)
        """(N,) how often each was made anew."""
        self.failures = np.zeros(count, dtype=np.int64)
        """(N,) in a row; an episode that ended as it should ends the row."""

    def recovered(
        self, slot: AnySlot, env_index: int, method: str, error: Exception, length: int
    ) -> Any:
        """The first observation in an environment made anew, if that is set and may help.

        Args:
            slot: of the environment.
            env_index: whose environment failed.
            method: which failed.
            error: what it raised.
            length: steps of the episode that is lost.

        Raises:
            EnvError: it is not set, the interface was broken, or it failed too often in a row.
        """
        name = self._place.name(env_index)
        advice = f"{length} of its episode; {SETTING} makes such an environment anew and goes on"
        require_restartable(self._allowed, name, method, error, advice)
        if length > STEPS_THAT_COUNT:
            self.failures[env_index] = 0
        latest: Exception | None = error
        while latest is not None:
            self.failures[env_index] += 1
            if self.failures[env_index] > MAX_FAILURES_IN_A_ROW:
                raise EnvError(
                    f"{name}: failed {MAX_FAILURES_IN_A_ROW + 1} times in a row, without an "
                    "episode that ended; it is not restarted again. "
                    f"First it {described(error)}; at last it {described(latest)}"
                ) from error
            observation, latest = self._restarted(slot, env_index, method, latest)
        return observation

    def _restarted(
        self, slot: AnySlot, env_index: int, method: str, error: Exception
    ) -> tuple[Any, Exception | None]:
        """The first observation and None, or nothing and what went wrong once more."""
        logger.warning(
            "%s: %s() %s; its episode is dropped and it is made anew, restart %d",
            self._place.name(env_index),
            method,
            described(error),
            self.restarts[env_index] + 1,
            exc_info=error,
        )
        failures = int(self.failures[env_index])
        time.sleep(BACK_OFF_S * 2.0 ** (failures - 2) if failures > 1 else 0.0)
        self.restarts[env_index] += 1
        close(slot, self._place.name(env_index))
        try:
            slot.remake(self._seed(env_index, "global"))
            slot.seed_spaces(self._seed(env_index, "spaces"))
            return slot.reset(self._seed(env_index)), None
        except Exception as again:  # noqa: BLE001 it is logged and counted by the caller
            return None, again

    def _seed(self, env_index: int, *path: str) -> int:
        count = int(self.restarts[env_index])
        place = self._place
        return (
            rng.integer(place.seed, "env", place.worker, env_index, "restart", count, *path) % 2**31
        )

    def get_state(self) -> dict[str, Any]:
        """Entries ``restarts`` and ``failures`` (N,)."""
        return {"restarts": self.restarts.copy(), "failures": self.failures.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.restarts[:] = state["restarts"]
        self.failures[:] = state["failures"]


def require_restartable(
    allowed: bool, name: str, method: str, error: Exception, advice: str
) -> None:
    """Raise EnvError where the interface was broken, or nothing may be made anew.

    `advice` says at which step it failed, and what `SETTING` would do.
    """
    if isinstance(error, EnvContractError):
        raise EnvError(f"{name}: {error}") from error.__cause__
    if not allowed:
        raise EnvError(f"{name}: {method}() {described(error)}, at step {advice}") from error
