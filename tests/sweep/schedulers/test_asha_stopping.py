"""ASHA's stopping variant: against its rule, under kills, and for what cannot save."""

from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import UsageError
from sweep.history.events import Closed, Moved, Opened, Status
from sweep.ledger.ledger import Ledger
from sweep.testing import CurvePoint, SimulationResult, check_kills, simulate
from tests.support import sweeps

SPEC: dict[str, Any] = {
    "trials": 20,
    "stop": {"training_iteration": 9},
    "scheduler": {"name": "asha", "type": "stopping", "reduction_factor": 3},
}


def curve(at: CurvePoint) -> dict[str, Any]:
    return {
        "score": float((at.trial * 7919 + at.iteration * 104729) % 1009),
        "time_this_iter_s": 0.5 + (at.trial * 13) % 7 / 10,
    }


def follow(course: SimulationResult, eta: int) -> int:
    """Klein et al. 2020: at a rung a trial ends unless it is in the top 1/eta of those there.

    None ends beside one that goes on with the same score.
    """
    rungs: dict[int, dict[int, float]] = {1: {}, 3: {}, 9: {}}
    ended = 0
    for record in course.records:
        event = record.event
        if isinstance(event, Closed):
            for row in event.rows:
                if row.iteration in rungs:
                    rungs[row.iteration][event.trial] = float(row.metrics["score"])
        if isinstance(event, Moved) or (isinstance(event, Opened) and event.slice > 0):
            recorded = next(r for r in reversed(rungs.values()) if event.trial in r)
            best = sorted(recorded.values(), reverse=True)
            stays = len(best) < eta or recorded[event.trial] >= best[len(best) // eta - 1]
            assert stays == isinstance(event, Opened)
            ended += not stays
    return ended


@pytest.mark.parametrize("slots", [1, 4])
def test_its_decisions_equal_the_rule(slots: int) -> None:
    assert follow(simulate(SPEC, curve, slots), eta=3) > 8


def late(at: CurvePoint) -> dict[str, Any]:
    """Nobody has been rewarded at the first rung; later all differ."""
    return {"score": -500.0 if at.iteration < 3 else curve(at)["score"]}


@pytest.mark.parametrize("slots", [1, 4])
def test_nobody_ends_where_all_are_equal(slots: int) -> None:
    course = simulate(SPEC, late, slots)
    assert follow(course, eta=3) > 8
    assert all(trial.iteration >= 3 for trial in course.history.trials)
    equal = [r.event for r in course.records if isinstance(r.event, Opened) and r.event.slice == 1]
    assert any("is place 4 of 4, equal to place 1 at rung 1" in event.reason for event in equal)


def test_no_trial_is_ended_if_none_has_a_score() -> None:
    course = simulate(SPEC, lambda at: late(at) if at.iteration >= 3 else {"score": None})
    assert all(trial.iteration >= 3 for trial in course.history.trials)


@pytest.mark.slow
def test_a_killed_sweep_decides_the_same() -> None:
    course = check_kills({**SPEC, "trials": 5}, curve, slots=2)
    assert course.history.with_status(Status.COMPLETED)


def test_what_cannot_save_is_stopped_at_rungs_while_it_stays_in_its_process(
    tmp_path: Path,
) -> None:
    """Each iteration is run once, and the decisions are those of a trainable that saves."""
    seen = {}
    for name in ("Sloped", "SlopedSaving"):
        log = tmp_path / name
        folder = sweeps.make(
            tmp_path / "sweeps",
            name=name.lower(),
            trainable=f"tests.sweep.unsaveable:{name}",
            config={"log": str(log)},
            space={"slope": {"uniform": [0.1, 1.0]}},
            scheduler=SPEC["scheduler"],
            searcher="random",
            deterministic=None,
        )
        assert sweeps.run(folder) == "finished"
        steps = log.read_text().splitlines()
        assert len(steps) == len(set(steps))
        seen[name] = [(t.status, t.iteration, t.score) for t in sweeps.history(folder).trials]
        closed = [r.event for r in Ledger(folder.ledger).read() if isinstance(r.event, Closed)]
        assert any(event.saved for event in closed) == (name == "SlopedSaving")
    assert seen["Sloped"] == seen["SlopedSaving"]
    assert {status for status, _, _ in seen["Sloped"]} == {Status.COMPLETED, Status.PRUNED}


def test_what_cannot_save_begins_anew_when_its_process_is_gone(tmp_path: Path) -> None:
    course = simulate(SPEC, curve, slots=2, kills=(40,), saves=False)
    straight = simulate(SPEC, curve, slots=2, saves=False)
    assert course.kills == 1
    assert course.seconds > straight.seconds
    for trial in course.history.trials:
        values = [point.value for point in trial.leader.curve]
        told = [
            curve(CurvePoint(trial.number, 0, i, {}, {}))["score"]
            for i in range(1, len(values) + 1)
        ]
        assert values == told


def test_promotion_is_refused_for_what_cannot_save_with_a_way_out() -> None:
    spec = {**SPEC, "scheduler": "asha"}
    with pytest.raises(UsageError, match=r"\{name: asha, type: stopping\}"):
        simulate(spec, curve, saves=False)
