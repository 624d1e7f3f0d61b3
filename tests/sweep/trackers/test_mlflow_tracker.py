import fcntl
import getpass
import json
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from sweep.history.events import Created, Dropped, End, Recorded, Row, Status, TermEnded
from sweep.history.history import History
from sweep.ledger import tables as ledger_tables
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.mlflow.page import Page
from sweep.spec.sections import check_name
from sweep.spec.space import Space
from sweep.trackers import TrackerContext
from sweep.trackers._shared import mlflow_store, mlflow_view
from sweep.trackers._shared.mlflow_content import (
    COMPLETE,
    LONGEST_KEY,
    LONGEST_PARAMETER,
    finite,
    key,
    parameter,
    values,
)
from sweep.trackers._shared.mlflow_store import (
    PARENT,
    FileStore,
    ServerStore,
    connect,
    open_client,
    store_url,
)
from sweep.trackers.mlflow import Tracker
from tests.support import processes
from tests.support.command_line import start, write_spec
from tests.support.events import STARTED, Story, publish_with, row, rows, tell_everything
from tests.support.mlflow_server import await_health, serving
from tests.support.mlflow_tables import migrated
from tests.support.ports import free_port
from tests.support.shares import share_everything
from trainables.checkpoint import disk

# MLflow 3.17 uses a loader that SQLAlchemy 2.1 deprecates; it says so when its tables are imported.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)

LARGEST = sys.float_info.max


@dataclass
class Run:
    """A run as it stands in MLflow's tables."""

    id: str
    name: str
    status: str
    start: int
    end: int | None
    tags: dict[str, str]
    params: dict[str, str]
    rows: list[tuple[str, float | None, int, int]]
    """Key, value (None for NaN), milliseconds, step."""

    @property
    def curves(self) -> dict[tuple[str, int], float | None]:
        """(key, step) → value; every pair stands there once, but for what moves with others."""
        by_time = sorted(self.rows, key=lambda row: row[2])
        once = [row for row in by_time if row[0] != "expected_score"]
        assert len({(key, step) for key, _value, _time, step in once}) == len(once)
        return {(key, step): value for key, value, _time, step in by_time}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables without a run: making them takes seconds."""
    story = Story.create(tmp_path_factory.mktemp("tables"), "first")
    connect(story.where).close()
    with closing(sqlite3.connect(story.where.folder.mlflow)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return story.where.folder.mlflow


CONNECT = """
import os, sys, pathlib
from sweep.trackers._shared import mlflow_store
from tests.support.events import Story
mlflow_store.TABLES = pathlib.Path(os.devnull)
mlflow_store.connect(Story.create(pathlib.Path(sys.argv[1]), "killed").where).close()
"""


@pytest.mark.skipif(
    f"-- MLflow {metadata.version('mlflow')}\n" not in mlflow_store.TABLES.read_text(),
    reason="the shipped tables are those of another release of MLflow",
)
def test_a_new_file_has_the_tables_that_mlflows_migrations_make(tmp_path: Path) -> None:
    story = Story.create(tmp_path, "first")
    connect(story.where)
    shipped = mlflow_store.TABLES.read_text()
    assert _lines(shipped) == _lines(migrated()), "python -m tests.support.mlflow_tables"
    with closing(sqlite3.connect(story.where.folder.mlflow)) as database:
        assert database.execute("SELECT name FROM experiments").fetchall() == [
            ("Default",),
            ("first",),
        ]


def test_the_tables_of_another_release_are_made_by_its_migrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_store, "TABLES", Path(os.devnull))
    with mlflow_store._locked(tmp_path / "mlflow.db.lock") as lock:
        mlflow_store._make(tmp_path / "mlflow.db", lock)
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        made = "\n".join(database.iterdump())
    assert _lines(made) == _lines(migrated().partition("\n")[2])


def _lines(script: str) -> list[str]:
    """Sorted: MLflow makes some indexes and checks in no fixed order."""
    return sorted(line.strip(" \t,;") for line in script.splitlines())


@pytest.mark.slow
def test_a_kill_while_the_tables_are_made_leaves_none_that_are_half_made(tmp_path: Path) -> None:
    """In the middle of a migration, from where MLflow can never go on."""
    child = processes.start([sys.executable, "-c", CONNECT, str(tmp_path)])
    while not _is_migrated(tmp_path):
        child.send_signal(signal.SIGCONT)
        assert child.poll() is None
        time.sleep(0.001)
        child.send_signal(signal.SIGSTOP)
    child.kill()
    child.wait()
    story = Story.create(tmp_path, "next")
    connect(story.where).close()
    assert client_of(story)[0].get_experiment_by_name("next") is not None


def client_of(story: Story) -> tuple[Any, str]:
    """MLflow's own client of the sweep's store, and the id of the sweep's experiment."""
    client = open_client(story.where)
    return client, client.get_experiment_by_name(story.where.name).experiment_id


def _is_migrated(root: Path) -> bool:
    """Whether a migration is under way: in the file that counts, one that has made a table."""
    made = "SELECT 1 FROM sqlite_master WHERE name LIKE '%alembic_tmp%'"
    begun = "SELECT 1 FROM alembic_version"
    return _finds(root / "mlflow.db", made) or _finds(root / "mlflow.db.new", begun)


def _finds(path: Path, query: str) -> bool:
    if not path.exists():
        return False
    with suppress(sqlite3.Error):
        url = f"{path.as_uri()}?mode=ro"
        with closing(sqlite3.connect(url, uri=True, timeout=0.0)) as database:
            return bool(database.execute(query).fetchall())
    return False


@pytest.fixture
def root(tmp_path: Path, tables: Path) -> Path:
    made = tmp_path / "odd ?#%41{x} é"
    made.mkdir()
    shutil.copy(tables, made / "mlflow.db")
    return made


@pytest.fixture
def story(root: Path) -> Story:
    return Story.create(root)


publish = partial(publish_with, Tracker)


def runs(story: Story) -> dict[str, Run]:
    """Trial number, or empty for the sweep → run; every run stands there once."""
    with closing(sqlite3.connect(story.where.folder.mlflow)) as database:
        found = [_run(database, fields) for fields in database.execute(_RUNS).fetchall()]
    mine = [run for run in found if run.tags["sweep.id"] == story.where.sweep_id]
    by_trial = {run.tags.get("sweep.trial", ""): run for run in mine}
    assert len(by_trial) == len(mine)
    return by_trial


_RUNS = (
    "SELECT run_uuid, name, status, start_time, end_time FROM runs WHERE lifecycle_stage = 'active'"
)


