"""Clocks of the measures, and the output of a figure as a line of JSON."""

import json
import statistics
import sys
import time
from collections.abc import Callable


def steps_per_cpu_second(work: Callable[[], int], seconds: float, warm_up: int = 1) -> float:
    """Return the number of steps of `work` per second of this process's CPU time.

    Args:
        work: makes some steps and returns their number.
        seconds: CPU time of the measurement, at least.
        warm_up: number of calls before the measurement.
    """
    for _ in range(warm_up):
        work()
    steps, began = 0, time.process_time()
    while (spent := time.process_time() - began) < seconds:
        steps += work()
    return steps / spent


def milliseconds(work: Callable[[], object], times: int) -> float:
    """Return the median wall milliseconds of `times` calls; for work that waits for a disk."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)


def print_figure(value: float) -> None:
    """Print the figure, as JSON, for the runner."""
    sys.stdout.write(json.dumps({"value": value}) + "\n")
