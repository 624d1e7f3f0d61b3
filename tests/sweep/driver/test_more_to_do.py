"""A sweep that had ended and has more to do: what waited at its end takes part again."""

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Moved, Status
from sweep.history.history import History
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.testing import CurvePoint, Simulation, simulate
from sweep.testing.pool import Pool
from sweep.testing.simulation import _Driver
from tests.support.requests import asks, history_of

SPEC: dict[str, Any] = {
    "trials": 8,
    "stop": {"training_iteration": 8},
    "scheduler": {"name": "asha", "grace_period": 1, "reduction_factor": 2},
    "limits": {"max_failures": 0},
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)


def falling(at: CurvePoint) -> dict[str, Any]:
    """The earlier trial is the better one."""
    return {"score": 10.0 - at.trial + at.iteration / 100}


def resume(simulation: Simulation, **options: Any) -> History:
    """Another driver's term, with the options of `sweep resume`."""
    request = Launch(simulation.folder, simulation.slots, **options)
    with launch.open_context(request, lambda slots: Pool(slots, simulation.clock)) as (
        parts,
        _warnings,
    ):
        driver = _Driver(parts, simulation.clock, set(), lambda _k: None)
        assert driver.run() == "finished"
    return history_of(simulation)


def ask(simulation: Simulation, verb: Verb, body: Mapping[str, Any]) -> None:
    """As a person does while no driver runs; the next one hears it."""
    with contextlib.closing(Requests(simulation.folder.ledger)) as requests:
        requests.ask(verb, dict(body))


def ends(history: History) -> list[tuple[Status, int]]:
    return [(trial.status, trial.iteration) for trial in history.trials]


def test_a_failed_trial_that_is_tried_again_competes_with_those_that_waited() -> None:
    broken = [True]

    def failing(at: CurvePoint) -> dict[str, Any]:
        if broken and at.trial == 3 and at.iteration == 2:
            raise RuntimeError("broken")
        return falling(at)

    with Simulation(SPEC, failing) as simulation:
        assert simulation.run().history.trials[3].status is Status.FAILED
        broken.clear()
        assert ends(resume(simulation, retry_failed=True)) == ends(simulate(SPEC, falling).history)


def test_a_trial_that_is_let_go_after_the_end_competes_with_those_that_waited() -> None:
    with Simulation(SPEC, falling) as simulation:
        simulation.run(on_turn=asks(simulation, Verb.PAUSE, 3, lambda h: len(h.trials) > 3))
        assert history_of(simulation).trials[3].status is Status.PAUSED
        ask(simulation, Verb.UNPAUSE, {"trials_named": [3]})
        assert ends(resume(simulation)) == ends(simulate(SPEC, falling).history)


def test_a_wider_space_gives_those_that_waited_somebody_to_compete_with() -> None:
    spec = {**SPEC, "trials": 12, "searcher": "grid"}
    narrow, wide = ({"x": {"choice": list(range(count))}} for count in (5, 12))
    with Simulation({**spec, "space": narrow}, falling) as simulation:
        assert "all 5 points" in simulation.run().history.exhausted
        widened = resume(simulation, space=wide)
    assert ends(widened) == ends(simulate({**spec, "space": wide}, falling).history)


def test_a_clone_that_is_made_after_the_end_brings_back_those_that_waited() -> None:
    with Simulation(SPEC, falling) as simulation:
        waited = [t.number for t in simulation.run().history.with_status(Status.PRUNED)]
        ask(simulation, Verb.CLONE, {"trials_named": [0], "settings": {}})
        resume(simulation)
        with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
            events = [record.event for record in ledger.read()]
    moves = [event for event in events if isinstance(event, Moved)]
    assert waited
    assert {move.trial for move in moves if move.status is Status.PAUSED} == set(waited)


def test_nothing_is_brought_back_where_nothing_is_to_be_done() -> None:
    with Simulation(SPEC, falling) as simulation:
        before = ends(simulation.run().history)
        k = history_of(simulation).k
        assert ends(resume(simulation, retry_failed=True)) == before
        with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
            later = [record.event for record in ledger.read(after=k)]
    assert not [event for event in later if isinstance(event, Moved)]
