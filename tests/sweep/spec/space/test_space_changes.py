"""Another space on resume: which one is accepted, and how searching goes on in it."""

import copy
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from optuna import load_study
from optuna.distributions import CategoricalDistribution, FloatDistribution

from sweep import searchers
from sweep import spec as space_file
from sweep.core import plugins
from sweep.core.errors import BadSpace, UsageError
from sweep.driver.start import changing
from sweep.driver.start.launch import Launch, open_context
from sweep.history.events import Status, Suggested
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Verb
from sweep.operations.control_client import ask
from sweep.operations.report import page
from sweep.searchers import Request
from sweep.spec.space import Space
from sweep.views import explanation, lookup
from tests.support import sweeps
from tests.support.quadratic import Quadratic

OLD: dict[str, Any] = {
    "f": {"uniform": [0, 1]},
    "g": {"uniform": [0, 1], "step": 0.5},
    "i": {"randint": [2, 8], "step": 2},
    "l": {"loguniform": [1e-3, 1e-1]},
    "n": {"normal": [0, 1], "bounds": [-1, 1]},
    "c": {"choice": ["a", "b"]},
    "o": {"ordinal": [1, 2]},
    "k": {"grid": [1, 2]},
    "v": 3,
    "d": {"value": "f * 2"},
    "w": {"choice": [1], "when": {"c": "a"}},
}


def check(**changes: Any) -> None:
    changing.check_space(Space.parse(OLD), Space.parse({**OLD, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"f": {"uniform": [-1, 2]}},
        {"f": {"uniform": [0.1, 0.5]}},
        {"f": {"uniform": [5, 6]}},
        {"f": {"min": -1.0, "max": 2.0}},
        {"f": {"loguniform": [1e-9, 1]}},
        {"f": {"uniform": [0, 1], "step": 0.5}},
        {"g": {"uniform": [0, 1]}},
        {"g": {"uniform": [-0.25, 1.25], "step": 0.5}},
        {"i": {"randint": [1, 9]}},
        {"i": {"randint": [4, 6], "step": 2}},
        {"l": {"loguniform": [1e-2, 1]}},
        {"n": {"normal": [0, 2], "bounds": [None, 0.5]}},
        {"c": {"choice": ["z", "a"], "weights": [1, 2]}},
        {"o": {"ordinal": [3, 2, 1.5]}},
        {"k": {"grid": [2, 3]}},
    ],
)
def test_other_values_of_the_same_parameters_are_accepted(changes: dict[str, Any]) -> None:
    check(**changes)


@pytest.mark.parametrize(
    ("changes", "place", "why"),
    [
        ({"f": {"randint": [0, 1]}}, "space.f", "its kind has changed"),
        ({"f": 0.5}, "space.f", "its kind has changed"),
        ({"f": {"normal": [0, 1]}}, "space.f", "its kind has changed"),
        ({"c": {"ordinal": ["a", "b"]}}, "space.c", "its kind has changed"),
        ({"c": {"grid": ["a", "b"]}}, "space.c", "a grid and a choice"),
        ({"v": 4}, "space.v", "a fixed value has changed"),
        ({"v": {"uniform": [3, 4]}}, "space.v", "its kind has changed"),
        ({"d": {"value": "f * 3"}}, "space.d", "an expression has changed"),
        ({"w": {"choice": [1], "when": {"c": "b"}}}, "space.w", "its conditions have changed"),
        ({"w": {"choice": [1]}}, "space.w", "its conditions have changed"),
        ({"new": {"choice": [1]}}, "space.new", "for which earlier trials have no value"),
    ],
)
def test_anything_else_is_refused_with_a_reason(
    changes: dict[str, Any], place: str, why: str
) -> None:
    with pytest.raises(BadSpace) as caught:
        check(**changes)
    assert caught.value.key == place
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_parameter_that_was_renamed_is_refused_with_its_new_name() -> None:
    old = {"learning_rate": {"uniform": [0, 1]}}
    with pytest.raises(BadSpace, match=r"learning_rate is missing.*did you mean 'learning_rates'"):
        changing.check_space(
            Space.parse(old), Space.parse({"learning_rates": old["learning_rate"]})
        )


