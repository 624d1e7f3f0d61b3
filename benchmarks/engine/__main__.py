"""Measure the costs of the engine itself, and print a table.

    python -m benchmarks.engine [--trials 200] [--lengths 100 1000 5000] [--rounds 5] [--shown 5000]

The table has start times of commands and their ratio to the time of ``import torch``, measured
alternately on the same machine, because the ratios of several machines can be compared. All files
are in a temporary folder.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engine import large
from sweep.cli.main import GARBAGE_AFTER
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.tables import connect_read_only
from sweep.testing.curves import CurvePoint
from sweep.testing.pool import Pool, SimulatedClock

REPOSITORY = Path(__file__).resolve().parents[2]
SWEEP = (sys.executable, "-m", "sweep.cli.main")
TORCH = (sys.executable, "-c", "import torch")
#: A trainable that does nothing, in a module of its own.
TRIVIAL = """
from trainables import Trainable


class Trivial(Trainable):
    def setup(self, config):
        self.score = config["x"]

    def step(self):
        return {"score": self.score}

    def save_checkpoint(self, checkpoint_dir):
        return {"score": self.score}

    def load_checkpoint(self, checkpoint):
        self.score = checkpoint["score"]
"""
#: Number of the driver's turns that are measured, and of those before, which are not: in them
#: objects are created that a driver creates once, and the first promotions are decided.
COUNTED, FIRST = 100, 60
#: Name of the sweep for which the cost of a trial is measured; for others, that of an event.
TRIAL = "trial"
ASHA = {"scheduler": "asha", "stop": {"training_iteration": 9}}
#: Name of a sweep → keys of its spec, and True if its trials wait for a decision.
SWEEPS: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    TRIAL: ({}, False),
    "asha": (ASHA, True),
    "seeds": ({**ASHA, "seeds": "auto"}, True),
}

Line = tuple[str, str]
"""A measurement and its result, both as text."""


def main() -> None:
    """Measure, and print each line as soon as its result is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trials",
        type=int,
        default=200,
        help="number of trivial trials of the sweep whose speed is measured",
    )
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[100, 1_000, 5_000], help="trials"
    )
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of each command")
    parser.add_argument(
        "--shown",
        type=int,
        default=5_000,
        help="trials, each with 100 results, of the sweep that is read",
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep-engine-") as place:
        lines = measure(Path(place), given.trials, given.lengths, given.rounds, given.shown)
        for label, result in lines:
            sys.stdout.write(f"| {label:58} | {result:32} |\n")
            sys.stdout.flush()


def measure(
    place: Path, trials: int, lengths: Sequence[int], rounds: int, shown: int
) -> Iterator[Line]:
    """Yield the line of each measurement.

    Args:
        trials: number of trivial trials of the sweep whose speed is measured.
        lengths: numbers of trials after which the cost of the next trial is measured.
        rounds: repetitions of each command.
        shown: number of trials of the sweep that is read.
    """
    for length in lengths:
        cpu = cost(place / "lengths", TRIAL, length)
        yield f"CPU ms per trial at number {length:,}: driver and ledger", f"{cpu:.2f}"
    yield from throughput(place, trials)
    yield from start(place, rounds)
    yield from reading(place, rounds, shown)


def cost(place: Path, name: str, trials: int) -> float:
    """Return the CPU milliseconds of driver and ledger for one more trial, or event.

    No trial trains, and the time of simulating them is not counted. Garbage is collected as often
    as in a command. In a sweep whose trials wait, most decisions compare all trials.

    Args:
        name: key of `SWEEPS`.
        trials: number of earlier trials in the ledger.
    """
    changes, wait = SWEEPS[name]
    folder = large.make(place, trials, name=f"{name}-{trials}", wait=wait, **changes)
    simulated = [0.0]
    usual = gc.get_threshold()
    gc.set_threshold(GARBAGE_AFTER)
    try:
        with stepping(folder, trials + 2 * (FIRST + COUNTED), simulated) as (history, turns):
            for _ in range(FIRST):
                next(turns)
            count = len(history.trials) if name == TRIAL else history.k
            began = time.process_time() - simulated[0]
            for _ in range(COUNTED):
                next(turns)
            spent = time.process_time() - simulated[0] - began
            return 1e3 * spent / ((len(history.trials) if name == TRIAL else history.k) - count)
    finally:
        gc.set_threshold(*usual)


@contextmanager
def stepping(
    folder: Folder, trials: int, simulated: list[float]
) -> Iterator[tuple[History, Iterator[None]]]:
    """Return the history of a sweep and the turns of its driver, with simulated training.

    Args:
        simulated: list of one number, to which the CPU seconds spent on simulating are added.
    """
    clock = SimulatedClock(_flat, saves=True)

    class Stepping(Driver):
        def _collect(self) -> None:
            began = time.process_time()
            clock.advance()
            simulated[0] += time.process_time() - began
            super()._collect()

    request = Launch(folder, 2, trials=trials)
    with (
        launch.open_context(request, lambda slots: Pool(slots, clock)) as (parts, _warnings),
        closing(Stepping(parts, lambda _records: None).turns()) as turns,
    ):
        yield parts.history, turns


def _flat(at: CurvePoint) -> dict[str, Any]:
    return {"score": float(at.trial % 20)}


# ---- whole commands -----------------------------------------------------------------------------


def throughput(place: Path, trials: int) -> Iterator[Line]:
    """Yield speed and memory of a sweep of trivial trials, copied to MLflow and Optuna's tables."""
    spec = _spec(place, "throughput", trials)
    began = time.perf_counter()
    command = [*SWEEP, "run", str(spec), "--jobs", "2", "--root", str(place / "sweeps")]
    process = subprocess.Popen(  # noqa: S603 our own command
        command, env=_environment(), stdout=subprocess.DEVNULL
    )
    memory = {"driver": 0, "worker": 0}
    while process.poll() is None:
        _update_peaks(process.pid, memory)
        time.sleep(0.1)
    whole = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"the sweep of trivial trials ended with exit code {process.returncode}")
    first, last = _span(place / "sweeps" / "throughput")
    yield "trivial trials per second, first to last event", f"{trials / (last - first):.1f}"
    yield "trivial trials per second, whole command", f"{trials / whole:.1f}"
    yield (
        "memory of the driver, of the largest worker",
        (f"{memory['driver'] / 1e6:.0f} MB, {memory['worker'] / 1e6:.0f} MB"),
    )


