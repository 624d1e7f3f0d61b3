"""What ran when: slots, gaps between drivers, and where the time went."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Opened,
    Recorded,
    Row,
    Status,
    TermBegan,
)
from sweep.operations.report import timeline
from sweep.operations.report.timeline import Bar, Clock
from sweep.views import lookup
from sweep.views.lookup import Sweep
from tests.support import sweeps


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """A sweep that has not begun; its records are made by hand."""
    return lookup.read(sweeps.make(tmp_path, trackers=()))


Told = list[tuple[float, int, Event]]


def told(sweep: Sweep, *events: tuple[float, int, Event]) -> Sweep:
    """The sweep with these events: date, term, event."""
    records = [
        Recorded(k, term, date, event) for k, (date, term, event) in enumerate(events, start=1)
    ]
    return replace(sweep, records=tuple(records))


def began(jobs: int) -> TermBegan:
    return TermBegan("here", 1, 9, jobs)


def opened(trial: int, replica: int = 0, at: float = 1.0) -> Opened:
    return Opened(trial, replica, 0, Goal(at), "why")


def closed(trial: int, replica: int = 0, end: End = End.GOAL, rows: Sequence[Row] = ()) -> Closed:
    return Closed(trial, replica, 0, end, Status.PAUSED, "", rows=tuple(rows))


def bars(sweep: Sweep) -> list[tuple[str, float, float, int]]:
    found = timeline.bars(sweep, Clock.of(sweep.records))
    return sorted((bar.replica, bar.start, bar.end, bar.lane) for bar in found)


def test_slices_lie_in_the_first_slot_that_is_free(sweep: Sweep) -> None:
    events: Told = [(0.0, 1, began(2)), (1.0, 1, opened(0)), (1.0, 1, opened(1))]
    events += [(3.0, 1, closed(0)), (4.0, 1, opened(2)), (6.0, 1, closed(2)), (7.0, 1, closed(1))]
    expected = [("0", 1.0, 3.0, 0), ("1", 1.0, 7.0, 1), ("2", 4.0, 6.0, 0)]
    assert bars(told(sweep, *events)) == expected


def test_seeds_that_were_opened_together_wait_for_a_slot(sweep: Sweep) -> None:
    """The pool begins the third when one has ended, whatever the ledger says of its decision."""
    events: Told = [(0.0, 1, began(2)), *((1.0, 1, opened(0, seed)) for seed in range(3))]
    events += [(5.0, 1, closed(0, 1)), (6.0, 1, closed(0, 0)), (9.0, 1, closed(0, 2))]
    expected = [("0", 1.0, 6.0, 0), ("0.1", 1.0, 5.0, 1), ("0.2", 5.0, 9.0, 1)]
    assert bars(told(sweep, *events)) == expected


def test_one_that_ended_before_it_could_begin_has_had_anothers_slot(sweep: Sweep) -> None:
    events: Told = [(0.0, 1, began(1)), (1.0, 1, opened(0)), (1.0, 1, opened(1))]
    events += [(4.0, 1, closed(1)), (9.0, 1, closed(0))]
    assert bars(told(sweep, *events)) == [("0", 4.0, 9.0, 0), ("1", 1.0, 4.0, 0)]


def test_time_without_a_driver_is_left_out_and_what_was_cut_off_ends_with_it(sweep: Sweep) -> None:
    events: Told = [(100.0, 1, began(1)), (101.0, 1, opened(0)), (105.0, 1, Created(1, {}, {}, 0))]
    events += [(900.0, 2, began(1)), (900.0, 2, closed(0, end=End.INTERRUPTED))]
    events += [(901.0, 2, opened(0)), (904.0, 2, closed(0))]
    found = told(sweep, *events)
    assert Clock.of(found.records).total == 9.0
    assert bars(found) == [("0", 1.0, 5.0, 0), ("0", 6.0, 9.0, 0)]


def test_neighbours_of_one_trial_become_one_bar_and_short_ones_if_there_are_too_many() -> None:
    same = [Bar(0.0, 1.0, "0", 1, ""), Bar(1.1, 2.0, "0", 1, ""), Bar(2.0, 3.0, "1", 1, "")]
    assert [(b.start, b.end, b.replica) for b in timeline.merge_bars(same)] == [
        (0, 2, "0"),
        (2, 3, "1"),
    ]
    many = [Bar(i / 10, (i + 1) / 10, str(i), 0, "") for i in range(1000)]
    found = timeline.merge_bars(many, limit=50)
    assert len(found) <= 50
    assert (found[0].start, found[-1].end) == (0.0, 100.0)
    assert found[0].replica == "0 …"


def test_the_time_of_all_slots_is_spent_on_something(sweep: Sweep) -> None:
    timers = {"time_this_iter_s": 2.0, "timers/sample_time_ms": 500.0, "timers/learn_time_ms": 900}
    events: Told = [(0.0, 1, began(2)), (1.0, 1, opened(0))]
    events += [(6.0, 1, closed(0, rows=[Row(1, timers), Row(2, timers)])), (10.0, 1, began(2))]
    found = told(sweep, *events)
    clock = Clock.of(found.records)
    parts = timeline.time_use(found, timeline.bars(found, clock), clock)["parts"]
    assert parts == pytest.approx(
        {"sampling": 1.0, "learning": 1.8, "other training": 1.2, "start, restore, save": 1.0}
        | {"free slots": 15.0}
    )


def test_rungs_count_who_came_went_on_and_waits(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trackers=(), searcher="random")
    sweeps.run(folder)
    sweep = lookup.read(folder)
    trials = sweep.history.trials
    found = timeline.rungs(sweep)
    assert [one["reached"] for one in found] == [
        sum(trial.time >= level for trial in trials) for level in (1, 3, 9)
    ]
    assert [one["on"] for one in found] == [one["reached"] for one in found[1:]] + [
        sum(trial.status is Status.COMPLETED for trial in trials)
    ]
