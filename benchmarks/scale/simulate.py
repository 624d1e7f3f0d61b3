"""One driver over a simulated pool: its costs per slice, by the number of trials.

Driver, ledger, scheduler and searcher are real, and the ledger is a file on the disk. A trial runs
for simulated minutes, so slices end one at a time: the driver records each end in a transaction of
its own, decides, and starts the next slice, which is the most expensive case. The time of the
simulation is not counted.

For every `STEP` trials a line is written to ``OUT/simulate-NAME.jsonl``. A run that was interrupted
continues with the trials in its ledger; a file beside the ledger contains the simulated
checkpoints. Because the first hundred thousand trials may take hours, they can instead be written
into the ledger at once (`filled`), and only the later ones are driven.
"""

import gc
import json
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engine import large
from benchmarks.scale.drivers import spread
from sweep.cli.main import GARBAGE_AFTER
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.ledger.folder import Folder
from sweep.slices.messages import SliceSpec
from sweep.testing.curves import SECONDS, CurvePoint
from sweep.testing.pool import Pool, SimulatedCheckpoint, SimulatedClock

#: Trials between two lines.
STEP = 1_000
#: Iterations of a completed trial.
ITERATIONS = 9
#: Events per end of a slice, at most, in lines that are reported; while a driver fills its slots at
#: the beginning there are more.
MOST_EVENTS = 6
ASHA: Mapping[str, Any] = {"name": "asha", "grace_period": 1, "reduction_factor": 3}
PRIOR = ["ppo/CartPole-v1", "ppo/Acrobot-v1", "ppo/Pendulum-v1"]
#: Name of a search → keys of its spec.
SEARCHES: Mapping[str, Mapping[str, Any]] = {
    "random": {},
    "asha": {"scheduler": ASHA},
    "tpe": {"searcher": {"name": "tpe", "window": 300}},
    "default": {
        "scheduler": "asha",
        "searcher": {"name": "tpe", "prior": PRIOR},
        "seeds": "auto",
        "space": {
            "x": {"uniform": [0.0, 1.0]},
            "lr": {"loguniform": [1e-5, 1e-2]},
            "gamma": {"choice": [0.9, 0.95, 0.99, 0.995]},
            "clip_param": {"uniform": [0.1, 0.4]},
            "entropy_coeff": {"loguniform": [1e-6, 1e-2]},
            "num_sgd_iter": {"randint": [1, 16]},
        },
    },
}
SPEC: Mapping[str, Any] = {
    "metric": "score",
    "mode": "max",
    "trainable": "sweep.testing.curves:Played",
    "space": {"x": {"uniform": [0.0, 1.0]}, "y": {"loguniform": [1e-5, 1e-1]}},
    "stop": {"training_iteration": ITERATIONS},
    "limits": {"slice_s": 1_000_000.0},
    "checkpoint": {"every": ITERATIONS},
    "searcher": "random",
    "trackers": [],
}

Line = dict[str, Any]
"""The measurements of `STEP` trials."""


class _Disk(MutableMapping[str, SimulatedCheckpoint]):
    """Simulated checkpoints, digest → state, in a file.

    They are kept after the process has ended, and need none of its memory.
    """

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None)
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=OFF")
        self._file.execute("CREATE TABLE IF NOT EXISTS saved (digest TEXT PRIMARY KEY, state TEXT)")

    def __getitem__(self, digest: str) -> SimulatedCheckpoint:
        query = "SELECT state FROM saved WHERE digest = ?"
        row = self._file.execute(query, (digest,)).fetchone()
        if row is None:
            raise KeyError(digest)
        return SimulatedCheckpoint(**json.loads(row[0]))

    def __setitem__(self, digest: str, state: SimulatedCheckpoint) -> None:
        text = json.dumps({"iteration": state.iteration, "result": {}, "counters": state.counters})
        self._file.execute("INSERT OR REPLACE INTO saved VALUES (?, ?)", (digest, text))

    def __delitem__(self, digest: str) -> None:
        self._file.execute("DELETE FROM saved WHERE digest = ?", (digest,))

    def __iter__(self) -> Iterator[str]:
        return (digest for (digest,) in self._file.execute("SELECT digest FROM saved"))

    def __len__(self) -> int:
        return int(self._file.execute("SELECT count(*) FROM saved").fetchone()[0])

    def close(self) -> None:
        self._file.close()


@dataclass
class Meter:
    """Clock of the driver: CPU seconds of this process without those of the simulation."""

    simulated: float = 0.0
    """CPU seconds of the simulation."""
    ended: float | None = None
    """Reading of this clock at the newest end of a slice, or None before the first."""
    waits: list[float] = field(default_factory=list)
    """Seconds from the end of a slice to each beginning of a slice before the next end."""
    ends: int = 0
    """Number of slices that ended."""

    @property
    def now(self) -> float:
        """CPU seconds of the driver until now."""
        return time.process_time() - self.simulated

    @contextmanager
    def simulating(self) -> Iterator[None]:
        """Count the CPU time of a ``with`` block as the simulation's."""
        began = time.process_time()
        yield
        self.simulated += time.process_time() - began


