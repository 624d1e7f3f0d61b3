"""Whole sweeps over a trainable with a known answer, in the driver's own process."""

import contextlib
import io
import math
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sweep import pools
from sweep.cli import live, tables
from sweep.cli.terminal import Terminal
from sweep.core.errors import UnknownMetric
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Closed, Event, Opened, Recorded, Status, TermBegan
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.testing import CurvePoint, simulate
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from trainables.core import rng


def test_a_sweep_makes_exactly_as_many_trials_as_were_asked_for(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    assert sweeps.run(folder) == "finished"
    trials = sweeps.history(folder).trials
    assert [trial.number for trial in trials] == list(range(9))
    assert {trial.status for trial in trials} == {Status.COMPLETED, Status.PRUNED}


def test_trials_stop_at_rungs_and_only_the_promoted_go_on(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    trials = sweeps.history(folder).trials
    lengths = sorted(trial.iteration for trial in trials)
    assert lengths == [1] * 6 + [3] * 2 + [9]
    longest = max(trials, key=lambda trial: trial.iteration)
    assert longest.status is Status.COMPLETED


def test_every_curve_is_the_known_answer(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=3)
    sweeps.run(folder)
    for trial in sweeps.history(folder).trials:
        seed = rng.integer(7, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        assert losses == [expected_loss(trial.config, k, seed) for k in range(1, 10)]


def test_a_deterministic_sweep_is_the_same_every_time(tmp_path: Path) -> None:
    one, two = sweeps.make(tmp_path / "a"), sweeps.make(tmp_path / "b")
    sweeps.run(one)
    sweeps.run(two)
    assert sweeps.decisions(one) == sweeps.decisions(two)


@pytest.mark.slow
def test_slicing_changes_no_curve(tmp_path: Path) -> None:
    """With no time at all, each slice is one iteration long."""
    whole = sweeps.make(tmp_path / "a")
    thin = sweeps.make(tmp_path / "b", limits={"slice_s": 1e-9})
    sweeps.run(whole)
    sweeps.run(thin)
    assert sweeps.history(thin).trials[0].slices >= sweeps.history(whole).trials[0].slices
    slices = [sum(trial.slices for trial in sweeps.history(f).trials) for f in (whole, thin)]
    assert slices[1] > slices[0]
    assert [d[:5] for d in sweeps.decisions(thin)] == [d[:5] for d in sweeps.decisions(whole)]
    assert [d[6] for d in sweeps.decisions(thin)] == [d[6] for d in sweeps.decisions(whole)]


def test_a_trial_that_raises_twice_at_one_iteration_fails_and_the_sweep_goes_on(
    tmp_path: Path,
) -> None:
    space = {"lr": 0.5, "fail_at": {"choice": [2, 99]}}
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=4, space=space, searcher="random")
    assert sweeps.run(folder) == "finished"
    trials = sweeps.history(folder).trials
    broken = [trial for trial in trials if trial.searched["fail_at"] == 2]
    assert broken
    assert len(broken) < 4
    for trial in trials:
        assert trial.status is (Status.FAILED if trial in broken else Status.COMPLETED)
    for trial in broken:
        assert trial.replicas[0].crashes == [2, 2]
        assert trial.iteration == 1
        assert "Traceback" in trial.replicas[0].error
        assert "so it is not retried" in trial.reason


def test_a_metric_that_never_appears_is_reported_with_the_names_that_did(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, metric="los", scheduler="fifo", trials=1)
    with pytest.raises(UnknownMetric, match="no metric 'los'; they have: "):
        sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert "no metric 'los'; they have: " in trial.reason
    assert "did you mean 'loss'" in trial.reason
    assert "hostname" not in trial.reason


def test_a_time_that_no_result_has_fails_the_trial_and_says_so(tmp_path: Path) -> None:
    scheduler = {"name": "asha", "time_attr": "steps", "max_t": 5}
    folder = sweeps.make(tmp_path, scheduler=scheduler, trials=1)
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert trial.status is Status.FAILED
    assert "the results have no 'steps'" in trial.replicas[0].error


@pytest.mark.parametrize("time", [math.inf, math.nan])
def test_a_time_that_is_not_finite_fails_the_trial_and_not_the_sweep(time: float) -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        return {"score": 1.0, "clock": float(at.iteration) if at.iteration < 3 else time}

    asked = {"trials": 1, "scheduler": {"name": "median", "time_attr": "clock"}}
    (trial,) = simulate({**asked, "stop": {"training_iteration": 9}}, curve).history.trials
    assert trial.status is Status.FAILED
    assert f"scheduler.time_attr: 'clock' is {time} at iteration 3" in trial.replicas[0].error


def test_only_checkpoints_that_somebody_needs_stay_on_disk(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=2)
    sweeps.run(folder)
    for trial in sweeps.history(folder).trials:
        named = {saved.file for saved in trial.replicas[0].checkpoints.values()}
        on_disk = {path.name for path in folder.trial(trial.number).glob("*.swck")}
        assert named == on_disk
        assert {8, 9} <= {saved.iteration for saved in trial.replicas[0].checkpoints.values()}
        assert len(named) <= 3


@pytest.mark.slow
def test_a_finished_sweep_can_be_topped_up_and_its_pruned_trials_take_part(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, searcher="random")
    sweeps.run(folder)
    before = sweeps.history(folder)
    assert sweeps.run(folder, trials=27) == "finished"
    after = sweeps.history(folder)
    assert len(after.trials) == 27
    for old, new in zip(before.trials, after.trials, strict=False):
        assert new.searched == old.searched
        assert [p for p in new.replicas[0].curve if p.iteration <= old.iteration] == old.replicas[
            0
        ].curve
    pruned = [trial.number for trial in before.with_status(Status.PRUNED)]
    assert any(after.trials[n].iteration > before.trials[n].iteration for n in pruned)


def test_resuming_a_finished_sweep_changes_nothing(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    before = sweeps.decisions(folder)
    assert sweeps.run(folder) == "finished"
    assert sweeps.decisions(folder) == before


def test_a_failed_trial_is_tried_again_when_asked(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, space={"lr": 0.5, "fail_at": 3}, scheduler="fifo", trials=1)
    sweeps.run(folder)
    slices = sweeps.history(folder).trials[0].slices
    assert sweeps.history(folder).trials[0].status is Status.FAILED
    sweeps.run(folder, retry_failed=True)
    trial = sweeps.history(folder).trials[0]
    assert trial.status is Status.FAILED
    assert trial.slices == slices + 2


def of(name: str, **changes: Any) -> dict[str, Any]:
    """A sweep of one trial of a trainable among the mishaps."""
    return {
        "trainable": f"tests.support.mishaps:{name}",
        "metric": "value",
        "mode": "max",
        "scheduler": "fifo",
        "trials": 1,
        **changes,
    }


def test_passing_faults_at_different_iterations_are_all_retried(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, **of("Flaky", config={"at": [2, 3, 4, 5, 6]}))
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert (trial.status, trial.iteration) == (Status.COMPLETED, 9)


def test_a_trainable_that_exits_fails_with_its_traceback_and_the_driver_lives(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(tmp_path, **of("Exits"))
    assert sweeps.run(folder) == "finished"
    (trial,) = sweeps.history(folder).trials
    assert trial.status is Status.FAILED
    assert "SystemExit: bye" in trial.replicas[0].error


def test_a_cleanup_that_raises_costs_nobody_anything(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, **of("CleansUpBadly", trials=3))
    sweeps.run(folder)
    assert {t.status for t in sweeps.history(folder).trials} == {Status.COMPLETED}


def test_a_stopping_criterion_of_zero_is_met_at_zero(tmp_path: Path) -> None:
    stop = {"value": 0, "training_iteration": 6}
    folder = sweeps.make(tmp_path, **of("RisesToZero", stop=stop))
    sweeps.run(folder)
    assert sweeps.history(folder).trials[0].iteration == 3


def test_the_best_checkpoint_stays_when_the_trial_diverges(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, **of("Diverges"))
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert trial.replicas[0].best_checkpoint is not None
    assert (
        trial.replicas[0].best_checkpoint.iteration,
        trial.replicas[0].best_checkpoint.value,
    ) == (1, 10.0)


def test_a_trial_that_jumps_over_the_top_rung_is_completed(tmp_path: Path) -> None:
    scheduler = {"name": "asha", "time_attr": "timesteps_total", "max_t": 5}
    folder = sweeps.make(tmp_path, scheduler=scheduler, stop={"training_iteration": 50})
    assert sweeps.run(folder) == "finished"
    assert {t.status for t in sweeps.history(folder).trials} == {Status.COMPLETED}
    assert {t.iteration for t in sweeps.history(folder).trials} == {1}


def test_after_a_fall_back_the_trial_goes_on_and_keeps_its_new_checkpoints(tmp_path: Path) -> None:
    changes = {"limits": {"slice_s": 1e-9}, "checkpoint": {"keep_last": 3}}
    again = sweeps.make(tmp_path, **of("Counter", stop={"training_iteration": 8}, **changes))
    interrupt_after(again, iterations=5)
    (trial,) = sweeps.history(again).trials
    for saved in sorted(trial.replicas[0].checkpoints.values(), key=lambda saved: -saved.iteration)[
        :2
    ]:
        (again.trial(0) / saved.file).write_bytes(b"SWCK")
    sweeps.run(again)
    (trial,) = sweeps.history(again).trials
    assert (trial.status, trial.iteration) == (Status.COMPLETED, 8)
    assert [row.metrics["value"] for row in sweeps.curve(again, 0)] == [
        float(i) for i in range(1, 9)
    ]
    assert sorted(saved.iteration for saved in trial.replicas[0].checkpoints.values()) == [6, 7, 8]


def test_wishes_to_stop_from_several_sides_are_one_wish(tmp_path: Path) -> None:
    """As of `sweep stop`, ``--timeout`` and a disk that is full: none ends a slice at once."""
    folder = sweeps.make(tmp_path, trials=1)
    with launch.open_context(launch.Launch(folder, 1, "inline")) as (parts, _):

        def watch(_records: Sequence[Recorded]) -> None:
            driver.ask_to_stop()

        driver = Driver(parts, watch)
        assert driver.run() == "stopped"
    assert {trial.status for trial in sweeps.history(folder).trials} == {Status.PAUSED}


def interrupt_after(folder: Folder, iterations: int) -> None:
    """Run until the first trial has come so far, then stop as Ctrl-C does."""
    with launch.open_context(launch.Launch(folder, 1, "inline")) as (parts, _):

        def watch(_records: Sequence[Recorded]) -> None:
            if parts.history.trials and parts.history.trials[0].iteration >= iterations:
                driver.ask_to_stop()

        driver = Driver(parts, watch)
        assert driver.run() == "stopped"


@pytest.mark.slow
def test_a_top_up_that_is_killed_as_it_begins_is_still_a_top_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = sweeps.make(tmp_path / "a", searcher="random")
    sweeps.run(straight)
    sweeps.run(straight, trials=27)
    killed = sweeps.make(tmp_path / "b", searcher="random")
    sweeps.run(killed)

    append = Ledger.append

    def die(ledger: Ledger, term: int, events: Sequence[Event], *more: Any) -> Any:
        if isinstance(events[0], TermBegan):
            return append(ledger, term, events, *more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Ledger, "append", die)
        sweeps.run(killed, trials=27)
    sweeps.run(killed)
    assert sweeps.decisions(killed) == sweeps.decisions(straight)


@pytest.mark.slow
def test_where_an_expression_has_no_value_another_point_is_proposed(tmp_path: Path) -> None:
    """Trial 13 would get n = 37 first."""
    space = {"n": {"randint": [1, 60]}, "lr": {"value": "0.1 / (n - 37)"}}
    changes = {"searcher": "random", "trials": 15, "scheduler": "fifo", "seed": 5}
    folder = sweeps.make(tmp_path, space=space, **changes)
    assert sweeps.run(folder) == "finished"
    assert len(sweeps.history(folder).trials) == 15
    assert 37 not in {trial.searched["n"] for trial in sweeps.history(folder).trials}


def test_a_function_with_folders_leaves_nothing_behind(tmp_path: Path) -> None:
    config = {"scratch": str(tmp_path / "scratch")}
    folder = sweeps.make(tmp_path / "s", **of("keeps_files", config=config))
    sweeps.run(folder)
    assert sweeps.history(folder).trials[0].status is Status.COMPLETED
    assert not list((tmp_path / "s").rglob(".tmp-*"))


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_one_interval_and_is_named(tmp_path: Path) -> None:
    scheduler = {"name": "asha", "grace_period": 2}
    straight = sweeps.make(tmp_path / "a", searcher="random", scheduler=scheduler)
    sweeps.run(straight)
    sweeps.run(straight, trials=27)

    damaged = sweeps.make(tmp_path / "b", searcher="random", scheduler=scheduler)
    sweeps.run(damaged)
    for trial in sweeps.history(damaged).trials:
        newest = trial.replicas[0].newest_checkpoint
        assert newest is not None
        if len(trial.replicas[0].checkpoints) > 1:
            path = damaged.trial(trial.number) / newest.file
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    sweeps.run(damaged, trials=27)
    closed = [r.event for r in Ledger(damaged.ledger).read() if isinstance(r.event, Closed)]
    skipped = [text for event in closed for text in event.skipped]
    assert skipped
    assert all("do not match its SHA-256" in text for text in skipped)
    for number in range(27):
        assert sweeps.curve(damaged, number) == sweeps.curve(straight, number)


class Watched(Future[SliceOutcome]):
    """Runs for ever, and counts how often its state is looked at."""

    looks = 0

    @property
    def _condition(self) -> Any:
        Watched.looks += 1
        return self.__dict__["condition"]

    @_condition.setter
    def _condition(self, condition: Any) -> None:
        self.__dict__["condition"] = condition


class Endless(pools.Pool):
    blocks = False

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        return Watched()

    def close(self) -> None:
        pass


def test_a_turn_looks_at_no_slice_that_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    limits = {"no_answer_s": None}  # else it looks once a second
    folder = sweeps.make(tmp_path, scheduler="fifo", trackers=[], limits=limits)
    with (
        launch.open_context(Launch(folder, 4), Endless) as (context, _warnings),
        contextlib.closing(Driver(context, lambda _records: None).turns()) as turns,
    ):
        next(turns)
        assert Watched.looks >= 4
        Watched.looks = 0
        for _ in range(5):
            next(turns)
    assert Watched.looks == 0


class Remarking(Endless):
    said = ""

    def describe_speed(self) -> str:
        return self.said


def test_what_a_pool_says_of_itself_is_shown_by_status_while_its_driver_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    folder = sweeps.make(tmp_path, scheduler="fifo", trackers=[])

    def shown() -> tuple[object, bool]:
        data = live.current_status(folder)
        stream = io.StringIO()
        Terminal(stream, width=200).show(tables.status(data))
        return data["pool_remark"], "7 lanes of\\x1b glass" in stream.getvalue()

    with (
        launch.open_context(Launch(folder, 4), Remarking) as (context, _warnings),
        contextlib.closing(Driver(context, lambda _records: None).turns()) as turns,
    ):
        next(turns)
        assert shown() == (None, False)
        monkeypatch.setattr(Remarking, "said", "7 lanes of\x1b glass")
        next(turns)
        assert shown() == ("7 lanes of\x1b glass", True)
        for torn in ("", "{", "[1]", '{"term": 0, "remark": "of another driver"}', "null"):
            folder.pool.write_text(torn)
            assert shown() == (None, False), torn
        monkeypatch.setattr(Remarking, "said", "7 lanes")
        next(turns)
        assert shown() == ("7 lanes", False)
    assert shown() == (None, False)


def test_every_decision_carries_its_reason(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    opened = [r.event for r in Ledger(folder.ledger).read() if isinstance(r.event, Opened)]
    assert all(event.reason for event in opened)
    assert any("promoted to rung 3: loss" in event.reason for event in opened)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"stop": {"training_iteration": 4}}, Status.COMPLETED),
        ({"stop": {"timesteps_total": 30}}, Status.COMPLETED),
    ],
)
def test_any_stopping_criterion_ends_a_trial(
    tmp_path: Path, changes: dict[str, Any], status: Status
) -> None:
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=1, **changes)
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert trial.status is status
    assert trial.iteration == (4 if "training_iteration" in changes["stop"] else 3)
