"""The data and the words that the commands show."""

import fcntl
import io
import json
import math
import os
import sqlite3
import time
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import pytest
from rich.text import Text

from sweep.cli import tables, trial_tables
from sweep.cli.terminal import Terminal
from sweep.core.errors import DamagedLedger, NameTaken, SweepLocked, UsageError
from sweep.history.events import (
    Closed,
    Created,
    End,
    Event,
    Goal,
    Opened,
    ParentCheckpoint,
    Recorded,
    Saved,
    Status,
)
from sweep.history.history import History
from sweep.ledger import lease, process
from sweep.ledger.folder import Folder, root_option
from sweep.operations.report import page
from sweep.schedulers._shared.population import born_at
from sweep.spec import yaml_source
from sweep.views import formatting, lookup, overview
from sweep.views.lookup import State
from tests.support import sweeps, trials
from tests.support.command_line import Here, write_spec
from tests.support.events import Story, rows


def printed(renderable: object) -> str:
    pipe = io.StringIO()
    Terminal(pipe).show(renderable)  # type: ignore[arg-type] # what render gives is Any to a test
    return pipe.getvalue()


# ---- data -----------------------------------------------------------------------------------


def test_results_rank_by_the_mode_and_put_trials_without_a_score_last(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    sweep = lookup.read(folder)
    sweep.history.trials.append(trials.trial(9, Status.FAILED))
    rows = overview.results(sweep)["trials"]
    scores = [row["score"] for row in rows[:-1]]
    assert scores == sorted(scores)
    assert (rows[-1]["trial"], rows[-1]["score"]) == (9, None)


def test_values_that_json_does_not_have_are_null(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    sweep = lookup.read(folder)
    broken = trials.trial(9, Status.COMPLETED, [math.nan])
    broken.replicas[0].last_metrics = {"timesteps_total": math.inf}
    sweep.history.trials.append(broken)
    text = json.dumps([overview.results(sweep), overview.show(sweep, 9, [])], allow_nan=False)
    assert "NaN" not in text


def test_without_a_score_there_is_no_best_trial() -> None:
    past = trials.history([trials.trial(0, Status.FAILED)], 1)
    said = "none of its 1 trial has a score in 'score' yet; see `sweep results demo --root else`"
    with pytest.raises(UsageError, match=said):
        overview.best_trial(past, Folder(Path("else"), "demo"))


def test_the_root_is_named_in_a_command_unless_it_is_the_one_that_is_looked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert root_option("sweeps") == root_option(tmp_path / "sweeps") == ""
    assert root_option("my sweeps") == " --root 'my sweeps'"
    assert Folder(Path("my sweeps"), "demo").in_commands == "demo --root 'my sweeps'"


def test_who_gives_a_name_that_is_taken_is_told_how_to_go_on_there(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "demo")
    folder.path.mkdir()
    go_on = rf"`sweep resume demo --root {tmp_path}`, delete it with `sweep rm demo"
    with pytest.raises(NameTaken, match=go_on), folder.creating():
        pass


def test_two_names_that_differ_in_case_alone_do_not_stand_side_by_side(tmp_path: Path) -> None:
    with Folder(tmp_path, "PPO-CartPole").creating():
        pass
    said = r"^name: 'ppo-cartpole' and .*PPO-CartPole' in .* differ only .*; give another --name$"
    with pytest.raises(UsageError, match=said), Folder(tmp_path, "ppo-cartpole").creating():
        pass
    with Folder(tmp_path, "PPO-CartPole-2").creating():
        pass
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"PPO-CartPole", "PPO-CartPole-2"}


def test_a_clone_is_none_of_the_trials_that_are_wanted_and_done() -> None:
    """Whether it has ended or runs, and has a parent since it began from a checkpoint."""
    ended = trials.trial(0, Status.COMPLETED, [1.0])
    for status in (Status.COMPLETED, Status.RUNNING):
        clone = trials.trial(1, status, [1.0])
        saved = Saved(1, "digest", "ckpt-1", 1)
        clone.replicas[0].birth = ParentCheckpoint(0, 0, 1.0, saved)
        clone.clone_of = 0
        assert overview.ended_count(trials.history([ended, clone], 1)) == 1


def test_repeated_training_of_a_clone_counts_towards_the_sweep(tmp_path: Path) -> None:
    """A clone of a trial that failed on its way from there; what came before is its parent's."""
    told = Story.create(tmp_path)
    told.begin()
    told.start(0)
    told.close(0, Status.PAUSED, rows(0, 1, 4, timesteps_this_iter=100))
    told.go_on(0)
    told.close(0, Status.FAILED, rows(0, 5, 7, timesteps_this_iter=100), End.CRASHED)
    told.breed(1, parent=0)
    told.close(1, Status.COMPLETED, rows(1, 5, 9, timesteps_this_iter=100), End.DONE)
    assert overview.steps(told.history) == 700 + 500


def test_steps_of_a_child_are_its_networks_and_its_own_ones_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pbt = {"name": "pbt", "perturbation_interval": 3}
    folder = sweeps.make(tmp_path, trials=4, scheduler=pbt)
    sweeps.run(folder)
    here = Here(capsys, tmp_path)
    trials = {row["trial"]: row for row in here.json("results", "demo")["trials"]}
    children = [row for row in trials.values() if row["parent"] is not None]
    assert children
    for row in trials.values():
        assert row["steps"] == 10 * row["iterations"]
        born = born_at(lookup.read(folder).history.trials[row["trial"]])
        assert row["own_steps"] == row["steps"] - 10 * born
    total = sum(row["own_steps"] for row in trials.values())
    assert here.json("status", "demo")["steps"] == total < sum(r["steps"] for r in trials.values())
    child = children[0]
    assert "  own steps  " in here("results", "demo")[1].splitlines()[2]
    told = f"{child['steps']:.0f} steps, {child['own_steps']:.0f} of them its own"
    assert told in here("show", "demo", child["trial"])[1]
    html = page.build(lookup.read(folder), 0.0)
    assert (
        "The iterations and steps of a child include those of its parent before the copy." in html
    )


def test_without_children_there_are_no_own_steps_to_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = sweeps.make(tmp_path, trials=2, scheduler="fifo")
    sweeps.run(folder)
    here = Here(capsys, tmp_path)
    rows = here.json("results", "demo")["trials"]
    assert [row["own_steps"] for row in rows] == [row["steps"] for row in rows]
    assert "own steps" not in here("results", "demo")[1]
    assert "of them" not in here("show", "demo", 0)[1]
    assert "of a child" not in page.build(lookup.read(folder), 0.0)


def test_show_tells_every_decision_about_a_trial_with_its_reason(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    sweeps.run(folder)
    sweep = lookup.read(folder)
    longest = max(sweep.history.trials, key=lambda trial: trial.iteration)
    rows = lookup.read_results(folder, longest.leader)
    told = overview.show(sweep, longest.number, rows)
    whats = [decision["what"] for decision in told["decisions"]]
    assert whats[0] == "proposed"
    assert whats[1] == "slice 0 to 1"
    assert whats[-1] == "slice 2 ended: COMPLETED"
    assert all(decision["why"] for decision in told["decisions"])
    text = printed(trial_tables.show(told))
    assert "promoted to rung 9: loss" in text
    assert "SHA-256" in text


def test_a_sweep_that_nobody_drives_is_interrupted_until_it_is_finished(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    assert lookup.read(folder).state is State.INTERRUPTED
    with folder.lock():
        assert lookup.read(folder).state is State.RUNNING
    assert lookup.read(folder).state is State.INTERRUPTED
    sweeps.run(folder)
    with folder.lock():
        assert lookup.read(folder).state is State.FINISHED


def test_the_way_on_from_a_sweep_that_stopped_names_its_root(tmp_path: Path) -> None:
    shown = printed(tables.status(overview.status(lookup.read(sweeps.make(tmp_path)), {}, 0.0)))
    assert f"continue with: sweep resume demo --root {tmp_path}\n" in shown


def test_a_look_at_a_sweep_leaves_its_lock_to_the_driver(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    assert not lookup.is_driven(folder)
    with folder.lock():
        assert lookup.is_driven(folder)
        assert lookup.is_driven(folder)
    with folder.lock():
        pass


@pytest.mark.parametrize("another", [{"namespace": "pid:[1]"}, {"host": "there"}], ids=str)
def test_a_driver_of_another_container_is_seen(another: dict[str, str], tmp_path: Path) -> None:
    """Containers may share a host's name, and numbers of processes mean others there."""
    folder = sweeps.make(tmp_path)
    lock = folder.path / "run.lock"
    with folder.lock():
        there = {**json.loads(lock.read_text()), "pid": 999999999, **another}
        lock.write_text(json.dumps(there))
        assert lookup.is_driven(folder)
        said = f"process 999999999 on {there['host']}, since "
        with pytest.raises(SweepLocked, match=said), folder.lock():
            pass
    assert not lookup.is_driven(folder)


@pytest.mark.parametrize(("namespace", "code"), [("pid:[1]", 2), (process.namespace(), 3)])
def test_a_number_of_a_process_says_something_in_its_own_container_alone(
    namespace: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A driver had the number of a process that runs here, and holds no lock any more."""
    here = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(tmp_path, trials=1, trackers=[])
    here("run", spec, "--pool", "inline")
    kernel = f"{lease.this_host().kernel}|{namespace}"
    folder = Folder(here.root, "demo")
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        change = "UPDATE lease SET host = 'there', pid = ?, kernel = ?"
        database.execute(change, (os.getppid(), kernel))
    assert not lease.read_file(folder.ledger).has_ended
    found, _, said = here("run", spec, "--pool", "inline")
    assert (found, "sweep resume" in said) == (code, code == 2)
    with folder.lock():
        assert here("run", spec, "--pool", "inline")[0] == 3
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        database.execute("UPDATE lease SET pid = ?", (os.getpid(),))
    with folder.lock():  # in another container a process of this number is another one
        assert here("run", spec, "--pool", "inline")[0] == (3 if code == 2 else 2)


def test_a_driver_of_another_person_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path)

    def hidden(_pid: int, _signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", hidden)  # as of a process of another person
    with folder.lock():
        assert lookup.is_driven(folder)


def test_everybody_who_may_read_the_lock_sees_whether_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path)
    before = os.umask(0o022)
    try:
        with folder.lock():
            assert (folder.path / "run.lock").stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)

    def refuse(_folder: Folder) -> bool:
        raise PermissionError

    monkeypatch.setattr(Folder, "is_locked", refuse)
    assert not lookup.is_driven(folder)
    name, kernel, namespace = lease.this_host()
    held = lease.Lease(1, name, kernel, os.getppid(), namespace=namespace)
    monkeypatch.setattr(lease, "read_file", lambda _path: held)
    assert lookup.is_driven(folder)


def test_who_only_looks_keeps_no_driver_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path)
    with folder.lock():
        pass
    looks = (folder.path / "run.lock").open()
    fcntl.flock(looks, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _seconds: looks.close())
    with folder.lock():
        assert looks.closed


def test_the_lock_of_a_dead_process_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path)
    with folder.lock():
        pass
    lock = folder.path / "run.lock"
    lock.write_text(json.dumps({**json.loads(lock.read_text()), "pid": 999999999}))
    monkeypatch.setattr(fcntl, "flock", None)  # who calls it fails
    assert not lookup.is_driven(folder)


# ---- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59, "59 s"), (61, "1:01"), (3661, "1:01:01"), (None, "-")]
)
def test_durations(seconds: float | None, text: str) -> None:
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(500.0, "500"), (0.000123456789, "0.000123457"), (None, "-"), (-2, "-2"), (-0.0, "0")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert formatting.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3, "3 seconds"), (60, "1 minute"), (7300, "2 hours"), (2e5, "2 days")]
)
def test_ages(seconds: float, text: str) -> None:
    assert formatting.age(seconds) == text


def test_settings_are_short_and_cannot_fool_a_terminal() -> None:
    shown = formatting.settings({"lr": 0.00031234, "model.hidden": [64, 64], "note": "a\x1b[2Jb"})
    assert shown == "lr=0.000312 model.hidden=[64,64] note=a\\x1b[2Jb"


def test_a_sparkline_rises_with_the_curve_and_fits() -> None:
    assert formatting.sparkline([0.0, 1.0, 2.0, 3.0]) == "▁▃▆█"
    assert formatting.sparkline([2.0, 2.0]) == "▁▁"
    assert len(formatting.sparkline([float(k) for k in range(1000)])) == 60
    assert formatting.sparkline([]) == ""


def test_settings_as_yaml_keep_their_types() -> None:
    values = {"a": 1e-5, "b": {"c": [1, "x"], "d": True}, "1e5": None, "e": {}}
    values |= {"null": 1, "True": 2, ".5": 3, ".inf": 4}
    written = formatting.yaml_lines(values)
    assert written == [
        *("a: 1e-05", "b:", '  c: [1, "x"]', "  d: true", '"1e5": null', "e: {}"),
        *('"null": 1', '"True": 2', '".5": 3', '".inf": 4'),
    ]
    assert yaml_source.read("\n".join(written), "")[0] == values


@pytest.mark.parametrize("head", [True, False])
def test_a_table_in_a_pipe_is_what_rich_would_draw(
    head: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        ("a", "1", "short"),
        (Text("字幕", style="red"), "22", "the longest of all"),
        ("", "", ""),
    ]
    columns = [
        ("name", "l", itemgetter(0)),
        ("n", "r", itemgetter(1)),
        ("what", "wrap", itemgetter(2)),
    ]
    made = tables.table(rows, *columns, head=head)
    plain = printed(made)
    assert plain.splitlines()[-2 if head else 1].startswith("字幕")
    monkeypatch.setattr(tables.Table, "_lines", lambda _self, _most: None)
    assert printed(made) == plain


@pytest.mark.parametrize("cell", ["two\nlines", "w" * 10_000])
def test_what_is_no_short_line_is_drawn_by_rich(cell: str) -> None:
    made = tables.table([(cell,)], ("what", "wrap", itemgetter(0)))
    assert [len(line) for line in printed(made).splitlines()][1:] == list(map(len, cell.split()))


def test_a_table_gives_way_in_its_last_column_only() -> None:
    row = {"trial": 1, "status": "PRUNED", "score": 1.0, "scores": [1.0]}
    row |= {"expected": None, "expected_error": None, "iterations": 12345}
    row |= {"steps": 9876543.0, "own_steps": 9876543.0}
    long = {f"setting_number_{k}": 0.5 for k in range(9)}
    made = tables.ranking([{**row, "settings": long}], "cut")
    narrow = io.StringIO()
    Terminal(narrow, width=60).show(made)
    head, body = narrow.getvalue().splitlines()
    assert max(len(head), len(body)) <= 60
    assert "9,876,543" in body
    assert body.endswith("…")


def test_a_ledger_whose_spec_is_damaged_is_named_with_the_first_mistake(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    with closing(sqlite3.connect(folder.ledger)) as database, database:
        database.execute("UPDATE sweep SET spec = replace(spec, '\"name\"', '\"nam\"')")
    with pytest.raises(DamagedLedger) as caught:
        lookup.read_spec(folder)
    said = str(caught.value)
    assert said.startswith(f"{folder.ledger} is damaged or is not a ledger: its spec: nam: ")
    assert "\n" not in said and "sweep verify" in said


def test_where_one_of_two_seeds_failed_the_first_error_is_its_own() -> None:
    history = History(trials.objective("max"))
    goal, ended = Goal(None), ((0, Status.COMPLETED, "done"), (1, Status.FAILED, "it raised"))
    told: list[Event] = [Created(0, {}, {}, 0, replicas=2)]
    for index, status, reason in ended:
        end = End.DONE if status is Status.COMPLETED else End.CRASHED
        told += [Opened(0, index, 0, goal, ""), Closed(0, index, 0, end, status, reason, 0)]
    history.extend([Recorded(k, 1, float(k), event) for k, event in enumerate(told, start=1)])
    assert overview.summary(history, "demo")["first_error"] == {"trial": 0, "reason": "it raised"}
