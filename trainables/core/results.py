"""The usual keys of a result, and what is counted over a trial's life to fill them.

Times are seconds.
"""

import os
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

#: First parts of the volatile keys that only trainers add: times of their parts and machine use.
TRAINERS_OWN = frozenset({"timers", "sampler_perf", "perf"})
_OF_EVERY_RESULT = (
    *("time_this_iter_s", "time_total_s", "time_since_restore", "timesteps_since_restore"),
    *("iterations_since_restore", "date", "timestamp", "hostname", "node_ip", "pid"),
)
#: First parts of the result keys that differ between two equal runs: times, dates, pids, hosts.
VOLATILE_KEYS = TRAINERS_OWN.union(_OF_EVERY_RESULT)


class Counters:
    """Iterations, steps, episodes and time of a trial, restarts included."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {
            "training_iteration": 0,
            "timesteps_total": 0,
            "episodes_total": 0,
            "time_total_s": 0.0,
        }
        self._restored = dict(self._totals)

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return int(self._totals["training_iteration"])

    def complete(
        self, result: Mapping[str, Any], elapsed: float, who: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Count one more iteration; its result with all usual keys that it does not hold itself.

        Args:
            result: what `step` returned.
            elapsed: seconds that it took.
            who: keys that tell whose result it is.
        """
        told, totals = dict(result), self._totals
        totals["training_iteration"] += 1
        totals["time_total_s"] += elapsed
        for kind in ("timesteps", "episodes"):
            total, this_iter = f"{kind}_total", f"{kind}_this_iter"
            if told.get(total) is not None:
                told.setdefault(this_iter, told[total] - totals[total])
                totals[total] = told[total]
            elif told.get(this_iter) is not None:
                totals[total] += told[this_iter]
                told[total] = totals[total]
        now = datetime.now().astimezone()
        filled = {
            "done": False,
            "training_iteration": self.iteration,
            "time_this_iter_s": elapsed,
            "time_total_s": totals["time_total_s"],
            "date": now.strftime("%Y-%m-%d_%H-%M-%S"),
            "timestamp": round(now.timestamp(), 3),
            "hostname": socket.gethostname(),
            "node_ip": "127.0.0.1",
            "pid": os.getpid(),
            **who,
            "time_since_restore": self._since_restore("time_total_s"),
            "iterations_since_restore": int(self._since_restore("training_iteration")),
            "timesteps_since_restore": self._since_restore("timesteps_total"),
        }
        return {**filled, **told}

    def get_state(self) -> dict[str, float]:
        """Entries ``training_iteration`` and the totals of steps, episodes and seconds."""
        return dict(self._totals)

    def set_state(self, state: Mapping[str, float]) -> None:
        """Take back what `get_state` gave; since then nothing has been counted."""
        self._totals = dict(state)
        self._restored = dict(self._totals)

    def _since_restore(self, name: str) -> float:
        return self._totals[name] - self._restored[name]
