"""A Dask cluster of real processes on the loopback address, for tests."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import distributed

from tests.support.command_line import environment
from tests.support.ports import free_port
from tests.support.waiting import wait_until

#: Dask says how it is; tests ask the cluster itself.
QUIET = {"DASK_LOGGING__DISTRIBUTED": "error"}


class Cluster:
    """A scheduler and its workers; `close` ends all that was started."""

    def __init__(self, folder: Path, *options: str, **env: str) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        self._file = folder / "scheduler.json"
        self.port = free_port()
        self._options, self._env = options, env
        self.start_scheduler()

    def start_scheduler(self) -> None:
        """Start the scheduler, again where it was; then it answers."""
        self._file.unlink(missing_ok=True)
        where = ("--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")
        file = ("--scheduler-file", str(self._file))
        self.scheduler = self._start("scheduler", *where, *file, *self._options, **self._env)
        wait_until(self._is_up)

    def kill_scheduler(self) -> None:
        """kill -9, of one that may be dead; its workers are told nothing."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.scheduler.pid, signal.SIGKILL)
        self.scheduler.wait()

    def _is_up(self) -> bool:
        assert self.scheduler.poll() is None, (self.folder / "dask.txt").read_text()
        with contextlib.suppress(OSError, ValueError):
            return bool(json.loads(self._file.read_text())["address"])
        return False

    @property
    def address(self) -> str:
        return str(json.loads(self._file.read_text())["address"])

    @property
    def joined(self) -> int:
        """The number of workers that the scheduler has."""
        with distributed.Client(self.address, set_as_default=False) as client:
            # `Client.scheduler_info` may answer with what a timer has asked for, without workers.
            return len(client.sync(client.scheduler.identity, n_workers=-1)["workers"])

    def add(self, name: str, *options: str, at: str = "", **env: str) -> subprocess.Popen[bytes]:
        """One more worker process, which joins a while after this returns."""
        where = (at or self.address, "--nthreads", "1", "--no-dashboard")
        host = () if "--listen-address" in options else ("--host", "127.0.0.1")
        own = ("--name", name, "--local-directory", str(self.folder / "scratch"))
        nanny = () if "--nanny" in options else ("--no-nanny",)
        worker = self._start("worker", *where, *host, *own, *nanny, *options, **env)
        self.workers.append(worker)
        return worker

    def _start(self, what: str, *options: str, **env: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", what, *options]
        with (self.folder / "dask.txt").open("ab") as log:
            return subprocess.Popen(
                command,
                env={**environment(), **QUIET, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        for process in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.kill_scheduler()


@contextlib.contextmanager
def running(folder: Path, workers: int, *options: str, **env: str) -> Iterator[Cluster]:
    """A cluster with so many workers, called a, b, c, …"""
    with contextlib.closing(Cluster(folder, *options, **env)) as cluster:
        for number in range(workers):
            cluster.add("abcdefgh"[number])
        yield cluster
