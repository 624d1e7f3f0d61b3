"""Hyperband and BOHB in steps and seeds, against brackets that are halved in plain loops."""

from typing import Any

import pytest

from sweep.core.errors import BadConfig
from sweep.history.events import Goal, Opened, Status, UserHold
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext, hyperband
from sweep.schedulers._shared import seeding
from sweep.schedulers._shared.rungs import RungOptions
from sweep.schedulers._shared.seeding import Step
from sweep.spec.sections import read_seeds
from sweep.testing import CurvePoint, SimulationResult, check_kills, simulate
from tests.support.trials import history
from tests.support.trials import trial as made

PLAN = {3: 2, 9: 4}
#: Of each bracket of R = 9, eta = 3: how many trials begin, and its steps.
BRACKETS: list[tuple[int, list[tuple[int, int]]]] = [
    (9, [(1, 1), (3, 1), (3, 2), (9, 2), (9, 4)]),
    (5, [(3, 1), (3, 2), (9, 2), (9, 4)]),
    (3, [(9, 1), (9, 4)]),
]


def spec(name: str = "hyperband", seeds: Any = PLAN, **more: Any) -> dict[str, Any]:
    return {
        "trials": 17,
        "stop": {"training_iteration": 9},
        "scheduler": name,
        "seeds": seeds,
        **more,
    }


def brackets(seeds: Any, **options: Any) -> hyperband.Scheduler:
    context = SchedulerContext(seeds=read_seeds(seeds))
    return hyperband.Scheduler(RungOptions.model_validate(options), context)


def value(trial: int, seed: int, iteration: int) -> float:
    """Ranks change from step to step."""
    return float((trial * 7919 + seed * 15485863 + iteration * 104729) % 1009)


def curve(at: CurvePoint) -> dict[str, Any]:
    return {
        "score": value(at.trial, at.seed_index, at.iteration),
        "time_this_iter_s": 0.3 + (at.trial * 31 + at.seed_index * 5 + at.iteration) % 7 / 10,
        "timesteps_this_iter": 10,
    }


def expected() -> dict[int, list[int]]:
    """Trial → how far each of its seeds is trained."""
    given: dict[int, list[int]] = {}
    first = 0
    for size, steps in BRACKETS:
        alive = list(range(first, first + size))
        first += size
        for number, (level, seeds) in enumerate(steps):
            alive = alive[: max(1, size // 3**number)]
            for trial in alive:
                given[trial] = [level] * seeds
            means = {t: sum(value(t, r, level) for r in range(seeds)) / seeds for t in alive}
            alive.sort(key=lambda t: (-means[t], t))
    return given


def trained(course: SimulationResult) -> dict[int, list[int]]:
    return {t.number: [r.iteration for r in t.replicas] for t in course.history.trials}


@pytest.mark.parametrize("name", ["hyperband", "bohb"])
@pytest.mark.parametrize("slots", [1, 3, 17])
def test_brackets_are_halved_in_steps_and_in_seeds(name: str, slots: int) -> None:
    course = simulate(spec(name), curve, slots)
    assert trained(course) == expected()
    statuses = {trial.status for trial in course.history.trials}
    assert statuses == {Status.COMPLETED, Status.PRUNED}


def test_auto_is_three_seeds_at_the_top_and_then_six() -> None:
    counts = [len(seeds) for seeds in trained(simulate(spec(seeds="auto"), curve, 4)).values()]
    assert sorted(counts, reverse=True)[:4] == [6, 6, 6, 1]


def test_a_further_seed_carries_the_numbers_that_its_trial_was_promoted_by() -> None:
    course = simulate(spec(), curve, slots=2)
    more = [r.event for r in course.records if isinstance(r.event, Opened) and r.event.replica]
    first = more[0]
    told: Any = first.evidence
    assert first.reason.startswith("promoted to 2 seeds: score ")
    assert (told["rung"], told["promoted"]) == (3, 1)
    assert first.trial == told["trials"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"deterministic": {"batch": 3}},
        {"scheduler": "bohb", "seeds": "auto", "searcher": "bohb"},
        {"budget": {"timesteps": 500}},
    ],
)
def test_a_killed_sweep_decides_the_same(more: dict[str, Any]) -> None:
    space = {"x": {"uniform": [0, 1]}}
    course = check_kills({**spec(), "space": space, "trials": 9, **more}, curve, slots=2)
    assert any(len(trial.replicas) > 1 for trial in course.history.trials)


def test_a_seed_that_fails_takes_its_trial_out_and_another_goes_on() -> None:
    best = max(expected(), key=lambda trial: len(expected()[trial]))

    def fails(at: CurvePoint) -> dict[str, Any]:
        if (at.trial, at.seed_index) == (best, 1):
            raise ValueError("always")
        return curve(at)

    course = simulate(spec(trials=9), fails, slots=3)
    assert course.history.trials[best].status is Status.FAILED
    assert course.history.ended == "finished"


def test_a_settled_bracket_is_looked_at_again_when_one_of_its_trials_moves() -> None:
    """After each event: the plan of a history that was asked before, and of one that was not."""
    course = simulate(spec(), curve, slots=3)
    scheduler = brackets(PLAN, max_t=9)
    asked = History(course.history.objective)
    for k, record in enumerate(course.records, start=1):
        asked.extend([record])
        anew = History(course.history.objective)
        anew.extend(course.records[:k])
        if asked.wanted:
            assert scheduler.plan(asked, 4) == scheduler.plan(anew, 4)


def waiting(number: int) -> Trial:
    """A trial that waits at rung 3; the later ones are better."""
    one = made(number, Status.PAUSED, [0.0, 0.0, float(number)])
    one.replicas[0].goal = Goal(3.0, top=9.0)
    return one


def test_a_bracket_that_was_too_small_is_halved_when_no_trial_is_to_come_any_more() -> None:
    """Its own trials have not moved since it was looked at."""
    scheduler, past = brackets(PLAN, max_t=9, grace_period=3), history([], wanted=3)
    past.trials = [waiting(0), waiting(1)]
    assert scheduler.plan(past, 4).fresh
    past.exhausted = "the grid has 2 points"
    plan = scheduler.plan(past, 4)
    assert [(more.trial, more.index) for more in plan.seeds] == [(1, 1)]
    assert [stop.trial for stop in plan.stop] == [0]


def test_who_is_done_and_lacks_seeds_is_waited_for() -> None:
    done = made(0, Status.COMPLETED, [9.0])
    assert not seeding.has_arrived(done, Step(3, 2))
    assert seeding.has_arrived(done, Step(3, 1))
    done.replicas[0].hold = UserHold.PAUSE
    assert seeding.has_arrived(done, Step(3, 2))  # it will get none


def test_a_plan_names_rungs_as_they_are_told() -> None:
    """100 / 9 is not a number that a person writes to the last digit."""
    (bracket,) = brackets({11.1111: 2}, max_t=100, grace_period=10).brackets(1)
    assert [(step.level, step.seeds) for step in bracket.steps] == [
        (pytest.approx(100 / 9), 1),
        (pytest.approx(100 / 9), 2),
        (pytest.approx(100 / 3), 2),
        (100, 2),
    ]
    with pytest.raises(BadConfig, match=r"one of 11\.1111, 33\.3333, 100"):
        brackets({12: 2}, max_t=100, grace_period=10)


def test_where_nothing_says_where_the_top_is_there_is_no_seed_plan() -> None:
    with pytest.raises(BadConfig, match=r"neither max_t nor stop\.training_iteration sets"):
        brackets("auto")
