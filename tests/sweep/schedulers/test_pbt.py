"""Population-based training against the published algorithm, written down independently."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import BadConfig, UsageError
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.events import Closed, Created, Moved, Opened, Recorded, Status
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.schedulers._shared.mutation import perturbed
from sweep.spec.space import Float, Int, Normal
from sweep.testing import CurvePoint, Simulation, SimulationResult, check_kills, simulate
from sweep.views import lookup, overview
from tests.support import sweeps
from tests.support.quadratic import TIMESTEPS_PER_STEP
from trainables.core import rng

SEED = 11
SPEC: dict[str, Any] = {
    "trials": 8,
    "space": {"x": {"uniform": [0.1, 1.0]}},
    "stop": {"training_iteration": 12},
    "scheduler": {"name": "pbt", "perturbation_interval": 3},
    "seed": SEED,
}


def gain(x: float) -> float:
    return 1.0 - (x - 0.6) ** 2


def curve(at: CurvePoint) -> dict[str, Any]:
    """What a trial has learnt adds up; a child goes on from what its parent had."""
    return {
        "score": float(at.before.get("score", 0.0)) + gain(at.config["x"]),
        "time_this_iter_s": 0.5 + (at.trial * 13) % 7 / 10,
    }


def with_scheduler(**options: Any) -> dict[str, Any]:
    return {**SPEC, "scheduler": {**SPEC["scheduler"], **options}}


def settings(course: SimulationResult) -> list[tuple[int | None, float, int, float]]:
    return [(t.parent, t.searched["x"], t.iteration, score(t)) for t in course.history.trials]


def score(trial: Trial) -> float:
    found = trial.score
    assert found is not None
    return found


def published(first: list[float]) -> list[tuple[int | None, float, int, float]]:
    """Algorithm 1 with truncation selection and perturbation: parent, x, length, score."""
    trials: list[tuple[int | None, float, int, float]] = [(None, x, 0, 0.0) for x in first]
    population = list(range(len(first)))
    for step in (3, 6, 9, 12):
        for n in population:
            parent, x, _, worth = trials[n]
            for _ in range(3):
                worth += gain(x)
            trials[n] = (parent, x, step, worth)
        if step == 12:
            break
        best_first = sorted(population, key=lambda n: (-trials[n][3], n))
        quarter = math.ceil(len(population) * 0.25)
        for loser in sorted(best_first[-quarter:]):
            child = len(trials)
            drawn = rng.generator(SEED, "exploit", child).integers(quarter)
            parent = best_first[int(drawn)]
            stream = rng.generator(SEED, "explore", child)
            if stream.random() < 0.25:
                x = float(stream.uniform(0.1, 1.0))
            else:
                x = min(1.0, max(0.1, trials[parent][1] * (1.2, 0.8)[int(stream.integers(2))]))
            trials.append((parent, x, step, trials[parent][3]))
            population[population.index(loser)] = child
    return trials


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_the_population_goes_the_way_of_the_published_algorithm(slots: int) -> None:
    course = simulate(SPEC, curve, slots)
    first = [trial.searched["x"] for trial in course.history.trials[:8]]
    expected = published(first)
    assert len(expected) == 8 + 3 * 2
    for found, wanted in zip(settings(course), expected, strict=True):
        assert found[:3] == wanted[:3]
        assert found[3] == pytest.approx(wanted[3])


def test_a_killed_sweep_breeds_the_same_children() -> None:
    course = check_kills({**SPEC, "trials": 4, "stop": {"training_iteration": 9}}, curve, slots=2)
    assert any(trial.parent is not None for trial in course.history.trials)


@pytest.mark.slow
def test_a_killed_asynchronous_sweep_breeds_the_same_children() -> None:
    asked = with_scheduler(synch=False)
    course = check_kills({**asked, "trials": 4}, curve, slots=2)
    assert any(trial.parent is not None for trial in course.history.trials)


def test_bred_trials_do_not_count_and_the_population_keeps_its_size() -> None:
    course = simulate(SPEC, curve, slots=3)
    assert course.history.searched_count == 8
    assert len(course.history.with_status(Status.COMPLETED)) == 8
    children = [trial for trial in course.history.trials if trial.parent is not None]
    assert len(children) == len(course.history.with_status(Status.PRUNED)) == 6


def test_asynchronously_a_trial_is_compared_with_each_other_where_both_have_been() -> None:
    """Each verdict is checked against what the ledger knew at that moment."""
    course = simulate({**with_scheduler(synch=False), "trials": 6}, curve, slots=3)
    values: dict[int, dict[int, float]] = {}
    parents = {trial.number: trial.parent for trial in course.history.trials}
    ended: set[int] = set()
    done: set[int] = set()
    verdicts = []

    def value(trial: int, iteration: int) -> float:
        """Of a child from before it began, what its parent had."""
        while iteration not in values[trial]:
            trial = parents[trial] or 0
        return values[trial][iteration]

    for record in course.records:
        event = record.event
        if isinstance(event, Closed):
            own = values.setdefault(event.trial, {})
            own |= {row.iteration: float(row.metrics["score"]) for row in event.rows}
            done |= {event.trial} if event.status is Status.COMPLETED else set()
        elif isinstance(event, Moved) or (isinstance(event, Opened) and event.slice > 0):
            living = [n for n in values if n not in ended | done]
            both = {n: min(max(values[n]), max(values[event.trial])) for n in living}
            ahead = {n: value(n, at) - value(event.trial, at) for n, at in both.items()}
            best_first = sorted(living, key=lambda n: (-ahead[n], n))
            count = min(math.ceil(len(best_first) / 4), len(best_first) // 2)
            worst = best_first[len(best_first) - count :]
            assert (event.trial in worst) == isinstance(event, Moved)
            ended |= {event.trial} if isinstance(event, Moved) else set()
            verdicts.append(event)
    assert sum(isinstance(event, Moved) for event in verdicts) > 2
    assert len(course.history.trials) == 6 + len(ended)


def test_settings_of_a_trial_never_change_and_a_child_starts_where_its_parent_was() -> None:
    course = simulate(SPEC, curve, slots=2)
    for trial in course.history.trials:
        if trial.parent is None:
            continue
        birth, parent = trial.replicas[0].birth, course.history.trials[trial.parent]
        assert birth is not None
        there = parent.leader.value_at(birth.saved.iteration)
        first = trial.leader.curve[0]
        assert there is not None
        assert first.iteration == birth.saved.iteration + 1
        assert first.value == pytest.approx((there.value or 0.0) + gain(trial.searched["x"]))


def test_nobody_is_replaced_during_the_burn_in() -> None:
    course = simulate(with_scheduler(burn_in_period=7), curve, slots=3)
    births = [t.replicas[0].birth for t in course.history.trials if t.parent is not None]
    assert {birth.time for birth in births if birth is not None} == {9.0}


def test_a_larger_quantile_replaces_more() -> None:
    course = simulate(with_scheduler(quantile_fraction=0.5), curve, slots=4)
    assert len(course.history.trials) == 8 + 3 * 4


def test_a_quantile_is_the_decimal_that_was_written() -> None:
    """In binary, 0.28 times 25 is a little more than 7, and rounded up 8 members were replaced."""
    one_level = with_scheduler(quantile_fraction=0.28, perturbation_interval=1)
    course = simulate({**one_level, "trials": 25, "stop": {"training_iteration": 2}}, curve, 25)
    assert len(course.history.trials) == 25 + 7


def test_only_the_named_settings_change_and_conditions_are_kept() -> None:
    space = {
        "x": {"uniform": [0.1, 1.0]},
        "n": {"randint": [1, 9]},
        "kind": {"choice": ["a", "b"]},
        "depth": {"randint": [1, 3], "when": {"kind": "b"}},
    }
    asked = with_scheduler(hyperparam_mutations=["kind"], resample_probability=0.0)
    course = simulate({**asked, "space": space}, curve, slots=3)
    kinds = set()
    for trial in course.history.trials:
        assert ("depth" in trial.searched) == (trial.searched["kind"] == "b")
        if trial.parent is not None:
            parent = course.history.trials[trial.parent]
            assert trial.searched["x"] == parent.searched["x"]
            assert trial.searched["n"] == parent.searched["n"]
            kinds.add(trial.searched["kind"] == parent.searched["kind"])
    assert kinds == {False}


def test_numbers_stay_in_their_domain_and_whole_ones_move_at_least_one_step() -> None:
    assert perturbed(Float(0.1, 1.0), 0.9, 1.2) == 1.0
    assert perturbed(Float(0.1, 1.0), 0.5, 0.8) == pytest.approx(0.4)
    assert perturbed(Float(0.0, 1.0, step=0.25), 0.5, 1.2) == 0.75
    assert perturbed(Int(1, 20), 2, 1.2) == 3
    assert perturbed(Int(1, 20), 2, 0.8) == 1
    assert perturbed(Int(1, 20), 20, 1.2) == 20
    assert perturbed(Int(0, 8, step=4), 4, 1.2) == 8
    assert perturbed(Int(0, 8, step=4), 8, 1.2) == 8
    assert perturbed(Normal(0.0, 1.0, low=-2.0, high=2.0), -1.9, 1.2) == -2.0


def test_a_child_carries_who_it_replaces_and_what_it_changed() -> None:
    course = simulate(SPEC, curve, slots=3)
    events = [record.event for record in course.records]
    opened = [event for event in events if isinstance(event, Opened) and event.trial >= 8]
    told = opened[0].evidence
    created = next(e for e in events if isinstance(e, Created) and e.trial == 8)
    assert told["child's"] == [created.searched["x"]]
    assert told["settings"] == ["x"]
    assert course.history.trials[told["replaces"]].status is Status.PRUNED
    assert opened[0].reason.startswith(f"a child of trial {told['parent']} in the place of")


def test_a_failed_member_is_not_waited_for() -> None:
    def broken(at: CurvePoint) -> dict[str, Any]:
        if at.trial == 2:
            raise RuntimeError("bad luck")
        return curve(at)

    course = simulate(SPEC, broken, slots=3)
    assert len(course.history.with_status(Status.COMPLETED)) == 7


def test_a_real_population_trains_on_from_its_parents_checkpoints(tmp_path: Path) -> None:
    folder = sweeps.make(
        tmp_path,
        trials=4,
        scheduler={"name": "pbt", "perturbation_interval": 3},
        deterministic=None,
    )
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert past.searched_count == 4
    child = past.trials[4]
    assert child.parent is not None
    parent = past.trials[child.parent]
    iterations = [row.iteration for row in sweeps.curve(folder, 4)]
    assert iterations[0] == 4
    assert parent.searched != child.searched
    trained = [len(sweeps.curve(folder, trial.number)) for trial in past.trials]
    assert overview.steps(past) == TIMESTEPS_PER_STEP * sum(trained)
    rows = {row["trial"]: row["parent"] for row in overview.results(lookup.read(folder))["trials"]}
    assert rows == {trial.number: trial.parent for trial in past.trials}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**SPEC, "trials": 1}, "trials: 1 .* at least 2"),
    (with_scheduler(perturbation_interval=12), "less than stop.training_iteration, 12"),
    (with_scheduler(perturbation_interval=0.5), "at least 1"),
    (with_scheduler(quantile_fraction=0.6), "less than or equal to 0.5"),
    (
        with_scheduler(hyperparam_mutations=["y"]),
        "'y' is not a searched parameter; expected one of x",
    ),
    ({**SPEC, "space": {"x": 0.5}}, "no parameter is searched"),
    ({**SPEC, "scheduler": {"name": "pbt"}}, "perturbation_interval: is missing"),
]


@pytest.mark.parametrize(("spec", "says"), REFUSED)
def test_what_cannot_work_is_refused_before_anything_runs(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        simulate(spec, curve)
    assert isinstance(caught.value, BadConfig)


def test_what_cannot_save_is_refused() -> None:
    with pytest.raises(UsageError, match="pauses trials"):
        simulate(SPEC, curve, saves=False)


def test_who_joins_a_population_that_has_ended_is_a_population_from_the_first_level_on() -> None:
    with Simulation(SPEC, curve, slots=3) as simulation:
        before = len(simulation.run().history.trials)
        course = simulation.run(trials=14)
    assert course.history.searched_count == 14
    joined = course.history.trials[before:]
    assert {t.status for t in joined} == {Status.COMPLETED, Status.PRUNED}
    goals = {t.number: 0.0 for t in joined if t.parent is None}
    bred = [t.parent for t in joined if t.parent is not None]
    for record in course.records:
        event = record.event
        if isinstance(event, Opened) and event.trial in goals:
            assert event.goal.until in (goals[event.trial], goals[event.trial] + 3)
            goals[event.trial] = event.goal.until
    assert bred
    assert min(bred) >= before


def test_a_population_that_was_topped_up_and_is_killed_decides_the_same() -> None:
    with Simulation(SPEC, curve, slots=3) as simulation:
        ended = simulation.run().history.k
        with simulation.copy() as other:
            undisturbed = other.run(trials=12)
        killed = simulation.run(range(ended + 2, 2 * ended, 5), trials=12)
    assert killed.kills > 3
    assert settings(killed) == settings(undisturbed)


class _Killed(Exception):
    """The driver is gone."""


def kill_at(folder: Folder, k: int) -> None:
    def watch(records: Sequence[Recorded]) -> None:
        if records and records[-1].number >= k:
            raise _Killed

    with (
        pytest.raises(_Killed),
        launch.open_context(Launch(folder, 1, "inline")) as (parts, _),
    ):
        Driver(parts, watch).run()


def test_a_real_population_that_is_killed_again_and_again_is_the_same_to_the_bit(
    tmp_path: Path,
) -> None:
    """Children begin from their parents' files, whenever the driver was killed."""
    asked = {"trials": 3, "scheduler": {"name": "pbt", "perturbation_interval": 3}}
    one = sweeps.make(tmp_path / "a", **asked, deterministic=None)
    two = sweeps.make(tmp_path / "b", **asked, deterministic=None)
    sweeps.run(one)
    for k in range(4, 46, 3):
        kill_at(two, k)
    sweeps.run(two)
    assert len(sweeps.history(one).trials) == 3 + 2
    assert sweeps.decisions(one) == sweeps.decisions(two)
