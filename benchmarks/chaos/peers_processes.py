"""A tool under test as a tree of processes: begun, killed, counted, ended.

All processes of one launch inherit a variable with a name of their own, so they are found wherever
they have gone: in other groups, sessions, or under other parents.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.store_cases import Failed

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "CHAOS_LAUNCH"
#: Seconds that a run may take.
LIMIT_S = 900.0
POLL_S = 0.01
#: What is drawn in a temporary file's name.
_DRAWN = re.compile(r"(?<=^tmp).*|\d.*")
#: Ray gives its own processes 30 s to begin, which cannot be changed.
_TOO_BUSY = "The current node timed out during startup"
_ERROR = re.compile(r"^(?:\x1b\[\d+m)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))\b", re.M)


@dataclass(frozen=True)
class Tool:
    """A tested tool: its name in the table, its interpreter, its module, and its options."""

    name: str
    python: str
    module: str
    options: tuple[str, ...] = ()

    def call(self, what: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Run the module to its end, and keep what it prints."""
        command = [self.python, "-m", self.module, what, str(folder), *self.options]
        return subprocess.run(  # noqa: S603 our own module
            command,
            capture_output=True,
            text=True,
            env=variables(folder),
            timeout=LIMIT_S,
            check=False,
        )


class Launched:
    """One run of a tool in `folder`, in a session of its own; what it says goes to a file."""

    def __init__(self, tool: Tool, folder: Path, number: int) -> None:
        self.mark = uuid.uuid4().hex
        self.said = folder / f"said.{number}"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(  # noqa: S603 our own module
                [tool.python, "-m", tool.module, "run", str(folder), *tool.options],
                stdout=said,
                stderr=said,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
                env={**variables(folder), MARK: self.mark},
            )

    @property
    def running(self) -> bool:
        """True while the driver runs."""
        return self.process.poll() is None

    def ends(self) -> str:
        """Wait for the driver; returns how it failed, empty if it did not.

        Raises:
            Failed: the machine was too busy for it to begin at all.
        """
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"no end after {LIMIT_S:.0f} s"
        if not code:
            return ""
        said = self.said.read_text(errors="replace")
        if _TOO_BUSY in said:
            raise Failed(f"the machine is too busy: {_TOO_BUSY}")
        errors = _ERROR.findall(said)
        return errors[-1].split(".")[-1] if errors else f"exit code {code}"

    def pids(self) -> list[int]:
        """All its processes that have not ended."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Kill what is left of it."""
        while pids := self.pids():
            for pid in pids:
                kill(pid)
            time.sleep(POLL_S)
        self.process.wait()


def kill(pid: int, group: bool = False) -> bool:
    """SIGKILL to a process or its group; returns whether it was there."""
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def variables(folder: Path) -> dict[str, str]:
    """The environment of all tools: one thread each, temporary files in `folder`."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder / "tmp"),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",  # what others use of this machine is no trial's fault
    }


def left_behind(folder: Path, pids: list[int]) -> list[str]:
    """Temporary files and folders, and shared memory of these processes; # is what was drawn."""
    names = [path.name for path in (folder / "tmp").iterdir()]
    names += [path.name for path in (folder / "results").rglob("*") if path.name[:4] == ".tmp"]
    shared = Path("/dev/shm")  # noqa: S108 only looked at
    for path in shared.iterdir() if shared.is_dir() else ():
        if any(int(number) in pids for number in re.findall(r"(?<!\d)\d+(?!\d)", path.name)):
            names.append(path.name)
    return sorted(_DRAWN.sub("#", name) for name in names)
