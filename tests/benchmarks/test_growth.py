"""What the next trial costs does not grow with those before it: function calls, not seconds."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.engine import __main__ as engine
from benchmarks.engine import large
from benchmarks.speed.measures.event_cost import SWEEPS


class Calls:
    """How often Python functions were called, each value of a generator included."""

    number = 0

    def note(self, _frame: FrameType, what: str, _of: object) -> None:
        self.number += what == "call"


def calls_per_event(root: Path, trials: int, changes: Mapping[str, Any], wait: bool) -> float:
    """Of a driver that takes 40 turns in a sweep of so many trials."""
    folder = large.make(root, trials, name=f"of-{trials}", wait=wait, **changes)
    with engine.stepping(folder, trials + 200) as (history, turns):
        for _ in range(60):  # what is made once is made now, and the first races are decided
            next(turns)
        first, calls = history.k, Calls()
        before = sys.getprofile()
        sys.setprofile(calls.note)
        try:
            for _ in range(40):
                next(turns)
        finally:
            sys.setprofile(before)
        return calls.number / (history.k - first)


@pytest.mark.parametrize("name", SWEEPS)
def test_the_next_event_costs_the_same_after_five_times_as_many_trials(
    name: str, tmp_path: Path
) -> None:
    changes, wait = SWEEPS[name]
    few, many = (calls_per_event(tmp_path, trials, changes, wait) for trials in (500, 2_500))
    assert many < 1.3 * few
