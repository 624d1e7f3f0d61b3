"""A trial in memory: one choice of settings, trained under one seed or several.

A replica is a trial under one seed (`sweep.history.replica`). A trial has a score, a status and a
place in time as a group: it is at a rung when all its replicas are, and what is compared is an
aggregate of theirs. Most trials have one replica and are that replica. Where the numbers come from
is `sweep.history.history`'s; nothing here is written by anyone else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.history.events import (
    FINISHED,
    Goal,
    ParentCheckpoint,
    Status,
    UserHold,
    group_status,
)
from sweep.history.objective import Objective, rank
from sweep.history.replica import Replica
from sweep.history.results import number
from sweep.spec.objective import Mode


@dataclass(frozen=True)
class Milestone:
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
    rests: list[Milestone] = field(default_factory=list)
    """Which scores were known at which event, so that past proposals can be replayed."""
    clone_of: int | None = None
    """The trial that a person made it from."""
    tests: list[Replica] = field(default_factory=list)
    """Trained under test seeds; no decision of the search sees them."""

    @classmethod
    def new(
        cls,
        number: int,
        searched: dict[str, Any],
        config: dict[str, Any],
        objective: Objective,
        births: Sequence[ParentCheckpoint | None] = (None,),
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
    def counted(self) -> list[Replica]:
        """The replicas that stand where the trial stands, without those that are catching up."""
        if len(self.replicas) == 1:
            return self.replicas  # the first is there from the beginning
        return [replica for replica in self.replicas if not replica.catching_up]

    @property
    def status(self) -> Status:
        """Where the group stands."""
        return group_status([replica.status for replica in self.replicas])

    def may_go_on(self, replica: Replica) -> bool:
        """Whether one of its replicas has not ended for good.

        What ended with its sweep goes on with it, and what failed, or ended since another seed had
        failed, may be tried again.
        """
        failed = any(one.status is Status.FAILED for one in self.replicas)
        again = failed and replica.status is not Status.COMPLETED
        return replica.status not in FINISHED or replica.waited or again

    @property
    def counts(self) -> bool:
        """Whether its settings were searched, so that it is one of ``--trials``."""
        return self.parent is None and self.clone_of is None

    @property
    def held(self) -> UserHold:
        """What a person wants of it."""
        return self.replicas[0].held

    def without_the_held(self) -> "Trial":
        """The trial as schedulers see it: while it is held and does not run, it has ended."""
        if not self.held or self.status not in (Status.PAUSED, Status.WAITING):
            return self
        ended = [
            r if r.status in FINISHED else replace(r, status=Status.STOPPED) for r in self.replicas
        ]
        return replace(self, replicas=ended)

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
        """Up to where it was decided to run: the furthest goal of its replicas."""
        goals = [replica.goal for replica in self.counted]
        return max(goals, key=lambda goal: math.inf if goal.at is None else goal.at)

    @property
    def iteration(self) -> int:
        """Iterations that every replica has finished."""
        return min(replica.iteration for replica in self.counted)

    @property
    def time(self) -> float:
        """The value of ``time_attr`` that every replica has reached, or ended before."""
        counted = self.counted
        go_on = [replica for replica in counted if replica.status not in FINISHED]
        return min(replica.time for replica in go_on or counted)

    def reached(self, level: float) -> bool:
        """Whether the group is at `level`: every replica there, or done or at a limit before it."""
        over = {Status.COMPLETED}
        if not self.held and not any(replica.ended_early for replica in self.replicas):
            over.add(Status.STOPPED)
        counted = self.counted
        there = [replica.reached(level) for replica in counted]
        return any(there) and all(
            its or replica.status in over for its, replica in zip(there, counted, strict=True)
        )

    def score_at(self, level: float = math.inf) -> float | None:
        """The aggregate of the replicas' scores at `level`; None: one of them has none yet."""
        return self._together([replica.score_at(level) for replica in self.counted])

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """`score_at` each of some ascending levels, reading each curve once."""
        columns = [replica.scores_at(levels) for replica in self.counted]
        return [self._together(scores) for scores in zip(*columns, strict=True)]

    def _together(self, scores: Sequence[float | None], mode: Mode | None = None) -> float | None:
        found = [score for score in scores if score is not None]
        if len(found) < len(scores):
            return None
        if len(found) == 1:
            return found[0]
        return self.objective.aggregate.combine(found, mode or self.objective.mode)

    @property
    def score(self) -> float | None:
        """The score over the whole curve."""
        return self.score_at()

    @property
    def others(self) -> tuple[float | None, ...]:
        """The scores in the further objectives, each aggregated as the metric's."""
        return tuple(
            self._together([r.other(index) for r in self.counted], mode)
            for index, (_, mode) in enumerate(self.objective.objectives)
        )

    @property
    def violations(self) -> tuple[float, ...]:
        """How far its replicas break each constraint, the worst counts; 0 or less: it holds."""
        first = len(self.objective.objectives)
        newest = [
            [r.other(first + index) for r in self.counted]
            for index in range(len(self.objective.constraints))
        ]
        return tuple(
            max(constraint.violation(value) for value in values)
            for constraint, values in zip(self.objective.constraints, newest, strict=True)
        )

    @property
    def feasible(self) -> bool:
        """Whether the trial meets every constraint."""
        return all(violation <= 0 for violation in self.violations)

    @property
    def unfinished(self) -> bool:
        """Whether one of its replicas was interrupted on its way to its goal."""
        return any(replica.unfinished for replica in self.replicas)

    @property
    def leader(self) -> Replica:
        """The replica with the best score; of equals the first."""
        return min(
            self.counted,
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
        values = (number(replica.last.get(key)) for replica in self.replicas)
        found = [value for value in values if value is not None]
        return sum(found) if found else None


def rank_key(trial: Trial, score: float | None) -> tuple[bool, float, int]:
    """Sorts trials best first; of equals the older one is first."""
    return rank(trial.objective, score, trial.number)
