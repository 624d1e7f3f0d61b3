"""Results that are seen before their slice has ended, and those that were lost with it."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweep.driver.start.launch import Launch, open_context
from sweep.driver.tracking import sync
from sweep.history.events import UNSAVED, Closed, End, Recorded, Status
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep.verify import verify
from sweep.slices import reports
from sweep.slices.store import Store
from sweep.trackers._shared.mlflow_store import connect
from sweep.views import lookup, overview
from tests.support import sweeps


def make(root: Path, function: str, **config: Any) -> Folder:
    """Create a sweep of one trial."""
    return sweeps.make(
        root,
        trials=1,
        trainable=f"tests.support.retried:{function}",
        config=config,
        space={"lr": {"uniform": [0.5, 1.0]}},
        scheduler="fifo",
        stop=None,
        deterministic=None,
        trackers=["csv", "mlflow"],
    )


def rows_of(folder: Folder) -> list[tuple[int, bool]]:
    """Return the iterations of the ledger, and whether each is marked as unsaved."""
    with closing(Ledger(folder.ledger)) as ledger:
        return [(row.iteration, UNSAVED in row.metrics) for row in ledger.results(0)]


def test_results_before_an_exception_stand_and_count_as_those_of_any_failed_trial(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path, "fails_late")
    sweeps.run(folder)
    trial = sweeps.history(folder).trials[0]
    assert (trial.status, trial.iteration) == (Status.FAILED, 5)
    assert trial.score == trial.config["lr"] / 5
    assert rows_of(folder) == [(iteration, True) for iteration in range(1, 6)]
    row = overview.results(lookup.read(folder, curves=False))["trials"][0]
    assert (row["score"], row["iterations"], row["unsaved"]) == (trial.score, 5, 5)
    assert not verify(folder).damages


def test_a_death_costs_what_was_trained_after_the_checkpoint_that_was_handed_over(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path, "dies", once=str(tmp_path / "died"))
    events: list[Recorded] = []
    sweeps.run(folder, pool="loky", watch=events.extend)
    first, last = [r.event for r in events if isinstance(r.event, Closed)]
    assert (first.end, first.status, first.saved_to) == (End.LOST, Status.PAUSED, 3)
    assert [(row.iteration, UNSAVED in row.metrics) for row in first.rows] == [
        *((iteration, False) for iteration in (1, 2, 3)),
        *((iteration, True) for iteration in (4, 5)),
    ]
    assert [saved.iteration for saved in first.saved] == [3]
    assert (last.status, last.source, last.saved_to) == (Status.COMPLETED, 3, None)
    assert rows_of(folder) == [(iteration, False) for iteration in range(1, 10)]
    curve = sweeps.curve(folder, 0)
    assert [row.metrics["from"] for row in curve] == [0] * 3 + [3] * 6
    assert not verify(folder).damages


@pytest.mark.parametrize("function", ["fails_late", "dies"])
def test_a_retry_replaces_what_was_lost_to_the_bit(tmp_path: Path, function: str) -> None:
    (tmp_path / "done").touch()
    straight = make(tmp_path / "a", function, once=str(tmp_path / "done"))
    again = make(tmp_path / "b", function, once=str(tmp_path / "once"))
    for folder in (straight, again):
        sweeps.run(folder, pool="loky")
    losses = [
        [row.metrics["loss"] for row in sweeps.curve(folder, 0)] for folder in (straight, again)
    ]
    assert losses[0] == losses[1]
    assert not any(unsaved for _, unsaved in rows_of(again))


def test_a_trial_that_is_to_be_retried_shows_what_it_lost_and_no_decision_sees_it(
    tmp_path: Path,
) -> None:
    folder = make(tmp_path, "dies")
    seen: list[tuple[int, int]] = []

    def watch(records: Any) -> None:
        for record in records:
            if isinstance(record.event, Closed) and record.event.status is Status.PAUSED:
                shown = lookup.read(folder).history.trials[0]
                counted = sweeps.history(folder).trials[0]
                seen.append((shown.iteration, counted.iteration))

    sweeps.run(folder, pool="loky", watch=watch)
    assert seen == [(5, 3)] * 3
    assert sweeps.history(folder).trials[0].iteration == 5  # it failed with them


def test_a_trial_that_is_tried_again_counts_what_is_saved(tmp_path: Path) -> None:
    folder = make(tmp_path, "dies")
    sweeps.run(folder, pool="loky")
    before = sweeps.history(folder).trials[0]
    assert (before.status, before.iteration) == (Status.FAILED, 5)
    with open_context(Launch(folder, 1, "inline", retry_failed=True)) as (parts, _warnings):
        replica = parts.history.trials[0].replicas[0]
        assert (replica.status, replica.iteration, replica.last_attempted) == (Status.PAUSED, 3, 5)
        assert replica.is_interrupted


def test_what_a_killed_driver_has_not_recorded_is_taken_from_the_journal(tmp_path: Path) -> None:
    folder, file = make(tmp_path, "hands_over", file=str(tmp_path / "go")), tmp_path / "go"

    class Dies(Exception):
        pass

    def watch(_records: Any) -> None:
        told = reports.JournalReading(folder.trial(0) / "slice-0.jsonl")
        rows = told.new_results()
        if len(rows) == 3 and told.saved and told.saved[-1].iteration == 3:
            raise Dies  # with the worker, as the pool is closed

    with pytest.raises(Dies):
        sweeps.run(folder, pool="loky", watch=watch)
    file.touch()
    events: list[Recorded] = []
    with open_context(Launch(folder, 1, "inline")) as (parts, _warnings):
        replica = parts.history.trials[0].replicas[0]
        assert (replica.status, replica.iteration) == (Status.PAUSED, 3)
        assert not list(folder.trial(0).glob("slice-*"))
    sweeps.run(folder, watch=events.extend)
    closed = [r.event for r in events if isinstance(r.event, Closed)]
    assert [row.iteration for row in closed[-1].rows] == [4, 5]
    assert [row.metrics["loss"] for row in sweeps.curve(folder, 0)] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert not verify(folder).damages


def test_every_view_shows_a_running_trial_that_never_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "LOOK_S", 0.05)
    file = tmp_path / "go"
    folder = make(tmp_path, "waits", file=str(file))

    shown: list[Any] = []

    def watch(_records: Any) -> None:
        sweep = lookup.read(folder)
        if file.exists() or not sweep.history.trials or sweep.history.trials[0].iteration < 2:
            return
        row = overview.results(lookup.read(folder, curves=False))["trials"][0]
        shown.append((row["status"], row["iterations"], row["score"], row["unsaved"]))
        shown.append([point.iteration for point in sweep.history.trials[0].replicas[0].curve])
        shown.append(sent(folder))
        file.touch()

    sweeps.run(folder, pool="loky", watch=watch)
    row, curve, copies = shown
    trial = sweeps.history(folder).trials[0]
    assert row == ("RUNNING", 2, trial.config["lr"] / 2, 0)
    assert curve == [1, 2]
    assert copies == {"csv": 2, "mlflow": 2}
    assert sent(folder) == {"csv": 5, "mlflow": 5}
    assert rows_of(folder) == [(iteration, False) for iteration in range(1, 6)]
    assert not verify(folder).damages


def sent(folder: Folder) -> dict[str, int]:
    """Send everything to the trackers; returns how many results each has."""
    where = sync.tracker_context(folder)
    with closing(Ledger(folder.ledger)) as ledger:
        for name, tracker in sync.load_trackers(where).items():
            if records := ledger.read(ledger.published(name)):
                tracker.publish(records)
                ledger.set_published(name, records[-1].number)
            tracker.close()
    lines = (folder.logs / "trial-0" / "progress.csv").read_text().splitlines()
    with closing(connect(where)) as store:
        run = next(run for run in store.runs() if run.name == "0")
        return {"csv": len(lines) - 1, "mlflow": len(store.rows(run, ["loss"]))}


def test_a_slice_that_lives_on_deletes_nothing_that_was_taken_over(tmp_path: Path) -> None:
    folder = make(tmp_path, "dies", once=str(tmp_path / "died"))
    sweeps.run(folder, pool="loky")
    replica = sweeps.history(folder).trials[0].replicas[0]
    (saved,) = replica.checkpoints.values()
    store = Store(folder.trial(0))
    written = folder.trial(0) / f"ckpt-{3:010d}-{saved.digest}.swck"
    os.link(store.path(saved), written)
    theirs = replace(saved, file=written.name)
    for _ in range(2):  # the driver may be killed after the first time
        assert store.adopt(theirs) == saved
    written.unlink()
    store.verify(saved)
    assert store.adopt(replace(theirs, digest="0" * 64)) is None


@pytest.mark.parametrize("line", ["[7, {}]", "[1, [2]]", "no JSON", '{"file": "../x"}', "[1, {"])
def test_a_journal_ends_where_something_stands_that_no_slice_writes(
    line: str, tmp_path: Path
) -> None:
    path = tmp_path / "0" / "slice-0.jsonl"
    path.parent.mkdir()
    head = '{"source": 4, "skipped": []}\n[5, {"loss": 1.0}]\n'
    path.write_text(f'{head}{line}\n[6, {{"loss": 1.0}}]\n')
    told = reports.JournalReading(path)
    assert [row.iteration for row in told.new_results()] == [5]
    assert (told.source, told.new_results(), told.saved) == (4, [], [])


def test_a_line_that_is_not_whole_yet_is_read_when_it_is(tmp_path: Path) -> None:
    path = tmp_path / "0" / "slice-0.jsonl"
    path.parent.mkdir()
    path.write_text('{"source": 0, "skipped": []}\n[1, {"lo')
    told = reports.JournalReading(path)
    assert told.new_results() == []
    with path.open("a") as file:
        file.write('ss": NaN}]\n')
    assert [row.iteration for row in told.new_results()] == [1]
