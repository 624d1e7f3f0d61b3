"""What every scheduler promises; a new file among them is tested unasked."""

from collections.abc import Mapping
from typing import Any

import pytest

from sweep import plugins, schedulers
from sweep.events import (
    Closed,
    Created,
    End,
    EpochBegan,
    Event,
    Moved,
    Opened,
    Recorded,
    Row,
    Status,
)
from sweep.history import History
from sweep.schedulers import Frame, Plan, Scheduler
from tests.support.trials import objective

NAMES = plugins.names(schedulers.PACKAGE)
FRAME = Frame({"training_iteration": 9}, trials=20)


def test_the_schedulers_that_people_look_for_are_found() -> None:
    assert {"fifo", "asha"} <= set(NAMES)


@pytest.fixture(params=NAMES)
def scheduler(request: pytest.FixtureRequest) -> Scheduler:
    return build(request.param)


#: What those need that cannot do without a setting.
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "optuna": {"pruner": "SuccessiveHalvingPruner", "min_resource": 1},
    "threshold": {"lower": 2.0},
}


def build(name: str) -> Scheduler:
    cls = schedulers.find(name)
    return cls(cls.Options.model_validate(NEEDED.get(name, {})), FRAME)


class Simulation:
    """A sweep without training: trial n's value at iteration t is known beforehand."""

    def __init__(self, wanted: int) -> None:
        self.events: list[Recorded] = []
        self.wanted = wanted
        self.history = History(objective())
        self.record(EpochBegan("host", 1, wanted))

    def record(self, *events: Event) -> None:
        for event in events:
            self.events.append(Recorded(len(self.events) + 1, 1, 0.0, event))
            self.history.extend(self.events[-1:])

    def read_again(self) -> History:
        again = History(objective())
        again.extend(self.events)
        return again

    def follow(self, plan: Plan) -> list[Opened]:
        self.record(*[Moved(stop.trial, stop.status, stop.why) for stop in plan.stop])
        opened = [
            Opened(r.trial, 0, self.history.trials[r.trial].slices, r.goal, r.why)
            for r in plan.resume
        ]
        for fresh in plan.fresh:
            number = len(self.history.trials)
            self.record(Created(number, {}, {}, self.history.k))
            opened.append(Opened(number, 0, 0, fresh.goal, fresh.why))
            self.record(opened[-1])
        self.record(*[o for o in opened if o.slice > 0])
        return opened

    def finish(self, opened: Opened) -> None:
        trial = self.history.trials[opened.trial]
        upto = 9 if opened.goal.at is None else int(opened.goal.at)
        rows = tuple(
            Row(i, {"training_iteration": i, "score": (opened.trial * 37) % 11 + i / 10})
            for i in range(trial.iteration + 1, upto + 1)
        )
        done = upto >= 9
        end = End.DONE if done else End.GOAL
        status = Status.COMPLETED if done else Status.PAUSED
        self.record(
            Closed(opened.trial, 0, opened.slice, end, status, "", trial.iteration, rows=rows)
        )


def test_it_names_the_time_in_which_it_counts(scheduler: Scheduler) -> None:
    assert isinstance(scheduler.time_attr, str)
    assert list(scheduler.levels) == sorted(scheduler.levels)


@pytest.mark.parametrize("free", [1, 3, 8])
def test_it_never_starts_more_than_the_free_slots(scheduler: Scheduler, free: int) -> None:
    simulation = Simulation(wanted=5)
    plan = scheduler.plan(simulation.history, free)
    assert 0 < len(plan.fresh) + len(plan.resume) <= min(free, 5)


@pytest.mark.parametrize("slots", [1, 3])
def test_a_sweep_ends_with_exactly_the_trials_that_were_wanted(
    scheduler: Scheduler, slots: int
) -> None:
    simulation = Simulation(wanted=20)
    running: list[Opened] = []
    for _ in range(1000):
        running += simulation.follow(scheduler.plan(simulation.history, slots - len(running)))
        if not running:
            break
        simulation.finish(running.pop(0))
    assert len(simulation.history.trials) == 20
    assert Status.RUNNING not in {trial.status for trial in simulation.history.trials}
    assert Status.COMPLETED in {trial.status for trial in simulation.history.trials}


@pytest.mark.parametrize("name", NAMES)
def test_a_new_scheduler_on_the_history_read_again_decides_the_same_after_each_event(
    name: str,
) -> None:
    """It keeps nothing, so nothing of it can be lost."""
    kept, simulation = build(name), Simulation(wanted=12)
    running: list[Opened] = []
    while True:
        plan = kept.plan(simulation.history, 2 - len(running))
        assert build(name).plan(simulation.read_again(), 2 - len(running)) == plan
        running += simulation.follow(plan)
        if not running:
            break
        simulation.finish(running.pop())


def test_a_goal_is_one_of_its_rungs_or_the_end(scheduler: Scheduler) -> None:
    plan = scheduler.plan(Simulation(wanted=4).history, 4)
    assert not scheduler.levels or {f.goal.at for f in plan.fresh} <= {*scheduler.levels, None}
