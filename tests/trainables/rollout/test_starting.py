"""Children that end with their parents from their first instant on, and who tidies up then."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command_line import environment, start, write_spec
from tests.support.waiting import wait_until
from trainables.core.processes.ending import _SEMAPHORES
from trainables.core.processes.starting import child_context

#: A parent whose child imports for ever before anything of ours runs in it.
_PARENT = """
import sys, time
from trainables.core.processes.starting import child_context
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


#: Keeps a semaphore of loky's until it is killed, and lets go of a file; prints the semaphore's
#: name, and the pid of what tidies up.
_HOLDS_ONE = """
import sys, time
from joblib.externals.loky.backend import resource_tracker as tracker
from joblib.externals.loky.backend.synchronize import Lock
from trainables.core.processes.starting import start_trackers
start_trackers()
lock = Lock()
tracker.register(sys.argv[1], "file")
tracker.maybe_unlink(sys.argv[1], "file")
print(lock._semlock.name, tracker._resource_tracker._pid, flush=True)
time.sleep(1000)
"""


def test_what_tidies_up_after_killed_processes_does_so_without_numpy(tmp_path: Path) -> None:
    (file := tmp_path / "let go of").touch()
    command = [sys.executable, "-c", _HOLDS_ONE, str(file)]
    holder = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder.stdout:
        try:
            name, tidies = holder.stdout.readline().split()
            left = _SEMAPHORES / f"sem.{name.removeprefix('/')}"
            assert left.exists()
            wait_until(lambda: not file.exists())  # it runs, and has imported what it needs
            assert "numpy" not in Path(f"/proc/{tidies}/maps").read_text()
        finally:
            holder.kill()
            holder.wait()
        wait_until(lambda: not left.exists())


def test_a_driver_that_is_killed_while_workers_start_leaves_no_word_and_no_semaphore(
    tmp_path: Path,
) -> None:
    spec = write_spec(tmp_path)
    driver = start("run", spec, "-j", 2, "--root", tmp_path / "sweeps", cwd=tmp_path)
    family = psutil.Process(driver.pid)
    below = partial(family.children, recursive=True)
    wait_until(lambda: any("popen_loky" in " ".join(_command(child)) for child in below()))
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
