"""Trials of several seeds of which one ends before the others, and people who end them."""

import contextlib
import math
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sweep.driver import decisions
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.curve import Point
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Opened,
    Status,
    TermBegan,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.trial import Trial
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Verb
from sweep.testing import CurvePoint, Simulation, simulate
from tests.support import sweeps
from tests.support.quadratic import Quadratic
from tests.support.requests import asks, history_of
from tests.support.trials import history, objective
from trainables.core import rng

CLIMB: dict[str, Any] = {
    "trials": 3,
    "scheduler": {"name": "asha", "reduction_factor": 2, "finish_best": 3},
    "stop": {"training_iteration": 4},
    "seeds": {4: 3},
}


class Killed(Exception):
    """The driver is gone."""


class Uneven(Quadratic):
    """Its first seed is over at 2: done, or without a number; the others go on."""

    def step(self) -> dict[str, Any]:
        result = super().step()
        if self.context.trial_name.endswith("_0") and self.iteration + 1 == 2:
            return {**result, "done": True} if self.config["ends"] else {**result, "loss": math.nan}
        return result


def uneven(tmp_path: Path, ends: bool) -> History:
    folder = sweeps.make(
        tmp_path,
        trainable="tests.sweep.driver.test_ended_seeds:Uneven",
        config={"ends": ends},
        scheduler={"name": "threshold", "upper": 1e9},
        trials=3,
        stop={"training_iteration": 5},
        limits={"not_finite": "prune"},
        deterministic=None,
        seeds=2,
    )
    assert sweeps.run(folder) == "finished"
    return sweeps.history(folder)


def test_when_one_seed_diverges_the_trial_is_pruned_and_the_sweep_goes_on(tmp_path: Path) -> None:
    trials = uneven(tmp_path, ends=False).trials
    assert [trial.status for trial in trials] == [Status.PRUNED] * 3
    assert {trial.replicas[1].reason for trial in trials} == {
        "another seed ended: it diverged: loss is nan at iteration 2"
    }


def test_seeds_that_are_done_early_do_not_hold_back_the_others(tmp_path: Path) -> None:
    trials = uneven(tmp_path, ends=True).trials
    assert [trial.status for trial in trials] == [Status.COMPLETED] * 3
    assert [[r.iteration for r in trial.replicas] for trial in trials] == [[2, 5]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["asha", "hyperband"])
@pytest.mark.parametrize("seed", range(6))
def test_how_far_the_others_come_depends_on_no_clock(name: str, seed: int) -> None:
    """With `deterministic`: slices that end at other times, and kills, change no decision."""

    def curve(at: CurvePoint) -> dict[str, Any]:
        stream = rng.generator(seed, at.trial, at.seed_index, at.iteration)
        diverges = stream.random() < 0.06
        score = math.nan if diverges else at.trial / 10 + stream.normal()
        return {"score": score, "time_this_iter_s": float(stream.integers(1, 4))}

    spec = {
        "trials": 8,
        "seed": seed,
        "scheduler": {"name": name, "grace_period": 2, "reduction_factor": 2},
        "seeds": 2,
        "score": "best",
        "stop": {"training_iteration": 8},
        "limits": {"slice_s": 2, "not_finite": "prune"},
        "deterministic": {"batch": 2},
    }
    courses = [simulate(spec, curve, slots=slots) for slots in (1, 3)]
    with Simulation(spec, curve, slots=2) as simulation:
        courses.append(simulation.run(kills={10, 20, 30}))
    one, *others = [
        [(t.searched, t.status, [r.iteration for r in t.replicas]) for t in course.history.trials]
        for course in courses
    ]
    assert others == [one, one]
    assert courses[0].decisions == courses[1].decisions == courses[2].decisions


def test_with_deterministic_the_others_end_together() -> None:
    """In the order of their numbers, whoever of them came to its goal first."""
    failed, waits, runs = (Replica(0, seed, objective()) for seed in range(3))
    failed.status, waits.status, runs.status = Status.FAILED, Status.PAUSED, Status.RUNNING
    waits.goal, waits.curve = Goal(1), [Point(1, 1.0, 0.0)]
    past = history([Trial(0, {}, {}, objective(), [failed, waits, runs])], wanted=1)
    assert not decisions.abandoned_moves(past, patient=True)
    assert [moved.replica for moved in decisions.abandoned_moves(past, patient=False)] == [1]
    runs.status, runs.goal, runs.curve = Status.PAUSED, waits.goal, waits.curve
    assert [moved.replica for moved in decisions.abandoned_moves(past, patient=True)] == [1, 2]


