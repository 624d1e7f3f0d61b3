"""What every scheduler promises; a new file among them is tested unasked."""

import contextlib
import functools
import math
from collections.abc import Mapping
from typing import Any

import pytest

from sweep import schedulers
from sweep.core import plugins
from sweep.history.events import FINISHED, Closed, HoldChanged, Opened, Status
from sweep.history.history import History
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Requests, Verb
from sweep.schedulers import Scheduler, SchedulerContext
from sweep.spec.space import Space
from sweep.testing import CurvePoint, Simulation, SimulationResult, simulate
from sweep.views import reading
from tests.support.trials import history

NAMES = plugins.names(schedulers.PACKAGE)
SPACE = {"x": {"uniform": [0.1, 1.0]}, "n": {"choice": [1, 2, 4]}}
_TRIED: Mapping[str, Mapping[str, Any]] = {
    "optuna": {"pruner": "SuccessiveHalvingPruner", "min_resource": 1},
    "pbt_replay": {
        "schedule": [
            {"from": 0, "settings": {"x": 0.5, "n": 1}},
            {"from": 4, "settings": {"x": 0.25, "n": 4}},
        ]
    },
    "threshold": {"lower": 2.0},
}


def _examples(name: str) -> dict[str, Any]:
    """What a scheduler gives as examples of options that have no default."""
    options = schedulers.find(name).Options.model_fields.items()
    return {key: field.examples[0] for key, field in options if field.examples}


#: What those need that cannot do without a setting.
NEEDED: Mapping[str, Mapping[str, Any]] = {
    name: {**_examples(name), **_TRIED.get(name, {})} for name in NAMES
}

#: Schedulers that want a certain number of trials; the others get `WANTED`.
TRIALS = {"pbt_replay": 1}
WANTED = 9


def trials(name: str) -> int:
    return TRIALS.get(name, WANTED)


def build(name: str) -> Scheduler:
    cls = schedulers.find(name)
    options = cls.Options.model_validate(NEEDED.get(name, {}))
    return cls(
        options,
        SchedulerContext({"training_iteration": 9}, trials(name), Space.parse(SPACE), seed=3),
    )


def spec(name: str, **more: Any) -> dict[str, Any]:
    return {
        "trials": trials(name),
        "space": SPACE,
        "stop": {"training_iteration": 9},
        "scheduler": {"name": name, **NEEDED.get(name, {})},
        "seed": 3,
        **more,
    }


def curve(at: CurvePoint) -> dict[str, Any]:
    return {
        "score": (at.trial * 37) % 11 + at.iteration / 10,
        "time_this_iter_s": 1 + (at.trial * 7) % 5 / 3,
    }


@functools.cache
def course(name: str, slots: int) -> SimulationResult:
    return simulate(spec(name), curve, slots)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_schedulers_that_people_look_for_are_found() -> None:
    looked_for = {"fifo", "asha", "hyperband", "bohb", "median", "percentile", "patient"}
    assert looked_for | {"threshold", "wilcoxon", "optuna", "pbt"} <= set(NAMES)


def test_it_names_the_time_in_which_it_counts(name: str) -> None:
    scheduler = build(name)
    assert isinstance(scheduler.time_attr, str)
    assert list(scheduler.levels) == sorted(scheduler.levels)


@pytest.mark.parametrize("free", [1, 3, 8])
def test_it_never_starts_more_than_the_free_slots(name: str, free: int) -> None:
    plan = build(name).plan(history([], wanted=5), free)
    assert 0 < len(plan.fresh) <= min(free, 5)
    assert not plan.resume + plan.breed


def test_a_goal_is_one_of_its_rungs_or_the_end(name: str) -> None:
    scheduler = build(name)
    plan = scheduler.plan(history([], wanted=4), 4)
    assert not scheduler.levels or {f.goal.until for f in plan.fresh} <= {*scheduler.levels, None}


def test_with_several_objectives_a_sweep_ends_and_says_fronts_only_where_it_ranks_by_them(
    name: str,
) -> None:
    def traded(at: CurvePoint) -> dict[str, Any]:
        return {**curve(at), "cost": 1e6 * (at.trial % 4) - at.iteration}

    result = simulate(spec(name, objectives={"cost": "min"}), traded, slots=2)
    assert result.state == "finished"
    assert result.history.searched_count == trials(name)
    assert result.history.front()
    whys = [str(d.fields.get("reason")) for d in result.decisions]
    assert any("front" in why for why in whys) == build(name).ranks_by_fronts


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3])
def test_a_sweep_ends_with_exactly_the_trials_that_were_wanted(name: str, slots: int) -> None:
    past = course(name, slots).history
    assert past.searched_count == trials(name)
    statuses = {trial.status for trial in past.trials}
    assert statuses <= {Status.COMPLETED, Status.PRUNED}
    assert Status.COMPLETED in statuses


