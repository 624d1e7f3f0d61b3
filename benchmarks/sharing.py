"""Several trials at the same time on this machine's GPU, each in its own process, beside one alone.

Each process gets an equal share of the GPU (``num_gpus``). All begin to measure when the last one
has warmed up. `benchmarks.gpu` calls this module, and this module starts itself as the process of a
trial: ``python -m benchmarks.sharing CASE NUM_GPUS SECONDS``.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from benchmarks import trials
from trainables.core import devices

#: Numbers of trials at the same time, one figure each.
COUNTS = (1, 2, 4)


def measured(seconds: float, tiny: bool = False) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Measure all cases of `trials.cases`; yield name, number of trials, and their figures.

    Args:
        seconds: wall time of each measurement, without warm-up.
        tiny: True for small networks and batches.
    """
    for name in trials.cases():
        for count in COUNTS:
            yield name, str(count), shared_speed(name, count, seconds, tiny)


def shared_speed(name: str, count: int, seconds: float, tiny: bool = False) -> dict[str, Any]:
    """Return the speed of `count` trials of one case at the same time.

    Returns ``steps_per_s`` of all together, ``each`` (a list), and ``took_s``, with warm-up. If a
    trial failed, there is ``error`` instead of speeds; its output is that of this process.
    """
    share = 1 / count if devices.accelerator() else 0
    words = [sys.executable, "-m", "benchmarks.sharing", name, str(share), str(seconds)]
    words += ["--tiny"] * tiny
    began = time.perf_counter()
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.PIPE)
    running: list[Any] = [psutil.Popen(words, **pipes, text=True) for _ in range(count)]
    for one in running:
        one.stdout.readline()  # it has warmed up, or failed
    for one in running:
        with contextlib.suppress(OSError):  # it has failed
            one.stdin.write("\n")
            one.stdin.flush()
    each = [one.communicate()[0] for one in running]
    found: dict[str, Any] = {"took_s": round(time.perf_counter() - began, 1)}
    if failed := [one.returncode for one in running if one.returncode]:
        return {**found, "error": f"{len(failed)} of {count} trials failed; see their output"}
    speeds = [round(float(one), 1) for one in each]
    sys.stderr.write(f"{count} at once: {sum(speeds):,.0f} steps per second\n")
    return {**found, "steps_per_s": round(sum(speeds), 1), "each": speeds}


def main() -> None:
    """Measure one trial of several: warm up, write a line, wait for a line, write the speed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharing")
    parser.add_argument("case", choices=list(trials.cases()))
    parser.add_argument("num_gpus", type=float)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()

    def wait_for_others() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()

    case, settings = trials.cases(given.tiny)[given.case], {"num_gpus": given.num_gpus}
    speed = trials.our_speed(case, settings, given.seconds, wait_for_others)
    sys.stdout.write(f"{speed}\n")


if __name__ == "__main__":
    main()
