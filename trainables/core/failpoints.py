"""Places at which a test can end a process, so that crashes land exactly where they should.

``SWEEP_FAILPOINT=name:count:victim`` kills with SIGKILL the `count`-th time that any process
started with this environment reaches the place called `name`. The victim is the process itself
(``self``), the driver above it (``parent``), or one ``worker`` below it. The count stands in the
file that ``SWEEP_FAILPOINT_FILE`` names, so it spans processes and fires once. Without the variable
a place costs one dictionary look-up.
"""

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

#: All places that one slice passes, in this order.
PLACES = (
    "decided",
    "submitted",
    "stepping",
    "checkpoint half written",
    "checkpoint whole",
    "recorded",
    "published",
)
#: Places that a driver passes for each request of a user.
REQUEST_PLACES = ("asked", "answered")
#: Places that an upgrade of the ledger's tables passes; nothing is committed at the second yet.
UPGRADE_PLACES = ("ledger copied", "ledger upgraded")

#: Places passed while a finished sweep's report and model are uploaded to MLflow.
ATTACHMENT_PLACES = (
    "report attached",
    "model begun",
    "model sent",
    "model whole",
    "model linked",
    "model attached",
    "attached",
)


def reach(place: str) -> None:
    """Kill a process here if a test has set the failpoint `place`; else do nothing.

    The environment variable ``SWEEP_FAILPOINT`` holds ``place:count:victim``. At the count-th call
    with this place, the victim gets SIGKILL: this process (``self``), its driver (``parent``), or a
    ``worker`` below this process. Calls of all processes are counted in ``SWEEP_FAILPOINT_FILE``.
    """
    wanted = os.environ.get("SWEEP_FAILPOINT")
    if wanted is None:
        return
    name, count, victim = wanted.split(":")
    if name == place and count_arrival(Path(os.environ["SWEEP_FAILPOINT_FILE"])) == int(count):
        os.kill(_VICTIMS[victim](), signal.SIGKILL)


def driver_pid() -> int:
    """Return the pid of the driver's process, above this worker or this child process of a trial.

    Between the two processes are a reaper's two processes, and a worker if the trial has a process
    of its own. If no reaper is above this process, it is the parent's pid.
    """
    import psutil

    reapers = [process for process in psutil.Process().parents() if _is_reaper(process)]
    return int(reapers[-1].ppid()) if reapers else os.getppid()


def _worker_pid() -> int:
    """Return the pid of the first worker process below this process.

    Raises StopIteration if there is none.
    """
    import psutil

    return next(process.pid for process in _workers(psutil.Process()))


def _workers(process: "psutil.Process") -> "Iterator[psutil.Process]":
    """Yield the worker processes below `process`, skipping reapers and resource trackers."""
    for child in process.children():
        if _is_reaper(child):
            yield from _workers(child)
        elif "resource_tracker" not in " ".join(child.cmdline()):
            yield child


def _is_reaper(process: "psutil.Process") -> bool:
    """Return whether `process` is a reaper."""
    return any(word.endswith("processes/reaper.py") for word in process.cmdline())


#: Word in a failpoint → function that returns the pid of the process to kill.
_VICTIMS = {"self": os.getpid, "parent": driver_pid, "worker": _worker_pid}


def count_arrival(counter: Path) -> int:
    """Append one byte to the file `counter`, under a lock; return the file's new length.

    The length is the number of times that any process has reached the failpoint.
    """
    with counter.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b".")
        file.flush()
        return file.tell()
