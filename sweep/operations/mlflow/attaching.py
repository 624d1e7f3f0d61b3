"""Start the process that sends a finished sweep's attachments to MLflow.

A separate process avoids importing torch and MLflow in the command, and waiting for them. After a
kill or an outage, `sweep sync`, `sweep ui` and the next driver send what is missing.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.core.errors import StorageError, SweepError, SweepLocked
from sweep.driver.session import RunResult
from sweep.driver.tracking import sync
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.trackers import TrackerContext

#: Environment variable with the default of the option ``--attach``.
VARIABLE = "SWEEP_ATTACH"
#: Seconds during which an unreachable server is tried again.
PATIENCE_S = 60.0
#: Seconds during which an unreachable server is tried again before a page opens.
PAGE_PATIENCE_S = 20.0
#: Seconds during which the file of a root is made before its first page opens. A release of MLflow
#: whose tables are not shipped takes many seconds for them, and without them there is no page.
FIRST_PATIENCE_S = 120.0
#: Niceness of a background process, so that it does not slow down the user's next command.
NICENESS = 10
#: Background processes that may still run.
background_processes: "list[subprocess.Popen[bytes]]" = []


def attach(result: RunResult, folder: Folder, when: str | None = None) -> bool:
    """Start the process that sends a finished sweep's report, card and models to MLflow.

    `when` is ``wait`` (wait for the process), ``beside`` (let it run in the background) or
    ``later`` (start none); None takes the environment variable `VARIABLE`, or else ``beside``.
    Nothing is started if the sweep has not finished or wants no attachments, or if MLflow lacks
    rows. A background process is added to `background_processes`. Returns True if Ctrl-C
    interrupted the wait.
    """
    when = when or os.environ.get(VARIABLE)
    may_be_due = result.outcome == "finished" and folder.attachments.is_file()
    if when == "later" or not may_be_due or "mlflow" in result.unsent:
        return False
    if when == "wait":
        return complete([folder], PATIENCE_S)
    background_processes[:] = [one for one in background_processes if one.poll() is None]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603 ours
        _command([folder], PATIENCE_S),
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
    )
    background_processes.append(process)
    os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
    return False


def _is_ready(context: TrackerContext) -> bool:
    """Return true if a sweep's attachments are not sent yet, and MLflow has all its rows."""
    return (
        bool(sync.attachments_due(context)) and not sync.count_missing_events(context)["mlflow"][1]
    )


def complete(due: Sequence[Folder], patience_s: float) -> bool:
    """Send the attachments of sweeps of one root in a process, and wait for it.

    Nothing is started if `due` is empty. `patience_s` is how long failures are retried for each
    sweep, in seconds; the process reports those that remain. Returns True after a Ctrl-C.
    """
    try:
        if due:
            subprocess.run(_command(due, patience_s), stdin=subprocess.DEVNULL, check=False)  # noqa: S603 ours
    except KeyboardInterrupt:  # the child process gets the signal, too, and reports it
        return True
    return False


def _command(due: Sequence[Folder], patience_s: float) -> list[str]:
    """Return the command line of the process that sends the attachments of the sweeps in `due`.

    There is at least one, and all are in one root.
    """
    words = [str(due[0].root), str(patience_s), *(folder.name for folder in due)]
    return [sys.executable, "-P", "-m", "sweep.operations.mlflow.attachments", *words]


def send(folder: Folder, say: Callable[[str], None], patience_s: float) -> list[sync.Sent]:
    """Send all rows that a sweep's trackers lack, then the attachments, and wait for both.

    Attachments are not sent if MLflow still lacks rows. `say` is called with messages for the user.
    `patience_s` is the longest time to wait for each of the two, in seconds. Returns the number of
    events that each tracker got and still lacks. Raises SweepLocked if a driver has the sweep.
    """
    sent = sync.send(folder, say, patience_s)
    complete([folder] if _is_ready(sync.tracker_context(folder)) else [], patience_s)
    return sent


def send_for_page(root: Path, name: str | None, say: Callable[[str], None]) -> None:
    """Send the rows and attachments that MLflow lacks of the sweeps in `root`, for its page.

    With a `name`, only of that sweep. A failure is reported to `say`, a callback for messages, and
    does not end the others. A sweep with a driver is skipped, since the driver sends its rows. So
    is one that does not use MLflow, or whose server another user chose.
    """
    due = []
    for folder in [Folder(root, one) for one in folders.list_sweeps(root) if name in (None, one)]:
        try:
            folder.require_plain()
            context = sync.tracker_context(folder)
            if "mlflow" not in context.spec.trackers or not context.uri_is_own:
                continue
            if sync.count_missing_events(context)["mlflow"][1]:
                is_first = context.tracking_uri is None and not folder.mlflow.exists()
                sync.send(folder, say, FIRST_PATIENCE_S if is_first else PAGE_PATIENCE_S)
            if _is_ready(context):
                due.append(folder)
        except SweepLocked:
            continue  # its driver sends the rest
        except (SweepError, OSError) as error:
            why = StorageError(str(error)) if isinstance(error, OSError) else error
            todo = f"send them with `sweep sync {folder.in_commands}`"
            say(f"MLflow may lack results of {folder.name}: {why}; {todo}")
    complete(due, PAGE_PATIENCE_S)
