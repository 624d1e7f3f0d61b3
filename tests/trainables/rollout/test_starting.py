"""Children that end with their parents from their first instant on, and who tidies up then."""

import os
import signal
import subprocess
import sys
import threading
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command_line import environment, start, write_spec
from tests.support.waiting import wait_until
from trainables.core.processes import _SEMAPHORES
from trainables.core.starting import child_context

#: A parent whose child imports for ever before anything of ours runs in it.
_PARENT = """
import sys, time
from trainables.core.starting import child_context
child = child_context().Process(target=print, env={"PYTHONPATH": sys.argv[1]})
child.start()
print(child.pid, flush=True)
time.sleep(1000)
"""
_IMPORTING = """
import pathlib, time
pathlib.Path(__file__).with_name("began").touch()
time.sleep(1000)
"""


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_that_is_still_importing_ends_with_its_parent(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_IMPORTING)
    command = [sys.executable, "-c", _PARENT, str(tmp_path)]
    parent = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        try:
            wait_until((tmp_path / "began").exists)
            assert is_running(child)
            parent.kill()
            parent.wait()
            wait_until(lambda: not is_running(child))
        finally:
            parent.kill()
            if is_running(child):
                os.kill(child, signal.SIGKILL)


def _answer(pipe: "connection.Connection[Any, Any]") -> None:
    pipe.send(pipe.recv() + 1)


@pytest.mark.slow
def test_a_child_outlives_the_thread_that_started_it() -> None:
    ours, theirs = connection.Pipe()
    child = child_context().Process(target=_answer, args=(theirs,))
    starter = threading.Thread(target=child.start)
    starter.start()
    starter.join()
    ours.send(1)
    assert ours.poll(60)
    assert ours.recv() == 2
    child.join()
    assert child.exitcode == 0


def test_a_driver_that_is_killed_while_workers_start_leaves_no_word_and_no_semaphore(
    tmp_path: Path,
) -> None:
    spec = write_spec(tmp_path)
    driver = start("run", spec, "-j", 2, "--root", tmp_path / "sweeps", cwd=tmp_path)
    family = psutil.Process(driver.pid)
    wait_until(lambda: any("popen_loky" in " ".join(_command(c)) for c in family.children()))
    driver.kill()
    _, said = driver.communicate()  # until the last of the family has closed it
    assert "leaked" not in said
    assert "resource_tracker" not in said
    assert not list(_SEMAPHORES.glob(f"sem.loky-{driver.pid}-*"))


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