def _run(database: sqlite3.Connection, fields: Any) -> Run:
    run, name, status, start, end = fields

    def all_of(query: str) -> list[Any]:
        return database.execute(f"{query} WHERE run_uuid = ?", (run,)).fetchall()

    metrics = all_of("SELECT key, value, timestamp, step, is_nan FROM metrics")
    return Run(
        run,
        name,
        status,
        start,
        end,
        dict(all_of("SELECT key, value FROM tags")),
        dict(all_of("SELECT key, value FROM params")),
        sorted((k, None if nan else v, t, s) for k, v, t, s, nan in metrics),
    )


def expected(story: Story, trial: int) -> dict[tuple[str, int], float | None]:
    """What the ledger says that must stand in MLflow, but for times that differ when run again."""
    curves = scores(story, trial)
    for result in story.ledger.results(trial):
        step = int(result.metrics["timesteps_total"])
        for name in ("training_iteration", "info/score", "info/loss", "wide"):
            if name in result.metrics:
                value = float(result.metrics[name])
                limited = math.copysign(LARGEST, value) if math.isinf(value) else value
                curves[name, step] = None if math.isnan(value) else limited
    return curves


def scores(story: Story, trial: int) -> dict[tuple[str, int], float | None]:
    """What the trial was worth whenever it came to rest, by its steps then.

    And what was expected of it then, and whenever a driver left.
    """
    past, found = History(story.where.objective), dict[tuple[str, int], float | None]()
    steps = 0
    for record in story.records:
        past.extend([record])
        its = past.trials[trial] if trial < len(past.trials) else None
        if its is None:
            continue
        steps = max(steps, 100 * its.iteration)
        rested = (
            bool(its.milestones)
            and its.milestones[-1].event == record.number
            and its.score is not None
        )
        if rested and getattr(record.event, "trial", None) == trial:
            found["score", 100 * its.iteration] = its.score
        if (rested or isinstance(record.event, TermEnded)) and (now := past.expected(its)):
            found["expected_score", steps] = now.value
    return found


def exact(run: Run) -> dict[tuple[str, int], float | None]:
    return {place: value for place, value in run.curves.items() if place[0] != "time_total_s"}


def assert_whole(story: Story) -> None:
    """All of the ledger's rows stand in MLflow, and nothing else."""
    copied = runs(story)
    trials = story.history.trials
    assert set(copied) == {"", *(str(trial.number) for trial in trials)}
    for trial in trials:
        run = copied[str(trial.number)]
        assert exact(run) == expected(story, trial.number)
        iterations = len(story.ledger.results(trial.number))
        assert sum(place[0] == "time_total_s" for place in run.curves) == iterations
        assert run.tags["sweep.status"] == trial.status


# ---- what stands there --------------------------------------------------------------------------


@pytest.mark.slow
def test_every_row_of_the_ledger_stands_there_once_and_nothing_else(told: Story) -> None:
    publish(told)
    assert_whole(told)
    assert ("wide", 100) in runs(told)["1"].curves


def test_a_run_names_the_newest_checkpoint_that_is_left(story: Story) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 3))
    story.go_on(0)
    story.close(0, Status.COMPLETED, rows(0, 4, 9), End.DONE)
    publish(story)
    assert runs(story)["0"].tags["sweep.checkpoint"] == "ckpt-9"
    for left in ("ckpt-3", ""):
        newest = story.history.trials[0].replicas[0].newest_checkpoint
        assert newest is not None
        (dropped,) = story.tell(Dropped(0, 0, (newest.digest,)))
        publish(story, first=dropped.number)
        assert runs(story)["0"].tags["sweep.checkpoint"] == left


def test_with_several_objectives_the_sweeps_run_names_the_front_and_has_its_size(
    told: Story,
) -> None:
    objective = replace(told.where.objective, objectives=(("time_total_s", "max"),))
    told.where = replace(told.where, objective=objective)
    publish(told)
    history = History(objective, shows_unsaved=True)
    history.extend(told.records)
    parent, front = runs(told)[""], history.front()
    assert parent.tags["sweep.front"] == ", ".join(str(trial.number) for trial in front)
    sizes = [value for (name, _), value in sorted(parent.curves.items()) if name == "front/trials"]
    assert len(sizes) > 1
    assert sizes[-1] == len(front) > 0


def test_one_experiment_holds_the_sweep_and_below_it_its_trials(told: Story) -> None:
    publish(told)
    copied = runs(told)
    parent = copied.pop("")
    assert parent.name == "demo"
    assert PARENT not in parent.tags
    names = ["trial 0", "pruned trial 1", "trial 2", "stopped trial 3", "trial 4"]
    assert [copied[str(n)].name for n in range(5)] == names
    assert {run.tags[PARENT] for run in copied.values()} == {parent.id}
    assert "sweep resume demo" in parent.tags["mlflow.note.content"]
    tags = {name: parent.tags[f"sweep.{name}"] for name in ("searcher", "scheduler", "mode")}
    assert tags == {"searcher": "random", "scheduler": "asha", "mode": "max"}
    assert parent.tags["sweep.metric"] == "info/score"
    assert parent.tags["sweep.best_trial"] == "3"
    assert "sweep.front" not in parent.tags


@pytest.mark.parametrize("served", [False, True])
def test_the_sweeps_run_has_its_spec_its_searched_settings_and_its_versions(
    told: Story, served: bool
) -> None:
    told.where.folder.spec.write_text("name: demo\n")
    told.where = replace(told.where, versions={"torch": "2.13.0"})
    publish(through_the_client(told) if served else told)
    client, _experiment = client_of(told)
    parent = runs(told)[""]
    if not served:
        assert [file.path for file in client.list_artifacts(parent.id)] == ["sweep.yaml"]
    assert parent.tags["sweep.searched"] == "lr, layers, net"
    assert parent.tags["sweep.version.torch"] == "2.13.0"


