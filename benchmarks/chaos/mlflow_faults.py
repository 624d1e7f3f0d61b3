"""A real MLflow server behind a faulty proxy: no row is missing or duplicated, no sweep waits.

    python -m benchmarks.chaos.mlflow_faults [--out DIR] [--rounds N] [--seed S]

A round is one sweep for each kind of fault, which lasts from its start to its end; then the server
works again, and the rest is sent. The same sweep is also run without a tracker: the additional time
of the one with faults, in percent, is a figure of the case. Each step sleeps, so that waiting is
measured, and not the load of the processor.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.chaos.store_cases import Cases, Failed, main
from sweep import trackers
from sweep.driver.tracking import sync
from sweep.driver.tracking.outbox import Outbox
from sweep.ledger.folder import Folder
from sweep.trackers import Comparable
from sweep.trackers._shared.mlflow_store import store_url
from tests.support import sweeps
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.mlflow_server import serving
from tests.support.ports import free_port

#: Time limit of sending the rest, in seconds.
PATIENCE_S = 120.0
#: Four trials of 25 iterations of 40 ms: four seconds.
_SWEEP: Mapping[str, Any] = {
    "trials": 4,
    "config": {"noise": 0.1, "step_s": 0.04},
    "stop": {"training_iteration": 25},
    "searcher": "random",
    "scheduler": "fifo",
    "deterministic": None,
}
#: Timeout of one request of the client, in seconds; the default is minutes.
_REQUEST_S = "2"


def run(out: Path, rounds: int, seed: int) -> int:  # noqa: ARG001 nothing is random
    """Test each kind of fault `rounds` times; return the number of failed cases."""
    cases = Cases(out, "mlflow_faults")
    wanted = [(fault, number) for number in range(rounds) for fault in Fault]
    if any(not cases.done.get(_name(*one), {}).get("ok") for one in wanted):
        with _proxy() as proxy:
            for fault, number in wanted:
                cases.run(_name(fault, number), partial(run_with, fault, proxy))
    return cases.close()


def run_with(fault: Fault, proxy: FaultyProxy) -> dict[str, float]:
    """Run one sweep with a fault and one without a tracker; return the figures."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        plain = sweeps.make(Path(name) / "plain", trackers=[], **_SWEEP)
        without_s = _seconds(lambda: sweeps.run(plain))
        folder = sweeps.make(Path(name) / "tracked", trackers=["mlflow"], **_SWEEP)
        sync.write_tracking(folder.tracking_uri, f"http://127.0.0.1:{proxy.port}")
        proxy.fault = fault
        box = Outbox(
            folder.ledger, sync.load_trackers(sync.tracker_context(folder)), lambda _text: None
        )
        with_s = _seconds(lambda: sweeps.run(folder, watch=lambda _records: box.notify()))
        proxy.fault = Fault.NONE
        box.close(0.0)
        _await_senders()
        (sent,) = sync.send(folder, lambda _text: None, PATIENCE_S)
        wrong = _differences(folder)
        if sent.missing or wrong:
            raise Failed(f"{sent.missing} events are missing; {wrong[:3]}")
        return {"slower_percent": round(100 * (with_s - without_s) / without_s, 2)}


def _name(fault: Fault, number: int) -> str:
    return f"the server {fault}, {number}" if fault is not Fault.NONE else f"no fault, {number}"


def _seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def _await_senders() -> None:
    for sender in threading.enumerate():
        if sender.name == "outbox-mlflow":
            sender.join(PATIENCE_S)


def _differences(folder: Folder) -> list[str]:
    tracker = trackers.find("mlflow")(sync.tracker_context(folder))
    if not isinstance(tracker, Comparable):
        raise TypeError(f"{tracker} cannot be compared")
    return tracker.differences()


@contextmanager
def _proxy() -> Iterator[FaultyProxy]:
    """Run a server behind a proxy, with a short timeout of the client."""
    before = os.environ.get("MLFLOW_HTTP_REQUEST_TIMEOUT")
    os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = _REQUEST_S
    port = free_port()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="chaos-") as name,
            serving(store_url(Folder(Path(name), "any")), port),
            closing(FaultyProxy(port)) as proxy,
        ):
            yield proxy
    finally:
        if before is None:
            del os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"]
        else:
            os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] = before


if __name__ == "__main__":
    main(run, rounds=5)
