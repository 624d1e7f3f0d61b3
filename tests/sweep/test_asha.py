import math

import pytest

from sweep.errors import BadConfig
from sweep.events import Goal, Status
from sweep.schedulers import Frame, asha
from tests.support.trials import history, trial

PAUSED, RUNNING = Status.PAUSED, Status.RUNNING


def scheduler(max_t: float = 9, eta: int = 3, grace: float = 1) -> asha.Scheduler:
    options = asha.Options(max_t=max_t, reduction_factor=eta, grace_period=grace)
    return asha.Scheduler(options, Frame())


def test_rungs_are_the_grace_period_times_powers_of_the_factor_up_to_the_top() -> None:
    assert scheduler(max_t=81).levels == (1, 3, 9, 27, 81)
    assert scheduler(max_t=100, grace=5, eta=4).levels == (5, 20, 80, 100)
    assert scheduler(max_t=1).levels == (1,)


def test_the_top_rung_is_the_stopping_criterion_on_the_same_time() -> None:
    options = asha.Options(time_attr="timesteps_total", grace_period=1000)
    assert asha.Scheduler(options, Frame({"timesteps_total": 9000})).levels == (1000, 3000, 9000)


def test_without_a_top_rung_it_says_which_setting_to_give() -> None:
    with pytest.raises(BadConfig, match=r"stop\.timesteps_total"):
        asha.Scheduler(asha.Options(time_attr="timesteps_total"), Frame({"episodes_total": 5}))


def test_a_grace_period_above_the_top_rung_is_refused() -> None:
    with pytest.raises(BadConfig, match="at most the top rung, 5"):
        scheduler(max_t=5, grace=6)


def test_fresh_trials_start_towards_the_lowest_rung_until_all_are_created() -> None:
    plan = scheduler().plan(history([trial(0, RUNNING)], wanted=3), free=5)
    assert [fresh.goal for fresh in plan.fresh] == [Goal(1, top=9), Goal(1, top=9)]


def test_nobody_is_promoted_before_as_many_as_the_factor_have_reached_the_rung() -> None:
    two = [trial(0, PAUSED, [5.0]), trial(1, PAUSED, [1.0])]
    assert scheduler().plan(history(two, wanted=2), free=2).resume == ()


def test_the_best_third_of_a_rung_is_promoted_before_anything_fresh_starts() -> None:
    three = [trial(n, PAUSED, [value]) for n, value in enumerate([1.0, 5.0, 3.0])]
    plan = scheduler().plan(history(three, wanted=10), free=2)
    assert [(resume.trial, resume.goal) for resume in plan.resume] == [(1, Goal(3, top=9))]
    assert len(plan.fresh) == 1
    assert "place 1 of 3 at rung 1" in plan.resume[0].why


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


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_score_ranks_last(missing: float | None) -> None:
    trials = [trial(0, PAUSED, [missing]), trial(1, PAUSED, [-50.0]), trial(2, PAUSED, [missing])]
    plan = scheduler().plan(history(trials, wanted=3), free=1)
    assert [resume.trial for resume in plan.resume] == [1]


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
        decided.append((number, asha_scheduler.levels.index(goal.at or 0)))
        status = Status.COMPLETED if goal.at == 9 else PAUSED
        past.trials[number] = trial(number, status, [values[number]] * int(goal.at or 0))
    assert decided == expected


def test_rungs_that_no_trial_can_come_to_are_refused() -> None:
    frame = Frame({"training_iteration": 9})
    with pytest.raises(BadConfig, match=r"scheduler\.max_t: 27.*at most stop\.training_iteration"):
        asha.Scheduler(asha.Options(max_t=27), frame)
    with pytest.raises(BadConfig, match=r"scheduler\.grace_period: 0\.5.*at least 1"):
        asha.Scheduler(asha.Options(grace_period=0.5), frame)


def test_a_promotion_carries_the_places_and_scores_that_it_was_based_on() -> None:
    trials = [trial(n, PAUSED, [float(n)]) for n in range(30)]
    plan = scheduler().plan(history(trials, wanted=30), free=30)
    told = plan.resume[-1].evidence
    assert (told["rung"], told["place"], told["of"], told["going_on"]) == (1, 10, 30, 10)
    assert told["places"] == [1, 2, 3, 9, 10, 11]
    assert told["trials"] == [29, 28, 27, 21, 20, 19]
    assert told["scores"] == [29.0, 28.0, 27.0, 21.0, 20.0, 19.0]
