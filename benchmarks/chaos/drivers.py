"""Two simultaneous commands: one runs the sweep, the other ends with code 3 and names the first.

    python -m benchmarks.chaos.drivers [--out DIR] [--rounds N] [--seed S]

A round is one race; the `KINDS` of races alternate. Two processes, which have imported all modules,
start a random time of some milliseconds apart; the winner trains until the loser has ended. Other
machines are simulated by another name, another kernel, separate locks and short leases.
"""

import contextlib
import io
import multiprocessing
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from benchmarks.chaos.store_cases import Cases, Failed, main
from sweep import spec as specs
from sweep.cli import main as cli
from sweep.driver.start.creation import creating, resolving
from sweep.history.events import Status, TermBegan
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep import ledger_check
from sweep.views import reading
from tests.support.other_machine import become
from trainables import Trainable
from trainables.core import rng

#: Kinds of races: two `sweep run` of one name; or two `sweep resume` of a new sweep, of one whose
#: driver was killed, of one on two machines, and of one on two whose driver on a third one died.
KINDS = ("run", "resume", "killed", "machines", "a machine died")
#: Seconds between the two starts, at most.
APART_S = 0.02
#: Time limit of all waiting, in seconds.
LIMIT_S = 120.0
#: Kind → seconds without a sign of life after which a machine counts as dead.
LEASES_S: Mapping[str, float] = {"machines": 60.0, "a machine died": 1.0}
RENEW_S = 0.05

SPEC = """
name: {name}
trials: 1
trainable: benchmarks.chaos.drivers:Waits
metric: loss
mode: min
config: {{release: "{release}"}}
space: {{x: {{uniform: [0.0, 1.0]}}}}
stop: {{training_iteration: 1}}
searcher: random
scheduler: fifo
trackers: []
"""


class Waits(Trainable):
    """Trainable whose step waits for a file."""

    def setup(self, config: dict[str, Any]) -> None:
        """Store the path of the file."""
        self.release = Path(config["release"])

    def step(self) -> dict[str, Any]:
        """Wait for the file, and return a result."""
        deadline = time.monotonic() + LIMIT_S
        while not self.release.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        return {"loss": 0.0}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Ignore the state, which is empty."""


# ---- the processes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Order to a racer."""

    words: tuple[str, ...]
    """Arguments of the command."""
    at: float
    """Time of the start on the monotonic clock, in seconds."""
    machine: str
    """Name of the simulated machine; empty for this one."""
    lease_s: float
    """Seconds after which a simulated machine counts as dead."""


@dataclass(frozen=True)
class End:
    """Answer of a racer."""

    code: int
    """Exit code of the command."""
    output: str
    """Its standard error."""


