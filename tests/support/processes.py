"""Processes that a test starts, and that end with it however it ends."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

#: Those that the running test, and fixtures around several tests, have started.
_STARTED: "list[subprocess.Popen[Any]]" = []


def start(command: list[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that ends with the test, or with the fixture's scope, that starts it."""
    process = subprocess.Popen(command, **options)
    _STARTED.append(process)
    return process


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """End, and close the pipes of, all that was started meanwhile.

    A process that a failing test leaves would otherwise fail a later one: it is reported when it
    is collected, as an error of the test that happens to run then.
    """
    before = len(_STARTED)
    yield
    while len(_STARTED) > before:
        _end(_STARTED.pop())


def _end(process: "subprocess.Popen[Any]") -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process.pid) == process.pid:  # it leads a group: that of its workers
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):  # what is still to be written has no reader
                pipe.close()