# ---- whole sweeps ----------------------------------------------------------------------------

NARROW = {"lr": {"uniform": [0.1, 0.2]}, "target": {"choice": [1.0, 2.0]}}
WIDE = {"lr": {"uniform": [0.1, 0.9]}, "target": {"choice": [1.0, 3.0, 2.0]}}


@pytest.fixture
def wider(tmp_path: Path) -> Path:
    path = tmp_path / "wider.yaml"
    path.write_text("lr: {uniform: [0.1, 0.9]}\ntarget: {choice: [1.0, 3.0, 2.0]}\n")
    return path


def make(root: Path, **changes: Any) -> Folder:
    short: dict[str, Any] = {"scheduler": "fifo", "stop": {"training_iteration": 1}}
    short |= {"config": None, "deterministic": {"batch": 1}}
    return sweeps.make(root, **{**short, "space": NARROW, "trials": 12, **changes})


def searched(folder: Folder) -> list[dict[str, Any]]:
    return [trial.searched for trial in sweeps.history(folder).trials]


def test_after_a_change_the_rest_is_searched_in_the_wider_space(
    tmp_path: Path, wider: Path
) -> None:
    whole, halted = make(tmp_path / "a"), make(tmp_path / "b")
    for folder in (whole, halted):
        sweeps.run(folder)
        before = searched(folder)
    sweeps.run(whole, trials=24, space=wider)
    sweeps.run(halted, trials=15, space=wider)
    sweeps.run(halted, trials=24)
    after = searched(whole)
    assert after == searched(halted)
    assert after[:12] == before
    assert all(0.1 <= point["lr"] <= 0.2 and point["target"] != 3.0 for point in before)
    assert any(point["lr"] > 0.2 for point in after[12:])
    assert any(point["target"] == 3.0 for point in after[12:])


def test_a_change_is_an_event_with_the_trial_from_which_it_holds(
    tmp_path: Path, wider: Path
) -> None:
    folder = make(tmp_path, trials=3)
    sweeps.run(folder)
    sweeps.run(folder, trials=4, space=wider)
    sweeps.run(folder, trials=5, space=wider)
    events = [r.event for r in Ledger(folder.ledger).read() if r.event.kind == "space"]
    assert [(event.space, event.trial) for event in events] == [(WIDE, 3)]  # type: ignore[union-attr]


def test_a_clone_may_have_values_of_the_wider_space(tmp_path: Path, wider: Path) -> None:
    folder = make(tmp_path, trials=1)
    sweeps.run(folder)
    body = {"trials_named": [0], "settings": {"target": 3.0}, "from_checkpoint": False}
    with pytest.raises(UsageError, match=r"target: 3\.0 is not allowed"):
        ask(folder, Verb.CLONE, body, 0.0)
    sweeps.run(folder, space=wider)
    assert ask(folder, Verb.CLONE, body, 0.0)[0] is None
    sweeps.run(folder)
    assert sweeps.history(folder).trials[1].searched["target"] == 3.0


def test_a_space_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    folder = make(tmp_path, trials=1)
    sweeps.run(folder)
    before = Ledger(folder.ledger).read()
    other = tmp_path / "other.yaml"
    other.write_text("space:\n  lr: {uniform: [0.1, 0.2]}\n  target: {uniform: [1.0, 2.0]}\n")
    with pytest.raises(BadSpace, match=r"other.yaml:3: space.target: .* its kind has changed"):
        sweeps.run(folder, space=other)
    with pytest.raises(UsageError, match="there is no such file"):
        sweeps.run(folder, space=tmp_path / "nowhere.yaml")
    assert Ledger(folder.ledger).read() == before


def test_the_space_of_a_whole_spec_is_read_with_its_lines(tmp_path: Path) -> None:
    spec = sweeps.make(tmp_path, space=NARROW)
    path = tmp_path / "spec.yaml"
    path.write_text("trainable: ppo\nspace:\n  lr: {uniform: [0, 1]}\n  lr2: {unifrm: [0, 1]}\n")
    with (
        open_context(Launch(spec, 1, "inline")) as (parts, _warnings),
        pytest.raises(BadSpace, match=r"spec.yaml:4: space.lr2.unifrm"),
    ):
        space_file.read(path, parts.spec)


