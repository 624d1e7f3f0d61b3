"""When MLflow is given what it has of a finished sweep beside its rows: in a process of its own.

No command imports torch and MLflow for that, and nobody waits for a driver's end. `sweep sync`,
`sweep ui` and the next driver send what is still due (`sweep.driver.sync`), after a kill, or where
a server was away.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.driver import sync
from sweep.driver.session import RunResult
from sweep.errors import StorageError, SweepError, SweepLocked
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.trackers import TrackerContext

#: The variable that says when, where no option does.
VARIABLE = "SWEEP_ATTACH"
#: Seconds in which a server that is away is tried again.
PATIENCE_S = 60.0
#: The same before a page opens.
PAGE_PATIENCE_S = 20.0
#: Of a process that nobody waits for: what a person does next goes first.
NICENESS = 10
#: Processes that nobody waits for, until they have ended.
begun: "list[subprocess.Popen[bytes]]" = []


def attach(ended: RunResult, folder: Folder, when: str | None = None) -> bool:
    """Have what is due sent at the end of a driver, where the process that sends it can.

    Returns whether Ctrl-C came while it was waited for.

    Args:
        ended: how the driver ended.
        folder: the sweep's.
        when: ``wait`` for it, ``later``, by sync, ui or the next driver, or else ``beside`` this
            process, which does not wait.
    """
    when = when or os.environ.get(VARIABLE)
    may_be_due = ended.how == "finished" and folder.attachments.is_file()
    if when == "later" or not may_be_due or "mlflow" in ended.unsent:
        return False
    if when == "wait":
        return complete([folder], PATIENCE_S)
    begun[:] = [one for one in begun if one.poll() is None]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603 ours
        _command([folder], PATIENCE_S),
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
    )
    begun.append(process)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    return False


def _is_ready(where: TrackerContext) -> bool:
    """Return whether attachments are due and MLflow has the rows, without which there is no run."""
    return bool(sync.attachments_due(where)) and not sync.count_missing_events(where)["mlflow"][1]


def complete(due: Sequence[Folder], patience_s: float) -> bool:
    """Send what is due of sweeps of one root, and wait for it; Ctrl-C leaves it out.

    Returns whether that came.
    """
    try:
        if due:
            subprocess.run(_command(due, patience_s), stdin=subprocess.DEVNULL, check=False)  # noqa: S603 ours
    except KeyboardInterrupt:  # the process hears it, too, and says so
        return True
    return False


def _command(due: Sequence[Folder], patience_s: float) -> list[str]:
    words = [str(due[0].root), str(patience_s), *(folder.name for folder in due)]
    return [sys.executable, "-P", "-m", "sweep.operations.mlflow.attachments", *words]


def send(folder: Folder, say: Callable[[str], None], patience_s: float) -> list[sync.Sent]:
    """Send all that a sweep's trackers miss, and MLflow's attachments; raises as `sync.send`."""
    sent = sync.send(folder, say, patience_s)
    complete([folder] if _is_ready(sync.tracker_context(folder)) else [], patience_s)
    return sent


def send_what_is_shown(root: Path, name: str | None, say: Callable[[str], None]) -> None:
    """Send what MLflow's page of `root`, or of a sweep there, still lacks; else say why not."""
    due = []
    for folder in [Folder(root, one) for one in folders.list_sweeps(root) if name in (None, one)]:
        try:
            folder.require_plain()
            here = sync.tracker_context(folder)
            if "mlflow" not in here.spec.trackers or not here.uri_is_own:
                continue
            if sync.count_missing_events(here)["mlflow"][1]:
                sync.send(folder, say, PAGE_PATIENCE_S)
            if _is_ready(here):
                due.append(folder)
        except SweepLocked:
            continue  # its driver sends it
        except (SweepError, OSError) as error:
            why = StorageError(str(error)) if isinstance(error, OSError) else error
            say(f"{folder.name} is shown as MLflow has it: {why}")
    complete(due, PAGE_PATIENCE_S)
