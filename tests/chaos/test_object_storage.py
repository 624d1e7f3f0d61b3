"""A sweep whose S3 server misbehaves or whose processes are killed ends as on a quiet disk."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.ledger.folder import Folder
from sweep.operations.upkeep.verify import verify
from tests.support import processes, s3, sweeps
from tests.support.command_line import REPOSITORY, write_spec
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.waiting import wait_until
from trainables.checkpoint.remote import Remote

pytestmark = pytest.mark.slow
#: Seconds that a sweep may take on a busy machine.
PATIENCE_S = 240.0
#: When a checkpoint is in storage and in no ledger.
KILL_A_WORKER, KILL_THE_DRIVER = "checkpoint sent:3:self", "checkpoint sent:5:parent"
TRIALS: dict[str, Any] = {"trials": 4, "stop": {"training_iteration": 4}, "scheduler": "fifo"}
#: What a restore takes comes from the storage.
TRIALS |= {"checkpoint": {"cache": 1}, "limits": {"slice_s": 0.05}}
TRIALS |= {"config": {"noise": 0.1, "step_s": 0.03}}


class Runner:
    """The command line, each call a process of its own."""

    def __init__(self, root: Path, port: int, url: str) -> None:
        self.root, self.url = root, url
        self.folder = Folder(root / "sweeps", "demo")
        self.environment = {**os.environ, **s3.environment(port), "PYTHONPATH": str(REPOSITORY)}
        self.said = ""

    def start(self, *arguments: object, **more: str) -> "subprocess.Popen[str]":
        words = [*map(str, arguments), "--root", str(self.folder.root)]
        return processes.start(
            [sys.executable, "-m", "sweep.cli.main", *words],
            cwd=self.root,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def begin(self, **more: str) -> "subprocess.Popen[str]":
        spec = write_spec(self.root, **TRIALS)
        return self.start("run", spec, "--jobs", 2, "--checkpoints", self.url, **more)

    def code(self, process: "subprocess.Popen[str]") -> int:
        said, _ = process.communicate(timeout=PATIENCE_S)
        self.said += said
        return process.returncode

    def require_whole(self, quiet: Folder) -> None:
        """Everything is as on a disk where nothing happened, and no secret is anywhere."""
        assert verify(self.folder).damages == ()
        assert curves(self.folder) == curves(quiet)
        everything = [self.said.encode(), *(p.read_bytes() for p in files(self.root))]
        for text in (s3.SECRET, s3.KEY):
            assert not any(text.encode() in content for content in everything)


def files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file())


def curves(folder: Folder) -> list[Any]:
    past = sweeps.history(folder)
    return [(t.searched, t.status, t.score, sweeps.curve(folder, t.number)) for t in past.trials]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The same sweep on a disk, where nothing happens to it."""
    folder = sweeps.make(tmp_path_factory.mktemp("quiet"), trackers=[], **TRIALS)
    assert sweeps.run(folder) == "finished"
    return folder


@pytest.fixture
def proxy(s3_server: int) -> Iterator[FaultyProxy]:
    standing = FaultyProxy(s3_server)
    yield standing
    standing.close()


def meet(proxy: FaultyProxy, fault: Fault) -> None:
    """Have the next request meet a fault, and only that one and those beside it."""
    proxy.met.clear()
    proxy.fault = fault
    assert proxy.met.wait(PATIENCE_S)
    proxy.fault = Fault.NONE


def test_a_server_that_is_busy_fails_or_loses_answers_and_a_killed_worker_change_nothing(
    proxy: FaultyProxy, s3_url: str, tmp_path: Path, quiet: Folder
) -> None:
    runner = Runner(tmp_path, proxy.port, s3_url)
    fired = tmp_path / "fired"
    process = runner.begin(SWEEP_FAILPOINT=KILL_A_WORKER, SWEEP_FAILPOINT_FILE=str(fired))
    assert proxy.asked.wait(PATIENCE_S)
    for fault in (Fault.BUSY, Fault.LOST, Fault.ERROR, Fault.CUT, Fault.REFUSES):
        meet(proxy, fault)
    assert runner.code(process) == 0, runner.said
    assert fired.stat().st_size >= 3
    runner.require_whole(quiet)


def test_a_credential_that_expires_ends_the_sweep_in_one_line_and_a_new_one_goes_on(
    proxy: FaultyProxy, s3_url: str, tmp_path: Path, quiet: Folder
) -> None:
    runner = Runner(tmp_path, proxy.port, s3_url)
    process = runner.begin()
    wait_until(lambda: "/ckpt-" in str(Remote(s3_url).sizes()), PATIENCE_S)
    proxy.fault = Fault.EXPIRED
    assert runner.code(process) == 4
    last = runner.said.splitlines()[-1]
    assert last.startswith("sweep: ")
    assert "The provided token has expired." in last
    assert "Traceback" not in runner.said
    assert runner.code(runner.start("resume", "demo")) == 4
    assert "The provided token has expired." in runner.said.splitlines()[-1]
    proxy.fault = Fault.NONE
    assert runner.code(runner.start("resume", "demo")) == 0, runner.said
    runner.require_whole(quiet)


def test_a_kill_between_the_storage_and_the_ledger_loses_nothing(
    s3_server: int, s3_url: str, tmp_path: Path, quiet: Folder
) -> None:
    runner = Runner(tmp_path, s3_server, s3_url)
    fired = str(tmp_path / "fired")
    assert (
        runner.code(runner.begin(SWEEP_FAILPOINT=KILL_THE_DRIVER, SWEEP_FAILPOINT_FILE=fired)) == -9
    )
    assert runner.code(runner.start("resume", "demo")) == 0, runner.said
    runner.require_whole(quiet)
