"""Tests of the benchmark of scale: its measurements in small runs, and the errors it finds."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scale import drivers, report, simulate
from sweep.history.events import Closed
from tests.support import postgres, sweeps


@pytest.fixture
def passfile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the variable that the benchmark sets for itself and its children."""
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    yield


@pytest.mark.parametrize("damage", ["", "value", "missing", "twice", "slice"])
def test_a_ledger_is_compared_with_what_its_trials_must_have_reported(
    tmp_path: Path, damage: str
) -> None:
    folder = sweeps.make(tmp_path, trackers=[], trials=3)
    sweeps.run(folder)
    records = drivers.read(folder)
    number, last = [(n, r) for n, r in enumerate(records) if isinstance(r.event, Closed)][-1]
    assert isinstance(last.event, Closed)
    *others, row = last.event.rows
    rows = {
        "value": [replace(row, metrics={**row.metrics, "loss": 1.0})],
        "missing": [replace(row, iteration=row.iteration + 1)],
        "twice": [row, row],
    }.get(damage, [row])
    records[number] = replace(last, event=replace(last.event, rows=(*others, *rows)))
    if damage == "slice":
        records.append(replace(records[number], number=len(records) + 1))
    found = drivers.check(records, 7)
    assert bool(found["wrong"]) is bool(damage)
    assert found["failed_slices"] == 0
    assert found["slices"] > 3
    assert len(found["next_ms"]) == 3


def test_a_simulation_that_was_stopped_continues_with_its_trials(tmp_path: Path) -> None:
    for trials in (20, 40):
        lines = simulate.measure(tmp_path, "asha", trials, slots=4, step=10)
        assert lines[-1]["trials"] in range(trials, trials + 4)
    assert [line["trials"] // 10 for line in lines] == [1, 2, 3, 4]
    assert all(line["cpu_ms"] > 0 and line["ledger"] > 0 and line["rss"] > 0 for line in lines)
    assert all(0 < line["next_ms"][0] <= line["next_ms"][2] for line in lines)


def test_a_simulation_may_begin_with_trials_that_are_written_at_once(tmp_path: Path) -> None:
    lines = simulate.measure(tmp_path, "random", 60, slots=2, step=10, filled=40)
    assert [line["trials"] // 10 for line in lines] == [5, 6]


@pytest.mark.proof
@pytest.mark.usefixtures("passfile")
@pytest.mark.skipif(postgres.binaries() is None, reason="no PostgreSQL server is installed")
def test_drivers_on_one_server_are_watched_stopped_and_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = {**drivers.SPEC, "config": {"noise": 0.1, "step_s": 0.05}}
    monkeypatch.setattr(drivers, "SPEC", spec)
    monkeypatch.setattr(drivers, "COMMANDS", ("status",))
    with tempfile.TemporaryDirectory(prefix="sweep-scale-") as place:
        Path(place).chmod(0o755)  # the server runs as nobody
        found = drivers.measure(Path(place), 0.001, 1, sample_s=0.0)
    assert found["wrong"] == []
    assert found["sweeps"] == 1
    assert found["slices"] > 0
    assert 0 < found["connections"] < 10
    assert found["commands"]["status"][0] == 1


def test_the_page_says_what_was_measured() -> None:
    page = report.PAGE.read_text("utf-8")
    assert report.insert_figures(page, report.read()) == page
