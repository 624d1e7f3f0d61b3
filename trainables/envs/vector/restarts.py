"""Failed environments are replaced by new ones, one by one, with their own seeds.

N environments. The seed of a restart is derived from trial, worker, environment, and the number of
the environment's restarts.
"""

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from trainables.core import rng
from trainables.envs.calls.contract import EnvContractError
from trainables.envs.calls.faults import close, describe_fault
from trainables.envs.vector.base import WorkerContext
from trainables.errors import EnvError

if TYPE_CHECKING:
    from trainables.envs.vector.remote_slot import RemoteEnvSlot
    from trainables.envs.vector.slot import EnvSlot

logger = logging.getLogger(__name__)

#: Failures of one environment after which the trial ends, counted without an episode that ended or
#: `STEPS_THAT_COUNT` steps in between.
MAX_FAILURES_IN_A_ROW = 8
#: Steps without a failure after which earlier failures no longer count.
STEPS_THAT_COUNT = 100
#: Wait before the second attempt, seconds; each further wait is twice as long.
BACK_OFF_S = 0.05
#: The setting that allows restarts.
SETTING = "restart_failed_sub_environments: true"
#: One environment, in this or another process.
AnySlot: TypeAlias = "EnvSlot | RemoteEnvSlot"


class Restarts:
    """Replaces failed environments, if `allowed`, and counts restarts and failures of each."""

    def __init__(self, allowed: bool, place: WorkerContext, count: int) -> None:
        self._allowed = allowed
        self._place = place
        self.restarts = np.zeros(count, dtype=np.int64)
        """Number of restarts of each environment, (N,)."""
        self.failures = np.zeros(count, dtype=np.int64)
        """Number of consecutive failures of each environment, (N,).

        An episode that ends, or has more than `STEPS_THAT_COUNT` steps, sets it to 0.
        """

    def recover(
        self, slot: AnySlot, env_index: int, method: str, error: Exception, length: int
    ) -> Any:
        """Replace an environment whose `method` raised `error`; return its new first observation.

        The environment is in `slot`; its lost episode had `length` steps. If a new one fails, too,
        it is tried again after a wait. Each restart is counted and logged, with a traceback.

        Raises:
            EnvError: restarts are not allowed, the contract was broken, or it failed too often in a
                row.
        """
        name = self._place.name(env_index)
        advice = (
            f"{length} of its episode; {SETTING} creates such an environment again and continues"
        )
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
                    f"First it {describe_fault(error)}; the last time it {describe_fault(latest)}"
                ) from error
            observation, latest = self._try_restart(slot, env_index, method, latest)
        return observation

    def _try_restart(
        self, slot: AnySlot, env_index: int, method: str, error: Exception
    ) -> tuple[Any, Exception | None]:
        """Replace the environment and reset it.

        Return its first observation, and None or an exception.

        The old one is closed. It sleeps first unless this is the first failure in a row. The
        restart is counted and logged.
        """
        logger.warning(
            "%s: %s() %s; its episode is dropped, and a new environment replaces it, restart %d",
            self._place.name(env_index),
            method,
            describe_fault(error),
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
        """Return a seed for the environment's latest restart; `path` names its purpose."""
        count = int(self.restarts[env_index])
        place = self._place
        return (
            rng.integer(place.seed, "env", place.worker, env_index, "restart", count, *path) % 2**31
        )

    def get_state(self) -> dict[str, Any]:
        """Return the entries ``restarts`` and ``failures`` (N,)."""
        return {"restarts": self.restarts.copy(), "failures": self.failures.copy()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Set the counts of restarts and failures to those that `get_state` returned."""
        self.restarts[:] = state["restarts"]
        self.failures[:] = state["failures"]


def require_restartable(
    allowed: bool, name: str, method: str, error: Exception, advice: str
) -> None:
    """Raise EnvError if an environment broke gymnasium's contract, or failed without `allowed`.

    Args:
        allowed: True if environments may be replaced.
        method: name of the method that failed.
        advice: end of the message, after ``at step``: the number, and the effect of `SETTING`.
    """
    if isinstance(error, EnvContractError):
        raise EnvError(f"{name}: {error}") from error.__cause__
    if not allowed:
        raise EnvError(f"{name}: {method}() {describe_fault(error)}, at step {advice}") from error
