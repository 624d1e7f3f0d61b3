"""`sweep sync`, and the outbox against a real MLflow server behind a proxy that misbehaves."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sweep import trackers
from sweep.driver import outbox, sync
from sweep.driver.outbox import Outbox
from sweep.history.events import Recorded
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.trackers import Comparable
from sweep.trackers._shared.mlflow_store import ServerStore, store_url
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.faulty_proxy import OF_S3, Fault, FaultyProxy
from tests.support.mlflow_server import free_port, serving

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy:sqlalchemy.exc.SADeprecationWarning"
)

PATIENCE_S = 60.0


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
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    with closing(FaultyProxy(port)) as proxy:
        yield proxy


def make(tmp_path: Path, proxy: FaultyProxy) -> Folder:
    folder = sweeps.make(tmp_path, trials=3, trackers=["mlflow"])
    sync.keep(folder.tracking_uri, f"http://127.0.0.1:{proxy.port}")
    return folder


def differences(folder: Folder) -> list[str]:
    """Where MLflow differs from the ledger: rows that are missing, twice, or other ones."""
    tracker = trackers.find("mlflow")(sync.where(folder))
    assert isinstance(tracker, Comparable)
    return tracker.differences()


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(set(Fault) - {Fault.NONE, *OF_S3}))
def test_training_goes_on_whatever_the_server_does_and_the_rest_is_sent_once(
    tmp_path: Path, proxy: FaultyProxy, fault: Fault
) -> None:
    folder = make(tmp_path, proxy)
    proxy.fault = fault
    box = Outbox(folder.ledger, sync.made(sync.where(folder)), print)
    assert sweeps.run(folder, watch=lambda _records: box.notify()) == "finished"
    assert proxy.met.wait(PATIENCE_S)
    with closing(Ledger(folder.ledger)) as ledger:
        assert ledger.published("mlflow") == 0 or fault is Fault.SLOW  # training waited for nothing
    proxy.fault = Fault.NONE
    box.close(0.0)
    for sender in threading.enumerate():
        if sender.name == "outbox-mlflow":
            sender.join(PATIENCE_S)
    (sent,) = sync.send(folder, print, PATIENCE_S)
    assert sent.missing == 0
    assert differences(folder) == []


@pytest.mark.slow
def test_faults_that_come_and_go_while_trials_train_leave_every_row_once(
    tmp_path: Path, proxy: FaultyProxy
) -> None:
    folder = make(tmp_path, proxy)
    faults = itertools.cycle([Fault.NONE, Fault.LOST, Fault.SLOW, Fault.CUT, Fault.ERROR])
    box = Outbox(folder.ledger, sync.made(sync.where(folder)), print)

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
    store = ServerStore(sync.where(folder), "0")
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
