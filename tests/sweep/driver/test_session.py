"""Signals, readers that go away, and what a sweep that was ended is worth afterwards."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep.driver import session
from sweep.driver.context import DriverContext
from sweep.driver.start.launch import Launch
from sweep.history.events import Recorded, Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import start, write_spec
from tests.support.quadratic import expected_loss
from tests.support.waiting import wait_until
from trainables.core import rng
from trainables.core.processes.reaper import is_tracker

#: Long enough to be in the middle of when a signal arrives.
SLOW = {"noise": 0.1, "step_s": 0.05}
#: The command line, whose slices have an hour to save when they are to end.
PATIENT = (
    "-c",
    "import sys; from sweep.driver import driver; driver.GRACE_S = 3600.0; "
    "from sweep.cli.main import main; sys.exit(main())",
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A sweep of which the first trial has just begun, in two worker processes."""
    yield from sweep_at("trial 0 starts", tmp_path)


@pytest.fixture
def endless(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A sweep whose trials take ten minutes per step."""
    changes = {"config": {"step_s": 600.0}, "program": PATIENT}
    yield from sweep_at("trial 1 starts", tmp_path, **changes)


def sweep_at(line: str, folder: Path, **changes: Any) -> Iterator["subprocess.Popen[str]"]:
    process = start_sweep(folder, **changes)
    wait_for_line(process, line)
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # whoever is left would hold its output open
    process.communicate()


def start_sweep(
    folder: Path, program: Sequence[str] | None = None, **changes: Any
) -> "subprocess.Popen[str]":
    slow = {"config": SLOW, "stop": {"training_iteration": 27}, **changes}
    spec = write_spec(folder, deterministic=None, **slow)
    options: dict[str, Any] = {
        "start_new_session": True,
        **({"program": program} if program else {}),
    }
    return start("run", spec, "--jobs", 2, cwd=folder, **options)


def wait_for_line(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended without a line with {words!r}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "whole_group"),
    [
        (signal.SIGINT, 130, True),
        (signal.SIGTERM, 143, False),
        pytest.param(signal.SIGTERM, 143, True, marks=pytest.mark.proof),
        pytest.param(signal.SIGHUP, 129, False, marks=pytest.mark.proof),
    ],
)
def test_a_signal_saves_and_the_sweep_goes_on_exactly(
    running: "subprocess.Popen[str]",
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    whole_group: bool,
) -> None:
    """To the driver alone, or to its workers too, as a terminal, timeout(1) and systemd do."""
    if whole_group:
        os.killpg(running.pid, number)
    else:
        running.send_signal(number)
    out, err = running.communicate(timeout=240)
    assert running.returncode == code
    assert err == ""
    assert "running trials save and stop" in out
    assert "continue    sweep resume demo" in out

    folder = Folder(tmp_path / "sweeps", "demo")
    stopped = sweeps.history(folder)
    assert stopped.ended == "stopped"
    assert not stopped.with_status(Status.RUNNING)
    assert [trial.reason for trial in stopped.trials if trial.replicas[0].lost_slices] == []
    resumed = start("resume", "demo", "--jobs", 2, cwd=tmp_path)
    resumed.communicate(timeout=240)
    assert resumed.returncode == 0
    finished = sweeps.history(folder)
    assert (finished.ended, len(finished.trials)) == ("finished", 9)
    for trial in finished.trials:
        seed = rng.integer(7, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        upto = range(1, trial.iteration + 1)
        assert losses == [expected_loss(trial.config, k, seed) for k in upto]


@pytest.mark.slow
def test_the_second_ctrl_c_ends_at_once(endless: "subprocess.Popen[str]", tmp_path: Path) -> None:
    endless.send_signal(signal.SIGINT)
    wait_for_line(endless, "stopping")
    endless.send_signal(signal.SIGINT)
    endless.communicate(timeout=25)
    assert endless.returncode == 130
    history = sweeps.history(Folder(tmp_path / "sweeps", "demo"))
    assert history.ended == "stopped"
    assert {trial.status for trial in history.trials} == {Status.PAUSED}


class AfterTheTime:
    """A view in which, when there is first something to show, the time is over; then Ctrl-C."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.signalled = False

    def begin(self, context: DriverContext, warnings: Sequence[str]) -> None:
        self.stop_file = context.folder.stop_file(context.history.term)

    def update(self, records: Sequence[Recorded]) -> None:
        if not self.signalled:
            self.signalled = self.is_over.wait(120)
            wait_until(self.stop_file.exists)
            signal.raise_signal(signal.SIGINT)

    def say(self, text: str) -> None:
        if text.startswith("--timeout is over"):
            self.is_over.set()

    def end(self) -> None:
        pass


def test_the_first_ctrl_c_after_the_timeout_is_no_second_one(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=1, trackers=[])
    ended = session.run_driver(Launch(folder, 1, "inline"), AfterTheTime(), timeout_s=0.01)
    assert (ended.outcome, ended.signal) == ("stopped", signal.SIGINT)
    assert ended.history.ended == "stopped"


@pytest.mark.slow
def test_an_impatient_person_ends_it_without_a_traceback(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    for _ in range(5):
        os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=240)
    assert running.returncode == 130
    assert "Traceback" not in out + err
    history = sweeps.history(Folder(tmp_path / "sweeps", "demo"))
    assert not [
        replica for trial in history.trials for replica in trial.replicas if replica.lost_slices
    ]
    resumed = start("resume", "demo", "--jobs", 2, cwd=tmp_path)
    resumed.communicate(timeout=240)
    assert resumed.returncode == 0


def workers(driver: psutil.Process) -> list[psutil.Process]:
    """Return all below it but what tidies up after killed processes."""
    return [child for child in driver.children(recursive=True) if not is_tracker(child.pid)]


def rests(process: psutil.Process) -> bool:
    """Return whether a process is stopped, or has ended."""
    # One that is just starting a child sleeps until that, which is stopped, has begun.
    at_rest = (psutil.STATUS_STOPPED, psutil.STATUS_DISK_SLEEP, psutil.STATUS_ZOMBIE)
    try:
        return process.status() in at_rest
    except psutil.NoSuchProcess:
        return True


@pytest.mark.slow
def test_a_job_that_is_suspended_and_goes_on_loses_nothing(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    """As Ctrl-Z suspends it: the signal goes to the driver, and its workers rest with it."""
    driver = psutil.Process(running.pid)
    running.send_signal(signal.SIGTSTP)
    wait_until(lambda: all(map(rests, [driver, *workers(driver)])))
    running.send_signal(signal.SIGCONT)
    _, err = running.communicate(timeout=240)
    assert (running.returncode, err) == (0, "")
    trials = sweeps.history(Folder(tmp_path / "sweeps", "demo")).trials
    assert len(trials) == 9
    assert not [replica for trial in trials for replica in trial.replicas if replica.lost_slices]


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_no_sweep(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    assert running.stdout is not None
    running.stdout.close()
    assert running.stderr is not None
    err = running.stderr.read()
    assert running.wait(timeout=240) == 0
    assert err == ""
    history = sweeps.history(Folder(tmp_path / "sweeps", "demo"))
    assert (history.ended, len(history.trials)) == ("finished", 9)


@pytest.mark.slow
def test_a_killed_sweep_is_interrupted_and_can_be_resumed(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    running.kill()
    running.wait()
    looked = start("status", "demo", cwd=tmp_path)
    out, _ = looked.communicate(timeout=240)
    assert "interrupted" in out
    assert "continue with: sweep resume demo" in out


@pytest.mark.slow
def test_a_running_sweep_is_seen_as_running_and_has_one_driver(
    endless: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    looked = start("ls", cwd=tmp_path)
    out, _ = looked.communicate(timeout=240)
    assert "running" in out
    second = start("resume", "demo", cwd=tmp_path)
    _, err = second.communicate(timeout=240)
    assert second.returncode == 3
    assert f"process {endless.pid}" in err
