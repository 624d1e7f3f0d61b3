"""Two commands start at one moment: one runs the sweep, the other is code 3 and says who does.

    python -m benchmarks.chaos.drivers [--out DIR] [--rounds N] [--seed S]

A round is one race of one of the `KINDS`, in turn. Two processes, which have everything imported,
begin some milliseconds apart, drawn by chance; whoever wins trains until the loser has ended. Other
machines are played: another name, another kernel, locks that are not shared, short leases.
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
from sweep.driver.creation import creating, resolving
from sweep.history.events import Status, TermBegan
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations import ledger_check
from sweep.views import reading
from tests.support.other_machine import become
from trainables import Trainable
from trainables.core import rng

#: What races: two `sweep run` of one name; two `sweep resume`, of a sweep that was never driven,
#: whose driver was killed here, on two machines, and there after the driver on a third one died.
KINDS = ("run", "resume", "killed", "machines", "a machine died")
#: Seconds between the two starts at most.
APART_S = 0.02
#: Seconds that everything may take.
LIMIT_S = 120.0
#: Seconds without a sign of life after which a machine is dead, by kind; only the last one waits.
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
    """Trains until a file appears."""

    def setup(self, config: dict[str, Any]) -> None:
        """Remember the file."""
        self.release = Path(config["release"])

    def step(self) -> dict[str, Any]:
        """Wait for it."""
        deadline = time.monotonic() + LIMIT_S
        while not self.release.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        return {"loss": 0.0}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Nothing stays."""
        return {}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Nothing comes back."""


# ---- the processes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """The message to a racer."""

    words: tuple[str, ...]
    at: float
    """When it begins, on the monotonic clock."""
    machine: str
    """The one that it plays; empty: this one."""
    lease_s: float


@dataclass(frozen=True)
class End:
    """The answer of a racer."""

    code: int
    said: str


def _race(orders: Connection) -> None:
    """A racer's life: it runs each command that it is told, at the moment that it is told."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from sweep.ledger import folder, hold, lease

    alone = (lease.this_host, folder.LOCK, hold.LEASE_S, hold.RENEW_S)
    while (start := orders.recv()) is not None:
        lease.this_host, folder.LOCK, hold.LEASE_S, hold.RENEW_S = alone
        if start.machine:
            become(start.machine, start.lease_s, RENEW_S)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            while time.monotonic() < start.at:
                time.sleep(0)
            code = cli.main(start.words)
        orders.send(End(code, said.getvalue()))


class Racers:
    """Two processes that race as often as they are told."""

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
        """Return the ends of both; the file `release` is made when the first one has ended."""
        for line, start in zip(self.lines, starts, strict=True):
            line.send(start)
        try:
            if not wait(self.lines, LIMIT_S):
                raise Failed("both run it, or neither ends")
        finally:
            release.touch()
        ends = []
        for line in self.lines:
            if not line.poll(LIMIT_S):
                raise Failed("the winner does not end")
            ends.append(line.recv())
        return ends

    def close(self) -> None:
        """End them."""
        for line in self.lines:
            with contextlib.suppress(OSError):
                line.send(None)
        for process in self._processes:
            process.join(10.0)
            process.kill()


# ---- a race -------------------------------------------------------------------------------------


@contextlib.contextmanager
def racers() -> Iterator[Racers]:
    """Two processes that are ready to race."""
    both = Racers()
    try:
        yield both
    finally:
        both.close()


def race(both: Racers, root: Path, kind: str, apart_s: float) -> dict[str, Any]:
    """One race; `apart_s` is how much later the second one starts, or the first."""
    folder, release = Folder(root / "sweeps", "demo"), root / "release"
    text = SPEC.format(name="demo", release=release)
    if kind == "run":
        path = root / "spec.yaml"
        path.write_text(text)
        words: tuple[str, ...] = ("run", str(path))
    else:
        spec = specs.parse(text, "race")
        creating.create(folder, resolving.resolve(spec, (), new=True), text)
        words = ("resume", "demo")
        _before(folder, kind)
    words = (*words, "--pool", "inline", "--root", str(folder.root))
    machines = ("a", "b") if kind in LEASES_S else ("", "")
    began = time.monotonic() + 0.05
    starts = [
        Start(words, began + max(0.0, later), machine, LEASES_S.get(kind, 0.0))
        for later, machine in zip((-apart_s, apart_s), machines, strict=True)
    ]
    return _judge(folder, both, both.race((starts[0], starts[1]), release), machines)


def _before(folder: Folder, kind: str) -> None:
    """Leave behind what the driver before them left."""
    values = {
        "killed": "pid = 999999999",
        "machines": "host = NULL",
        "a machine died": "host = 'c', kernel = 'kernel of c', pid = 1",
    }
    if kind in values:
        with contextlib.closing(sqlite3.connect(folder.ledger)) as database, database:
            database.execute(f"UPDATE lease SET {values[kind]}")  # noqa: S608 of ours


def _judge(
    folder: Folder, both: Racers, ends: list[End], machines: tuple[str, str]
) -> dict[str, Any]:
    """Raise Failed unless one ran it and the other says who."""
    codes = [end.code for end in ends]
    if sorted(codes) != [0, 3]:
        raise Failed(f"they ended with {codes}: {[end.said for end in ends]}")
    winner = codes.index(0)
    said = ends[1 - winner].said.splitlines()
    who = f"process {both.pids[winner]} on {machines[winner]}"
    if "demo is active elsewhere: " not in said[-1] or who not in said[-1]:
        raise Failed(f"the loser does not say that {who} runs it: {said}")
    if damages := ledger_check.check(folder.ledger):
        raise Failed(f"the ledger: {damages}")
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        events = [record.event for record in ledger.read()]
        history = reading.history(ledger)
    terms = [event for event in events if isinstance(event, TermBegan)]
    if [event.pid for event in terms] != [both.pids[winner]] or history.ended != "finished":
        raise Failed(f"it was begun by {terms} and {history.ended}")
    if [trial.status for trial in history.trials] != [Status.COMPLETED]:
        raise Failed(f"its trials: {history.trials}")
    return {"winner": winner, "waited": len(said) > 1}


def run(out: Path, rounds: int, seed: int) -> int:
    """`rounds` races; returns how many failed."""
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