def start(place: Path, rounds: int) -> Iterator[Line]:
    """Yield the wall times of commands and of ``import torch``, measured alternately."""
    root = ["--root", str(place / "sweeps")]
    reads = {"--help": ["--help"], "ls": ["ls", *root], "status": ["status", "throughput", *root]}
    commands = {f"sweep {name}": [*SWEEP, *words] for name, words in reads.items()}
    seconds: dict[str, list[float]] = {name: [] for name in (*commands, "sweep run", "torch")}
    for number in range(rounds):
        spec = _spec(place, f"one-{number}", 1)
        run = [*SWEEP, "run", str(spec), *root, "--jobs", "1"]
        for name, command in {**commands, "sweep run": run, "torch": [*TORCH]}.items():
            began = time.perf_counter()
            subprocess.run(  # noqa: S603 our own command
                command, env=_environment(), stdout=subprocess.DEVNULL, check=True, timeout=600
            )
            seconds[name].append(time.perf_counter() - began)
    torch = statistics.median(seconds.pop("torch"))
    yield "import torch", f"{torch:.2f} s"
    for name, times in seconds.items():
        label = f"{name}, one trivial trial" if name == "sweep run" else name
        median = statistics.median(times)
        yield label, f"{median:.2f} s, {median / torch:.2f} of import torch"


def reading(place: Path, rounds: int, trials: int) -> Iterator[Line]:
    """Yield the wall times of commands that only read, for a long sweep."""
    large.make(place / "shown", trials, iterations=100, name="shown")
    for name in ("status", "results", "best"):
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            subprocess.run(  # noqa: S603 our own command
                [*SWEEP, name, "shown", "--root", str(place / "shown"), "--json"],
                env=_environment(),
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=600,
            )
            seconds.append(time.perf_counter() - began)
        label = f"sweep {name}, {trials:,} trials, {100 * trials:,} results"
        yield label, f"{statistics.median(seconds):.2f} s"


def _spec(place: Path, name: str, trials: int) -> Path:
    (place / "trivial.py").write_text(TRIVIAL)
    raw = {**large.SPEC, "name": name, "trials": trials, "trainable": "trivial:Trivial"}
    raw |= {"stop": {"training_iteration": 1}, "trackers": ["mlflow", "optuna"]}
    path = place / f"{name}.yaml"
    path.write_text(json.dumps(raw))
    return path


def _environment() -> dict[str, str]:
    """Return the environment of commands; none leaves a process that would disturb the next one."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "SWEEP_ATTACH": "later"}


def _span(folder: Path) -> tuple[float, float]:
    """Return the times at which the first and the last event were recorded, in epoch seconds."""
    with closing(connect_read_only(folder / "sweep.db")) as database:
        first, last = database.execute("SELECT min(at), max(at) FROM events").fetchone()
    return first, last


def _update_peaks(pid: int, memory: dict[str, int]) -> None:
    """Raise the entries of `memory` to the present bytes of the driver and its largest child."""
    try:
        driver = psutil.Process(pid)
        memory["driver"] = max(memory["driver"], driver.memory_info().rss)
        for child in driver.children(recursive=True):
            memory["worker"] = max(memory["worker"], child.memory_info().rss)
    except psutil.Error:
        return  # the process has just ended


if __name__ == "__main__":
    main()
