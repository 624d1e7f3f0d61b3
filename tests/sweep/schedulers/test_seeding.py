"""Seeds on the rungs: trials climb in steps of training and in seeds."""

import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep import spec as specs
from sweep.core.errors import BadConfig
from sweep.driver.start.creation import resolving
from sweep.driver.tracking import sync
from sweep.history.events import Goal, Status, UserHold
from sweep.history.trial import Trial
from sweep.operations.upkeep.verify import verify
from sweep.schedulers import SchedulerContext, asha
from sweep.schedulers._shared.seeding import Step
from sweep.spec import sections, yaml_source
from sweep.testing import CurvePoint, SimulationResult, check_kills, simulate
from sweep.testing.curves import Played
from sweep.testing.simulation import DEFAULTS
from sweep.views import lookup, overview
from tests.support import sweeps
from tests.support.trials import history, trial

PAUSED = Status.PAUSED
PLAN = {3: 2, 9: 4}
CLIMB: dict[str, Any] = {
    "trials": 12,
    "space": {"x": {"uniform": [0, 1]}},
    "stop": {"training_iteration": 9},
    "scheduler": "asha",
    "seeds": PLAN,
}


def made(seeds: Any = PLAN, **options: Any) -> asha.Scheduler:
    context = SchedulerContext(seeds=sections.read_seeds(seeds))
    return asha.Scheduler(asha.Options.model_validate(options), context)


def scheduler(seeds: Any = PLAN) -> asha.Scheduler:
    return made(seeds, max_t=9, finish_best=1)


def noisy(at: CurvePoint) -> dict[str, Any]:
    """Better settings, and seeds of which the first is the luckiest with trial 5."""
    luck = (
        2.5 if (at.trial, at.seed_index) == (5, 0) else (at.trial * 5 + at.seed_index * 3) % 7 / 20
    )
    return {"score": at.trial / 10 + at.iteration / 10 + luck, "timesteps_this_iter": 10}


def seeds(course: SimulationResult) -> list[int]:
    return [len(one.replicas) for one in course.history.trials]


def test_the_ladder_has_a_step_more_where_seeds_are_added() -> None:
    assert scheduler().steps == (Step(1, 1), Step(3, 1), Step(3, 2), Step(9, 2), Step(9, 4))
    assert scheduler(1).steps == scheduler(3).steps == ()  # the rungs alone
    auto = (Step(1, 1), Step(3, 1), Step(9, 1), Step(9, 3), Step(9, 6))
    assert scheduler("auto").steps == auto
    assert made("auto", max_t=1).steps == (Step(1, 1), Step(1, 3), Step(1, 6))


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({4: 2}, "there is no rung 4; expected one of 1, 3, 9"),
        ({3: 1}, "1 to 1000, auto, or"),
        ({3: 4, 9: 2}, "with more seeds at each later rung"),
        ({3: 10**6}, "at most 1000"),
        ({"3": 2, "3.0": 3}, "with more seeds at each later rung"),
        ({"third": 2}, "1 to 1000, auto, or"),
        ({}, "1 to 1000, auto, or"),
        (0, "1 to 1000, auto, or"),
        (1001, "1 to 1000, auto, or"),
        (2.0, "1 to 1000, auto, or"),
        (True, "1 to 1000, auto, or"),
        ("always", "1 to 1000, auto, or"),
    ],
)
def test_a_seed_plan_that_cannot_be_is_refused_with_what_can(given: Any, allowed: str) -> None:
    with pytest.raises(BadConfig, match=allowed):
        simulate({**CLIMB, "seeds": given}, noisy)


def test_a_file_writes_rungs_as_numbers() -> None:
    raw, source = yaml_source.read("seeds: {15000: 3, 4.5e4: 6}", "file")
    assert sections.read_seeds(raw["seeds"]) == ((15000.0, 3), (45000.0, 6))
    assert str(source.locate(("seeds", "15000"))).startswith("file:1")
    with pytest.raises(BadConfig, match="the key 15000 is not text"):
        yaml_source.read("config: {15000: 3}", "file")


@pytest.mark.parametrize("aggregate", ["worst", {"lower_bound": 0.9}])
def test_a_plan_stands_beside_no_aggregate_that_changes_with_the_number_of_seeds(
    aggregate: Any,
) -> None:
    with pytest.raises(BadConfig, match=r"aggregate: .*mean, iqm or median with a plan of seeds"):
        simulate({**CLIMB, "aggregate": aggregate}, noisy)


