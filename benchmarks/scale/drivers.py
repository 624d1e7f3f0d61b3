"""Drivers of several sweeps on one PostgreSQL server, while commands read them and stop trials.

Each driver has one worker process, whose trials mostly sleep. Every `SAMPLE_S` seconds the server's
connections and the memory of every driver are sampled. Between two samples one command is run, as a
person would from another terminal. At the end every sweep is stopped and verified, and its ledger
is compared with the expected results of its trials: each iteration once, each value to the bit.

All observations are appended to ``OUT/drivers.jsonl`` at once. A run that was interrupted
continues: its sweeps are resumed, and the minutes that were sampled count.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from sweep.history.events import Closed, Created, End, Opened, Recorded, TermBegan
from sweep.history.seeds import seed_of
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from tests.support.command_line import start
from tests.support.postgres import Server
from tests.support.quadratic import expected_loss
from trainables.core import rng

#: Seconds between two samples.
SAMPLE_S = 20.0
#: Commands that are run between samples, one after the other.
COMMANDS = ("status", "stop", "results", "ls", "stop", "show")
#: Settings of PostgreSQL as Debian has them: every transaction is synchronised to the disk.
SETTINGS = (
    "fsync = on\nfull_page_writes = on\nautovacuum = on\nshared_buffers = 128MB\n"
    "max_connections = 100\n"
)
CONFIG: Mapping[str, Any] = {"noise": 0.1, "step_s": 1.0}
SPEC: Mapping[str, Any] = {
    "trials": 1_000_000,
    "trainable": "tests.support.quadratic:Quadratic",
    "metric": "loss",
    "mode": "min",
    "config": CONFIG,
    "space": {"lr": {"loguniform": [1e-3, 0.9]}},
    "stop": {"training_iteration": 9},
    "searcher": "random",
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 3},
    "trackers": [],
}
Line = dict[str, Any]
"""One observation."""


class Log:
    """All observations of a run, as JSON lines in a file.

    Args:
        out: folder of the file; an existing file is continued.
    """

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.file = out / "drivers.jsonl"
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        complete = text[: text.rfind("\n") + 1]
        self.file.write_text(complete, "utf-8")
        self.lines: list[Line] = [json.loads(line) for line in complete.splitlines()]

    def add(self, kind: str, **result: Any) -> None:
        """Append one line to the file, and print it on standard error."""
        line = {"kind": kind, **result}
        self.lines.append(line)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        sys.stderr.write(f"{line}\n")

    def select(self, kind: str) -> list[Line]:
        """Return the lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]


class Sweeps:
    """The sweeps of a run, their drivers, and commands about them.

    Args:
        url: address of the database.
    """

    def __init__(self, out: Path, url: str, names: Sequence[str]) -> None:
        self.names = names
        self._out, self._url = out, url
        self._stream = rng.generator(0, "asked")
        self.drivers: dict[str, subprocess.Popen[str]] = {}

    def begin(self, name: str) -> None:
        """Start the sweep of this name, or resume it."""
        words: tuple[object, ...] = ("resume", name)
        if not (self._out / "sweeps" / name).exists():
            path = self._out / f"{name}.yaml"
            path.write_text(json.dumps({**SPEC, "name": name, "seed": self.names.index(name)}))
            words = ("run", path, "--storage", self._url)
        with (self._out / f"{name}.log").open("a", encoding="utf-8") as log:
            self.drivers[name] = start(
                *(*words, "--jobs", 1), cwd=self._out, stdout=log, stderr=log, process_group=0
            )

    def begin_all(self) -> None:
        """Start or resume all sweeps; return when each has a running trial.

        Raises SystemExit if a driver ended, or has no running trial after ten minutes.
        """
        for name in self.names:
            self.begin(name)
        deadline = time.monotonic() + 600
        for name in self.names:
            while '"state": "running"' not in self.command("status", name, "--json")[1]:
                if time.monotonic() > deadline or self.drivers[name].poll() is not None:
                    raise SystemExit(f"{name} has no running trial; see {self._out / name}.log")

    def command(self, *words: object) -> tuple[int, str, float]:
        """Run a command; return its exit code, its output, or else its error, and its seconds."""
        began = time.perf_counter()
        with start(*words, cwd=self._out) as process:
            output, error = process.communicate(timeout=600)
        return process.returncode, output or error, time.perf_counter() - began

    def try_command(self, command: str) -> Line:
        """Run one command about a random sweep.

        Returns:
            Its name, sweep, exit code and seconds, and its output as `failed` if it failed.
        """
        name = self.names[int(self._stream.integers(len(self.names)))]
        words: tuple[object, ...] = (command, name)
        if command == "ls":
            words = ("ls",)
        elif command == "show":
            words = ("show", name, 0)
        elif command == "stop":
            running = json.loads(self.command("status", name, "--json")[1])["running"]
            if not running:
                return {"command": command, "sweep": name, "skipped": True}
            words = ("stop", name, running[0]["trial"])
        code, output, seconds = self.command(*words)
        result: Line = {"command": command, "sweep": name, "code": code, "s": round(seconds, 3)}
        # A trial may end between the two commands.
        good = code == 0 or (command == "stop" and "has ended" in output)
        return result if good else {**result, "failed": output[-300:]}

    def end(self) -> Iterator[Line]:
        """Stop every sweep by a request and await its driver; yield a line for each."""
        for name in self.names:
            code, _, seconds = self.command("stop", name)
            ended = self.drivers[name].wait(600)
            yield {"sweep": name, "code": code, "ended": ended, "s": round(seconds, 3)}

    def kill(self) -> None:
        """Terminate the drivers that still run, after an error."""
        for driver in self.drivers.values():
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGTERM)
                driver.wait(120)