def test_the_copy_in_optunas_tables_has_the_wider_space(tmp_path: Path, wider: Path) -> None:
    folder = make(tmp_path, trials=3)
    sweeps.run(folder)
    sweeps.copy_to_optuna(folder)
    sweeps.run(folder, trials=6, space=wider)
    sweeps.copy_to_optuna(folder)
    study = load_study(study_name="demo", storage=f"sqlite:///{folder.optuna}")
    assert len(study.trials) == 6
    for trial in study.trials:
        assert trial.distributions["target"] == CategoricalDistribution([1.0, 3.0, 2.0])


# ---- a space that old trials lie outside of ---------------------------------------------------

BROAD: dict[str, Any] = {
    "lr": {"loguniform": [1e-3, 0.9], "step": None},
    "target": {"choice": [1.0, 2.0, 3.0]},
    "noise": {"uniform": [0.0, 0.2], "step": 0.1},
    "_depth": {"ordinal": [1, 2, 3, 4], "when": {"target": 2.0}},
}
BROAD["lr"].pop("step")
CLOSE: dict[str, Any] = {
    **BROAD,
    "lr": {"loguniform": [0.05, 0.5]},
    "target": {"choice": [2.0, 4.0]},
    "_depth": {"ordinal": [5, 3, 2], "when": {"target": 2.0}},
}
FINITE: dict[str, Any] = {"lr": {"choice": [0.1, 0.2, 0.3, 0.4]}, "target": {"choice": [1.0, 2.0]}}
FEWER: dict[str, Any] = {"lr": {"choice": [0.3, 0.1, 0.5]}, "target": {"choice": [2.0]}}


