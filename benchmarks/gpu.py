"""Trials on this machine's device: alone in torch, as lanes, and whole sweeps from the shell.

    python -m benchmarks.gpu --out gpu.json --parts trials
    python -m benchmarks.gpu --out gpu.json --parts shared
    python -m benchmarks.gpu --out gpu.json --parts lanes sweeps

The first takes under four minutes on one GPU, the others about four, and all run on a CPU too. The
machine needs this project with torch for the trials, and with JAX for its device (`jax[cuda12]` for
NVIDIA) for the others. The figures are those of wall time:

trials  environment steps per second of one trial: PPO and DQN from pictures, SAC and TD3 of
        256-256, PPO of 1024-1024-512, with and without what is special on a GPU, on the CPU, and
        those of Stable-Baselines3 where it is installed (`benchmarks.trials`)
shared  steps per second of one, two and four such trials at the same time, each in its own process
        with its share of the GPU (`benchmarks.sharing`)
lanes   environment steps per second of PPO on CartPole, updates included, at 1 to 1,024 lanes, and
        the seconds of the first iteration, in which the program is compiled
sweeps  a sweep from the shell to its table: seconds, the driver's share of them in CPU time, trials
        with a curve, and damages of the ledger; once with an empty cache of programs, once again

Each figure is written to the file as soon as it is known.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks import lanes, sharing, trials
from sweep import load
from sweep.ledger.folder import Folder
from sweep.operations.upkeep import ledger_check
from trainables.algorithms.ppo import PPO
from trainables.core import devices
from trainables.core.devices import device_name
from trainables.trainable import TrialContext

#: Name of each sweep → its space and its options of `sweep run`.
SWEEPS = {
    "cartpole, 512 lanes": ("cartpole_lanes", ("--trials", "512", "--jobs", "512")),
    "pendulum, 500 trials": ("pendulum_ppo", ("--trials", "500")),
}
#: What is measured, by name.
PARTS = ("trials", "shared", "lanes", "sweeps")
_POLL_S = 0.1


def lane_speed(count: int, seconds: float) -> dict[str, float]:
    """Return the speed of PPO on CartPole in `count` lanes.

    Args:
        seconds: wall time of the measurement, after the first iteration.

    Returns:
        ``steps_per_s`` of all lanes together, and ``first_iteration_s``.
    """
    trainers = [PPO({**lanes.CONFIG, "lanes": count}, TrialContext(seed=n)) for n in range(count)]
    began = time.perf_counter()
    lanes.train_lanes(trainers)
    first = time.perf_counter() - began
    speed = lanes.measure_speed(lambda: lanes.train_lanes(trainers), seconds)
    for one in trainers:
        one.stop()
    return {"steps_per_s": round(speed.per_s), "first_iteration_s": round(first, 2)}


def sweep_from_shell(
    space: str, options: Sequence[str], cache: Path, pool: str = "stack"
) -> dict[str, Any]:
    """Run a sweep as a user would, and return its figures.

    Args:
        space: name of a shipped space, or the path of a file.
        options: further options of `sweep run`.
        cache: folder for compiled programs.
    """
    # Processes that tidy up may still write after the sweep has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        words = [sys.executable, "-m", "sweep", "run", space, "--name", "lanes", "--pool", pool]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(Path.cwd())}
        output = Path(root) / "output"
        began = time.perf_counter()
        with output.open("wb") as written:
            process = psutil.Popen(
                [*words, *options], cwd=root, env=environment, stdout=written, stderr=written
            )
            driver_s, cpu_s = _await_end(process)
        wall_s = time.perf_counter() - began
        found: dict[str, Any] = {
            "exit_code": process.returncode,
            "wall_s": round(wall_s, 2),
            "cpu_s": round(cpu_s, 2),
            "driver_cpu_s": round(driver_s, 2),
            "driver_share": round(driver_s / wall_s, 3),
        }
        if process.returncode:
            return {**found, "output": output.read_text("utf-8", "replace")[-2000:]}
        folder = Folder(Path(root) / "sweeps", "lanes")
        result = load("lanes", root=Path(root) / "sweeps")
        return {
            **found,
            "steps": int(result.results()["steps"].sum()),
            "trials": len(result.trials),
            "trials_with_curve": int(result.curves()["trial"].nunique()),
            "damages": [str(damage) for damage in ledger_check.check(folder.ledger)],
        }


def _await_end(process: psutil.Popen) -> tuple[float, float]:
    """Wait for the end of a process; return its CPU seconds, without and with its children."""
    spent: dict[int, float] = {process.pid: 0.0}
    while True:
        try:
            process.wait(timeout=_POLL_S)
        except (psutil.TimeoutExpired, subprocess.TimeoutExpired):
            with contextlib.suppress(psutil.Error):  # one has just ended
                for one in (process, *process.children(recursive=True)):
                    times = one.cpu_times()
                    spent[one.pid] = times.user + times.system
        else:
            return spent[process.pid], sum(spent.values())


def main(words: Sequence[str] | None = None) -> None:
    """Measure everything, and write the file after each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON to write")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--tiny", action="store_true", help="small networks of trials, for tests")
    parser.add_argument("--lanes", type=int, nargs="*", default=[1, 64, 512, 1024])
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="of each measurement of trials and lanes"
    )
    parser.add_argument(
        "--sweep",
        action="append",
        metavar="WORDS",
        help="space and options of `sweep run`, instead of the two sweeps",
    )
    options = parser.parse_args(words)
    sweeps = SWEEPS
    if options.sweep is not None:
        asked = [line.split() for line in options.sweep]
        sweeps = {" ".join(line): (line[0], tuple(line[1:])) for line in asked}
    figures: dict[str, Any] = {"gpu": gpu_name(), **{part: {} for part in PARTS}}
    of_trials = {"trials": trials.measured, "shared": sharing.measured}
    for part in (one for one in of_trials if one in options.parts):
        for name, variant, found in of_trials[part](options.seconds, options.tiny):
            figures[part].setdefault(name, {})[variant] = found
            _write(options.out, figures)
    for count in options.lanes if "lanes" in options.parts else ():
        sys.stderr.write(f"{count} lanes\n")
        figures["lanes"][str(count)] = lane_speed(count, options.seconds)
        figures["device"] = device_name()
        _write(options.out, figures)
    with tempfile.TemporaryDirectory() as cache:
        for name, (space, more) in sweeps.items() if "sweeps" in options.parts else ():
            for state in ("compiling", "programs cached"):
                sys.stderr.write(f"{name}, {state}\n")
                found = sweep_from_shell(space, more, Path(cache))
                figures["sweeps"][f"{name}, {state}"] = found
                _write(options.out, figures)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")


def gpu_name() -> str:
    """Return the name of torch's GPU; empty without one."""
    if not devices.accelerator():
        return ""
    import torch

    return str(torch.cuda.get_device_name())


def _write(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures so far."""
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