def measure(out: Path, minutes: float, count: int, sample_s: float = SAMPLE_S) -> dict[str, Any]:
    """Run the whole experiment, and return its figures (see `total`).

    Args:
        out: folder of all files; an interrupted run there is continued.
        minutes: time for which the drivers are sampled.
        sample_s: seconds between two samples.
    """
    out = out.resolve()
    log = Log(out)
    with contextlib.closing(Server(out / "postgres", SETTINGS)) as server:
        server.start()
        os.environ["PGPASSFILE"] = str(server.passfile)
        databases = log.select("database")
        url = databases[0]["url"] if databases else server.database()
        if not databases:
            log.add("database", url=url)
        sweeps = Sweeps(out, url, [f"sweep-{number}" for number in range(count)])
        try:
            sweeps.begin_all()
            _watch(log, server, sweeps, 60 * minutes, sample_s)
            for line in sweeps.end():
                log.add("end", **line)
        finally:
            sweeps.kill()
        for name in sweeps.names:
            code, output, _ = sweeps.command("verify", name)
            result = check(read(Folder(out / "sweeps", name)), sweeps.names.index(name))
            log.add("verified", sweep=name, code=code, output=output.strip()[-300:], **result)
        log.add("size", bytes=_query(server, url, "SELECT pg_database_size(current_database())"))
    return total(log)


def _watch(log: Log, server: Server, sweeps: Sweeps, seconds: float, sample_s: float) -> None:
    """Sample and run commands until `seconds` have passed, in this run and in earlier ones."""
    past_s = sum(line["s"] for line in log.select("sample"))
    number = len(log.select("command"))
    while past_s < seconds:
        began = time.monotonic()
        log.add("command", **sweeps.try_command(COMMANDS[number % len(COMMANDS)]))
        number += 1
        time.sleep(max(0.0, sample_s - (time.monotonic() - began)))
        for name, driver in sweeps.drivers.items():
            if driver.poll() is not None:
                log.add("died", sweep=name, code=driver.returncode)
                sweeps.begin(name)
        now = time.monotonic() - began
        past_s += now
        log.add("sample", s=round(now, 1), **_sample(server, sweeps))


def _sample(server: Server, sweeps: Sweeps) -> Line:
    """Return the server's connections, each driver's MB of memory, and all drivers' CPU seconds."""
    memory, cpu = [], 0.0
    for driver in sweeps.drivers.values():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(driver.pid)
            memory.append(round(process.memory_info().rss / 1e6, 1))
            times = process.cpu_times()
            cpu += times.user + times.system
    return {"connections": len(server.backends()), "memory": memory, "cpu": round(cpu, 1)}


def _query(server: Server, url: str, query: str) -> Any:
    with server.admin(url.rpartition("/")[2]) as connection:
        result = connection.execute(query.encode()).fetchone()
    return result and result[0]


# ---- the expected ledger ------------------------------------------------------------------------


