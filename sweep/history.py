"""The history of a sweep in memory: a fold over its events, and what schedulers and searchers read.

The same fold runs when the driver records an event and when a ledger is read, so a resumed driver
sees exactly what the first one saw. Schedulers and searchers treat what they are handed as
read-only.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.events import (
    FINISHED,
    Closed,
    Created,
    End,
    EpochBegan,
    EpochEnded,
    Event,
    Goal,
    Metrics,
    Moved,
    Opened,
    Recorded,
    Saved,
    Status,
)
from sweep.spec.score import Mode, Score


@dataclass(frozen=True)
class Objective:
    """What is compared, in which direction, and against which time."""

    metric: str
    mode: Mode
    score: Score
    time_attr: str = "training_iteration"

    @property
    def sign(self) -> float:
        """+1 where more is better, -1 where less is."""
        return 1.0 if self.mode == "max" else -1.0


@dataclass(frozen=True)
class Point:
    """One iteration on a curve; `time` is the value of ``time_attr``; None: not reported there."""

    iteration: int
    time: float
    value: float | None


@dataclass
class Trial:
    """One choice of settings and everything that happened to it."""

    number: int
    searched: dict[str, Any]
    config: dict[str, Any]
    objective: Objective
    status: Status = Status.WAITING
    reason: str = ""
    goal: Goal = field(default_factory=Goal)
    curve: list[Point] = field(default_factory=list)
    last: Metrics = field(default_factory=dict)
    """The newest result, all its keys; to look at, nothing is decided by it."""
    checkpoints: dict[str, Saved] = field(default_factory=dict)
    """Digest → checkpoint, oldest first; only those that are still kept."""
    slices: int = 0
    lost: int = 0
    """Slices lost to a dead worker since the last one that ended well."""
    crashes: list[int] = field(default_factory=list)
    """Iterations ahead at which the trainable raised, in order."""
    error: str = ""
    """The newest traceback."""
    exactness: str = ""
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def iteration(self) -> int:
        """Iterations finished."""
        return self.curve[-1].iteration if self.curve else 0

    @property
    def time(self) -> float:
        """The newest value of ``time_attr``."""
        return self.curve[-1].time if self.curve else 0.0

    def reached(self, level: float) -> bool:
        """Whether ``time_attr`` has been at least `level`."""
        return self.time >= level

    def score_at(self, level: float = math.inf) -> float | None:
        """The score over the curve up to the first iteration at or past `level`; None: none yet."""
        values: list[float] = []
        for point in self.curve:
            if point.value is not None:
                values.append(point.value)
            if point.time >= level:
                break
        return self.objective.score.reduce(values, self.objective.mode)

    @property
    def score(self) -> float | None:
        """The score over the whole curve."""
        return self.score_at()

    @property
    def unfinished(self) -> bool:
        """Whether it was interrupted on its way to a goal that was decided before."""
        on_the_way = self.goal.at is None or not self.reached(self.goal.at)
        return self.status is Status.PAUSED and on_the_way

    @property
    def newest(self) -> Saved | None:
        """The newest checkpoint that is kept."""
        return max(self.checkpoints.values(), key=lambda saved: saved.iteration, default=None)

    @property
    def best_checkpoint(self) -> Saved | None:
        """The checkpoint with the best value; of equals the newest; without values the newest."""
        valued = [saved for saved in self.checkpoints.values() if saved.value is not None]
        sign = self.objective.sign
        return max(
            valued, key=lambda s: (sign * (s.value or 0.0), s.iteration), default=self.newest
        )


def rank_key(trial: Trial, score: float | None) -> tuple[bool, float, int]:
    """Sorts best first; a missing score or NaN is last; of equals the older trial is first."""
    missing = score is None or math.isnan(score)
    return (missing, 0.0 if missing else -trial.objective.sign * (score or 0.0), trial.number)


class History:
    """All trials of a sweep up to event ``k``."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.trials: list[Trial] = []
        self.k = 0
        self.epoch = 0
        self.wanted = 0
        """The total of searched settings."""
        self.ended = ""
        """How the newest epoch ended; empty while it runs."""
        self.began_at = 0.0

    def of(self, *statuses: Status) -> list[Trial]:
        """The trials with one of these statuses, by number."""
        return [trial for trial in self.trials if trial.status in statuses]

    def ranked(self, trials: Iterable[Trial] | None = None) -> list[Trial]:
        """Trials with a score, best first."""
        chosen = self.trials if trials is None else trials
        scored = [trial for trial in chosen if trial.score is not None]
        return sorted(scored, key=lambda trial: rank_key(trial, trial.score))

    @property
    def to_create(self) -> int:
        """How many searched settings are still to be proposed."""
        return max(0, self.wanted - len(self.trials))

    # ---- the fold ---------------------------------------------------------------------------

    def extend(self, recorded: Sequence[Recorded]) -> None:
        """Take in events in the order of their numbers."""
        for record in recorded:
            self._apply(record.event, record)
            self.k = record.k

    def _apply(self, event: Event, record: Recorded) -> None:
        match event:
            case EpochBegan():
                self.epoch, self.wanted, self.ended = record.epoch, event.trials, ""
                self.began_at = self.began_at or record.at
            case EpochEnded():
                self.ended = event.how
            case Created():
                trial = Trial(event.trial, dict(event.searched), dict(event.config), self.objective)
                self.trials.append(trial)
            case Opened():
                self._open(self.trials[event.trial], event, record.at)
            case Closed():
                self._close(self.trials[event.trial], event, record.at)
            case Moved():
                self._move(self.trials[event.trial], event.status, event.reason, record.at)

    def _open(self, trial: Trial, event: Opened, at: float) -> None:
        trial.goal = event.goal
        trial.slices = event.slice + 1
        trial.started_at = trial.started_at or at
        self._move(trial, Status.RUNNING, event.why, at)

    def _close(self, trial: Trial, event: Closed, at: float) -> None:
        del trial.curve[_count_upto(trial.curve, event.source) :]
        trial.curve += [self._point(row.iteration, row.metrics) for row in event.rows]
        if event.rows:
            trial.last = event.rows[-1].metrics
        for saved in event.saved:
            trial.checkpoints[saved.digest] = saved
        for digest in event.dropped:
            trial.checkpoints.pop(digest, None)
        trial.error = event.error or trial.error
        trial.exactness = event.exactness or trial.exactness
        self._charge(trial, event)
        self._move(trial, event.status, event.reason, at)

    def _charge(self, trial: Trial, event: Closed) -> None:
        """Count what the trial is to blame for; a slice that ended well clears lost workers."""
        if event.end is End.LOST:
            trial.lost += 1
        elif event.end is not End.INTERRUPTED:
            trial.lost = 0
        trial.crashes = [at for at in trial.crashes if at > trial.iteration]
        if event.end is End.CRASHED:
            trial.crashes.append(event.error_at)

    def _point(self, iteration: int, metrics: Metrics) -> Point:
        value, time = metrics.get(self.objective.metric), metrics.get(self.objective.time_attr)
        return Point(
            iteration,
            float(time) if isinstance(time, int | float) else float(iteration),
            float(value) if isinstance(value, int | float) else None,
        )

    def _move(self, trial: Trial, status: Status, reason: str, at: float) -> None:
        if trial.status is Status.FAILED:
            trial.lost, trial.crashes = 0, []
        trial.status, trial.reason = status, reason
        trial.ended_at = at if status in FINISHED else None


def _count_upto(curve: Sequence[Point], iteration: int) -> int:
    return sum(1 for point in curve if point.iteration <= iteration)
