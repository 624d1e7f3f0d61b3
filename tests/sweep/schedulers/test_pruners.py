"""Schedulers that end trials at looks, against their rules written down independently.

Each whole sweep is read again decision by decision; what was known then is what the rule is given.
"""

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from sweep import schedulers
from sweep.core.errors import BadConfig, UsageError
from sweep.history.events import Closed, Moved, Opened, Status
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext
from sweep.spec.objective import Score
from sweep.testing import CurvePoint, SimulationResult, check_kills, simulate
from tests.support.trials import trial

#: Trial → its values by iteration, as far as they are known; and the completed trials.
Curves = Mapping[int, Mapping[int, float]]
Rule = Callable[[int, int, Curves, set[int]], bool]


def spec(scheduler: Mapping[str, Any], trials: int = 14, **more: Any) -> dict[str, Any]:
    return {
        "trials": trials,
        "stop": {"training_iteration": 12},
        "scheduler": {"interval": 2, **scheduler},
        **more,
    }


def curve(at: CurvePoint) -> dict[str, Any]:
    """Better with time, in an order of trials that changes."""
    wave = (at.trial * 7919 + at.iteration * 331) % 97 / 30
    return {
        "score": (at.trial * 37) % 11 + at.iteration / 5 + wave,
        "time_this_iter_s": 0.5 + (at.trial * 13) % 7 / 10,
    }


def fading(at: CurvePoint) -> dict[str, Any]:
    """Some trials get worse again after a while."""
    peak = 3 + at.trial % 5
    return {"score": float(at.trial % 3 + min(at.iteration, 2 * peak - at.iteration))}


def follow(course: SimulationResult, rule: Rule) -> int:
    """Compare each decision about a paused trial with the rule; returns how many ended."""
    known: dict[int, dict[int, float]] = {}
    completed: set[int] = set()
    ended = 0
    for record in course.records:
        event = record.event
        if isinstance(event, Closed):
            values = known.setdefault(event.trial, {})
            values |= {r.iteration: float(r.metrics["score"]) for r in event.rows}
            if event.status is Status.COMPLETED:
                completed.add(event.trial)
        if isinstance(event, Moved) or (isinstance(event, Opened) and event.slice > 0):
            looks = {t: {i: v for i, v in c.items() if i % 2 == 0} for t, c in known.items()}
            level = max(looks[event.trial])
            assert rule(event.trial, level, looks, completed) == isinstance(event, Moved)
            ended += isinstance(event, Moved)
    return ended


def worse_than(quantile: Callable[[list[float]], float], startup: int, warmup: int) -> Rule:
    def rule(trial: int, level: int, curves: Curves, completed: set[int]) -> bool:
        if level < warmup or len(completed) < startup or not completed:
            return False
        return max(curves[trial].values()) < quantile([curves[t][level] for t in completed])

    return rule


def test_the_median_rule() -> None:
    course = simulate(
        spec({"name": "median", "n_startup_trials": 3, "n_warmup_steps": 4}), curve, slots=3
    )
    assert follow(course, worse_than(statistics.median, 3, 4)) > 3


def test_the_percentile_rule() -> None:
    course = simulate(
        spec({"name": "percentile", "percentile": 25.0, "n_startup_trials": 2}), curve, slots=2
    )

    def best_quarter(values: list[float]) -> float:
        return float(np.percentile(values, 75))

    assert follow(course, worse_than(best_quarter, 2, 0)) > 3


def test_the_median_rule_where_less_is_better() -> None:
    def falling(at: CurvePoint) -> dict[str, Any]:
        return {**curve(at), "score": -curve(at)["score"]}

    scheduler = {"name": "median", "n_startup_trials": 3}
    up = simulate(spec(scheduler), curve, slots=3)
    down = simulate(spec(scheduler, mode="min"), falling, slots=3)
    assert [t.status for t in up.history.trials] == [t.status for t in down.history.trials]


def test_patience_ends_what_does_not_improve() -> None:
    def rule(trial: int, level: int, curves: Curves, completed: set[int]) -> bool:
        values = [curves[trial][look] for look in sorted(curves[trial])]
        before, after = values[:-3], values[-3:]
        return len(values) > 3 and max(before) - 0.5 > max(after)

    course = simulate(spec({"name": "patient", "patience": 2, "min_delta": 0.5}), fading, slots=3)
    assert follow(course, rule) > 0


