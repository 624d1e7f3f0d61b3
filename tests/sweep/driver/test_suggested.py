"""The space of an objective of Optuna comes from its calls, before the sweep is created."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep.core.errors import UsageError
from sweep.driver.start import prepare
from sweep.driver.start.creation import suggested
from tests.support import scripts
from trainables.function.exploration import Exploration, ObjectiveRun
from trainables.function.objectives import Suggestion

STUDY = """\
import optuna

def objective(trial):
    kind = trial.suggest_categorical("kind", ["line", "net"])
    x = trial.suggest_float("x", -5, 5)
    if kind == "net":
        for layer in range(trial.suggest_int("layers", 1, 2)):
            x += trial.suggest_float(f"w{layer}", 0.0, 1.0)
        if trial.suggest_categorical("bias", [False, True]) and kind == "net":
            x += trial.suggest_float("b", 0.0, 1.0)
    if x > 4.0:
        x -= trial.suggest_float("far", 0.0, 1.0)
    open("ran", "a").write("x")
    for step in range(3):
        trial.report((x - 2) ** 2 + 1 / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return (x - 2) ** 2

def either(trial):
    a, b = (trial.suggest_categorical(name, [0, 1]) for name in "ab")
    both = trial.suggest_float("both", 0, 1) if a and b else 0.0
    return a + b + both + (trial.suggest_float("either", 0, 1) if a or b else 0.0)

def breaks(trial):
    if trial.number == 0:
        raise ValueError("no data")
    return trial.suggest_float("x", 0, 1)

def dies(trial):
    trial.suggest_float("x", 0, 1)
    import os; os._exit(7)
    trial.suggest_float("y", 0, 1)

def two_ranges(trial):
    return trial.suggest_float("x", 0, trial.suggest_int("most", 1, 2))

def nothing(trial):
    return 1.0

def two(trial):
    x = trial.suggest_float("x", 0, 1)
    return x, 1 - x
"""
SPEC = "name: study\ntrials: 8\ntrainable: study:{}\nmode: min\n{}"
FOUND = {
    "kind": {"choice": ["line", "net"]},
    "x": {"uniform": [-5.0, 5.0]},
    "layers": {"randint": [1, 2], "when": {"kind": ["net"]}},
    "w0": {"uniform": [0.0, 1.0], "when": {"kind": ["net"]}},
    "bias": {"choice": [False, True], "when": {"kind": ["net"]}},
    "b": {"uniform": [0.0, 1.0], "when": {"bias": [True]}},
    "far": {"uniform": [0.0, 1.0]},
    "w1": {"uniform": [0.0, 1.0], "when": {"layers": [2]}},
}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "study.py").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def space_of(desk: Path, function: str, more: str = "") -> dict[str, Any]:
    (desk / "study.yaml").write_text(SPEC.format(function, more))
    resolved, text = prepare.prepare(str(desk / "study.yaml"), [])
    assert resolved.spec.metric == "value"
    assert "the value that" in text
    return dict(resolved.spec.space.raw)


def test_the_calls_become_the_space_with_the_conditions_that_are_certain(desk: Path) -> None:
    found = space_of(desk, "objective")
    assert found == FOUND
    assert not (desk / "ran").exists()
    assert space_of(desk, "either") == {
        "a": {"choice": [0, 1]},
        "b": {"choice": [0, 1]},
        "both": {"uniform": [0.0, 1.0], "when": {"a": [1], "b": [1]}},
        "either": {"uniform": [0.0, 1.0]},
    }


def test_what_the_spec_has_is_left_as_it_is(desk: Path) -> None:
    more = "config: {kind: net, layers: 1}\nspace: {x: {uniform: [0, 1]}, w0: 0.5}\n"
    assert space_of(desk, "objective", more) == {
        "x": {"uniform": [0, 1]},
        "w0": 0.5,
        "bias": {"choice": [False, True]},
        "b": FOUND["b"],
        "far": FOUND["far"],
    }


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("breaks", r"trainable: breaks\(\) raised ValueError: no data"),
        ("dies", r"space: dies\(\) was run to find its parameters, but its process died"),
        ("two_ranges", "space: two_ranges.. asks for 'x' with .*uniform.* a parameter has one"),
        ("nothing", "space: the spec has no space, and nothing.. calls no suggest_… method"),
    ],
)
def test_an_objective_that_cannot_be_explored_is_refused(
    desk: Path, function: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        space_of(desk, function)


def test_schedulers_that_pause_refuse_an_objective(desk: Path) -> None:
    with pytest.raises(UsageError, match=r"'asha' pauses.* is an objective of Optuna.*stopping"):
        space_of(desk, "objective", "scheduler: asha\nstop: {training_iteration: 4}\n")


def test_no_condition_is_made_up_when_time_runs_out(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three kinds two were tried, so nobody knows what the third one asks for."""
    kind = Suggestion("kind", "choice", ("a", "b", "c"))
    runs = [
        ObjectiveRun({"kind": "a"}, is_whole=True),
        ObjectiveRun({"kind": "b", "x": 0.5}, is_whole=True),
    ]
    both = {"kind": kind, "x": Suggestion.number("uniform", "x", 0, 1)}
    seen = Exploration(both, runs=runs, is_finished=False)
    monkeypatch.setattr(suggested, "_explore", lambda *_: seen)
    (desk / "study.yaml").write_text(SPEC.format("objective", ""))
    resolved, _ = prepare.prepare(str(desk / "study.yaml"), [])
    assert resolved.spec.space.raw["x"] == {"uniform": [0.0, 1.0]}
    said = "was run for 20 s (2 times) to find the parameters that it suggests; a trial"
    assert any(said in remark for remark in prepare.remarks(resolved))
    runs.append(ObjectiveRun({"kind": "c"}, is_whole=True))
    resolved, _ = prepare.prepare(str(desk / "study.yaml"), [])
    assert resolved.spec.space.raw["x"] == {"uniform": [0.0, 1.0], "when": {"kind": ["b"]}}


def test_a_killed_sweep_goes_on_in_the_same_space(desk: Path) -> None:
    (desk / "study.yaml").write_text(SPEC.format("objective", "trackers: []\n"))
    words = ["-m", "sweep.cli.main", "run", "study.yaml", "--jobs", "1"]
    points = {"SWEEP_FAILPOINT": "recorded:4:self", "SWEEP_FAILPOINT_FILE": str(desk / "count")}
    assert scripts.python(words, desk, points).returncode == -9
    (desk / "study.py").write_text(STUDY.replace('"x", -5, 5', '"x", -9, 9'))
    done = scripts.command(desk, "resume", "study")
    assert done.returncode == 0, done.stderr
    found = sweep.load("study", root=desk / "sweeps")
    assert found.status == "finished"
    assert dict(found.spec.space.raw) == FOUND
    assert [trial.status for trial in found.trials] == ["COMPLETED"] * 8
    for trial in found.trials:
        assert ("layers" in trial.settings) is (trial.settings["kind"] == "net")
        assert trial.iterations == 4


SCRIPT = f"""\
import sweep
{STUDY}
if __name__ == "__main__":
    for trials in (3, 4):
        found = sweep.run(
            lambda trial: objective(trial), name="own", trials=trials, mode="min", jobs=1,
            progress=False, trackers=[],
        )
        print(len(found.trials), list(found.spec.space.parameters))
"""


def test_an_objective_of_a_script_is_run_and_run_again(desk: Path) -> None:
    (desk / "script.py").write_text(SCRIPT)
    done = scripts.python(["script.py"], desk)
    assert done.returncode == 0, done.stderr
    names = re.escape(str(list(FOUND)))
    assert re.fullmatch(rf"3 {names}\n4 {names}\n", done.stdout)


def test_several_values_are_the_metric_and_the_objectives(desk: Path) -> None:
    text = SPEC.format("two", "objectives: {size: min}\ntrackers: []\n")
    (desk / "study.yaml").write_text(text)
    done = scripts.command(desk, "run", "study.yaml", "--jobs", "1", "--trials", "2")
    assert done.returncode == 0, done.stderr
    table = sweep.load("study", root=desk / "sweeps").results()
    assert list(table["score"] + table["size"]) == pytest.approx([1.0, 1.0])


def test_validate_shows_the_space(desk: Path) -> None:
    (desk / "study.yaml").write_text(SPEC.format("objective", ""))
    done = scripts.command(desk, "validate", "study.yaml", "--json")
    assert done.returncode == 0, done.stderr
    assert "when layers is 2" in json.dumps(json.loads(done.stdout))
