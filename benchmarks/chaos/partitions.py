"""A worker, or a driver, that is cut off comes back when another has its work: it is refused.

    python -m benchmarks.chaos.partitions [--out DIR] [--rounds CUTS] [--seed S] --of WHOM

Who is cut off is stopped (SIGSTOP) at a step and an instant drawn from a stream, and goes on
(SIGCONT) where it was when its work is done elsewhere. A worker of a Dask cluster stands still with
the child that runs its slice, until the cluster has given it up and its slice was run by another
one; checkpoints lie in the sweep's folder or in S3, by turns. A driver stands still, alone or with
its workers, until one on another machine has taken its lease over; the ledger is a file or lies in
PostgreSQL, by turns. Then the oracle compares the sweep with one that nobody disturbed. A round is
one cut.
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
from benchmarks.chaos.kills import LATEST_S, Straight, refuse, scratch, straight_sweeps
from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.team import Team, standing
from benchmarks.chaos.victims import PATIENCE_S, Sweep, started_by, starter_of
from benchmarks.chaos.workload import JOBS, LONG
from sweep.history.events import Closed, End
from sweep.ledger import lease
from sweep.operations import repair, verify
from sweep.operations.ledger_check import Damage
from sweep.slices import store
from tests.support.postgres import Server
from trainables.checkpoint import file
from trainables.core import rng

#: Of one sweep.
CUTS = 5
#: Seconds without a sign of life after which a driver on another machine is taken for dead.
LEASE_S = 1.0
_SWEEPS = ("asha", "pbt", "hyperband")
#: Seconds in which one that goes on may end what it was doing before anybody tells it anything.
HEAD_START_S = 10.0
#: Seconds for the slice of a worker that was given up to be run by another one, if it had one.
IDLE_S = 30.0
_POLL_S = 0.01
#: Names the worker with which a slice was lost.
_WORKER = re.compile(r"its worker (\w+) was")
#: The exit code of a driver whose sweep another one has.
_TAKEN = 3


class Workers:
    """Workers of a Dask cluster are cut off; checkpoints lie in the sweep's folder, or in S3."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def sweep(self, kind: str, remote: bool) -> Sweep:
        """The next sweep, which is not started yet."""
        return self._team.sweep(LONG[kind], in_storage=remote)

    def cut(self, sweep: Sweep, stream: np.random.Generator) -> "Cut | None":
        """Cut a worker off in the middle of a slice until another one has run that."""
        team = self._team
        team.replace_ended()
        pid = sweep.steps()[-1].pid
        slices = [one for one in team.slices() if one.pid == pid]
        if not slices:
            return None  # it was just replaced
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
            _go_on([worker, child])
            if sweep.driver.poll() is None:
                raise Failed(f"the cluster kept {name}, which was silent for {PATIENCE_S:.0f} s")
            return None  # its slice was the last, and had ended: the worker stays in the cluster
        team.add()
        _await(lambda: len(_lost_with(name, sweep)) > 1, sweep, IDLE_S)
        lost = [one for one in _lost_with(name, sweep) if one.end is End.LOST]
        wrote = 0
        if stream.random() < 0.5:  # its parent stands still for longer, and does not end it
            _go_on([child])
            _await(lambda: bool(lost and _written(sweep, lost[0])), sweep, HEAD_START_S)
        _go_on([worker, child])
        team.let_leave(worker.pid)
        psutil.wait_procs([worker, child], PATIENCE_S)
        if lost:
            wrote = _written(sweep, lost[0])
        return Cut(wrote) if lost else None

    def left(self, _sweep: Sweep) -> Iterator[str]:
        """Yield the things that remain when the sweep is over."""
        yield from self._team.left()


class Drivers:
    """Drivers are cut off; the ledger is a file, or lies in PostgreSQL."""

    def __init__(self, root: Path, server: Server) -> None:
        self._root, self._server = root, server
        self._count = itertools.count()

    def sweep(self, kind: str, remote: bool) -> Sweep:
        """The next sweep, which is not started yet."""
        variables = {"PGPASSFILE": str(self._server.passfile)}
        if remote:
            variables["SWEEP_STORAGE"] = self._server.database()
        sweep = Sweep(self._root / f"{next(self._count)}", LONG[kind], variables)
        self._move(sweep)
        return sweep

    def cut(self, sweep: Sweep, stream: np.random.Generator) -> "Cut | None":
        """Cut the driver off, until another one on another machine goes on with its sweep."""
        first = sweep.driver
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(first.pid)
            stopped = [driver, *(started_by(driver) if stream.random() < 0.5 else ())]
            _stop(stopped)
            # A file waits for who has its lock as long as that lives; who has ended has no lease.
            if _is_locked(sweep) or lease.look(sweep.folder.ledger).host is None:
                _go_on(stopped)
                return None
            term = lease.look(sweep.folder.ledger).term
            self._move(sweep)
            sweep.start()
            _await(lambda: lease.look(sweep.folder.ledger).term > term, sweep)
            sweep.await_steps(len(sweep.steps()) + int(stream.integers(1, 10)))
            _go_on(stopped)
            if (code := first.wait(PATIENCE_S)) != _TAKEN:
                raise Failed(f"one whose sweep was taken ended with {code}: {_said(sweep)}")
            return Cut(0)
        return None

    def left(self, sweep: Sweep) -> Iterator[str]:
        """Yield the things that remain when the sweep is over."""
        if left := sweep.left():
            yield f"processes are left: {left}"

    def _move(self, sweep: Sweep) -> None:
        """Have the next driver be on another machine."""
        name = f"machine-{next(self._count)}"
        sweep.program = ("tests.support.other_machine", name, str(LEASE_S))


