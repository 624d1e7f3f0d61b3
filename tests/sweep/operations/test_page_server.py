"""The MLflow page's server ends with whoever opened it, its forked workers too."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.command_line import REPOSITORY, environment
from tests.support.waiting import wait_until

#: Stands for `sweep ui`: a process that starts a server and is killed.
OPENER = """
import os, subprocess, sys
command = [sys.executable, "-m", "sweep.operations.page_server", str(os.getpid())]
server = [sys.executable, "-c", sys.argv[1]]
subprocess.Popen([*command, *server], start_new_session=True).wait()
"""
#: A server with a worker of its own; both write their numbers down.
SERVER = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open("pids.part", "w").write(f"{os.getpid()} {worker.pid}")
os.rename("pids.part", "pids")
time.sleep(600)
"""


def test_a_killed_opener_takes_the_server_and_its_workers_with_it(tmp_path: Path) -> None:
    opener = subprocess.Popen(
        [sys.executable, "-c", OPENER, SERVER], cwd=tmp_path, env=environment()
    )
    wait_until((tmp_path / "pids").exists)
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    os.kill(opener.pid, signal.SIGKILL)
    opener.wait(timeout=60)
    wait_until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_servers_exit_code_is_handed_on() -> None:
    words = [
        "-m",
        "sweep.operations.page_server",
        str(os.getpid()),
        sys.executable,
        "-c",
        "exit(3)",
    ]
    done = subprocess.run([sys.executable, *words], cwd=REPOSITORY, env=environment(), check=False)
    assert done.returncode == 3
