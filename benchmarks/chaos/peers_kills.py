"""Kill -9 of a tool while it searches, then whatever its documentation says one does.

Kills are drawn by how many iterations have been trained, not by the clock: the same draws for every
tool. A driver is killed with its process group or alone; it is begun again at once. A worker is
killed in a trial; the tool may go on by itself, and is begun again if it has ended.
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
from benchmarks.chaos.peers_processes import POLL_S, Launched, Tool, kill, left_behind
from benchmarks.chaos.store_cases import Failed
from trainables.core import rng

KINDS = ("group", "driver", "worker")
#: Kills come after so many of all iterations at least, and so many are left.
MARGIN = 5
#: Seconds after which processes are counted.
LEFT_AFTER_S = 5.0
#: How often a tool that fails is begun again.
BEGUN_AGAIN = 2


@dataclass(frozen=True)
class Kill:
    """Which process, and when: after `at` iterations of all trials and `delay` seconds more."""

    kind: str
    at: int
    delay: float


def draw(kind: str, number: int, seed: int) -> Kill:
    """The same for every tool."""
    stream = rng.generator(seed, "peers", kind, number)
    last = peer_curve.TRIALS * peer_curve.ITERATIONS - MARGIN
    at = int(stream.integers(MARGIN, last, endpoint=True))
    return Kill(kind, at, float(stream.uniform(0.0, 2 * peer_curve.STEP_S)))


class Run:
    """A folder in which a tool runs, and all that was begun there."""

    def __init__(self, tool: Tool) -> None:
        self.tool = tool
        self.folder = Path(tempfile.mkdtemp(prefix="peers-"))
        self.launched: list[Launched] = []
        self.seen: set[int] = set()

    def begin(self) -> Launched:
        """Begin, or go on."""
        (self.folder / "answer.json").unlink(missing_ok=True)
        begun = Launched(self.tool, self.folder, len(self.launched))
        self.launched.append(begun)
        return begun

    def pids(self) -> list[int]:
        """All processes of all launches; they are remembered."""
        found = [pid for launched in self.launched for pid in launched.pids()]
        self.seen.update(found)
        return found

    def close(self, keep: bool) -> None:
        """End what is left; keep the folder if something is to be looked at."""
        for launched in self.launched:
            launched.end()
        if keep:
            sys.stderr.write(f"{self.folder} is kept\n")
        else:
            shutil.rmtree(self.folder)


def undisturbed(tool: Tool, keep: bool = False) -> dict[str, Any]:
    """A run that nobody kills: what the questions find then is the tool's, or theirs."""
    run = Run(tool)
    try:
        return {"ends": run.begin().ends(), **_found(run)}
    finally:
        run.close(keep)


def killed(tool: Tool, how: Kill, keep: bool = False) -> dict[str, Any]:
    """Return the state found after a kill; raises Failed if it came too late."""
    run = Run(tool)
    try:
        first = run.begin()
        while first.running and len(peer_curve.notes(run.folder)) < how.at:
            time.sleep(POLL_S)
        time.sleep(how.delay)
        run.pids()
        if not first.running or not _strike(run, first, how.kind):
            raise Failed(f"nothing to kill after {how.at} iterations: {first.ends()}")
        steps = len(peer_curve.notes(run.folder))
        figures = _worker_gone(run, first) if how.kind == "worker" else _driver_gone(run, first)
        return {"at": steps, **figures, **_found(run)}
    finally:
        run.close(keep)


def _strike(run: Run, first: Launched, kind: str) -> bool:
    if kind == "worker":
        return kill(peer_curve.notes(run.folder)[-1][2])
    return kill(first.process.pid, group=kind == "group")


def _driver_gone(run: Run, first: Launched) -> dict[str, Any]:
    """Begin again at once; meanwhile count what the old one has left."""
    first.process.wait()
    then = time.monotonic()
    again = run.begin()
    time.sleep(max(0.0, then + LEFT_AFTER_S - time.monotonic()))
    left = len(first.pids())
    failed = _until_it_ends(run, again)
    return {"left": left, "left_at_end": len(first.pids()), "begun": 1 + len(failed), "why": failed}


def _worker_gone(run: Run, first: Launched) -> dict[str, Any]:
    why = first.ends()
    if not why:
        return {"begun": 0, "why": []}
    failed = _until_it_ends(run, run.begin())
    return {"begun": 1 + len(failed), "why": [why, *failed]}


def _until_it_ends(run: Run, again: Launched) -> list[str]:
    """Return the failure of each attempt until the run ends."""
    failed: list[str] = []
    while why := again.ends():
        failed.append(why)
        if len(failed) == BEGUN_AGAIN:
            break
        again = run.begin()
    return failed


def _found(run: Run) -> Mapping[str, Any]:
    left = left_behind(run.folder, [*run.seen, *run.pids()])
    answer = run.folder / "answer.json"
    if not answer.exists():  # the tool has not said it at its end
        read = run.tool.call("read", run.folder)
        if read.returncode:
            return {
                "unread": read.stderr.strip().splitlines()[-1][:200],
                "files": dict(Counter(left)),
            }
    trials = json.loads(answer.read_text())
    return {**peers_oracle.judge(trials, run.folder), "files": dict(Counter(left))}
