"""The MLflow page of a root's sweeps: a server of MLflow's own, for as long as it is wanted."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import FrameType
from urllib.parse import quote, urlencode

from sweep.errors import BadConfig, UsageError
from sweep.ledger import tables
from sweep.ledger.folder import Folder
from sweep.trackers._shared.mlflow_content import key
from sweep.trackers._shared.mlflow_store import ENVIRONMENT, PARENT, store_url

HOST = "127.0.0.1"
#: The page needs none of the server's background jobs, which are ten processes, and a person none
#: of its libraries' warnings.
SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}
#: Of the page's two modes the one that is about runs.
MODE = {"workflowType": "machine_learning"}

_QUIET = ("--uvicorn-opts", "--log-level warning")


class Page:
    """The page of all sweeps in `root`, or of `name`; UsageError if nothing is recorded there."""

    def __init__(self, root: Path, name: str | None, port: int) -> None:
        self._folder = Folder(root, name or "")
        self._name = name
        self._port = port
        if not self._folder.mlflow.is_file():
            raise UsageError(
                f"ui: no runs are recorded in {root} yet; start a sweep with `sweep run quickstart`"
            )
        _check_free(port)

    @property
    def url(self) -> str:
        """Of the sweep's trials, compared, best first; without a name, of all experiments.

        MLflow's page begins in a mode for language models unless its address says otherwise. It
        hides runs below their parent while it sorts by date.
        """
        page = f"http://{HOST}:{self._port}/#/experiments"
        # The file itself is read, since MLflow takes seconds to import.
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(tables.reading(self._folder.mlflow)) as database,
        ):
            query = "SELECT experiment_id FROM experiments WHERE name = ?"
            for (number,) in database.execute(query, (self._name,)).fetchmany(1):
                wanted = {**MODE, "compareRunsMode": "CHART", **_trials_of(database, number)}
                return f"{page}/{number}/runs?{urlencode(wanted, quote_via=quote)}"
        return f"{page}?{urlencode(MODE)}"

    def serve(self) -> int:
        """Run the server until it ends, or until Ctrl-C; returns the exit code."""
        guarded = [sys.executable, "-m", "sweep.operations.page_server", str(os.getpid())]
        where = ["--backend-store-uri", store_url(self._folder)]
        address = ["--host", HOST, "--port", str(self._port), "--workers", "1", *_QUIET]
        command = [*guarded, sys.executable, "-m", "mlflow", "server", *where, *address]
        environment = {**ENVIRONMENT, **SERVER_ENVIRONMENT, **os.environ}
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        # A group of its own: Ctrl-C reaches this process alone, which ends the server quietly.
        server = subprocess.Popen(command, env=environment, start_new_session=True)  # noqa: S603 ours
        try:
            return server.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            _end(server)


def _trials_of(database: sqlite3.Connection, experiment: int) -> dict[str, str]:
    """What makes the page show the trials of the newest sweep of an experiment, best first.

    Nothing while it has no run.
    """
    newest = database.execute(_SWEEPS_RUN, (experiment,)).fetchone()
    if newest is None:
        return {}
    run, metric, mode = newest
    return {
        "searchFilter": f"tags.`{PARENT}` = '{run}'",
        "orderByKey": f"metrics.`{key(str(metric))}`",
        "orderByAsc": "true" if mode == "min" else "false",
    }


#: The tag ``sweep.metric`` has the sweep's own run alone.
_SWEEPS_RUN = """
SELECT runs.run_uuid, metric.value, mode.value FROM runs
JOIN tags AS metric ON metric.run_uuid = runs.run_uuid AND metric.key = 'sweep.metric'
JOIN tags AS mode ON mode.run_uuid = runs.run_uuid AND mode.key = 'sweep.mode'
WHERE runs.experiment_id = ? AND runs.lifecycle_stage = 'active'
ORDER BY runs.start_time DESC LIMIT 1
"""


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            problem = f"{port}: {error.strerror}"
            raise BadConfig("--port", port, "a free port", problem=problem) from error


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _end(server: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    server.wait()
