"""`sweep sync`, and the outbox against a real MLflow server behind a proxy that misbehaves."""

import itertools
import shutil
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sweep
from sweep import trackers
from sweep.driver.tracking import outbox, sync
from sweep.driver.tracking.outbox import Outbox
from sweep.history.events import Recorded
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import Comparable
from sweep.trackers._shared.mlflow_store import ServerStore, store_url
from sweep.trackers._shared.optuna_storage import Storage
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.faulty_proxy import OF_S3, Fault, FaultyProxy
from tests.support.mlflow_server import serving
from tests.support.ports import free_port
from tests.support.proofs import proofs_except

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)

PATIENCE_S = 120.0
HERE: dict[str, Any] = {"pool": "inline", "progress": False}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real MLflow server."""
    number = free_port()
    with serving(store_url(Folder(tmp_path_factory.mktemp("server"), "any")), number):
        yield number


@pytest.fixture
def proxy(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    monkeypatch.setattr(outbox, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(outbox, "GATHER_S", 0.01)
    with closing(FaultyProxy(port)) as proxy:
        yield proxy


@pytest.mark.parametrize("kept", [True, False])
def test_a_folder_that_was_copied_or_renamed_has_an_experiment_and_a_study_of_its_name(
    tmp_path: Path, kept: bool
) -> None:
    first = sweeps.make(tmp_path, trials=2, scheduler="fifo", trackers=["mlflow", "optuna"])
    sweep.resume(first.name, root=tmp_path, **HERE)
    before = _runs(tmp_path)
    other = Folder(tmp_path, "other")
    (shutil.copytree if kept else Path.rename)(first.path, other.path)
    sweep.resume("other", root=tmp_path, trials=4, **HERE)
    after = _runs(tmp_path)
    assert {name: of for name, of in after.items() if name == "demo"} == before
    assert sorted(title for title, _ in after["other"]) == [
        *("other", "trial 0", "trial 1", "trial 2", "trial 3"),
    ]
    with closing(Storage(other.optuna, only_read=True)) as storage:
        assert (storage.find("demo"), storage.find("other")) == (None, 1)
    for folder in (first, other) if kept else (other,):
        assert [differences(folder, name) for name in ("mlflow", "optuna")] == [[], []]


def _runs(root: Path) -> dict[str, set[tuple[str, int]]]:
    """Experiment → the title of each of its runs, and how many rows it has."""
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        found = database.execute(
            "SELECT experiments.name, runs.name, count(metrics.key) FROM runs "
            "JOIN experiments USING (experiment_id) LEFT JOIN metrics USING (run_uuid) "
            "WHERE runs.lifecycle_stage = 'active' GROUP BY runs.run_uuid"
        ).fetchall()
    named = {name for name, _, _ in found}
    return {one: {(title, n) for name, title, n in found if name == one} for one in named}


def make(tmp_path: Path, proxy: FaultyProxy) -> Folder:
    folder = sweeps.make(tmp_path, trials=3, trackers=["mlflow"])
    sync.write_tracking(folder.tracking_uri, f"http://127.0.0.1:{proxy.port}")
    return folder


def differences(folder: Folder, name: str = "mlflow") -> list[str]:
    """Where a copy differs from the ledger: rows that are missing, twice, or other ones."""
    tracker = trackers.find(name)(sync.tracker_context(folder))
    assert isinstance(tracker, Comparable)
    return tracker.differences()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    proofs_except({Fault.HANGS, Fault.LOST, Fault.CUT}, sorted(set(Fault) - {Fault.NONE, *OF_S3})),
)
def test_training_goes_on_whatever_the_server_does_and_the_rest_is_sent_once(
    tmp_path: Path, proxy: FaultyProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault is Fault.HANGS:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    folder = make(tmp_path, proxy)
    proxy.fault = fault
    box = Outbox(folder.ledger, sync.load_trackers(sync.tracker_context(folder)), print)
    assert sweeps.run(folder, watch=lambda _records: box.notify()) == "finished"
    assert proxy.met.wait(PATIENCE_S)
    with closing(Ledger(folder.ledger)) as ledger:
        assert ledger.published("mlflow") == 0 or fault is Fault.SLOW  # training waited for nothing
    proxy.fault = Fault.NONE
    box.close(0.0)
    for sender in threading.enumerate():
        if sender.name == "outbox-mlflow":
            sender.join(PATIENCE_S)
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_TIMEOUT", raising=False)
    (sent,) = sync.send(folder, print, PATIENCE_S)
    assert sent.missing == 0
    assert differences(folder) == []


@pytest.mark.slow
def test_faults_that_come_and_go_while_trials_train_leave_every_row_once(
    tmp_path: Path, proxy: FaultyProxy
) -> None:
    folder = make(tmp_path, proxy)
    faults = itertools.cycle([Fault.NONE, Fault.LOST, Fault.SLOW, Fault.CUT, Fault.ERROR])
    box = Outbox(folder.ledger, sync.load_trackers(sync.tracker_context(folder)), print)

    def watch(records: Sequence[Recorded]) -> None:
        if records:
            proxy.fault = next(faults)
            box.notify()
            assert proxy.asked.wait(PATIENCE_S)
            proxy.asked.clear()

    assert sweeps.run(folder, watch=watch) == "finished"
    proxy.fault = Fault.NONE
    assert box.close(PATIENCE_S) == []
    assert differences(folder) == []


def test_an_answer_that_was_cut_to_nothing_is_not_taken_for_an_empty_one(
    tmp_path: Path, proxy: FaultyProxy
) -> None:
    folder = make(tmp_path, proxy)
    store = ServerStore(sync.tracker_context(folder), "0")
    assert store.runs() == []
    proxy.fault = Fault.CUT
    with pytest.raises(Exception, match="cut off"):
        store.runs()


# ---- the command --------------------------------------------------------------------------------


@pytest.mark.slow
def test_sync_sends_what_is_missing_and_says_what_it_cannot(
    tmp_path: Path, proxy: FaultyProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path, proxy)
    assert sweeps.run(folder) == "finished"
    here = Here(capsys, tmp_path)
    proxy.fault = Fault.REFUSES
    code, out, err = here("sync", folder.name, "--wait", 0.5)
    assert code == 4
    assert "misses" in out
    assert "tracker mlflow: " in err
    proxy.fault = Fault.NONE
    (its,) = here.json("sync", folder.name)["trackers"]
    assert (its["sent"] > 0, its["missing"]) == (True, 0)
    assert differences(folder) == []
    (its,) = here.json("sync", folder.name)["trackers"]
    assert (its["sent"], its["missing"]) == (0, 0)


def test_sync_beside_a_driver_is_code_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sweeps.make(tmp_path, trackers=[])
    with folder.lock():
        assert Here(capsys, tmp_path)("sync", "demo")[0] == 3
    code, out, _ = Here(capsys, tmp_path)("sync", "demo")
    assert (code, out.strip()) == (0, "no trackers")
