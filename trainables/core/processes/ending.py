"""Child processes that die with their parents.

A child watches its parent in two ways, since each has a gap: the kernel's parent-death signal fires
when the *thread* that started the child ends, so it is set only where that is the main thread
(`starting`); a watching thread (`die_with_parent`) cannot run while C code holds the interpreter.
"""

import atexit
import contextlib
import os
import select
import signal
import socket
import struct
import sys
import threading
import weakref
from multiprocessing import connection, util
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NoReturn

#: Folder in which Linux keeps named semaphores.
_SEMAPHORES = Path("/dev/shm")  # noqa: S108 nothing is made in it


def die_with_parent(parent: int) -> None:
    """Start a thread that kills this process as soon as process `parent` is gone."""
    if os.getppid() != parent:  # it died before it could be watched
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(
        target=_wait_for_end, args=(os.pidfd_open(parent),), name="parent-watch", daemon=True
    ).start()


def kill_at_exit(process: BaseProcess) -> None:
    """Kill `process` if it still runs when the interpreter exits.

    Multiprocessing would send it SIGTERM, which such children ignore (`program`), and wait for
    ever.
    """
    _children.add(process)


def _kill_children() -> None:
    """Kill all children that were passed to `kill_at_exit` and still run."""
    for process in list(_children):
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)


#: Child processes of this process that still exist as objects.
_children: "weakref.WeakSet[BaseProcess]" = weakref.WeakSet()
util.Finalize(None, _kill_children, exitpriority=10)  # before multiprocessing waits for them


def has_ended(pid: int) -> bool:
    """Return whether a process is gone or a zombie."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(connection.wait([descriptor], 0))
    finally:
        os.close(descriptor)


def kill_family(pid: int) -> None:
    """Kill a process and all its descendants; those that are gone already are skipped."""
    import psutil  # not at the top: children that start set what ends them first

    with contextlib.suppress(psutil.Error):
        head = psutil.Process(pid)
        for process in (head, *head.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                process.kill()


def delete_semaphores(pid: int) -> None:
    """Delete the semaphores in /dev/shm that the killed process `pid` had made for loky's pools."""
    for left in _SEMAPHORES.glob(f"sem.loky-{pid}-*"):
        left.unlink(missing_ok=True)


def exit_process() -> NoReturn:
    """End this process: run exit handlers and flush, but skip the destruction of modules.

    The exit code is 0.
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _wait_for_end(pidfd: int) -> None:
    """Wait until the process of `pidfd` ends, then kill this one."""
    select.select([pidfd], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def limit_standstill(pipe: "connection.Connection[Any, Any]", seconds: float) -> None:
    """Make reads and writes on a two-way pipe raise BlockingIOError after standing still.

    A suspended process reads nothing, so writing more than fits into the pipe would block for ever.
    The other end is not affected. `seconds` is the longest time without progress.
    """
    whole = int(seconds)
    # Zero would be no limit at all.
    span = struct.pack("ll", whole, max(1, int((seconds - whole) * 1e6)))
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, span)