@pytest.mark.parametrize("name", ["fifo", "median", "pbt"])
@pytest.mark.parametrize("plan", ["auto", PLAN])
def test_a_scheduler_without_rungs_refuses_a_plan_and_names_those_that_have_them(
    name: str, plan: Any
) -> None:
    scheduler = {"name": name, **({"perturbation_interval": 3} if name == "pbt" else {})}
    allowed = f"seeds: the scheduler {name} has no rungs .* a number, .*: asha, bohb, hyperband"
    with pytest.raises(BadConfig, match=allowed):
        simulate({**CLIMB, "scheduler": scheduler, "seeds": plan}, noisy)


def test_a_number_is_so_many_seeds_from_the_beginning() -> None:
    course = simulate({**CLIMB, "trials": 4, "seeds": 3}, noisy, slots=2)
    assert seeds(course) == [3] * 4
    assert all(r.joined_at is None for one in course.history.trials for r in one.replicas)


def test_trials_that_go_on_at_once_get_no_seeds() -> None:
    with pytest.raises(BadConfig, match="with type: stopping no trial waits at a rung"):
        made(max_t=9, type="stopping")


def test_where_nothing_says_where_the_top_is_there_is_no_seed_plan() -> None:
    with pytest.raises(BadConfig, match=r"neither max_t nor stop\.training_iteration sets"):
        made("auto")


def test_who_is_promoted_in_seeds_begins_them_from_the_beginning_to_the_same_rung() -> None:
    three = [trial(n, PAUSED, [1.0, 1.0, float(n)]) for n in range(3)]
    plan = scheduler().plan(history(three, wanted=3), free=4)
    (more,) = plan.seeds
    assert (more.trial, more.index, more.goal) == (2, 1, Goal(3, top=9))
    assert more.reason.startswith("promoted to 2 seeds: score 2 is place 1 of 3 at rung 3")
    assert plan.resume == ()


def test_who_has_met_its_stopping_criterion_gets_seeds_too() -> None:
    """It is at the first rung alone, and would not get further."""
    done = trial(0, Status.COMPLETED, [9.0, 9.0])
    others = [trial(n, PAUSED, [1.0, 1.0, 1.0]) for n in (1, 2)]
    (more,) = scheduler().plan(history([done, *others], wanted=3), free=4).seeds
    assert (more.trial, more.index) == (0, 1)


def test_of_equal_scores_the_better_curve_gets_the_seeds() -> None:
    """At a highest possible score, trials that were there early and stayed are the safer ones."""
    curves = [[1.0, 2.0, 9.0], [1.0, 9.0, 9.0], [9.0, 1.0, 9.0]]
    paused = [trial(n, PAUSED, curve) for n, curve in enumerate(curves)]
    (more,) = scheduler().plan(history(paused, wanted=3), free=4).seeds
    assert more.trial == 1
    assert more.reason.startswith("promoted to 2 seeds: score 9 is place 1 of 3 at rung 3")
    single = scheduler(1).plan(history(paused, wanted=3), free=4)
    assert [(one.trial, one.goal) for one in single.resume] == [(0, Goal(9, top=9))]


def test_of_trials_that_ended_at_a_target_the_one_that_was_there_first_gets_the_seeds() -> None:
    """The last score of an ended trial counts up to the rung."""
    slow, fast = [1.0, 8.0, 9.0], [2.0, 9.0]
    ended = [trial(n, Status.COMPLETED, curve) for n, curve in enumerate([slow, fast, slow])]
    (more,) = scheduler().plan(history(ended, wanted=3), free=4).seeds
    assert more.trial == 1


def test_the_mean_until_a_rung_ends_there_and_continues_with_the_last_value() -> None:
    longer, ended = trial(0, PAUSED, [1.0, 9.0, 5.0, 0.0]), trial(1, PAUSED, [1.0, 9.0])
    assert longer.replicas[0].mean_until(3) == 5.0
    assert ended.replicas[0].mean_until(4) == 7.0
    assert trial(2, PAUSED, [math.nan]).replicas[0].mean_until(3) is None


def test_in_brackets_too_the_better_curve_of_equal_scores_gets_the_seeds() -> None:
    def curve(at: CurvePoint) -> dict[str, Any]:
        first = {0: 3, 1: 1, 2: 2}.get(at.trial, 9)
        return {"score": 1.0 if at.iteration >= first else 0.0, "timesteps_this_iter": 1}

    hyperband = {"name": "hyperband", "grace_period": 3, "reduction_factor": 3}
    course = simulate({**CLIMB, "trials": 3, "scheduler": hyperband, "seeds": {3: 3}}, curve)
    assert seeds(course) == [1, 3, 1]