def read(folder: Folder) -> list[Recorded]:
    """Return all events of a sweep."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return [record for batch in iterate(ledger) for record in batch]


def check(records: Sequence[Recorded], sweep_seed: int) -> Line:
    """Compare a sweep's events with the expected results of its trials.

    Returns:
        The numbers of events, slices, iterations and failed slices; the milliseconds from a slice's
        end to the next slice's beginning (see `_next`); and up to five errors, empty if there are
        none.
    """
    closed = _events(records, Closed)
    wrong = [f"event {r.number} is number {k}" for k, r in enumerate(records, 1) if r.number != k]
    wrong += _wrong_slices(records)
    wrong += _wrong_curves(records, sweep_seed)
    return {
        "events": len(records),
        "slices": len(closed),
        "iterations": sum(len(event.rows) for event in closed),
        "failed_slices": sum(event.end in (End.CRASHED, End.LOST) for event in closed),
        "next_ms": _next(records),
        "wrong": wrong[:5],
    }


def _wrong_slices(records: Sequence[Recorded]) -> Iterator[str]:
    """Yield an error for slices that were opened or ended twice, or ended but never opened."""
    opened = [(event.trial, event.slice) for event in _events(records, Opened)]
    ended = [(event.trial, event.slice) for event in _events(records, Closed)]
    for verb, slices in (("opened", opened), ("ended", ended)):
        if len(set(slices)) != len(slices):
            yield f"a slice was {verb} twice"
    if strange := set(ended) - set(opened):
        yield f"{len(strange)} slices ended but were never opened"


def _wrong_curves(records: Sequence[Recorded], sweep_seed: int) -> Iterator[str]:
    """Yield an error for each iteration that is missing, repeated, or has a wrong value."""
    settings = {event.trial: event.config for event in _events(records, Created)}
    newest: dict[int, int] = {}
    for event in _events(records, Closed):
        seed = seed_of(sweep_seed, event.trial, 0)
        for row in event.rows:
            before = newest.get(event.trial, 0)
            if row.iteration != before + 1:
                yield f"trial {event.trial}: iteration {row.iteration} follows {before}"
            newest[event.trial] = row.iteration
            loss = row.metrics["loss"]
            if loss != expected_loss(settings[event.trial], row.iteration, seed):
                yield f"trial {event.trial}, iteration {row.iteration}: {loss}"


def _events(records: Sequence[Recorded], kind: type[Any]) -> list[Any]:
    return [record.event for record in records if isinstance(record.event, kind)]


def _next(records: Sequence[Recorded]) -> list[float]:
    """Return the `spread` of the milliseconds from a slice's end to the next slice's beginning.

    Only the first slice that begins after an end is counted.
    """
    waits, before = [], None
    for record in records:
        if isinstance(record.event, Opened) and before is not None:
            waits.append(1e3 * (record.time - before))
        if isinstance(record.event, Closed):
            before = record.time
        elif isinstance(record.event, Opened | TermBegan):
            before = None
    return spread(waits)


def spread(values: Sequence[float]) -> list[float]:
    """Return median, 99th percentile and maximum; an empty list if there are no values."""
    if not values:
        return []
    ordered = sorted(values)
    percentile = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return [round(value, 3) for value in (statistics.median(ordered), percentile, ordered[-1])]


# ---- figures ------------------------------------------------------------------------------------


def total(log: Log) -> dict[str, Any]:
    """Return the figures of a run; its `wrong` lists all errors."""
    samples = log.select("sample")
    verified = list({line["sweep"]: line for line in log.select("verified")}.values())
    commands = [line for line in log.select("command") if "skipped" not in line]
    complete = [line for line in samples if len(line["memory"]) == len(verified)]
    wrong: list[Any] = [line for line in commands if "failed" in line]
    wrong += [*log.select("died")]
    wrong += [line for line in verified if line["code"] or line["wrong"] or line["failed_slices"]]
    wrong += [line for line in log.select("end") if line["code"]]
    ended = {line["sweep"] for line in log.select("end")}
    wrong += [f"{line['sweep']} was not stopped" for line in verified if line["sweep"] not in ended]
    quarter = max(1, len(complete) // 4)
    return {
        "minutes": round(sum(line["s"] for line in samples) / 60, 1),
        "sweeps": len(verified),
        "events": sum(line["events"] for line in verified),
        "slices": sum(line["slices"] for line in verified),
        "iterations": sum(line["iterations"] for line in verified),
        "connections": max((line["connections"] for line in samples), default=0),
        "megabytes": [
            round(statistics.fmean(size for line in some for size in line["memory"]), 1)
            for some in (complete[:quarter], complete[-quarter:])
            if some
        ],
        "database_bytes": log.select("size")[-1]["bytes"],
        "commands": {
            command: [len(times), *spread(times)]
            for command in sorted(set(COMMANDS))
            if (times := [line["s"] for line in commands if line["command"] == command])
        },
        "next_ms": [
            statistics.median(line["next_ms"][0] for line in verified if line["next_ms"]),
            max(line["next_ms"][1] for line in verified if line["next_ms"]),
            max(line["next_ms"][2] for line in verified if line["next_ms"]),
        ],
        "wrong": wrong,
    }
