"""A sweep on a cluster with all its services; each part can be killed and restored.

Slices run on two workers of a Dask cluster. Checkpoints are in S3, and the ledger is on a
PostgreSQL server if there is one. All parts are processes on the loopback address.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest import mock

import fsspec
import numpy as np
import psutil

from benchmarks.chaos.kills import temporary_folder
from benchmarks.chaos.store_cases import Failed
from benchmarks.chaos.victims import PATIENCE_S, Sweep, semaphores_of, started_by
from benchmarks.chaos.workload import JOBS, STEPS
from tests.support import s3
from tests.support.cluster import Cluster
from tests.support.postgres import Server
from trainables.checkpoint import remote

#: Seconds for which a service is down, at most.
AWAY_S = 1.0
#: Seconds within which processes must end by themselves on a busy machine.
LEAVE_S = 60.0
_POLL_S = 0.01


class Part(StrEnum):
    """Part to kill."""

    SCHEDULER = "scheduler"
    """The scheduler of the cluster; the driver ends and is restarted."""
    WORKER = "worker"
    """A worker of the cluster, which its nanny restarts."""
    SLICE = "slice"
    """The child of a worker in which slices run."""
    DRIVER = "driver"
    """The driver; the next one starts at once."""
    STORAGE = "storage"
    """The process that serves S3."""
    DATABASE = "database"
    """The PostgreSQL server."""


class Team:
    """The services of successive sweeps; `running_team` creates a team."""

    def __init__(self, root: Path, server: Server | None, nannies: bool, **variables: str) -> None:
        """Start S3 and the cluster's scheduler.

        Args:
            server: database server of the ledgers; None for ledgers in files.
            variables: environment variables of the cluster's scheduler.
        """
        self.root = root
        self.server = server
        self.storage = s3.Server(root / "objects")
        self.cluster = Cluster(root, **variables)
        self._nannies = nannies
        self._steps = root / "steps"
        self._count = itertools.count()
        self.names: dict[int, str] = {}
        """Process of a worker or of its nanny → name of the worker in the cluster."""
        self._released: list[subprocess.Popen[bytes]] = []
        """Workers that the cluster no longer has, and that must end by themselves."""
        self._killed: list[int] = []
        """Processes of killed workers."""
        self._began = time.time()
        """Time of the team's start in seconds since 1970."""

    def sweep(self, spec: str, in_storage: bool = True) -> Sweep:
        """Return the next sweep, not yet started, with checkpoints in S3 or in its folder."""
        options: tuple[str, ...] = ("--pool", "dask", "--address", self.cluster.address)
        if in_storage:
            options += ("--checkpoints", f"s3://{s3.BUCKET}")
        variables = {"SWEEP_STORAGE": self.server.database()} if self.server else {}
        sweep = Sweep(self.root / f"{next(self._count)}", spec, variables, options)
        self._steps.unlink(missing_ok=True)
        (sweep.root / "steps").symlink_to(self._steps)
        return sweep

    def add(self) -> None:
        """Start another worker; it joins the cluster later."""
        options = ("--nanny",) if self._nannies else ()
        name = f"w{next(self._count)}"
        self.names[self.cluster.add(name, *options, **{STEPS: str(self._steps)}).pid] = name

    def replace_ended(self) -> None:
        """Start a worker for each one that has ended because the cluster gave it up."""
        for _ in [one for one in self.cluster.workers if one.poll() is not None]:
            self.add()
        self.cluster.workers = [one for one in self.cluster.workers if one.poll() is None]

    def release(self, pid: int) -> None:
        """Remove a worker from those of the cluster; it must end by itself."""
        gone = [one for one in self.cluster.workers if one.pid == pid]
        self.cluster.workers = [one for one in self.cluster.workers if one.pid != pid]
        self._released += gone

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes of the cluster, without nannies."""
        started = [one for one in self.cluster.workers if one.poll() is None]
        if not self._nannies:
            return [psutil.Process(one.pid) for one in started]
        below = (child for nanny in started for child in _children(nanny.pid))
        return [child for child in below if "spawn_main" in _command(child)]

    def slices(self) -> list[psutil.Process]:
        """Return the children of workers that run slices, or have just done so."""
        below = (child for worker in self.workers() for child in _children(worker.pid))
        return [child for child in below if "popen_loky" in _command(child)]

    def kill(self, part: Part, sweep: Sweep, stream: np.random.Generator) -> bool:
        """Kill a process of this part. Returns False if the sweep has ended and has none."""
        if part is Part.STORAGE:
            self.storage.close()
        elif part is Part.DATABASE:
            self._database().stop(signal.SIGKILL)
        elif part is Part.SCHEDULER:
            self.cluster.kill_scheduler()
        elif part is Part.DRIVER:
            sweep.driver.kill()
            sweep.driver.wait()
        else:
            chosen = self._chosen(self.workers if part is Part.WORKER else self.slices, sweep)
            if not chosen:
                return False
            victim = chosen[int(stream.integers(len(chosen)))]
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
            if part is Part.WORKER:
                self._killed.append(victim.pid)
        return True

    def restore(self, part: Part, sweep: Sweep, stream: np.random.Generator) -> None:
        """Restore a killed part."""
        if part in (Part.STORAGE, Part.DATABASE):
            time.sleep(float(stream.uniform(0.0, AWAY_S)))
        if part is Part.STORAGE:
            self.storage.start()
        elif part is Part.DATABASE:
            self._database().start()
        elif part is Part.SCHEDULER:
            sweep.await_end()
            # A nanny may restart its worker or end; either is up to Dask.
            self.renew_cluster(kill=self._nannies or stream.random() < 0.5)
        elif part is Part.DRIVER:
            sweep.start()

    def renew_cluster(self, kill: bool) -> None:
        """Restart the scheduler with new workers; old workers are killed or end by themselves."""
        for old in self.cluster.workers:
            if kill:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(old.pid, signal.SIGKILL)
        self._released += self.cluster.workers
        self.cluster.workers.clear()
        self.cluster.kill_scheduler()
        self.cluster.start_scheduler()
        for _ in range(JOBS):
            self.add()

    def left(self) -> Iterator[str]:
        """Yield errors: processes and semaphores that are left after the end of the sweep."""
        kinds: dict[str, Callable[[], list[Any]]] = {
            "released workers": lambda: [p.pid for p in self._released if p.poll() is None],
            "slices": lambda: [one.pid for one in self.slices()],
            "semaphores of killed workers": lambda: [*self._semaphores()],
        }
        for kind, found in kinds.items():
            end = time.monotonic() + LEAVE_S
            while (left := found()) and time.monotonic() < end:
                time.sleep(_POLL_S)
            if left:
                yield f"{kind} are left: {left}"

    def close(self) -> None:
        """End all services except the database, which its creator ends."""
        self.cluster.workers += self._released
        self.cluster.close()
        self.storage.close()

    def _database(self) -> Server:
        if self.server is None:
            raise RuntimeError("the ledger is a file")
        return self.server

    def _chosen(
        self, candidates: Callable[[], list[psutil.Process]], sweep: Sweep
    ) -> list[psutil.Process]:
        end = time.monotonic() + PATIENCE_S
        while not (found := candidates()) and sweep.driver.poll() is None:
            if time.monotonic() > end:
                raise Failed("there was no process to kill")
            time.sleep(_POLL_S)
        return found

    def _semaphores(self) -> Iterator[str]:
        for worker in self._killed:
            yield from (one.name for one in semaphores_of(worker, self._began))


@contextlib.contextmanager
def running_team(database: bool = False, nannies: bool = False, **variables: str) -> Iterator[Team]:
    """Provide a team; meanwhile, this process has the variables to reach its services."""
    with temporary_folder() as root, contextlib.ExitStack() as stack:
        server = None
        if database:
            server = stack.enter_context(contextlib.closing(Server()))
            server.start()
        team = stack.enter_context(contextlib.closing(Team(root, server, nannies, **variables)))
        passfile = {"PGPASSFILE": str(server.passfile)} if server else {}
        variables_here = {**s3.environment(team.storage.port), **passfile}
        stack.enter_context(mock.patch.dict(os.environ, variables_here))
        stack.callback(_forget_storage)
        for _ in range(JOBS):
            team.add()
        yield team


def _forget_storage() -> None:
    """Close the connections of this process to the storage."""
    remote._opened.cache_clear()
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def _children(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(started_by(psutil.Process(pid)))
    return []


def _command(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
