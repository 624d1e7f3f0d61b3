"""Sweeps whose first trials all fail with one error end, say so, and go on when they are mended."""

from pathlib import Path
from typing import Any

import pytest

from sweep import spec as specs
from sweep.core.errors import UsageError
from sweep.history.events import Status
from sweep.ledger.folder import Folder
from sweep.testing import CurvePoint, SimulationResult
from sweep.testing import simulate as run_simulation
from tests.support import sweeps
from tests.support.command_line import start, write_spec

SPEC: dict[str, Any] = {
    "trials": 10,
    "stop": {"training_iteration": 5},
    "limits": {"slice_s": 1.0},
}

SAID = "limits.fail_fast: the first 3 trials failed with the same error, so the sweep stops: "

#: A program with a mistake, until a file says that it is mended.
PROGRAM = """
from pathlib import Path
from trainables import report

def train(config):
    if not Path(__file__).with_name("mended").exists():
        {}["learning_rate"]
    report({"loss": config["lr"]})
"""


def fails(at: CurvePoint) -> dict[str, float]:
    if at.iteration == 3:
        raise ValueError(f"{at.config} of trial {at.trial} is bad")
    return {"score": 1.0}


def simulate(curve: Any, slots: int = 1, **limits: Any) -> SimulationResult:
    return run_simulation({**SPEC, "limits": {**SPEC["limits"], **limits}}, curve, slots)


def counts(course: SimulationResult) -> tuple[int, int]:
    history = course.history
    return len(history.with_status(Status.FAILED)), len(history.trials)


@pytest.mark.slow
def test_three_first_trials_with_one_error_end_the_sweep_however_often_it_is_killed() -> None:
    course = simulate(fails)
    assert course.state == "finished"
    assert counts(course) == (3, 3)
    assert course.history.end_reason.startswith(f"{SAID}ValueError: ")
    for record in course.records[:-1]:
        assert run_simulation(SPEC, fails, kills={record.number}).decisions == course.decisions


def test_what_runs_beside_them_saves_and_ends() -> None:
    course = simulate(fails, slots=4)
    assert course.history.end_reason.startswith("limits.fail_fast")
    assert not course.history.with_status(Status.RUNNING, Status.PAUSED)
    assert len(course.history.trials) < 10


@pytest.mark.parametrize(("given", "failed"), [(None, 10), (False, 10), (5, 5), (1, 1), (True, 1)])
def test_a_number_sets_it_and_nothing_turns_it_off(given: Any, failed: int) -> None:
    assert counts(simulate(fails, fail_fast=given)) == (failed, failed)


def test_trials_that_fail_each_with_an_error_of_its_own_end_nothing() -> None:
    def different(at: CurvePoint) -> dict[str, float]:
        raise [KeyError("a"), KeyError("b"), ValueError("a")][at.trial % 3]

    assert counts(simulate(different)) == (10, 10)


def test_a_first_trial_that_works_or_comes_further_shows_that_the_program_does() -> None:
    def second(at: CurvePoint) -> dict[str, float]:
        return {"score": 1.0} if at.trial == 1 else fails(at)

    assert counts(simulate(second)) == (9, 10)

    def fourth_of_four(at: CurvePoint) -> dict[str, float]:
        if at.trial < 3 and at.iteration == 2:
            raise ValueError("these are bad")
        return {"score": 1.0}

    assert counts(simulate(fourth_of_four, slots=4)) == (3, 10)


def test_to_diverge_is_no_mistake_of_the_program() -> None:
    def diverges(at: CurvePoint) -> dict[str, float]:
        return {"score": float("nan")}

    assert counts(simulate(diverges, not_finite="fail")) == (10, 10)


def test_a_sweep_that_is_over_anyway_ends_as_always() -> None:
    assert run_simulation({**SPEC, "trials": 3}, fails).history.end_reason == ""


@pytest.mark.slow
def test_a_sweep_continues_after_the_mistake_is_fixed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    changes = {"scheduler": "fifo", "stop": None, "config": None, "deterministic": None}
    spec = write_spec(tmp_path, trainable="program:train", trials=8, **changes)
    folder = Folder(tmp_path / "sweeps", "demo")
    said = command(tmp_path, 1, "run", spec)
    assert SAID in said
    assert "KeyError: 'learning_rate'" in said
    assert "sweep resume demo --retry-failed" in said
    assert len(sweeps.history(folder).with_status(Status.FAILED)) == 3
    command(tmp_path, 1, "resume", "demo")
    assert len(sweeps.history(folder).with_status(Status.FAILED)) == 6

    (tmp_path / "mended").touch()
    command(tmp_path, 0, "resume", "demo", "--retry-failed")
    past = sweeps.history(folder)
    assert (past.end_reason, len(past.with_status(Status.COMPLETED))) == ("", 8)


def command(root: Path, code: int, *words: object) -> str:
    done = start(*words, "--jobs", 1, cwd=root)
    out, err = done.communicate(timeout=120)
    assert done.returncode == code, out + err
    return " ".join(out.split())


def test_no_trials_at_all_is_refused() -> None:
    text = """
name: demo
trials: 1
trainable: ppo
metric: score
mode: max
space: {lr: 0.1}
limits: {fail_fast: 0}
"""
    with pytest.raises(UsageError, match=r"limits\.fail_fast: 0 is not allowed"):
        specs.parse(text, "spec.yaml")
