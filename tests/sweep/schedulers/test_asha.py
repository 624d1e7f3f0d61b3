import contextlib
import math
import sqlite3
from dataclasses import replace
from typing import Any

import pytest

from sweep.core.errors import BadConfig
from sweep.driver.decisions import reopening_moves
from sweep.history.events import Goal, LimitsChanged, Opened, Status, TermBegan, UserHold
from sweep.ledger.ledger import Ledger
from sweep.schedulers import SchedulerContext, asha
from sweep.spec.objective import Score
from sweep.testing import CurvePoint, Simulation, SimulationResult, check_kills, simulate
from tests.support.trials import history, trial

PAUSED, RUNNING = Status.PAUSED, Status.RUNNING


def scheduler(max_t: float = 9, eta: int = 3, grace: float = 1) -> asha.Scheduler:
    options = asha.Options(max_t=max_t, reduction_factor=eta, grace_period=grace)
    return asha.Scheduler(options, SchedulerContext())


def test_rungs_are_the_grace_period_times_powers_of_the_factor_up_to_the_top() -> None:
    assert scheduler(max_t=81).levels == (1, 3, 9, 27, 81)
    assert scheduler(max_t=100, grace=5, eta=4).levels == (5, 20, 80, 100)
    assert scheduler(max_t=1).levels == (1,)


def test_the_top_rung_is_the_stopping_criterion_on_the_same_time() -> None:
    options = asha.Options(time_attr="timesteps_total", grace_period=1000)
    assert asha.Scheduler(options, SchedulerContext({"timesteps_total": 9000})).levels == (
        1000,
        3000,
        9000,
    )


def test_a_grace_period_above_the_top_rung_is_refused() -> None:
    with pytest.raises(BadConfig, match="6 is above the top rung, 5"):
        scheduler(max_t=5, grace=6)


def test_fresh_trials_start_towards_the_lowest_rung_until_all_are_created() -> None:
    plan = scheduler().plan(history([trial(0, RUNNING)], wanted=3), free=5)
    assert [fresh.goal for fresh in plan.fresh] == [Goal(1, top=9), Goal(1, top=9)]


def test_no_trial_is_promoted_before_reduction_factor_trials_reach_its_rung() -> None:
    two = [trial(0, PAUSED, [5.0]), trial(1, PAUSED, [1.0])]
    assert scheduler().plan(history(two, wanted=2), free=2).resume == ()


def test_the_best_third_of_a_rung_is_promoted_before_anything_fresh_starts() -> None:
    three = [trial(n, PAUSED, [value]) for n, value in enumerate([1.0, 5.0, 3.0])]
    plan = scheduler().plan(history(three, wanted=10), free=2)
    assert [(resume.trial, resume.goal) for resume in plan.resume] == [(1, Goal(3, top=9))]
    assert len(plan.fresh) == 1
    assert "place 1 of 3 at rung 1" in plan.resume[0].reason


def test_the_highest_rung_is_looked_at_first_and_its_next_goal_is_the_top() -> None:
    low = [trial(n, PAUSED, [9.0 - n]) for n in range(6)]
    high = [trial(6 + n, PAUSED, [20.0 + n] * 3) for n in range(3)]
    plan = scheduler().plan(history([*low, *high], wanted=9), free=1)
    assert [(resume.trial, resume.goal) for resume in plan.resume] == [(8, Goal(9, top=9))]


def test_a_trial_that_was_promoted_before_still_counts_in_its_rung() -> None:
    """Algorithm 2: candidates are the top 1/eta of all at the rung, less those promoted."""
    trials = [trial(0, RUNNING, [9.0, 9.0]), *[trial(n, PAUSED, [float(n)]) for n in range(1, 6)]]
    plan = scheduler().plan(history(trials, wanted=6), free=3)
    assert [resume.trial for resume in plan.resume] == [5]