AUTO = {**CLIMB, "trials": 40, "seeds": "auto"}
AT_THE_TOP = {**AUTO, "scheduler": {"name": "asha", "max_t": 9, "grace_period": 9}}


def added(course: SimulationResult) -> dict[int, int]:
    """Return the trials with further seeds → their numbers of seeds."""
    return {one.number: len(one.replicas) for one in course.history.trials if one.replicas[1:]}


def test_auto_tests_the_trial_with_the_best_expected_score_at_the_top() -> None:
    """Two seeds for the first four trials at the top, with the numbers that decided."""
    top = [trial(n, Status.COMPLETED, [1.0] * 8 + [float(n % 3)]) for n in range(4)]
    poor = [trial(n, PAUSED, [0.0, 0.0, 0.0]) for n in range(4, 12)]
    past = history([*top, *poor], wanted=12)
    plan = scheduler("auto").plan(past, free=4)
    assert past.best is past.trials[2]
    assert [(one.trial, one.index, one.goal) for one in plan.seeds] == [
        (2, 1, Goal(9, top=9)),
        (2, 2, Goal(9, top=9)),
    ]
    (reason,) = {one.reason for one in plan.seeds}
    why = (
        r"tested under 3 seeds: its expected score on a new seed, [\d.]+, is place 1 of 4 at rung 9"
    )
    assert re.fullmatch(why, reason)
    assert plan.seeds[0].evidence["trials"] == [2, 1, 0, 3]
    assert plan.seeds[0].evidence["seeds"] == [1, 1, 1, 1]
    few = [*top[:3], trial(3, PAUSED, [1.0, 1.0, 1.0]), *poor]
    assert scheduler("auto").plan(history(few, wanted=12), free=4).seeds == ()


@pytest.mark.parametrize(
    ("arrived", "wanted", "begins"), [(81, 99, False), (82, 99, True), (81, 81, True)]
)
def test_among_many_trials_at_the_top_tests_begin_at_some_arrivals_and_at_the_end(
    arrived: int, wanted: int, begins: bool
) -> None:
    top = [trial(n, Status.COMPLETED, [1.0] * 8 + [float(n % 7)]) for n in range(arrived)]
    plan = scheduler("auto").plan(history(top, wanted=wanted), free=4)
    assert bool(plan.seeds) is begins


def test_of_trials_that_are_expected_to_score_the_same_the_longest_trained_is_tested() -> None:
    """A target that is met at once may be luck."""
    ended = [trial(n, Status.COMPLETED, [9.0] * length) for n, length in enumerate((1, 7, 4, 7))]
    others = [trial(n, PAUSED, [n % 5 / 5] * 9) for n in range(4, 16)]
    past = history([*ended, *others], wanted=16)
    assert len({past.expected(one) for one in ended}) == 1
    more = scheduler("auto").plan(past, free=1).seeds
    assert [one.trial for one in more] == [1]


def lucky(at: CurvePoint) -> dict[str, Any]:
    """Later trials score more under their first seed; those before trial 8 owe it to this seed."""
    is_good = at.trial >= 8 or at.seed_index == 0
    score = 10.0 + at.trial / 100 if is_good else 0.0
    return {"score": score if at.iteration == 9 else at.trial / 1e4, "timesteps_this_iter": 1}


def test_a_trial_let_down_by_its_seeds_is_no_longer_tested_but_the_next_one_is() -> None:
    course = simulate(AT_THE_TOP, lucky)
    counts = added(course)
    assert max(counts.values()) == 6
    assert [number for number in counts if number < 8]
    pick = course.history.best
    assert pick is not None
    assert (pick.number >= 8, len(pick.replicas)) == (True, 6)
    top = sum(one.status is Status.COMPLETED for one in course.history.trials)
    assert sum(counts.values()) - len(counts) <= top // 2


def test_another_trial_is_tested_if_it_may_be_far_better_than_one_with_all_its_seeds() -> None:
    """After the first fall, trials at the target are expected to fall as far; they do not."""

    def falls(at: CurvePoint) -> dict[str, Any]:
        poor = at.trial % 3 == 2
        early = at.iteration / 10 if poor or at.iteration != 2 else 5.0
        late = early + at.trial / 240 if poor else 1.0 + at.seed_index / 20 if not at.trial else 4.9
        return {"score": early if at.iteration < 3 else late, "timesteps_this_iter": 1}

    stop = {"training_iteration": 9, "score": 5.0}
    course = simulate({**AT_THE_TOP, "trials": 24, "stop": stop}, falls, slots=2)
    pick = course.history.best
    assert pick is not None
    assert (added(course)[0], added(course)[pick.number], pick.number > 0) == (6, 6, True)
    assert any("may still be the best" in str(decision) for decision in course.decisions)