def test_with_deterministic_they_end_when_no_slice_of_any_trial_runs() -> None:
    """Else the order of the trials would depend on which of them ended first."""

    def torn(number: int) -> Trial:
        failed, waits = (Replica(number, seed, objective()) for seed in range(2))
        failed.status, waits.status = Status.FAILED, Status.PAUSED
        waits.goal, waits.curve = Goal(1), [Point(1, 1.0, 0.0)]
        return Trial(number, {}, {}, objective(), [failed, waits])

    first, second = torn(0), torn(1)
    (_, last) = first.replicas
    last.status = Status.RUNNING
    assert not decisions.abandoned_moves(history([first, second], wanted=2), patient=True)
    last.status = Status.PAUSED
    moves = decisions.abandoned_moves(history([first, second], wanted=2), patient=True)
    assert [moved.trial for moved in moves] == [0, 1]


# ---- seeds on the rungs --------------------------------------------------------------------------


def test_the_others_go_on_without_the_trial_whose_further_seed_diverged() -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        bad = (at.trial, at.seed_index, at.iteration) == (0, 1, 3)
        return {"score": math.nan if bad else 10 - at.trial / 10 + 0.3 * at.seed_index}

    scheduler = {"name": "asha", "reduction_factor": 2, "grace_period": 4}
    spec = {**CLIMB, "trials": 6, "scheduler": scheduler, "limits": {"not_finite": "prune"}}
    first, *others = simulate(spec, curve, slots=2).history.trials
    assert (first.status, first.score) == (Status.PRUNED, None)
    assert [len(trial.replicas) for trial in others] == [3, 3, 1, 1, 1]


@pytest.mark.parametrize("verb", [Verb.PAUSE, Verb.STOP])
def test_a_trial_that_a_person_holds_is_given_no_seed(
    monkeypatch: pytest.MonkeyPatch, verb: Verb
) -> None:
    """It is asked in its last slice, and completes."""
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)

    def curve(at: CurvePoint) -> dict[str, Any]:
        score = 10.0 - at.trial + 0.1 * at.seed_index
        return {"score": score, "done": at.trial > 0 and at.iteration == 10}

    spec: dict[str, Any] = {**CLIMB, "stop": {"training_iteration": 12}, "seeds": {12: 3}}
    spec |= {"scheduler": {"name": "asha", "grace_period": 12}, "limits": {"slice_s": 4}}
    with Simulation(spec, curve, slots=2) as simulation:
        ask = asks(simulation, verb, 0, lambda past: _slices(past) == 3)
        trial = simulation.run(on_turn=ask).history.trials[0]
    assert (trial.status, len(trial.replicas)) == (Status.COMPLETED, 1)


def _slices(past: History) -> int:
    return past.trials[0].slices if past.trials else 0


def _completed(past: History, number: int) -> bool:
    return len(past.trials) > number and past.trials[number].status is Status.COMPLETED


LIMITED: list[dict[str, Any]] = [
    {"name": "asha", "grace_period": 3, "reduction_factor": 2},
    {"name": "asha", "type": "stopping", "grace_period": 3, "reduction_factor": 2},
    {"name": "hyperband", "grace_period": 3, "reduction_factor": 2},
    {"name": "bohb", "grace_period": 3, "reduction_factor": 2},
    {"name": "median", "interval": 3, "n_startup_trials": 2},
    {"name": "pbt", "perturbation_interval": 3},
    {"name": "pbt", "perturbation_interval": 3, "synch": False},
]