@pytest.mark.parametrize("missing", [[math.inf] * 3, [1.0, 1.0, math.nan]])
def test_a_missing_score_ranks_last(missing: list[float]) -> None:
    trials = [trial(0, PAUSED, missing), trial(1, PAUSED, [-50.0] * 3), trial(2, PAUSED, missing)]
    plan = scheduler().plan(history(trials, wanted=3), free=1)
    assert [resume.trial for resume in plan.resume] == [1]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_what_never_had_the_metric_has_no_place_at_a_rung(missing: float | None) -> None:
    ended = [trial(n, Status.COMPLETED, [missing]) for n in range(2)]
    assert not scheduler().plan(history([*ended, trial(2, PAUSED, [1.0])], wanted=3), free=1)
    known = [trial(n, PAUSED, [float(n)]) for n in (2, 3, 4)]
    (promoted,) = scheduler().plan(history([*ended, *known], wanted=5), free=1).resume
    assert promoted.reason == "promoted to rung 3: score 4 is place 1 of 3 at rung 1"


def test_an_interpolated_value_is_shown_with_both_results() -> None:
    three = [trial(n, PAUSED, [n, n + 2.0]) for n in range(3)]
    (promoted,) = scheduler(grace=1.5).plan(history(three, wanted=3), free=1).resume
    own = "score 3 (interpolated between 2 at 1 and 4 at 2)"
    assert promoted.reason == f"promoted to rung 4.5: {own} is place 1 of 3 at rung 1.5"
    several = [trial(n, PAUSED, [n, n + 2.0]) for n in range(3)]
    for one in several:
        one.objective = replace(one.objective, score=Score(kind="best"))
        one.replicas[0].objective = one.objective
    (promoted,) = scheduler(grace=1.5).plan(history(several, wanted=3), free=1).resume
    assert promoted.reason.startswith(
        "promoted to rung 4.5: score 3 (interpolated) is place 1 of 3"
    )


def test_where_less_is_better_the_smallest_is_promoted() -> None:
    trials = [trial(n, PAUSED, [value], mode="min") for n, value in enumerate([3.0, 1.0, 2.0])]
    plan = scheduler().plan(history(trials, wanted=3, mode="min"), free=3)
    assert [resume.trial for resume in plan.resume] == [1]


def test_of_equal_scores_the_older_trial_is_promoted() -> None:
    trials = [trial(n, PAUSED, [1.0]) for n in range(3)]
    plan = scheduler().plan(history(trials, wanted=3), free=3)
    assert [resume.trial for resume in plan.resume] == [0]


def test_failed_trials_count_in_the_rungs_they_reached_but_are_not_promoted() -> None:
    trials = [trial(0, Status.FAILED, [9.0]), trial(1, PAUSED, [2.0]), trial(2, PAUSED, [1.0])]
    assert scheduler().plan(history(trials, wanted=3), free=3).resume == ()


def test_the_rung_value_is_the_score_when_the_rung_was_reached_not_later() -> None:
    """Trial 0 is best now, but at rung 1 it was worst."""
    trials = [trial(0, RUNNING, [0.0, 99.0]), trial(1, PAUSED, [2.0]), trial(2, PAUSED, [1.0])]
    plan = scheduler().plan(history(trials, wanted=3), free=3)
    assert [resume.trial for resume in plan.resume] == [1]


def test_a_trial_that_jumped_over_a_rung_stands_in_both() -> None:
    trials = [trial(n, PAUSED, [float(n)] * 4) for n in range(3)]
    plan = scheduler().plan(history(trials, wanted=3), free=3)
    assert [(resume.trial, resume.goal) for resume in plan.resume] == [(2, Goal(9, top=9))]


def test_when_nothing_can_be_promoted_or_started_the_plan_is_empty() -> None:
    two = [trial(0, PAUSED, [5.0]), trial(1, PAUSED, [1.0])]
    assert not scheduler().plan(history(two, wanted=2), free=2)


