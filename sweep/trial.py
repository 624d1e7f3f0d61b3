"""A trial in memory: one choice of settings, trained under one seed or several.

A replica is a trial under one seed; it has the slices, the curve and the checkpoints. A trial has a
score, a status and a place in time as a group: it is at a rung when all its replicas are, and what
is compared is an aggregate of theirs. Most trials have one replica and are that replica. Where the
numbers come from is `sweep.history`'s; nothing here is written by anyone else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.events import FINISHED, Birth, Goal, Metrics, Saved, Status, group_status
from sweep.objective import Objective, rank
from sweep.spec.aggregate import combine
from sweep.spec.score import Mode


@dataclass(frozen=True)
class Point:
    """One iteration on a curve; `time` is the value of ``time_attr``; None: not reported there."""

    iteration: int
    time: float
    value: float | None
    others: tuple[float | None, ...] = ()
    """The results that `Objective.also` names, then those of the constraints."""


@dataclass
class Replica:
    """A trial under one seed and everything that happened to it."""

    trial: int
    index: int
    objective: Objective
    birth: Birth | None = None
    """The parent's checkpoint that it began from; None: from the beginning."""
    status: Status = Status.WAITING
    reason: str = ""
    waited: bool = False
    """Whether it was pruned only because the sweep ended while it waited."""
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
    def name(self) -> str:
        """What the trainable is told that it is called."""
        return f"{self.trial:05d}_{self.index}"

    @property
    def iteration(self) -> int:
        """Iterations finished, those of its ancestors included."""
        born_at = self.birth.saved.iteration if self.birth else 0
        return self.curve[-1].iteration if self.curve else born_at

    @property
    def time(self) -> float:
        """The newest value of ``time_attr``."""
        born_at = self.birth.time if self.birth else 0.0
        return self.curve[-1].time if self.curve else born_at

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

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """`score_at` each of some ascending levels, reading the curve once."""
        scores, values, points = [], list[float](), iter(self.curve)
        past = -math.inf
        for level in levels:
            while past < level and (point := next(points, None)) is not None:
                past = point.time
                if point.value is not None:
                    values.append(point.value)
            scores.append(self.objective.score.reduce(values, self.objective.mode))
        return scores

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

    def series(self, place: int) -> list[float]:
        """The values of one of `Point.others`, oldest first; iterations without one left out."""
        values = (point.others[place] for point in self.curve if point.others)
        return [value for value in values if value is not None]

    def value_at(self, iteration: int) -> Point | None:
        """The point of one iteration; None: its curve has none."""
        return next((point for point in self.curve if point.iteration == iteration), None)


@dataclass(frozen=True)
class Rest:
    """Where a trial came to rest, at a rung or at its end, and what it was worth then."""

    k: int
    """The number of the event."""
    status: Status
    score: float | None
    others: tuple[float | None, ...] = ()
    """The scores in the further objectives."""
    violations: tuple[float, ...] = ()
    """How far each constraint was broken; 0 or less: it held."""


