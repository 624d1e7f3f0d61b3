"""Processes that run other people's code, and leave no process behind.

A reaper (`reaping`) starts them. It kills their descendants when they end, and all of them when the
parent is gone, for whatever reason.
"""

import os
from collections.abc import Mapping, Sequence
from multiprocessing import util
from typing import Any

from joblib.externals.loky.backend import context, popen_loky_posix

from trainables.core.processes import reaping
from trainables.core.processes.starting import Process, boot_command, launch_with


class _Popen(popen_loky_posix.Popen):  # type: ignore[misc]  # loky has no types
    """Loky's Popen, but started by the reaper, which also reports the exit code."""

    __module__ = popen_loky_posix.__name__  # which the process runs
    returncode: int | None
    """Exit code; None until `poll` has found that the process has ended."""

    def _launch(self, process_obj: Any) -> None:
        """Start `process_obj` as loky's Popen does, but through the reaper."""
        with launch_with(self._start):
            super()._launch(process_obj)
        # Loky's own one is held open by whatever the process has started.
        self.sentinel = self._command.end_handle

    def _start(
        self, command: Sequence[str], keep: Sequence[int], env: Mapping[str, str] | None
    ) -> int:
        """Start `command` through the reaper with the files `keep`; returns its pid."""
        self._command = reaping.Command(boot_command(command), keep, {**os.environ, **(env or {})})
        util.Finalize(self, os.close, (self._command.end_handle,))
        return self._command.pid

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit code; None while the process runs, unless `flag` is 0, which waits."""
        if self.returncode is None:
            self.returncode = self._command.exitcode(waits=flag == 0)
        return self.returncode


class _Supervised(Process):
    """A process whose descendants are killed when it ends."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:  # noqa: N802 multiprocessing's name
        """Start the process through the reaper, and return multiprocessing's handle of it."""
        return _Popen(process_obj)


_context = context.LokyContext()
_context.Process = _Supervised


def supervised_context() -> Any:
    """Return the multiprocessing context for workers, whose descendants are killed when they end.

    Starts the reaper of this process, if it does not run.
    """
    reaping.start()  # while the caller prepares the first one
    return _context
