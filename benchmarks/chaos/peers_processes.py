"""A tested tool as a tree of processes that is started, killed, counted and ended.

All processes of one launch inherit an environment variable with a unique value, by which they are
found in any process group and session and under any parent.
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
"""Name of this variable."""
#: Time limit of a run, in seconds.
LIMIT_S = 900.0
POLL_S = 0.01
#: Finds the random part of a temporary file's name.
_RANDOM = re.compile(r"(?<=^tmp).*|\d.*")
#: Error of Ray if its processes do not start within 30 s, a limit that cannot be changed.
_TOO_BUSY = "The current node timed out during startup"
_ERROR = re.compile(r"^(?:\x1b\[\d+m)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))\b", re.M)


@dataclass(frozen=True)
class Tool:
    """A tested tool."""

    name: str
    """Name in the table."""
    python: str
    """Interpreter."""
    module: str
    """Module of its program."""
    options: tuple[str, ...] = ()
    """Further arguments of the program."""

    def call(self, action: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        """Run the program to its end and capture its output."""
        command = [self.python, "-m", self.module, action, str(folder), *self.options]
        return subprocess.run(  # noqa: S603 our own module
            command,
            capture_output=True,
            text=True,
            env=variables(folder),
            timeout=LIMIT_S,
            check=False,
        )


class Launched:
    """One launch of a tool in `folder`, in a session of its own, with its output in a file."""

    def __init__(self, tool: Tool, folder: Path, number: int) -> None:
        self.mark = uuid.uuid4().hex
        self.output = folder / f"output.{number}"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(  # noqa: S603 our own module
                [tool.python, "-m", tool.module, "run", str(folder), *tool.options],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
                env={**variables(folder), MARK: self.mark},
            )

    @property
    def is_running(self) -> bool:
        """True while the driver runs."""
        return self.process.poll() is None

    def failure(self) -> str:
        """Wait for the driver; return its failure, empty if it succeeded.

        Raises Failed if the machine was too busy to start the tool.
        """
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"no end after {LIMIT_S:.0f} s"
        if not code:
            return ""
        output = self.output.read_text(errors="replace")
        if _TOO_BUSY in output:
            raise Failed(f"the machine is too busy: {_TOO_BUSY}")
        errors = _ERROR.findall(output)
        return errors[-1].split(".")[-1] if errors else f"exit code {code}"

    def pids(self) -> list[int]:
        """Return the ids of the launch's processes that have not ended."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Kill all remaining processes."""
        while pids := self.pids():
            for pid in pids:
                send_sigkill(pid)
            time.sleep(POLL_S)
        self.process.wait()


def send_sigkill(pid: int, group: bool = False) -> bool:
    """Kill a process or its group; return whether it existed."""
    try:
        (os.killpg if group else os.kill)(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def variables(folder: Path) -> dict[str, str]:
    """Return the environment variables of all tools: one thread, temporary files in `folder`."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(folder / "tmp"),
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",  # other programs use memory, too
    }


def left_behind(folder: Path, pids: list[int]) -> list[str]:
    """Return the names of temporary files, and of shared memory of these processes.

    The random part of a name is replaced by #.
    """
    names = [path.name for path in (folder / "tmp").iterdir()]
    names += [path.name for path in (folder / "results").rglob("*") if path.name[:4] == ".tmp"]
    shared = Path("/dev/shm")  # noqa: S108 only read
    for path in shared.iterdir() if shared.is_dir() else ():
        if any(int(number) in pids for number in re.findall(r"(?<!\d)\d+(?!\d)", path.name)):
            names.append(path.name)
    return sorted(_RANDOM.sub("#", name) for name in names)