@pytest.mark.parametrize(("trials", "seeds"), [(24, 6), (32, 6), (33, 12), (60, 12)])
def test_no_other_trial_is_tested_if_the_pick_is_better_by_far(trials: int, seeds: int) -> None:
    """In long sweeps it gets more seeds instead, once these are a third of the trials there."""

    def apart(at: CurvePoint) -> dict[str, Any]:
        score = at.trial / 10 + (at.trial == 0) * 100.0 + at.seed_index % 2
        return {"score": score if at.iteration == 9 else 0.0, "timesteps_this_iter": 1}

    assert added(simulate({**AT_THE_TOP, "trials": trials}, apart, slots=2)) == {0: seeds}


def test_a_test_begun_in_few_slots_is_finished_before_another_begins() -> None:
    counts = added(simulate(AT_THE_TOP, lucky, slots=1))
    assert min(counts) < 8
    assert set(counts.values()) == {3, 6}


def test_a_test_goes_on_where_a_seed_has_left_its_trial_without_a_score() -> None:
    def silent(at: CurvePoint) -> dict[str, Any]:
        has_score = at.seed_index != 1
        return {**({"score": at.trial / 10} if has_score else {}), "timesteps_this_iter": 1}

    course = simulate(AT_THE_TOP, silent, slots=1)
    assert 3 in added(course).values()
    pick = course.history.best
    assert pick is not None
    assert len(pick.replicas) == 1


def test_tests_leave_out_trials_that_a_user_holds_and_seeds_that_fail_end_their_trial() -> None:
    top = [trial(n, Status.COMPLETED, [1.0] * 8 + [float(n)]) for n in range(4)]
    top[3].replicas[0].hold = UserHold.PAUSE
    assert [one.trial for one in scheduler("auto").plan(history(top, wanted=4), free=1).seeds] == [
        2
    ]

    def fails(at: CurvePoint) -> dict[str, Any]:
        if at.seed_index == 1:
            raise ValueError("always")
        return noisy(at)

    course = simulate(AUTO, fails, slots=2)
    pick = course.history.best
    assert pick is not None
    assert pick.status is Status.COMPLETED


def test_a_further_seed_trains_past_the_target_that_ended_its_trial() -> None:
    """A first score of 5 is luck: other seeds have it, too, and end at 1."""

    def falls(at: CurvePoint) -> dict[str, Any]:
        return {"score": 5.0 if at.iteration == 2 else 1.0, "timesteps_this_iter": 1}

    stop = {"training_iteration": 9, "score": 5.0}
    course = simulate({**CLIMB, "stop": stop, "seeds": {9: 3}}, falls, slots=2)
    several = [one for one in course.history.trials if len(one.replicas) == 3]
    assert several
    for one in several:
        assert [replica.iteration for replica in one.replicas] == [2, 9, 9]
        assert one.score == pytest.approx((5.0 + 1.0 + 1.0) / 3)


def test_few_trials_get_further_seeds_and_the_pick_is_one_of_them() -> None:
    course = simulate(CLIMB, noisy, slots=2)
    counts = seeds(course)
    assert len(counts) == 12
    assert sum(count > 1 for count in counts) <= 5
    pick = course.history.best
    assert pick is not None
    assert (len(pick.replicas), pick.status) == (2, Status.COMPLETED)


def test_the_last_trial_is_trained_to_the_end_under_the_seeds_that_it_has() -> None:
    few = simulate({**CLIMB, "trials": 3}, noisy, slots=2).history
    assert few.best is not None
    assert (len(few.best.replicas), few.best.status) == (1, Status.COMPLETED)
    assert [len(one.replicas) for one in few.trials] == [1, 1, 1]


def test_a_lucky_first_seed_does_not_win() -> None:
    course = simulate(CLIMB, noisy, slots=2)
    lucky = course.history.trials[5]
    assert len(lucky.replicas) > 1
    assert course.history.best is not lucky
    with_one_seed = simulate({**CLIMB, "seeds": 1}, noisy, slots=2).history
    assert with_one_seed.best is with_one_seed.trials[5]


def trained(course: SimulationResult) -> list[tuple[int, int, str]]:
    trials: list[Trial] = course.history.trials
    return [(one.number, r.iteration, r.status.value) for one in trials for r in one.replicas]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"deterministic": {"batch": 3}},
        {"seeds": "auto"},
        {"searcher": "tpe", "budget": {"timesteps": 500}},
    ],
)
def test_who_gets_seeds_is_the_same_however_the_driver_is_killed(more: dict[str, Any]) -> None:
    course = check_kills({**CLIMB, "trials": 6, **more}, noisy, slots=2)
    assert trained(course)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"deterministic": {"batch": 3}}])
