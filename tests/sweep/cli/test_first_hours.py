"""Ordinary mistakes of a first hour are told before they cost time."""

from pathlib import Path

import pytest

from sweep.cli import options
from sweep.cli.main import main

SPEC = """\
name: hours
trials: 3
trainable: hours:train
metric: loss
mode: min
space: {x: {uniform: [0, 1]}}
trackers: []
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(here: Path, module: str, code: str, *arguments: str) -> int:
    """Run a sweep of ``train`` in a module with this code."""
    (here / f"{module}.py").write_text(code)
    (here / "spec.yaml").write_text(SPEC.replace("hours:train", f"{module}:train"))
    return main(["run", "spec.yaml", "--pool", "inline", *arguments])


def test_if_all_trials_fail_the_first_error_is_printed_at_the_end(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def train(config):\n    raise ValueError(f'no such file: {config[\"x\"] > 2}')\n"
    assert run(here, "failing_a", code) == 1
    _, _, end = capsys.readouterr().out.partition("hours finished")
    assert "trial 0 failed" in end
    assert "ValueError: no such file: False" in end


def test_where_one_trial_did_not_fail_its_table_is_enough(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def train(config):\n    assert config['x'] > 0.7\n    return {'loss': 1.0}\n"
    run(here, "failing_b", code)
    _, _, end = capsys.readouterr().out.partition("hours finished")
    assert "completed" in end
    assert "trial 0 failed:" not in end


def test_a_list_in_the_space_is_told_to_be_one_value(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "def train(config):\n    return {'loss': config['x']}\n"
    assert run(here, "lists", code, "--set", "space.y=[1, 2, 3]") == 0
    assert "space.y: [1, 2, 3] is one fixed value; write {choice: [1, 2, 3]}" in (
        capsys.readouterr().err
    )
    named = ("--name", "b", "--set", "space.y={value: [1, 2, 3]}")
    assert run(here, "lists", code, *named) == 0
    assert "one fixed value" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("early_1", "def train(): pass", "train() takes no argument; expected one, the settings"),
        (
            "early_2",
            "def train(config):\n    import nowhere_x\n    return {'loss': nowhere_x.f()}",
            "train() imports 'nowhere_x' (early_2.py:2), which is not installed",
        ),
        (
            "early_3",
            "import argparse\np = argparse.ArgumentParser()\n"
            "p.add_argument('--lr', required=True)\np.parse_args()\ndef train(config): pass",
            "'early_3' ended the program while it was imported",
        ),
    ],
)
def test_what_cannot_run_is_told_before_anything_runs(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    module: str,
    code: str,
    said: str,
) -> None:
    assert run(here, module, code) == 2
    out, err = capsys.readouterr()
    assert said in err.splitlines()[-1]
    assert out == ""
    assert not (here / "sweeps").exists()


def test_a_program_that_reads_its_arguments_at_import_has_its_defaults(here: Path) -> None:
    code = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', default=3.0)\n"
        "args = p.parse_args()\ndef train(config):\n    return {'loss': args.lr}\n"
    )
    assert run(here, "with_arguments", code) == 0


def test_an_import_that_lasts_is_told(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "IMPORT_S", 0.0)
    code = (
        "import threading\n"
        "for thread in threading.enumerate():\n"
        "    if isinstance(thread, threading.Timer):\n"
        "        thread.join()\n"
        "def train(config):\n    return {'loss': config['x']}\n"
    )
    assert run(here, "lasting", code) == 0
    assert "importing lasting:train and the packages that it needs" in capsys.readouterr().err