def test_patience_with_another_pruner_needs_both() -> None:
    median = worse_than(statistics.median, 1, 0)

    def rule(trial: int, level: int, curves: Curves, completed: set[int]) -> bool:
        values = [curves[trial][look] for look in sorted(curves[trial])]
        impatient = len(values) > 1 and max(values[:-1]) > values[-1]
        return impatient and median(trial, level, curves, completed)

    wrapped = {"pruner": "MedianPruner", "n_startup_trials": 1}
    course = simulate(spec({"name": "patient", "patience": 0, "wrapped": wrapped}), curve, slots=3)
    assert follow(course, rule) > 0


def test_thresholds() -> None:
    def rule(trial: int, level: int, curves: Curves, completed: set[int]) -> bool:
        return level >= 4 and not 3.0 <= curves[trial][level] <= 11.0

    scheduler = {"name": "threshold", "lower": 3.0, "upper": 11.0, "n_warmup_steps": 4}
    assert follow(simulate(spec(scheduler), curve, slots=3), rule) > 2


def test_the_signed_rank_test() -> None:
    def rule(trial: int, level: int, curves: Curves, completed: set[int]) -> bool:
        if not completed:
            return False
        best = max(completed, key=lambda t: (curves[t][12], -t))
        mine, its = list(curves[trial].values()), [curves[best][i] for i in curves[trial]]
        if len(mine) < 3:
            return False
        gaps = [a - b for a, b in zip(mine, its, strict=True)]
        p = stats.wilcoxon(gaps, alternative="less", zero_method="zsplit").pvalue
        best_is_best = statistics.fmean(curves[best].values()) > statistics.fmean(mine)
        return bool(p < 0.2) and best_is_best

    scheduler = {"name": "wilcoxon", "p_threshold": 0.2, "n_startup_steps": 3}
    assert follow(simulate(spec(scheduler), curve, slots=3), rule) > 2


