"""The standard keys of a result, the counters behind them, and a user's own result logger.

    def logger_creator(config):                    # the trial's settings
        return UnifiedLogger(config, "my/folder")  # anything with on_result(result)

The logger gets every complete result. If it has a ``logdir``, that is the trial's folder; if it has
``flush`` and ``close``, they are called when the trainable stops. It is not part of a checkpoint.
Times are in seconds.
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

#: First parts of the volatile result keys that only trainers add: timers and machine use.
TRAINERS_OWN = frozenset({"timers", "sampler_perf", "connector_metrics", "perf"})
#: Volatile keys that every result has.
_OF_EVERY_RESULT = (
    *("time_this_iter_s", "time_total_s", "time_since_restore", "timesteps_since_restore"),
    *("iterations_since_restore", "date", "timestamp", "hostname", "node_ip", "pid"),
)
#: First parts of the result keys that differ between two equal runs: times, dates, pids, hosts.
VOLATILE_KEYS = TRAINERS_OWN.union(_OF_EVERY_RESULT)
#: Keys that identify the trial and the moment of a result; trials are not compared by them.
WHOSE = frozenset(
    {
        *("date", "timestamp", "hostname", "node_ip", "pid"),
        *("trial_id", "experiment_tag", "config", "done"),
    }
)
#: Keys that every result has: identity, times and counters.
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


#: Member of a collection of names that stands for all names.
ANY_NAME = "*"


def has_name(names: Collection[str], name: str) -> bool:
    """Return whether `names` contains the metric `name`, a prefix of it (``info/``) or any name."""
    if name in names or ANY_NAME in names:
        return True
    return any(one.endswith("/") and name.startswith(one) for one in names)


def named_result(value: Any, metric: str) -> Any:
    """Return the number with which a function ended as a result: ``{metric: number}``.

    The number may be numpy's or torch's; the name is ``value`` if `metric` is empty. Returns
    anything else unchanged.
    """
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        value = item()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {metric or "value": value} if number else value


def _count(key: str, value: Any) -> float:
    """Return the value of a counter in a result as a plain number, also one of numpy or torch.

    Raises TrainableError, which names the `key`, for anything else.
    """
    if getattr(value, "shape", None) == () and callable(item := getattr(value, "item", None)):
        value = item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TrainableError(f"the result's {key} is {shorten(value)}; expected a number")
    return value


#: Return this machine's host name; cached.
_hostname = functools.cache(socket.gethostname)


@functools.lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Return the local time of a Unix timestamp as ``YYYY-mm-dd_HH-MM-SS``; cached."""
    return time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(second))


class Counters:
    """Totals of iterations, environment steps, episodes and training time since the trial began.

    They are saved with checkpoints, so they continue after a restore.
    """

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
        """Number of finished iterations."""
        return int(self._totals["training_iteration"])

    def complete(
        self,
        result: Mapping[str, Any],
        elapsed: float,
        identity: Mapping[str, Any],
        is_new: bool = True,
    ) -> dict[str, Any]:
        """Count one more iteration, and return its result with the keys that every result has.

        The totals of environment steps and episodes are taken from `result`, or grow by its
        ``*_this_iter``.

        Args:
            result: the dict that `step` returned; its keys take precedence, except
                ``training_iteration``.
            elapsed: duration of the iteration, seconds.
            identity: trial id and other keys about the trial, to be included.
            is_new: False if `result` repeats that of the previous iteration; then only time is
                counted.

        Raises:
            TrainableError: a count of steps or episodes is not a number.
        """
        given, totals = dict(result), self._totals
        totals["training_iteration"] += int(is_new)
        totals["time_total_s"] += elapsed
        for kind in ("timesteps", "episodes"):
            total, this_iter = f"{kind}_total", f"{kind}_this_iter"
            for key in (total, this_iter):
                if given.get(key) is not None:
                    given[key] = _count(key, given[key])
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
            **identity,
            "time_since_restore": self._since_restore("time_total_s"),
            "iterations_since_restore": int(self._since_restore("training_iteration")),
            "timesteps_since_restore": self._since_restore("timesteps_total"),
        }
        # Rows are told apart by the iteration, so a program's own count must not replace it.
        return {**filled, **given, "training_iteration": self.iteration}

    def get_state(self) -> dict[str, float]:
        """Return the totals by name, such as ``timesteps_total``, as `set_state` takes them.

        The others are ``training_iteration``, ``episodes_total`` and ``time_total_s`` (seconds).
        """
        return dict(self._totals)

    def set_state(self, state: Mapping[str, float]) -> None:
        """Restore totals that `get_state` returned; ``*_since_restore`` counts begin at 0 again."""
        self._totals = dict(state)
        self._restored = dict(self._totals)

    def _since_restore(self, name: str) -> float:
        """Return how much the total `name` has grown since the last restore."""
        return self._totals[name] - self._restored[name]


@runtime_checkable
class ResultLogger(Protocol):
    """The protocol of a logger that a user's `logger_creator` returns."""

    def on_result(self, result: dict[str, Any]) -> object:
        """Receive one complete result, as a copy that the logger may change."""


#: A function that makes a logger from the trial's settings.
LoggerCreator = Callable[[dict[str, Any]], ResultLogger]


class ResultLog:
    """Makes the user's logger, if there is one, and passes results to it.

    Args:
        create: the user's function, or None for no logger.
        config: the trial's settings.

    Raises:
        TrainableError: `create` returned an object without `on_result`.
    """

    def __init__(self, create: LoggerCreator | None, config: Mapping[str, Any]) -> None:
        self.create = create
        self._logger: Any = None if create is None else create(copy.deepcopy(dict(config)))
        if create is not None and not isinstance(self._logger, ResultLogger):
            raise TrainableError(
                f"logger_creator returned {shorten(self._logger)}; expected an object with "
                "on_result(result), and optionally logdir, flush() and close()"
            )

    @property
    def folder(self) -> Path | None:
        """The logger's ``logdir`` as an absolute path, or None if it has none."""
        logdir = getattr(self._logger, "logdir", None)
        return None if logdir is None else Path(logdir).resolve()

    def add(self, result: Mapping[str, Any]) -> None:
        """Pass a copy of one complete result to the logger, if there is one that is not closed."""
        if self._logger is not None:
            self._logger.on_result(copy.deepcopy(dict(result)))

    def close(self) -> None:
        """Flush and close the logger; a second call does nothing."""
        logger, self._logger = self._logger, None
        for name in ("flush", "close"):
            if callable(method := getattr(logger, name, None)):
                method()
