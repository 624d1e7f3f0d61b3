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
from sweep.history.results import to_number
from sweep.spec.objective import Mode


@dataclass(frozen=True)
class Milestone:
    """Scores of a trial at an event by which it paused at a goal or ended."""

    event: int
    """Number of the event."""
    status: Status
    """Status of the trial from then on."""
    score: float | None
    """Score at that time, the aggregate over the replicas; None if there was none."""
    other_scores: tuple[float | None, ...] = ()
    """Scores in the further objectives at that time; None for one that there was not."""
    violations: tuple[float, ...] = ()
    """Amount by which each constraint was violated; 0 or less if the constraint held, infinite if
    the result was unknown."""
    level: float = math.inf
    """Value of `time_attr` at which the score is compared; infinite if the trial was COMPLETED."""
    scores: tuple[float | None, ...] = ()
    """Score of each replica that is compared, by index; None for one that there was not."""
    curve_means: tuple[float | None, ...] = ()
    """Weighted mean of each of these replicas' curves (`Replica.curve_mean`); None if unknown."""
    curve_length: float = 0.0
    """Value of `time_attr` at the end of the shortest of these curves."""
    is_early: tuple[bool | None, ...] = ()
    """For each of these replicas, True if it was there from the start and completed before the top
    rung, as at a target; False if it was added later and trained to the top; else None."""
    late_means: tuple[float | None, ...] = ()
    """Mean of the metric over the last quarter of each of these replicas' training
    (`Replica.late_mean`); None if unknown."""