def test_optunas_successive_halving_remembers_its_rungs() -> None:
    """Its rungs are 2, 4 and 8; whoever came to a rung before counts there."""

    def rule(trial: int, level: int, curves: Curves, completed: set[int]) -> bool:
        if level not in (2, 4, 8):
            return False
        there = sorted((c[level] for c in curves.values() if level in c), reverse=True)
        return curves[trial][level] < there[max(len(there) // 2, 1) - 1]

    scheduler = {"name": "optuna", "pruner": "SuccessiveHalvingPruner"}
    asked = {**scheduler, "min_resource": 2, "reduction_factor": 2}
    assert follow(simulate(spec(asked), curve, slots=1), rule) > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheduler",
    [
        {"name": "median", "n_startup_trials": 1},
        {"name": "optuna", "pruner": "HyperbandPruner", "min_resource": 4, "reduction_factor": 2},
    ],
    ids=["median", "hyperband"],
)
def test_a_killed_sweep_decides_the_same(scheduler: Mapping[str, Any]) -> None:
    asked = spec({**scheduler, "interval": 4}, trials=5)
    course = check_kills(asked, curve, slots=2)
    assert course.history.with_status(Status.COMPLETED)


def test_a_trial_keeps_its_slot_from_look_to_look() -> None:
    """Nothing waits: whoever goes on does so at once."""
    course = simulate(spec({"name": "median"}, trials=4), curve, slots=2)
    order = [r.event.trial for r in course.records if isinstance(r.event, Opened)]
    assert max(len(list(group)) for _, group in itertools.groupby(order)) < 6
    first, third = order.index(0), order.index(2)
    assert Status.COMPLETED in {course.history.trials[n].status for n in order[first:third]}


def test_a_look_is_taken_at_the_first_result_that_has_the_metric() -> None:
    def late(at: CurvePoint) -> dict[str, Any]:
        return curve(at) if at.iteration > 6 else {"loss": 1.0}

    course = simulate(spec({"name": "threshold", "lower": 99.0}), late)
    assert {trial.iteration for trial in course.history.trials} == {7}


@pytest.mark.parametrize(
    "scheduler",
    [
        {"name": "patient", "patience": 1},
        {"name": "wilcoxon", "p_threshold": 0.4},
        {"name": "median", "n_startup_trials": 2},
        {"name": "optuna", "pruner": "SuccessiveHalvingPruner", "min_resource": 2},
    ],
    ids=["patient", "wilcoxon", "median", "halving"],
)
def test_a_value_is_judged_once_however_often_its_trial_is_looked_at(
    scheduler: dict[str, Any],
) -> None:
    """An evaluation every other iteration; the looks between two have nothing new."""

    def evaluated(at: CurvePoint) -> dict[str, Any]:
        return curve(at) if at.iteration % 2 == 0 else {"loss": 1.0}

    seldom, often = (simulate(spec({**scheduler, "interval": n}), evaluated) for n in (2, 1))
    ends = [[(t.status, t.iteration) for t in c.history.trials] for c in (seldom, often)]
    assert ends[0] == ends[1]
    assert often.history.with_status(Status.PRUNED)


def test_a_decision_carries_the_values_that_it_was_based_on() -> None:
    course = simulate(spec({"name": "median", "n_startup_trials": 2}), curve)
    moved = next(r.event for r in course.records if isinstance(r.event, Moved))
    told = moved.evidence
    assert told["pruner"] == "MedianPruner"
    assert told["values"] == [
        curve(CurvePoint(t, 0, told["look"], {}, {}))["score"] for t in told["trials"]
    ]


HYPERBAND: dict[str, Any] = {"name": "optuna", "pruner": "HyperbandPruner"}
HALVING = {"name": "optuna", "pruner": "SuccessiveHalvingPruner", "min_resource": 1}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "optuna", "pruner": "MedianPrunner"}, "did you mean 'MedianPruner'"),
    ({"name": "optuna", "pruner": "PatientPruner"}, "use scheduler: patient"),
    (
        {"name": "optuna", "pruner": "MedianPruner", "n_trials": 3},
        "optuna's MedianPruner cannot be made",
    ),
    ({"name": "optuna", "pruner": "SuccessiveHalvingPruner"}, "does not derive it from the first"),
    ({**HYPERBAND, "min_resource": 0}, "scheduler.min_resource: 0 is not allowed; expected a wh"),
    ({**HYPERBAND, "reduction_factor": 1}, "scheduler.reduction_factor: 1 is not"),
    ({**HYPERBAND, "reduction_factor": "2"}, "scheduler.reduction_factor: '2' is not"),
    (
        {**HYPERBAND, "min_resource": 13},
        "scheduler.max_resource: 12 is less than min_resource, which is 13",
    ),
    ({**HALVING, "reduction_factor": 2.5}, "a whole number of at least 2"),
    ({**HALVING, "min_resource": True}, "scheduler.min_resource: True is not"),
    (
        {"name": "optuna", "pruner": "MedianPruner", "n_startup_trials": "x"},
        "optuna's MedianPruner cannot be made",
    ),
    (
        {"name": "optuna", "pruner": "MedianPruner", "n_startup_trials": None},
        "optuna's MedianPruner cannot be made",
    ),
    ({"name": "threshold"}, "set lower, upper or both"),
    ({"name": "threshold", "lower": 2.0, "upper": 1.0}, "2 is more than scheduler.upper, 1"),
    ({"name": "median", "interval": 12}, "12 is not less than stop.training_iteration, 12"),
    ({"name": "median", "interval": 0}, "greater than or equal to 1"),
    ({"name": "patient", "wrapped": {"pruner": "Nope"}}, "scheduler.wrapped.pruner"),
    (
        {"name": "patient", "wrapped": {"pruner": HALVING["pruner"], "min_resource": 1}},
        "all trials at its",
    ),
]


