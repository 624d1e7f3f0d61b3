"""Faults by strace: each system call of a tool's saves fails, or is its last one.

The tool's own process (`peer_saver`) has imported all modules and saved once. Then it is traced and
saves again. The last acknowledged checkpoint must then be readable and right. Calls are counted per
thread, as by strace, so a fault may occur twice in two threads.
"""

import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.chaos import peer_curve
from benchmarks.chaos.peer_saver import SAVES
from benchmarks.chaos.peers_processes import LIMIT_S, POLL_S, Tool, variables
from benchmarks.chaos.store_cases import Failed
from benchmarks.chaos.store_crashes import fast_folder
from benchmarks.chaos.store_faults import CALLS

FAULTS = ("error=EIO", "signal=KILL", "error=ENOSPC")
TRACED = (*CALLS, "open", "creat", "link", "linkat", "ftruncate", "sendfile", "copy_file_range")
_STRACE = ("strace", "-qq", "-f", "-e", "signal=none")


class Savers:
    """The process of a tool that saves in child processes."""

    def __init__(self, tool: Tool) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="peers-", dir=fast_folder())
        self.number = 0
        self._process = subprocess.Popen(  # noqa: S603 our own module
            [tool.python, "-m", tool.module, "save"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables(Path(self.scratch.name)),
        )

    def __enter__(self) -> "Savers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        with self._process:  # closes its pipes and waits for it
            pass
        self.scratch.cleanup()

    def saves(self, options: list[str]) -> tuple[Path, list[dict[str, Any]], str]:
        """Save while strace traces; return the folder, the answers, and the trace."""
        self.number += 1
        folder = Path(self.scratch.name) / str(self.number)
        folder.mkdir()
        begun = self.ask(do="save", folder=str(folder))
        log = Path(self.scratch.name) / "log"
        strace = subprocess.Popen(  # noqa: S603
            [*_STRACE, *options, "-o", str(log), "-p", str(begun["pid"])],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait_until_traced(begun["pid"])
        answers = [{"saved": 0, "token": begun["token"]}, self.ask(do="go")]
        while "ended" not in answers[-1]:
            answers.append(self._answer())
        strace.wait(LIMIT_S)
        return folder, answers, log.read_text(errors="replace")

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request; return the next answer."""
        assert self._process.stdin  # noqa: S101 it is a pipe
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout  # noqa: S101 it is a pipe
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise Failed("the process that saves has ended")


def calls(savers: Savers) -> dict[str, tuple[int, int]]:
    """Return system call → (largest number of one thread, number of all threads)."""
    _, _, log = savers.saves(["-e", f"trace={','.join(TRACED)}"])
    counts = Counter(re.findall(r"^(\d+) +(\w+)\(", log, re.MULTILINE))
    names = sorted({call for _, call in counts})
    return {
        name: (
            max(count for (_, call), count in counts.items() if call == name),
            sum(count for (_, call), count in counts.items() if call == name),
        )
        for name in names
    }


def all_fail(savers: Savers, call: str, count: int, fault: str) -> dict[str, int]:
    """Let the first call of each thread fail, in other runs the second, and so on.

    Args:
        call: name of the system call.
        count: number of calls of a thread.
        fault: fault as an option of strace.

    Returns:
        The numbers of runs, of faults that occurred, of lost checkpoints, and of refused saves.
    """
    found: Counter[str] = Counter(tried=0, struck=0, lost=0, refused=0)
    for nth in range(1, count + 1):
        inject = f"inject={call}:{fault}:when={nth}"
        folder, answers, log = savers.saves(["-e", f"trace={call}", "-e", inject])
        found["tried"] += 1
        found["struck"] += log.count("(INJECTED)") or int(answers[-1]["ended"] != 0)
        found["refused"] += sum("refused" in line for line in answers)
        found["lost"] += _is_lost(savers, folder, [line for line in answers if "saved" in line][-1])
    return dict(found)


def _is_lost(savers: Savers, folder: Path, last: dict[str, Any]) -> bool:
    """Return True if neither the last acknowledged state nor a later one can be read."""
    loaded = savers.ask(do="load", folder=str(folder), token=last["token"])
    right = [peer_curve.expected(0, k)[1] for k in range(last["saved"], SAVES + 1)]
    return loaded.get("state") not in right


def _wait_until_traced(pid: int) -> None:
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        tasks = [task / "status" for task in Path(f"/proc/{pid}/task").iterdir()]
        if not any("TracerPid:\t0\n" in status.read_text() for status in tasks):
            return
        time.sleep(POLL_S)
    raise Failed(f"strace does not trace process {pid}")
