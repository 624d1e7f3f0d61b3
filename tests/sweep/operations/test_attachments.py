"""What MLflow has of a finished sweep beside its rows."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sweep.cli import train
from sweep.driver import sync
from sweep.ledger.folder import Folder
from sweep.operations import attachments
from sweep.operations.trained import Choice, restored
from sweep.trackers._shared.mlflow_store import StoredRun, open_client, store_url
from tests.support import sweeps
from tests.support.command_line import Here, write_spec
from tests.support.mlflow_server import free_port, serving
from tests.support.waiting import wait_until
from tests.sweep.operations.test_export import PPO, SERVED

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return Here(capsys, tmp_path / "sweeps")


def runs(here: Here) -> dict[str, str]:
    """Trial (empty for the sweep's own run) → run."""
    query = (
        "SELECT coalesce(trial.value, ''), runs.run_uuid FROM runs "
        "LEFT JOIN tags AS trial ON trial.run_uuid = runs.run_uuid "
        "AND trial.key = 'sweep.history.trial'"
    )
    with closing(sqlite3.connect(here.root / "mlflow.db")) as database:
        return dict(database.execute(query).fetchall())


def test_nobody_waits_for_what_a_new_sweep_is_given(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, trials=2, trackers=["mlflow"])
    assert here("run", spec, "--pool", "inline", "--name", "quick")[0] == 0
    assert attached(here, _parent(here)) == {"sweep.yaml"}
    monkeypatch.setattr(train, "QUICK_S", 0.0)
    assert here("run", spec, "--pool", "inline", "--name", "long")[0] == 0
    parents = [run for run in _parents(here) if run != _parent(here)]
    wait_until(lambda: attached(here, parents[0]) == {"sweep.yaml", "report.html", "curves.png"})


def _parents(here: Here) -> list[str]:
    query = (
        "SELECT run_uuid FROM runs WHERE run_uuid NOT IN "
        "(SELECT run_uuid FROM tags WHERE key = 'sweep.history.trial') ORDER BY start_time"
    )
    with closing(sqlite3.connect(here.root / "mlflow.db")) as database:
        return [run for (run,) in database.execute(query)]


def _parent(here: Here) -> str:
    return _parents(here)[0]


def attached(here: Here, run: str) -> set[str]:
    return {path.name for path in (here.root / "mlartifacts" / run / "artifacts").iterdir()}


def test_a_finished_sweep_has_its_report_and_its_curves_in_mlflow(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, trials=2, trackers=["mlflow"])
    assert here("run", spec, "--pool", "inline")[0] == 0
    assert here("resume", "demo", "--pool", "inline")[0] == 0
    (parent,) = (run for trial, run in runs(here).items() if not trial)
    assert attached(here, parent) == {"sweep.yaml", "report.html", "curves.png"}
    page = here.root / "mlartifacts" / parent / "artifacts" / "report.html"
    first = page.read_bytes()
    assert b"demo | sweep" in first
    assert here("resume", "demo", "--trials", 3, "--pool", "inline")[0] == 0
    assert page.read_bytes() != first
    assert here("verify", "demo")[0] == 0


@pytest.mark.slow
def test_a_server_is_sent_what_it_keeps(here: Here, tmp_path: Path) -> None:
    spec, port = write_spec(tmp_path, trials=1, trackers=["mlflow"]), free_port()
    with serving(f"sqlite:///{tmp_path}/server.db", port):
        uri = f"http://127.0.0.1:{port}"
        assert here("run", spec, "--pool", "inline", "--tracking-uri", uri)[0] == 0
        assert here("resume", "demo", "--pool", "inline")[0] == 0
        client = open_client(sync.where(Folder(here.root, "demo")))
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
    where = sync.where(sweeps.make(here.root))
    kept = attachments._keeps_files(where, [StoredRun("one", "one")])
    assert kept is place.startswith("mlflow-artifacts")


def test_what_cannot_be_attached_is_said_and_costs_the_sweep_nothing(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("the disk is full")

    spec, said = write_spec(tmp_path, trials=1, trackers=["mlflow"]), list[str]()
    assert here("run", spec, "--pool", "inline")[0] == 0
    monkeypatch.setattr(attachments, "_add", refuse)
    attachments.attach(Folder(here.root, "demo"), said.append)
    why = "lacks the report or the best model: the disk is full; `sweep resume demo` tries again"
    assert said == [f"MLflow {why}"]


@pytest.mark.slow
def test_the_best_trials_model_is_in_mlflow_by_itself_and_all_where_that_is_asked_for(
    here: Here, tmp_path: Path
) -> None:
    spec = write_spec(tmp_path, **PPO | {"trackers": ["mlflow"]})
    assert here("run", spec, "--pool", "inline")[0] == 0
    assert here("resume", "demo", "--pool", "inline")[0] == 0
    best = here.json("best", "demo")["trial"]
    found = runs(here)
    assert attached(here, found[""]) >= {"report.html", "curves.png", "card.md"}
    assert _models(here) == {found[str(best)]: 1}
    folder = Folder(here.root, "demo")
    rows = np.random.default_rng(7).uniform(-1, 1, (50, 4)).astype("float32")
    with restored(folder, Choice()) as policy:
        trainer = policy.trainable
        actions = [int(trainer.compute_action(row, explore=False)) for row in rows]  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, "-c", SERVED, store_url(folder), f"runs:/{found[str(best)]}/model"],
        input=json.dumps(rows.tolist()), cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == actions
    assert here("resume", "demo", "--log-models")[0] == 0
    assert _models(here) == {found["0"]: 1, found["1"]: 1}
    assert here("verify", "demo")[0] == 0


def _models(here: Here) -> dict[str, int]:
    """Run → how many models it has."""
    query = "SELECT source_run_id, count(*) FROM logged_models GROUP BY 1"
    with closing(sqlite3.connect(here.root / "mlflow.db")) as database:
        return dict(database.execute(query).fetchall())