def test_a_new_scheduler_on_the_history_read_again_decides_the_same_after_each_event(
    name: str,
) -> None:
    """It keeps nothing, so nothing of it can be lost."""
    records, objective = course(name, 3).records, course(name, 3).history.objective
    kept, told = build(name), History(objective)
    for k, record in enumerate(records, start=1):
        told.extend([record])
        if not isinstance(record.event, Closed):
            continue
        again = History(objective)
        again.extend(records[:k])
        free = 3 - len(told.replicas(Status.RUNNING, Status.WAITING))
        assert kept.plan(told, max(1, free)) == build(name).plan(again, max(1, free))


def test_every_decision_about_a_trial_that_ran_says_why(name: str) -> None:
    decided = (d for d in course(name, 3).decisions if d.kind != "trial")  # that is a proposal
    assert all(decision.fields.get("reason", "x") for decision in decided)


def _lengths(found: SimulationResult) -> list[int]:
    return [trial.iteration for trial in found.history.trials]


@pytest.mark.slow
def test_more_trials_can_be_asked_for_when_it_is_done(name: str) -> None:
    more = trials(name) if name in TRIALS else 12
    with Simulation(spec(name), curve, slots=3) as simulation:
        before = _lengths(simulation.run())
        after = simulation.run(trials=more)
    assert after.history.searched_count == more
    assert all(a <= b for a, b in zip(before, _lengths(after), strict=False))


def test_a_held_trial_is_run_by_nobody_and_the_others_come_to_their_end(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    chosen: list[int] = []
    with Simulation(spec(name), curve, 2) as simulation:
        path = simulation.folder.ledger

        def hold_one(k: int) -> None:
            if k >= (3 if name in TRIALS else 8) and not chosen:
                with contextlib.closing(Ledger(path)) as ledger:
                    trials = reading.history(ledger).trials
                chosen.append([t.number for t in trials if t.status not in FINISHED][-1])
                with contextlib.closing(Requests(path)) as requests:
                    requests.ask(Verb.PAUSE, {"trials_named": chosen})

        course = simulation.run(on_turn=hold_one)
    events = [record.event for record in course.records]
    held = next(place for place, event in enumerate(events) if isinstance(event, HoldChanged))
    opened = [event.trial for event in events[held:] if isinstance(event, Opened)]
    assert chosen[0] not in opened
    assert (course.state, course.history.uncreated_trials) == ("finished", 0)
    left = [trial.number for trial in course.history.trials if trial.status not in FINISHED]
    assert left in ([], chosen)


# ---- several seeds ------------------------------------------------------------------------------


def noisy(at: CurvePoint) -> dict[str, Any]:
    """Settings differ by 1, seeds by up to 1.2; they take different times."""
    luck = (at.trial * 5 + at.seed_index * 3) % 7 / 5
    result = curve(at)
    return {**result, "score": result["score"] + luck}


@pytest.mark.slow
def test_with_several_seeds_it_ends_the_same_however_its_driver_is_killed(name: str) -> None:
    few, several = min(3, trials(name)), {"training_iteration": 4}
    given = spec(name, trials=few, stop=several, seeds=3)
    course = simulate(given, noisy, slots=2)
    kills = range(4, course.records[-1].number, 5)
    killed = simulate(given, noisy, slots=2, kills=kills)
    assert killed.kills
    assert killed.decisions == course.decisions
    assert course.state == "finished"
    for trial in course.history.trials:
        assert trial.status not in (Status.RUNNING, Status.PAUSED, Status.WAITING)
        most = max(replica.iteration for replica in trial.replicas)
        assert {replica.iteration for replica in trial.replicas} == {most}
    for winner in course.history.ranked(course.history.with_status(Status.COMPLETED))[:1]:
        assert len(winner.replicas) == 3 or winner.parent is not None


#: Schedulers whose other form decides on trials one by one → the option that chooses this form.
OTHER_FORMS: Mapping[str, Mapping[str, Any]] = {
    "asha": {"type": "stopping"},
    "pbt": {"synch": False},
    "pb2": {"synch": False},
}


@pytest.mark.parametrize("silent", [0, 1])
@pytest.mark.parametrize(
    ("kind", "form"), [*((name, {}) for name in NAMES), *OTHER_FORMS.items()], ids=str
)
def test_a_seed_that_ends_without_a_number_of_the_metric_stops_no_sweep(
    kind: str, form: Mapping[str, Any], silent: int
) -> None:
    """Its metric is NaN once; the trial's other seed waits for a decision."""

    def curve_without_numbers(at: CurvePoint) -> dict[str, Any]:
        if at.trial % 2 == 0 and at.seed_index == silent:
            return {"score": math.nan} if at.iteration == 2 else {"other": 1.0}
        return curve(at)

    given = spec(kind, seeds=2, limits={"not_finite": "continue"})
    given["scheduler"].update(form)
    result = simulate(given, curve_without_numbers, slots=2)
    assert result.state == "finished"
    assert result.history.searched_count == trials(kind)
