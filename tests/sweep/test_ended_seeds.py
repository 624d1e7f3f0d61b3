"""Trials of several seeds of which one ends before the others, and people who end them."""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep import launch
from sweep.driver import Driver
from sweep.events import (
    Closed,
    Created,
    End,
    EpochBegan,
    EpochEnded,
    Event,
    Goal,
    Opened,
    Recorded,
    Row,
    Saved,
    Status,
)
from sweep.history import History, Objective
from sweep.launch import Launch
from sweep.ledger import Ledger
from sweep.requests import Requests, Verb
from sweep.spec.score import Score
from sweep.testing import Moment, Simulation, simulate
from sweep.wishes import Dropped, Held
from tests.support import sweeps
from tests.support.quadratic import Quadratic
from trainables import rng

RACE: dict[str, Any] = {"trials": 3, "scheduler": "fifo", "replicas": 3, "racing": True}


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
        trainable="tests.sweep.test_ended_seeds:Uneven",
        config={"ends": ends},
        scheduler={"name": "threshold", "upper": 1e9},
        trials=3,
        stop={"training_iteration": 5},
        limits={"not_finite": "prune"},
        deterministic=None,
        replicas=2,
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


@pytest.mark.parametrize("name", ["asha", "hyperband"])
@pytest.mark.parametrize("seed", range(6))
def test_how_far_the_others_come_depends_on_no_clock(name: str, seed: int) -> None:
    """With `deterministic`: slices that end at other times, and kills, change no decision."""

    def curve(at: Moment) -> dict[str, Any]:
        stream = rng.generator(seed, at.trial, at.replica, at.iteration)
        diverges = stream.random() < 0.06
        score = math.nan if diverges else at.trial / 10 + stream.normal()
        return {"score": score, "time_this_iter_s": float(stream.integers(1, 4))}

    spec = {
        "trials": 8,
        "seed": seed,
        "scheduler": {"name": name, "grace_period": 2, "reduction_factor": 2},
        "replicas": 2,
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


# ---- races -------------------------------------------------------------------------------------


def test_a_race_goes_on_without_the_trial_whose_further_seed_diverged() -> None:
    def curve(at: Moment) -> dict[str, Any]:
        bad = (at.trial, at.replica, at.iteration) == (0, 1, 2)
        score = math.nan if bad else 10 - at.trial / 10 + 0.3 * at.replica
        return {"score": score, "done": at.iteration == 3}

    course = simulate({**RACE, "limits": {"not_finite": "prune"}}, curve, slots=2)
    first, *others = course.history.trials
    assert (first.status, first.score) == (Status.PRUNED, None)
    assert [len(trial.replicas) for trial in others] == [3, 3]


@pytest.mark.parametrize("verb", [Verb.PAUSE, Verb.STOP])
def test_a_trial_that_a_person_holds_is_given_no_seed(
    monkeypatch: pytest.MonkeyPatch, verb: Verb
) -> None:
    """It is asked in its last slice, and completes."""
    monkeypatch.setattr("sweep.driver.TICK_S", 0.0)

    def curve(at: Moment) -> dict[str, Any]:
        score = 10.0 - at.trial + 0.1 * at.replica
        return {"score": score, "done": at.iteration == (12 if at.trial == 0 else 10)}

    with Simulation({**RACE, "limits": {"slice_s": 4}}, curve, slots=2) as simulation:
        ask = _asks_once(simulation, verb, _is_its_last_slice)
        trial = simulation.run(seen=ask).history.trials[0]
    assert (trial.status, len(trial.replicas)) == (Status.COMPLETED, 1)


def _is_its_last_slice(event: Event) -> bool:
    return isinstance(event, Opened) and (event.trial, event.slice) == (0, 2)


# ---- what people ask ---------------------------------------------------------------------------


def _asks_once(
    simulation: Simulation, verb: Verb, when: Callable[[Event], bool]
) -> Callable[[int], None]:
    """Asks for `verb` of trial 0 as soon as there is such an event."""
    asked: list[int] = []

    def seen(_k: int) -> None:
        if not asked and any(when(record.event) for record in _records(simulation)):
            with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
                asked.append(requests.ask(verb, {"trials_named": [0]}))

    return seen


def _records(simulation: Simulation) -> list[Recorded]:
    with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
        return ledger.read()


def test_a_trial_that_was_to_be_stopped_when_the_driver_died_is_stopped_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.driver.TICK_S", 0.0)

    def curve(at: Moment) -> dict[str, Any]:
        return {"score": 1.0, "done": at.iteration == (30 if at.trial == 0 else 3)}

    spec = {"trials": 2, "scheduler": "fifo", "limits": {"slice_s": 100}}
    with Simulation(spec, curve, slots=2) as simulation:
        ask = _asks_once(simulation, Verb.STOP, lambda e: isinstance(e, Closed) and e.trial == 1)

        def seen(k: int) -> None:
            ask(k)
            if isinstance(_records(simulation)[-1].event, Held):
                raise Killed

        with pytest.raises(Killed):
            simulation.run(seen=seen)
        course = simulation.run()
    assert [trial.status for trial in course.history.trials] == [Status.STOPPED, Status.COMPLETED]


def test_a_failed_trial_whose_other_seed_ran_when_the_driver_died_is_tried_again(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(
        tmp_path, scheduler="fifo", trials=1, stop={"training_iteration": 3}, replicas=2
    )
    config = {"lr": 0.1}
    told: list[Event] = [
        Created(0, config, config, 0, 2),
        *(Opened(0, seed, 0, Goal(), "") for seed in (0, 1)),
        Closed(0, 0, 0, End.CRASHED, Status.FAILED, "bad luck", error_at=1),
    ]
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        ledger.append(ledger.begin_epoch([EpochBegan("host", 1, 1)])[0].epoch, told)
    with launch.opened(Launch(folder, 1, "inline", retry_failed=True)) as (parts, _):
        assert Driver(parts, lambda _records: None).run() == "finished"
    assert sweeps.history(folder).trials[0].status is Status.COMPLETED


# ---- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "scores"),
    [
        ({"aggregate": {"lower_bound": 0.9}}, (1e160, 2e160, 3e160)),
        ({"aggregate": "mean"}, (1.7e308,) * 3),
        ({"aggregate": "iqm"}, (1.7e308, -1.7e308, 1.7e308)),
        ({"aggregate": "median"}, (1.7e308,) * 3),
        ({"racing": True}, (1e160, 2e160, 3e160)),
        ({"racing": True}, (1.7e308, -1.7e308, 1.7e308)),
        ({"score": {"mean_last": 3}}, (1.7e308,) * 3),
        ({"score": "area"}, (-1.7e308,) * 3),
    ],
)
def test_scores_of_any_size_are_compared(keys: dict[str, Any], scores: tuple[float, ...]) -> None:
    def curve(at: Moment) -> dict[str, Any]:
        score = scores[at.replica] if at.trial < 2 else 1.0
        return {"score": score, "done": at.iteration == 3}

    course = simulate({**RACE, "racing": False, **keys}, curve, slots=2)
    assert [trial.status for trial in course.history.trials] == [Status.COMPLETED] * 3
    assert len(course.history.ranked()) == 3


@pytest.mark.parametrize("amount", [1.7e308, math.inf, -math.inf, math.nan])
def test_absurd_seconds_and_steps_are_taken_in(amount: float) -> None:
    def curve(at: Moment) -> dict[str, Any]:
        told = {"score": 1.0, "timesteps_this_iter": amount, "done": at.iteration == 3}
        return told if math.isnan(amount) else {**told, "time_this_iter_s": amount}

    course = simulate({"trials": 1, "scheduler": "fifo"}, curve)
    assert course.history.trials[0].status is Status.COMPLETED


def test_what_is_written_while_nobody_drives_takes_no_time_of_the_budget() -> None:
    saved = (Saved(1, "aa", "a.swck", 1), Saved(2, "bb", "b.swck", 1))
    rows = (Row(1, {"score": 1.0}), Row(2, {"score": 1.0}))
    day = 86400.0
    history = History(Objective("score", "max", Score()))
    history.extend(
        [
            Recorded(1, 1, 1000.0, EpochBegan("host", 1, 1)),
            Recorded(2, 1, 1001.0, Created(0, {}, {}, 0)),
            Recorded(3, 1, 1002.0, Opened(0, 0, 0, Goal(), "")),
            Recorded(
                4, 1, 1060.0, Closed(0, 0, 0, End.ASKED, Status.PAUSED, "", saved=saved, rows=rows)
            ),
            Recorded(5, 1, 1060.0, EpochEnded("stopped")),
            Recorded(6, 2, 1060.0 + day, Dropped(0, 0, ("bb",))),
            Recorded(7, 3, 1070.0 + day, EpochBegan("host", 1, 1)),
        ]
    )
    assert history.spent_s == 60.0