class _Pool(Pool):
    """Simulated slots that record the beginning of each slice in a meter."""

    def __init__(self, slots: int, clock: SimulatedClock, meter: Meter) -> None:
        super().__init__(slots, clock)
        self._meter = meter

    def submit(self, spec: SliceSpec) -> Any:
        """Simulate the slice; its time is not counted as the driver's."""
        meter = self._meter
        if meter.ended is not None:
            meter.waits.append(meter.now - meter.ended)
        with meter.simulating():
            return super().submit(spec)


class _Driver(Driver):
    """Driver that advances the simulated clock instead of waiting for slices."""

    clock: SimulatedClock
    meter: Meter

    def _collect(self) -> None:
        with self.meter.simulating():
            before = len(self.clock.running)
            self.clock.advance()
        self.meter.ends += before - len(self.clock.running)
        self.meter.ended = self.meter.now
        super()._collect()


def curve(point: CurvePoint) -> dict[str, Any]:
    """Return the result of an iteration: the score grows with `x`; the time is 20 to 40 s."""
    chance = (point.trial * 2_654_435_761 + point.iteration) % 2**32 / 2**32
    return {"score": point.config["x"] * point.iteration, SECONDS: 20.0 + chance * 20.0}


def measure(
    out: Path, name: str, trials: int, slots: int, step: int = STEP, filled: int = 0
) -> list[Line]:
    """Run one search, or continue it; return all its lines.

    Args:
        name: key of `SEARCHES`.
        trials: number of trials at the end.
        step: trials between two lines.
        filled: number of trials that are written into a new ledger at once, not driven.
    """
    out.mkdir(parents=True, exist_ok=True)
    log = out / f"simulate-{name}.jsonl"
    folder = _folder(out, name, filled)
    usual = gc.get_threshold()
    gc.set_threshold(GARBAGE_AFTER)  # the value of commands
    try:
        with (
            closing(_Disk(out / f"{folder.name}.db")) as disk,
            log.open("a", encoding="utf-8") as stream,
        ):
            clock = SimulatedClock(curve, saves=True, disk=disk)
            for figures in _lines(folder, clock, trials, slots, step):
                line = {**figures, "filled": filled}
                stream.write(json.dumps(line) + "\n")
                stream.flush()
                sys.stderr.write(f"{name}: {line}\n")
    finally:
        gc.set_threshold(*usual)
    return read(out, name)


def _folder(out: Path, name: str, filled: int) -> Folder:
    """Return the sweep's folder of a search; create the sweep if there is none."""
    folder = Folder(out / "simulated", f"{name}-{filled}")
    if folder.path.exists():
        return folder
    waits = "scheduler" in SEARCHES[name]  # at the first rung
    changes = {**SPEC, **SEARCHES[name], "name": folder.name}
    return large.make(folder.root, filled, 1 if waits else ITERATIONS, waits, **changes)


def _lines(
    folder: Folder, clock: SimulatedClock, trials: int, slots: int, step: int
) -> Iterator[Line]:
    meter = Meter()
    request = Launch(folder, slots, trials=trials)
    with launch.open_context(request, lambda many: _Pool(many, clock, meter)) as (
        context,
        _warnings,
    ):
        driver = _Driver(context, lambda _records: None)
        driver.clock, driver.meter = clock, meter
        history = context.history
        due = (len(history.trials) // step + 1) * step
        wall, cpu, ends, events = time.perf_counter(), meter.now, 0, history.k
        for _ in driver.turns():
            if len(history.trials) < min(due, trials):
                continue
            due += step
            now = meter.now
            done = meter.ends - ends
            yield {
                "trials": len(history.trials),
                "events": history.k,
                "ends": done,
                "cpu_ms": round(1e3 * (now - cpu) / done, 4),
                "events_per_end": round((history.k - events) / done, 2),
                "next_ms": spread([1e3 * wait for wait in meter.waits]),
                "wall_ms": round(1e3 * (time.perf_counter() - wall) / done, 4),
                "rss": psutil.Process().memory_info().rss,
                "ledger": _size(folder),
            }
            if len(history.trials) >= trials:
                return
            meter.waits.clear()
            wall, cpu, ends, events = time.perf_counter(), meter.now, meter.ends, history.k


def _size(folder: Folder) -> int:
    """Return the bytes of the ledger, including the journal of its database."""
    return sum(path.stat().st_size for path in folder.path.glob("sweep.db*"))


def read(out: Path, name: str) -> list[Line]:
    """Return the lines of a search, except those of a beginning in which slots were filled."""
    log = out / f"simulate-{name}.jsonl"
    text = log.read_text("utf-8") if log.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    return sorted(
        (line for line in lines if line["next_ms"] and line["events_per_end"] < MOST_EVENTS),
        key=lambda line: int(line["trials"]),
    )