def test_a_run_says_who_made_it_of_what_and_from_which_commit(told: Story, tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "x"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    told.where = replace(told.where, paths=(str(tmp_path),))
    publish(told)
    for run in runs(told).values():
        assert run.tags["mlflow.user"] == getpass.getuser()
        assert run.tags["mlflow.source.name"] == "tests.support.quadratic:Quadratic"
        assert run.tags["mlflow.source.git.commit"] == head.stdout.strip()


def test_the_sweeps_run_has_the_load_of_the_machine_while_it_ran(story: Story) -> None:
    story.begin()
    story.start(0)
    loads = {"perf/cpu_util_percent": 40.0, "perf/ram_util_percent": 7.0}
    steps = {"timesteps_this_iter": 100}
    told = [row(0, i, **loads | steps | {"perf/cpu_util_percent": 20.0 * i}) for i in (1, 2, 3)]
    story.close(0, Status.PAUSED, told)
    publish(story)
    curves = runs(story)[""].curves
    assert curves["system/cpu_utilization_percentage", 300] == 40.0
    assert curves["system/system_memory_usage_percentage", 300] == 7.0
    assert not any("system/" in name for name, _ in runs(story)["0"].curves)


def test_counts_that_say_nothing_are_no_curves_unless_the_sweep_compares_by_them(
    story: Story,
) -> None:
    story.begin()
    story.start(0)
    counts = {"evaluation/episodes": 10, "num_healthy_workers": 0, "score": 5.0}
    story.close(0, Status.PAUSED, [row(0, 1, **counts)])
    publish(story)
    names = {name for name, _ in runs(story)["0"].curves}
    expected = {"training_iteration", "time_total_s", "info/score", "info/loss", "results/score"}
    assert names == expected
    compared = list(values(row(0, 1, **counts), 1, {"evaluation/episodes"}))
    assert "evaluation/episodes" in {value.key for value in compared}


def test_searched_settings_are_parameters_and_lists_are_json(told: Story) -> None:
    publish(told)
    copied = runs(told)
    assert copied["0"].params == {"lr": "0.001", "layers": "2", "net": "[64,64]"}
    assert (copied["1"].params["net"], copied["2"].params["net"]) == ("null", "true")
    assert copied[""].params == {}


def test_every_fixed_setting_is_a_parameter_too_by_its_dotted_name(story: Story) -> None:
    searched = {"lr": 0.1, "env_config.size": 3, "model": {"hidden": [64, 64]}}
    config = {
        "lr": 0.1,
        "env": "CartPole-v1",
        "env_config": {"size": 3, "wind": {"on": True, "gusts": {}}},
        "model": {"hidden": [64, 64]},
        "gamma": 0.99,
        "seed": None,
        **{f"other{place}": place for place in range(250)},
    }
    story.begin()
    story.tell(Created(0, searched, config, seen=0))
    publish(story)
    publish(story)
    params = runs(story)["0"].params
    assert {name: text for name, text in params.items() if not name.startswith("other")} == {
        "lr": "0.1",
        "env": "CartPole-v1",
        "env_config.size": "3",
        "env_config.wind.on": "true",
        "env_config.wind.gusts": "{}",
        "model": '{"hidden":[64,64]}',
        "gamma": "0.99",
        "seed": "null",
    }
    assert all(params[f"other{place}"] == str(place) for place in range(250))
    assert Tracker(story.where).differences() == []


def test_a_trial_is_tagged_with_its_seed_its_reason_and_its_newest_checkpoint(told: Story) -> None:
    publish(told)
    tags = runs(told)["0"].tags
    assert (tags["sweep.seed_index"], tags["sweep.checkpoint"]) == ("0", "ckpt-9")
    assert (tags["sweep.status"], tags["sweep.reason"]) == ("COMPLETED", "done")
    assert tags["sweep.seed"] != runs(told)["1"].tags["sweep.seed"]


def test_a_bred_trial_is_tagged_with_its_parent_and_others_are_not(told: Story) -> None:
    told.breed(5, parent=0)
    told.close(5, Status.PAUSED, rows(5, 10, 12))
    publish(told)
    copied = runs(told)
    parents = {trial: run.tags.get("sweep.parent") for trial, run in copied.items()}
    assert parents == {"": None, "0": None, "1": None, "2": None, "3": None, "4": None, "5": "0"}
    assert exact(copied["5"]) == expected(told, 5)


def test_statuses_become_mlflows_and_what_is_finished_has_its_end(told: Story) -> None:
    publish(told)
    copied = runs(told)
    statuses = {name: copied[name].status for name in copied}
    assert statuses == {
        "": "RUNNING",
        "0": "FINISHED",
        "1": "FINISHED",
        "2": "FAILED",
        "3": "FINISHED",
        "4": "RUNNING",
    }
    for trial in told.history.trials:
        ended = None if trial.ended_at is None else int(trial.ended_at * 1000)
        assert copied[str(trial.number)].end == ended


def test_a_trial_without_a_slice_is_scheduled(story: Story) -> None:
    story.begin()
    story.tell(Created(0, {"lr": 0.1}, {"lr": 0.1}, seen=0))
    publish(story)
    assert runs(story)["0"].status == "SCHEDULED"


def test_a_paused_trial_is_still_running(story: Story) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 2))
    publish(story)
    assert (runs(story)["0"].status, runs(story)["0"].end) == ("RUNNING", None)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("how", ["stopped", "failed"])
def test_a_paused_trial_of_a_sweep_that_nobody_drives_is_scheduled(
    story: Story, how: str, whole: bool
) -> None:
    story.begin()
    story.start(0)
    story.start(1)
    story.close(0, Status.PAUSED, rows(0, 1, 2))
    story.close(1, Status.COMPLETED, rows(1, 1, 2))
    story.end(how)
    last = len(story.records)
    publish(story, last=None if whole else last - 1)
    if not whole:
        assert runs(story)["0"].status == "RUNNING"
        publish(story, first=last)
    assert (runs(story)["0"].status, runs(story)["0"].end) == ("SCHEDULED", None)
    assert runs(story)["1"].status == "FINISHED"
    assert differences(story) == []
    story.begin()
    publish(story, first=last + 1)
    assert differences(story) == []
    story.go_on(0)
    publish(story, first=last + 2)
    assert runs(story)["0"].status == "RUNNING"


def test_the_run_of_a_sweep_that_goes_on_has_no_end_and_then_its_last_one(story: Story) -> None:
    tracker = Tracker(story.where)
    ends = []
    for _ in range(2):
        seen = len(story.records)
        story.begin()
        tracker.publish(story.records[seen:])
        assert (runs(story)[""].status, runs(story)[""].end) == ("RUNNING", None)
        seen = len(story.records)
        story.end("stopped")
        ends.append(int(story.records[-1].time * 1000))
        tracker.publish(story.records[seen:])
        assert (runs(story)[""].status, runs(story)[""].end) == ("KILLED", ends[-1])
    seen = len(story.records)
    story.begin()
    story.end("stopped")
    tracker.publish(story.records[seen:])  # in one piece: its status is what it was
    assert runs(story)[""].end == int(story.records[-1].time * 1000) > ends[0]


def differences(story: Story) -> list[str]:
    with closing(Tracker(story.where)) as tracker:
        return tracker.differences()


