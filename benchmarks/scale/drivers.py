"""Drivers of several sweeps on one PostgreSQL server, while others look at them and stop trials.

Each driver has one worker process, whose trials mostly sleep. A look is taken every `LOOK_S`: the
server's connections, the memory of every driver. Between two looks one command is typed, as a
person would from another terminal. At the end every sweep is stopped, verified, and its ledger is
compared with what its trials must have reported: each iteration once, each value to the bit.

What was seen stands in ``OUT/drivers.jsonl``, a line as soon as it is known. A run that was
interrupted goes on: its sweeps are resumed, and the minutes that were seen count.
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

#: Seconds between two looks, and the commands that are typed between them, in turn.
LOOK_S = 20.0
COMMANDS = ("status", "stop", "results", "ls", "stop", "show")
#: A server as Debian sets it up: it puts every transaction on the disk.
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


class Log:
    """A JSON line for everything that was seen."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.file = out / "drivers.jsonl"
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self.file.write_text(whole, "utf-8")
        self.lines: list[Line] = [json.loads(line) for line in whole.splitlines()]

    def add(self, kind: str, **found: Any) -> None:
        """Write one line, and show it."""
        line = {"kind": kind, **found}
        self.lines.append(line)
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        sys.stderr.write(f"{line}\n")

    def of(self, kind: str) -> list[Line]:
        """The lines of one kind."""
        return [line for line in self.lines if line["kind"] == kind]


class Sweeps:
    """The sweeps of a run, their drivers, and the commands that others type."""

    def __init__(self, out: Path, url: str, names: Sequence[str]) -> None:
        self.names = names
        self._out, self._url = out, url
        self._stream = rng.generator(0, "asked")
        self.drivers: dict[str, subprocess.Popen[str]] = {}

    def begin(self, name: str) -> None:
        """Start its driver, or resume it."""
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
        """Start or resume all; returns when each has a trial that runs."""
        for name in self.names:
            self.begin(name)
        deadline = time.monotonic() + 600
        for name in self.names:
            while '"state": "running"' not in self.type("status", name, "--json")[1]:
                if time.monotonic() > deadline or self.drivers[name].poll() is not None:
                    raise SystemExit(f"{name} does not begin; see {self._out / name}.log")

    def type(self, *words: object) -> tuple[int, str, float]:
        """Exit code, answer and seconds of a command, from the shell to its end."""
        began = time.perf_counter()
        with start(*words, cwd=self._out) as process:
            said, error = process.communicate(timeout=600)
        return process.returncode, said or error, time.perf_counter() - began

    def ask(self, command: str) -> Line:
        """Type one command about a sweep that is drawn, and judge its answer."""
        name = self.names[int(self._stream.integers(len(self.names)))]
        words: tuple[object, ...] = (command, name)
        if command == "ls":
            words = ("ls",)
        elif command == "show":
            words = ("show", name, 0)
        elif command == "stop":
            running = json.loads(self.type("status", name, "--json")[1])["running"]
            if not running:
                return {"command": command, "sweep": name, "skipped": True}
            words = ("stop", name, running[0]["trial"])
        code, said, seconds = self.type(*words)
        found: Line = {"command": command, "sweep": name, "code": code, "s": round(seconds, 3)}
        # A trial may end between the look at it and the request to stop it.
        good = code == 0 or (command == "stop" and "has ended" in said)
        return found if good else {**found, "failed": said[-300:]}

    def end(self) -> Iterator[Line]:
        """Stop every sweep by a request, await its driver, and verify it."""
        for name in self.names:
            code, _, seconds = self.type("stop", name)
            ended = self.drivers[name].wait(600)
            yield {"sweep": name, "code": code, "ended": ended, "s": round(seconds, 3)}

    def kill(self) -> None:
        """End the drivers that are left, after an error."""
        for driver in self.drivers.values():
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGTERM)
                driver.wait(120)


def measure(out: Path, minutes: float, count: int, look_s: float = LOOK_S) -> dict[str, Any]:
    """Run everything, and return the sum of what was seen."""
    out = out.resolve()
    log = Log(out)
    with contextlib.closing(Server(out / "postgres", SETTINGS)) as server:
        server.start()
        os.environ["PGPASSFILE"] = str(server.passfile)
        databases = log.of("database")
        url = databases[0]["url"] if databases else server.database()
        if not databases:
            log.add("database", url=url)
        its = Sweeps(out, url, [f"sweep-{number}" for number in range(count)])
        try:
            its.begin_all()
            _watch(log, server, its, 60 * minutes, look_s)
            for line in its.end():
                log.add("end", **line)
        finally:
            its.kill()
        for name in its.names:
            code, said, _ = its.type("verify", name)
            found = check(read(Folder(out / "sweeps", name)), its.names.index(name))
            log.add("verified", sweep=name, code=code, said=said.strip()[-300:], **found)
        log.add("size", bytes=_asked(server, url, "SELECT pg_database_size(current_database())"))
    return total(log)


