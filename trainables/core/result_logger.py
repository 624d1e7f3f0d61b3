"""A person's own logger of results, as the classic trainers' ``logger_creator`` makes one.

    def logger_creator(config):                    # the trial's settings
        return UnifiedLogger(config, "my/folder")  # anything with on_result(result)

What it returns is told every complete result. Where it has a ``logdir``, that is the trial's
folder; where it has ``flush`` and ``close``, they are called when the trainable stops. It is no
part of a checkpoint.
"""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trainables.errors import TrainableError, shorten


@runtime_checkable
class ResultLogger(Protocol):
    """The least that a logger must have."""

    def on_result(self, result: dict[str, Any]) -> object:
        """Take one complete result; what is changed in it changes nothing else."""


LoggerCreator = Callable[[dict[str, Any]], ResultLogger]


class ResultLog:
    """Makes the logger and tells it results; without a creator it does nothing.

    Args:
        create: given the settings, a copy; None: no logger.
        config: the settings.

    Raises:
        TrainableError: what was made is no logger.
    """

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
        """Tell one complete result."""
        if self._logger is not None:
            self._logger.on_result(copy.deepcopy(dict(result)))

    def close(self) -> None:
        """Let the logger write what it holds, and let go of it; a second call does nothing."""
        logger, self._logger = self._logger, None
        for name in ("flush", "close"):
            if callable(method := getattr(logger, name, None)):
                method()
