"""A sweep as a tree of processes that can be killed.

A driver leads a process group; its pool workers are its children, rollout workers are their
children. The working directory of all of them is the sweep's folder, by which they are found when
their parents have ended.
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
#: Time limit of all waiting on a busy machine, in seconds.
PATIENCE_S = 600.0
#: Seconds after the driver's end within which its processes must end, and their semaphores be gone,
#: on a busy machine.
LEAVE_S = 60.0
_POLL_S = 0.01
_SHARED = Path("/dev/shm")  # noqa: S108 folder of semaphores


class Victim(StrEnum):
    """Kind of the process to kill."""

    GROUP = "group"
    """The driver and all processes of its group, at the same time."""
    DRIVER = "driver"
    """The driver alone; the next driver starts at once."""
    WORKER = "worker"
    """One process of the pool."""
    ROLLOUT = "rollout"
    """One rollout worker of a trainer."""


class Sweep:
    """A sweep in a folder of its own, driven by the command line."""

    def __init__(
        self,
        root: Path,
        spec: str,
        variables: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Create the folder and the spec.

        Args:
            options: further options of `sweep run`.
        """
        root.mkdir(parents=True)
        self.root = root
        self.folder = Folder(root / "sweeps", "demo")
        (root / "space.yaml").write_text(spec)
        self._variables = dict(variables or {})
        self._options = tuple(options)
        self.program: Sequence[str] = ("sweep.cli.main",)
        """Module of the command line, with arguments before those of the command."""
        self._steps = root / "steps"
        self._driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start `sweep run`, or `sweep resume` if there is a ledger."""
        begun = self.folder.ledger.exists()
        words = ["resume", "demo"] if begun else ["run", "space.yaml", *self._options]
        self.driver = self._command(*words, "--jobs", str(JOBS))

    def sync(self) -> int:
        """Run `sweep sync`, for slow trackers; return its exit code."""
        return self._command("sync", "demo").wait()

    def _command(self, *words: str) -> "subprocess.Popen[bytes]":
        variables = {
            "PYTHONPATH": str(REPOSITORY),
            "SWEEP_ATTACH": "later",
            STEPS: str(self._steps),
        }
        with (self.root / "output").open("ab") as output:
            return subprocess.Popen(  # noqa: S603 our own command line
                [sys.executable, "-m", *self.program, *words],
                cwd=self.root,
                env={**os.environ, **self._variables, **variables},
                stdout=subprocess.DEVNULL,
                stderr=output,
                process_group=0,
            )

    @property
    def driver(self) -> "subprocess.Popen[bytes]":
        """Process of the newest driver."""
        if self._driver is None:
            raise RuntimeError("the sweep was not started")
        return self._driver

    @driver.setter
    def driver(self, process: "subprocess.Popen[bytes]") -> None:
        self._driver = process

    def steps(self) -> list[Step]:
        """Return all steps that any process began."""
        return read_steps(self._steps)

    def await_steps(self, count: int) -> bool:
        """Wait for `count` steps. Returns False if the driver ended before."""
        return self._await(lambda: len(self.steps()) >= count)

    def await_end(self) -> int:
        """Wait until the driver has ended by itself; return its exit code."""
        self._await(lambda: False)
        return self.driver.wait()

    def alive(self) -> list[int]:
        """Return the ids of the processes whose working directory is the folder."""
        return [process.pid for process in psutil.process_iter() if _is_in(process, self.root)]

    def left(self) -> list[int]:
        """Return the ids of the processes that have not ended within `LEAVE_S`."""
        end = time.monotonic() + LEAVE_S
        while (alive := self.alive()) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return alive

    def candidates(self, victim: Victim) -> list[int]:
        """Return the ids of the processes of this kind."""
        with suppress(psutil.Error):
            driver = psutil.Process(self.driver.pid)
            workers = [child for child in started_by(driver) if _is_worker(child)]
            if victim is Victim.WORKER:
                return [worker.pid for worker in workers]
            if victim is Victim.ROLLOUT:
                return [c.pid for worker in workers for c in worker.children() if _is_worker(c)]
            return [driver.pid]
        return []

    def kill(self, victim: Victim, pid: int) -> float:
        """Kill a process; return the seconds until all its descendants have ended.

        If a driver is killed alone, the next driver is started before this method waits.
        """
        processes = self._below(pid)
        began = time.monotonic()
        if victim is Victim.GROUP:
            os.killpg(pid, signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):  # a trainer has just ended it
                os.kill(pid, signal.SIGKILL)
        if victim in (Victim.GROUP, Victim.DRIVER):
            self.driver.wait()
        if victim is Victim.DRIVER:
            self.start()
        return _await_gone(processes) - began

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
                raise Failed(f"no progress for {PATIENCE_S:.0f} s in {self.root}")
            time.sleep(_POLL_S)
        return True


def started_by(process: psutil.Process) -> Iterator[psutil.Process]:
    """Yield the children of a process; a reaper is replaced by the processes that it started."""
    for child in process.children():
        if _is_reaper(child):
            yield from started_by(child)
        else:
            yield child


def starter_of(process: psutil.Process) -> psutil.Process | None:
    """Return the parent of a process; a reaper is replaced by its own parent."""
    parent = process.parent()
    return starter_of(parent) if parent is not None and _is_reaper(parent) else parent


def semaphores_of(pid: int, since: float) -> list[Path]:
    """Return the files of the semaphores that a process left.

    Semaphores from before `since`, in seconds since 1970, are those of an earlier process with the
    same number.
    """
    found = []
    for path in _SHARED.glob(f"sem.loky-{pid}-*"):
        with suppress(FileNotFoundError):  # it may be removed meanwhile
            if path.stat().st_mtime >= since:
                found.append(path)
    return found


def _is_reaper(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any(word.endswith("processes/reaper.py") for word in process.cmdline())
    return False


def _await_gone(processes: Sequence[psutil.Process]) -> float:
    """Wait until no process runs; return the time of the monotonic clock."""
    end = time.monotonic() + PATIENCE_S
    while left := [process for process in processes if _is_running(process)]:
        if time.monotonic() > end:
            raise Failed(f"{[process.pid for process in left]} outlived their parent")
        time.sleep(_POLL_S)
    return time.monotonic()


def _is_running(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_worker(process: psutil.Process) -> bool:
    return "resource_tracker" not in " ".join(process.cmdline())


def _is_in(process: psutil.Process, root: Path) -> bool:
    with suppress(psutil.Error):
        return process.cwd() == str(root) and process.status() != psutil.STATUS_ZOMBIE
    return False
