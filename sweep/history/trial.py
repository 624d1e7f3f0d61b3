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

from sweep.history.curve import Reading
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
    """The pause of a trial at a rung, or its end, with its score at that time."""

    k: int
    """The number of the event."""
    status: Status
    score: float | None
    others: tuple[float | None, ...] = ()
    """The scores in the further objectives."""
    violations: tuple[float, ...] = ()
    """The violation of each constraint; 0 or less if it held."""
    level: float = math.inf
    """The level at which its score is compared; see `Trial.level`."""
    scores: tuple[float | None, ...] = ()
    """Of its seeds."""


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
    origin: str = ""
    """The part of the searcher that proposed it, `prior`; empty: its own model."""
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
        """The status of the group."""
        return group_status([replica.status for replica in self.replicas])

    def may_go_on(self, replica: Replica) -> bool:
        """Return whether one of its replicas may still continue.

        What ended with its sweep goes on with it, and what failed, or ended since another seed had
        failed, may be tried again.
        """
        failed = any(one.status is Status.FAILED for one in self.replicas)
        again = failed and replica.status is not Status.COMPLETED
        return replica.status not in FINISHED or replica.waited or again

    @property
    def counts(self) -> bool:
        """True if its settings were searched, so that it is one of ``--trials``."""
        return self.parent is None and self.clone_of is None

    @property
    def held(self) -> UserHold:
        """A person's wish for the trial."""
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

    @property
    def level(self) -> float:
        """The level at which its score is compared: its goal, if reached; infinite at the end."""
        at = self.goal.at
        if self.status is Status.COMPLETED:
            return math.inf
        return at if at is not None and self.reached(at) else self.time

    def rest(self, k: int) -> Milestone:
        """Return its present status, level and scores, as of event `k`."""
        scores = tuple(replica.score_at() for replica in self.counted)
        score = self._together(scores)
        others, violations = self.others, self.violations
        return Milestone(k, self.status, score, others, violations, self.level, scores)

    @property
    def known_until(self) -> float:
        """The value of ``time_attr`` up to which every replica can be compared, or ended before."""
        counted = self.counted
        go_on = [replica for replica in counted if replica.status not in FINISHED]
        return min(replica.known_until for replica in go_on or counted)

    @property
    def known_from(self) -> float:
        """The value of ``time_attr`` from which every replica has the metric."""
        return max(replica.known_from for replica in self.counted)

    @property
    def is_known(self) -> bool:
        """True if every replica ever had the metric; else the trial was compared with no other."""
        return all(replica.is_known for replica in self.counted)

    def reached(self, level: float) -> bool:
        """Return whether the group is at `level`: every replica there, done, or at a limit."""
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

    def steps_at(self, level: float) -> list[float]:
        """Return the steps of the newest values in `score_at`, each once, ascending."""
        return sorted({reading.step for reading in self.readings_at(level)})

    def readings_at(self, level: float) -> list[Reading]:
        """Return the newest value in `score_at` of each replica that has one."""
        found = (replica.reading_at(level) for replica in self.counted)
        return [reading for reading in found if reading is not None]

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
        """Its replicas' worst violation of each constraint; 0 or less if it holds."""
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
        """True if the trial meets every constraint."""
        return all(violation <= 0 for violation in self.violations)

    @property
    def unsaved(self) -> int:
        """The number of results of its replicas that were lost with their slices."""
        return sum(replica.unsaved for replica in self.replicas)

    @property
    def unfinished(self) -> bool:
        """True if one of its replicas was interrupted before its goal."""
        return any(replica.unfinished for replica in self.replicas)

    @property
    def leader(self) -> Replica:
        """The replica with the best score; of equals the first."""
        return min(
            self.counted,
            key=lambda r: rank(self.objective, r.score_at(), r.index),
        )

    @property
    def steps(self) -> float:
        """Environment steps of all its replicas."""
        return math.fsum(replica.steps for replica in self.replicas)

    @property
    def slices(self) -> int:
        """The number of slices of its replicas."""
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
