"""Callbacks of one's own: what they are told and when, and that they hold up nothing."""

import json
import os
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep.driver import session
from sweep.driver.tracking.outbox import Outbox
from sweep.history.events import End, Status
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers._shared import callbacks
from sweep.trackers._shared.callbacks import METHODS, Caller, calls
from tests.support import sweeps
from tests.support.command_line import Here, start, write_spec
from tests.support.events import Story, row, rows
from tests.support.sweep_callbacks import CALLS, Noting
from tests.support.waiting import wait_until

MODULE = "tests.support.sweep_callbacks"


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where calls are written down; a slow machine has all the time that it needs."""
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv(CALLS, str(path))
    monkeypatch.setattr(session, "CALLBACKS_PATIENCE_S", 240.0)
    return path


def read(noted: Path) -> list[list[Any]]:
    """Return the calls that have been written down whole."""
    text = noted.read_text() if noted.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def run(here: Here, folder: Path, *names: str, **changes: Any) -> tuple[int, str]:
    """Run a small sweep with these callbacks; exit code, and what it said."""
    given = {"trials": 3, "stop": {"training_iteration": 3}, "scheduler": "fifo", **changes}
    spec = write_spec(folder, callbacks=[f"{MODULE}:{name}" for name in names], **given)
    code, out, err = here("run", spec, "--pool", "inline")
    return code, out + err


def caller(story: Story, name: str, said: list[str]) -> Caller:
    return Caller(story.where, f"{MODULE}:{name}", said.append)


# ---- what they are told -------------------------------------------------------------------------


def test_each_method_is_called_at_its_moment_in_a_real_sweep(
    here: Here, tmp_path: Path, noted: Path
) -> None:
    assert run(here, tmp_path, "Noting")[0] == 0
    told = read(noted)
    history = sweeps.history(folder_of(here))
    counts = Counter(method for method, *_ in told)
    assert counts["on_trial_start"] == counts["on_trial_complete"] == 3
    assert counts["on_trial_result"] == sum(len(r.curve) for r in history.replicas(*Status)) == 9
    assert counts["on_checkpoint"] >= 3
    assert told[-1][0] == "on_sweep_end"
    ended = told[-1][1]
    assert history.best is not None
    assert (ended["outcome"], ended["trials"]) == ("finished", 3)
    assert ended["best"]["number"] == history.best.number
    results = [
        (t["number"], r["training_iteration"])
        for m, t, *r_ in told
        for r in r_
        if m == "on_trial_result"
    ]
    assert results == sorted(results)
    for _, trial, checkpoint in (one for one in told if one[0] == "on_checkpoint"):
        assert Path(checkpoint["path"]).parent == Path(trial["folder"])
        assert len(checkpoint["sha256"]) == 64
    finished = [trial for method, trial, *_ in told if method == "on_trial_complete"]
    assert {trial["status"] for trial in finished} == {"COMPLETED"}
    assert [trial["score"] for trial in finished] == [t.score for t in history.trials]


def folder_of(here: Here) -> Folder:
    return Folder(here.root, "demo")


def test_a_trial_that_failed_is_told_with_its_error(
    here: Here, tmp_path: Path, noted: Path
) -> None:
    code, _ = run(here, tmp_path, "Noting", config={"fail_at": 2}, trials=1)
    assert code == 1
    (told,) = [one for one in read(noted) if one[0] == "on_trial_error"]
    assert "RuntimeError: fail_at: 2" in told[2]
    assert told[1]["status"] == "FAILED"
    assert "on_trial_complete" not in {method for method, *_ in read(noted)}


def test_every_event_is_plain_data_for_a_method_that_takes_it(tmp_path: Path) -> None:
    story = Story.create(tmp_path)
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 2))
    story.start(1)
    story.close(1, Status.FAILED, [row(1, 1)], End.CRASHED, reason="raised")
    story.move(0, Status.PRUNED)
    story.end()
    history = History(story.where.objective)
    found = []
    for record in story.records:
        history.extend([record])
        found += list(calls(story.where, history, record))
    assert [method for method, _ in found] == [
        *("on_trial_start", "on_trial_result", "on_trial_result", "on_checkpoint"),
        *("on_trial_start", "on_trial_result", "on_trial_error"),
        *("on_trial_complete", "on_sweep_end"),
    ]
    assert {method for method, _ in found} == set(METHODS)
    for method, arguments in found:
        assert len(arguments) == len(METHODS[method])
        assert json.loads(json.dumps(arguments)) == list(arguments)
        assert arguments[0]["event"] in range(1, story.records[-1].number + 1)
    assert found[6][1][1] == "raised"
    assert found[7][1][0]["status"] == "PRUNED"


# ---- at least once ------------------------------------------------------------------------------


def test_what_was_not_told_is_told_when_the_sweep_goes_on_and_nothing_else(
    here: Here, tmp_path: Path, noted: Path
) -> None:
    run(here, tmp_path, "Noting")
    first = read(noted)
    code, _, _ = here("resume", "demo", "--trials", "4", "--pool", "inline")
    assert code == 0
    rest = read(noted)[len(first) :]
    assert {told[1]["number"] for told in rest if told[0] != "on_sweep_end"} == {3}
    assert [told[0] for told in rest].count("on_sweep_end") == 1


def test_after_a_kill_the_last_calls_may_come_again_and_none_is_left_out(
    tmp_path: Path, noted: Path
) -> None:
    """A batch is noted as told when it is over: what is killed within it is told again."""
    story = Story.create(tmp_path)
    story.begin()
    for trial in range(3):
        story.start(trial)
        story.close(trial, Status.COMPLETED, rows(trial, 1, 2))
    caller(story, "Noting", []).publish(story.records[:4])
    again = caller(story, "Noting", [])
    again.publish(story.records[2:])
    again.close()
    starts = [
        (told[1]["event"], told[1]["number"]) for told in read(noted) if told[0] == "on_trial_start"
    ]
    assert len(starts) == len(set(starts)) + 1
    assert {number for _, number in starts} == {0, 1, 2}


def test_commands_that_only_look_call_nothing(here: Here, tmp_path: Path, noted: Path) -> None:
    run(here, tmp_path, "Noting", trackers=["json"])
    told = read(noted)
    with closing(Ledger(folder_of(here).ledger)) as ledger:
        ledger.set_published(f"callback {MODULE}:Noting", 0)
    for command in ("ls", "status demo", "results demo", "show demo 0", "verify demo", "sync demo"):
        assert here(*command.split())[0] == 0
    assert read(noted) == told


# ---- they hold up nothing -----------------------------------------------------------------------


def test_what_is_raised_is_said_once_for_each_method_and_counted(
    here: Here, tmp_path: Path, noted: Path
) -> None:
    code, said = run(here, tmp_path, "Raising")
    assert code == 0
    said = " ".join(said.split())
    assert said.count("on_trial_result raised ValueError: no \\x1b[31mchannel") == 1
    assert said.count("on_trial_complete raised SystemExit: 3") == 1
    assert "on_trial_result raised 9 times in all" in said
    assert "on_trial_complete raised 3 times in all" in said
    assert [method for method, *_ in read(noted)] == ["on_sweep_end"]


@pytest.mark.slow
def test_one_that_hangs_holds_up_no_trial_and_ends_with_the_sweep(
    here: Here, tmp_path: Path, noted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = []

    def waits(box: Outbox, patience_s: float) -> list[str]:
        patience.append(patience_s)
        wait_until(lambda: bool(read(noted)), seconds=240)  # it has begun to hang
        return close(box, 0.1)

    close = Outbox.close
    monkeypatch.setattr(session, "CALLBACKS_PATIENCE_S", 7.0)
    monkeypatch.setattr(Outbox, "close", waits)
    code, said = run(here, tmp_path, "Hanging")
    assert code == 0
    assert 7.0 in patience
    assert "has not received all results" in " ".join(said.split())
    ((_, pid),) = read(noted)
    wait_until(lambda: not psutil.pid_exists(pid))
    with closing(Ledger(folder_of(here).ledger)) as ledger:
        assert ledger.published(f"callback {MODULE}:Hanging") < ledger.last


def test_one_whose_process_dies_gets_a_new_one_for_the_next_call(
    tmp_path: Path, noted: Path
) -> None:
    story = Story.create(tmp_path)
    story.begin()
    story.start(0)
    story.start(1)
    said: list[str] = []
    its = caller(story, "DyingOnce", said)
    its.publish(story.records)
    its.close()
    assert [told[1]["number"] for told in read(noted)] == [0, 1]
    (line,) = said
    assert "on_trial_start: callback" in line
    assert "exit code 9; the sweep continues, and a new process takes the next calls" in line


@pytest.mark.parametrize("name", ["Dying", "Unmade"])
def test_one_that_always_dies_is_called_no_more(name: str, tmp_path: Path, noted: Path) -> None:
    story = Story.create(tmp_path)
    story.begin()
    for trial in range(5):
        story.start(trial)
        story.end()
    said: list[str] = []
    its = caller(story, name, said)
    its.publish(story.records)
    its.close()
    assert len(said) == callbacks.MOST_DEATHS
    assert "the sweep continues without this callback until it is resumed" in said[-1]
    assert name == "Dying" or "RuntimeError: no token" in said[0]


@pytest.mark.slow
def test_a_driver_that_is_killed_takes_a_callback_with_it(tmp_path: Path, noted: Path) -> None:
    spec = write_spec(tmp_path, callbacks=[f"{MODULE}:Hanging"], config={"step_s": 0.05})
    driver = start("run", spec, "--jobs", 1, "--root", tmp_path / "sweeps", cwd=tmp_path)
    try:
        wait_until(lambda: bool(read(noted)), seconds=240)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate()
    ((_, pid),) = read(noted)
    wait_until(lambda: not psutil.pid_exists(pid))


def test_output_of_a_callback_is_not_part_of_a_commands_answer(tmp_path: Path, noted: Path) -> None:
    spec = write_spec(tmp_path, callbacks=[f"{MODULE}:Talkative"], trials=1)
    words = ("run", spec, "--pool", "inline", "--root", tmp_path / "sweeps", "--json")
    out, err = start(*words, cwd=tmp_path).communicate(timeout=240)
    assert json.loads(out)["outcome"] == "finished"
    assert "printed by a callback" in err


# ---- refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            f"{MODULE}:Misspelt",
            ["on_trial_results, which sweep never calls; did you mean 'on_trial_result'?"],
        ),
        (f"{MODULE}:Silent", ["no method that sweep calls", "on_sweep_end"]),
        (f"{MODULE}:no_class", ["a function; expected a class"]),
        (f"{MODULE}:Notin", ["callbacks[0]", "Noting"]),
        ("no_such_module:Class", ["no module 'no_such_module'"]),
        ("noting", ["callbacks", "package.module:Class"]),
    ],
)
def test_a_mistake_is_refused_before_anything_is_written(
    name: str, words: list[str], here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, callbacks=[name])
    code, out, err = here("run", spec)
    assert code == 2
    said = " ".join((out + err).split())
    assert all(word in said for word in words), said
    assert not here.root.exists()


def test_a_sweep_is_the_same_with_callbacks_and_without(
    here: Here, tmp_path: Path, noted: Path
) -> None:
    assert run(here, tmp_path, "Noting", name="with")[0] == 0
    assert run(here, tmp_path, name="without")[0] == 0
    told, untold = (Folder(here.root, name) for name in ("with", "without"))
    assert {told[1].get("name") for told in read(noted) if told[0] == "on_sweep_end"} == {"with"}
    for trial in range(3):
        assert sweeps.curve(told, trial) == sweeps.curve(untold, trial)


def test_what_a_class_may_define_is_what_is_called() -> None:
    assert set(METHODS) == {one for one in dir(Noting) if one.startswith("on_")}
