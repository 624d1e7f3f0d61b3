"""A trial in memory: one choice of settings, trained under one seed or several.

A replica is a trial under one seed (`sweep.history.replica`). A trial has a score, a status and a
time as a group: it has reached a rung when all its replicas have, and scores are aggregated over
them. Most trials have one replica. Only `sweep.history.history` changes trials.
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
    Suggested,
    UserHold,
    group_status,
)
from sweep.history.objective import Objective, rank
from sweep.history.replica import Replica
from sweep.history.results import number
from sweep.spec.objective import Mode


@dataclass(frozen=True)
class Milestone:
    """A pause of a trial at a rung, or its end, with its score at that time."""

    event: int
    """Number of the event."""
    status: Status
    """Status of the trial from then on."""
    score: float | None
    """Score at that time; None if there was none."""
    other_scores: tuple[float | None, ...] = ()
    """Scores in the further objectives; None where there was none."""
    violations: tuple[float, ...] = ()
    """Violation of each constraint; 0 or less if the constraint held."""
    level: float = math.inf
    """Level at which the score is compared; see `Trial.level`."""
    scores: tuple[float | None, ...] = ()
    """Scores of the seeds that are compared, by index; None where there was none."""
    curve_means: tuple[float | None, ...] = ()
    """Value of `Replica.curve_mean` of each seed."""
    curve_length: float = 0.0
    """Newest value of `time_attr` of the shortest curve."""


@dataclass
class Trial:
    """One choice of settings with its replicas, seen as a whole."""

    number: int
    """Number of the trial in its sweep, from 0."""
    searched: dict[str, Any]
    """Proposal: searched parameter → value, without inactive parameters."""
    config: dict[str, Any]
    """Settings of the trainable: nested, with fixed and derived values."""
    objective: Objective
    """Objective by which trials are compared."""
    replicas: list[Replica]
    """Replicas by index; never empty."""
    proposed_after: int = 0
    """Number of the last event before its proposal."""
    newest_event: int = 0
    """Number of the newest event about the trial; 0 if it is in no ledger yet."""
    milestones: list[Milestone] = field(default_factory=list)
    """Pauses and the end so far, so that past proposals can be reproduced from the scores known
    then."""
    clone_of: int | None = None
    """Trial that a user cloned, or None."""
    origin: str = ""
    """Part of the searcher that made the proposal, such as `prior`; empty for its own model."""
    suggestion: Suggested | None = None
    """Suggestion with its settings, or None if nobody suggested them."""
    test_replicas: list[Replica] = field(default_factory=list)
    """Replicas under test seeds, which no decision of the search uses."""

    @classmethod
    def new(
        cls,
        number: int,
        searched: dict[str, Any],
        config: dict[str, Any],
        objective: Objective,
        births: Sequence[ParentCheckpoint | None] = (None,),
    ) -> "Trial":
        """Return a waiting trial; `births` has one entry for each replica."""
        replicas = [Replica(number, i, objective, birth) for i, birth in enumerate(births)]
        return cls(number, searched, config, objective, replicas)

    @property
    def parent(self) -> int | None:
        """Number of the parent trial; None if the settings were searched."""
        birth = self.replicas[0].birth
        return None if birth is None else birth.trial

    @property
    def compared_replicas(self) -> list[Replica]:
        """Replicas that are compared: all but those that are catching up."""
        if len(self.replicas) == 1:
            return self.replicas  # a first replica never catches up
        return [replica for replica in self.replicas if not replica.is_catching_up]

    @property
    def status(self) -> Status:
        """Status of the group; see `group_status`."""
        return group_status([replica.status for replica in self.replicas])

    def may_continue(self, replica: Replica) -> bool:
        """Return whether one of the trial's replicas may be continued.

        A replica that ended only with its sweep may be continued. If a replica failed, it and those
        that ended because of that may be retried.
        """
        failed = any(one.status is Status.FAILED for one in self.replicas)
        again = failed and replica.status is not Status.COMPLETED
        return replica.status not in FINISHED or replica.was_waiting or again

    @property
    def has_searched_settings(self) -> bool:
        """True if its settings were searched, so that it counts for ``--trials``."""
        return self.parent is None and self.clone_of is None

    @property
    def hold(self) -> UserHold:
        """A user's hold on the trial."""
        return self.replicas[0].hold

    def for_scheduler(self) -> "Trial":
        """Return the trial for schedulers: while held and not running, it appears as stopped."""
        if not self.hold or self.status not in (Status.PAUSED, Status.WAITING):
            return self
        ended = [
            r if r.status in FINISHED else replace(r, status=Status.STOPPED) for r in self.replicas
        ]
        return replace(self, replicas=ended)

    @property
    def deciding_replica(self) -> Replica:
        """The replica that explains the group's status."""
        status = self.status
        return next((r for r in self.replicas if r.status is status), self.replicas[0])

    @property
    def reason(self) -> str:
        """Reason for the group's status, as a text."""
        return self.deciding_replica.reason

    @property
    def goal(self) -> Goal:
        """The furthest goal of its replicas."""
        goals = [replica.goal for replica in self.compared_replicas]
        return max(goals, key=lambda goal: math.inf if goal.at is None else goal.at)

    @property
    def iteration(self) -> int:
        """Number of iterations that every replica has finished."""
        return min(replica.iteration for replica in self.compared_replicas)

    @property
    def time(self) -> float:
        """Value of `time_attr` that every unfinished replica has reached.

        If all replicas have finished, it is the value that all have reached.
        """
        counted = self.compared_replicas
        go_on = [replica for replica in counted if replica.status not in FINISHED]
        return min(replica.time for replica in go_on or counted)

    @property
    def level(self) -> float:
        """Level at which the score is compared: its goal if reached, else its time.

        Infinite at the end.
        """
        at = self.goal.at
        if self.status is Status.COMPLETED:
            return math.inf
        return at if at is not None and self.reached(at) else self.time

    def milestone(self, k: int) -> Milestone:
        """Return a milestone with the present status, level and scores, as of event `k`."""
        scores = tuple(replica.score_at() for replica in self.compared_replicas)
        score = self._aggregate(scores)
        others, violations = self.other_scores, self.violations
        means = tuple(replica.curve_mean for replica in self.compared_replicas)
        length = min(replica.time for replica in self.compared_replicas)
        return Milestone(
            k, self.status, score, others, violations, self.level, scores, means, length
        )

    @property
    def known_until(self) -> float:
        """Value of `time_attr` up to which every unfinished replica can be compared."""
        counted = self.compared_replicas
        go_on = [replica for replica in counted if replica.status not in FINISHED]
        return min(replica.known_until for replica in go_on or counted)

    @property
    def known_from(self) -> float:
        """Value of `time_attr` from which every replica has the metric; infinite if one has not."""
        return max(replica.known_from for replica in self.compared_replicas)

    @property
    def is_known(self) -> bool:
        """True if the trial is compared with others.

        Each of its replicas has had the metric, or ended without it while another had it; such a
        trial has no score and ranks last.
        """
        counted = self.compared_replicas
        return any(replica.is_known for replica in counted) and all(
            replica.is_known or replica.status in FINISHED for replica in counted
        )

    def reached(self, level: float) -> bool:
        """Return whether the group is at `level`: each replica reached it or ended regularly.

        At least one must have reached it. Replicas stopped by a limit count as ended regularly,
        unless a user holds the trial or a replica failed.
        """
        over = {Status.COMPLETED}
        if not self.hold and not any(replica.ended_early for replica in self.replicas):
            over.add(Status.STOPPED)
        counted = self.compared_replicas
        there = [replica.reached(level) for replica in counted]
        return any(there) and all(
            its or replica.status in over for its, replica in zip(there, counted, strict=True)
        )

    def score_at(self, level: float = math.inf) -> float | None:
        """Return the aggregate of the replicas' scores at `level`; None if one has no score yet."""
        return self._aggregate([replica.score_at(level) for replica in self.compared_replicas])

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """Return `score_at` for each of some ascending levels, reading each curve once."""
        columns = [replica.scores_at(levels) for replica in self.compared_replicas]
        return [self._aggregate(scores) for scores in zip(*columns, strict=True)]

    def steps_at(self, level: float) -> list[float]:
        """Return the different values of `time_attr` at which `score_at` was read, ascending."""
        return sorted({reading.step for reading in self.readings_at(level)})

    def readings_at(self, level: float) -> list[Reading]:
        """Return the newest value in `score_at` of each replica that has one."""
        found = (replica.reading_at(level) for replica in self.compared_replicas)
        return [reading for reading in found if reading is not None]

    def _aggregate(self, scores: Sequence[float | None], mode: Mode | None = None) -> float | None:
        """Return the aggregate of scores of replicas; None if one of them is missing."""
        found = [score for score in scores if score is not None]
        if len(found) < len(scores):
            return None
        if len(found) == 1:
            return found[0]
        return self.objective.aggregate.combine(found, mode or self.objective.mode)

    @property
    def score(self) -> float | None:
        """Score over the whole curve."""
        return self.score_at()

    @property
    def other_scores(self) -> tuple[float | None, ...]:
        """Scores in the further objectives, aggregated like the metric's."""
        return self._other_scores_at(math.inf)

    def values_at(self, level: float = math.inf) -> tuple[float | None, ...]:
        """Return the scores in all objectives at `level`, the metric's first; None where missing.

        A further objective is read as the metric is. If no result at or past the level has it, its
        last value before the level counts.
        """
        return (self.score_at(level), *self._other_scores_at(level))

    def _other_scores_at(self, level: float) -> tuple[float | None, ...]:
        """Return the scores in the further objectives at `level`."""
        return tuple(
            self._aggregate([r.other_score(index, level) for r in self.compared_replicas], mode)
            for index, (_, mode) in enumerate(self.objective.objectives)
        )

    @property
    def violations(self) -> tuple[float, ...]:
        """Worst violation of each constraint over the replicas; 0 or less if it holds."""
        return self.violations_at()

    def violations_at(self, level: float = math.inf) -> tuple[float, ...]:
        """Return the worst violation of each constraint over the replicas at `level`."""
        first, constraints = len(self.objective.objectives), self.objective.constraints
        return tuple(
            max(
                constraint.violation(r.other_score(first + index, level))
                for r in self.compared_replicas
            )
            for index, constraint in enumerate(constraints)
        )

    @property
    def feasible(self) -> bool:
        """True if the trial meets every constraint."""
        return all(violation <= 0 for violation in self.violations)

    @property
    def lost_results(self) -> int:
        """Number of results of all replicas that were lost with their slices."""
        return sum(replica.lost_results for replica in self.replicas)

    @property
    def unfinished(self) -> bool:
        """True if one of its replicas was interrupted before its goal."""
        return any(replica.unfinished for replica in self.replicas)

    @property
    def leader(self) -> Replica:
        """The replica with the best score; the first of equals."""
        return min(
            self.compared_replicas,
            key=lambda r: rank(self.objective, r.score_at(), r.index),
        )

    @property
    def steps(self) -> float:
        """Environment steps of all replicas."""
        return math.fsum(replica.steps for replica in self.replicas)

    @property
    def seconds(self) -> float:
        """Seconds of training of all replicas."""
        return sum(replica.seconds for replica in self.replicas)

    @property
    def slices(self) -> int:
        """Number of slices of all replicas."""
        return sum(replica.slices for replica in self.replicas)

    @property
    def started_at(self) -> float | None:
        """Start of the first slice, in seconds since 1970; None before that."""
        return min((r.started_at for r in self.replicas if r.started_at), default=None)

    @property
    def ended_at(self) -> float | None:
        """End of the last replica, in seconds since 1970; None until all have ended."""
        if self.status not in FINISHED:
            return None
        return max((r.ended_at for r in self.replicas if r.ended_at), default=None)

    def total(self, key: str) -> float | None:
        """Return the sum of the newest values of `key` over the replicas; None if none has it."""
        values = (number(replica.last_metrics.get(key)) for replica in self.replicas)
        found = [value for value in values if value is not None]
        return sum(found) if found else None


def rank_key(trial: Trial, score: float | None) -> tuple[bool, float, int]:
    """Return a key that sorts trials best first by `score`; the older of equals is first."""
    return rank(trial.objective, score, trial.number)
