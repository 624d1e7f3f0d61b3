"""Conditions of ASHA: each promoted trial was among the best of its rung, or best at the end.

With seeds on the rungs, a rung is a level and a number of seeds, by whose mean trials are compared.
With ``seeds: auto``, each trial with further seeds once had the best expected score at the top, or
came near that of a trial with all its seeds; and there are at most half as many further seeds as
trials at the top. For every scheduler: a further seed is trained up to the level that its trial has
reached.

A trial that is trained to the top at the end was the best resting one when no trial was on its way
to a lower rung and no trial was still to be created.
"""

import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.chaos.scheduling_world import require
from sweep.history.events import FINISHED, Evidence, Opened, Status
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import is_test
from sweep.history.trial import Trial
from sweep.schedulers import Scheduler, asha
from sweep.schedulers._shared.rungs import ranked_at
from sweep.schedulers._shared.seeding import AUTO_SEEDS

#: Value of ``time_attr``, and the metric, None if it was not reported.
Point = tuple[float, float | None]
#: A level, and the number of seeds by which trials are compared there, None for all seeds.
Step = tuple[float, int | None]


class Rungs:
    """Trials that were once among the best of each rung; only ASHA has rungs here."""

    def __init__(self, scheduler: Scheduler, history: History) -> None:
        self._steps: list[Step] = []
        self._tests_best = False
        self._best: set[int] = set()
        """Trials that once had the best expected score at the top, or came near one that had it and
        all its seeds."""
        self._most_at_top = 0
        """Maximum number of trials at the top so far."""
        if isinstance(scheduler, asha.Scheduler) and scheduler.pauses:
            self._tests_best = scheduler.tests_best(history)
            self._steps = [(step.level, step.seeds) for step in scheduler.steps]
            if self._tests_best:
                self._steps = [(level, 1) for level in scheduler.levels]
            self._steps = self._steps or [(level, None) for level in scheduler.levels]
            self._factor = scheduler.eta
            self._finish_best = scheduler.finish_best
        self._first: dict[Step, set[int]] = {step: set() for step in self._steps}
        """Step → trials that were once among its best: one in `reduction_factor`."""
        self._finished: set[int] = set()
        """Trials that may be trained to the top at the end."""

    def rank(self, history: History) -> None:
        """Add the present best trials of each step."""
        more_seeds = dict.fromkeys(self._steps, False)
        for before, after in itertools.pairwise(self._steps):
            more_seeds[before] = before[1] != after[1]
        for level, seeds in self._steps:
            trials = (_with_seeds(trial, seeds) for trial in history.trials)
            arrived = [one for one in trials if one is not None and _is_compared(one, level)]
            ranked = ranked_at(arrived, level)
            best = ranked[: len(arrived) // self._factor]
            if best and more_seeds[level, seeds]:  # equals are sorted by their curves
                best = [pair for pair in ranked if pair[1] == best[-1][1] or pair in best]
            self._first[level, seeds].update(trial.number for trial, _ in best)
        for (level, seeds), (following, _) in itertools.pairwise(self._steps):
            waiting = (t for t in history.trials if t.goal.until == level < following)
            passed = (t.number for t in waiting if t.reached(following))  # in one iteration
            self._first[level, seeds].update(passed)
        if self._tests_best:
            self._rank_expected(history.for_scheduler())
        if self._steps and not history.uncreated_trials:
            self._finished.update(self._at_the_end(history.for_scheduler()))

    def _rank_expected(self, history: History) -> None:
        """Add the trials at the top that have the best expected score now; equals all count.

        If one of these has all its seeds, add those that are less than three standard errors worse.
        """
        top = self._steps[-1][0]
        there = [
            trial
            for trial in history.trials
            if (first := _with_seeds(trial, 1)) is not None and _is_compared(first, top)
        ]
        self._most_at_top = max(self._most_at_top, len(there))
        rests = (Status.PAUSED, Status.COMPLETED)
        able = [
            trial
            for trial in there
            if trial.replicas[0].status in rests
            and not (trial.hold or any(replica.ended_early for replica in trial.replicas))
        ]
        expected = {trial.number: history.expected(trial) for trial in able}
        ranked = [number for number, found in expected.items() if found is not None]
        sign, feasible = history.objective.sign, {t.number for t in able if t.feasible}
        ranked = [number for number in ranked if number in feasible] or ranked
        values = {number: sign * found.value for number in ranked if (found := expected[number])}
        best = max(values.values(), default=0.0)
        leading = {number for number, value in values.items() if value == best}
        self._best.update(leading)
        if any(len(history.trials[number].replicas) >= AUTO_SEEDS[-1] for number in leading):
            errors = {n: found.error or 0.0 for n in values if (found := expected[n])}
            near = (n for n, value in values.items() if value + 3 * errors[n] > best)
            self._best.update(near)

    def check_joined(self, history: History, event: Opened) -> None:
        """Require that a seed that joins its trial later is trained up to the trial's level."""
        trial = history.trials[event.trial]
        if is_test(event.replica) or event.replica < len(trial.replicas):
            return
        name, at = f"replica {event.replica} of trial {event.trial}", event.goal.until
        require(event.replica == len(trial.replicas), f"{name} is not the next replica")
        first = trial.replicas[0]
        there = first.status is Status.COMPLETED or (at is not None and first.reached(at))
        require(there, f"{name} is sent to {at}, which its trial has not reached")

    def check_compared(self, history: History, evidence: Evidence) -> None:
        """Require that each compared value is that of its trial at the stated step."""
        columns = (evidence.get(name, []) for name in ("trials", "scores", "steps"))
        for number, score, step in zip(*columns, strict=False):
            trial = history.trials[number]
            single = len(trial.replicas) == 1 and trial.parent is None and trial.clone_of is None
            if single and score is not None:
                due = value_at(_points(trial.replicas[0]), step)
                same = due is not None and math.isclose(due, score, abs_tol=1e-12)
                require(same, f"trial {number} was compared with {score} at {step}, and had {due}")

    def _at_the_end(self, history: History) -> Iterator[int]:
        """Yield the best resting trials, `finish_best` of them; none while other trials climb."""
        climbing = (t for t in history.trials if t.status is Status.RUNNING or t.is_interrupted)
        if any(trial.goal.until != self._steps[-1][0] for trial in climbing):
            return
        resting = (Status.PAUSED, Status.COMPLETED)
        ranked = history.ranked([t for t in history.with_status(*resting) if not t.is_interrupted])
        yield from (trial.number for trial in ranked[: self._finish_best])

    def check(self, history: History) -> None:
        """Require that each trial promoted from a rung, or tested, was once among its best."""
        if any(trial.clone_of is not None for trial in history.trials):
            return
        if self._tests_best:
            further = {t.number: len(t.replicas) - 1 for t in history.trials if t.replicas[1:]}
            require(further.keys() <= self._best, f"{sorted(further)} were tested")
            require(sum(further.values()) <= self._most_at_top // 2, f"{further} are further seeds")
        for (level, seeds), first in self._first.items():
            promoted = history.trials
            if self._tests_best:  # a tested trial need not have been promoted to the top
                promoted = [replace(trial, replicas=trial.replicas[:1]) for trial in promoted]
            on = {t.number for t in promoted if t.slices and _is_beyond(t, level, seeds)}
            may = first | self._finished
            require(
                on <= may, f"{sorted(on - may)} were promoted from rung {level:g}, seeds {seeds}"
            )


def _with_seeds(trial: Trial, seeds: int | None) -> Trial | None:
    """Return the trial with its first seeds only. Returns None if it lacks one of them."""
    if seeds is None:
        return trial
    replicas = trial.replicas[:seeds]
    late = any(replica.is_catching_up for replica in replicas)
    return None if late or len(replicas) < seeds else replace(trial, replicas=replicas)


def _is_compared(trial: Trial, level: float) -> bool:
    """Return whether a trial is compared at a rung, by loops over its curves."""
    known = [
        any(is_number(value) for _, value in _points(replica))
        for replica in trial.compared_replicas
    ]
    # A seed that ended without a number waits for nothing; its trial has no score and is the last.
    over = [replica.status in FINISHED for replica in trial.compared_replicas]
    is_known = any(known) and all(map(operator.or_, known, over))
    is_done = trial.status is Status.COMPLETED  # a trial that met a criterion counts at every level
    return is_known and (trial.reached(level) or is_done)


def _points(replica: Replica) -> list[Point]:
    return [(point.time, point.value) for point in replica.curve]


def is_number(value: float | None) -> bool:
    """Return whether the value is neither None nor NaN."""
    return value is not None and not math.isnan(value)


def has_diverged(points: Sequence[Point]) -> bool:
    """Return whether the metric is NaN more than twice as often in a row as between two numbers."""
    word = "".join("1" if is_number(v) else "n" for _, v in points if v is not None)
    runs = word.strip("n").split("1")[1:-1]
    trailing = len(word) - len(word.rstrip("n"))
    return word.count("1") >= 2 and trailing > 2 * max(map(len, runs), default=0)


def is_comparable(points: Sequence[Point], level: float) -> bool:
    """Return whether a trial that has not ended is compared at a level."""
    if any(time >= level and is_number(value) for time, value in points):
        return True
    return bool(points) and points[-1][0] >= level and has_diverged(points)


def value_at(points: Sequence[Point], level: float) -> float | None:
    """Return the value of a curve at a level by the rule of `docs/schedulers.md`, None if none."""
    numbers = [(time, value) for time, value in points if value is not None and is_number(value)]
    before = [point for point in numbers if point[0] < level]
    after = [point for point in numbers if point[0] >= level]
    if not after:
        return before[-1][1] if before and not has_diverged(points) else None
    if not before or after[0][0] == level:
        return after[0][1]
    (t, early), (u, late) = before[-1], after[0]
    return early + (late - early) * (level - t) / (u - t)


def _is_beyond(trial: Trial, level: float, seeds: int | None) -> bool:
    has_more = seeds is not None and len(trial.replicas) > seeds
    return has_more or trial.goal.until is None or trial.goal.until > level
