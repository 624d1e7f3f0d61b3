"""A disconnected worker or driver returns when another one has its work, and is refused.

    python -m benchmarks.chaos.partitions [--out DIR] [--rounds CUTS] [--seed S] --victims KIND

A disconnection is simulated: the process is stopped (SIGSTOP) at a random step and instant, and
continues (SIGCONT) when its work is done elsewhere. A worker of a Dask cluster is stopped, with the
child that runs its slice, until the cluster has given it up and another worker has run the slice;
checkpoints are alternately in the sweep's folder and in S3. A driver is stopped, alone or with its
workers, until one on another machine has taken its lease; the ledger is alternately a file and in
PostgreSQL. Then the oracle compares the sweep with an undisturbed one. A round is one cut.
"""

import contextlib
import itertools
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import distributed
import numpy as np
import psutil

from benchmarks.chaos import oracle
from benchmarks.chaos.kills import (
    LATEST_S,
    Undisturbed,
    raise_if_wrong,
    temporary_folder,
    undisturbed_sweeps,
)
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.team import Team, running_team
from benchmarks.chaos.victims import PATIENCE_S, Sweep, started_by, starter_of
from benchmarks.chaos.workload import JOBS, LONG
from sweep.history.events import Closed, End
from sweep.ledger import lease
from sweep.operations.upkeep import repair, verify
from sweep.operations.upkeep.ledger_check import Damage
from sweep.slices import store
from tests.support.postgres import Server
from trainables.checkpoint import file
from trainables.core import rng

#: Cuts of one sweep.
CUTS = 5
#: Seconds without a sign of life after which a driver on another machine counts as dead.
LEASE_S = 1.0
_SWEEPS = ("asha", "pbt", "hyperband")
#: Seconds within which a continued child may write before its worker continues, too.
HEAD_START_S = 10.0
#: Seconds within which another worker runs the slice of one that was given up, if it had a slice.
IDLE_S = 30.0
_POLL_S = 0.01
#: Finds the worker with which a slice was lost.
_WORKER = re.compile(r"its worker (\w+) was")
#: Exit code of a driver whose sweep another driver has.
_TAKEN = 3