def spaces_of(searcher: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return (FINITE, FEWER) if searcher in ("grid", "brute_force") else (BROAD, CLOSE)


def of_few(searcher: str) -> dict[str, Any]:
    """The options with which a searcher uses its model after a few trials."""
    few: dict[str, dict[str, Any]] = {
        "tpe": {"n_startup_trials": 3, "random_fraction": 0.0},
        "gp": {"n_startup_trials": 3},
        "cmaes": {"population_size": 4},
        "nsga2": {"population_size": 4},
        "nsga3": {"population_size": 4},
        "bohb": {"min_points": 2, "random_fraction": 0.0},
    }
    return {"name": searcher, **few.get(searcher, {})}


@pytest.mark.parametrize("searcher", plugins.names("sweep.searchers"))
def test_each_searcher_goes_on_inside_another_space_to_the_bit_over_kills(
    tmp_path: Path, searcher: str
) -> None:
    before, after = spaces_of(searcher)
    total = 8 + (3 if before is FINITE else 16)
    whole, killed = (
        make(tmp_path / place, searcher=of_few(searcher), space=before, trials=8)
        for place in ("whole", "killed")
    )
    for folder in (whole, killed):
        sweeps.run(folder)
    sweeps.run(whole, trials=total, space=after)
    sweeps.run(killed, trials=10, space=after)
    with open_context(Launch(killed, 1, "inline", trials=total)):
        pass  # a driver that is killed at once
    ends = itertools.takewhile(
        lambda end: end == "killed", (sweeps.drive(killed, kill_at=5) for _ in range(30))
    )
    assert len(list(ends)) < 30
    found = sweeps.history(whole).trials
    space = Space.parse(after)
    # A grid has fewer points left in the new space than it has trials to go.
    assert len(found) == total or before is FINITE
    assert len(found) > 8
    assert not all(space.has(trial.searched) for trial in found[:8])
    assert all(space.has(trial.searched) for trial in found[8:])
    assert searched(killed) == searched(whole)


def test_a_model_learns_from_the_old_trials_that_lie_in_the_new_space(tmp_path: Path) -> None:
    """It proposes what it proposes if the others have failed, and not what it does without any."""
    wide, near = ({"lr": {"uniform": [0.0, high]}} for high in (0.9, 0.6))
    folder, space = make(tmp_path, searcher=of_few("tpe"), space=wide), Space.parse(near)
    sweeps.run(folder)

    def proposed(fate: Callable[[Trial], None]) -> dict[str, Any]:
        trials = copy.deepcopy(sweeps.history(folder).trials)
        for trial in trials:
            fate(trial)
        searcher = searchers.find("tpe")
        options = searcher.Options(**{k: v for k, v in of_few("tpe").items() if k != "name"})
        request = Request(space, trials[0].objective, trials, (), 3)
        return searcher(options).suggest(request).searched

    def fails(trial: Trial) -> None:
        trial.leader.status = Status.FAILED

    def fails_outside(trial: Trial) -> None:
        if not space.has(trial.searched):
            fails(trial)

    learnt = proposed(lambda _trial: None)
    assert learnt == proposed(fails_outside)
    assert learnt != proposed(fails)


def test_the_space_may_change_back_and_then_all_trials_count(tmp_path: Path) -> None:
    folder = make(tmp_path, searcher=of_few("cmaes"), space=BROAD)
    sweeps.run(folder)
    sweeps.run(folder, trials=16, space=CLOSE)
    sweeps.run(folder, trials=24, space=BROAD)
    broad = Space.parse(BROAD)
    assert all(broad.has(point) for point in searched(folder)[16:])
    assert not all(Space.parse(CLOSE).has(point) for point in searched(folder)[16:])


def test_trials_outside_stay_in_the_ranking_and_are_explained(tmp_path: Path) -> None:
    folder = make(tmp_path, space=FINITE, searcher="grid", trials=8)
    sweeps.run(folder)
    ranked = [trial.number for trial in sweeps.history(folder).ranked()]
    sweeps.run(folder, trials=9, space=FEWER)
    sweep = lookup.read(folder)
    assert [n for n in [t.number for t in sweep.history.ranked()] if n < 8] == ranked
    old, new = (
        [
            step["why"]
            for step in explanation.explain(sweep, n)["decisions"]
            if step["what"] == "space"
        ]
        for n in (0, 8)
    )
    other = "trials from 8 on have settings of another space"
    assert old == [f"{other}, in which target of this trial cannot be proposed"]
    assert new == []


def test_a_clone_of_a_trial_outside_is_refused_until_it_lies_inside(tmp_path: Path) -> None:
    folder = make(tmp_path, space=FINITE, searcher="grid", trials=1)
    sweeps.run(folder)
    sweeps.run(folder, space=FEWER)
    body: dict[str, Any] = {"trials_named": [0], "settings": {}, "from_checkpoint": False}
    with pytest.raises(
        UsageError,
        match=r"trial 0 has the value 1\.0, which is outside .*give the clone another target too",
    ):
        ask(folder, Verb.CLONE, body, 0.0)
    assert ask(folder, Verb.CLONE, {**body, "settings": {"target": 2.0}}, 0.0)[0] is None
    sweeps.run(folder)
    assert searched(folder)[1] == {"lr": 0.1, "target": 2.0}


def test_settings_that_wait_for_a_trial_keep_the_space(tmp_path: Path) -> None:
    given = make(tmp_path / "given", space=FINITE, initial=[{"lr": 0.1}, {"lr": 0.2}], trials=2)
    assert sweeps.drive(given, kill_at=1) == "killed"
    assert len(searched(given)) == 1
    with pytest.raises(
        UsageError,
        match=r"these settings still wait for a trial: initial\[1\].*lr: 0\.2 is not allowed",
    ):
        sweeps.run(given, trials=4, space=FEWER)
    sweeps.run(given, trials=2)
    sweeps.run(given, trials=4, space=FEWER)
    assert [point["target"] for point in searched(given)[2:]] == [2.0, 2.0]
    asked = make(tmp_path / "asked", space=FINITE, trials=2)
    with open_context(Launch(asked, 1, "inline")) as (parts, _warnings):
        parts.ledger.append(parts.history.term, [Suggested({"target": 1.0}, "ada")])
    with pytest.raises(
        UsageError,
        match=r"these settings still wait for a trial: suggestion 1.*target: 1\.0 is not",
    ):
        sweeps.run(asked, space=FEWER)
    sweeps.run(asked)
    sweeps.run(asked, trials=3, space=FEWER)
    assert searched(asked)[2]["target"] == 2.0


def test_the_copy_in_optunas_tables_has_the_values_of_old_trials_too(tmp_path: Path) -> None:
    folder = make(tmp_path, space=BROAD, trials=8)
    sweeps.run(folder)
    sweeps.copy_to_optuna(folder)
    sweeps.run(folder, trials=12, space=CLOSE)
    sweeps.copy_to_optuna(folder)
    study = load_study(study_name="demo", storage=f"sqlite:///{folder.optuna}")
    trials = sweeps.history(folder).trials
    assert [t.params["lr"] for t in study.trials] == [t.searched["lr"] for t in trials]
    lowest = min(trial.searched["lr"] for trial in trials)
    assert lowest < 0.05
    for trial in study.trials:
        assert trial.distributions["target"] == CategoricalDistribution([2.0, 4.0, 1.0, 3.0])
        lr = trial.distributions["lr"]
        assert isinstance(lr, FloatDistribution)
        assert (lr.low, lr.log) == (lowest, True)
        assert isinstance(trial.distributions.get("_depth"), CategoricalDistribution | None)


def test_the_report_of_a_sweep_with_two_spaces_has_all_trials(tmp_path: Path) -> None:
    folder = make(tmp_path, space=BROAD, trials=12)
    sweeps.run(folder)
    sweeps.run(folder, trials=24, space=CLOSE)
    data, _sections = page.content(lookup.read(folder))
    axes = {axis["name"]: axis for axis in data["points"]["axes"]}
    assert set(axes["target"]["labels"]) >= {"1.0", "2.0", "3.0", "4.0"}


# ---- populations ------------------------------------------------------------------------------


def population(root: Path, name: str) -> Folder:
    """A population that has reached its third interval."""
    folder = make(
        root,
        space=BROAD,
        trials=6,
        stop={"training_iteration": 16},
        scheduler={"name": name, "perturbation_interval": 2},
    )
    while max((trial.iteration for trial in sweeps.history(folder).trials), default=0) < 6:
        assert sweeps.drive(folder, kill_at=4) == "killed"
    return folder


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_offspring_lie_inside_another_space_to_the_bit_over_kills(
    tmp_path: Path, name: str
) -> None:
    whole, killed = population(tmp_path / "whole", name), population(tmp_path / "killed", name)
    before = len(searched(whole))
    assert any(not Space.parse(CLOSE).has(point) for point in searched(whole))
    sweeps.run(whole, space=CLOSE)
    with open_context(Launch(killed, 1, "inline", space=CLOSE)):
        pass  # a driver that is killed at once
    ends = itertools.takewhile(
        lambda end: end == "killed", (sweeps.drive(killed, kill_at=5) for _ in range(60))
    )
    assert len(list(ends)) < 60
    children = [
        trial for trial in sweeps.history(whole).trials[before:] if trial.parent is not None
    ]
    assert children
    assert all(Space.parse(CLOSE).has(child.searched) for child in children)
    assert sweeps.decisions(killed) == sweeps.decisions(whole)


def test_a_population_keeps_the_values_that_its_checkpoints_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Quadratic, "fixed_keys", frozenset({"target"}))
    folder = population(tmp_path, "pbt")
    with pytest.raises(
        BadSpace, match=r"space.target: trial \d has .*trials bred from its checkpoint inherit"
    ) as refusal:
        sweeps.run(folder, space=CLOSE)
    assert "\n" not in str(refusal.value)
    target = {"choice": [1.0, 2.0, 3.0, 4.0]}
    sweeps.run(folder, space={**CLOSE, "target": target})


def test_a_narrower_space_needs_no_value_that_only_what_is_forbidden_names(tmp_path: Path) -> None:
    never = [{"lr": {">": 0.5}, "target": 1.0}, {"target": [2.0, 3.0], "lr": {"<": 0.15}}]
    folder = make(tmp_path, space=WIDE, forbid=never, searcher="random", trials=1)
    sweeps.run(folder)
    sweeps.run(folder, space=NARROW, trials=20)
    assert not any(one["target"] == 2.0 and one["lr"] < 0.15 for one in searched(folder)[1:])
    space = lookup.read(folder).spec.space
    assert [clause.describe() for clause in space.forbidden] == ["target is 2.0 and lr < 0.15"]
    assert explanation.explain(lookup.read(folder), 0)["decisions"]
