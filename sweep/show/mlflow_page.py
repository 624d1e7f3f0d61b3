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

from sweep import tables
from sweep.errors import BadConfig, UsageError
from sweep.folder import Folder
from sweep.trackers._mlflow_store import ENVIRONMENT, store_url

HOST = "127.0.0.1"
#: The page needs none of the server's background jobs, which are ten processes, and a person none
#: of its libraries' warnings.
SERVER_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}

_QUIET = ("--uvicorn-opts", "--log-level warning")


class Page:
    """The page of all sweeps in `root`, or of the one called `name`.

    Raises:
        UsageError: nothing is recorded there yet.
    """

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
        """Of the sweep's experiment if it is there, else of all experiments."""
        page = f"http://{HOST}:{self._port}"
        number = None
        with contextlib.suppress(sqlite3.Error):
            number = self._experiment()
        return page if number is None else f"{page}/#/experiments/{number}"

    def serve(self) -> int:
        """Run the server until it ends, or until Ctrl-C; returns the exit code."""
        guarded = [sys.executable, "-m", "sweep.show.page_server", str(os.getpid())]
        command = [*guarded, sys.executable, "-m", "mlflow", "server", *self._options()]
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

    def _options(self) -> list[str]:
        where = ["--backend-store-uri", store_url(self._folder)]
        return [*where, "--host", HOST, "--port", str(self._port), "--workers", "1", *_QUIET]

    def _experiment(self) -> int | None:
        """The experiment's number; read from the file, since MLflow takes seconds to import."""
        query = "SELECT experiment_id FROM experiments WHERE name = ?"
        with contextlib.closing(tables.reading(self._folder.mlflow)) as database:
            found = database.execute(query, (self._name,)).fetchone()
        return int(found[0]) if found else None


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
