"""Progress of a sweep, from its history and from the progress files of running slices.

Progress is the completed share of the expected work. The remaining work is estimated by the
scheduler if possible, otherwise from the lengths of ended trials. Progress files may be lost and no
decision uses them. Durations are in seconds.
"""

import itertools
import json
import math
import os
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweep.core.errors import UsageError
from sweep.history.events import FINISHED, FinalEvaluationBegan, Metrics, Status
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.results import to_number
from sweep.history.trial import Trial
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.schedulers import Scheduler
from sweep.schedulers._shared.rungs import is_climbing
from sweep.spec import SweepSpec
from sweep.spec.stopping import COUNTERS
from sweep.views.reading import UnloadedScheduler

#: Minimum share of completed work for an estimate of the time left.
_LEAST = 0.02
#: Maximum share shown while work remains.
_MOST = 0.99
#: Prior for trials that a scheduler may end early: the expected share of a trial, and its weight in
#: trials.
_EARLY, _EARLY_WEIGHT = 0.5, 5
#: Maximum bytes of a progress file; a longer one is damaged.
_LONGEST_NOTE = 2**16


@dataclass(frozen=True)
class Aim:
    """The rungs and stopping criteria of a sweep, by which its progress is measured."""

    levels: tuple[float, ...]
    """Rungs of the scheduler, ascending, in units of `time_attr`; empty without rungs."""
    stop: Mapping[str, float]
    """Name of a result → value at which a trial ends."""
    remaining_training: Callable[[History], float | None] = lambda _history: None
    """Function that estimates the training left in all trials, in units of `time_attr`, as
    `Scheduler.remaining_training`; None if it has no estimate."""
    startup_trials: int | None = None
    """Number of trials completed before any is ended early, as in `Scheduler.startup_trials`; None
    if no trial is ever ended early."""
    ranks_by_fronts: bool = False
    """True if trials at a rung rank by all objectives, as in `Scheduler.ranks_by_fronts`."""
    promotion_count: Callable[[int], int | None] = lambda _count: None
    """Function from the number of trials at a rung to the number that continue, as
    `Scheduler.promotion_count`; None if it is unknown."""

    @classmethod
    def of(cls, scheduler: Scheduler | UnloadedScheduler, spec: SweepSpec) -> "Aim":
        """Return the rungs and stopping criteria of a sweep with this scheduler and spec."""
        return cls(
            scheduler.levels,
            spec.stop,
            scheduler.remaining_training,
            scheduler.startup_trials,
            scheduler.ranks_by_fronts,
            scheduler.promotion_count,
        )


@dataclass(frozen=True)
class Note:
    """The contents of a running slice's progress file."""

    iteration: int
    """Number of the last finished iteration."""
    time: float | None
    """Value of `time_attr` in the newest result; None if it was not reported."""
    value: float | None
    """Value of the metric in the newest result, or the last one that `NewestNotes` has seen; None
    if there is none."""
    worker: str = ""
    """Name of the cluster's worker that runs the slice; empty without a cluster."""


#: (Trial, replica) → its note.
Notes = Mapping[tuple[int, int], Note]


def read_notes(folder: Folder, history: History) -> Notes:
    """Read the progress files of running replicas.

    Missing and damaged ones, and those not ahead of the history, are left out.
    """
    notes = {}
    for replica in running(history):
        note = _read_note(folder, replica)
        if note is not None and note.iteration > replica.iteration:
            notes[replica.trial, replica.index] = note
    return notes


