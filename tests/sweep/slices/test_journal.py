"""The lines of a slice's journal: read back to the bit, and what each result costs."""

import math
import os
import struct
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.history.events import End, Goal, Metrics, Row, Scalar
from sweep.slices import cache, reports
from sweep.slices import slice as slice_module
from sweep.slices.journal import Journal, Layout
from sweep.slices.retention import Retention
from sweep.slices.slice import run_slice
from sweep.slices.stopping import Criteria
from sweep.spec import CheckpointPolicy
from tests.support.slices import slice_spec
from trainables import report

#: Names of `os` that look at the disk, or write to it.
OF_THE_DISK = ("write", "open", "close", "stat", "lstat", "fstat", "access", "replace", "fsync")
SCALARS = st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


def reports_only(config: Mapping[str, Any]) -> None:
    """Report as often as a goal asks for."""
    for iteration in range(10_000):
        report({"loss": config["noise"] / (iteration + 1)})


def written(folder: Path, results: Sequence[Metrics]) -> Path:
    """Write a journal with these results; returns its file."""
    journal = Journal(folder, 0)
    journal.begin(0, ())
    for iteration, metrics in enumerate(results, 1):
        journal.result(Row(iteration, metrics))
    journal.close()
    return folder / "slice-0.jsonl"


def read(path: Path) -> list[tuple[int, Metrics]]:
    return [(row.iteration, row.metrics) for row in reports.JournalReading(path).new_results()]


def exact(value: Scalar) -> object:
    """A value with its kind, where two floats are equal if their bits are."""
    return type(value), struct.pack("<d", value) if isinstance(value, float) else value


@given(st.lists(st.dictionaries(st.sampled_from("abc"), SCALARS), max_size=8))
def test_results_are_read_back_to_the_bit_whatever_follows_what(
    tmp_path_factory: pytest.TempPathFactory, results: list[dict[str, Scalar]]
) -> None:
    found = read(written(tmp_path_factory.mktemp("journal"), results))
    assert [iteration for iteration, _ in found] == list(range(1, len(results) + 1))
    for (_, metrics), expected in zip(found, results, strict=True):
        assert list(metrics) == list(expected)
        for name, value in expected.items():
            if isinstance(value, float) and math.isnan(value):
                assert math.isnan(float(metrics[name]))
            else:
                assert exact(metrics[name]) == exact(value)


def test_results_of_a_loop_are_written_out_once(tmp_path: Path) -> None:
    first: Metrics = {"loss": 0.1, "n": 1, "done": False, "date": "2026-01-01"}
    results: list[Metrics] = [
        first,
        {**first, "loss": math.nan, "n": -5, "done": True},
        {**first, "loss": -0.0, "n": 2**63},
        {**first, "loss": -math.inf},
        {**first, "date": "2026-01-02"},
        {**first, "loss": 1},
        {"n": 1, "loss": 0.1, "done": False, "date": "2026-01-01"},
    ]
    path = written(tmp_path, results)
    lines = path.read_text().splitlines()[1:]
    assert [line[0] for line in lines] == ["[", '"', "[", '"', "[", "[", "["]
    assert str(read(path)) == str(list(enumerate(results, 1)))


@pytest.mark.parametrize("line", ["", "0g", "00", "00" * 17])
def test_a_journal_ends_at_numbers_that_do_not_fit(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, [{"loss": 0.5}])
    with path.open("a") as file:
        file.write(f'"{line}"\n[2, {{"loss": 0.1}}]\n')
    assert read(path) == [(1, {"loss": 0.5})]


def test_numbers_before_any_result_end_a_journal(tmp_path: Path) -> None:
    path = written(tmp_path, [])
    numbers = Layout({"loss": 0.5}).packed(Row(1, {"loss": 0.5}))
    with path.open("a") as file:
        file.write(f'"{numbers}"\n[1, {{"loss": 0.1}}]\n')
    assert read(path) == []


def test_the_checkpoint_with_which_a_trial_ends_is_not_in_the_journal(tmp_path: Path) -> None:
    """A trial that went on from it would be trained for too long."""
    cache.forget()
    keeps_all = Retention.from_spec(CheckpointPolicy(every=1, keep_last=9))
    stop = Criteria({"training_iteration": 3})
    outcome = run_slice(slice_spec(tmp_path, stop=stop, policy=keeps_all))
    assert (outcome.end, [one.iteration for one in outcome.saved]) == (End.DONE, [1, 2, 3])
    journal = reports.JournalReading(tmp_path / "slice-0.jsonl")
    assert len(journal.new_results()) == 3
    assert [one.iteration for one in journal.saved] == [1, 2]


# ---- what a result costs, without a clock -------------------------------------------------------


@pytest.fixture
def never_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done because some time is over."""
    cache.forget()
    monkeypatch.setattr(slice_module, "LOOK_S", math.inf)
    monkeypatch.setattr(slice_module, "PROGRESS_S", math.inf)


def run(folder: Path, results: int) -> None:
    outcome = run_slice(
        slice_spec(folder, trainable=f"{__name__}:reports_only", goal=Goal(results))
    )
    assert len(outcome.rows) == results


@pytest.mark.usefixtures("never_looks")
def test_a_result_costs_one_write_of_some_hundred_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = Counter[str]()
    size = 0

    def counting(name: str) -> Any:
        plain = getattr(os, name)

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal size
            called[name] += 1
            size += len(arguments[1]) if name == "write" else 0
            return plain(*arguments, **named)

        return counted

    def cost(results: int) -> tuple[Counter[str], int]:
        nonlocal size
        called.clear()
        size = 0
        run(tmp_path / str(results), results)
        return called.copy(), size

    run(tmp_path / "warm", 1)
    for name in OF_THE_DISK:
        monkeypatch.setattr(os, name, counting(name))
    few, bytes_of_few = cost(100)
    many, bytes_of_many = cost(300)
    assert many - few == Counter(write=200)
    assert (bytes_of_many - bytes_of_few) / 200 < 400


@pytest.mark.usefixtures("never_looks")
def test_a_result_costs_few_calls(tmp_path: Path) -> None:
    """It took 104, of functions in Python and in C, when this was written."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def cost(results: int) -> int:
        nonlocal calls
        calls = 0
        threading.setprofile(count)
        sys.setprofile(count)
        try:
            run(tmp_path / str(results), results)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return calls

    run(tmp_path / "warm", 1)
    few, many = cost(100), cost(300)
    assert (many - few) / 200 < 130
