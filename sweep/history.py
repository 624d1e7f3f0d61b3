"""The history of a sweep in memory: a fold over its events, and what schedulers and searchers read.

The same fold runs when the driver records an event and when a ledger is read, so a resumed driver
sees exactly what the first one saw. Schedulers and searchers treat what they are handed as
read-only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sweep import comparison
from sweep.events import (
    FINISHED,
    Closed,
    Created,
    End,
    EpochBegan,
    EpochEnded,
    Metrics,
    Moved,
    Opened,
    Recorded,
    SpaceExhausted,
    Status,
    Warmed,
    Widened,
)
from sweep.objective import Objective
from sweep.replica import Point, Replica
from sweep.trial import Rest, Trial, rank_key

__all__ = ["History", "Objective", "Point", "Replica", "Rest", "Trial", "rank_key"]


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
        self.exhausted = ""
        """Why there is no further point; empty while there may be one."""
        self.earlier: list[Trial] = []
        """Trials of another sweep, for searchers; they have numbers below 0."""

    def of(self, *statuses: Status) -> list[Trial]:
        """The trials with one of these statuses, by number."""
        return [trial for trial in self.trials if trial.status in statuses]

    def replicas(self, *statuses: Status) -> list[Replica]:
        """The replicas with one of these statuses, by trial and index."""
        everyone = (replica for trial in self.trials for replica in trial.replicas)
        return [replica for replica in everyone if replica.status in statuses]

    def children(self, parent: int) -> list[Trial]:
        """The trials that were bred from `parent`, by number."""
        return [trial for trial in self.trials if trial.parent == parent]

    def ranked(self, trials: Iterable[Trial] | None = None) -> list[Trial]:
        """Trials with a score, best first."""
        chosen = self.trials if trials is None else trials
        scored = [trial for trial in chosen if trial.score is not None]
        return comparison.ranked(scored, self.objective)

    def front(self) -> list[Trial]:
        """The trials that none is better than in every objective, best in the metric first."""
        return comparison.front(self.trials, self.objective)

    @property
    def to_create(self) -> int:
        """How many searched settings are still to be proposed."""
        return 0 if self.exhausted else max(0, self.wanted - self.searched)

    @property
    def searched(self) -> int:
        """How many trials have searched settings; bred ones do not count."""
        return sum(trial.parent is None for trial in self.trials)

    # ---- the fold ---------------------------------------------------------------------------

    def extend(self, recorded: Sequence[Recorded]) -> None:
        """Take in events in the order of their numbers."""
        for record in recorded:
            event = record.event
            match event:
                case EpochBegan() | EpochEnded():
                    self._turn(event, record)
                case Warmed() | Widened() | SpaceExhausted():
                    self._supply(event)
                case _:
                    self._apply(event, record)
                    self._note(self.trials[event.trial], record.k)
            self.k = record.k

    def _turn(self, event: EpochBegan | EpochEnded, record: Recorded) -> None:
        if isinstance(event, EpochEnded):
            self.ended = event.how
            return
        self.epoch, self.wanted, self.ended = record.epoch, event.trials, ""
        self.began_at = self.began_at or record.at

    def _supply(self, event: Warmed | Widened | SpaceExhausted) -> None:
        """What searchers find beside the sweep's own trials."""
        if isinstance(event, Warmed):
            self.earlier = [self._warm(place, taken) for place, taken in enumerate(event.trials)]
            return
        self.exhausted = event.reason if isinstance(event, SpaceExhausted) else ""

    def _apply(self, event: Created | Opened | Closed | Moved, record: Recorded) -> None:
        match event:
            case Created():
                self._create(event)
            case Opened():
                self._open(self._replica(event), event, record.at)
            case Closed():
                self._close(self._replica(event), event, record.at)
            case Moved():
                replica = self._replica(event)
                replica.waited = event.waited
                self._move(replica, event.status, event.reason, record.at)

    def _note(self, trial: Trial, k: int) -> None:
        """Remember that something happened to a trial, and what it is worth if it rests now."""
        trial.k = k
        status = trial.status
        if status not in (Status.WAITING, Status.RUNNING) and not trial.unfinished:
            trial.rests.append(Rest(k, status, trial.score, trial.others, trial.violations))

    def _create(self, event: Created) -> None:
        searched, config = dict(event.searched), dict(event.config)
        births = event.births or (None,) * event.replicas
        trial = Trial.new(event.trial, searched, config, self.objective, births)
        trial.seen = event.seen
        self.trials.append(trial)

    def _warm(self, place: int, taken: Mapping[str, Any]) -> Trial:
        number, curves = -1 - place, taken["curves"]
        trial = Trial.new(
            number, dict(taken["searched"]), {}, self.objective, (None,) * len(curves)
        )
        for replica, curve in zip(trial.replicas, curves, strict=True):
            replica.curve = [
                Point(point[0], point[1], point[2], tuple(point[3:])) for point in curve
            ]
            replica.status = Status(taken["status"])
        trial.rests = [Rest(0, trial.status, trial.score, trial.others, trial.violations)]
        return trial

    def _replica(self, event: Opened | Closed | Moved) -> Replica:
        """The replica that an event is about; one that is opened first is added to its trial."""
        trial = self.trials[event.trial]
        if event.replica == len(trial.replicas):
            trial.replicas.append(Replica(trial.number, event.replica, self.objective))
        return trial.replicas[event.replica]

    def _open(self, replica: Replica, event: Opened, at: float) -> None:
        replica.goal = event.goal
        replica.slices = event.slice + 1
        replica.started_at = replica.started_at or at
        self._move(replica, Status.RUNNING, event.why, at)

    def _close(self, replica: Replica, event: Closed, at: float) -> None:
        del replica.curve[_count_upto(replica.curve, event.source) :]
        replica.curve += [self._point(row.iteration, row.metrics) for row in event.rows]
        if event.rows:
            replica.last = event.rows[-1].metrics
        for saved in event.saved:
            replica.checkpoints[saved.digest] = saved
        for digest in event.dropped:
            replica.checkpoints.pop(digest, None)
        replica.error = event.error or replica.error
        replica.exactness = event.exactness or replica.exactness
        self._charge(replica, event)
        self._move(replica, event.status, event.reason, at)

    def _charge(self, replica: Replica, event: Closed) -> None:
        """Count what the replica is to blame for; a slice that ended well clears lost workers."""
        if event.end is End.LOST:
            replica.lost += 1
        elif event.end is not End.INTERRUPTED:
            replica.lost = 0
        replica.crashes = [at for at in replica.crashes if at > replica.iteration]
        if event.end is End.CRASHED:
            replica.crashes.append(event.error_at)

    def _point(self, iteration: int, metrics: Metrics) -> Point:
        objective = self.objective
        time = _number(metrics.get(objective.time_attr))
        return Point(
            iteration,
            float(iteration) if time is None else time,
            _number(metrics.get(objective.metric)),
            tuple(_number(metrics.get(path)) for path in objective.other_results),
        )

    def _move(self, replica: Replica, status: Status, reason: str, at: float) -> None:
        if replica.status is Status.FAILED:
            replica.lost, replica.crashes = 0, []
        replica.status, replica.reason = status, reason
        replica.ended_at = at if status in FINISHED else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _count_upto(curve: Sequence[Point], iteration: int) -> int:
    return sum(1 for point in curve if point.iteration <= iteration)