def test_a_trial_that_is_revived_runs_again_and_its_curve_goes_on(story: Story) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 2))
    story.move(0, Status.PRUNED)
    story.end()
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    assert (runs(story)["0"].status, runs(story)[""].status) == ("FINISHED", "FINISHED")
    assert runs(story)["0"].name == "pruned trial 0"
    seen = len(story.records)
    story.begin()
    story.move(0, Status.PAUSED)
    story.go_on(0)
    tracker.publish(story.records[seen:])
    assert (runs(story)["0"].status, runs(story)[""].status) == ("RUNNING", "RUNNING")
    assert runs(story)["0"].name == "trial 0"
    seen = len(story.records)
    story.close(0, Status.COMPLETED, rows(0, 3, 9), End.DONE)
    story.end("stopped")
    tracker.publish(story.records[seen:])
    assert (runs(story)["0"].status, runs(story)[""].status) == ("FINISHED", "KILLED")
    assert runs(story)["0"].end == int((story.history.trials[0].ended_at or 0) * 1000)
    assert_whole(story)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("remembered", [False, True])
def test_iterations_that_are_run_again_have_their_new_values(
    story: Story, restarted: bool, remembered: bool
) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, rows(0, 1, 4), End.CRASHED)
    tracker = Tracker(story.where)
    tracker.publish(story.records)
    sent = len(story.records)
    story.go_on(0)
    again = [row(0, iteration, time_total_s=9.5 * iteration) for iteration in (3, 4, 5)]
    story.close(0, Status.FAILED, again, End.CRASHED, source=2)
    tracker = Tracker(story.where) if restarted else tracker
    tracker.publish(story.records[sent if remembered else 0 :])
    assert_whole(story)
    curves = runs(story)["0"].curves
    seconds = [curves["time_total_s", 100 * iteration] for iteration in range(1, 6)]
    assert seconds == [0.5, 1.0, 28.5, 38.0, 47.5]


def test_the_sweep_has_the_best_score_so_far_for_every_slice_and_the_counts(told: Story) -> None:
    publish(told)
    curves = runs(told)[""].curves
    best = [value for (name, _step), value in sorted(curves.items()) if name.startswith("best/")]
    rising = [pytest.approx(value) for value in (2 / 3, 5 / 3, 2.75, 2.8, 2.8, 3.0)]
    assert best == rising
    counts = {name: value for (name, _step), value in sorted(curves.items()) if "trials/" in name}
    assert {name: counts[f"trials/{name}"] for name in ("completed", "pruned", "failed")} == {
        "completed": 1,
        "pruned": 1,
        "failed": 1,
    }


def test_a_result_without_timesteps_has_its_iteration_as_step(story: Story) -> None:
    story.begin()
    story.start(0)
    bare = row(0, 1)
    metrics = {k: v for k, v in bare.metrics.items() if k not in ("timesteps_total", "timestamp")}
    story.close(0, Status.PAUSED, [type(bare)(1, metrics)])
    publish(story)
    assert runs(story)["0"].curves["info/score", 1] == 0.0


# ---- times --------------------------------------------------------------------------------------

SECOND = 1000


def tell_dated(story: Story) -> None:
    """Event k is recorded 100 k seconds after the sweep was created; results say when they were."""
    story.begin()
    story.start(0)
    first = [row(0, i, timestamp=STARTED + at) for i, at in ((1, 310.25), (2, 350), (3, 399))]
    story.close(0, Status.PAUSED, first, End.CRASHED)
    story.go_on(0)
    again = [row(0, i, timestamp=STARTED + at) for i, at in ((3, 520), (4, 530.001))]
    story.close(0, Status.COMPLETED, again, End.DONE, source=2)
    story.end()
    date(story)


def date(story: Story) -> None:
    with closing(sqlite3.connect(story.where.folder.ledger)) as database, database:
        database.execute("UPDATE events SET at = ? + 100.0 * k", (STARTED,))
        database.execute("UPDATE sweep SET created_at = ?", (STARTED,))
    story.where = replace(story.where, created_at=STARTED)


def times(run: Run, key: str) -> list[float]:
    """Milliseconds after the sweep was created of the rows of a key, by step."""
    return [time - STARTED * SECOND for name, _, time, _ in run.rows if name == key]


@pytest.mark.parametrize("size", [1, 1000])
def test_a_row_has_the_time_at_which_it_was_made_also_when_it_is_run_or_sent_again(
    story: Story, size: int
) -> None:
    tell_dated(story)
    for first in range(1, len(story.records) + 1, size):
        for _ in range(2):
            publish(story, first, first + size - 1)
    copied = runs(story)
    assert times(copied["0"], "info/score") == [310_250, 350_000, 399_000, 530_001]
    assert sorted(times(copied[""], "best/info/score")) == [400_000, 600_000]
    assert times(copied[""], "trials/completed") == [700_000]
    assert copied["0"].start == (STARTED + 200) * SECOND
    assert copied["0"].end == (STARTED + 600) * SECOND
    assert Tracker(story.where).differences() == []


@pytest.mark.parametrize("size", [1, 1000])
def test_a_copy_that_is_made_anew_has_the_same_times(story: Story, size: int) -> None:
    tell_dated(story)
    publish(story)
    before = {name: run.rows for name, run in runs(story).items()}
    client, _experiment = client_of(story)
    for run in runs(story).values():
        client.log_metric(run.id, "training_iteration", 1.0, timestamp=5, step=100)
        client.log_metric(run.id, "best/info/score", 1.0, timestamp=5, step=1)
    tracker = Tracker(story.where)
    assert sum("have other times" in text for text in tracker.differences()) == 2
    tracker.set_aside()
    for first in range(1, len(story.records) + 1, size):
        publish(story, first, first + size - 1)
    assert {name: run.rows for name, run in runs(story).items()} == before
    assert tracker.differences() == []


@pytest.mark.parametrize(
    ("said", "time"),
    [
        (5, 300_000),  # no date: a count of its own, or a clock that is wrong
        (-math.inf, 300_000),
        (STARTED + 299.9, 300_000),
        (STARTED + 399, 399_000),
        (STARTED * SECOND, 400_000),  # milliseconds
        (math.nan, 400_000),
        (10**400, 400_000),
        ("noon", 400_000),
    ],
)
def test_a_result_that_says_an_odd_time_was_made_in_the_course_of_its_slice(
    story: Story, said: float | str, time: int
) -> None:
    story.begin()
    story.start(0)
    story.close(0, Status.PAUSED, [row(0, i, timestamp=said) for i in (1, 2, 3)])
    date(story)
    publish(story)
    assert times(runs(story)["0"], "info/score") == [time, time + 1, time + 2]


def test_a_result_that_says_no_time_was_there_when_its_slice_ended(story: Story) -> None:
    story.begin()
    story.start(0)
    metrics = {name: value for name, value in row(0, 1).metrics.items() if name != "timestamp"}
    story.close(0, Status.PAUSED, [Row(1, metrics)])
    date(story)
    publish(story)
    assert times(runs(story)["0"], "info/score") == [400_000]