class Workers:
    """Cuts of workers of a Dask cluster; checkpoints are in the sweep's folder or in S3."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def sweep(self, kind: str, remote: bool) -> Sweep:
        """Return the next sweep, not yet started; `remote` puts its checkpoints into S3."""
        return self._team.sweep(LONG[kind], in_storage=remote)

    def cut(self, sweep: Sweep, stream: np.random.Generator) -> "Cut | None":
        """Stop a worker until another one has run its slice. Returns None if it had none."""
        team = self._team
        team.replace_ended()
        pid = sweep.steps()[-1].pid
        slices = [one for one in team.slices() if one.pid == pid]
        if not slices:
            return None  # the child has just been replaced
        (child,) = slices
        worker = starter_of(child)
        if worker is None:
            return None
        _stop([worker, child])
        name = team.names[worker.pid]
        with distributed.Client(team.cluster.address, set_as_default=False) as client:
            _await(lambda: name not in _names(client), sweep)
            is_registered = name in _names(client)
        if is_registered:
            _continue([worker, child])
            if sweep.driver.poll() is None:
                raise Failed(
                    f"the cluster still has {name}, which was silent for {PATIENCE_S:.0f} s"
                )
            return None  # the sweep ended before; the worker stays in the cluster
        team.add()
        _await(lambda: len(_ends_after_loss(name, sweep)) > 1, sweep, IDLE_S)
        lost = [one for one in _ends_after_loss(name, sweep) if one.end is End.LOST]
        wrote = 0
        if stream.random() < 0.5:  # its parent continues later, and cannot end it
            _continue([child])
            _await(lambda: bool(lost and _count_written(sweep, lost[0])), sweep, HEAD_START_S)
        _continue([worker, child])
        team.release(worker.pid)
        psutil.wait_procs([worker, child], PATIENCE_S)
        if lost:
            wrote = _count_written(sweep, lost[0])
        return Cut(wrote) if lost else None

    def left(self, _sweep: Sweep) -> Iterator[str]:
        """Yield errors: things that are left after the end of the sweep."""
        yield from self._team.left()


class Drivers:
    """Cuts of drivers; the ledger is a file or in PostgreSQL."""

    def __init__(self, root: Path, server: Server) -> None:
        self._root, self._server = root, server
        self._count = itertools.count()

    def sweep(self, kind: str, remote: bool) -> Sweep:
        """Return the next sweep, not yet started; `remote` puts its ledger into PostgreSQL."""
        variables = {"PGPASSFILE": str(self._server.passfile)}
        if remote:
            variables["SWEEP_STORAGE"] = self._server.database()
        sweep = Sweep(self._root / f"{next(self._count)}", LONG[kind], variables)
        self._move(sweep)
        return sweep

    def cut(self, sweep: Sweep, stream: np.random.Generator) -> "Cut | None":
        """Stop the driver until another one has its sweep. Returns None if it had ended."""
        first = sweep.driver
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(first.pid)
            stopped = [driver, *(started_by(driver) if stream.random() < 0.5 else ())]
            _stop(stopped)
            # A stopped driver in a transaction blocks a ledger file; an ended one has no lease.
            if _is_locked(sweep) or lease.read_file(sweep.folder.ledger).host is None:
                _continue(stopped)
                return None
            term = lease.read_file(sweep.folder.ledger).term
            self._move(sweep)
            sweep.start()
            _await(lambda: lease.read_file(sweep.folder.ledger).term > term, sweep)
            sweep.await_steps(len(sweep.steps()) + int(stream.integers(1, 10)))
            _continue(stopped)
            if (code := first.wait(PATIENCE_S)) != _TAKEN:
                raise Failed(f"the first driver ended with {code}: {_output(sweep)}")
            return Cut(0)
        return None

    def left(self, sweep: Sweep) -> Iterator[str]:
        """Yield errors: things that are left after the end of the sweep."""
        if left := sweep.left():
            yield f"processes are left: {left}"

    def _move(self, sweep: Sweep) -> None:
        """Simulate another machine for the next driver."""
        name = f"machine-{next(self._count)}"
        sweep.program = ("tests.support.other_machine", name, str(LEASE_S))


@dataclass
class Cut:
    """One process that was stopped and continued."""

    wrote: int
    """Number of checkpoints that it wrote after it was given up."""


@contextlib.contextmanager
def workers() -> Iterator[Workers]:
    """Provide a cluster with Dask's shortest time, 5 s, until a worker is given up."""
    with running_team(DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="1s") as team:
        yield Workers(team)


@contextlib.contextmanager
def drivers() -> Iterator[Drivers]:
    """Provide a folder for sweeps and a database server."""
    with temporary_folder() as root, contextlib.closing(Server()) as server:
        server.start()
        with mock.patch.dict(os.environ, {"PGPASSFILE": str(server.passfile)}):
            yield Drivers(root, server)


VICTIMS: Mapping[str, Callable[[], AbstractContextManager[Workers | Drivers]]] = {
    "workers": workers,
    "drivers": drivers,
}


