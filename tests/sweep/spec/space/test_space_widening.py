"""A space that is widened on resume: what is a widening, and how searching goes on after it."""

from pathlib import Path
from typing import Any

import pytest
from optuna import load_study
from optuna.distributions import CategoricalDistribution

from sweep import spec as space_file
from sweep.core.errors import BadSpace, UsageError
from sweep.driver.launch import Launch, open_context
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Verb
from sweep.operations.control_client import ask
from sweep.spec.space import Space, widening
from tests.support import sweeps

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
    widening.check(Space.parse(OLD), Space.parse({**OLD, **changes}))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"f": {"uniform": [-1, 2]}},
        {"f": {"min": -1.0, "max": 2.0}},
        {"g": {"uniform": [0, 1]}},
        {"g": {"uniform": [-1, 1], "step": 0.25}},
        {"i": {"randint": [0, 8], "step": 2}},
        {"i": {"randint": [1, 9]}},
        {"l": {"loguniform": [1e-4, 1]}},
        {"n": {"normal": [0, 1], "bounds": [-1, None]}},
        {"n": {"normal": [0, 1]}},
        {"c": {"choice": ["z", "b", "a"]}},
        {"c": {"choice": ["a", "b", "c"], "weights": [1, 2, 3]}},
        {"o": {"ordinal": [0, 1, 1.5, 2, 3]}},
    ],
)
def test_more_values_are_a_widening(changes: dict[str, Any]) -> None:
    check(**changes)


@pytest.mark.parametrize(
    ("changes", "place", "why"),
    [
        ({"f": {"uniform": [0.1, 1]}}, "space.f", "values below 0.1 are gone"),
        ({"f": {"uniform": [0, 0.5]}}, "space.f", "values above 0.5 are gone"),
        ({"f": {"uniform": [0, 1], "step": 0.5}}, "space.f", "between the steps are gone"),
        ({"f": {"randint": [0, 1]}}, "space.f", "of another kind"),
        ({"f": {"loguniform": [1e-9, 1]}}, "space.f", "its scale has changed"),
        ({"f": 0.5}, "space.f", "of another kind"),
        ({"g": {"uniform": [0, 1.5], "step": 0.75}}, "space.g", "steps leave out old values"),
        ({"g": {"uniform": [-0.25, 1.25], "step": 0.5}}, "space.g", "steps leave out old values"),
        ({"i": {"randint": [1, 9], "step": 2}}, "space.i", "steps leave out old values"),
        ({"n": {"normal": [0, 2]}}, "space.n", "its mean, deviation or scale"),
        ({"n": {"normal": [0, 1], "bounds": [None, 0.5]}}, "space.n", "values above 0.5"),
        ({"c": {"choice": ["a", "c"]}}, "space.c", '"b" is gone'),
        ({"c": {"ordinal": ["a", "b"]}}, "space.c", "of another kind"),
        ({"c": {"grid": ["a", "b"]}}, "space.c", "a grid and a choice"),
        ({"o": {"ordinal": [2, 1]}}, "space.o", "another order"),
        ({"k": {"grid": [1, 2, 3]}}, "space.k", "in turn"),
        ({"v": 4}, "space.v", "a fixed value has changed"),
        ({"d": {"value": "f * 3"}}, "space.d", "an expression has changed"),
        ({"w": {"choice": [1], "when": {"c": "b"}}}, "space.w", "its conditions have changed"),
        ({"w": {"choice": [1]}}, "space.w", "its conditions have changed"),
        ({"new": {"choice": [1]}}, "space.new", "old trials have no value of it"),
    ],
)
def test_anything_else_is_refused_with_a_reason(
    changes: dict[str, Any], place: str, why: str
) -> None:
    with pytest.raises(BadSpace) as caught:
        check(**changes)
    assert caught.value.key == place
    assert why in str(caught.value)


def test_a_parameter_that_was_renamed_is_refused_with_its_new_name() -> None:
    old = {"learning_rate": {"uniform": [0, 1]}}
    with pytest.raises(BadSpace, match=r"learning_rate is gone.*did you mean 'learning_rates'"):
        widening.check(Space.parse(old), Space.parse({"learning_rates": old["learning_rate"]}))


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


def test_after_a_widening_the_rest_is_searched_in_the_wider_space(
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


def test_a_widening_is_an_event_with_the_trial_from_which_it_holds(
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


def test_a_narrower_space_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    folder = make(tmp_path, trials=1)
    sweeps.run(folder)
    before = Ledger(folder.ledger).read()
    narrower = tmp_path / "narrower.yaml"
    narrower.write_text("space:\n  lr: {uniform: [0.1, 0.2]}\n  target: {choice: [1.0]}\n")
    with pytest.raises(BadSpace, match=r"narrower.yaml:3: space.target: .* 2.0 is gone"):
        sweeps.run(folder, space=narrower)
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
