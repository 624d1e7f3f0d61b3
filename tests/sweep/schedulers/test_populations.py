"""Who belongs to a population: who is compared, bred from, replaced, and waited for."""

import math
from dataclasses import replace
from typing import Any

import pytest

from sweep.history.events import FINISHED, Closed, Created, Moved, Status
from sweep.history.history import History
from sweep.ledger.requests import Verb
from sweep.schedulers._shared.population import Generation, born_at
from sweep.testing import CurvePoint, Simulation, simulate
from tests.support.requests import asks
from tests.sweep.schedulers.test_pbt import SPEC, curve, with_scheduler


@pytest.mark.parametrize("synch", [True, False])
@pytest.mark.parametrize("slots", [1, 3])
def test_nobody_is_bred_from_a_trial_that_has_ended(synch: bool, slots: int) -> None:
    course = simulate({**with_scheduler(synch=synch), "trials": 6}, curve, slots=slots)
    assert max(trial.iteration for trial in course.history.trials) == 12
    ended: set[int] = set()
    for record in course.records:
        event = record.event
        if isinstance(event, Created) and event.births:
            assert event.births[0].trial not in ended
        elif isinstance(event, Closed | Moved) and event.status in FINISHED:
            ended.add(event.trial)


@pytest.mark.parametrize("synch", [True, False])
def test_levels_that_are_no_multiple_of_the_interval_by_division_are_passed(synch: bool) -> None:
    """Three times 0.7 is a level, and divided by 0.7 it is 2.999…"""

    def counted(at: CurvePoint) -> dict[str, Any]:
        return {**curve(at), "progress": 0.7 * at.iteration}

    options = {"time_attr": "progress", "perturbation_interval": 0.7, "burn_in_period": 2.1}
    spec = {**with_scheduler(**options, synch=synch), "trials": 4, "stop": {"progress": 5.5}}
    trials = simulate(spec, counted, slots=4).history.trials
    assert sum(trial.status is Status.COMPLETED for trial in trials) == 4
    assert min(born_at(trial) for trial in trials if trial.parent is not None) == 0.7 * 3


def test_who_has_no_checkpoint_has_no_children_and_then_nobody_is_replaced() -> None:
    course = simulate(SPEC, curve, slots=8)
    trials = [replace(t, replicas=[replace(t.replicas[0])]) for t in course.history.trials[:4]]
    for trial in trials:
        trial.replicas[0].status = Status.PAUSED
    generation = Generation(3.0, [(trial, 1.0) for trial in trials], count=1)
    assert [trial.number for trial, _ in generation.possible_parents] == [0]
    trials[0].replicas[0].checkpoints = {}
    assert [trial.number for trial, _ in generation.possible_parents] == [1]
    assert generation.replaced_members == [trials[3]]
    for trial in trials:
        trial.replicas[0].checkpoints = {}
    assert not generation.replaced_members


@pytest.mark.parametrize("synch", [True, False])
def test_a_member_that_has_not_reported_yet_has_no_children_and_stays(synch: bool) -> None:
    """The metric stands in every fifth result, and they are compared at every fourth."""

    def evaluated(at: CurvePoint) -> dict[str, Any]:
        return {"score": float(at.trial) if at.iteration % 5 == 0 else None}

    scheduler = with_scheduler(perturbation_interval=4, synch=synch)
    course = simulate({**scheduler, "trials": 4}, evaluated, slots=4)
    born = [born_at(trial) for trial in course.history.trials if trial.parent is not None]
    assert born
    assert min(born) > 4
    for trial in course.history.with_status(Status.PRUNED):
        assert any(point.value is not None for point in trial.replicas[0].curve)


def test_members_that_diverged_have_no_children_and_are_replaced() -> None:
    def diverging(at: CurvePoint) -> dict[str, Any]:
        return {"score": math.nan if at.trial and at.iteration > 2 else 1.0}

    course = simulate({**with_scheduler(perturbation_interval=4), "trials": 8}, diverging, slots=4)
    bred = [trial.parent for trial in course.history.trials if trial.parent is not None]
    assert set(bred) == {0}


def test_a_member_that_was_held_catches_up_when_it_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    spec = {**with_scheduler(perturbation_interval=3), "trials": 4}
    with Simulation(spec, lambda at: {"score": float(at.trial)}, slots=4) as simulation:
        pause = asks(simulation, Verb.PAUSE, 2, lambda h: any(t.iteration >= 3 for t in h.trials))
        let_go = asks(
            simulation, Verb.UNPAUSE, 2, lambda h: any(t.iteration >= 9 for t in h.trials)
        )

        def seen(k: int) -> None:
            pause(k)
            let_go(k)

        trial = simulation.run(on_turn=seen).history.trials[2]
    assert trial.status is Status.COMPLETED or trial.reason.startswith("replaced: "), trial.reason
    assert trial.iteration > 3


def _farthest(past: History) -> int:
    return max((trial.iteration for trial in past.trials), default=0)