def run(out: Path, rounds: int, seed: int, victims: str = "workers") -> int:
    """Make `rounds` cuts; return the number of failed sweeps."""
    cases = Cases(out, f"partition_{victims}")
    with VICTIMS[victims]() as cutter, undisturbed_sweeps(LONG) as undisturbed:
        for number in itertools.count():
            cuts = sum(line.get("cuts", 0) for line in cases.done.values())
            if cuts >= rounds and number >= len(cases.done):  # failed cases are run again
                break
            kind, remote = _SWEEPS[number // 2 % len(_SWEEPS)], number % 2 == 1
            stream = rng.generator(seed, "partitions", victims, number)
            case = partial(campaign, kind, remote, cutter, stream, undisturbed)
            cases.run(f"{kind}, {number}", case)
    return cases.close()


def campaign(
    kind: str,
    remote: bool,
    cutter: Workers | Drivers,
    stream: np.random.Generator,
    undisturbed: Undisturbed,
) -> dict[str, float]:
    """Make cuts in one sweep, and compare it; return its figures."""
    reference, length = undisturbed(kind)
    sweep = cutter.sweep(kind, remote)
    cuts: list[Cut] = []
    tries, due = 0, 1
    sweep.start()
    try:
        while tries < CUTS and sweep.await_steps(due):
            time.sleep(float(stream.uniform(0.0, LATEST_S)))
            tries += 1
            if (cut := cutter.cut(sweep, stream)) is not None:
                cuts.append(cut)
            due = max(due, len(sweep.steps())) + int(stream.integers(1, max(length // CUTS, 2)))
        if (code := sweep.await_end()) != 0:
            raise Failed(f"exit code {code}: {_output(sweep)}")
        wrong = [*_errors_of_cuts(sweep, len(cuts)), *cutter.left(sweep)]
        # A process that continued after the end of the sweep may leave files.
        left = [damage for damage in verify.verify(sweep.folder).damages if _is_unnamed(damage)]
        if left:
            repair.repair(sweep.folder, lambda _message: None)
        raise_if_wrong(sweep, [*wrong, *oracle.errors(sweep.folder, reference)])
    finally:
        sweep.driver.kill()
    slices, steps = oracle.count_repeated(sweep.steps())
    return {
        "cuts": len(cuts),
        "cuts_remote": len(cuts) * remote,
        "idle": tries - len(cuts),
        "late_steps": oracle.count_late_steps(sweep.steps()),
        "late_checkpoints": sum(cut.wrote for cut in cuts),
        "swept_up": len(left),
        "slices_again": slices,
        "steps_again": steps,
    }


def _errors_of_cuts(sweep: Sweep, cuts: int) -> Iterator[str]:
    records = oracle.read(sweep.folder)
    reasons = [one.event.reason for one in records if isinstance(one.event, Closed)]
    lost = Counter(found[1] for reason in reasons if (found := _WORKER.search(reason)))
    if twice := [name for name, count in lost.items() if count > 1]:
        yield f"two slices were lost with the workers {twice}"
    # On a busy machine the cluster also gives up workers that were not stopped.
    slices, _ = oracle.count_repeated(sweep.steps())
    if slices > (allowed := cuts * JOBS + lost.total()):
        yield f"{slices} slices were repeated, {allowed} at most after {cuts} cuts"
    if crashes := oracle.count_crashes(records):
        yield f"{crashes} slices crashed"
    if "Traceback" in _output(sweep):
        yield "a traceback was shown"


def _is_unnamed(damage: Damage) -> bool:
    return damage.problem == "the ledger does not mention this file"


def _output(sweep: Sweep) -> str:
    return (sweep.root / "output").read_text()[-2000:]


def _ends_after_loss(name: str, sweep: Sweep) -> list[Closed]:
    """Return the ends of the slice that was lost with a worker and of later ones of its replica."""
    found: list[Closed] = []
    for event in (record.event for record in oracle.read(sweep.folder)):
        if isinstance(event, Closed):
            worker = _WORKER.search(event.reason)
            replicas = [(one.trial, one.replica) for one in found]
            if (worker and worker[1] == name) or (event.trial, event.replica) in replicas:
                found.append(event)
    return found


def _is_locked(sweep: Sweep) -> bool:
    """Return whether a transaction with a ledger in a file is in progress."""
    if sweep.folder.ledger.suffix != ".db":
        return False
    with contextlib.closing(sqlite3.connect(sweep.folder.ledger, timeout=0.1)) as ledger:
        try:
            ledger.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        ledger.execute("ROLLBACK")
        return False


def _count_written(sweep: Sweep, lost: Closed) -> int:
    """Return the number of checkpoints that a lost slice has written."""
    stored = store.of_sweep(sweep.folder).replica(lost.trial, lost.replica)
    if stored.url:
        return sum("ckpt-" in name for name in stored.remote.sizes(str(lost.slice)))
    headers = []
    for path in stored.folder.glob("ckpt-*"):
        with contextlib.suppress(FileNotFoundError):  # the driver has just deleted it
            headers.append(file.read(path).header)
    return sum(header["slice"] == lost.slice for header in headers)


def _names(client: distributed.Client) -> set[str]:
    """Return the names of the workers of the cluster.

    `Client.scheduler_info` is not used: it may return the answer to a request of a timer, which
    has no workers.
    """
    about = client.sync(client.scheduler.identity, n_workers=-1)
    return {one["id"] for one in about["workers"].values()}


def _stop(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def _continue(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _await(condition: Callable[[], bool], sweep: Sweep, patience_s: float = PATIENCE_S) -> None:
    """Wait until the condition holds, the driver has ended, or `patience_s` seconds have passed."""
    end = time.monotonic() + patience_s
    while not condition() and sweep.driver.poll() is None and time.monotonic() < end:
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(run, rounds=30, option="victims", choices=VICTIMS)