def test_tests_of_the_best_are_the_same_however_the_driver_is_killed(more: dict[str, Any]) -> None:
    course = check_kills({**AT_THE_TOP, "trials": 8, **more}, lucky, slots=2)
    assert added(course)


@pytest.mark.parametrize("spec", [CLIMB, AUTO])
def test_with_a_batch_the_slots_decide_nothing(spec: dict[str, Any]) -> None:
    spec = {**spec, "deterministic": {"batch": 3}}
    assert trained(simulate(spec, noisy, slots=1)) == trained(simulate(spec, noisy, slots=4))


def test_a_seed_that_fails_ends_its_trial_and_the_others_go_on() -> None:
    def fails(at: CurvePoint) -> dict[str, Any]:
        if (at.trial, at.seed_index) == (11, 1):
            raise ValueError("always")
        return noisy(at)

    course = simulate(CLIMB, fails, slots=2)
    assert course.history.trials[11].status is Status.FAILED
    pick = course.history.best
    assert pick is not None
    assert pick.status is Status.COMPLETED


def test_copies_and_tables_have_a_run_and_a_row_for_each_seed(tmp_path: Path) -> None:
    plan = {3: 2, 9: 3}
    folder = sweeps.make(tmp_path, trials=9, scheduler="asha", seeds=plan, trackers=["mlflow"])
    assert sweeps.run(folder) == "finished"
    assert [sent.missing for sent in sync.send(folder, print, 60.0)] == [0]
    assert verify(folder).damages == ()
    found = lookup.read(folder, curves=False)
    best = overview.best(found)
    assert len(best["scores"]) == 2
    assert best["pick"]["runner_up"] is not None
    shown = overview.show(lookup.read(folder), best["trial"], [])
    assert [row["seed_index"] for row in shown["seeds"]] == [0, 1]
    with closing(sqlite3.connect(folder.mlflow)) as database:
        query = "SELECT count(*) FROM tags WHERE key = 'sweep.run' AND value LIKE ?"
        assert database.execute(query, (f"{best['trial']}.%",)).fetchone() == (2,)


def test_a_plan_of_a_ledger_is_the_plan_of_its_spec() -> None:
    text = json.dumps({**DEFAULTS, **CLIMB, "trainable": "ppo"})
    spec = specs.parse(text, "file")
    assert spec.seeds == ((3.0, 2), (9.0, 4))
    assert json.loads(specs.canonical_json(spec))["seeds"] == {"3": 2, "9": 4}
    assert specs.from_json(specs.canonical_json(spec)) == spec


# ---- seeds where the spec names none -------------------------------------------------------------

TRAINER: dict[str, Any] = {
    "name": "default",
    "trials": 9,
    "metric": "episode_reward_mean",
    "mode": "max",
    "trainable": "ppo",
    "config": {"env": "CartPole-v1"},
    "space": {"lr": {"loguniform": [1e-4, 1e-2]}},
    "stop": {"timesteps_total": 45000},
    "scheduler": {"name": "asha", "time_attr": "timesteps_total", "grace_period": 5000},
}


class Seeded(Played):
    depends_on_seed = True


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "auto"),
        ({"seeds": 1}, 1),
        ({"seeds": {15000: 2}}, ((15000.0, 2),)),
        ({"scheduler": "fifo"}, 1),
        ({"scheduler": "hyperband", "stop": {"training_iteration": 9}}, 1),
        ({"scheduler": {**TRAINER["scheduler"], "type": "stopping"}}, 1),
        ({"stop": {"episode_reward_mean": 475}}, 1),  # the top rung is unknown
        ({"scheduler": {**TRAINER["scheduler"], "grace_period": 45000}}, 1),  # one rung
        ({"aggregate": "worst"}, 1),
        ({"trainable": "sweep.testing.curves:Played", "config": {}, "metric": "score"}, 1),
        ({"trainable": f"{__name__}:Seeded", "config": {}, "metric": "score"}, "auto"),
    ],
)
def test_a_new_sweep_gets_further_seeds_where_results_depend_on_them_and_rungs_are_known(
    changes: dict[str, Any], expected: Any
) -> None:
    spec = specs.parse(json.dumps({**TRAINER, **changes}), "file")
    made = resolving.resolve(spec, (), is_new=True)
    assert made.spec.seeds == expected
    assert ("seeds: auto" in made.scheduler.remark) == (expected == "auto")
    again = specs.from_json(specs.canonical_json(made.spec))
    assert resolving.resolve(again, ()).spec.seeds == expected
