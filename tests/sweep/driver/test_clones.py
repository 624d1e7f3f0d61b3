"""Clones that begin from a checkpoint, further than those whose place they take."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import UsageError, WorkerLost
from sweep.history.events import FINISHED, Closed, End, Opened, Status
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.operations.control_client import ask
from sweep.testing import CurvePoint, Simulation, SimulationResult
from tests.support import sweeps

SCHEDULERS: list[dict[str, Any]] = [
    {"name": "pbt", "perturbation_interval": 3},
    {"name": "pbt", "perturbation_interval": 3, "synch": False},
    {"name": "asha", "grace_period": 3, "reduction_factor": 3},
    {"name": "median", "interval": 3},
]


def cloned(
    scheduler: Any, dies: int, of: Exception | None = None, slots: int = 2
) -> SimulationResult:
    """Trial 0 is cloned at 9 from its checkpoint; the clone's process dies so often at once."""
    died: list[int] = []

    def curve(at: CurvePoint) -> dict[str, Any]:
        if at.config["x"] == 0.25 and len(died) < dies:
            died.append(at.iteration)
            raise of or WorkerLost(-9, 1)
        return {"score": at.config["x"] * at.iteration}

    spec = {
        "trials": 6,
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "searcher": "random",
        "stop": {"training_iteration": 18},
        "scheduler": scheduler,
        "limits": {"slice_s": 3, "max_failures": 2},
        "checkpoint": {"keep_last": 2, "keep_best": 0},
    }
    with Simulation(spec, curve, slots) as simulation:
        asked: list[int] = []

        def seen(_k: int) -> None:
            with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
                closed = [r.event for r in ledger.read() if isinstance(r.event, Closed)]
            best = [e.trial for e in closed if e.rows and e.rows[-1].iteration == 9]
            if best and not asked:
                body = {"trials_named": [best[0]], "settings": {"x": 0.25}}
                with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
                    asked.append(requests.ask(Verb.CLONE, {**body, "from_checkpoint": True}))

        return simulation.run(on_turn=seen)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("dies", [0, 2])
