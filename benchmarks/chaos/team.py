"""A sweep on a cluster, with all that it stands on: each part can be killed and brought back.

Slices run on two workers of a Dask cluster; checkpoints lie in S3; the ledger
lies on a PostgreSQL server where one is given. Everything is a process on the loopback address.
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

from benchmarks.chaos.kills import scratch
from benchmarks.chaos.store_cases import Failed
from benchmarks.chaos.victims import PATIENCE_S, Sweep, started_by
from benchmarks.chaos.workload import JOBS, STEPS
from tests.support import s3
from tests.support.cluster import Cluster
from tests.support.postgres import Server
from trainables.checkpoint import remote

#: Seconds for which a service is away, at most.
AWAY_S = 1.0
#: Seconds that what must end by itself has for it on a busy machine.
LEAVE_S = 60.0
_POLL_S = 0.01
_SHARED = Path("/dev/shm")  # noqa: S108 where semaphores are


class Part(StrEnum):
    """The process to kill."""

    SCHEDULER = "scheduler"
    """The scheduler of the cluster; the driver ends, and is started again."""
    WORKER = "worker"
    """A worker of the cluster, which its nanny starts again."""
    SLICE = "slice"
    """The child of a worker in which slices run."""
    DRIVER = "driver"
    """The driver; the next one starts at once."""
    STORAGE = "storage"
    """The process that serves S3."""
    DATABASE = "database"
    """The PostgreSQL server."""


class Team:
    """The services that sweeps stand on, one sweep after another; `standing` makes one."""

    def __init__(self, root: Path, server: Server | None, nannies: bool, **variables: str) -> None:
        """`variables` are given to the cluster's scheduler."""
        self.root = root
        self.server = server
        self.storage = s3.Server(root / "objects")
        self.cluster = Cluster(root, **variables)
        self._nannies = nannies
        self._steps = root / "steps"
        self._count = itertools.count()
        self.names: dict[int, str] = {}
        """Process of a worker, or of its nanny → its name in the cluster."""
        self._alone: list[subprocess.Popen[bytes]] = []
        """Workers that the cluster has not, or no more, and that must leave by themselves."""
        self._killed: list[int] = []
        """Workers that were killed."""

    def sweep(self, spec: str, in_storage: bool = True) -> Sweep:
        """The next sweep, which is not started yet; its checkpoints in S3 or in its folder."""
        options: tuple[str, ...] = ("--pool", "dask", "--address", self.cluster.address)
        if in_storage:
            options += ("--checkpoints", f"s3://{s3.BUCKET}")
        variables = {"SWEEP_STORAGE": self.server.database()} if self.server else {}
        sweep = Sweep(self.root / f"{next(self._count)}", spec, variables, options)
        self._steps.unlink(missing_ok=True)
        (sweep.root / "steps").symlink_to(self._steps)
        return sweep

    def add(self) -> None:
        """One more worker; it joins a while after this returns."""
        options = ("--nanny",) if self._nannies else ()
        name = f"w{next(self._count)}"
        self.names[self.cluster.add(name, *options, **{STEPS: str(self._steps)}).pid] = name

    def replace_ended(self) -> None:
        """Start a worker for each that has ended, as one does that the cluster has given up."""
        for _ in [one for one in self.cluster.workers if one.poll() is not None]:
            self.add()
        self.cluster.workers = [one for one in self.cluster.workers if one.poll() is None]

    def let_leave(self, pid: int) -> None:
        """Count a worker no more among the cluster's; it must leave by itself."""
        gone = [one for one in self.cluster.workers if one.pid == pid]
        self.cluster.workers = [one for one in self.cluster.workers if one.pid != pid]
        self._alone += gone

    def workers(self) -> list[psutil.Process]:
        """The worker processes of the cluster, without nannies."""
        started = [one for one in self.cluster.workers if one.poll() is None]
        if not self._nannies:
            return [psutil.Process(one.pid) for one in started]
        below = (child for nanny in started for child in _children(nanny.pid))
        return [child for child in below if "spawn_main" in _command(child)]

    def slices(self) -> list[psutil.Process]:
        """The children of workers in which slices run, or ran just now."""
        below = (child for worker in self.workers() for child in _children(worker.pid))
        return [child for child in below if "popen_loky" in _command(child)]

    def kill(self, part: Part, sweep: Sweep, stream: np.random.Generator) -> bool:
        """Kill it now; False: there is none, as the sweep has ended."""
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

    def mend(self, part: Part, sweep: Sweep, stream: np.random.Generator) -> None:
        """Bring back what was killed."""
        if part in (Part.STORAGE, Part.DATABASE):
            time.sleep(float(stream.uniform(0.0, AWAY_S)))
        if part is Part.STORAGE:
            self.storage.start()
        elif part is Part.DATABASE:
            self._database().start()
        elif part is Part.SCHEDULER:
            sweep.await_rest()
            # What a nanny does then is Dask's own: it may bring its worker back, or end.
            self.renew_cluster(kill=self._nannies or stream.random() < 0.5)
        elif part is Part.DRIVER:
            sweep.start()

    def renew_cluster(self, kill: bool) -> None:
        """Start the scheduler again, and new workers; the old ones are killed or leave alone."""
        for old in self.cluster.workers:
            if kill:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(old.pid, signal.SIGKILL)
        self._alone += self.cluster.workers
        self.cluster.workers.clear()
        self.cluster.kill_scheduler()
        self.cluster.start_scheduler()
        for _ in range(JOBS):
            self.add()

    def left(self) -> Iterator[str]:
        """Yield the things that remain when the sweep is over."""
        kinds: dict[str, Callable[[], list[Any]]] = {
            "workers that were given up": lambda: [p.pid for p in self._alone if p.poll() is None],
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
        """End all of it, but for the database, which is not ours."""
        self.cluster.workers += self._alone
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
                raise Failed("there was nothing of that kind to kill")
            time.sleep(_POLL_S)
        return found

    def _semaphores(self) -> Iterator[str]:
        for worker in self._killed:
            yield from (one.name for one in _SHARED.glob(f"sem.loky-{worker}-*"))


@contextlib.contextmanager
def standing(database: bool = False, nannies: bool = False, **variables: str) -> Iterator[Team]:
    """A team, which this process reaches too while this is entered."""
    with scratch() as root, contextlib.ExitStack() as until:
        server = None
        if database:
            server = until.enter_context(contextlib.closing(Server()))
            server.start()
        team = until.enter_context(contextlib.closing(Team(root, server, nannies, **variables)))
        passfile = {"PGPASSFILE": str(server.passfile)} if server else {}
        told = {**s3.environment(team.storage.port), **passfile}
        until.enter_context(mock.patch.dict(os.environ, told))
        until.callback(_forget_storage)
        for _ in range(JOBS):
            team.add()
        yield team


def _forget_storage() -> None:
    """Forget the connections of this process to a storage that stood elsewhere."""
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