def _race(orders: Connection) -> None:
    """Run each ordered command at its time, until the order None."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from sweep.ledger import folder, hold, lease

    defaults = (lease.this_host, folder.LOCK, hold.LEASE_S, hold.RENEW_S)
    while (start := orders.recv()) is not None:
        lease.this_host, folder.LOCK, hold.LEASE_S, hold.RENEW_S = defaults
        if start.machine:
            become(start.machine, start.lease_s, RENEW_S)
        output = io.StringIO()
        with contextlib.redirect_stderr(output):
            while time.monotonic() < start.at:
                time.sleep(0)
            code = cli.main(start.words)
        orders.send(End(code, output.getvalue()))


class Racers:
    """Two processes that race repeatedly."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.lines: list[Connection] = []
        self.pids: list[int] = []
        self._processes = []
        for _ in range(2):
            ours, theirs = context.Pipe()
            process = context.Process(target=_race, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self.lines.append(ours)
            self.pids.append(process.pid or 0)
            self._processes.append(process)

    def race(self, starts: tuple[Start, Start], release: Path) -> list[End]:
        """Race, create the file `release` when one process has ended, and return both answers."""
        for line, start in zip(self.lines, starts, strict=True):
            line.send(start)
        try:
            if not wait(self.lines, LIMIT_S):
                raise Failed("both run the sweep, or neither ends")
        finally:
            release.touch()
        ends = []
        for line in self.lines:
            if not line.poll(LIMIT_S):
                raise Failed("the winner does not end")
            ends.append(line.recv())
        return ends

    def close(self) -> None:
        """End both processes."""
        for line in self.lines:
            with contextlib.suppress(OSError):
                line.send(None)
        for process in self._processes:
            process.join(10.0)
            process.kill()


# ---- a race -------------------------------------------------------------------------------------


@contextlib.contextmanager
def racers() -> Iterator[Racers]:
    """Provide two processes that are ready to race."""
    both = Racers()
    try:
        yield both
    finally:
        both.close()


def race(both: Racers, root: Path, kind: str, apart_s: float) -> dict[str, Any]:
    """Make one race and judge it; return its figures.

    Args:
        root: empty folder.
        kind: one of `KINDS`.
        apart_s: delay of the second process; if negative, of the first.
    """
    folder, release = Folder(root / "sweeps", "demo"), root / "release"
    text = SPEC.format(name="demo", release=release)
    if kind == "run":
        path = root / "spec.yaml"
        path.write_text(text)
        words: tuple[str, ...] = ("run", str(path))
    else:
        spec = specs.parse(text, "race")
        creating.create(folder, resolving.resolve(spec, (), is_new=True), text)
        words = ("resume", "demo")
        _set_previous_driver(folder, kind)
    words = (*words, "--pool", "inline", "--root", str(folder.root))
    machines = ("a", "b") if kind in LEASES_S else ("", "")
    began = time.monotonic() + 0.05
    starts = [
        Start(words, began + max(0.0, later), machine, LEASES_S.get(kind, 0.0))
        for later, machine in zip((-apart_s, apart_s), machines, strict=True)
    ]
    return _judge(folder, both, both.race((starts[0], starts[1]), release), machines)


def _set_previous_driver(folder: Folder, kind: str) -> None:
    """Write the lease that a previous driver would have left."""
    values = {
        "killed": "pid = 999999999",
        "machines": "host = NULL",
        "a machine died": "host = 'c', kernel = 'kernel of c', pid = 1",
    }
    if kind in values:
        with contextlib.closing(sqlite3.connect(folder.ledger)) as database, database:
            database.execute(f"UPDATE lease SET {values[kind]}")  # noqa: S608 our own values


def _judge(
    folder: Folder, both: Racers, ends: list[End], machines: tuple[str, str]
) -> dict[str, Any]:
    """Raise Failed unless one process ran the sweep and the other named it."""
    codes = [end.code for end in ends]
    if sorted(codes) != [0, 3]:
        raise Failed(f"exit codes {codes}: {[end.output for end in ends]}")
    winner = codes.index(0)
    lines = ends[1 - winner].output.splitlines()
    name = f"process {both.pids[winner]} on {machines[winner]}"
    if "demo is in use: " not in lines[-1] or name not in lines[-1]:
        raise Failed(f"the loser does not name {name}: {lines}")
    if damages := ledger_check.check(folder.ledger):
        raise Failed(f"the ledger: {damages}")
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        events = [record.event for record in ledger.read()]
        history = reading.history(ledger)
    terms = [event for event in events if isinstance(event, TermBegan)]
    if [event.pid for event in terms] != [both.pids[winner]] or history.ended != "finished":
        raise Failed(f"its terms: {terms}; its end: {history.ended}")
    if [trial.status for trial in history.trials] != [Status.COMPLETED]:
        raise Failed(f"its trials: {history.trials}")
    return {"winner": winner, "waited": len(lines) > 1}


def run(out: Path, rounds: int, seed: int) -> int:
    """Make `rounds` races; return the number of failed ones."""
    cases = Cases(out, "drivers")
    stream = rng.generator(seed, "drivers")
    with racers() as both:
        for number in range(rounds):
            kind, apart_s = KINDS[number % len(KINDS)], stream.uniform(-APART_S, APART_S)

            def case(kind: str = kind, apart_s: float = apart_s) -> dict[str, Any]:
                root = Path(tempfile.mkdtemp(prefix="race-"))
                try:
                    return race(both, root, kind, apart_s)
                finally:
                    shutil.rmtree(root, ignore_errors=True)

            cases.run(f"seed {seed} race {number}: {kind}", case)
    return cases.close()


if __name__ == "__main__":
    main(run, rounds=200)
