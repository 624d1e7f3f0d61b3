"""Processes that a test starts, and that end with it however it ends."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[2]

#: Those that the running test, and fixtures around several tests, have started.
_STARTED: "list[subprocess.Popen[Any]]" = []


def start(command: list[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a process that ends with the test, or with the fixture's scope, that starts it."""
    process = subprocess.Popen(command, **options)
    _STARTED.append(process)
    return process


def run_python(
    code: str, *arguments: object, cwd: Path = _REPOSITORY, variables: dict[str, str] | None = None
) -> str:
    """Run Python code in a process of its own that exits with 0; return its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(_REPOSITORY), **(variables or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