def test_the_decisions_of_a_whole_sweep_equal_the_published_algorithm() -> None:
    """One worker at a time on fixed curves, against Algorithm 2 written down independently."""
    values = [((n * 7919) % 101) / 100 for n in range(27)]
    eta, top = 3, 2
    rungs: list[list[int]] = [[] for _ in range(top + 1)]
    expected: list[tuple[int, int]] = []
    promoted: list[set[int]] = [set() for _ in range(top + 1)]
    started = 0
    while True:
        job = None
        for k in reversed(range(top)):
            best = sorted(rungs[k], key=lambda n: (-values[n], n))[: len(rungs[k]) // eta]
            candidates = [n for n in best if n not in promoted[k]]
            if candidates:
                job = (candidates[0], k + 1)
                promoted[k].add(candidates[0])
                break
        if job is None and started < len(values):
            job, started = (started, 0), started + 1
        if job is None:
            break
        expected.append(job)
        rungs[job[1]].append(job[0])

    asha_scheduler = scheduler(max_t=9)
    past = history([], wanted=len(values))
    decided: list[tuple[int, int]] = []
    while plan := asha_scheduler.plan(past, free=1):
        if plan.resume:
            number, goal = plan.resume[0].trial, plan.resume[0].goal
        else:
            number, goal = len(past.trials), plan.fresh[0].goal
            past.trials.append(trial(number, PAUSED))
        decided.append((number, asha_scheduler.levels.index(goal.until or 0)))
        status = Status.COMPLETED if goal.until == 9 else PAUSED
        past.trials[number] = trial(number, status, [values[number]] * int(goal.until or 0))
        past.touch(number)
    assert decided == expected


def test_rungs_that_no_trial_can_come_to_are_refused() -> None:
    frame = SchedulerContext({"training_iteration": 9})
    with pytest.raises(
        BadConfig, match=r"scheduler\.max_t: 27 is more than stop\.training_iteration"
    ):
        asha.Scheduler(asha.Options(max_t=27), frame)
    with pytest.raises(BadConfig, match=r"scheduler\.grace_period: 0\.5.*at least 1"):
        asha.Scheduler(asha.Options(grace_period=0.5), frame)


def test_a_promotion_carries_the_places_and_scores_that_it_was_based_on() -> None:
    trials = [trial(n, PAUSED, [float(n)]) for n in range(30)]
    plan = scheduler().plan(history(trials, wanted=30), free=30)
    told = plan.resume[-1].evidence
    assert (told["rung"], told["place"], told["of"], told["promoted"]) == (1, 10, 30, 10)
    assert told["places"] == [1, 2, 3, 9, 10, 11]
    assert told["trials"] == [29, 28, 27, 21, 20, 19]
    assert told["scores"] == [29.0, 28.0, 27.0, 21.0, 20.0, 19.0]


# ---- finishing the best ---------------------------------------------------------------------

SMALL: dict[str, Any] = {
    "trials": 4,
    "scheduler": "asha",
    "stop": {"training_iteration": 9},
    "limits": {"slice_s": 1.0},
}


def finisher(best: int = 1) -> asha.Scheduler:
    return asha.Scheduler(asha.Options(max_t=9, finish_best=best), SchedulerContext())


def rising(at: CurvePoint) -> dict[str, Any]:
    return {"score": (at.trial * 37) % 11 + at.iteration / 10, "timesteps_this_iter": 1.0}


def finished(course: SimulationResult) -> list[int]:
    """The trials that were sent to the top at the end, in order."""
    why = [(d.trial, d.fields["reason"]) for d in course.decisions if d.kind == "slice"]
    return list(
        dict.fromkeys(trial for trial, text in why if text.startswith("trained to the end:"))
    )


def unfinished(course: SimulationResult, best: int) -> list[int]:
    """Those of the best trials that are not COMPLETED."""
    ranked = course.history.ranked()[:best]
    return [trial.number for trial in ranked if trial.status is not Status.COMPLETED]


@pytest.mark.parametrize("trials", [1, 2, 4, 6, 12])
@pytest.mark.parametrize("best", [None, 1, 2])
def test_however_few_trials_there_are_the_best_are_trained_to_the_top(
    trials: int, best: int | None
) -> None:
    scheduler = {"name": "asha"} if best is None else {"name": "asha", "finish_best": best}
    course = simulate({**SMALL, "trials": trials, "scheduler": scheduler}, rising, slots=2)
    assert unfinished(course, best or 1) == []
    completed = [trial.iteration for trial in course.history.with_status(Status.COMPLETED)]
    assert len(completed) >= min(trials, best or 1)
    assert set(completed) == {9}


def test_without_it_the_winner_of_a_small_sweep_waits_for_ever() -> None:
    course = simulate({**SMALL, "scheduler": {"name": "asha", "finish_best": 0}}, rising)
    assert course.history.with_status(Status.COMPLETED) == []
    assert course.history.ranked()[0].reason == "the sweep ended while it waited at rung 3"


def test_the_decision_says_why_and_carries_the_ranking() -> None:
    four = [trial(0, PAUSED, [1.0]), trial(1, PAUSED, [5.0] * 3)]
    four += [trial(2, Status.COMPLETED, [3.0] * 9), trial(3, Status.FAILED, [9.0])]
    for one, goal in zip(four, (1, 3), strict=False):
        one.replicas[0].goal = Goal(goal, top=9)
    (resume,) = finisher().plan(history(four, wanted=4), free=3).resume
    assert (resume.trial, resume.goal) == (1, Goal(9, top=9))
    assert resume.reason.startswith(
        "trained to the end: score 5 is place 1 of 3 paused or completed trials"
    )
    assert resume.evidence["trials"] == [1, 2, 0]
    assert resume.evidence["scores"] == [5.0, 3.0, 1.0]


def test_the_best_go_on_in_the_order_of_their_rank() -> None:
    two = [trial(n, PAUSED, [float(n)] * 3) for n in range(2)]
    for one in two:
        one.replicas[0].goal = Goal(3, top=9)
    plan = finisher(best=3).plan(history(two, wanted=2), free=8)
    assert [resume.trial for resume in plan.resume] == [1, 0]
    assert [r.trial for r in finisher(3).plan(history(two, wanted=2), free=1).resume] == [1]


def test_nobody_is_finished_while_others_climb_or_begin() -> None:
    two = [trial(n, PAUSED, [float(n)]) for n in range(2)]
    for one in two:
        one.replicas[0].goal = Goal(1, top=9)
    climbing = trial(2, RUNNING)
    climbing.replicas[0].goal = Goal(1, top=9)
    assert not finisher().plan(history([*two, climbing], wanted=3), free=2)
    assert not finisher().plan(history(two, wanted=3), free=2).resume
    climbing.replicas[0].goal = Goal(9, top=9)  # it is on the way to the top already
    assert not finisher().plan(history([*two, climbing], wanted=3), free=2)
    plan = finisher(best=2).plan(history([*two, climbing], wanted=3), free=2)
    assert [resume.trial for resume in plan.resume] == [1]


def test_who_ends_worse_than_one_that_waits_is_not_the_winner() -> None:
    """Trial 3 falls behind trial 2 on its way to the top, so that one is finished too."""
    course = simulate(
        SMALL, lambda at: {"score": at.trial - (5.0 if (at.trial, at.iteration) > (3, 3) else 0)}
    )
    assert finished(course) == [3, 2]
    assert unfinished(course, 1) == []
    statuses = [trial.status.value for trial in course.history.trials]
    assert statuses == ["PRUNED", "PRUNED", "COMPLETED", "COMPLETED"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"deterministic": {"batch": 2}},
        {"seeds": 2},
        {"seeds": "auto"},
        {"objectives": {"cost": "min"}, "searcher": "nsga2"},
        {"scheduler": {"name": "asha", "finish_best": 3}},
    ],
)
def test_who_is_finished_is_the_same_however_the_driver_is_killed(more: dict[str, Any]) -> None:
    def noisy(at: CurvePoint) -> dict[str, Any]:
        luck = (at.trial * 5 + at.seed_index * 3) % 7 / 5
        return {"score": rising(at)["score"] + luck, "cost": float(at.trial % 3)}

    spec = {**SMALL, "trials": 3, **more}
    course = check_kills(spec, noisy, slots=2)
    best = 3 if "scheduler" in more else 1
    assert unfinished(course, best) == []
    assert finished(course)


