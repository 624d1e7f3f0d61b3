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

#: Every place, in the order in which one slice passes them.
PLACES = (
    "decided",
    "submitted",
    "stepping",
    "checkpoint half written",
    "checkpoint whole",
    "recorded",
    "published",
)
#: What a slice passes after "checkpoint whole" where checkpoints lie in object storage.
OF_A_STORE = ("segments sent", "checkpoint sent")
#: What a driver passes for each request of a person.
OF_A_REQUEST = ("asked", "answered")
#: What an upgrade of a ledger's tables passes; at the second nothing is committed yet.
OF_AN_UPGRADE = ("ledger copied", "ledger upgraded")

#: What is passed while MLflow is given the report and a model of a finished sweep.
OF_ATTACHMENTS = (
    "report attached",
    "model begun",
    "model sent",
    "model whole",
    "model linked",
    "model attached",
    "attached",
)


def reach(place: str) -> None:
    """Say that the process is at `place`; it may not return."""
    wanted = os.environ.get("SWEEP_FAILPOINT")
    if wanted is None:
        return
    name, count, victim = wanted.split(":")
    if name == place and _times(Path(os.environ["SWEEP_FAILPOINT_FILE"])) == int(count):
        os.kill(_VICTIMS[victim](), signal.SIGKILL)


def driver() -> int:
    """Return the process that a worker, or a trial's process below one, works for.

    Between them stand a reaper's two processes, and a worker where a trial has its own process.
    """
    import psutil

    reapers = [process for process in psutil.Process().parents() if _reaps(process)]
    return int(reapers[-1].ppid()) if reapers else os.getppid()


def _worker() -> int:
    import psutil

    return next(process.pid for process in _workers(psutil.Process()))


def _workers(process: "psutil.Process") -> "Iterator[psutil.Process]":
    for child in process.children():
        if _reaps(child):
            yield from _workers(child)
        elif "resource_tracker" not in " ".join(child.cmdline()):
            yield child


def _reaps(process: "psutil.Process") -> bool:
    return any(word.endswith("processes/reaper.py") for word in process.cmdline())


_VICTIMS = {"self": os.getpid, "parent": driver, "worker": _worker}


def _times(counter: Path) -> int:
    with counter.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(b".")
        file.flush()
        return file.tell()