@pytest.mark.parametrize(("scheduler", "says"), REFUSED)
def test_what_cannot_work_is_refused_before_anything_runs(
    scheduler: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        simulate(spec(scheduler), curve)
    assert isinstance(caught.value, BadConfig)


@pytest.mark.parametrize("name", ["median", "patient"])
def test_a_pruner_sees_looks_however_finely_time_is_counted(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A million steps an iteration are one look, of as many as the trial has had iterations."""
    asked: list[int] = []
    read = Trial.scores_at

    def counted(trial: Trial, levels: Sequence[float]) -> list[float | None]:
        asked.append(len(levels))
        assert len(levels) <= 12, "levels between two iterations were looked at"
        return read(trial, levels)

    monkeypatch.setattr(Trial, "scores_at", counted)

    def counting(at: CurvePoint) -> dict[str, Any]:
        return {**fading(at), "timesteps_this_iter": 1_000_000}

    startup = {"n_startup_trials": 1} if name == "median" else {"patience": 2}
    by_steps = {"name": name, "interval": 1, "time_attr": "timesteps_total", **startup}
    by_iterations = {"name": name, "interval": 1, **startup}
    stop = {"timesteps_total": 12_000_000}
    fine = simulate(spec(by_steps, 6, stop=stop), counting)
    coarse = simulate(spec(by_iterations, 6), counting)
    ends = [[(t.status, t.iteration) for t in c.history.trials] for c in (fine, coarse)]
    assert ends[0] == ends[1]
    assert fine.history.with_status(Status.PRUNED)
    assert asked


def test_completed_trials_are_compared_where_a_judged_one_stands() -> None:
    """Their own iterations end elsewhere; what they had there lies between two of them."""

    def uneven(at: CurvePoint) -> dict[str, Any]:
        return {"score": at.iteration - 5.0 * at.trial, "timesteps_this_iter": 100 + 10 * at.trial}

    scheduler = {"name": "median", "n_startup_trials": 1, "time_attr": "timesteps_total"}
    course = simulate(spec(scheduler, 4, stop={"timesteps_total": 1000}), uneven)
    assert [t.iteration for t in course.history.trials] == [10, 1, 1, 1]
    moved = next(r.event for r in course.records if isinstance(r.event, Moved))
    assert (moved.evidence["look"], moved.evidence["values"]) == (110, [1.1])


JUDGES: dict[str, dict[str, Any]] = {
    "median": {"name": "median", "n_startup_trials": 2},
    "percentile": {"name": "percentile", "percentile": 40.0, "n_startup_trials": 2},
    "patient": {"name": "patient", "patience": 1, "wrapped": {"pruner": "MedianPruner"}},
    "wilcoxon": {"name": "wilcoxon", "p_threshold": 0.4, "n_startup_steps": 2},
    "halving": {"name": "optuna", "pruner": "SuccessiveHalvingPruner", "min_resource": 200},
}


@pytest.mark.parametrize(("name", "mode"), [*zip(JUDGES, itertools.cycle(["max", "min"]))])
def test_what_is_kept_up_decides_as_what_is_made_anew_from_the_whole_history(
    name: str, mode: str
) -> None:
    """Whenever the scheduler is asked; iterations end at the same levels in no two trials."""

    def uneven(at: CurvePoint) -> dict[str, Any]:
        return {**curve(at), "timesteps_this_iter": 110 + 17 * (at.trial % 7)}

    asked = {**JUDGES[name], "time_attr": "timesteps_total", "interval": 100}
    stop = {"timesteps_total": 1500}
    course = simulate(spec(asked, stop=stop, mode=mode), uneven, slots=3)
    cls = schedulers.find(str(asked.pop("name")))
    scheduler = cls(cls.Options(**asked), SchedulerContext(stop))
    kept, ended, lent = History(course.history.objective), 0, 0
    for number, record in enumerate(course.records, start=1):
        kept.extend([record])
        anew = History(course.history.objective)
        anew.extend(course.records[:number])
        plan = scheduler.plan(kept, 3)
        assert plan == scheduler.plan(anew, 3)
        ended += len(plan.stop)
        shown = [order for order in kept._orders.values() if hasattr(order, "_replaced_values")]
        lent += sum(len(order._replaced_values) for order in shown)
    assert ended > 2
    assert lent > 2, "no completed trial was given a value where it has no look"


@pytest.mark.parametrize("kind", ["last", "best", "area"])
def test_scores_at_many_levels_are_the_scores_at_each(kind: Any) -> None:
    values = [None, 3.0, 1.0, None, 4.0, 1.0, 5.0]
    seen = trial(0, Status.PAUSED, values)
    seen.replicas[0].objective = replace(seen.objective, score=Score(kind=kind))
    levels = [0.5, 1.0, 2.5, 3.0, 4.0, 6.0, 7.0, 9.0]
    assert seen.scores_at(levels) == [seen.score_at(level) for level in levels]