@dataclass
class Cut:
    """One that was cut off and came back."""

    wrote: int
    """Checkpoints that it wrote after it was given up."""


@contextlib.contextmanager
def workers() -> Iterator[Workers]:
    """A cluster that gives a worker up as soon as Dask does, which is after 5 s."""
    with standing(DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="1s") as team:
        yield Workers(team)


@contextlib.contextmanager
def drivers() -> Iterator[Drivers]:
    """A folder for sweeps, and a server for the ledgers of some."""
    with scratch() as root, contextlib.closing(Server()) as server:
        server.start()
        with mock.patch.dict(os.environ, {"PGPASSFILE": str(server.passfile)}):
            yield Drivers(root, server)


OF: Mapping[str, Callable[[], AbstractContextManager[Workers | Drivers]]] = {
    "workers": workers,
    "drivers": drivers,
}


def run(out: Path, rounds: int, seed: int, of: str = "workers") -> int:
    """So many cuts; returns how many sweeps failed."""
    cases = Cases(out, f"partition_{of}")
    with OF[of]() as cutter, straight_sweeps(LONG) as straight:
        for number in itertools.count():
            cuts = sum(line.get("cuts", 0) for line in cases.done.values())
            if cuts >= rounds and number >= len(cases.done):  # what failed is run again
                break
            kind, remote = _SWEEPS[number // 2 % len(_SWEEPS)], number % 2 == 1
            stream = rng.generator(seed, "partitions", of, number)
            case = partial(campaign, kind, remote, cutter, stream, straight)
            cases.run(f"{kind}, {number}", case)
    return cases.close()


def campaign(
    kind: str,
    remote: bool,
    cutter: Workers | Drivers,
    stream: np.random.Generator,
    straight: Straight,
) -> dict[str, float]:
    """Cut off whoever works on one sweep, again and again, and compare it; returns figures."""
    reference, length = straight(kind)
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
        if (code := sweep.await_rest()) != 0:
            raise Failed(f"exit code {code}: {_said(sweep)}")
        wrong = [*_wrong_on_the_way(sweep, len(cuts)), *cutter.left(sweep)]
        # One that came back when the sweep was over leaves files there, as nobody looks any more.
        left = [damage for damage in verify.verify(sweep.folder).damages if _is_unnamed(damage)]
        if left:
            repair.repair(sweep.folder, lambda _said: None)
        refuse(sweep, [*wrong, *oracle.wrongs(sweep.folder, reference)])
    finally:
        sweep.driver.kill()
    slices, steps = oracle.done_again(sweep.steps())
    return {
        "cuts": len(cuts),
        "cuts_remote": len(cuts) * remote,
        "idle": tries - len(cuts),
        "late_steps": oracle.late(sweep.steps()),
        "late_checkpoints": sum(cut.wrote for cut in cuts),
        "swept_up": len(left),
        "slices_again": slices,
        "steps_again": steps,
    }


def _wrong_on_the_way(sweep: Sweep, cuts: int) -> Iterator[str]:
    records = oracle.read(sweep.folder)
    reasons = [one.event.reason for one in records if isinstance(one.event, Closed)]
    blamed = Counter(found[1] for reason in reasons if (found := _WORKER.search(reason)))
    if twice := [name for name, count in blamed.items() if count > 1]:
        yield f"slices were charged twice for the workers {twice}"
    # On a busy machine the cluster gives workers up that nobody has stopped.
    slices, _ = oracle.done_again(sweep.steps())
    if slices > (most := cuts * JOBS + blamed.total()):
        yield f"{slices} slices were done again, {most} at most after {cuts} cuts"
    if crashes := oracle.crashes(records):
        yield f"{crashes} slices crashed"
    if "Traceback" in _said(sweep):
        yield "a traceback was shown"


def _is_unnamed(damage: Damage) -> bool:
    return damage.problem == "no row names it"


def _said(sweep: Sweep) -> str:
    return (sweep.root / "said").read_text()[-2000:]


def _lost_with(name: str, sweep: Sweep) -> list[Closed]:
    """The end of the slice that was lost with a worker, and of those of its replica after it."""
    found: list[Closed] = []
    for event in (record.event for record in oracle.read(sweep.folder)):
        if isinstance(event, Closed):
            said = _WORKER.search(event.reason)
            its = [(one.trial, one.replica) for one in found]
            if (said and said[1] == name) or (event.trial, event.replica) in its:
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


def _written(sweep: Sweep, lost: Closed) -> int:
    """Return how many checkpoints a lost slice has written."""
    stored = store.of(sweep.folder).replica(lost.trial, lost.replica)
    if stored.url:
        return sum("ckpt-" in name for name in stored.remote.sizes(str(lost.slice)))
    headers = []
    for path in stored.folder.glob("ckpt-*"):
        with contextlib.suppress(FileNotFoundError):  # the driver deletes what it lets go of
            headers.append(file.read(path).header)
    return sum(header["slice"] == lost.slice for header in headers)


def _names(client: distributed.Client) -> set[str]:
    """Return the names of the workers that the cluster has.

    `Client.scheduler_info` may answer with what a timer of the client has asked for meanwhile,
    which has no workers.
    """
    about = client.sync(client.scheduler.identity, n_workers=-1)
    return {one["id"] for one in about["workers"].values()}


def _stop(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def _go_on(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def _await(condition: Callable[[], bool], sweep: Sweep, patience_s: float = PATIENCE_S) -> None:
    """Wait until it holds, the driver has ended, or there is no more patience."""
    end = time.monotonic() + patience_s
    while not condition() and sweep.driver.poll() is None and time.monotonic() < end:
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(run, rounds=30, what="of", choices=OF)
