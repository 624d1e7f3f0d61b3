"""The usual keys of a result, what is counted to fill them, and a person's own logger of results.

    def logger_creator(config):                    # the trial's settings
        return UnifiedLogger(config, "my/folder")  # anything with on_result(result)

The logger is given every complete result. Where it has a ``logdir``, that is the trial's folder;
where it has ``flush`` and ``close``, they are called when the trainable stops. It is no part of a
checkpoint. Times are seconds.
"""

import copy
import functools
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trainables.errors import TrainableError, shorten

#: First parts of the volatile keys that only trainers add: times of their parts and machine use.
TRAINERS_OWN = frozenset({"timers", "sampler_perf", "connector_metrics", "perf"})
_OF_EVERY_RESULT = (
    *("time_this_iter_s", "time_total_s", "time_since_restore", "timesteps_since_restore"),
    *("iterations_since_restore", "date", "timestamp", "hostname", "node_ip", "pid"),
)
#: First parts of the result keys that differ between two equal runs: times, dates, pids, hosts.
VOLATILE_KEYS = TRAINERS_OWN.union(_OF_EVERY_RESULT)
#: Entries that say whose result it is, and when it came; trials are not compared by them.
WHOSE = frozenset(
    {
        *("date", "timestamp", "hostname", "node_ip", "pid"),
        *("trial_id", "experiment_tag", "config", "done"),
    }
)
#: What every result has: whose it is, when it came and what is counted.
OF_EVERY_RESULT = frozenset(
    {
        *(
            "training_iteration",
            "timesteps_total",
            "timesteps_this_iter",
            "episodes_total",
            "episodes_this_iter",
        ),
        *(*_OF_EVERY_RESULT, *WHOSE),
    }
)


def has_name(names: Collection[str], name: str) -> bool:
    """Return true if `name` is among `names`, of which one that ends with ``/`` is all below it."""
    return name in names or any(one.endswith("/") and name.startswith(one) for one in names)


_hostname = functools.cache(socket.gethostname)


@functools.lru_cache(maxsize=1)
def _date(second: int) -> str:
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(second))


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
        self,
        result: Mapping[str, Any],
        elapsed: float,
        who: Mapping[str, Any],
        is_new: bool = True,
    ) -> dict[str, Any]:
        """Count one more iteration, of `elapsed` seconds; its result with all usual keys.

        Keys that `step` returned go before; `who` holds the keys that name the trial. Without
        `is_new` the result repeats that of the last iteration, and only the seconds are counted.
        """
        given, totals = dict(result), self._totals
        totals["training_iteration"] += int(is_new)
        totals["time_total_s"] += elapsed
        for kind in ("timesteps", "episodes"):
            total, this_iter = f"{kind}_total", f"{kind}_this_iter"
            if given.get(total) is not None:
                given.setdefault(this_iter, given[total] - totals[total])
                totals[total] = given[total]
            elif given.get(this_iter) is not None:
                totals[total] += given[this_iter]
                given[total] = totals[total]
        now = time.time()
        filled = {
            "done": False,
            "training_iteration": self.iteration,
            "time_this_iter_s": elapsed,
            "time_total_s": totals["time_total_s"],
            "date": _date(int(now)),
            "timestamp": round(now, 3),
            "hostname": _hostname(),
            "node_ip": "127.0.0.1",
            "pid": os.getpid(),
            **who,
            "time_since_restore": self._since_restore("time_total_s"),
            "iterations_since_restore": int(self._since_restore("training_iteration")),
            "timesteps_since_restore": self._since_restore("timesteps_total"),
        }
        return {**filled, **given}

    def get_state(self) -> dict[str, float]:
        """Entries ``training_iteration`` and the totals of steps, episodes and seconds."""
        return dict(self._totals)

    def set_state(self, state: Mapping[str, float]) -> None:
        """Take back what `get_state` gave; since then nothing has been counted."""
        self._totals = dict(state)
        self._restored = dict(self._totals)

    def _since_restore(self, name: str) -> float:
        return self._totals[name] - self._restored[name]


@runtime_checkable
class ResultLogger(Protocol):
    """The least that a logger must have."""

    def on_result(self, result: dict[str, Any]) -> object:
        """Take one complete result; what is changed in it changes nothing else."""


LoggerCreator = Callable[[dict[str, Any]], ResultLogger]


class ResultLog:
    """Makes the logger, if any, and hands it results; TrainableError for what is no logger."""

    def __init__(self, create: LoggerCreator | None, config: Mapping[str, Any]) -> None:
        self.create = create
        self._logger: Any = None if create is None else create(copy.deepcopy(dict(config)))
        if create is not None and not isinstance(self._logger, ResultLogger):
            raise TrainableError(
                f"logger_creator returned {shorten(self._logger)}; expected an object with "
                "on_result(result), and if it likes logdir, flush() and close()"
            )

    @property
    def folder(self) -> Path | None:
        """The logger's own, if it has one."""
        logdir = getattr(self._logger, "logdir", None)
        return None if logdir is None else Path(logdir).resolve()

    def add(self, result: Mapping[str, Any]) -> None:
        """Hand one complete result to the logger, as a copy."""
        if self._logger is not None:
            self._logger.on_result(copy.deepcopy(dict(result)))

    def close(self) -> None:
        """Flush and close the logger; a second call does nothing."""
        logger, self._logger = self._logger, None
        for name in ("flush", "close"):
            if callable(method := getattr(logger, name, None)):
                method()