def test_in_batches_the_same_are_finished_whatever_the_number_of_slots() -> None:
    scheduler = {"name": "asha", "finish_best": 3}
    spec = {**SMALL, "trials": 6, "scheduler": scheduler, "deterministic": {"batch": 2}}
    one, three = (simulate(spec, rising, slots=slots) for slots in (1, 3))
    assert one.decisions == three.decisions
    assert len(finished(one)) == 3


def test_a_budget_ends_the_sweep_before_the_best_is_finished_and_more_finishes_it() -> None:
    with Simulation({**SMALL, "budget": {"timesteps": 7.0}}, rising) as simulation:
        course = simulation.run()
        assert "budget.timesteps" in course.history.end_reason
        assert course.history.with_status(Status.COMPLETED) == []
        with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
            more = [LimitsChanged(None, {"timesteps": None})]
            ledger.append(None, [TermBegan("host", 1, 4), *reopening_moves(course.history), *more])
        assert unfinished(simulation.run(), 1) == []


def test_a_top_up_goes_on_with_what_waits_and_finishes_the_new_best() -> None:
    with Simulation(SMALL, rising) as simulation:
        first = simulation.run()
        course = simulation.run(trials=9)
    assert [t.number for t in first.history.with_status(Status.COMPLETED)] == [2]
    assert course.history.searched_count == 9
    assert course.history.ranked()[0].number == 8
    assert unfinished(course, 1) == []