@dataclass
class Trial:
    """One choice of settings, trained by one or more replicas, each under another seed."""

    number: int
    """Number of the trial in its sweep, from 0."""
    searched: dict[str, Any]
    """Searched parameter → value that was proposed, without inactive parameters."""
    config: dict[str, Any]
    """Settings passed to the trainable: nested, with searched, fixed and derived values."""
    objective: Objective
    """Objective by which trials are compared."""
    replicas: list[Replica]
    """Replicas by index; never empty."""
    proposed_after: int = 0
    """Number of the newest event that the searcher knew when it proposed the settings."""
    newest_event: int = 0
    """Number of the newest event about the trial; 0 if it is in no ledger yet."""
    milestones: list[Milestone] = field(default_factory=list)
    """Pauses at goals and the end so far, in order. With these, past proposals can be reproduced
    from the scores known then."""
    clone_of: int | None = None
    """Number of the trial whose settings a user copied for this one, or None."""
    origin: str = ""
    """Name of the part of the searcher that made the proposal, such as `prior`; empty for the
    searcher's own model."""
    suggestion: Suggested | None = None
    """Suggestion of a person or agent that the settings come from, or None."""
    test_replicas: list[Replica] = field(default_factory=list)
    """Replicas of the final evaluation under held-out seeds, which no decision of the search
    uses."""

    @classmethod
    def new(
        cls,
        number: int,
        searched: dict[str, Any],
        config: dict[str, Any],
        objective: Objective,
        births: Sequence[ParentCheckpoint | None] = (None,),
    ) -> "Trial":
        """Return a trial that has not started, with one replica for each entry of `births`.

        An entry is the checkpoint that the replica starts from; None to start from scratch.
        `searched` has the values of the searched parameters, and `config` all settings of the
        trainable, nested. The trial is added to no history.
        """
        replicas = [Replica(number, i, objective, birth) for i, birth in enumerate(births)]
        return cls(number, searched, config, objective, replicas)

    @property
    def parent(self) -> int | None:
        """Number of the trial from whose checkpoint this one started.

        It is None if it started from scratch.
        """
        birth = self.replicas[0].birth
        return None if birth is None else birth.trial

    @property
    def compared_replicas(self) -> list[Replica]:
        """Replicas whose scores count: all but those added later that are still catching up."""
        if len(self.replicas) == 1:
            return self.replicas  # a first replica never catches up
        return [replica for replica in self.replicas if not replica.is_catching_up]

    @property
    def status(self) -> Status:
        """Status that follows from those of the replicas (`group_status`)."""
        return group_status([replica.status for replica in self.replicas])

    def may_continue(self, replica: Replica) -> bool:
        """Return whether a user may let one of the trial's replicas continue.

        A replica may continue if it has not finished, or was pruned only because the sweep ended
        while it waited. If a replica of the trial failed, all that are not COMPLETED may be
        retried.
        """
        failed = any(one.status is Status.FAILED for one in self.replicas)
        again = failed and replica.status is not Status.COMPLETED
        return replica.status not in FINISHED or replica.was_waiting or again

    @property
    def has_searched_settings(self) -> bool:
        """True if the trial is neither offspring nor clone, so that it counts for ``--trials``."""
        return self.parent is None and self.clone_of is None

    @property
    def hold(self) -> UserHold:
        """State in which a user keeps the trial; empty for none."""
        return self.replicas[0].hold

    def for_scheduler(self) -> "Trial":
        """Return the trial as schedulers see it.

        If a user holds it while it is PAUSED or WAITING, it is a copy whose unfinished replicas are
        STOPPED. Otherwise it is this trial itself.
        """
        if not self.hold or self.status not in (Status.PAUSED, Status.WAITING):
            return self
        ended = [
            r if r.status in FINISHED else replace(r, status=Status.STOPPED) for r in self.replicas
        ]
        return replace(self, replicas=ended)

    @property
    def deciding_replica(self) -> Replica:
        """First replica whose status is that of the trial, else the first replica."""
        status = self.status
        return next((r for r in self.replicas if r.status is status), self.replicas[0])

    @property
    def reason(self) -> str:
        """Reason for the trial's status, as a text for people."""
        return self.deciding_replica.reason

    @property
    def goal(self) -> Goal:
        """Furthest goal of the compared replicas; the one without a limit if there is such."""
        goals = [replica.goal for replica in self.compared_replicas]
        return max(goals, key=lambda goal: math.inf if goal.until is None else goal.until)

    @property
    def iteration(self) -> int:
        """Number of iterations that every compared replica has finished."""
        return min(replica.iteration for replica in self.compared_replicas)

    @property
    def time(self) -> float:
        """Value of `time_attr` that every unfinished one of the compared replicas has reached.

        If all compared replicas have finished, it is the value that all of these have reached.
        """
        counted = self.compared_replicas
        unfinished = [replica for replica in counted if replica.status not in FINISHED]
        return min(replica.time for replica in unfinished or counted)

    @property
    def level(self) -> float:
        """Value of `time_attr` at which the score is compared: the goal if reached, else the time.

        It is infinite if the trial is COMPLETED.
        """
        at = self.goal.until
        if self.status is Status.COMPLETED:
            return math.inf
        return at if at is not None and self.reached(at) else self.time

    def milestone(self, k: int) -> Milestone:
        """Return the present status, level and scores as a milestone at event number `k`.

        The milestone is not added to `milestones`.
        """
        scores = tuple(replica.score_at() for replica in self.compared_replicas)
        score = self._aggregate(scores)
        others, violations = self.other_scores, self.violations
        means = tuple(replica.curve_mean for replica in self.compared_replicas)
        length = min(replica.time for replica in self.compared_replicas)
        early = tuple(replica.is_early for replica in self.compared_replicas)
        late = tuple(replica.late_mean for replica in self.compared_replicas)
        at_level = (self.level, scores, means, length, early, late)
        return Milestone(k, self.status, score, others, violations, *at_level)

    @property
    def known_until(self) -> float:
        """Value of `time_attr` up to which each unfinished one of the compared replicas is known.

        If all compared replicas have finished, it is the one up to which all are known. A replica
        is known up to its newest number for the metric.
        """
        counted = self.compared_replicas
        unfinished = [replica for replica in counted if replica.status not in FINISHED]
        return min(replica.known_until for replica in unfinished or counted)

    @property
    def known_from(self) -> float:
        """Value of `time_attr` from which every compared replica has the metric.

        It is infinite if one has no number for it, and always in a history without curves.
        """
        return max(replica.known_from for replica in self.compared_replicas)

    @property
    def is_known(self) -> bool:
        """True if the trial can be compared with others.

        Some replica has a number for the metric, and each other one has too, or has finished
        without. In the latter case the trial has no score and ranks last. It is always False in a
        history without curves.
        """
        counted = self.compared_replicas
        return any(replica.is_known for replica in counted) and all(
            replica.is_known or replica.status in FINISHED for replica in counted
        )

    def reached(self, level: float) -> bool:
        """Return whether the trial can be compared at `level`, a value of `time_attr`.

        At least one replica must have reached it, and each other one too, or be COMPLETED. Replicas
        stopped by a limit count like completed ones, unless a user holds the trial or a replica
        failed or was pruned.
        """
        over = {Status.COMPLETED}
        if not self.hold and not any(replica.ended_early for replica in self.replicas):
            over.add(Status.STOPPED)
        counted = self.compared_replicas
        there = [replica.reached(level) for replica in counted]
        return any(there) and all(
            its or replica.status in over for its, replica in zip(there, counted, strict=True)
        )

    def milestone_at(self, k: float) -> Milestone | None:
        """Return the newest milestone up to event number `k`; None if there is none."""
        reached = (one for one in reversed(self.milestones) if one.event <= k)
        return next(reached, None)

    def score_at(self, level: float = math.inf) -> float | None:
        """Return the aggregate of the compared replicas' scores up to `level`.

        `level` is a value of `time_attr`; by default whole curves are scored. Returns None if a
        replica has no score, as one that has no value yet or has diverged. Raises ValueError if the
        history has no curves and `level` is not past the newest result.
        """
        return self._aggregate([replica.score_at(level) for replica in self.compared_replicas])

    def scores_at(self, levels: Sequence[float]) -> list[float | None]:
        """Return the score up to each of some ascending levels, reading each curve once.

        Each is the result of `score_at`; in a history without curves, all are None.
        """
        columns = [replica.scores_at(levels) for replica in self.compared_replicas]
        return [self._aggregate(scores) for scores in zip(*columns, strict=True)]

    def steps_at(self, level: float) -> list[float]:
        """Return the different values of `time_attr` at which curves are read for `level`.

        For each compared replica it is the level itself, or the `time_attr` of the nearest result
        if nothing can be interpolated. They are in ascending order; a curve without a value has
        none.
        """
        return sorted({reading.step for reading in self.readings_at(level)})

    def readings_at(self, level: float) -> list[Reading]:
        """Return a reading at `level`, a value of `time_attr`, of each compared replica's curve.

        Curves without a value are left out.
        """
        found = (replica.reading_at(level) for replica in self.compared_replicas)
        return [reading for reading in found if reading is not None]

    def _aggregate(self, scores: Sequence[float | None], mode: Mode | None = None) -> float | None:
        """Return one score for the scores of all replicas; None if one of them is missing.

        A single score is returned as it is. `mode` is the objective's direction, by default the
        metric's.
        """
        found = [score for score in scores if score is not None]
        if len(found) < len(scores):
            return None
        if len(found) == 1:
            return found[0]
        return self.objective.aggregate.combine(found, mode or self.objective.mode)

    @property
    def score(self) -> float | None:
        """Aggregate of the replicas' scores over their whole curves; None if one has none."""
        return self.score_at()

    @property
    def other_scores(self) -> tuple[float | None, ...]:
        """Scores in the further objectives over the whole curves; None for one that is missing."""
        return self._other_scores_at(math.inf)

    def values_at(self, level: float = math.inf) -> tuple[float | None, ...]:
        """Return the scores in all objectives up to `level`, the metric's first.

        `level` is a value of `time_attr`; by default whole curves are scored. A score that is
        missing is None. If no result at or past the level has the value of an objective, its last
        value before counts.
        """
        return (self.score_at(level), *self._other_scores_at(level))

    def _other_scores_at(self, level: float) -> tuple[float | None, ...]:
        """Return the score in each further objective up to `level`.

        A score that is missing is None.
        """
        return tuple(
            self._aggregate([r.other_score(index, level) for r in self.compared_replicas], mode)
            for index, (_, mode) in enumerate(self.objective.objectives)
        )

    @property
    def violations(self) -> tuple[float, ...]:
        """Worst violation of each constraint over the compared replicas, in the result's units.

        It is 0 or less if the constraint holds, and infinite if a replica lacks the result.
        """
        return self.violations_at()

    def violations_at(self, level: float = math.inf) -> tuple[float, ...]:
        """Return the worst violation of each constraint over the compared replicas up to `level`.

        `level` is a value of `time_attr`. A violation is in the result's units: 0 or less if the
        constraint holds, infinite if a replica lacks the result.
        """
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
        """True if no constraint is violated; one whose result is unknown counts as violated."""
        return all(violation <= 0 for violation in self.violations)

    @property
    def lost_results(self) -> int:
        """Number of results that were lost with their slices, of all but test replicas."""
        return sum(replica.lost_results for replica in self.replicas)

    @property
    def is_interrupted(self) -> bool:
        """True if a replica is PAUSED before its goal or with lost results, and no user holds it.

        The trial must then continue, whatever the scheduler plans.
        """
        return any(replica.is_interrupted for replica in self.replicas)

    @property
    def leader(self) -> Replica:
        """Compared replica with the best score; the one with the lowest index of equals."""
        return min(
            self.compared_replicas,
            key=lambda r: rank(self.objective, r.score_at(), r.index),
        )

    @property
    def steps(self) -> float:
        """Number of environment steps of all replicas, without test replicas."""
        return math.fsum(replica.steps for replica in self.replicas)

    @property
    def seconds(self) -> float:
        """Seconds of training of all replicas, without test replicas.

        Iterations computed twice count once; those of a parent's checkpoint do not count.
        """
        return sum(replica.seconds for replica in self.replicas)

    @property
    def slices(self) -> int:
        """Number of slices opened so far for all replicas, without test replicas."""
        return sum(replica.slices for replica in self.replicas)

    @property
    def started_at(self) -> float | None:
        """Time at which the first slice was opened, in seconds since 1970; None before."""
        return min((r.started_at for r in self.replicas if r.started_at), default=None)

    @property
    def ended_at(self) -> float | None:
        """Time at which the last replica finished, in seconds since 1970; None before."""
        if self.status not in FINISHED:
            return None
        return max((r.ended_at for r in self.replicas if r.ended_at), default=None)

    def total(self, key: str) -> float | None:
        """Return the sum over the replicas of the newest result under `key`.

        Test replicas, and replicas without a number there, are left out. Returns None if none has
        one. A history without curves knows only the keys in `sweep.spec.stopping.COUNTERS`.
        """
        values = (to_number(replica.last_metrics.get(key)) for replica in self.replicas)
        found = [value for value in values if value is not None]
        return sum(found) if found else None


def rank_key(trial: Trial, score: float | None) -> tuple[bool, float, int]:
    """Return a key that sorts trials best first by `score`.

    A score that is None or NaN comes last. Of equals, the lower number is first.
    """
    return rank(trial.objective, score, trial.number)
