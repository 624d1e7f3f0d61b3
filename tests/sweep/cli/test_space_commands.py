"""The keys and options of the space as a person types them."""

from pathlib import Path
from typing import Any

from tests.support.command_line import Here, write_spec

SHORT: dict[str, Any] = {"scheduler": "fifo", "stop": {"training_iteration": 1}, "trials": 3}
SPACE = {"lr": {"uniform": [0.1, 0.2]}, "model": {"parameters": {"act": {"values": ["a", "b"]}}}}


def test_what_is_learnt_from_earlier_sweeps_is_said_when_a_sweep_begins(
    here: Here, tmp_path: Path
) -> None:
    assert here("run", write_spec(tmp_path, **SHORT, space=SPACE), "--pool", "inline")[0] == 0
    start = {"name": "next", "searcher": {"name": "tpe", "prior": ["demo"]}}
    spec = write_spec(tmp_path, **{**SHORT, "trials": 6}, space=SPACE, **start)
    code, out, _ = here("run", spec, "--dry-run")
    assert code == 0
    assert "prior: learns from 3 trials of demo" in out
    code, _, err = here("run", spec, "--pool", "inline")
    assert code == 0
    assert "sweep: prior: learns from 3 trials of demo\n" in err
    told = [here("explain", "next", str(number))[1] for number in range(6)]
    assert any(
        "from its prior: in earlier sweeps, settings like these beat" in " ".join(t.split())
        for t in told
    )
    wrong = ("run", spec, "--name", "other", "--set", "searcher.prior=[dmo]")
    assert here(*wrong, "--dry-run")[0] == 2
    wrong_too = here("validate", spec, "--set", "searcher.prior=[dmo]")
    assert (wrong_too[0], "a sweep in" in wrong_too[2]) == (2, True)
    code, out, err = here(*wrong)
    assert (code, out) == (2, "")
    assert "searcher.prior: there is no sweep 'dmo'; expected a sweep in" in err
    assert len(err.splitlines()) == 1
    left = here("run", spec, "--name", "rest", "--set", "searcher.prior=root", "--set", "mode=max")
    assert "sweep: prior: demo is left out: it has the mode min\n" in left[2]


def test_a_space_is_changed_on_resume(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, **SHORT, space=SPACE), "--pool", "inline")
    spec = tmp_path / "spec.yaml"
    narrow = spec.read_text()
    spec.write_text(narrow.replace("0.1", "1").replace("0.2", "2").replace("uniform", "randint"))
    code, out, err = here("resume", "demo", "--pool", "inline", "--space", spec)
    assert (code, out) == (2, "")
    assert "space.lr: whole numbers 1 to 2, both included is not the same parameter as " in err
    assert len(err.splitlines()) == 1
    spec.write_text(narrow.replace("0.2", "0.9"))
    arguments = ("resume", "demo", "--pool", "inline", "--space", spec, "--trials", 9)
    assert here(*arguments)[0] == 0
    trials = sorted(here.json("results", "demo")["trials"], key=lambda trial: trial["trial"])
    assert all(trial["settings"]["lr"] <= 0.2 for trial in trials[:3])
    assert any(trial["settings"]["lr"] > 0.2 for trial in trials[3:])
    spec.write_text(narrow.replace("0.1", "0.3").replace("0.2", "0.4"))
    assert here(*arguments[:-1], 12)[0] == 0
    trials = sorted(here.json("results", "demo")["trials"], key=lambda trial: trial["trial"])
    assert all(0.3 <= trial["settings"]["lr"] <= 0.4 for trial in trials[9:])
    assert "in which lr of this trial cannot be proposed" in " ".join(
        here("explain", "demo", "0")[1].split()
    )
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
    assert told["warnings"] == ["3 trials are requested, but the space has only 2 points"]


def test_a_folder_in_the_place_of_a_new_space_is_called_one(here: Here, tmp_path: Path) -> None:
    here("run", write_spec(tmp_path, **SHORT, space=SPACE), "--pool", "inline")
    code, _, err = here("resume", "demo", "--pool", "inline", "--space", tmp_path)
    assert (code, err.startswith(f"sweep: {tmp_path}: ")) == (2, True)
    assert err.endswith(" is a folder; name a YAML file\n")
