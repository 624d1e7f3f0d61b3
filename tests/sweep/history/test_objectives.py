"""Several objectives and constraints: ranking, the front, what searchers and copies are told."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sweep import searchers
from sweep import spec as specs
from sweep.cli import tables, trial_tables
from sweep.core import plugins
from sweep.core.errors import BadConfig, UsageError
from sweep.driver.start.creation import resolving
from sweep.history import fronts, ranking
from sweep.history.curve import Point
from sweep.history.events import Status
from sweep.history.history import History
from sweep.history.objective import Objective
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.operations.models import export
from sweep.operations.models.trained import Choice
from sweep.operations.report import sections
from sweep.spec.objective import Constraint, Score, read_constraints
from sweep.views import formatting, lookup, overview
from tests.support import sweeps
from tests.support.searches import FINITE, Search

NAMES = plugins.names(searchers.PACKAGE)
ABLE = [name for name in NAMES if searchers.find(name).supports.objectives]
TWO = Objective("score", "max", Score(), objectives=(("cost", "min"),))
LIMITED = Objective("score", "max", Score(), constraints=(Constraint("cost", 1.0, 2.0),))


def trial(number: int, objective: Objective, score: float | None, cost: float | None) -> Trial:
    made = Trial.new(number, {}, {}, objective)
    made.replicas[0].curve = [Point(1, 1.0, score, (cost,))]
    made.replicas[0].status = Status.COMPLETED
    return made


def history(trials: list[Trial]) -> History:
    made = History(trials[0].objective if trials else TWO)
    made.trials = trials
    return made


def text(trials: list[Trial]) -> Callable[[Trial], str]:
    past = history(trials)
    return lambda one: ranking.order_text(one, past.expected(one), one is past.best)


def ranked(trials: list[Trial]) -> list[Trial]:
    past = history(trials)
    return ranking.ranked(trials, past.objective, past.expectations.position_of)


def numbers(trials: list[Trial]) -> list[int]:
    return [trial.number for trial in trials]


# ---- ranking --------------------------------------------------------------------------------

ANY = st.one_of(st.none(), st.floats(allow_nan=True), st.sampled_from([0.0, -0.0, 1.0]))
SINGLE = Objective("score", "min", Score())


@given(st.lists(st.tuples(ANY, ANY), max_size=12), st.sampled_from([SINGLE, LIMITED]))
def test_the_texts_by_which_mlflow_sorts_put_trials_in_their_order(
    results: list[tuple[float | None, float | None]], objective: Objective
) -> None:
    trials = [trial(n, objective, score, cost) for n, (score, cost) in enumerate(results)]
    pick = history(trials).best  # before one without a score, which may break no constraint
    order = sorted(ranked(trials), key=lambda one: one is not pick)
    assert sorted(trials, key=text(trials)) == order


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_of_two_objectives_the_first_trial_by_text_is_the_first_in_rank(
    pairs: list[tuple[int, int]],
) -> None:
    trials = [trial(n, TWO, float(a), float(b)) for n, (a, b) in enumerate(pairs)]
    assert min(trials, key=text(trials)) is ranked(trials)[0]


def test_the_text_of_a_trial_that_lacks_a_further_objective_comes_after_its_equals() -> None:
    trials = [trial(0, TWO, 1.0, None), trial(1, TWO, 1.0, 5.0), trial(2, TWO, 1.0, -5.0)]
    assert numbers(sorted(trials, key=text(trials))) == numbers(ranked(trials)) == [2, 1, 0]


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=25)


@given(PAIRS)
def test_the_front_holds_exactly_what_none_is_better_than(pairs: list[tuple[int, int]]) -> None:
    """Ties are exact: equal trials are on the front together."""
    trials = [trial(n, TWO, float(a), float(b)) for n, (a, b) in enumerate(pairs)]

    def beaten(mine: tuple[int, int]) -> bool:
        return any(a >= mine[0] and b <= mine[1] and (a, b) != mine for a, b in pairs)

    expected = {number for number, pair in enumerate(pairs) if not beaten(pair)}
    assert set(numbers(history(trials).front())) == expected


@given(PAIRS)
def test_each_front_is_what_is_left_of_the_ones_before(pairs: list[tuple[int, int]]) -> None:
    trials = [trial(n, TWO, float(a), float(b)) for n, (a, b) in enumerate(pairs)]
    left, past = ranked(trials), history(trials)
    while left:
        front = ranking.front(left, TWO, past.expectations.position_of)
        assert numbers(left[: len(front)]) == numbers(front)
        left = left[len(front) :]


def test_within_a_front_the_metric_decides_then_age() -> None:
    trials = [trial(n, TWO, a, b) for n, (a, b) in enumerate([(1, 0), (3, 2), (2, 1), (3, 2)])]
    assert numbers(ranked(trials)) == [1, 3, 2, 0]


def test_what_lacks_a_score_comes_last_and_is_on_no_front() -> None:
    trials = [trial(0, TWO, 9.0, None), trial(1, TWO, 1.0, 1.0)]
    assert numbers(ranked(trials)) == [1, 0]
    assert numbers(history(trials).front()) == [1]


def test_what_breaks_a_constraint_ranks_behind_by_how_much() -> None:
    values = [(9.0, 4.0), (8.0, 3.0), (1.0, 2.0), (7.0, None), (2.0, 0.0)]
    trials = [trial(n, LIMITED, *pair) for n, pair in enumerate(values)]
    assert numbers(ranked(trials)) == [4, 2, 1, 0, 3]
    assert [t.feasible for t in trials] == [False, False, True, False, True]


def test_amounts_beyond_several_constraints_add_up() -> None:
    both = (Constraint("cost", 1.0, 2.0), Constraint("size", -1.0, 0.0))
    limited = Objective("score", "max", Score(), constraints=both)
    trials = [trial(n, limited, 1.0, None) for n in range(3)]
    for one, further in zip(trials, ((4.0, -2.0), (5.0, 9.0), (-9.0, -2.5)), strict=True):
        one.replicas[0].curve = [Point(1, 1.0, 1.0, further)]
    assert [fronts.compare(one).violation for one in trials] == [4.0, 3.0, 2.5]
    assert numbers(ranked(trials)) == numbers(sorted(trials, key=text(trials))) == [2, 1, 0]


def test_the_worst_replica_decides_whether_a_constraint_holds() -> None:
    made = Trial.new(0, {}, {}, LIMITED, (None, None))
    made.replicas[0].curve = [Point(1, 1.0, 1.0, (1.0,))]
    made.replicas[1].curve = [Point(1, 1.0, 1.0, (9.0,)), Point(2, 2.0, 1.0, (3.0,))]
    assert made.violations == (1.0,)


def test_limits_are_read() -> None:
    read = read_constraints({"a": "<= 2", "b/c": ">=-.5e1"})
    assert read == (Constraint("a", 1.0, 2.0), Constraint("b/c", -1.0, -5.0))


# ---- searchers ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ABLE)
def test_searchers_of_several_objectives_work_with_constraints_in_parallel(name: str) -> None:
    soon = {"nsga2": {"population_size": 4}, "nsga3": {"population_size": 4}}
    soon["gp"] = {"n_startup_trials": 4}
    compared = {"objectives": {"cost": "min"}, "constraints": {"size": "<= 4"}}
    made = Search(name, FINITE, slots=2, options=soon.get(name), compared=compared)
    made.beside = lambda s: {"cost": float(s.get("epochs", 1)), "size": float(s.get("epochs", 9))}
    assert len(made.run(6 if name == "gp" else 24).proposals) >= 6
    again = Search(name, FINITE, slots=2, options=soon.get(name), compared=compared)
    for record in made.records:
        again._take(record)
    assert again.propose() == made.propose()


@pytest.mark.parametrize("name", ["tpe", "nsga2"])
def test_searchers_keep_away_from_what_breaks_a_constraint(name: str) -> None:
    raw = {"x": {"uniform": [0.0, 1.0]}, "y": {"uniform": [0.0, 1.0]}}
    options = {"random_fraction": 0} if name == "tpe" else None
    made = Search(name, raw, options=options, compared={"constraints": {"x": "<= 0.2"}})
    made.ends = [Status.COMPLETED]
    made.quality = lambda s: float(s["x"] + s["y"])
    made.beside = lambda s: {"x": s["x"]}
    made.run(90)
    fine = [proposal["x"] <= 0.2 for proposal in made.proposals]
    assert sum(fine[-40:]) >= 20 > 2 * sum(fine[:20])


@pytest.mark.parametrize("name", ["tpe", "nsga2", "nsga3"])
def test_searchers_come_to_the_whole_front(name: str) -> None:
    """Both ends of a front between x = 0 and x = 1 that y = 0 leads to."""
    raw = {"x": {"uniform": [0.0, 1.0]}, "y": {"uniform": [0.0, 1.0]}}
    options = {"random_fraction": 0} if name == "tpe" else None
    made = Search(name, raw, options=options, compared={"objectives": {"cost": "min"}})
    made.ends = [Status.COMPLETED]
    made.quality = lambda s: float(s["x"] - 3 * s["y"])
    made.beside = lambda s: {"cost": s["x"] + 3 * s["y"]}
    late = made.run(100).proposals[-40:]
    assert sum(proposal["y"] < 0.2 for proposal in late) >= 15  # chance: 8
    assert min(p["x"] for p in late) < 0.3
    assert max(p["x"] for p in late) > 0.7


# ---- a whole sweep --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = sweeps.make(
        tmp_path_factory.mktemp("sweeps"),
        config=None,
        space={"lr": {"uniform": [0.01, 0.3]}, "target": {"uniform": [0.0, 8.0]}},
        searcher="nsga2",
        objectives={"x": "max"},
        constraints={"x": "<= 5"},
        trials=9,
    )
    assert sweeps.run(folder) == "finished"
    return folder


def test_results_and_best_show_the_front(swept: Folder) -> None:
    sweep = lookup.read(swept)
    results, best = overview.results(sweep), overview.best(sweep)
    rows = {row["trial"]: row for row in results["trials"]}
    broken = {number for number, row in rows.items() if row["violates"] == ["x"]}
    assert broken == {t.number for t in sweep.history.trials if not t.feasible}
    assert broken
    assert [row["trial"] in broken for row in results["trials"]] == sorted(
        row["trial"] in broken for row in results["trials"]
    )
    assert results["front"] == best["front"] == numbers(sweep.history.front())
    assert best["trial"] == results["front"][0]
    shown = drawn(tables.results(results))
    assert f"front (none is better in every objective): trials {results['front'][0]}" in shown
    assert "front by front" in shown
    assert "violates" in shown
    assert "# front" in drawn(trial_tables.best(best))
    broke = overview.show(sweep, min(broken), [])
    (limited,) = broke["constraints"]
    assert (limited["path"], limited["limit"], limited["violated"]) == ("x", "<= 5", True)
    assert limited["value"] == pytest.approx(broke["objectives"]["x"])
    line = f"x {limited['value']:.6g}, limit <= 5, violated"
    assert line in drawn(trial_tables.show(broke)).splitlines()
    section = sections.best(sweep)
    assert section is not None
    (table,) = section.body
    assert str(table).count(">violates</th>") == 1
    assert str(table).count(">x</td>") == len(broken)


def drawn(renderable: Any) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(renderable)
    return stream.getvalue()


def test_a_model_of_a_front_is_exported_by_its_trials_number(swept: Folder, tmp_path: Path) -> None:
    front = ", ".join(map(str, numbers(sweeps.history(swept).front())))
    with pytest.raises(BadConfig, match=f"the front by its number: {front}"):
        export.export_model(swept, Choice(), ["onnx"], tmp_path / "out")


def test_the_end_of_a_sweep_names_a_trial_of_the_front_to_take_away(swept: Folder) -> None:
    past = sweeps.history(swept)
    ended = {"root": "sweeps", "outcome": "finished", "seconds": 1.0, "unsent": [], "trackers": []}
    data = {**overview.summary(past, "demo"), **ended, "exports": True, "trained": True}
    first = past.front()[0].number
    shown = drawn(tables.summary(data))
    assert f"export-model demo --trial {first} --out exported-demo" in shown
    shown = drawn(tables.summary({**data, "front": []}))
    assert f"--trial {data['top'][0]['trial']} --out" in shown
    assert "export-model demo --out" in drawn(tables.summary({**data, "front": None}))


def test_status_and_the_live_table_show_the_other_scores_and_the_front(swept: Folder) -> None:
    sweep = lookup.read(swept)
    best = overview.best_so_far(sweep.history)
    assert best is not None
    first = sweep.history.front()[0]
    other = formatting.number(first.other_scores[0])
    shown = drawn(tables.status(overview.status(sweep, {}, 0.0)))
    assert re.search(rf"best +trial {first.number}: .*, {other_name(sweep)} {other}", shown)
    front = ", ".join(map(str, numbers(sweep.history.front())))
    assert re.search(rf"front +{len(sweep.history.front())} trials?: {front}\n", shown)


def other_name(sweep: lookup.Sweep) -> str:
    ((name, _),) = sweep.history.objective.objectives
    return name


def test_the_copy_in_optunas_tables_has_all_objectives(swept: Folder) -> None:
    sweeps.copy_to_optuna(swept)
    study = optuna.load_study(study_name="demo", storage=f"sqlite:///{swept.optuna}")
    assert [d.name for d in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    for trial, copied in zip(sweeps.history(swept).trials, study.trials, strict=True):
        if copied.values is not None:
            assert tuple(copied.values) == ranking.values(trial)
    assert any(copied.values for copied in study.trials)


def test_the_front_is_the_same_after_a_look_at_the_ledger_alone(swept: Folder) -> None:
    assert numbers(sweeps.history(swept).front()) == numbers(lookup.read(swept).history.front())


# ---- what cannot work -----------------------------------------------------------------------

TEXT = """\
name: demo
trials: 4
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
space: {lr: 0.1, target: {uniform: [0, 1]}}
stop: {training_iteration: 2}
"""


@pytest.mark.parametrize(
    ("line", "place", "hint"),
    [
        (
            "objectives: {loss: max}",
            "test.yaml:8: objectives.loss",
            "is the metric already",
        ),
        ("objectives: {x: most}", "test.yaml:8: objectives.x", "'min' or 'max'"),
        ("objectives: [x]", "test.yaml:8: objectives", "mapping"),
        ("objectives: {x: max}\nsearcher: cmaes", "test.yaml:8: objectives", "nsga2"),
        (
            "objectives: {x: max}\nsearcher: {name: cmaes, sigma: 0.2}",
            "test.yaml:8: objectives",
            "use a searcher that supports several: bohb,",
        ),
        ("constraints: {x: 2}", "test.yaml:8: constraints.x", "<= 2"),
        ('constraints: {x: "< 2"}', "test.yaml:8: constraints.x", "<= 2"),
        ('constraints: {x: "<= 1e999"}', "test.yaml:8: constraints.x", "<= 2"),
        ('constraints: {"x//y": "<= 2"}', "test.yaml:8: constraints", "path into the results"),
    ],
)
def test_what_cannot_be_compared_is_refused(line: str, place: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolving.resolve(specs.parse(f"{TEXT}{line}\n", "test.yaml"), ())
    assert place in str(caught.value)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_metrics_in_one_list_are_answered_with_where_they_stand() -> None:
    with pytest.raises(UsageError, match="put further results under objectives"):
        specs.parse(TEXT.replace("metric: loss", "metric: [loss, x]"), "test.yaml")


def test_the_spec_comes_back_from_json() -> None:
    text = TEXT + 'objectives: {x: max}\nconstraints: {score: ">= -1.5"}\n'
    spec = specs.parse(text, "test.yaml")
    again = specs.from_json(specs.canonical_json(spec))
    assert (again.objectives, again.constraints) == ({"x": "max"}, {"score": ">= -1.5"})