def test_no_row_of_a_trial_is_older_than_its_run(told: Story) -> None:
    publish(told)
    for run in runs(told).values():
        assert all(time >= run.start for _key, _value, time, _step in run.rows)


# ---- all events sent again -----------------------------------------------------------------------


def test_a_kill_while_all_events_are_sent_again_is_made_good(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = len(told.records)
    publish(told)
    told.where.folder.mlflow.unlink()
    told.close(4, Status.PAUSED, rows(4, 1, 3))
    monkeypatch.setattr(TrackerContext, "earlier_events", one_by_one)
    with failing_after(monkeypatch, 4), pytest.raises(ConnectionError):
        publish(through_the_client(told), count + 1)
    assert COMPLETE not in runs(told)[""].tags
    publish(told, count + 1)
    assert_whole(told)
    assert COMPLETE in runs(told)[""].tags


def one_by_one(where: TrackerContext, k: float) -> Iterator[list[Recorded]]:
    with closing(Ledger(where.folder.ledger)) as ledger:
        yield from ([record] for record in ledger.read() if record.number <= k)


def test_a_failure_while_all_events_are_sent_again_closes_the_database(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(told)
    told.where.folder.mlflow.unlink()
    closed, close = [], FileStore.close

    def closing_store(store: FileStore) -> None:
        closed.append(store)
        close(store)

    def failing(*_: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(FileStore, "close", closing_store)
    monkeypatch.setattr(FileStore, "log", failing)
    with pytest.raises(sqlite3.OperationalError):
        Tracker(told.where).publish(told.records[-1:])
    assert len(closed) == 2  # the copy that lacks earlier events, and the one with all of them


@pytest.mark.parametrize("only_read", [True, False])
def test_looking_for_a_sweep_creates_no_tables_and_leaves_nothing_open(
    story: Story, only_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    close = FileStore.close

    def closing_store(store: FileStore) -> None:
        closed.append(store)
        close(store)

    monkeypatch.setattr(FileStore, "close", closing_store)
    monkeypatch.setattr(mlflow_store, "open_client", None)  # who calls it fails
    assert mlflow_store.find_store(story.where, only_read) is None
    assert len(closed) == 1
    file = story.where.folder.mlflow
    file.write_bytes(b"")
    assert mlflow_store.find_store(story.where, only_read) is None
    assert file.read_bytes() == b""
    file.unlink()
    assert mlflow_store.find_store(story.where, only_read) is None
    assert not file.exists()


# ---- names and values ---------------------------------------------------------------------------


def test_keys_that_mlflow_refuses_are_made_readable_and_stay_apart() -> None:
    assert key("evaluation/episode_reward_mean") == "evaluation/episode_reward_mean"
    odd = ["a@b", "a#b", "../x", "/x", ".", "a//b", "x" * 300, "é→", "a\n", "", "\ud800"]
    made = [key(name) for name in odd]
    assert len(set(made)) == len(odd)
    assert all(0 < len(name) <= LONGEST_KEY for name in made)
    assert made[0].startswith("a_b-")
    assert key("Größe@1").startswith("Größe_1-")


def test_names_in_any_alphabet_reach_mlflow_as_they_are(story: Story) -> None:
    """By its client, which refuses names as its servers do."""
    names = ["Größe/mittel", "потеря", "損失/平均", "απώλεια 2", "الخسارة", "précision: µ"]
    odd = {name: float(number) for number, name in enumerate(names)}
    story.begin()
    story.start(0, 学習率=0.5)
    story.close(0, Status.PAUSED, rows(0, 1, 1, **odd))
    publish(through_the_client(story))
    run = runs(story)["0"]
    assert {name: run.curves.get((name, 100)) for name in names} == odd
    assert run.params["学習率"] == "0.5"


def test_odd_keys_and_long_values_reach_mlflow(story: Story) -> None:
    story.begin()
    story.start(0, **{"net/../x": list(range(3000)), "text": "as it is"})
    story.close(0, Status.PAUSED, rows(0, 1, 1, **{"../loss é": 1.0, "huge": 10**400}))
    publish(story)
    run = runs(story)["0"]
    assert run.params["text"] == "as it is"
    cut = run.params[key("net/../x")]
    assert len(cut) == LONGEST_PARAMETER
    assert cut.endswith("(cut; 13891 characters)")
    assert run.curves[key("../loss é"), 100] == 1.0
    assert run.curves["huge", 100] == LARGEST


def test_half_a_character_in_a_reason_holds_nothing_up(story: Story) -> None:
    """Names of files that are not UTF-8 stand so in messages of exceptions."""
    story.begin()
    story.start(0)
    story.close(0, Status.FAILED, rows(0, 1, 1), reason="no file \udc80")
    publish(story)
    assert runs(story)["0"].tags["sweep.reason"] == "no file \\udc80"


def test_settings_are_text_in_one_fixed_form() -> None:
    assert [parameter(v) for v in ("x", 1e-5, {"b": 1, "a": None})] == [
        "x",
        "1e-05",
        '{"a":null,"b":1}',
    ]


def test_infinities_become_the_largest_numbers_and_nan_stays() -> None:
    assert (finite(math.inf), finite(-math.inf), finite(-(10**400))) == (
        LARGEST,
        -LARGEST,
        -LARGEST,
    )
    assert math.isnan(finite(math.nan))
    assert finite(True) == 1.0


# ---- crashes ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 4])
def test_pieces_that_come_again_after_a_crash_leave_the_same_rows(told: Story, size: int) -> None:
    count = len(told.records)
    for first in range(1, count + 1, size):
        publish(told, first, first + size - 1)  # the process dies before it can remember
        publish(told, first, min(count, first + 2 * size - 1))
    assert_whole(told)
    before = runs(told)
    publish(told)
    assert runs(told) == before


def through_the_client(story: Story) -> Story:
    """The sweep copied to the same file as to a server: by MLflow's client."""
    url = store_url(story.where.folder)
    return Story(replace(story.where, tracking_uri=url), story.ledger)


@pytest.mark.parametrize("survives", range(0, 20, 3))
def test_a_failure_in_the_midst_of_publishing_leaves_no_row_out_and_none_twice(
    told: Story, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    tracker = Tracker(through_the_client(told).where)
    with failing_after(monkeypatch, survives), pytest.raises(ConnectionError):
        tracker.publish(told.records)
    tracker.publish(told.records)
    assert_whole(told)


@pytest.mark.parametrize("survives", range(0, 13, 3))
def test_a_failure_in_the_midst_of_writing_a_file_leaves_it_as_it_was(
    told: Story, monkeypatch: pytest.MonkeyPatch, survives: int
) -> None:
    publish(told, 1, 4)
    before = runs(told)
    left = [survives]

    def failing(store: FileStore, *args: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise sqlite3.OperationalError("disk I/O error")
        log(store, *args)

    log, tracker = FileStore.log, Tracker(told.where)
    with monkeypatch.context() as patch, pytest.raises(sqlite3.OperationalError):
        patch.setattr(FileStore, "log", failing)
        tracker.publish(told.records[4:])
    assert runs(told) == before
    tracker.publish(told.records[4:])
    tracker.close()
    assert_whole(told)


def test_a_file_is_written_as_mlflows_own_client_would_write_it(
    told: Story, tmp_path: Path, tables: Path
) -> None:
    """Every table, but for the names of the runs and of the folder of their artifacts."""
    (tmp_path / "other").mkdir()
    shutil.copy(tables, tmp_path / "other" / "mlflow.db")
    other = Folder(tmp_path / "other", "demo")
    theirs = replace(told.where, tracking_uri=store_url(other))
    for number in range(1, len(told.records) + 1, 3):
        publish(told, number, number + 2)
        with closing(Tracker(theirs)) as tracker:
            tracker.publish(told.records[number - 1 : number + 2])
    ours, expected = contents_of(told.where.folder.mlflow), contents_of(other.mlflow)
    assert len(ours["metrics"]) > 80
    assert ours == expected


def contents_of(database: Path) -> dict[str, list[Any]]:
    """The rows of MLflow's tables, each run by the name that it has in its sweep."""
    with closing(sqlite3.connect(database)) as opened:
        named = "SELECT run_uuid, value FROM tags WHERE key = 'sweep.trial'"
        names = dict(opened.execute(named).fetchall())

        def text(value: Any) -> Any:
            for run, name in names.items():
                value = value.replace(run, name) if isinstance(value, str) else value
            return value

        def rows_of(query: str) -> list[Any]:
            return sorted((tuple(map(text, row)) for row in opened.execute(query)), key=repr)

        (parent,) = opened.execute("SELECT run_uuid FROM tags WHERE key = 'sweep.mode'").fetchone()
        names[parent] = "parent"
        runs = (
            "run_uuid, name, source_type, source_name, entry_point_name, user_id, status, "
            # A client cannot take the end of a run away that goes on.
            "start_time, CASE status WHEN 'RUNNING' THEN NULL ELSE end_time END, "
            "deleted_time, source_version, lifecycle_stage"
        )
        queries = {name: f"SELECT * FROM {name}" for name in ("params", "tags")}  # noqa: S608 ours
        of_metrics = "SELECT run_uuid, key, value, timestamp, step, is_nan FROM"
        return {
            **{name: rows_of(query) for name, query in queries.items()},
            "metrics": rows_of(f"{of_metrics} metrics"),
            "latest": rows_of(f"{of_metrics} latest_metrics"),
            "runs": rows_of(f"SELECT {runs} FROM runs"),  # noqa: S608 ours
            "experiments": rows_of(
                "SELECT name, lifecycle_stage FROM experiments WHERE experiment_id > 0"
            ),
            "experiment_tags": rows_of("SELECT key, value FROM experiment_tags"),
        }


def test_a_file_of_an_unknown_revision_is_written_by_mlflows_client(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a later MLflow makes it, whose client takes its own revision and no other."""
    with closing(connect(story.where)) as store:
        assert isinstance(store, FileStore)
    set_revision(story, "unknown")
    with pytest.raises(Exception, match="Detected out-of-date database schema"):
        connect(story.where)
    monkeypatch.setattr("mlflow.store.db.utils._get_latest_schema_revision", lambda: "unknown")
    with closing(connect(story.where)) as store:
        assert isinstance(store, ServerStore)
    story.begin()
    story.start(0)
    publish(story)
    assert set(runs(story)) == {"", "0"}


@pytest.mark.parametrize("revision", mlflow_store.REVISIONS)
def test_files_of_several_releases_are_written_with_sql(story: Story, revision: str) -> None:
    connect(story.where).close()
    set_revision(story, revision)
    with closing(connect(story.where)) as store:
        assert isinstance(store, FileStore)
    story.begin()
    story.start(0)
    publish(story)
    assert set(runs(story)) == {"", "0"}


def set_revision(story: Story, revision: str) -> None:
    """Let MLflow's file say that another release made it."""
    with closing(sqlite3.connect(story.where.folder.mlflow)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (revision,))


def test_the_installed_mlflow_makes_tables_that_are_written_with_sql() -> None:
    """Those of a release that is not listed are written by its client, at thirty times the cost."""
    with closing(sqlite3.connect(":memory:")) as theirs, closing(_shipped()) as ours:
        theirs.executescript(migrated())
        (revision,) = theirs.execute("SELECT version_num FROM alembic_version").fetchone()
        release = ".".join(metadata.version("mlflow").split(".")[:2])
        assert mlflow_store.REVISIONS.get(revision) == release
        for table in mlflow_store.WRITTEN:
            assert _columns(theirs, table) == _columns(ours, table), table


def _shipped() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.executescript(mlflow_store.TABLES.read_text())
    return database


def _columns(database: sqlite3.Connection, table: str) -> tuple[list[Any], ...]:
    """Columns in any order, and what refers to others; a migration may put them elsewhere."""
    columns = database.execute(f"PRAGMA table_info({table})").fetchall()
    refers = database.execute(f"PRAGMA foreign_key_list({table})").fetchall()
    return sorted(column[1:] for column in columns), sorted(refers)


def test_a_run_whose_creation_was_not_answered_is_found_again(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    create = MlflowClient.create_run

    def unanswered(*args: Any) -> None:
        create(*args)
        raise ConnectionError("the answer was lost")

    tracker = Tracker(through_the_client(told).where)
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(MlflowClient, "create_run", unanswered)
            with pytest.raises(ConnectionError):
                tracker.publish(told.records)
    tracker.publish(told.records)
    assert_whole(told)


def test_a_link_is_no_file_that_a_run_is_given(tmp_path: Path) -> None:
    story = Story.create(tmp_path, "linked")
    (tmp_path / "secret").write_text("of somebody else")
    link = tmp_path / "sweep.yaml"
    link.symlink_to(tmp_path / "secret")
    with closing(connect(story.where)) as store:
        run = store.create("", 0, {})
        with pytest.raises(disk.NotRegular):
            store.attach(run, link)
    assert not list(tmp_path.rglob("artifacts/*"))


def test_runs_are_found_again_over_several_pages(
    told: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_store, "RUNS_PER_PAGE", 2)
    served = through_the_client(told)
    publish(served)
    publish(served)
    assert_whole(told)


@contextmanager
def failing_after(patch: pytest.MonkeyPatch, survives: int) -> Iterator[None]:
    """Let that many writes through, then fail: some before they arrive, some after."""
    from mlflow import MlflowClient

    left = [survives]

    def counted(method: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0 and survives % 2:
                raise ConnectionError("not sent")
            answer = method(*args, **options)
            if left[0] < 0:
                raise ConnectionError("not answered")
            return answer

        return call

    with patch.context() as here:
        for name in ("log_batch", "create_run", "set_terminated", "update_run"):
            here.setattr(MlflowClient, name, counted(getattr(MlflowClient, name)))
        yield


# ---- the store ----------------------------------------------------------------------------------


def test_the_database_has_the_journal_of_its_disk_and_nothing_else_is_made(
    told: Story, root: Path
) -> None:
    publish(told)
    mode = ledger_tables.journal(told.where.folder.mlflow).lower()
    with closing(sqlite3.connect(told.where.folder.mlflow)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == (mode,)
    files = {path.name.removesuffix("-wal").removesuffix("-shm") for path in root.iterdir()}
    assert files == {"mlflow.db", "mlflow.db.lock", "demo"}
    assert [path.name for path in root.parent.iterdir()] == [root.name]
    for path in root.iterdir():
        with pytest.raises(ValueError) if path.name != "demo" else nullcontext():
            check_name(path.name)


def test_on_a_share_the_database_needs_no_memory_of_one_machine(
    told: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_everything(monkeypatch, tmp_path)
    publish(told)
    with closing(sqlite3.connect(told.where.folder.mlflow)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_two_sweeps_wait_for_each_other_while_the_tables_are_made(story: Story, root: Path) -> None:
    story.begin()
    with (root / "mlflow.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=publish, args=(story,), daemon=True)
        thread.start()
        thread.join(0.5)
        assert runs(story) == {}
    thread.join(240)
    assert set(runs(story)) == {""}


def test_mlflows_own_variables_change_nothing(
    told: Story, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_RUN_ID", "feed")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "other")
    publish(told)
    assert_whole(told)


def test_two_sweeps_of_one_name_on_one_server_do_not_mix(told: Story, tmp_path: Path) -> None:
    other = Story.create(tmp_path / "other root", uri=store_url(told.where.folder))
    tell_everything(other)
    publish(told)
    publish(other)
    assert_whole(told)
    ours, theirs = runs(told), copied_to(told, other)
    assert set(ours) == set(theirs)
    assert not {run.id for run in ours.values()} & {run.id for run in theirs.values()}
    assert {run.tags[PARENT] for name, run in theirs.items() if name} == {theirs[""].id}
    assert not other.where.folder.mlflow.exists()


def copied_to(place: Story, sweep: Story) -> dict[str, Run]:
    """The runs of `sweep` in the database of `place`."""
    where = replace(sweep.where, folder=place.where.folder, tracking_uri=None)
    here = Story(where, sweep.ledger)
    return runs(here)


def test_a_deleted_experiment_is_restored(told: Story) -> None:
    publish(told, 1, 6)
    client, experiment = client_of(told)
    client.delete_experiment(experiment)
    publish(told, 7)
    assert client.get_experiment(experiment).lifecycle_stage == "active"
    assert_whole(told)


@pytest.mark.parametrize("lost", ["file", "name"])
def test_a_store_without_a_run_of_the_sweep_gets_all_of_it_with_the_next_events(
    told: Story, tables: Path, lost: str
) -> None:
    """The file was removed, or the sweep's folder moved to another root; or a person renamed it."""
    publish(told, 1, 6)
    if lost == "file":
        shutil.copy(tables, told.where.folder.mlflow)
    else:
        client, experiment = client_of(told)
        client.rename_experiment(experiment, "of last week")
    publish(told, 7)
    assert Tracker(told.where).differences() == []


@pytest.mark.parametrize("trial", ["0", ""])
@pytest.mark.parametrize("served", [False, True])
def test_a_run_that_a_person_deleted_stays_deleted_and_the_others_go_on(
    told: Story, trial: str, served: bool
) -> None:
    tracker = Tracker((through_the_client(told) if served else told).where)
    tracker.publish(told.records[:6])
    client, _experiment = client_of(told)
    client.delete_run(runs(told)[trial].id)
    with pytest.raises(Exception, match="active") if served else nullcontext():
        tracker.publish(told.records[6:])  # a server says it when it is written to
    tracker.publish(told.records[6:])
    after = runs(told)
    assert set(after) == {"", "0", "1", "2", "3", "4"} - {trial}
    assert exact(after["2"]) == expected(told, 2)


def test_a_second_run_that_a_lost_request_made_is_deleted(told: Story) -> None:
    publish(told, 1, 6)
    client, experiment = client_of(told)
    first = runs(told)["0"]
    client.create_run(experiment, 1, first.tags, "trial 0")
    publish(told, 7)
    assert runs(told)["0"].id == first.id
    assert_whole(told)


# ---- the page -----------------------------------------------------------------------------------


def test_the_page_of_a_sweep_compares_its_trials_best_first(told: Story, root: Path) -> None:
    earlier = Story.create(root.parent / "elsewhere", uri=store_url(told.where.folder))
    earlier.where = replace(earlier.where, created_at=1.0)
    earlier.begin()
    earlier.start(0)
    publish(earlier)
    publish(told)
    address, _, query = Page(root, "demo", 5001).url.partition("?")
    client, experiment = client_of(told)
    assert address == f"http://127.0.0.1:5001/#/experiments/{experiment}/runs"
    asked = dict(parse_qsl(query, strict_parsing=True))
    key = asked.pop("viewStateShareKey")
    assert asked == {"workflowType": "machine_learning", "compareRunsMode": "CHART"}
    view = json.loads(client.get_experiment(experiment).tags[f"mlflow.sharedViewState.{key}"])
    state = json.loads(view["state"])
    assert compared_by(told, state) == ["3", "2", "1", "0", "4"]
    assert state["selectedColumns"][:2] == ["metrics.`expected_score`", "metrics.`score`"]
    line, parallel = state["compareRunCharts"]
    assert line["metricKey"] == "info/score"
    assert parallel["selectedParams"] == ["lr", "layers", "net"]
    assert parallel["selectedMetrics"] == ["score"]


def test_the_page_of_a_sweep_without_a_view_compares_its_trials_too(
    told: Story, root: Path
) -> None:
    """Somebody deleted the view."""
    publish(told)
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        database.execute("DELETE FROM experiment_tags WHERE key LIKE 'mlflow.sharedViewState.%'")
    asked = dict(parse_qsl(Page(root, "demo", 5001).url.partition("?")[2], strict_parsing=True))
    assert compared_by(told, {**asked, "orderByAsc": asked["orderByAsc"] == "true"}) == [
        *("3", "2", "1", "0", "4")
    ]
    assert asked["compareRunsMode"] == "CHART"


def test_of_equal_trials_the_page_has_the_lowest_number_first_as_every_table_has(
    story: Story,
) -> None:
    story.begin(trials=12)
    for number in range(12):
        story.start(number)
        value = {"info/score": 7.0 if number in (2, 5, 11) else -float(number // 3)}
        story.close(number, Status.COMPLETED, [row(number, 1, **value)], End.DONE)
    publish(story)
    client, experiment = client_of(story)
    tags = client.get_experiment(experiment).tags
    view = json.loads(tags[f"mlflow.sharedViewState.{story.where.sweep_id}"])
    shown = compared_by(story, json.loads(view["state"]))
    assert shown == [str(trial.number) for trial in story.history.ranked()]
    assert shown[:5] == ["2", "5", "11", "0", "1"]


def compared_by(story: Story, asked: Mapping[str, Any]) -> list[str]:
    """The trials in the order of a page."""
    client, experiment = client_of(story)
    order = f"{asked['orderByKey']} {'ASC' if asked['orderByAsc'] else 'DESC'}"
    found = client.search_runs([experiment], asked["searchFilter"], order_by=[order])
    return [run.data.tags["sweep.trial"] for run in found]


def test_a_view_of_very_many_settings_fits_into_its_tag(story: Story) -> None:
    space = Space.parse({f"{'a' * 60}.{n}": {"uniform": [0, 1]} for n in range(300)})
    where = replace(story.where, spec=story.where.spec.model_copy(update={"space": space}))
    assert len(mlflow_view.view(where, "0" * 32, 1)) <= mlflow_view.LONGEST


def test_a_page_that_begins_with_the_best_trials_says_so(story: Story, root: Path) -> None:
    """The page lists and draws a hundred runs; the remark comes with the trial after them."""
    story.begin(trials=101)
    told = 0
    with closing(Tracker(story.where)) as tracker:
        for trials, says in ((100, False), (101, True)):
            for trial in range(len(story.history.trials), trials):
                story.start(trial)
            tracker.publish(story.records[told:])
            told = len(story.records)
            assert (heading(story) == f"demo: {mlflow_view.MORE}") is says
            assert Page(root, "demo", 5001).trials == trials


def heading(story: Story) -> str:
    """What stands above the charts of the page."""
    client, experiment = client_of(story)
    tags = client.get_experiment(experiment).tags
    view = json.loads(tags[f"mlflow.sharedViewState.{story.where.sweep_id}"])
    (section,) = json.loads(view["state"])["compareRunSections"]
    return str(section["name"])


def test_the_page_of_a_sweep_that_has_no_run_shows_what_its_experiment_has(
    story: Story, root: Path
) -> None:
    connect(story.where).close()
    _client, experiment = client_of(story)
    url = Page(root, "demo", 5001).url
    assert url == (
        f"http://127.0.0.1:5001/#/experiments/{experiment}/runs"
        "?workflowType=machine_learning&compareRunsMode=CHART"
    )


def test_mlflows_page_knows_every_word_of_the_address(told: Story, root: Path) -> None:
    import mlflow

    publish(told)
    files = [*Path(mlflow.__file__).parent.glob("server/js/build/static/js/*.js")]
    page = "".join(path.read_text() for path in files)
    asked = dict(parse_qsl(Page(root, "demo", 5001).url.partition("?")[2]))
    for word in (*asked, asked["workflowType"], asked["compareRunsMode"]):
        assert word in page


# ---- a server -----------------------------------------------------------------------------------


@pytest.mark.proof
def test_a_real_server_that_hangs_is_given_up_on_soon_and_gets_the_rest_later(
    root: Path, tmp_path: Path
) -> None:
    port = free_port()
    shelf = Story.create(root, "shelf")
    story = Story.create(tmp_path / "elsewhere", uri=f"http://127.0.0.1:{port}")
    tell_everything(story)
    tracker = Tracker(story.where)
    with serving(store_url(shelf.where.folder), port) as process:
        tracker.publish(story.records[:12])
        os.killpg(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(Exception, match=str(port)):
            tracker.publish(story.records[12:])
        assert time.monotonic() - began < 110  # less than a request of MLflow may take
        os.killpg(process.pid, signal.SIGCONT)
        await_health(process, port)
        tracker.publish(story.records[12:])
        Tracker(story.where).publish(story.records)
    copied = copied_to(shelf, story)
    assert len(copied) == 6
    for number in range(5):
        assert exact(copied[str(number)]) == expected(story, number)
    assert json.loads(copied["1"].params["net"]) is None


@pytest.mark.slow
def test_on_a_real_server_a_sweep_that_is_interrupted_and_resumed_has_the_end_of_its_last_driver(
    root: Path, tmp_path: Path
) -> None:
    port = free_port()
    shelf = Story.create(root, "shelf")
    spec = write_spec(
        tmp_path, trials=9, trackers=["mlflow"], config={"noise": 0.1, "step_s": 0.05}
    )
    where = ("--jobs", 1, "--tracking-uri", f"http://127.0.0.1:{port}")
    with serving(store_url(shelf.where.folder), port):
        patient = "import sys; from sweep.driver import session; session.SHORT_PATIENCE_S = 120.0; "
        program = ("-c", f"{patient}from sweep.cli.main import main; sys.exit(main())")
        interrupted = start("run", spec, *where, cwd=tmp_path, program=program)
        assert interrupted.stdout is not None
        next(line for line in interrupted.stdout if line.startswith("trial 2 starts"))
        interrupted.send_signal(signal.SIGINT)
        interrupted.communicate(timeout=240)
        assert interrupted.returncode == 130
        before = _runs_on(port)
        assert before["demo"].status == "KILLED"
        trials = {name: run.status for name, run in before.items() if name != "demo"}
        assert "RUNNING" not in trials.values(), trials
        assert "SCHEDULED" in trials.values(), trials
        resumed_at = time.time() * 1000
        out, err = start("resume", "demo", *where[:2], cwd=tmp_path).communicate(timeout=240)
        after = _runs_on(port)["demo"]
        assert after.status == "FINISHED", out + err
        assert before["demo"].end_time < resumed_at < after.end_time
        assert after.start_time == before["demo"].start_time


def _runs_on(port: int) -> dict[str, Any]:
    """Name of each run on a server → what MLflow's own client says of it."""
    from mlflow import MlflowClient

    client = MlflowClient(f"http://127.0.0.1:{port}")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return {run.info.run_name: run.info for run in client.search_runs(experiments)}