@pytest.mark.parametrize("scheduler", LIMITED)
def test_a_seed_at_its_limit_holds_up_nobody(scheduler: dict[str, Any]) -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        slow = (at.trial, at.seed_index) == (1, 1)
        score = at.trial + 0.1 * at.seed_index + at.iteration
        return {"score": score, "time_this_iter_s": 10.0 if slow else 1.0}

    spec = {
        "trials": 4,
        "scheduler": scheduler,
        "seeds": 2,
        "stop": {"training_iteration": 12},
        "limits": {"trial_s": 15, "slice_s": 1000},
    }
    past = simulate(spec, curve, slots=2).history
    assert past.trials[1].replicas[1].status is Status.STOPPED
    assert past.with_status(Status.COMPLETED)
    held_up = [t.number for t in past.trials if t.replicas[0].was_waiting and t.time < 12]
    assert scheduler["name"] == "asha" or not held_up


@pytest.mark.parametrize("kills", [set[int](), {5}, {7}])
def test_iterations_that_are_done_again_count_once_for_the_limit(kills: set[int]) -> None:
    spec = {
        "trials": 2,
        "scheduler": {"name": "median", "interval": 3, "n_startup_trials": 1},
        "stop": {"training_iteration": 9},
        "limits": {"trial_s": 8.0},
    }
    past = simulate(spec, lambda at: {"score": float(at.iteration)}, kills=kills, saves=False)
    assert [trial.iteration for trial in past.history.trials] == [8, 8]


class Mended(Quadratic):
    """Diverges at 3, and whoever stands on what it had then, until it is mended."""

    broken: ClassVar[bool] = True

    def step(self) -> dict[str, Any]:
        result = super().step()
        if type(self).broken and self.iteration + 1 == 3:
            self.x = math.nan
        return {**result, "loss": (self.x - 3.0) ** 2}


def test_a_trial_that_diverged_is_tried_again_from_where_it_was_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(
        tmp_path,
        trainable="tests.sweep.driver.test_ended_seeds:Mended",
        scheduler="fifo",
        trials=1,
        stop={"training_iteration": 5},
        limits={"not_finite": "fail"},
        checkpoint={"every": 1},
    )
    sweeps.run(folder)
    (trial,) = sweeps.history(folder).trials
    assert trial.status is Status.FAILED
    assert [saved.iteration for saved in trial.replicas[0].checkpoints.values()] == [1, 2]
    monkeypatch.setattr(Mended, "broken", False)
    sweeps.run(folder, retry_failed=True)
    (trial,) = sweeps.history(folder).trials
    assert (trial.status, trial.iteration) == (Status.COMPLETED, 5)


# ---- what people ask ---------------------------------------------------------------------------


def test_a_trial_that_was_to_be_stopped_when_the_driver_died_is_stopped_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)

    def curve(at: CurvePoint) -> dict[str, Any]:
        return {"score": 1.0, "done": at.iteration == (30 if at.trial == 0 else 3)}

    spec = {"trials": 2, "scheduler": "fifo", "limits": {"slice_s": 100}}
    with Simulation(spec, curve, slots=2) as simulation:
        ask = asks(simulation, Verb.STOP, 0, lambda past: _completed(past, 1))

        def seen(k: int) -> None:
            ask(k)
            if history_of(simulation).trials[0].hold:
                raise Killed

        with pytest.raises(Killed):
            simulation.run(on_turn=seen)
        course = simulation.run()
    assert [trial.status for trial in course.history.trials] == [Status.STOPPED, Status.COMPLETED]


def test_a_failed_trial_whose_other_seed_ran_when_the_driver_died_is_tried_again(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(
        tmp_path, scheduler="fifo", trials=1, stop={"training_iteration": 3}, seeds=2
    )
    config = {"lr": 0.1}
    told: list[Event] = [
        Created(0, config, config, 0, 2),
        *(Opened(0, seed, 0, Goal(), "") for seed in (0, 1)),
        Closed(0, 0, 0, End.CRASHED, Status.FAILED, "bad luck", error_at=1),
    ]
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        ledger.append(ledger.append(None, [TermBegan("host", 1, 1)])[0].term, told)
    with launch.open_context(Launch(folder, 1, "inline", retry_failed=True)) as (parts, _):
        assert Driver(parts, lambda _records: None).run() == "finished"
    assert sweeps.history(folder).trials[0].status is Status.COMPLETED
