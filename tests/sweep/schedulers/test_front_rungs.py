"""Rungs of sweeps with several objectives: who goes on, why, and the same after kills."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from sweep import spec as specs
from sweep.cli import trial_tables
from sweep.history import fronts
from sweep.history.curve import Point
from sweep.history.events import Goal, Status
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext, asha, find
from sweep.schedulers._shared import building, seeding
from sweep.spec.objective import Constraint, Score
from sweep.testing import CurvePoint, Simulation, SimulationResult, check_kills, simulate
from sweep.views import explanation, lookup

PAUSED = Status.PAUSED
#: Score and cost of a trial at the newest iteration, and further results.
Values = tuple[float | None, ...]
TWO = Objective("score", "max", Score(), objectives=(("cost", "min"),))
LIMITED = Objective(
    "score", "max", Score(), objectives=(("cost", "min"),), constraints=(Constraint("size", 1, 9),)
)


def trials(rows: Sequence[Values], compared: Objective = TWO, iterations: int = 1) -> list[Trial]:
    made = []
    for number, (score, *others) in enumerate(rows):
        one = Trial.new(number, {}, {}, compared)
        one.replicas[0].curve = [
            Point(i, float(i), score, tuple(others)) for i in range(1, iterations + 1)
        ]
        one.replicas[0].status, one.replicas[0].goal = PAUSED, Goal(iterations, top=9)
        made.append(one)
    return made


def past(made: Sequence[Trial]) -> History:
    history = History(made[0].objective)
    history.trials = [*made]
    history.wanted = len(made)
    return history


def scheduler(kind: str = "promotion", factor: int = 3, best: int = 0) -> asha.Scheduler:
    options = asha.Options.model_validate(
        {"type": kind, "reduction_factor": factor, "finish_best": best}
    )
    return asha.Scheduler(options, SchedulerContext({"training_iteration": 9}))


def promoted(rows: Sequence[Values], compared: Objective = TWO, free: int = 9) -> list[int]:
    plan = scheduler().plan(past(trials(rows, compared)), free)
    return [resume.trial for resume in plan.resume]


#: A front of five, from cheap to good, and four that it dominates.
FRONT: list[Values] = [(0.0, 0.0), (3.0, 1e6), (5.0, 2e6), (7.0, 5e6), (9.0, 9e6)]
BEATEN: list[Values] = [(8.0, 9.1e6), (0.0, 1e6), (2.9, 1.5e6), (-1.0, 9e6)]


# ---- asha ---------------------------------------------------------------------------------------


def test_the_ends_of_the_front_go_on_before_its_middle_and_before_a_better_metric_behind_it() -> (
    None
):
    """By the metric alone trials 4, 5 and 3 would be promoted."""
    assert promoted([*FRONT, *BEATEN]) == [4, 0, 2]


def test_who_waits_goes_on_in_the_order_of_the_front() -> None:
    made = trials([*FRONT, *BEATEN])
    made[4].replicas[0].status = Status.RUNNING
    plan = scheduler().plan(past(made), free=1)
    assert [resume.trial for resume in plan.resume] == [0]


def test_a_promotion_says_its_front_and_its_place_and_stores_all_objectives() -> None:
    (first, *_) = scheduler().plan(past(trials([*FRONT, *BEATEN])), free=1).resume
    where = "are on the 1st of 3 fronts, place 1 of 9 at rung 1"
    assert first.reason == f"promoted to rung 3: score 9 and cost 9e+06 {where}"
    assert first.evidence == {
        "rung": 1.0,
        "place": 1,
        "of": 9,
        "promoted": 3,
        "front": 1,
        "of_fronts": 3,
        "places": [1, 2, 3, 4],
        "trials": [4, 0, 2, 3],
        "fronts": [1, 1, 1, 1],
        "scores": [9.0, 0.0, 5.0, 7.0],
        "objectives/cost": [9e6, 0.0, 2e6, 5e6],
        "steps": [1.0, 1.0, 1.0, 1.0],
    }


@pytest.mark.parametrize("missing", [None, math.nan])
def test_without_one_objective_a_trial_is_behind_all_fronts(missing: float | None) -> None:
    assert promoted([(9.0, missing), (1.0, 1.0), (0.0, 2.0)]) == [1]
    (only,) = scheduler().plan(past(trials([(9.0, missing)] * 3)), free=9).resume
    why = "promoted to rung 3: score 9 and no cost are behind all fronts, place 1 of 3 at rung 1"
    assert (only.trial, only.reason) == (0, why)


def test_before_anybody_has_the_other_objective_the_metric_decides() -> None:
    assert promoted([(1.0, None), (3.0, None), (2.0, None)]) == [1]


def test_who_breaks_a_constraint_is_promoted_last_and_told_so() -> None:
    rows: list[Values] = [(9.0, 0.0, 11.0), (8.0, 0.0, 10.0), (0.0, 9.0, 9.0)]
    assert promoted(rows, LIMITED) == [2]
    (least,) = scheduler().plan(past(trials(rows[:2] + rows[:1], LIMITED)), free=9).resume
    assert least.trial == 1
    assert "score 8 and cost 0 break the constraint on size, place 1 of 3" in least.reason


def test_with_stopping_the_front_goes_on_and_who_equals_the_last_of_it_too() -> None:
    made = trials([*FRONT, *BEATEN, FRONT[2]])
    plan = scheduler("stopping").plan(past(made), free=99)
    assert [resume.trial for resume in plan.resume] == [0, 2, 4, 9]
    assert {stop.trial for stop in plan.stop} == {1, 3, 5, 6, 7, 8}
    whys = {stop.trial: stop.reason for stop in plan.stop}
    whys |= {resume.trial: resume.reason for resume in plan.resume}
    place = "place 10 of 10 at rung 1, where 3 continue"
    assert whys[8] == f"score -1 and cost 9e+06 are on the 3rd of 3 fronts, {place}"
    assert ", equal to place 3 at rung 1, where 3 continue" in whys[9]


def test_of_several_to_finish_the_first_are_the_pick_and_the_far_end_of_the_front() -> None:
    plan = scheduler(factor=10, best=3).plan(past(trials([*FRONT, *BEATEN])), free=9)
    assert [resume.trial for resume in plan.resume] == [4, 0, 2]
    assert plan.resume[1].reason == (
        "trained to the end: score 0 and cost 0 are on the 1st of 3 fronts, place 2 of 9 "
        "paused or completed trials, and nothing else is left to do"
    )


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=15),
    st.integers(2, 4),
)
def test_nobody_goes_on_while_a_trial_that_dominates_it_stays(
    rows: list[tuple[int, int, bool]], factor: int
) -> None:
    made = trials([(float(score), float(cost)) for score, cost, _ in rows] or [(0.0, 0.0)])
    plan = scheduler(factor=factor).plan(past(made), free=99)
    gone = {resume.trial for resume in plan.resume}
    assert len(gone) == len(made) // factor
    for one in gone:
        a, b, _ = rows[one]
        better = {n for n, (c, d, _) in enumerate(rows) if c >= a and d <= b and (c, d) != (a, b)}
        assert better <= gone


# ---- whole sweeps -------------------------------------------------------------------------------

RUNGS = ["asha", "hyperband", "bohb"]
SPEC: Mapping[str, Any] = {
    "trials": 9,
    "metric": "score",
    "mode": "max",
    "objectives": {"cost": "min"},
    "stop": {"training_iteration": 9},
    "seed": 5,
}


def traded(at: CurvePoint) -> dict[str, Any]:
    """The better, the costlier; some waste cost, and learning is not even."""
    x, waste = at.config["x"], (at.trial * 5 + at.seed_index) % 4
    score = x * (1 - 1 / (1 + at.iteration)) + 0.01 * ((at.trial * 7 + at.iteration) % 3)
    return {
        "score": score,
        "cost": 1e6 * (x * x + waste),
        "time_this_iter_s": 1 + (at.trial * 7) % 5 / 3,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("asha", {}),
        ("asha", {"seeds": 2}),
        ("hyperband", {"seeds": "auto"}),
        ("bohb", {"deterministic": {"batch": 2}}),
    ],
)
def test_killed_after_any_event_it_decides_the_same(name: str, more: dict[str, Any]) -> None:
    course = check_kills({**SPEC, "scheduler": {"name": name}, **more}, traded, slots=2)
    assert any("front" in why for why in reasons(course))


@pytest.mark.slow
def test_stopping_decides_the_same_after_kills() -> None:
    course = check_kills(
        {**SPEC, "scheduler": {"name": "asha", "type": "stopping"}}, traded, slots=2
    )
    assert any("at rung" in why and "fronts" in why for why in reasons(course))


@pytest.mark.parametrize("name", RUNGS)
def test_in_batches_the_number_of_slots_changes_no_decision(name: str) -> None:
    spec = {**SPEC, "scheduler": {"name": name}, "deterministic": {"batch": 2}}
    one, three = (simulate(spec, traded, slots=slots) for slots in (1, 3))
    assert one.decisions == three.decisions


def test_a_bracket_ends_the_fronts_behind_and_says_which() -> None:
    course = simulate({**SPEC, "scheduler": {"name": "hyperband"}}, traded)
    ended = [why for why in reasons(course) if why.startswith("score ")]
    assert any(
        "fronts, place 9 of 9 at rung 1 of bracket 2, where 3 continue" in why for why in ended
    )


@pytest.mark.parametrize("given", [{"name": "median"}, {"name": "pbt", "perturbation_interval": 3}])
def test_schedulers_without_such_rungs_speak_of_no_fronts(given: dict[str, Any]) -> None:
    assert not find(given["name"]).ranks_by_fronts
    course = simulate({**SPEC, "scheduler": given}, traded)
    assert not any("front" in why for why in reasons(course))


def reasons(course: SimulationResult) -> list[str]:
    whys = (d.fields.get("reason") for d in course.decisions)
    return [why for why in whys if why]


def test_under_several_seeds_a_front_is_of_their_means() -> None:
    def lucky(at: CurvePoint) -> dict[str, Any]:
        luck = 5.0 * (1 - 2 * at.seed_index) if at.trial == 0 else 0.0
        return {"score": at.trial + luck, "cost": at.trial + luck}

    spec = {**SPEC, "trials": 3, "seeds": 2, "scheduler": {"name": "asha", "finish_best": 0}}
    first = next(why for why in reasons(simulate(spec, lucky)) if why.startswith("promoted"))
    assert first.startswith("promoted to rung 3: score 2 and cost 2 are on the only front")


def test_later_seeds_change_no_front_of_an_earlier_step() -> None:
    (one,) = trials([(4.0, 2.0)])
    later = Replica(0, 1, TWO)
    later.curve, later.status = [Point(1, 1.0, 8.0, (0.0,))], PAUSED
    one.replicas.append(later)
    first, both = (seeding.values_at_step(seeding.Step(1.0, seeds))(one) for seeds in (1, 2))
    assert first is not None
    assert both is not None
    assert (first.costs, both.costs) == ((-4.0, 2.0), (-6.0, 1.0))
    assert seeding.values_at_step(seeding.Step(1.0, 3))(one) is None


# ---- what people see ----------------------------------------------------------------------------


def explained(simulation: Simulation, trial: int) -> str:
    data = explanation.explain(lookup.read(simulation.folder), trial)
    console = Console(width=200)
    with console.capture() as captured:
        console.print(trial_tables.explanation(data))
    return captured.get()


def test_explain_says_the_front_the_place_and_how_many_go_on(tmp_path: Path) -> None:
    with Simulation({**SPEC, "scheduler": {"name": "asha"}}, traded) as simulation:
        course = simulation.run()
        waited = next(t for t in course.history.trials if t.status is Status.PRUNED and t.time == 1)
        shown = explained(simulation, waited.number)
    there = [fronts.compare(trial, 1.0) for trial in course.history.trials]
    there.sort(key=lambda one: one.by_metric)
    placed = fronts.arrange(there)
    place = [one.number for one in placed].index(waited.number)
    front, of = placed[place].front, max(one.front or 0 for one in placed)
    where = f"now: place {place + 1} of 9 trials that reached training_iteration 1"
    assert f"{where}, on {fronts.front_text(front or 0, of)}; the best 3 continue" in shown
    assert "front" in shown.split(where)[1]
    assert "cost" in shown.split(where)[1]
    assert "max of score, min of cost; asha counts training_iteration" in shown


@pytest.mark.parametrize(
    ("name", "said"), [("median", True), ("asha", False), ("hyperband", False), ("fifo", False)]
)
def test_a_scheduler_that_compares_the_metric_alone_is_remarked(name: str, said: bool) -> None:
    given = {**SPEC, "trainable": "tests.support.quadratic:Quadratic", "space": {}, "name": "demo"}
    spec = specs.parse(json.dumps({**given, "scheduler": name}), "test.yaml")
    found = building.remarks(spec, building.build(spec))
    assert found == [
        "scheduler: median compares trials by score alone; the objectives cost only appear in "
        "the results (asha, bohb, hyperband compare all objectives)"
    ] * bool(said)


def test_explain_of_one_metric_says_how_many_go_on() -> None:
    one = {key: value for key, value in SPEC.items() if key != "objectives"}
    with Simulation({**one, "scheduler": {"name": "asha"}}, traded) as simulation:
        course = simulation.run()
        waited = next(t for t in course.history.trials if t.status is Status.PRUNED and t.time == 1)
        shown = explained(simulation, waited.number)
    assert "trials that reached training_iteration 1; the best 3 continue" in shown
    assert "front" not in shown
