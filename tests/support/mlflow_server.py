"""A real `mlflow server` on 127.0.0.1, as a process of its own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: Seconds that it may take to start on a busy machine.
PATIENCE_S = 120.0


@contextmanager
def serving(store: str, port: int, *more: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A server of the database `store` that answers on `port`; it leads a group of its own."""
    where = ["--backend-store-uri", store, "--port", str(port), "--workers", "1", *more]
    folder = tempfile.TemporaryDirectory(prefix="mlflow-server-")  # of its artifacts
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *where],
        cwd=folder.name,
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        await_health(process, port)
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        folder.cleanup()


def await_health(process: "subprocess.Popen[bytes]", port: int, path: str = "/health") -> None:
    """Return as soon as it answers."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with code {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the server did not start")
