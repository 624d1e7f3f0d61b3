"""kill -9 of a tool during a search, followed by the restart that its documentation recommends.

The time of a kill is a random number of trained iterations, the same for every tool. A driver is
killed with its process group or alone, and restarted at once. A worker is killed in a trial; the
tool may continue by itself, and is restarted if it has ended.
"""

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chaos import peer_curve, peers_oracle
from benchmarks.chaos.peers_processes import POLL_S, Launched, Tool, left_behind, send_sigkill
from benchmarks.chaos.store_cases import Failed
from trainables.core import rng

KINDS = ("group", "driver", "worker")
#: Iterations before a kill and after it, at least.
MARGIN = 5
#: Seconds from a kill until the remaining processes are counted.
LEFT_AFTER_S = 5.0
#: Number of restarts of a tool that fails, at most.
RESTARTS = 2


@dataclass(frozen=True)
class Kill:
    """One kill."""

    kind: str
    """One of `KINDS`."""
    iterations: int
    """Number of iterations of all trials before the kill."""
    delay: float
    """Further seconds before the kill."""


def draw(kind: str, number: int, seed: int) -> Kill:
    """Return a random kill, which is the same for every tool."""
    stream = rng.generator(seed, "peers", kind, number)
    last = peer_curve.TRIALS * peer_curve.ITERATIONS - MARGIN
    iterations = int(stream.integers(MARGIN, last, endpoint=True))
    return Kill(kind, iterations, float(stream.uniform(0.0, 2 * peer_curve.STEP_S)))


class Run:
    """A folder in which a tool runs, and all its launches."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.folder = Path(tempfile.mkdtemp(prefix="peers-"))
        self.launched: list[Launched] = []
        self.seen: set[int] = set()

    def start(self) -> Launched:
        """Start or continue the search."""
        (self.folder / "answer.json").unlink(missing_ok=True)
        launch = Launched(self.tool, self.folder, len(self.launched))
        self.launched.append(launch)
        return launch

    def pids(self) -> list[int]:
        """Return the running processes of all launches, and add them to `seen`."""
        found = [pid for launched in self.launched for pid in launched.pids()]
        self.seen.update(found)
        return found

    def close(self, keep: bool) -> None:
        """End all processes; delete the folder unless `keep`."""
        for launched in self.launched:
            launched.end()
        if keep:
            sys.stderr.write(f"{self.folder} is kept\n")
        else:
            shutil.rmtree(self.folder)


def run_undisturbed(tool: Tool, keep: bool = False) -> dict[str, Any]:
    """Run without kills; return its figures, which should have no errors."""
    run = Run(tool)
    try:
        return {"ends": run.start().failure(), **_figures(run)}
    finally:
        run.close(keep)


def run_killed(tool: Tool, kill: Kill, keep: bool = False) -> dict[str, Any]:
    """Kill a run and restart it; return its figures.

    Raises Failed if the run had ended before the kill.
    """
    run = Run(tool)
    try:
        first = run.start()
        while first.is_running and len(peer_curve.read_log(run.folder)) < kill.iterations:
            time.sleep(POLL_S)
        time.sleep(kill.delay)
        run.pids()
        if not first.is_running or not _kill(run, first, kill.kind):
            raise Failed(
                f"no process to kill after {kill.iterations} iterations: {first.failure()}"
            )
        steps = len(peer_curve.read_log(run.folder))
        figures = _after_worker(run, first) if kill.kind == "worker" else _after_driver(run, first)
        return {"at": steps, **figures, **_figures(run)}
    finally:
        run.close(keep)


def _kill(run: Run, first: Launched, kind: str) -> bool:
    if kind == "worker":
        return send_sigkill(peer_curve.read_log(run.folder)[-1][2])
    return send_sigkill(first.process.pid, group=kind == "group")


def _after_driver(run: Run, first: Launched) -> dict[str, Any]:
    """Restart the tool at once, and count the remaining processes of the first launch."""
    first.process.wait()
    then = time.monotonic()
    again = run.start()
    time.sleep(max(0.0, then + LEFT_AFTER_S - time.monotonic()))
    left = len(first.pids())
    failed = _until_it_ends(run, again)
    return {"left": left, "left_at_end": len(first.pids()), "begun": 1 + len(failed), "why": failed}


def _after_worker(run: Run, first: Launched) -> dict[str, Any]:
    why = first.failure()
    if not why:
        return {"begun": 0, "why": []}
    failed = _until_it_ends(run, run.start())
    return {"begun": 1 + len(failed), "why": [why, *failed]}


def _until_it_ends(run: Run, again: Launched) -> list[str]:
    """Restart the tool until it succeeds; return the failure of each attempt."""
    failed: list[str] = []
    while why := again.failure():
        failed.append(why)
        if len(failed) == RESTARTS:
            break
        again = run.start()
    return failed


def _figures(run: Run) -> Mapping[str, Any]:
    left = left_behind(run.folder, [*run.seen, *run.pids()])
    answer = run.folder / "answer.json"
    if not answer.exists():  # the tool has not written it
        read = run.tool.call("read", run.folder)
        if read.returncode:
            return {
                "unread": read.stderr.strip().splitlines()[-1][:200],
                "files": dict(Counter(left)),
            }
    trials = json.loads(answer.read_text())
    return {**peers_oracle.judge(trials, run.folder), "files": dict(Counter(left))}