def _watch(log: Log, server: Server, its: Sweeps, seconds: float, look_s: float) -> None:
    """Look and ask until so many seconds have been seen, in this run and in earlier ones."""
    seen = sum(line["s"] for line in log.of("look"))
    number = len(log.of("asked"))
    while seen < seconds:
        began = time.monotonic()
        log.add("asked", **its.ask(COMMANDS[number % len(COMMANDS)]))
        number += 1
        time.sleep(max(0.0, look_s - (time.monotonic() - began)))
        for name, driver in its.drivers.items():
            if driver.poll() is not None:
                log.add("died", sweep=name, code=driver.returncode)
                its.begin(name)
        now = time.monotonic() - began
        seen += now
        log.add("look", s=round(now, 1), **_look(server, its))


def _look(server: Server, its: Sweeps) -> Line:
    """The server's connections, and what every driver takes."""
    memory, cpu = [], 0.0
    for driver in its.drivers.values():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(driver.pid)
            memory.append(round(process.memory_info().rss / 1e6, 1))
            times = process.cpu_times()
            cpu += times.user + times.system
    return {"connections": len(server.backends()), "memory": memory, "cpu": round(cpu, 1)}


def _asked(server: Server, url: str, query: str) -> Any:
    with server.admin(url.rpartition("/")[2]) as connection:
        found = connection.execute(query.encode()).fetchone()
    return found and found[0]


# ---- what the ledger must hold ------------------------------------------------------------------


def read(folder: Folder) -> list[Recorded]:
    """All events of a sweep."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return [record for batch in iterate(ledger) for record in batch]


def check(records: Sequence[Recorded], sweep_seed: int) -> Line:
    """Compare a sweep's events with what its trials must have reported.

    Returns:
        How many events, slices and iterations there are; from a slice's end to the next one's
        beginning in milliseconds, if nothing else was waited for; what is wrong.
    """
    closed = _events(records, Closed)
    wrong = [f"event {r.k} is number {k}" for k, r in enumerate(records, 1) if r.k != k]
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
    """Slices that were opened or ended twice, or ended without having been opened."""
    opened = [(event.trial, event.slice) for event in _events(records, Opened)]
    ended = [(event.trial, event.slice) for event in _events(records, Closed)]
    for what, slices in (("opened", opened), ("ended", ended)):
        if len(set(slices)) != len(slices):
            yield f"a slice was {what} twice"
    if strange := set(ended) - set(opened):
        yield f"{len(strange)} slices ended that were not opened"


def _wrong_curves(records: Sequence[Recorded], sweep_seed: int) -> Iterator[str]:
    """Iterations that are missing, came twice, or have another value than they must."""
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
    """Median, 99th percentile and most of the milliseconds from an end to the next beginning."""
    waits, before = [], None
    for record in records:
        if isinstance(record.event, Opened) and before is not None:
            waits.append(1e3 * (record.at - before))
        if isinstance(record.event, Closed):
            before = record.at
        elif isinstance(record.event, Opened | TermBegan):
            before = None
    return spread(waits)


def spread(values: Sequence[float]) -> list[float]:
    """Median, 99th percentile and greatest; nothing of nothing."""
    if not values:
        return []
    ordered = sorted(values)
    nearly = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return [round(value, 3) for value in (statistics.median(ordered), nearly, ordered[-1])]


# ---- the sum ------------------------------------------------------------------------------------


def total(log: Log) -> dict[str, Any]:
    """The figures of a run, and `wrong`: everything that must not be."""
    looks = log.of("look")
    verified = list({line["sweep"]: line for line in log.of("verified")}.values())
    asked = [line for line in log.of("asked") if "skipped" not in line]
    whole = [line for line in looks if len(line["memory"]) == len(verified)]
    wrong: list[Any] = [line for line in asked if "failed" in line]
    wrong += [*log.of("died")]
    wrong += [line for line in verified if line["code"] or line["wrong"] or line["failed_slices"]]
    wrong += [line for line in log.of("end") if line["code"]]
    ended = {line["sweep"] for line in log.of("end")}
    wrong += [f"{line['sweep']} was not stopped" for line in verified if line["sweep"] not in ended]
    quarter = max(1, len(whole) // 4)
    return {
        "minutes": round(sum(line["s"] for line in looks) / 60, 1),
        "sweeps": len(verified),
        "events": sum(line["events"] for line in verified),
        "slices": sum(line["slices"] for line in verified),
        "iterations": sum(line["iterations"] for line in verified),
        "connections": max((line["connections"] for line in looks), default=0),
        "megabytes": [
            round(statistics.fmean(size for line in some for size in line["memory"]), 1)
            for some in (whole[:quarter], whole[-quarter:])
            if some
        ],
        "database_bytes": log.of("size")[-1]["bytes"],
        "commands": {
            command: [len(times), *spread(times)]
            for command in sorted(set(COMMANDS))
            if (times := [line["s"] for line in asked if line["command"] == command])
        },
        "next_ms": [
            statistics.median(line["next_ms"][0] for line in verified if line["next_ms"]),
            max(line["next_ms"][1] for line in verified if line["next_ms"]),
            max(line["next_ms"][2] for line in verified if line["next_ms"]),
        ],
        "wrong": wrong,
    }
