"""Processes that run what others have written, and leave no process behind.

They are started by a reaper (`reaping`): it kills what stood below one of them when that has ended,
and all of them when their parent is gone, however it ended.
"""

import os
from collections.abc import Mapping, Sequence
from multiprocessing import util
from typing import Any

from joblib.externals.loky.backend import context, popen_loky_posix

from trainables.core.processes import reaping
from trainables.core.processes.starting import Process, booted, launching


class _Popen(popen_loky_posix.Popen):  # type: ignore[misc]  # loky has no types
    """Loky's, where the reaper tells how the process ended."""

    __module__ = popen_loky_posix.__name__  # which the process runs
    returncode: int | None

    def _launch(self, process_obj: Any) -> None:
        with launching(self._start):
            super()._launch(process_obj)
        # Loky's own one is held open by whatever the process has started.
        self.sentinel = self._command.told

    def _start(
        self, command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None
    ) -> int:
        self._command = reaping.Command(booted(command), keep, {**os.environ, **(env or {})})
        util.Finalize(self, os.close, (self._command.told,))
        return self._command.pid

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return how it ended; None while it runs, unless `flag` is 0, which waits."""
        if self.returncode is None:
            self.returncode = self._command.exitcode(waits=flag == 0)
        return self.returncode


class _Supervised(Process):
    """A process that leaves none behind."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 multiprocessing's name
        return _Popen(process_obj)


_context = context.LokyContext()
_context.Process = _Supervised


def supervised_context() -> Any:
    """Return the multiprocessing context whose processes leave none behind."""
    reaping.start()  # while the caller prepares the first one
    return _context