@dataclass
class Trial:
    """One choice of settings; what is asked of it as a whole."""

    number: int
    searched: dict[str, Any]
    config: dict[str, Any]
    objective: Objective
    replicas: list[Replica]
    """By their index; never empty."""
    seen: int = 0
    """The number of the last event that its proposal was made after."""
    k: int = 0
    """The number of the newest event about it; 0: it is in no ledger yet."""
    rests: list[Rest] = field(default_factory=list)
    """What was known of it when, so that past proposals can be worked out again."""

    @classmethod
    def new(
        cls,
        number: int,
        searched: dict[str, Any],
        config: dict[str, Any],
        objective: Objective,
        births: Sequence[Birth | None] = (None,),
    ) -> "Trial":
        """A trial that waits; `births` has one entry for each replica."""
        replicas = [Replica(number, i, objective, birth) for i, birth in enumerate(births)]
        return cls(number, searched, config, objective, replicas)

    @property
    def parent(self) -> int | None:
        """The trial that it was bred from; None: its settings were searched."""
        birth = self.replicas[0].birth
        return None if birth is None else birth.trial

    @property
    def status(self) -> Status:
        """Where the group stands."""
        return group_status([replica.status for replica in self.replicas])

    @property
    def deciding(self) -> Replica:
        """The replica that says best why the group stands where it does."""
        status = self.status
        return next((r for r in self.replicas if r.status is status), self.replicas[0])

    @property
    def reason(self) -> str:
        """Why the group has its status, in words."""
        return self.deciding.reason

    @property
    def goal(self) -> Goal:
        """Up to where it was decided to run."""
        return self.replicas[0].goal

    @property
    def iteration(self) -> int:
        """Iterations that every replica has finished."""
        return min(replica.iteration for replica in self.replicas)

    @property
    def time(self) -> float:
        """The value of ``time_attr`` that every replica has reached."""
        return min(replica.time for replica in self.replicas)

    def reached(self, level: float) -> bool:
        """Whether the group is at `level`: every replica there, or completed before it."""
        there = [replica.reached(level) for replica in self.replicas]
        done = [replica.status is Status.COMPLETED for replica in self.replicas]
        return any(there) and all(a or b for a, b in zip(there, done, strict=True))

    def score_at(self, level: float = math.inf) -> float | None:
        """The aggregate of the replicas' scores at `level`; None: one of them has none yet."""
        return self._together([replica.score_at(level) for replica in self.replicas])

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """`score_at` each of some ascending levels, reading each curve once."""
        columns = [replica.scores_at(levels) for replica in self.replicas]
        return [self._together(scores) for scores in zip(*columns, strict=True)]

    def _together(self, scores: Sequence[float | None]) -> float | None:
        found = [score for score in scores if score is not None]
        if len(found) < len(scores):
            return None
        if len(found) == 1:
            return found[0]
        return combine(found, self.objective.aggregate, self.objective.mode)

    @property
    def score(self) -> float | None:
        """The score over the whole curve."""
        return self.score_at()

    @property
    def others(self) -> tuple[float | None, ...]:
        """The scores in the further objectives, each aggregated as the metric's."""
        return tuple(
            self._other(place, mode) for place, (_, mode) in enumerate(self.objective.also)
        )

    def _other(self, place: int, mode: Mode) -> float | None:
        scores = [self.objective.score.reduce(r.series(place), mode) for r in self.replicas]
        found = [score for score in scores if score is not None]
        if len(found) < len(scores):
            return None
        return combine(found, self.objective.aggregate, mode)

    @property
    def violations(self) -> tuple[float, ...]:
        """How far its replicas break each constraint, the worst counts; 0 or less: it holds."""
        first = len(self.objective.also)
        newest = [
            [next(reversed(r.series(first + place)), None) for r in self.replicas]
            for place in range(len(self.objective.constraints))
        ]
        return tuple(
            max(constraint.violation(value) for value in values)
            for constraint, values in zip(self.objective.constraints, newest, strict=True)
        )

    @property
    def feasible(self) -> bool:
        """Whether it breaks no constraint."""
        return all(violation <= 0 for violation in self.violations)

    @property
    def unfinished(self) -> bool:
        """Whether one of its replicas was interrupted on its way to its goal."""
        return any(replica.unfinished for replica in self.replicas)

    @property
    def leader(self) -> Replica:
        """The replica with the best score; of equals the first."""
        return min(
            self.replicas,
            key=lambda r: rank(self.objective, r.score_at(), r.index),
        )

    @property
    def slices(self) -> int:
        """How many slices its replicas have had."""
        return sum(replica.slices for replica in self.replicas)

    @property
    def started_at(self) -> float | None:
        """When its first slice began, seconds since 1970."""
        return min((r.started_at for r in self.replicas if r.started_at), default=None)

    @property
    def ended_at(self) -> float | None:
        """When its last replica ended; None: one has not."""
        if self.status not in FINISHED:
            return None
        return max((r.ended_at for r in self.replicas if r.ended_at), default=None)

    def total(self, key: str) -> float | None:
        """The sum of the newest values of `key` over the replicas; None: nobody reports it."""
        values = [replica.last.get(key) for replica in self.replicas]
        found = [float(value) for value in values if isinstance(value, int | float)]
        return sum(found) if found else None


def rank_key(trial: Trial, score: float | None) -> tuple[bool, float, int]:
    """Sorts trials best first; of equals the older one is first."""
    return rank(trial.objective, score, trial.number)
