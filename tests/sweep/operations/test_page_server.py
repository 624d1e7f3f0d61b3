"""The MLflow page's server: it ends with its opener, and answers no foreign page."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from sweep.trackers._shared.mlflow_store import connect, store_url
from tests.support.command_line import environment
from tests.support.events import Story
from tests.support.mlflow_server import await_health
from tests.support.ports import free_port
from tests.support.waiting import wait_until

#: Stands for `sweep ui`: a process that starts a server, says its number and is killed.
OPENER = """
import os, subprocess, sys
module = "sweep.operations.mlflow.page_server"
command = [sys.executable, "-m", module, str(os.getpid()), *sys.argv[1:]]
server = subprocess.Popen(command, start_new_session=True)
print(server.pid, flush=True)
server.wait()
"""


def test_a_killed_opener_takes_the_server_with_it(tmp_path: Path) -> None:
    story, port = Story.create(tmp_path), free_port()
    connect(story.where).close()
    where = [store_url(story.where.folder), "127.0.0.1", str(port)]
    with subprocess.Popen(
        [sys.executable, "-c", OPENER, *where], env=environment(), stdout=subprocess.PIPE
    ) as opener:
        assert opener.stdout is not None
        server = psutil.Process(int(opener.stdout.readline()))
        await_health(opener, port)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert answer.headers["Content-Type"].startswith("text/html")
            assert b"sweep.assistantClosed" in answer.read()
        assert refused(port, "experiments/search?max_results=1", Host="evil.example") == 403
        assert refused(port, "experiments/create", b"{}", Origin="http://evil.example") == 403
        assert server.children() == []
        os.kill(opener.pid, signal.SIGKILL)
        wait_until(lambda: not alive(server))


def refused(port: int, what: str, body: bytes | None = None, **headers: str) -> int:
    """The status of a request as the page of somebody else's would make it in one's browser."""
    url = f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/{what}"
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, body, headers))
    caught.value.close()
    return caught.value.code


def alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
