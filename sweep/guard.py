"""Hard limits of slices that run: memory, time and standstill, watched from outside.

A slice ends itself at `limits.trial_s` after the iteration in which it passes it; one whose
iteration does not end is ended here. Only the process of that slice is ended, with its children,
and only its trial is charged. Times are seconds on the monotonic clock, memory is bytes.
"""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import psutil

from sweep import estimates
from sweep.assignment import SliceOutcome
from sweep.errors import LimitPassed, SweepError, WorkerLost
from sweep.events import Opened
from sweep.parts import Parts
from sweep.replica import Replica
from sweep.spec.sizes import in_words

#: Seconds between two measurements of memory.
MEASURE_S = 1.0
#: Seconds that an iteration may go on after its trial's time is over.
GRACE_S = 30.0


@dataclass
class _Seen:
    """What is known of a slice on its way."""

    began: float
    note: int = 0
    """When its note of progress was last written, on the file system's clock."""
    moved: float = 0.0
    """When that was seen to change."""


class Guard:
    """Ends slices that pass a hard limit."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._limits = parts.spec.limits
        self._seen: dict[Future[SliceOutcome], _Seen] = {}
        self._measured_at = float("-inf")

    def look(self, running: Mapping[Future[SliceOutcome], Opened]) -> None:
        """Look at all slices; their futures fail with the reason where a limit was passed."""
        limits = self._limits
        if limits.trial_s is None and limits.trial_memory is None and limits.no_progress_s is None:
            return
        now = time.monotonic()
        self._seen = {future: self._seen.get(future, _Seen(now, moved=now)) for future in running}
        measures = now - self._measured_at >= MEASURE_S
        if measures:
            self._measured_at = now
        for future, opened in running.items():
            replica = self._parts.history.replica(opened.trial, opened.replica)
            pid = None if future.done() else self._parts.pool.pid(future)
            if pid is None:
                continue
            found = next(self._passed(self._seen[future], replica, now, pid, measures), None)
            if found is not None:
                self._parts.pool.end(future, found)

    def _passed(
        self, seen: _Seen, replica: Replica, now: float, pid: int, measures: bool
    ) -> Iterator[SweepError]:
        limits = self._limits
        if limits.trial_s is not None:
            left = limits.trial_s - _kept_seconds(replica)
            if now - seen.began > max(0.0, left) + GRACE_S:
                yield LimitPassed(
                    f"limits.trial_s: {limits.trial_s:g} s of training are over, and its "
                    f"iteration did not end within {GRACE_S:g} s"
                )
        if limits.no_progress_s is not None:
            self._note(seen, self._parts.folder.trial(replica.trial, replica.index), now)
            if now - seen.moved > limits.no_progress_s:
                yield WorkerLost(None, pid, f"no progress for {limits.no_progress_s:g} s")
        if limits.trial_memory is not None and measures:
            used = _memory(pid)
            if used > limits.trial_memory:
                allowed = in_words(limits.trial_memory)
                why = f"limits.trial_memory: {in_words(used)} used, {allowed} allowed"
                yield WorkerLost(None, pid, why)

    @staticmethod
    def _note(seen: _Seen, folder: Path, now: float) -> None:
        try:
            note = (folder / "progress.json").stat().st_mtime_ns
        except OSError:
            return
        if note != seen.note:
            seen.note, seen.moved = note, now


def _kept_seconds(replica: Replica) -> float:
    """Training up to the newest checkpoint; what came after it may be done again."""
    saved = replica.newest.iteration if replica.newest else 0
    return estimates.total(p.seconds for p in replica.curve if p.iteration <= saved)


def _memory(pid: int) -> int:
    """Resident memory of a process and all its descendants, those that are gone left out."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(_resident(member) for member in family)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
