"""Log of the data that flow through a trainer: each subject is logged once, as a summary.

Shapes, bounds and means show whether a pipeline is right. They are logged at INFO when the data
first appear, and at DEBUG again every `PERIOD` rounds. Only one process of a trainer logs them.
"""

import contextlib
import importlib.util
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from pydantic import Field

from trainables.core.settings import Section

#: Name of the package's logger.
PACKAGE = "trainables"
#: Number of rounds after which everything is logged again at DEBUG.
PERIOD = 100

logger = logging.getLogger(__name__)


class LogConfig(Section):
    """Settings of the log while training."""

    log_level: Literal["DEBUG", "INFO", "WARN", "ERROR"] = Field(
        default="INFO",
        description="Level of the package's logger. At INFO, a description of the data is logged "
        "once; at DEBUG, again every 100 rounds of sampling or learning.",
    )
    log_sys_usage: bool = Field(
        default=True,
        description="Add the machine's use of CPU and memory, in percent, to each result.",
    )


def set_level(config: LogConfig) -> None:
    """Set the level of the package's logger in this process; adds no handler."""
    logging.getLogger(PACKAGE).setLevel(config.log_level)


@contextlib.contextmanager
def use_level(config: LogConfig) -> Iterator[None]:
    """Set the level of the package's logger inside the block, and restore it afterwards."""
    package = logging.getLogger(PACKAGE)
    before = package.level
    set_level(config)
    try:
        yield
    finally:
        package.setLevel(before)


def is_shown() -> bool:
    """Return whether the application has a handler for the package's log records."""
    return logging.getLogger(PACKAGE).hasHandlers()


def show(process: str) -> None:
    """Write the package's log records to standard error, each prefixed with the process's name.

    Adds a handler to the package's logger.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(levelname)s {process}: %(message)s"))
    logging.getLogger(PACKAGE).addHandler(handler)


class OneTimeLog:
    """A log of what a process handles: of each subject, only the first value is logged.

    Args:
        subject: name of the process, the prefix of every line.
        is_on: False to log nothing.
    """

    def __init__(self, subject: str, is_on: bool = True) -> None:
        self._who = subject
        self._on = is_on
        self._logged: set[str] = set()
        self._rounds = 0

    def begin_round(self) -> bool:
        """Count one round of sampling or learning; return True if all subjects will be logged anew.

        That is so in every `PERIOD`-th round, at level DEBUG.
        """
        self._rounds += 1
        again = self._rounds % PERIOD == 0 and logger.isEnabledFor(logging.DEBUG)
        if again:
            self._logged.clear()
        return again

    def __call__(self, subject: str, value: Any) -> None:
        """Log ``subject: summary of value``, unless a value of `subject` was logged already.

        The level is INFO in the first `PERIOD` rounds, then DEBUG. A callable `value` is called for
        the value, only if the line is written.
        """
        if not self._on or subject in self._logged:
            return
        self._logged.add(subject)
        level = logging.INFO if self._rounds < PERIOD else logging.DEBUG
        if logger.isEnabledFor(level):
            shown = value() if callable(value) else value
            logger.log(level, "%s: %s: %s", self._who, subject, summary(shown))


def summary(value: Any) -> str:
    """Return the dtype, shape, bounds and mean of an array as text.

    Mappings, dataclasses and named tuples are summarised entry by entry. Texts, single numbers and
    lists of texts are shown as they are, and anything else by its class's name.
    """
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if is_dataclass(value) and not isinstance(value, type):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {summary(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(value)
    try:
        array: Any = np.asarray(value)
        shape = f"{array.dtype} {array.shape}"
        if array.size == 0:
            return shape
        return f"{shape} min {array.min():.5g} max {array.max():.5g} mean {array.mean():.5g}"
    except (TypeError, ValueError):
        return type(value).__name__


def system_usage(config: LogConfig) -> dict[str, Any]:
    """Return ``{"perf": ...}``: CPU and memory use of the machine in percent, at most 1 s old.

    Its keys are ``cpu_util_percent`` and ``ram_util_percent``. Returns an empty dict if the setting
    is off or psutil is not installed.
    """
    if not config.log_sys_usage:
        return {}
    used = _usage(int(time.monotonic()))
    return {"perf": dict(used)} if used else {}


@lru_cache(maxsize=1)
def _usage(_second: int) -> dict[str, float]:
    """Measure ``cpu_util_percent`` and ``ram_util_percent`` of the machine; cached for a second.

    A measurement takes as long as a checkpoint of a short iteration. Returns an empty dict if
    psutil is not installed, as on a machine that only tests a GPU.
    """
    if importlib.util.find_spec("psutil") is None:
        return {}
    import psutil

    cpu, ram = psutil.cpu_percent(interval=None), psutil.virtual_memory().percent
    return {"cpu_util_percent": cpu, "ram_util_percent": ram}
