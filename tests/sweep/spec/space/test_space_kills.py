"""Whatever a spec says about its space, a driver that is killed loses nothing of it."""

import contextlib
from typing import Any

import pytest

from sweep.history.events import Status
from sweep.testing import check_kills
from sweep.testing.simulation import Simulation
from tests.support import sweeps

SPEC: dict[str, Any] = {
    "trials": 9,
    "metric": "score",
    "mode": "max",
    "searcher": {"name": "tpe", "n_startup_trials": 3},
    "space": {
        "x": {"normal": [0.5, 0.2], "bounds": [0, 1]},
        "kind": {"choice": ["a", "b"], "weights": [1, 3]},
        "group": {"when": {"kind": "b"}, "size": {"ordinal": [1, 2, 3]}, "rest": 7},
        "turn": {"grid": [1, 2]},
    },
    "forbid": ["x > 0.9", {"group.size": 3, "x": {"<": 0.2}}],
    "initial": [{"x": 0.25, "kind": "b"}, {"turn": 2}],
    "stop": {"training_iteration": 3},
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 3},
}


def curve(at: Any) -> dict[str, float]:
    return {"score": at.iteration - abs(at.config["x"] - 0.6), "time_this_iter_s": 1 + at.trial % 3}


@pytest.mark.slow
def test_a_killed_driver_tries_the_same_settings() -> None:
    course = check_kills(SPEC, curve, slots=2)
    found = [trial.searched for trial in course.history.trials]
    assert len(found) == 9
    assert found[0]["x"] == 0.25
    assert [point["turn"] for point in found] == [1, 2, 1, 2, 1, 2, 1, 2, 1]
    assert all(point["x"] <= 0.9 for point in found)


@pytest.mark.slow
def test_what_was_learnt_from_another_sweep_survives_every_kill() -> None:
    with Simulation(SPEC, curve) as first:
        first.run()
        searcher = {**SPEC["searcher"], "prior": [str(first.folder.path)]}
        course = check_kills({**SPEC, "searcher": searcher}, curve)
    assert any(trial.origin == "prior" for trial in course.history.trials)


def test_what_still_runs_elsewhere_is_learnt_from_as_far_as_it_came() -> None:
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Simulation(SPEC, curve, slots=2))
        halted: list[Simulation] = []
        first.run(on_turn=lambda _k: halted.append(stack.enter_context(first.copy())))
        some = halted[len(halted) // 2]
        before = sweeps.history(some.folder)
        searcher = {"name": "tpe", "prior": [str(some.folder.path)]}
        second = stack.enter_context(Simulation({**SPEC, "searcher": searcher}, curve))
        (learnt,) = sweeps.history(second.folder).earlier_sweeps
    assert {trial.status for trial in before.trials} & {Status.RUNNING, Status.PAUSED}
    assert [trial.trial for trial in learnt.trials] == [trial.number for trial in before.ranked()]


def test_children_stay_at_the_grid_value_of_their_parent() -> None:
    population = {"name": "pbt", "perturbation_interval": 1, "resample_probability": 1.0}
    changes = {"scheduler": population, "stop": {"training_iteration": 4}, "trials": 8}
    with Simulation({**SPEC, **changes}, curve) as simulation:
        trials = simulation.run().history.trials
    children = [trial for trial in trials if trial.parent is not None]
    assert len(children) > 3
    for child in children:
        assert child.parent is not None
        assert child.searched["turn"] == trials[child.parent].searched["turn"]
    assert len({child.searched["x"] for child in children}) > 3
