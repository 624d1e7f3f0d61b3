"""The keys and options of the space as a person types them."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Here, write_spec

SHORT: dict[str, Any] = {"scheduler": "fifo", "stop": {"training_iteration": 1}, "trials": 3}
SPACE = {"lr": {"uniform": [0.1, 0.2]}, "model": {"parameters": {"act": {"values": ["a", "b"]}}}}


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return Here(capsys, tmp_path / "sweeps")


def test_what_is_taken_over_and_what_not_is_said_when_a_sweep_begins(
    here: Here, tmp_path: Path
) -> None:
    assert here("run", write_spec(tmp_path, **SHORT, space=SPACE), "--pool", "inline")[0] == 0
    wide = {**SPACE, "lr": {"uniform": [0.0, 0.05]}}
    start = {"name": "next", "warm_start": {"sweep": "demo"}}
    spec = write_spec(tmp_path, **SHORT, space=wide, **start)
    code, out, _ = here("run", spec, "--dry-run")
    assert code == 0
    assert "warm start: 0 trials of demo" in out
    code, _, err = here("run", spec, "--pool", "inline")
    assert code == 0
    assert "sweep: warm start: 0 trials of demo\n" in err
    assert "sweep: warm start: left out trial 2: lr 0." in err
    wrong = ("run", spec, "--name", "other", "--set", "warm_start.sweep=dmo")
    assert here(*wrong, "--dry-run")[0] == 2
    wrong_too = here("validate", spec, "--set", "warm_start.sweep=dmo")
    assert (wrong_too[0], "a sweep in" in wrong_too[2]) == (2, True)
    code, out, err = here(*wrong)
    assert (code, out) == (2, "")
    assert "warm_start.sweep: 'dmo' is not allowed; expected a sweep in" in err
    assert len(err.splitlines()) == 1


def test_a_space_is_widened_on_resume(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, **SHORT, space=SPACE), "--pool", "inline")
    spec = tmp_path / "spec.yaml"
    narrow = spec.read_text()
    spec.write_text(narrow.replace("0.2", "0.15"))
    code, out, err = here("resume", "demo", "--pool", "inline", "--space", spec)
    assert (code, out) == (2, "")
    assert "space.lr: 0.1 to 0.15, both included is no wider space: values above 0.15 are" in err
    spec.write_text(narrow.replace("0.2", "0.9"))
    arguments = ("resume", "demo", "--pool", "inline", "--space", spec, "--trials", 9)
    assert here(*arguments)[0] == 0
    trials = sorted(here.json("results", "demo")["trials"], key=lambda trial: trial["trial"])
    assert all(trial["settings"]["lr"] <= 0.2 for trial in trials[:3])
    assert any(trial["settings"]["lr"] > 0.2 for trial in trials[3:])
    assert {trial["config"]["model"]["act"] for trial in trials} == {"a", "b"}


def test_a_searched_setting_is_fixed_and_a_first_one_is_given_on_the_command_line(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, **SHORT, space=SPACE)
    changes = ("--set", "space.lr=0.15", "--set", "initial=[{model.act: b}]")
    told = here.json("run", spec, "--dry-run", *changes)
    assert told["space"][0].endswith("fixed at 0.15")
    assert told["initial"] == [{"model.act": "b"}]
    assert told["points"] == 2
    assert told["warnings"] == ["3 trials are asked for, but the space has only 2 points"]
