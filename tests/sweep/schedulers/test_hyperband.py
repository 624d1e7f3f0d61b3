"""Hyperband and BOHB against algorithm 1 of the paper, written down independently."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from sweep.core.errors import BadConfig
from sweep.history.events import Closed, Goal, Opened, Status, UserHold
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext, bohb, hyperband
from sweep.schedulers._shared.rungs import RungOptions
from sweep.testing import CurvePoint, Simulation, SimulationResult, check_kills, simulate
from tests.support.trials import history
from tests.support.trials import trial as made


def spec(trials: int, name: str = "hyperband", max_t: int = 9, **more: Any) -> dict[str, Any]:
    return {
        "trials": trials,
        "stop": {"training_iteration": max_t},
        "scheduler": {"name": name, "reduction_factor": 3},
        **more,
    }


def value(trial: int, iteration: int) -> float:
    """Ranks change from rung to rung."""
    return float((trial * 7919 + iteration * 104729) % 1009)


def curve(at: CurvePoint) -> dict[str, Any]:
    return {
        "score": value(at.trial, at.iteration),
        "time_this_iter_s": 0.3 + (at.trial * 31 + at.iteration) % 7 / 10,
    }


def published(big_r: int, eta: int) -> dict[int, int]:
    """Algorithm 1: trial → the resource that it is given in the end."""
    s_max = math.floor(math.log(big_r) / math.log(eta) + 1e-9)
    budget = (s_max + 1) * big_r
    given: dict[int, int] = {}
    number = 0
    for s in range(s_max, -1, -1):
        n = math.ceil(budget / big_r * eta**s / (s + 1))
        r = big_r * eta**-s
        t = list(range(number, number + n))
        number += n
        for i in range(s + 1):
            n_i = math.floor(n * eta**-i)
            r_i = round(r * eta**i)
            assert len(t) == n_i
            given |= dict.fromkeys(t, r_i)
            t = sorted(t, key=lambda trial: (-value(trial, r_i), trial))[: math.floor(n_i / eta)]
    return given


def at_the_first_rung(number: int) -> Trial:
    """A trial that waits at rung 1; the later ones are better."""
    trial = made(number, Status.PAUSED, [float(number)])
    trial.replicas[0].goal = Goal(1.0, top=9.0)
    return trial


def lengths(course: SimulationResult) -> dict[int, int]:
    return {trial.number: trial.iteration for trial in course.history.trials}


@pytest.mark.parametrize("name", ["hyperband", "bohb"])
@pytest.mark.parametrize("slots", [1, 4])
def test_trials_get_what_the_published_algorithm_gives_them(name: str, slots: int) -> None:
    expected = published(9, 3)
    assert len(expected) == 17
    assert lengths(simulate(spec(17, name), curve, slots)) == expected


def test_a_larger_instance_equals_the_published_algorithm_too() -> None:
    expected = published(27, 3)
    assert lengths(simulate(spec(len(expected), max_t=27), curve, slots=5)) == expected


def test_after_the_last_bracket_comes_the_first_again() -> None:
    course = simulate(spec(34), curve, slots=4)
    found = lengths(course)
    assert sorted(found[n] for n in range(17)) == sorted(published(9, 3).values())
    assert sorted(found[n] for n in range(17, 34)) == sorted(published(9, 3).values())


def test_the_sizes_and_rungs_are_the_papers() -> None:
    """Table 1: R = 81, eta = 3."""
    scheduler = hyperband.Scheduler(RungOptions(max_t=81), SchedulerContext())
    brackets = list(scheduler.brackets(143))
    assert [(b.size, b.rungs[0]) for b in brackets] == [(81, 1), (34, 3), (15, 9), (8, 27), (5, 81)]


def test_the_grace_period_bounds_the_halvings() -> None:
    scheduler = bohb.Scheduler(RungOptions(max_t=100, grace_period=10), SchedulerContext())
    assert scheduler.levels == pytest.approx((100 / 9, 100 / 3, 100))


def test_a_first_bracket_without_end_is_refused() -> None:
    options = RungOptions(max_t=1e300, grace_period=1e-300, time_attr="timesteps_total")
    with pytest.raises(BadConfig, match=r"scheduler\.grace_period: 1e-300 .* at least"):
        hyperband.Scheduler(options, SchedulerContext())


def test_what_is_decided_does_not_depend_on_the_order_of_arrival() -> None:
    one, many = simulate(spec(17), curve, slots=1), simulate(spec(17), curve, slots=17)
    assert lengths(one) == lengths(many)


@pytest.mark.slow
def test_a_killed_sweep_decides_the_same() -> None:
    course = check_kills(spec(12), curve, slots=3)
    assert {trial.status for trial in course.history.trials} == {Status.COMPLETED, Status.PRUNED}


def test_a_decision_carries_the_numbers_that_it_was_based_on() -> None:
    course = simulate(spec(9), curve)
    opened = [r.event for r in course.records if isinstance(r.event, Opened)]
    told: Mapping[str, Any] = next(e.evidence for e in opened if e.reason.startswith("promoted"))
    assert (told["rung"], told["of"], told["promoted"], told["bracket"]) == (1, 9, 3, 2)
    assert told["scores"] == [value(n, 1) for n in told["trials"]]
    assert told["scores"] == sorted(told["scores"], reverse=True)


def test_a_bracket_that_is_not_full_leads_to_one_trial_at_the_top() -> None:
    assert sorted(lengths(simulate(spec(2), curve)).values()) == [1, 9]


def test_a_failed_trial_does_not_hold_up_its_bracket() -> None:
    def broken(at: CurvePoint) -> dict[str, Any]:
        if at.trial == 2:
            raise RuntimeError("bad luck")
        return curve(at)

    course = simulate(spec(9), broken, slots=3)
    assert course.history.trials[2].status is Status.FAILED
    assert sorted(lengths(course).values()) == [0, 1, 1, 1, 1, 1, 3, 3, 9]


def test_who_failed_before_a_rung_takes_no_place_there_by_what_it_was_before() -> None:
    def early(at: CurvePoint) -> dict[str, Any]:
        if (at.trial, at.iteration) == (0, 2):
            raise RuntimeError("bad luck")
        return {"score": 100.0 if at.trial == 0 else float(at.trial)}

    scheduler = {"name": "hyperband", "grace_period": 3, "reduction_factor": 3}
    course = simulate({**spec(3), "scheduler": scheduler}, early, slots=2)
    assert lengths(course) == {0: 1, 1: 3, 2: 9}


def test_a_topped_up_bracket_is_halved_anew_and_nobody_runs_twice() -> None:
    with Simulation(spec(5), curve) as simulation:
        before = lengths(simulation.run())
        after = lengths(simulation.run(trials=9))
    assert len(after) == 9
    assert all(after[n] >= before[n] for n in before)
    assert sorted(after.values()).count(9) >= 1


def test_a_clone_takes_a_place_in_a_bracket() -> None:
    scheduler = hyperband.Scheduler(RungOptions(max_t=9, reduction_factor=3), SchedulerContext())
    trials = [at_the_first_rung(number) for number in range(3)]
    clone = made(3, Status.WAITING)
    clone.clone_of = 0
    past = history([*trials, clone], wanted=3)
    (fresh,) = scheduler.plan(past.for_scheduler(), 8).fresh
    assert fresh.goal == Goal(1.0, top=9.0)
    past.trials[3] = at_the_first_rung(3)
    past.trials[3].clone_of = 0
    past.touch(3)
    assert [resume.trial for resume in scheduler.plan(past.for_scheduler(), 8).resume] == [3]


def test_a_clone_that_is_held_back_does_not_hold_up_its_bracket() -> None:
    scheduler = hyperband.Scheduler(RungOptions(max_t=9, reduction_factor=3), SchedulerContext())
    clone = made(3, Status.WAITING)
    clone.clone_of, clone.replicas[0].hold = 0, UserHold.PAUSE
    past = history([*(at_the_first_rung(number) for number in range(3)), clone], wanted=3)
    plan = scheduler.plan(past.for_scheduler(), 8)
    assert [resume.trial for resume in plan.resume] == [2]
    assert not plan.fresh


@pytest.mark.parametrize(
    ("held", "promoted"), [(UserHold.STOP, [1]), (UserHold.PAUSE, []), (UserHold.NONE, [2])]
)
def test_the_place_of_a_trial_that_a_person_stopped_is_the_next_ones(
    held: UserHold, promoted: list[int]
) -> None:
    """The place of one that is paused stays its own: it may be let go."""
    scheduler = hyperband.Scheduler(RungOptions(max_t=9, reduction_factor=3), SchedulerContext())
    past = history([at_the_first_rung(number) for number in range(3)], wanted=3)
    past.trials[2].replicas[0].hold = held
    past.touch(2)
    plan = scheduler.plan(past.for_scheduler(), 8)
    assert [resume.trial for resume in plan.resume] == promoted
    assert sorted(stop.trial for stop in plan.stop) == [n for n in (0, 1) if n not in promoted]


def test_the_last_bracket_of_a_space_without_further_points_is_halved() -> None:
    scheduler = hyperband.Scheduler(RungOptions(max_t=9, reduction_factor=3), SchedulerContext())
    past = history([at_the_first_rung(number) for number in range(3)], wanted=9)
    past.exhausted = "the grid has 3 points"
    assert [resume.trial for resume in scheduler.plan(past, 8).resume] == [2]


def test_a_rung_above_the_stop_is_refused() -> None:
    with pytest.raises(
        BadConfig, match=r"scheduler\.max_t: 27 is more than stop\.training_iteration"
    ):
        hyperband.Scheduler(RungOptions(max_t=27), SchedulerContext({"training_iteration": 9}))


def test_who_was_promoted_among_fewer_stays_promoted_when_the_bracket_grows() -> None:
    """Trial 0 was the best of three; of nine it is the last."""
    scheduler = hyperband.Scheduler(RungOptions(max_t=9), SchedulerContext())
    trials = [made(n, Status.PAUSED, [float(n)] * (3 if n == 0 else 1)) for n in range(9)]
    for one in trials:
        one.replicas[0].goal = Goal(3.0 if one.number == 0 else 1.0, top=9.0)
    plan = scheduler.plan(history(trials, wanted=9), free=9)
    assert sorted(stop.trial for stop in plan.stop) == [1, 2, 3, 4, 5]
    assert sorted(resume.trial for resume in plan.resume) == [6, 7, 8]


@pytest.mark.slow
def test_what_it_says_to_be_left_is_what_the_trials_still_train() -> None:
    scheduler = hyperband.Scheduler(RungOptions(max_t=9), SchedulerContext())
    for trials in (2, 9, 12, 17, 30):
        course = simulate(spec(trials), curve, slots=3)
        trained = sum(lengths(course).values())
        past = History(course.history.objective)
        for record in course.records:
            past.extend([record])
            if past.wanted and isinstance(record.event, Opened | Closed):
                done = sum(trial.iteration for trial in past.trials)
                assert scheduler.remaining_training(past.for_scheduler()) == trained - done


def test_without_a_top_rung_it_is_where_the_first_trial_ends() -> None:
    """Those that began before train to their ends; the others are halved below it."""

    def curve(at: CurvePoint) -> dict[str, Any]:
        score = (at.trial * 7) % 23 + at.iteration / 100
        return {"score": score, "done": at.iteration == (27 if at.trial else 30)}

    asked = {"name": "hyperband", "reduction_factor": 3}
    course = simulate({"trials": 20, "scheduler": asked, "stop": {}}, curve, slots=2)
    trials = course.history.trials
    ends = {trial.number: (trial.goal.until, trial.iteration) for trial in trials}
    assert ends[0] == (None, 30)
    assert ends[1] == (None, 27)  # the first that ends
    others = trials[2:]
    assert {trial.goal.top for trial in others} == {27.0}
    assert {trial.goal.until for trial in others} <= {1.0, 3.0, 9.0, 27.0}
    assert sum(trial.iteration for trial in others) < 18 * 27 / 2
    assert {trial.status for trial in others} == {Status.COMPLETED, Status.PRUNED}
