"""Functions that report no checkpoint, under schedulers that pause trials."""

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import trainables
from sweep.cli.live import Kind, Narrator
from sweep.core.errors import UsageError
from sweep.driver.start.launch import Launch, open_context
from sweep.history.events import Status
from tests.support import reporting, sweeps
from trainables import get_checkpoint, report
from trainables.function import never_saves

tell = report
late: Callable[[dict[str, Any]], None] = print  # a test puts another one here
STOPPING = {"name": "asha", "type": "stopping", "grace_period": 1, "reduction_factor": 3}


def plain(config: dict[str, Any]) -> None:
    for i in range(9):
        report({"loss": config["lr"] / (i + 1)})


def hidden(config: dict[str, Any]) -> None:
    """Nobody can see what it reports before it runs."""
    for i in range(9):
        tell({"loss": config["lr"] / (i + 1)})


def forgetful(config: dict[str, Any]) -> None:
    for i in range(9):
        trainables.report({"loss": config["lr"] / (i + 1)}, checkpoint={"i": i})


def helped(config: dict[str, Any]) -> None:
    """Its checkpoints are reported in another module."""
    report({"loss": config["lr"]})
    reporting.kept({"loss": config["lr"]})


def helped_late(config: dict[str, Any]) -> None:
    """Its checkpoints are reported in another module, which looks for `report` when it runs."""
    report({"loss": config["lr"]})
    late({"loss": config["lr"]})


def shown(config: dict[str, Any]) -> None:
    """What it names of other modules reports nothing."""
    report({"loss": float(Path("0.5").name), "root": math.sqrt(2.0), "at": len(STOPPING)})


def mindful(config: dict[str, Any]) -> None:
    start = get_checkpoint()
    first = 0 if start is None else start["i"] + 1
    for i in range(first, 9):
        report({"loss": config["lr"] / (i + 1)}, checkpoint={"i": i})


def named(name: str) -> dict[str, Any]:
    return {"trainable": f"{__name__}:{name}", "config": {}}


@pytest.mark.parametrize("scheduler", ["asha", "hyperband", "pbt"])
def test_a_scheduler_that_pauses_refuses_one_that_never_saves_before_anything_runs(
    tmp_path: Path, scheduler: str
) -> None:
    changes: dict[str, Any] = {"scheduler": scheduler, "searcher": "random", **named("plain")}
    if scheduler == "pbt":
        changes["scheduler"] = {"name": "pbt", "perturbation_interval": 2}
    with pytest.raises(UsageError) as caught:
        sweeps.make(tmp_path, **changes)
    said = str(caught.value)
    assert f"scheduler: '{scheduler}' pauses trials, but plain never calls" in said
    assert (
        "report(..., checkpoint=...); add such a call, or use a scheduler that pauses no trials: "
        "fifo, median" in said
    )
    assert "{name: asha, type: stopping}" in said
    assert list(tmp_path.iterdir()) == []


def test_what_another_module_reports_may_have_a_checkpoint() -> None:
    functions = (plain, shown, helped, hidden, forgetful)
    assert [never_saves(one) for one in functions] == [True, True, False, False, False]


def test_what_another_module_imports_in_a_function_may_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (
        "def late(metrics):",
        "    from trainables import report",
        "    report(metrics, metrics)",
    )
    (tmp_path / "elsewhere_late.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(globals(), "late", import_module("elsewhere_late").late)
    assert not never_saves(helped_late)


def test_under_one_that_pauses_none_it_is_ended_at_its_rungs(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, scheduler=STOPPING, deterministic=None, **named("plain"))
    sweeps.run(folder)
    trials = sweeps.history(folder).trials
    assert {trial.status for trial in trials} == {Status.COMPLETED, Status.PRUNED}
    rungs = {1, 3, 9}
    assert all(trial.iteration in rungs for trial in trials)


def test_what_cannot_be_seen_before_is_said_once_when_the_first_slice_ends(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=3, **named("hidden"))
    sweeps.run(folder)
    with open_context(Launch(folder, 1, "inline")) as (parts, _):
        lines = Narrator(parts.history).lines(parts.ledger.read())
    said = [line.text for line in lines if line.kind is Kind.NOTICE]
    assert len(said) == 1
    assert said[0].startswith(
        "cannot be ended early: it trained past its rung at training_iteration 1"
    )
    assert "report(..., checkpoint=...)" in said[0]
    assert "{name: asha, type: stopping}" in said[0]
    for trial in sweeps.history(folder).trials:
        assert trial.status is Status.COMPLETED
        assert "it trained past its rung" in trial.reason


@pytest.mark.parametrize("name", ["forgetful", "mindful"])
def test_only_a_function_that_goes_on_from_its_checkpoint_is_promoted(
    tmp_path: Path, name: str
) -> None:
    """A promoted trial begins from a checkpoint in a process where another one ran."""
    folder = sweeps.make(tmp_path, **named(name))
    sweeps.run(folder)
    trials = sweeps.history(folder).trials
    for trial in trials:
        for row in sweeps.curve(folder, trial.number):
            assert row.metrics["loss"] == trial.searched["lr"] / row.iteration
    failed = [trial for trial in trials if trial.status is Status.FAILED]
    reached = {trial.iteration for trial in trials}
    if name == "mindful":
        assert not failed
        assert reached == {1, 3, 9}
        assert "ran past" not in " ".join(trial.reason for trial in trials)
        return
    assert failed
    assert all("has not called get_checkpoint()" in trial.reason for trial in failed)


def twelve(config: dict[str, Any]) -> None:
    start = get_checkpoint()
    for i in range(0 if start is None else start["i"] + 1, 12):
        report({"loss": config["lr"] / (i + 1)}, checkpoint={"i": i} if config["saves"] else None)


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("slice_s", [1e-9, 60.0])
def test_a_trial_has_as_many_iterations_as_its_function_has_reports(
    tmp_path: Path, saves: bool, slice_s: float
) -> None:
    """However many slices it takes, and whether the last one begins after the last report."""
    changes: dict[str, Any] = {"scheduler": "fifo", "deterministic": None, "trials": 2}
    changes |= {"stop": {"training_iteration": 50}, "limits": {"slice_s": slice_s}}
    folder = sweeps.make(tmp_path, **changes, **{**named("twelve"), "config": {"saves": saves}})
    sweeps.run(folder)
    for trial in sweeps.history(folder).trials:
        assert (trial.status, trial.reason) == (
            Status.COMPLETED,
            "the trainable reported that it is done",
        )
        losses = [trial.searched["lr"] / n for n in range(1, 13)]
        rows = sweeps.curve(folder, trial.number)
        assert [row.iteration for row in rows] == [*range(1, 13)]
        assert [row.metrics["loss"] for row in rows] == losses
