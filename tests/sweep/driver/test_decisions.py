"""What a slice's outcome means for its trial, and which checkpoints it lets go of."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from sweep.driver import decisions
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Closed, Created, End, Event, Goal, Opened, Row, Saved, Status
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.slices.messages import SliceOutcome
from sweep.spec import Limits, Score
from tests.support import sweeps


def saved(iteration: int, digest: str) -> Saved:
    return Saved(iteration, digest, f"ckpt-{iteration}-{digest}.swck", 100, None)


@pytest.mark.parametrize(
    ("crashes", "status"),
    [([], Status.PAUSED), ([3], Status.PAUSED), ([3, 5], Status.FAILED), ([9], Status.FAILED)],
)
def test_a_trial_that_crashes_elsewhere_each_time_is_retried_as_often_as_is_allowed(
    crashes: list[int], status: Status
) -> None:
    replica = Replica(0, 0, Objective("loss", "min", Score(), "training_iteration"))
    replica.crashes = crashes
    crashed = SliceOutcome(0, 0, 1, End.CRASHED, 0, error="bad luck", error_at=9, reason="bad luck")
    closed = decisions.slice_end_event(replica, crashed, (), Limits(max_failures=2))
    assert closed.status is status


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf")])
def test_a_trial_that_ends_with_a_value_that_is_not_finite_says_so(value: float) -> None:
    replica = Replica(0, 0, Objective("loss", "min", Score(), "training_iteration"))
    rows = (Row(1, {"loss": 0.1}), Row(2, {"loss": value}), Row(3, {"other": 0.0}))
    closed = decisions.slice_end_event(
        replica, SliceOutcome(0, 0, 0, End.DONE, 0, rows), (), Limits()
    )
    said = f"its last loss is {value} (limits.not_finite: prune ends such a trial at once)"
    assert (said in closed.reason) == (value != 0.5)


def test_a_program_that_printed_no_result_is_not_trained_again(tmp_path: Path) -> None:
    printing = {"command": ["sh", "-c", "echo acc=0.9"], "pattern": "loss=(?P<loss>.+)"}
    folder = sweeps.make(
        tmp_path,
        trainable="command",
        config=printing,
        space={"lr": 0.5},
        scheduler="fifo",
        trials=1,
    )
    assert sweeps.run(folder) == "finished"
    trial = sweeps.history(folder).trials[0]
    assert (trial.status, trial.replicas[0].slices) == (Status.FAILED, 1)
    assert "the same would happen again, so it is not retried" in trial.reason


def test_what_is_saved_again_to_the_bit_behind_a_fall_back_is_kept(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=1)
    rows = tuple(Row(i, {"loss": 1.0}) for i in (1, 2, 3))
    before = (saved(1, "aa"), saved(2, "bb"), saved(3, "cc"))
    told: list[Event] = [
        Created(0, {"lr": 0.1}, {"lr": 0.1}, 0, 1),
        Opened(0, 0, 0, Goal(9), ""),
        Closed(0, 0, 0, End.TIME, Status.PAUSED, "", rows=rows, saved=before),
        again := Opened(0, 0, 1, Goal(9), ""),
    ]
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        parts.history.extend(parts.ledger.append(parts.history.term, told))
        future: Future[SliceOutcome] = Future()
        new = (saved(2, "bb"), saved(3, "other"))
        future.set_result(SliceOutcome(0, 0, 1, End.TIME, 1, rows[1:], new))
        closed = decisions.outcome_event(parts, again, future)
        assert closed.dropped == ("cc", "aa")
        parts.history.extend(parts.ledger.append(parts.history.term, [closed]))
        assert set(parts.history.replica(0, 0).checkpoints) == {"bb", "other"}
