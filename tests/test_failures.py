"""One test that fails makes no other one fail."""

import subprocess
import sys
from pathlib import Path

from tests.support.command_line import environment

TESTS = """
import gc
import os
import socket
import subprocess
import sys

import pytest

from tests.support import processes

WAITS = [sys.executable, "-c", "input()"]


def test_that_fails(tmp_path_factory):
    started = processes.start(WAITS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    (tmp_path_factory.getbasetemp() / "pid").write_text(str(started.pid))
    kept = [started, socket.socket()]
    kept.append(kept)  # freed by the collector alone
    assert not started


def test_that_comes_later(tmp_path_factory):
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path_factory.getbasetemp() / "pid").read_text()), 0)
"""


def test_what_a_failed_test_leaves_open_fails_no_later_one(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(TESTS)
    words = ["-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(
        [sys.executable, *words, "--basetemp", tmp_path / "base", "test_two.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED test_two.py::test_that_fails" in done.stdout
