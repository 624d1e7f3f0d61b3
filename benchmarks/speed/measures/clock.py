"""Clocks of measures, and the line of JSON in which a figure stands."""

import json
import statistics
import sys
import time
from collections.abc import Callable


def steps_per_cpu_second(work: Callable[[], int], seconds: float, warm_up: int = 1) -> float:
    """Steps that `work` does in one second of this process's CPU time.

    Args:
        work: does some and returns how many steps these were.
        seconds: CPU time to measure for, at least.
        warm_up: calls before the clock starts.
    """
    for _ in range(warm_up):
        work()
    steps, began = 0, time.process_time()
    while (spent := time.process_time() - began) < seconds:
        steps += work()
    return steps / spent


def milliseconds(work: Callable[[], object], times: int) -> float:
    """Median wall milliseconds of one call, of so many; for work that waits for a disk."""
    work()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken)


def tell(value: float) -> None:
    """Print the figure for the runner."""
    sys.stdout.write(json.dumps({"value": value}) + "\n")
