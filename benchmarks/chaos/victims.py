"""A sweep as processes of its own, and the ways to kill them.

A driver leads a process group; its pool workers are its children, rollout workers are theirs. All
of them stand in the sweep's folder, by which they are found again when their parents are gone.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import psutil

from benchmarks.chaos.store_cases import Failed
from benchmarks.chaos.workload import JOBS, STEPS, Step, read_steps
from sweep.ledger.folder import Folder

REPOSITORY = Path(__file__).parents[2]
#: Seconds that anything may take on a busy machine; who is dead is late long before.
PATIENCE_S = 600.0
#: Seconds that the last processes have to leave when the driver has ended.
LEAVE_S = 5.0
_POLL_S = 0.01


class Victim(StrEnum):
    """The process to kill."""

    GROUP = "group"
    """The driver and all that share its process group, at once."""
    DRIVER = "driver"
    """The driver alone; the next one starts at once."""
    WORKER = "worker"
    """One process of the pool."""
    ROLLOUT = "rollout"
    """One rollout worker of a trainer."""


class Sweep:
    """The command line in a folder of its own, as a person would use it."""

    def __init__(
        self,
        root: Path,
        spec: str,
        variables: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """`options` are given to `sweep run`, which remembers them."""
        root.mkdir(parents=True)
        self.root = root
        self.folder = Folder(root / "sweeps", "demo")
        (root / "space.yaml").write_text(spec)
        self._variables = dict(variables or {})
        self._options = tuple(options)
        self.program: Sequence[str] = ("sweep.cli.main",)
        """The module that drives it, with what stands before its words."""
        self._steps = root / "steps"
        self._driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """`sweep run`, or `sweep resume` where there is something to resume."""
        begun = self.folder.ledger.exists()
        words = ["resume", "demo"] if begun else ["run", "space.yaml", *self._options]
        self.driver = self._command(*words, "--jobs", str(JOBS))

    def sync(self) -> int:
        """`sweep sync`, for trackers that were slower than the sweep; its exit code."""
        return self._command("sync", "demo").wait()

    def _command(self, *words: str) -> "subprocess.Popen[bytes]":
        told = {"PYTHONPATH": str(REPOSITORY), "SWEEP_ATTACH": "later", STEPS: str(self._steps)}
        with (self.root / "said").open("ab") as said:
            return subprocess.Popen(  # noqa: S603 our own command line
                [sys.executable, "-m", *self.program, *words],
                cwd=self.root,
                env={**os.environ, **self._variables, **told},
                stdout=subprocess.DEVNULL,
                stderr=said,
                process_group=0,
            )

    @property
    def driver(self) -> "subprocess.Popen[bytes]":
        """The process that drives it, or did last."""
        if self._driver is None:
            raise RuntimeError("the sweep was not started")
        return self._driver

    @driver.setter
    def driver(self, process: "subprocess.Popen[bytes]") -> None:
        self._driver = process

    def steps(self) -> list[Step]:
        """Every step that any process began."""
        return read_steps(self._steps)

    def await_steps(self, count: int) -> bool:
        """Wait for so many steps in all; False: the driver ended before."""
        return self._await(lambda: len(self.steps()) >= count)

    def await_rest(self) -> int:
        """Wait for the driver to end by itself; returns its exit code."""
        self._await(lambda: False)
        return self.driver.wait()

    def alive(self) -> list[int]:
        """The processes that stand in its folder, whoever their parents are now."""
        return [process.pid for process in psutil.process_iter() if _stands_in(process, self.root)]

    def left(self) -> list[int]:
        """`alive` when everything has had time to end."""
        end = time.monotonic() + LEAVE_S
        while (alive := self.alive()) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return alive

    def candidates(self, victim: Victim) -> list[int]:
        """The processes of a kind, of which one may be killed."""
        with suppress(psutil.Error):
            driver = psutil.Process(self.driver.pid)
            workers = [child for child in started_by(driver) if _works(child)]
            if victim is Victim.WORKER:
                return [worker.pid for worker in workers]
            if victim is Victim.ROLLOUT:
                return [c.pid for worker in workers for c in worker.children() if _works(c)]
            return [driver.pid]
        return []

    def kill(self, victim: Victim, pid: int) -> float:
        """Kill it; returns the seconds until all that must go with it are gone.

        With a driver it is everything, with a worker its children. A driver that is killed alone
        has a successor before anybody waits.
        """
        doomed = self._below(pid)
        began = time.monotonic()
        if victim is Victim.GROUP:
            os.killpg(pid, signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):  # a trainer had ended it before
                os.kill(pid, signal.SIGKILL)
        if victim in (Victim.GROUP, Victim.DRIVER):
            self.driver.wait()
        if victim is Victim.DRIVER:
            self.start()
        return _await_gone(doomed) - began

    def _below(self, pid: int) -> list[psutil.Process]:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            return [process, *process.children(recursive=True)]
        return []

    def _await(self, condition: Callable[[], bool]) -> bool:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            if self.driver.poll() is not None:
                return False
            if time.monotonic() > end:
                os.killpg(self.driver.pid, signal.SIGKILL)
                raise Failed(f"nothing happened for {PATIENCE_S:.0f} s in {self.root}")
            time.sleep(_POLL_S)
        return True


def started_by(process: psutil.Process) -> Iterator[psutil.Process]:
    """Its children, with those that a reaper has started for it instead of the reaper."""
    for child in process.children():
        if _reaps(child):
            yield from started_by(child)
        else:
            yield child


def starter_of(process: psutil.Process) -> psutil.Process | None:
    """Its parent, or the process that had it started by a reaper."""
    parent = process.parent()
    return starter_of(parent) if parent is not None and _reaps(parent) else parent


def _reaps(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any(word.endswith("processes/reaper.py") for word in process.cmdline())
    return False


def _await_gone(doomed: Sequence[psutil.Process]) -> float:
    """Wait until none of them runs; returns when that was."""
    end = time.monotonic() + PATIENCE_S
    while left := [process for process in doomed if _runs(process)]:
        if time.monotonic() > end:
            raise Failed(f"{[process.pid for process in left]} outlived their parent")
        time.sleep(_POLL_S)
    return time.monotonic()


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _works(process: psutil.Process) -> bool:
    return "resource_tracker" not in " ".join(process.cmdline())


def _stands_in(process: psutil.Process, root: Path) -> bool:
    with suppress(psutil.Error):
        return process.cwd() == str(root) and process.status() != psutil.STATUS_ZOMBIE
    return False
