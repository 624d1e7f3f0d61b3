"""Tests of figures from a ledger: the use of slots, and the time of a slice outside training."""

import subprocess
import sys

import psutil
import pytest

from benchmarks.speed.measures import memory, sweep_slots
from sweep.history.events import Closed, End, Event, Goal, Opened, Recorded, Status

#: Trial, number of the slice, when it was opened, when it was closed.
SLICES = [(0, 0, 10.0, 14.0), (1, 0, 10.0, 15.0), (0, 1, 14.5, 17.0), (2, 0, 15.0, 20.0)]


@pytest.fixture
def records() -> list[Recorded]:
    found: list[tuple[float, Event]] = []
    for trial, number, opened, closed in SLICES:
        found.append((opened, Opened(trial, 0, number, Goal(), "")))
        found.append((closed, Closed(trial, 0, number, End.DONE, Status.COMPLETED, "")))
    found.sort(key=lambda pair: pair[0])
    return [Recorded(k, 1, at, event) for k, (at, event) in enumerate(found, start=1)]


def test_slots_are_busy_while_a_slice_runs_in_them(records: list[Recorded]) -> None:
    assert sweep_slots.busy(records, 2) == pytest.approx((4 + 5 + 2.5 + 5) / (2 * 10))


def test_what_is_outside_iterations_is_the_median_of_the_trials(records: list[Recorded]) -> None:
    trained = {0: 6.0, 1: 4.9, 2: 4.97}
    assert sweep_slots.outside(records, trained) == pytest.approx(100.0)
    # trial 0: two slices of 6.5 s, of which 6 are iterations, so 250 ms each


def test_most_memory_is_that_of_the_process_and_none_of_one_that_is_gone() -> None:
    holds = "held = bytearray(64 * 2**20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        process = psutil.Process(child.pid)
        assert 64 <= memory.peak(process) <= 64 + 100
        child.communicate(b"\n")
    assert memory.peak(process) == 0.0
