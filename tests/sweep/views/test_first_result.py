"""A name that the first result lacks is told then, also while that trial has no end."""

import subprocess
import sys
from pathlib import Path

import pytest

from sweep.cli.main import main

SPEC = """\
name: first
trials: 2
trainable: own_first:train
metric: loss
mode: min
config: {until: ""}
space: {x: {uniform: [0, 1]}}
stop: {training_iterations: 3}
trackers: []
"""
CODE = """\
import os, time
from trainables import report

def train(config):
    for i in range(1, 10**9):
        report({"loss": config["x"] / i, "other": 1.0})
        if os.path.exists(config["until"]) or (i == 3 and not config["until"]):
            return
        time.sleep(0.01)
"""
TOLD = (
    "warning: stop.training_iterations: the first result of trial 0 has no training_iterations; it "
    "has loss, other, training_iteration; did you mean 'training_iteration'? (no mistake if it "
    "appears only later, as results of evaluations do)"
)


def test_it_is_told_once_in_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own_first.py").write_text(CODE)
    Path("spec.yaml").write_text(SPEC)
    assert main(["run", "spec.yaml", "--pool", "inline"]) == 0
    assert capsys.readouterr().out.splitlines().count(TOLD) == 1
    assert main(["resume", "first", "--trials", "3", "--pool", "inline"]) == 0
    assert TOLD not in capsys.readouterr().out


def test_it_is_told_of_a_trial_that_runs_on(tmp_path: Path) -> None:
    (tmp_path / "own_first.py").write_text(CODE)
    (tmp_path / "spec.yaml").write_text(SPEC)
    command = [sys.executable, "-m", "sweep", "run", "spec.yaml", "--set", "config.until=told"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            if line.startswith("warning: "):
                told.append(line.rstrip())
                (tmp_path / "told").touch()
    assert told == [TOLD]
    assert process.returncode == 0