def test_a_clone_is_trained_however_far_ahead_it_begins(
    monkeypatch: pytest.MonkeyPatch, scheduler: dict[str, Any], dies: int
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    course = cloned(scheduler, dies)
    clone = next(t for t in course.history.trials if t.clone_of is not None)
    events = [record.event for record in course.records]
    ends = [e.end for e in events if isinstance(e, Closed) and e.trial == clone.number]
    assert ends[:dies] == [End.LOST] * dies
    assert clone.iteration > 9
    assert [e.reason for e in events if isinstance(e, Opened) and e.trial == clone.number]


def test_a_clone_ahead_of_its_population_waits_for_it_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    course = cloned(SCHEDULERS[0], dies=0)
    clone = next(t for t in course.history.trials if t.clone_of is not None)
    began = clone.replicas[0].birth
    assert began is not None
    events = [record.event for record in course.records]
    goals = [e.goal.until or 0 for e in events if isinstance(e, Opened) and e.trial == clone.number]
    assert sorted(set(goals)) == [level for level in (12, 15, 18) if level <= goals[-1]]
    ended = clone.status is Status.COMPLETED or clone.reason.startswith("replaced: ")
    assert ended, clone.reason


def test_a_clone_that_failed_at_once_can_be_tried_again_when_its_parent_has_gone_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    course = cloned("fifo", dies=2, of=ZeroDivisionError("no licence"), slots=8)
    clone = next(t for t in course.history.trials if t.clone_of is not None)
    assert (clone.status, clone.leader.birth is None) == (Status.FAILED, False)
    parent = course.history.trials[clone.clone_of or 0].leader
    assert parent.iteration == 18
    assert clone.leader.birth is not None
    assert clone.leader.birth.saved.digest in parent.checkpoints


def _climbs(at: CurvePoint) -> dict[str, Any]:
    return {"score": at.config["x"] * at.iteration}


@pytest.mark.parametrize("from_checkpoint", [False, True])
@pytest.mark.parametrize("synch", [False, True])
def test_a_clone_of_an_ended_population_continues_alone(synch: bool, from_checkpoint: bool) -> None:
    spec = {
        "trials": 2,
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "stop": {"training_iteration": 8},
        "scheduler": {"name": "pbt", "perturbation_interval": 2, "synch": synch},
        "checkpoint": {"every": 1, "keep_last": 9},
    }
    with Simulation(spec, _climbs, slots=2) as simulation:
        ended = simulation.run().history.trials
        first = next(t.number for t in ended if not from_checkpoint or t.status is Status.PRUNED)
        body = {"trials_named": [first], "settings": {}, "from_checkpoint": from_checkpoint}
        with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
            requests.ask(Verb.CLONE, body)
        clone = simulation.run().history.trials[-1]
    assert clone.clone_of == first
    assert (clone.status, clone.iteration) == (Status.COMPLETED, 8)


@pytest.mark.parametrize("asked_after", [8, 16, 30])
def test_a_clone_that_is_slower_than_its_population_goes_on_when_that_has_ended(
    asked_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    spec = {
        "trials": 4,
        "space": {"x": {"uniform": [0.0, 0.9]}},
        "stop": {"training_iteration": 12},
        "scheduler": {"name": "pbt", "perturbation_interval": 3},
    }

    def curve(at: CurvePoint) -> dict[str, Any]:
        return {**_climbs(at), "time_this_iter_s": 30 if at.config["x"] == 0.8 else 1}

    with Simulation(spec, curve, slots=4) as simulation:
        asked: list[int] = []

        def seen(k: int) -> None:
            if k >= asked_after and not asked:
                with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
                    body = {"trials_named": [0], "settings": {"x": 0.8}}
                    asked.append(requests.ask(Verb.CLONE, body))

        trials = simulation.run(on_turn=seen).history.trials
    (clone,) = [trial for trial in trials if trial.clone_of is not None]
    assert (clone.status, clone.iteration) == (Status.COMPLETED, 12)


@pytest.mark.parametrize("scheduler", ["asha", "fifo", "hyperband"])
def test_a_clone_that_has_not_begun_when_the_budget_ends_is_pruned_and_begins_with_a_larger_one(
    scheduler: str,
) -> None:
    spec = {
        "trials": 2,
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "stop": {"training_iteration": 8},
        "scheduler": scheduler,
        "budget": {"timesteps": 6},
    }

    def curve(at: CurvePoint) -> dict[str, Any]:
        return {**_climbs(at), "timesteps_this_iter": 1}

    with Simulation(spec, curve, slots=1) as simulation:
        simulation.run()
        with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
            requests.ask(Verb.CLONE, {"trials_named": [0], "settings": {}})
            (ended,) = [t for t in simulation.run().history.trials if t.clone_of is not None]
            assert (ended.status, ended.iteration) == (Status.PRUNED, 0)
            assert ended.reason.startswith("budget.timesteps: ")
            requests.ask(Verb.SET, {"budget": {"timesteps": 99}})
            done = simulation.run()
    clone = done.history.trials[ended.number]
    assert (clone.status in FINISHED, clone.iteration > 0) == (True, True)
    assert "a clone takes the place of a new trial" in str(done.records)


def test_a_change_that_a_clone_would_not_use_is_refused(tmp_path: Path) -> None:
    space = {"lr": {"loguniform": [1e-3, 0.9]}, "g": {"choice": [1, 2]}}
    inner = {"noise": {"uniform": [0, 1], "when": {"g": 2}}}
    first = {"searcher": "random", "initial": [{"g": 1}], "config": {}}
    folder = sweeps.make(tmp_path, trials=1, trackers=[], space=space | inner, **first)
    sweeps.run(folder)
    body = {"trials_named": [0], "from_checkpoint": False}
    with pytest.raises(UsageError, match=r"--set noise: 0\.5 .* noise only when g is 2; remove it"):
        ask(folder, Verb.CLONE, {**body, "settings": {"noise": 0.5}}, 0.0)
    assert ask(folder, Verb.CLONE, {**body, "settings": {"noise": 0.5, "g": 2}}, 0.0)[0] is None
