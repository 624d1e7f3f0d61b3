"""Serve the MLflow page of a root's sweeps with MLflow's own server."""

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from urllib.parse import quote, urlencode
from urllib.request import urlopen

from sweep.core.errors import BadConfig, UsageError
from sweep.ledger import tables
from sweep.ledger.folder import Folder
from sweep.trackers._shared.mlflow_content import ORDER
from sweep.trackers._shared.mlflow_store import ENVIRONMENT, PARENT, store_url
from sweep.trackers._shared.mlflow_view import MODE, TAG, address

#: Address at which MLflow's page listens: this machine only.
HOST = "127.0.0.1"
#: Address of all interfaces → the loopback address for a browser on this machine.
EVERYWHERE = {"0.0.0.0": HOST, "::": "[::1]"}  # noqa: S104 compared with, not bound to
#: Environment variables of the server; its libraries' warnings do not help the user.
SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}


class Page:
    """MLflow's page for the sweeps in `root`, or for the sweep `name`, and its server.

    It shows the root's MLflow file. Creating it starts no server; it raises UsageError if that file
    does not exist, BadConfig if the address is taken or is not one of this machine.
    """

    def __init__(self, root: Path, name: str | None, port: int, host: str = HOST) -> None:
        self._folder = Folder(root, name or "")
        self._name = name
        self._host, self._port = host, port
        if not self._folder.mlflow.is_file():
            raise UsageError(
                f"ui: no runs are recorded in {root} yet; start a sweep with `sweep run quickstart`"
            )
        _check_free(host, port)

    @property
    def server(self) -> str:
        """URL of the server for a browser on this machine."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{EVERYWHERE.get(self._host, host)}:{self._port}"

    @property
    def url(self) -> str:
        """URL of the sweep's trials, best first; of all experiments if MLflow has no such sweep.

        The URL selects the mode for training runs, since MLflow's default is for language models.
        """
        with contextlib.suppress(sqlite3.Error), self._database() as database:
            if (number := self._experiment(database)) is not None:
                newest = database.execute(_VIEWED, (number,)).fetchone()
                if newest is not None:
                    return address(self.server, number, newest[0])
                more = _trials_of(database, number)
                asked = f"&{urlencode(more, quote_via=quote)}" if more else ""
                return f"{address(self.server, number, None)}{asked}"
        return f"{self.server}/#/experiments?{urlencode(MODE)}"

    @property
    def trials(self) -> int:
        """Number of trials on the sweep's page; 0 without a sweep, or if MLflow has none of it."""
        with contextlib.suppress(sqlite3.Error), self._database() as database:
            number = self._experiment(database)
            newest = database.execute(_SWEEPS_RUN, (number,)).fetchone()
            if newest is not None:
                return int(database.execute(_COUNTED, newest).fetchone()[0])
        return 0

    def serve(self, show: bool = False) -> int:
        """Run the server in a child process until it ends or Ctrl-C; return the exit code.

        It is 0 after Ctrl-C. With `show`, a browser opens the page as soon as the server answers.
        Installs handlers by which SIGTERM and SIGHUP end the server, and this process with
        SystemExit.
        """
        where = [str(os.getpid()), store_url(self._folder), self._host, str(self._port)]
        command = [sys.executable, "-m", "sweep.operations.mlflow.page_server", *where]
        environment = {**ENVIRONMENT, **SERVER_ENVIRONMENT, **os.environ}
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _exit_on_signal)
        # In a session of its own, so that Ctrl-C only reaches this process, which ends the server.
        server = subprocess.Popen(command, env=environment, start_new_session=True)  # noqa: S603 ours
        try:
            if show and self._wait_until_ready(server):
                webbrowser.open(self.url)
            return server.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            _end(server)

    def _wait_until_ready(self, server: "subprocess.Popen[bytes]") -> bool:
        """Wait until the server answers; return False if its process exits before that."""
        while server.poll() is None:
            with contextlib.suppress(OSError), urlopen(f"{self.server}/health", timeout=5):  # noqa: S310 http
                return True
            time.sleep(0.1)
        return False

    def _experiment(self, database: sqlite3.Connection) -> int | None:
        """Return the id of the MLflow experiment with the sweep's name.

        Returns None if there is none, or if the page is not for one sweep.
        """
        query = "SELECT experiment_id FROM experiments WHERE name = ?"
        found = database.execute(query, (self._name,)).fetchone()
        return int(found[0]) if found else None

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Yield a read-only connection to MLflow's SQLite file; importing MLflow takes seconds."""
        with contextlib.closing(tables.connect_read_only(self._folder.mlflow)) as database:
            yield database


def may_show() -> bool:
    """Return true if the user probably has a browser: a display, and standard output a terminal."""
    has_display = sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    return bool(has_display) and sys.stdout.isatty()


#: Query for the id of an experiment's newest sweep that has a saved view.
_VIEWED = f"""
SELECT sweep.value FROM tags AS sweep
JOIN runs ON runs.run_uuid = sweep.run_uuid
JOIN tags AS mode ON mode.run_uuid = sweep.run_uuid AND mode.key = 'sweep.mode'
JOIN experiment_tags AS view ON view.experiment_id = runs.experiment_id
  AND view.key = '{TAG}' || sweep.value
WHERE sweep.key = 'sweep.id' AND runs.experiment_id = ? AND runs.lifecycle_stage = 'active'
ORDER BY runs.start_time DESC LIMIT 1
"""  # noqa: S608 ours


def _trials_of(database: sqlite3.Connection, experiment: int) -> dict[str, str]:
    """Return the URL parameters that show the newest sweep's trials, best first; {} without a run.

    They are needed without a saved view: MLflow hides child runs while it sorts by date.
    """
    newest = database.execute(_SWEEPS_RUN, (experiment,)).fetchone()
    if newest is None:
        return {}
    return {
        "searchFilter": f"tags.`{PARENT}` = '{newest[0]}'",
        "orderByKey": f"tags.`{ORDER}`",
        "orderByAsc": "true",
    }


#: Query for the newest run of a sweep itself, the only run with the tag ``sweep.metric``.
_SWEEPS_RUN = """
SELECT runs.run_uuid FROM runs
JOIN tags AS metric ON metric.run_uuid = runs.run_uuid AND metric.key = 'sweep.metric'
WHERE runs.experiment_id = ? AND runs.lifecycle_stage = 'active'
ORDER BY runs.start_time DESC LIMIT 1
"""

#: Query for the number of runs below a run.
_COUNTED = f"""
SELECT count(*) FROM tags JOIN runs ON runs.run_uuid = tags.run_uuid
WHERE tags.key = '{PARENT}' AND tags.value = ? AND runs.lifecycle_stage = 'active'
"""  # noqa: S608 ours


def _check_free(host: str, port: int) -> None:
    """Raise BadConfig if the server cannot bind to this address and port."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        allowed = "an address of this machine, or 0.0.0.0 for all"
        raise BadConfig("--host", host, allowed, problem=f"'{host}': {error.strerror}") from error
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            problem = f"{port}: {error.strerror}"
            raise BadConfig("--port", port, "a free port", problem=problem) from error


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """Handle a signal: raise SystemExit with the exit code that shells use for it."""
    raise SystemExit(128 + number)


def _end(server: "subprocess.Popen[bytes]") -> None:
    """Send SIGTERM to the server's process group, and wait for the server."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    server.wait()
