"""PPO's speed with updates: both of our learners beside Stable-Baselines3; prints a table.

    python -m benchmarks.learning [--rounds 5] [--iterations 40] [--peers]

With ``--peers`` Stable-Baselines3 is installed without its dependencies into a temporary folder,
which is deleted at the end, and run with the torch and gymnasium that are here. Every measurement
is a process of its own with one thread; the contestants take turns, so that a machine that is busy
is busy for all. Medians over the rounds, by the processor's time: compare rows of one table only.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainables.core.processes import ONE_THREAD

OURS = ("fused", "torch")
PEER = "stable-baselines3"
PINNED = "stable-baselines3==2.9.2"
#: Seconds after which a contestant is given up.
PATIENCE_S = 900


@contextlib.contextmanager
def peer_folder(wanted: bool) -> Iterator[str]:
    """A folder with Stable-Baselines3 in it; empty if it is not wanted."""
    if not wanted:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, PINNED]
        subprocess.run([sys.executable, *install], check=True, timeout=PATIENCE_S)  # noqa: S603
        yield folder


def measure(name: str, iterations: int, folder: str) -> dict[str, Any]:
    """The figures of one contestant, in a process of its own."""
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), folder)))
    module = ["-m", "benchmarks.learning.contestants", name, str(iterations)]
    ran = subprocess.run(  # noqa: S603 our own module
        [sys.executable, "-W", "ignore", *module],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
    )
    figures: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return figures


def table(rounds: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One row for each contestant; times that of the last one."""
    speeds = {
        name: statistics.median(one["steps"] / one["cpu_s"] for one in figures)
        for name, figures in rounds.items()
    }
    *_, last = speeds
    lines = [f"| PPO on CartPole | steps per CPU-second | times {last} | ms of an iteration |"]
    lines.append("| --- | --- | --- | --- |")
    for name, speed in speeds.items():
        names = {part for one in rounds[name] for part in one["parts_ms"]}
        parts = ", ".join(
            f"{part.removesuffix('_time_ms')} "
            f"{statistics.median(one['parts_ms'][part] for one in rounds[name]):.1f}"
            for part in sorted(names)
        )
        lines.append(f"| {name} | {speed:,.0f} | {speed / speeds[last]:.2f} | {parts} |")
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--peers", action="store_true", help="install and run Stable-Baselines3")
    asked = parser.parse_args()
    with peer_folder(asked.peers) as folder:
        names = (*OURS, *((PEER,) if folder else ()))
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(asked.rounds):
            for name in names:
                rounds[name].append(measure(name, asked.iterations, folder))
    print(table(rounds))  # noqa: T201


if __name__ == "__main__":
    main()
