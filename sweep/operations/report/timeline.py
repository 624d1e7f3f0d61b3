"""Slices over the time in which a driver ran, rungs, and the use of time.

Gaps without a driver are left out. Times are in seconds since the sweep began.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.history.events import (
    Closed,
    FinalEvaluationBegan,
    LimitsChanged,
    Opened,
    Recorded,
    Reported,
    Status,
    TermBegan,
)
from sweep.history.results import to_number
from sweep.history.seeds import is_test, replica_name
from sweep.history.trial import Trial
from sweep.schedulers._shared.rungs import is_waiting
from sweep.views.lookup import Sweep

Data = dict[str, Any]

#: Maximum number of bars drawn; short neighbours are merged.
MOST_BARS = 6000
#: Name of a trainer's timer in results → description.
_TIMERS = {
    "timers/sample_time_ms": "sampling",
    "timers/learn_time_ms": "learning",
    "timers/sample_and_learn_time_ms": "sampling and learning",
    "timers/synch_time_ms": "synchronising",
    "timers/evaluation_time_ms": "evaluation",
}


@dataclass(frozen=True)
class Clock:
    """A clock that counts seconds since the sweep began, and stands still while no driver runs."""

    spans: Sequence[tuple[int, float, float]]
    """Term of each driver, with the dates of its first and last event, in seconds since 1970."""

    @classmethod
    def of(cls, records: Sequence[Recorded]) -> "Clock":
        """Return the clock of the sweep whose events these are.

        Events of term 0, which belong to no driver, are ignored.
        """
        spans: dict[int, tuple[float, float]] = {}
        for record in records:
            first, _ = spans.get(record.term, (record.time, record.time))
            spans[record.term] = (first, record.time)
        return cls([(term, *span) for term, span in sorted(spans.items()) if term])

    @property
    def total(self) -> float:
        """Seconds for which drivers ran."""
        return sum(max(0.0, last - first) for _, first, last in self.spans)

    def seconds_until(self, date: float) -> float:
        """Return the seconds for which drivers had run by a date, in seconds since 1970."""
        return sum(
            min(max(0.0, date - first), max(0.0, last - first)) for _, first, last in self.spans
        )


@dataclass(frozen=True)
class Bar:
    """A slice in the picture of slots over time."""

    start: float
    """Start of the slice, in seconds on the `Clock`."""
    end: float
    """End of the slice, in seconds on the `Clock`."""
    replica: str
    """Name of the replica, such as ``12.1``."""
    rung: int
    """Index of the rung that the slice was to reach; -1 without one, -2 for a test seed."""
    reason: str
    """Reason for which the slice was started, as a text."""
    lane: int = 0
    """Index of the slot in which the slice ran."""


def bars(sweep: Sweep, clock: Clock) -> list[Bar]:
    """Return a bar for each slice of a sweep; one without an end ends with its driver.

    The slots are inferred from the order of events, as the ledger does not record them. A slice
    that got none before its driver ended has no bar.
    """
    slots, before = _Slots(), 0.0
    for record in sweep.records:
        event = record.event
        match event:
            case TermBegan() | FinalEvaluationBegan():
                slots.clear(before)
                slots.count = event.jobs
            case LimitsChanged() if event.jobs is not None:
                slots.count = event.jobs
            case Opened():
                slots.open(event, record.time)
            case Closed():
                slots.close((event.trial, event.replica), record.time)
        before = record.time
    slots.clear(before)
    seconds = clock.seconds_until
    return [
        Bar(seconds(start), seconds(end), *_named(event, sweep), event.reason, lane)
        for event, start, end, lane in slots.slices
    ]


def _named(event: Opened, sweep: Sweep) -> tuple[str, int]:
    """Return the name of a slice's replica, and the index of the slice's rung (`Bar.rung`)."""
    rung = -1
    if is_test(event.replica):
        rung = -2
    elif event.goal.until in sweep.aim.levels:
        rung = sweep.aim.levels.index(event.goal.until)
    return replica_name(event.trial, event.replica), rung


#: Number of a trial, and index of its replica.
_Key = tuple[int, int]


@dataclass
class _Slots:
    """Assigns slices to slots, by the order in which they were opened and closed.

    More slices may be open than there are slots: the seeds of one trial are opened together, and
    the pool starts them one after another.
    """

    count: int | None = None
    """Number of slots; None if not recorded, which means no limit."""
    slices: list[tuple[Opened, float, float, int]] = field(default_factory=list)
    """Slices that have ended, each with its start and end as dates and the index of its slot."""
    _running: dict[_Key, tuple[Opened, float, int]] = field(default_factory=dict)
    """Trial and replica → the slice that runs, the date of its start and the index of its slot."""
    _queue: dict[_Key, Opened] = field(default_factory=dict)
    """Trial and replica → the opened slice that waits for a slot, first come first."""

    def open(self, event: Opened, time: float) -> None:
        """Add a slice that was opened at the date `time` to the queue, and fill free slots."""
        self._queue[event.trial, event.replica] = event
        self._fill(time)

    def close(self, key: _Key, time: float) -> None:
        """End the slice of a trial and replica at the date `time`, and fill free slots.

        If it was thought to wait, it takes the place of the slice that started last, which waits
        again.
        """
        if key in self._queue and self._running:  # it started before one that was opened earlier
            other = max(self._running, key=lambda one: self._running[one][1])
            event, start, lane = self._running.pop(other)
            self._running[key] = (self._queue.pop(key), start, lane)
            self._queue = {other: event, **self._queue}
        if key in self._running:
            event, start, lane = self._running.pop(key)
            self.slices.append((event, start, time, lane))
        self._fill(time)

    def clear(self, time: float) -> None:
        """End all running slices at the date `time`, at which their driver ended.

        Slices that wait for a slot are dropped.
        """
        self._queue.clear()
        for key in list(self._running):
            self.close(key, time)

    def _fill(self, time: float) -> None:
        """Start waiting slices in the free slots with the lowest indices, at the date `time`."""
        while self._queue and (self.count is None or len(self._running) < self.count):
            key, event = next(iter(self._queue.items()))
            del self._queue[key]
            taken = {lane for _, _, lane in self._running.values()}
            lane = next(lane for lane in itertools.count() if lane not in taken)
            self._running[key] = (event, time, lane)


def lanes(bars: Iterable[Bar]) -> int:
    """Return the number of slots that any of the bars uses."""
    return 1 + max((bar.lane for bar in bars), default=-1)


def merge_bars(bars: Sequence[Bar], limit: int = MOST_BARS) -> list[Bar]:
    """Merge neighbours in a slot until there are at most `limit` bars; return these.

    Neighbours of one replica and rung are merged first, then short ones. A merged bar of several
    trials has the first one's name with an ellipsis.
    """
    merged = _merge(bars, 0.0)
    span = max((bar.end for bar in bars), default=0.0)
    grain = span / (4 * limit)
    while len(merged) > limit:
        grain *= 2
        merged = _merge(merged, grain)
    return merged


def _merge(bars: Sequence[Bar], grain: float) -> list[Bar]:
    """Merge each bar with the one before it in its slot where `_is_mergeable` says so.

    The result is ordered by slot. `grain` is in seconds.
    """
    lanes: dict[int, list[Bar]] = defaultdict(list)
    for bar in bars:
        row = lanes[bar.lane]
        last = row[-1] if row else None
        if last is not None and _is_mergeable(last, bar, grain):
            who = (
                last.replica
                if last.replica == bar.replica
                else f"{last.replica.removesuffix(' …')} …"
            )
            row[-1] = Bar(last.start, bar.end, who, last.rung, last.reason, bar.lane)
        else:
            row.append(bar)
    return [bar for row in lanes.values() for bar in row]


def _is_mergeable(previous: Bar, bar: Bar, grain: float) -> bool:
    """Return whether two neighbours in a slot are merged.

    They are if they last less than `grain` seconds together, or are of one replica and rung with a
    gap of less than half a second or `grain`.
    """
    if bar.end - previous.start < grain:
        return True
    same = previous.replica == bar.replica and previous.rung == bar.rung
    return same and bar.start - previous.end < max(0.5, grain)


def rungs(sweep: Sweep) -> list[Data]:
    """Return the numbers of trials that reached each rung, continued beyond it, and wait there.

    Each entry, from the lowest rung up, has the keys ``reached``, ``on`` (goal beyond the rung, or
    COMPLETED) and ``waiting``. Rungs that no trial reached are left out.
    """
    levels, trials = sweep.aim.levels, sweep.history.trials
    rows = []
    for level in levels:
        there = [trial for trial in trials if trial.reached(level)]
        done = sum(trial.status is Status.COMPLETED or _is_beyond(trial, level) for trial in there)
        waiting = sum(is_waiting(trial) and not _is_beyond(trial, level) for trial in there)
        if there:
            rows.append({"reached": len(there), "on": done, "waiting": waiting})
    return rows


def _is_beyond(trial: Trial, level: float) -> bool:
    """Return whether a trial may train beyond a rung: its goal is further, or has no limit."""
    goal = trial.goal.until
    return goal is None or goal > level


def time_use(sweep: Sweep, bars: Sequence[Bar], clock: Clock) -> Data:
    """Return the use of the slots' time, in seconds.

    ``parts`` has it by activity, free slots included; ``fates`` has the training alone, by the
    present status of the trials and ``TESTS`` for test seeds. Entries of 0 are left out.
    """
    busy = sum(bar.end - bar.start for bar in bars)
    training = _training(sweep)
    trained = sum(training.values())
    parts = {**training, "start, restore, save": max(0.0, busy - trained)}
    parts["free slots"] = max(0.0, _slot_time(sweep, clock, lanes(bars)) - busy)
    fates: dict[str, float] = defaultdict(float)
    for trial in sweep.history.trials:
        fates[trial.status.value] += trial.seconds
        tests = sum(test.seconds for test in trial.test_replicas)
        if tests:
            fates["TESTS"] += tests
    ordered = {status.value: fates[status.value] for status in Status} | {"TESTS": fates["TESTS"]}
    return {
        "parts": {name: value for name, value in parts.items() if value > 0},
        "fates": {name: value for name, value in ordered.items() if value > 0},
    }


def _slot_time(sweep: Sweep, clock: Clock, used: int) -> float:
    """Return the time of all slots together while drivers ran, in seconds.

    `used` is the number of slots for drivers that did not record theirs.
    """
    total, count, since = 0.0, used, 0.0
    for record in sweep.records:
        jobs = getattr(record.event, "jobs", None)
        if jobs is not None:
            at = clock.seconds_until(record.time)
            total, count, since = total + count * (at - since), jobs, at
    return total + count * (clock.total - since)


def _training(sweep: Sweep) -> dict[str, float]:
    """Return activity → seconds of all trials, by the timers in results.

    Test seeds are included. The time of iterations that no timer covers has the key ``other
    training``, or ``training`` if the results have no timers. Activities without time are left out.
    """
    parts: dict[str, float] = defaultdict(float)
    whole = 0.0
    for record in sweep.records:
        if isinstance(record.event, Reported | Closed):
            for row in record.event.new_rows:
                whole += _amount(row.metrics, "time_this_iter_s")
                if "timers/sample_time_ms" in row.metrics:
                    for key, name in _TIMERS.items():
                        parts[name] += _amount(row.metrics, key) / 1000
    named = {name: parts[name] for name in _TIMERS.values() if parts[name] > 0}
    rest = whole - sum(named.values())
    other = "other training" if named else "training"
    return {**named, other: rest} if rest > 0 else named


def _amount(metrics: Mapping[str, Any], key: str) -> float:
    """Return the number under `key` in a result's metrics.

    Returns 0 if it is missing, no number, below 0, or 1e12 and more.
    """
    value = to_number(metrics.get(key))
    return value if value is not None and 0 < value < 1e12 else 0.0