def test_a_held_trial_is_not_finished_and_the_next_best_is() -> None:
    one, two = trial(0, PAUSED, [5.0]), trial(1, PAUSED, [3.0])
    for each in (one, two):
        each.replicas[0].goal = Goal(1, top=9)
    one.replicas[0].hold = UserHold.PAUSE
    plan = finisher().plan(history([one, two], wanted=2).for_scheduler(), free=2)
    assert [resume.trial for resume in plan.resume] == [1]


def test_a_new_sweep_writes_down_how_many_and_one_without_it_goes_on_as_before() -> None:
    def kept(simulation: Simulation) -> str:
        with contextlib.closing(Ledger(simulation.folder.ledger)) as ledger:
            return ledger.spec

    with Simulation(SMALL, rising) as simulation:
        assert '"scheduler":{"name":"asha","finish_best":1}' in kept(simulation)
    own = {"name": "asha", "finish_best": 0}
    with Simulation({**SMALL, "scheduler": own}, rising) as simulation:
        assert '"scheduler":{"name":"asha","finish_best":0}' in kept(simulation)
    with Simulation(SMALL, rising) as simulation:
        before = kept(simulation).replace(',"finish_best":1', "")
        with contextlib.closing(sqlite3.connect(simulation.folder.ledger)) as database, database:
            database.execute("UPDATE sweep SET spec = ?", (before,))
        assert simulation.run().history.with_status(Status.COMPLETED) == []
    stopping = {"name": "asha", "type": "stopping"}
    with Simulation({**SMALL, "scheduler": stopping}, rising) as simulation:
        assert "finish_best" not in kept(simulation)


@pytest.mark.parametrize(
    "scheduler",
    [
        {"name": "asha", "type": "stopping", "finish_best": 1},
        {"name": "hyperband", "finish_best": 1},
        {"name": "fifo", "finish_best": 0},
        {"name": "optuna", "pruner": "MedianPruner", "finish_best": 1},
    ],
)
def test_where_nobody_waits_at_the_end_it_is_refused_with_the_reason(
    scheduler: dict[str, Any],
) -> None:
    with pytest.raises(BadConfig, match="no trial waits for a promotion") as refused:
        simulate({**SMALL, "scheduler": scheduler}, rising)
    assert refused.value.key == "scheduler.finish_best"


@pytest.mark.parametrize("kind", ["promotion", "stopping"])
def test_without_a_top_rung_rungs_grow_as_trials_reach_them(kind: str) -> None:
    """Trials end by themselves, at iteration 40; nothing else says where."""

    def curve(at: CurvePoint) -> dict[str, Any]:
        return {"score": (at.trial * 7) % 27 + at.iteration / 100, "done": at.iteration == 40}

    asked = {"name": "asha", "type": kind, "reduction_factor": 3}
    course = simulate({"trials": 27, "scheduler": asked, "stop": {}}, curve, slots=2)
    trials = course.history.trials
    goals = {r.event.goal for r in course.records if isinstance(r.event, Opened)}
    assert {goal.top for goal in goals} == {None}
    assert (
        {1.0, 3.0, 9.0, 27.0} <= {goal.until for goal in goals} <= {1.0, 3.0, 9.0, 27.0, 81.0, None}
    )
    best = max(trials, key=lambda trial: (trial.number * 7) % 27)
    assert (best.status, best.iteration) == (Status.COMPLETED, 40)
    assert sum(trial.iteration for trial in trials) < 27 * 40 / 2


def test_rungs_that_grow_are_told() -> None:
    growing = asha.Scheduler(asha.Options(), SchedulerContext())
    assert growing.levels == ()
    assert growing.remark == (
        "scheduler: neither max_t nor stop.training_iteration is given, so rungs are added as "
        "trials reach them, at training_iteration 1, 3, 9, 27, …; the trial promoted last trains "
        "to its end"
    )
    assert not asha.Scheduler(asha.Options(max_t=9), SchedulerContext()).remark
