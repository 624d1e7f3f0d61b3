"""What MLflow has of a finished sweep beside its rows."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sweep.driver import session
from sweep.driver.tracking import sync
from sweep.ledger.folder import Folder
from sweep.operations.mlflow import attaching, attachments
from sweep.operations.mlflow.page import Page
from sweep.operations.models.trained import Choice, restored
from sweep.trackers._shared import mlflow_store
from sweep.trackers._shared.mlflow_store import StoredRun, open_client, store_url
from tests.support import processes, sweeps
from tests.support.command_line import Here, environment, write_spec
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.mlflow_server import serving
from tests.support.ports import free_port
from tests.sweep.operations.test_export import PPO, SERVED
from trainables.core import failpoints

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)

#: What the sweep's own run has of a sweep whose trainable has no model.
WITHOUT_A_MODEL = {"sweep.yaml", "report.html", "curves.png"}
PATIENCE_S = 120.0


@pytest.fixture
def finished(here: Here, tmp_path: Path) -> Folder:
    """A sweep of which MLflow has the rows alone."""
    spec = write_spec(tmp_path, trials=2, trackers=["mlflow"])
    assert here("run", spec, "--pool", "inline")[0] == 0
    return Folder(here.root, "demo")


def runs(root: Path) -> dict[str, str]:
    """Trial (empty for the sweep's own run) → run."""
    query = (
        "SELECT coalesce(trial.value, ''), runs.run_uuid FROM runs "
        "LEFT JOIN tags AS trial ON trial.run_uuid = runs.run_uuid "
        "AND trial.key = 'sweep.trial'"
    )
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        return dict(database.execute(query).fetchall())


def attached(root: Path, trial: str = "") -> set[str]:
    """The files of a run."""
    return {
        path.name for path in (root / "mlartifacts" / runs(root)[trial] / "artifacts").iterdir()
    }


def report(root: Path) -> bytes:
    return (root / "mlartifacts" / runs(root)[""] / "artifacts" / "report.html").read_bytes()


def logged(folder: Folder) -> list[str]:
    """What the sweep's log of attachments says, without dates."""
    return [line[20:] for line in folder.attachments_log.read_text().splitlines()]


def due(folder: Folder) -> int:
    return sync.attachments_due(sync.tracker_context(folder))


# ---- by whom it is sent --------------------------------------------------------------------------


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Processes are begun as for a person, and none outlives the test."""
    monkeypatch.setenv(attaching.VARIABLE, "beside")
    yield
    for process in attaching.background_processes:
        process.kill()
        process.wait()
    attaching.background_processes.clear()


@pytest.mark.usefixtures("beside")
def test_however_short_a_sweep_is_a_process_for_which_nobody_waits_sends_it(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, trials=2, trackers=["mlflow"])
    assert here("run", spec, "--pool", "inline")[0] == 0
    (process,) = attaching.background_processes
    assert os.getpriority(os.PRIO_PROCESS, process.pid) >= attaching.NICENESS
    assert process.wait(PATIENCE_S) == 0
    assert attached(here.root) == WITHOUT_A_MODEL
    assert logged(Folder(here.root, "demo")) == [
        "no model is sent to MLflow: Quadratic has no describe_model()",
        "MLflow has demo's report",
    ]
    assert here("resume", "demo", "--trials", 3, "--pool", "inline")[0] == 0
    assert len(attaching.background_processes) == 1
    assert attaching.background_processes[0].wait(PATIENCE_S) == 0
    assert len(logged(Folder(here.root, "demo"))) == 4


def test_sync_sends_what_is_due_once_and_anew_when_the_sweep_has_gone_on(
    here: Here, finished: Folder
) -> None:
    assert attached(here.root) == {"sweep.yaml"}
    assert here.json("sync", "demo")["attached"] is True
    assert attached(here.root) == WITHOUT_A_MODEL
    first = report(here.root)
    assert b"demo | sweep" in first
    assert here("gc", "demo", "--keep", 0)[0] == 0
    assert here.json("sync", "demo")["attached"] is True
    assert report(here.root) == first
    assert here("resume", "demo", "--trials", 3, "--pool", "inline", "--attach", "wait")[0] == 0
    assert report(here.root) != first
    assert here("verify", "demo")[0] == 0
    assert due(finished) == 0


def test_ui_sends_rows_and_report_of_a_driver_that_was_killed_before_it_sent_any(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sweeps.run(sweeps.make(here.root, trackers=["mlflow"])) == "finished"
    assert not (here.root / "mlflow.db").exists()
    monkeypatch.setattr(Page, "serve", lambda _page, _show: 0)
    assert here("ui", "--port", free_port())[0] == 0
    assert attached(here.root) == WITHOUT_A_MODEL
    assert here("verify", "demo")[0] == 0
    before = report(here.root)
    assert here("ui", "demo", "--port", free_port())[0] == 0
    assert report(here.root) == before


@pytest.mark.slow
def test_the_first_page_waits_until_mlflows_file_is_made(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a release of MLflow whose tables are not shipped; no server is waited for here."""
    sweeps.run(sweeps.make(here.root, trackers=["mlflow"]))
    monkeypatch.setattr(Page, "serve", lambda _page, _show: 0)
    monkeypatch.setattr(attaching, "PAGE_PATIENCE_S", 0.0)
    monkeypatch.setattr(mlflow_store, "TABLES", Path(os.devnull))
    assert here("ui", "--port", free_port())[0] == 0


def test_ui_opens_beside_a_driver_and_where_something_cannot_be_sent(
    here: Here, finished: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Page, "serve", lambda _page, _show: 0)
    with sqlite3.connect(finished.ledger) as database:
        database.execute("UPDATE published SET k = 1 WHERE tracker = 'mlflow'")
    database.close()
    with finished.lock():
        assert here("ui", "--port", free_port())[0] == 0

    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(sync, "send", refuse)
    code, _, err = here("ui", "--port", free_port())
    (line,) = err.splitlines()
    assert (code, line.partition("; ")[0]) == (
        0,
        "sweep: MLflow may lack results of demo: the disk is full",
    )
    assert line.endswith(f"; send them with `sweep sync {finished.in_commands}`")


def test_nothing_is_due_of_a_sweep_that_goes_on_or_was_finished_before_there_was_an_entry(
    here: Here, finished: Folder
) -> None:
    assert due(finished) > 0
    finished.attachments.unlink()
    assert due(finished) == 0
    other = sweeps.make(here.root, name="other", trackers=["mlflow"])
    assert sweeps.drive(other, kill_at=9) == "killed"
    assert due(other) == 0


def test_a_copy_that_was_repaired_is_given_all_again(here: Here, finished: Folder) -> None:
    assert here("sync", "demo")[0] == 0
    for path in here.root.glob("mlflow.db*"):
        path.unlink()
    assert here("verify", "demo", "--repair")[0] == 0
    assert here("sync", "demo")[0] == 0
    assert attached(here.root) == WITHOUT_A_MODEL


# ---- what may go wrong ---------------------------------------------------------------------------


def test_many_at_once_send_it_once(finished: Folder) -> None:
    command = attaching._command([finished], PATIENCE_S)
    started = [processes.start(command, stderr=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert logged(finished).count("MLflow has demo's report") == 1


def test_what_cannot_be_sent_is_said_and_stays_due(
    here: Here, finished: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    said = list[str]()
    with monkeypatch.context() as broken:
        broken.setattr(attachments, "_add_files", refuse)
        attachments.attach(finished, said.append, 0.0)
    why = "did not get the report, a model or media files: the disk is full"
    then = f"send them with `sweep sync {finished.in_commands}`"
    assert said == logged(finished) == [f"MLflow {why}; {then}"]
    assert here.json("sync", "demo")["attached"] is True


def test_code_that_no_driver_of_ones_own_has_run_is_not_run_for_a_model(
    here: Here, tmp_path: Path, finished: Folder
) -> None:
    (tmp_path / "whistle.py").write_text("from pathlib import Path\nPath(__file__).unlink()\n")
    with closing(sqlite3.connect(finished.ledger)) as database, database:
        rows = database.execute("SELECT spec, provenance FROM sweep").fetchone()
        spec, provenance = map(json.loads, rows)
        changed = (
            json.dumps(spec | {"trainable": "whistle:Trainable"}),
            json.dumps(provenance | {"paths": [str(tmp_path)]}),
        )
        database.execute("UPDATE sweep SET spec = ?, provenance = ?", changed)
    assert here("sync", "demo")[0] == 0
    assert (tmp_path / "whistle.py").exists()
    assert attached(here.root) == WITHOUT_A_MODEL
    assert "you have not run the sweep's current code" in logged(finished)[0]


def test_a_report_is_not_said_to_be_where_its_run_was_deleted(
    here: Here, finished: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(finished.mlflow)) as database, database:
        deleted = "UPDATE runs SET lifecycle_stage = 'deleted' WHERE run_uuid = ?"
        database.execute(deleted, (runs(here.root)[""],))
    attachments.attach(finished, print, PATIENCE_S)
    said = capsys.readouterr().out.splitlines()[-1]
    assert (
        said == "MLflow has neither the report nor a model of demo, whose own run was deleted there"
    )
    assert not (here.root / "mlartifacts" / runs(here.root)[""] / "artifacts/report.html").exists()
    assert due(finished) == 0


class Killed(BaseException):
    """Stands for SIGKILL: nothing that is not the system's own catches it."""


@pytest.mark.slow
def test_killed_at_any_instant_everything_is_there_once(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, **PPO | {"trackers": ["mlflow"]})
    assert here("run", spec, "--pool", "inline")[0] == 0
    folder, best = Folder(here.root, "demo"), str(here.json("best", "demo")["trial"])
    second = ("model attached", "attached")  # of the trial's run, and of the sweep's own
    for place in (*failpoints.ATTACHMENT_PLACES[:-1], *second):

        def reach(passed: str, place: str = place) -> None:
            if passed == place:
                raise Killed

        with monkeypatch.context() as deadly, pytest.raises(Killed):
            deadly.setattr(failpoints, "reach", reach)
            attachments.attach(folder, print, 0.0)
        assert (due(folder) == 0) is (place == "attached")
    assert here.json("sync", "demo")["attached"] is True
    assert attached(here.root) == {*WITHOUT_A_MODEL, "card.md"}
    assert attached(here.root, best) == {"card.md", "card.json"}
    assert models(here.root) == {runs(here.root)[best]: 1}
    assert len(list((here.root / "mlartifacts" / "models").iterdir())) == 1
    with closing(sqlite3.connect(here.root / "mlflow.db")) as database:
        linked = "SELECT count(*) FROM inputs WHERE source_type = 'RUN_OUTPUT'"
        assert database.execute(linked).fetchone() == (1,)


def test_a_process_that_was_killed_is_made_up_for_by_sync(here: Here, finished: Folder) -> None:
    deadly = {"SWEEP_FAILPOINT": "report attached:1:self"}
    counter = {"SWEEP_FAILPOINT_FILE": str(finished.root / "count")}
    command = attaching._command([finished], PATIENCE_S)
    done = subprocess.run(command, env=environment() | deadly | counter, check=False)
    assert done.returncode == -signal.SIGKILL
    assert due(finished) > 0
    assert here.json("sync", "demo")["attached"] is True
    assert attached(here.root) == WITHOUT_A_MODEL


@pytest.mark.proof
def test_a_server_that_was_down_gets_what_it_keeps_later(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PATIENCE_S", 0.1)
    spec, port = write_spec(tmp_path, trials=1, trackers=["mlflow"]), free_port()
    with serving(f"sqlite:///{tmp_path}/server.db", port), closing(FaultyProxy(port)) as proxy:
        proxy.fault = Fault.REFUSES
        uri = f"http://127.0.0.1:{proxy.port}"
        words = ("run", spec, "--pool", "inline", "--tracking-uri", uri, "--attach", "wait")
        assert here(*words)[0] == 0
        folder = Folder(here.root, "demo")
        assert not folder.attachments_log.exists()  # there is no run to add anything to
        proxy.fault = Fault.NONE
        sync.send(folder, print, PATIENCE_S)
        proxy.fault = Fault.ERROR
        said = list[str]()
        attachments.attach(folder, said.append, 0.0)
        assert f"send them with `sweep sync {folder.in_commands}`" in said[-1]
        code, out, _ = here("sync", "demo", "--wait", 0, "--json")
        assert (code, json.loads(out)["attached"]) == (4, False)
        proxy.fault = Fault.NONE
        assert here.json("sync", "demo")["attached"] is True
        client = open_client(sync.tracker_context(folder))
        (experiment,) = client.search_experiments(filter_string="name = 'demo'")
        (parent,) = client.search_runs([experiment.experiment_id], "tags.`sweep.metric` = 'loss'")
        found = {one.path for one in client.list_artifacts(parent.info.run_id)}
    assert found == {"report.html", "curves.png"}


@pytest.mark.parametrize("place", ["./mlruns/0/a", "file:///srv/a", "mlflow-artifacts:/0/a"])
def test_a_server_without_files_of_its_own_is_sent_none(
    here: Here, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """MLflow's client would write them into the current folder."""
    run = SimpleNamespace(info=SimpleNamespace(artifact_uri=place))
    client = SimpleNamespace(get_run=lambda _run: run)
    monkeypatch.setattr(attachments, "open_client", lambda _where: client)
    where = sync.tracker_context(sweeps.make(here.root))
    kept = attachments._keeps_files(where, [StoredRun("one", "one")])
    assert kept is place.startswith("mlflow-artifacts")


@pytest.mark.proof
def test_the_best_trials_model_is_in_mlflow_by_itself_and_all_where_that_is_asked_for(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, **PPO | {"trackers": ["mlflow"]})
    assert here("run", spec, "--pool", "inline")[0] == 0
    assert here("sync", "demo")[0] == 0
    best = here.json("best", "demo")["trial"]
    found = runs(here.root)
    assert attached(here.root) >= {"report.html", "curves.png", "card.md"}
    assert models(here.root) == {found[str(best)]: 1}
    folder = Folder(here.root, "demo")
    rows = np.random.default_rng(7).uniform(-1, 1, (50, 4)).astype("float32")
    assert here("export-model", "demo", "--out", tmp_path / "model")[0] == 0
    card = json.loads((tmp_path / "model" / "card.json").read_text())  # the same comparison
    with restored(folder, Choice(str(best), str(card["checkpoint"]["iteration"]))) as policy:
        trainer = policy.trainable
        actions = [int(trainer.compute_action(row, explore=False)) for row in rows]  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, "-c", SERVED, store_url(folder), f"runs:/{found[str(best)]}/model"],
        input=json.dumps(rows.tolist()), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == actions
    assert here("resume", "demo", "--log-models", "--attach", "wait")[0] == 0
    assert models(here.root) == {found["0"]: 1, found["1"]: 1}
    assert here("verify", "demo")[0] == 0


def models(root: Path) -> dict[str, int]:
    """Run → how many models it has."""
    query = "SELECT source_run_id, count(*) FROM logged_models GROUP BY 1"
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        return dict(database.execute(query).fetchall())