class NewestNotes:
    """Reads progress files again and again, and keeps the last valid note of each slice.

    A file may be damaged because it is being written. A note without a value, as between two
    evaluations, gets the previous value.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], Note] = {}
        """Trial, replica and number of its slices → its newest valid note."""

    def read(self, folder: Folder, history: History) -> Notes:
        """Read the progress files of running replicas; return the newest valid note of each.

        A file that is missing or damaged now keeps its earlier note, and a note without a value
        gets the earlier value. Notes that are not ahead of the history are left out.
        """
        found, kept = read_notes(folder, history), self._kept
        self._kept = {}
        for replica in running(history):
            key = (replica.trial, replica.index, replica.slices)
            note, before = found.get(key[:2]), kept.get(key)
            if note is None:
                note = before
            elif note.value is None and before is not None:
                note = replace(note, value=before.value)
            if note is not None and note.iteration > replica.iteration:
                self._kept[key] = note
        return {(trial, replica): note for (trial, replica, _), note in self._kept.items()}


def running(history: History) -> list[Replica]:
    """Return the replicas that run, those of a final evaluation included."""
    return [*history.replicas(Status.RUNNING), *history.test_replicas(Status.RUNNING)]


def _read_note(folder: Folder, replica: Replica) -> Note | None:
    """Read the progress file of a replica; None if it is missing or damaged."""
    try:
        raw = raw_note(folder, replica.trial, replica.index)
        objective = replica.objective
        return Note(
            int(raw["training_iteration"]),
            to_number(raw.get(objective.time_attr)),
            to_number(raw.get(objective.metric)),
            str(raw.get("worker", "")),
        )
    except (OSError, UsageError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_missing_names(folder: Folder, replica: Replica) -> tuple[set[str], set[str]] | None:
    """Return result names of the spec that a running trial's results lack, and all that they have.

    Both are from its progress file; the former are among the names whose existence was in doubt.
    Returns None if the file is missing, damaged, or does not list them.
    """
    try:
        raw = raw_note(folder, replica.trial, replica.index)
        lacks, has = raw["lacks"], raw["has"]
    except (OSError, UsageError, ValueError, KeyError, TypeError):
        return None
    found = [{name for name in names if isinstance(name, str)} for names in (lacks, has)]
    return found[0], found[1]


def raw_note(folder: Folder, trial: int, replica: int) -> Any:
    """Return the unchecked JSON data in the progress file of a replica's newest slice.

    Raises:
        OSError, UsageError, ValueError: the file is missing, no regular file, or damaged.
    """
    with folders.reading(folder.trial(trial, replica) / folders.PROGRESS) as (file, _size):
        return json.loads(os.pread(file, _LONGEST_NOTE, 0))


def fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """Return the completed share of the search's expected work, 0 to 1.

    The share of a trial is the mean over its seeds. `notes` are the progress notes of running
    trials, None to use the ledger alone. The share is at most `_MOST` while a trial runs or is
    still to be created, and 1 once the sweep has finished.
    """
    if history.ended == "finished":
        return 1.0
    work = _Work(history.for_scheduler(), aim, notes or {})
    share = work.done / (work.done + work.remaining) if work.done > 0 else 0.0
    return min(share, _MOST) if work.is_open else share


class _Work:
    """The completed and the remaining work of a search.

    It is in units of `time_attr` if the scheduler has rungs, else in trials, of which each counts 1
    at most. The history is that of schedulers: held trials have ended, and waiting clones are to
    come.
    """

    def __init__(self, history: History, aim: Aim, notes: Notes) -> None:
        self._history, self._aim, self._notes = history, aim, notes
        self._levels = bool(aim.levels)
        self._trials = history.trials if self._levels else _members(history)
        self._full = aim.levels[-1] if self._levels else 1.0
        self._at = {trial.number: self._position(trial, notes) for trial in self._trials}
        self._later = [r for t in self._trials for r in t.replicas if r.joined_at is not None]

    @property
    def is_open(self) -> bool:
        """True if a trial is to be created, a clone waits, or a trial is short of its goal."""
        live = any(
            trial.status not in FINISHED and _is_short_of_goal(trial) for trial in self._trials
        )
        return live or self._history.uncreated_trials > 0 or bool(self._history.waiting_clones)

    @property
    def done(self) -> float:
        """Completed work, that of seeds which joined their trials later included.

        It is in units of `time_attr` if the scheduler has rungs, else in whole trials.
        """
        return math.fsum(self._at.values()) + self._joined

    @property
    def remaining(self) -> float:
        """Remaining work, at least 0, by the scheduler's estimate or the lengths of trials.

        It is in the units of `done`.
        """
        expected = self._aim.remaining_training(self._history)
        if expected is None:
            return max(0.0, self._remaining_by_lengths())
        noted = [self._at[t.number] - self._position(t, {}) for t in self._trials]
        noted += [
            self._measured(replica, self._notes) - self._measured(replica, {})
            for replica in self._later
        ]
        return max(0.0, expected - math.fsum(noted))

    def _position(self, trial: Trial, notes: Notes) -> float:
        """Return the completed work of a trial, the mean over the seeds with which it started.

        It is in the units of `done`; `notes` are used where they are newer than the history.
        """
        first = [replica for replica in trial.replicas if replica.joined_at is None]
        return math.fsum(self._measured(replica, notes) for replica in first) / len(first)

    def _measured(self, replica: Replica, notes: Notes) -> float:
        """Return the completed work of a replica, by its note if it has one.

        With rungs it is in units of `time_attr`, up to the highest one; without, a share of 0 to 1.
        """
        if self._levels:
            return min(_time(replica, notes), self._full)
        return _share(replica, self._aim, notes)

    @property
    def _joined(self) -> float:
        """Completed work of all seeds that joined their trials later, in the units of `done`."""
        return math.fsum(self._measured(replica, self._notes) for replica in self._later)

    def _remaining_by_lengths(self) -> float:
        """Return the remaining work, in the units of `done`, estimated from ended trials' lengths.

        Trials that started before `startup_trials` were completed do not count, since they could
        not be ended early. Trials that wait at a rung count as ended.
        """
        history, startup_trials = self._history, self._aim.startup_trials
        ended = [trial for trial in self._trials if trial.status in FINISHED]
        completed = sorted(
            t.milestones[-1].event for t in ended if t.status is Status.COMPLETED and t.milestones
        )
        needed = startup_trials or 0
        since = completed[needed - 1] if 0 < needed <= len(completed) else 0
        live = [t for t in self._trials if t.status not in FINISHED]
        if self._levels:  # a waiting trial may never continue
            ended += [trial for trial in live if not _is_short_of_goal(trial)]
            live = [trial for trial in live if _is_short_of_goal(trial)]
        lengths = _Lengths(
            [self._at[t.number] / self._full for t in ended if t.proposed_after >= since],
            [self._at[t.number] / self._full for t in live if t.proposed_after >= since],
            (1.0, 1) if startup_trials is None else (_EARLY, _EARLY_WEIGHT),
        )
        to_spare = max(0, needed - len(completed))
        positions = sorted((self._at[t.number] / self._full for t in live), reverse=True)
        positions += [0.0] * max(0, history.uncreated_trials - len(history.waiting_clones))
        shares = [
            1.0 - at if place < to_spare else lengths.expected_rest(at)
            for place, at in enumerate(positions)
        ]
        return math.fsum(shares) * self._full


class _Lengths:
    """The distribution of trials' lengths, as shares of a whole trial from 0 to 1.

    Kaplan and Meier, Nonparametric Estimation from Incomplete Observations, 1958.

    Args:
        finished: lengths of ended trials.
        running: lengths so far of trials that have not ended.
        prior: the expected share of a trial's remainder, and its weight in trials.
    """

    def __init__(
        self, finished: Sequence[float], running: Sequence[float], prior: tuple[float, int]
    ) -> None:
        lengths = sorted([*finished, *running])
        self._ended = sorted(finished)
        self._prior, self._weight = prior
        steps, survival = [(0.0, 1.0)], 1.0
        for length, count in sorted(Counter(finished).items()):
            survival *= 1 - count / (len(lengths) - bisect_left(lengths, length))
            steps.append((length, survival))
        self._steps = steps
        ends = [*(length for length, _ in steps[1:]), 1.0]
        areas = [
            survival * max(0.0, end - length)
            for (length, survival), end in zip(steps, ends, strict=True)
        ]
        self._area = [*itertools.accumulate(reversed(areas))][::-1]
        """Area below the survival curve from each of its steps to the end."""

    def expected_rest(self, reached: float) -> float:
        """Return the expected further length, 0 to 1, of a trial that has the length `reached`.

        It is estimated from trials that got as far, and from the prior with its weight; it is 0
        from length 1 on.
        """
        if reached >= 1.0:
            return 0.0
        known = len(self._ended) - bisect_left(self._ended, reached)
        expected = self._prior * (1.0 - reached)
        step = max(0, bisect_right(self._steps, reached, key=lambda step: step[0]) - 1)
        length, survival = self._steps[step]
        if survival <= 0:
            return expected
        found = self._area[step] / survival - (reached - length)
        return (known * max(0.0, found) + self._weight * expected) / (known + self._weight)


def _is_short_of_goal(trial: Trial) -> bool:
    """Return whether the trial has not started, or has not reached its present goal."""
    return trial.status is Status.WAITING or is_climbing(trial)


def _members(history: History) -> list[Trial]:
    """Return the trials that count: in a population, those that no offspring has replaced."""
    if all(trial.parent is None for trial in history.trials):
        return history.trials
    return [trial for trial in history.trials if trial.status is not Status.PRUNED]


def final_evaluation_fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """Return the completed share of the newest final evaluation, 0 to 1; 0 if there is none.

    All requested tests count alike. `notes` are those of running tests; None for the ledger alone.
    """
    final_evaluation = history.final_evaluation
    if final_evaluation is None:
        return 0.0
    tests = tests_of(history, final_evaluation)
    done = sum(_test_fraction(test, aim, notes or {}) for test in tests)
    return done / max(1, final_evaluation.seeds * len(final_evaluation.trials))


def newest_fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """Return the completed share, 0 to 1, of a final evaluation if the newest driver ran one.

    Otherwise it is that of the search. `notes` are those of progress files, or None.
    """
    measure = final_evaluation_fraction if history.final_evaluation else fraction
    return measure(history, aim, notes)


def tests_of(history: History, final_evaluation: FinalEvaluationBegan) -> list[Replica]:
    """Return the replicas of a final evaluation that have been opened."""
    return [
        test
        for number in final_evaluation.trials
        for test in history.trials[number].test_replicas[: final_evaluation.seeds]
    ]


def _test_fraction(test: Replica, aim: Aim, notes: Notes) -> float:
    """Return the completed share, 0 to 1, of a replica under a test seed."""
    if test.status in FINISHED:
        return 1.0
    if not test.goal.until:
        return _share(test, aim, notes)
    return min(1.0, _time(test, notes) / test.goal.until)


def _time(replica: Replica, notes: Notes) -> float:
    """Return the newest value of `time_attr` of a replica, from its note if that has the value."""
    note = notes.get((replica.trial, replica.index))
    return replica.time if note is None or note.time is None else note.time


def _share(replica: Replica, aim: Aim, notes: Notes) -> float:
    """Return the share, 0 to 1, of a replica's way to the nearest stopping criterion.

    Only criteria on counters are used. A replica that has completed without reaching any part of
    them has the share 1, and so has one that has ended in another way if there are none.
    """
    begun = {replica.objective.time_attr: replica.time, "training_iteration": replica.iteration}
    reached = {**begun, **replica.last_metrics}
    note = notes.get((replica.trial, replica.index))
    if note is not None:
        reached["training_iteration"] = note.iteration
    ways = [_share_of_goal(reached, key, aim.stop[key]) for key in COUNTERS if key in aim.stop]
    share = max(ways, default=0.0)
    over = replica.status is Status.COMPLETED or not ways
    return 1.0 if replica.status in FINISHED and over and not share else share


def _share_of_goal(reached: Metrics, key: str, goal: float) -> float:
    """Return the share, 0 to 1, of `goal` that the counter `key` has reached.

    A missing counter counts as 0; the share of a goal of 0 or less is 1.
    """
    return min(1.0, (to_number(reached.get(key)) or 0.0) / goal) if goal > 0 else 1.0


def time_left(elapsed: float, now: float, start: float = 0.0) -> float | None:
    """Return the seconds that are left at the pace so far; None if it is too early to say.

    The share of the work, 0 to 1, was `start` when this driver started, `elapsed` seconds ago, and
    is `now`. It is too early until a fiftieth of the work was done since.
    """
    if now >= 1.0:
        return 0.0
    done = now - start
    return elapsed * (1.0 - now) / done if done >= _LEAST else None
