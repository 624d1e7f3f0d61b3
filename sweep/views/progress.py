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
from sweep.views.reading import Foreign

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
    """The measure of a sweep's progress: its rungs and stopping criteria."""

    levels: tuple[float, ...]
    """Rungs of the scheduler, in units of `time_attr`; empty without rungs."""
    stop: Mapping[str, float]
    """Result → value at which a trial ends."""
    remaining_training: Callable[[History], float | None] = lambda _history: None
    """Estimate of the training that is left, as by `Scheduler.remaining_training`."""
    startup_trials: int | None = None
    """Number of trials completed before any is ended early, as in `Scheduler.startup_trials`; None
    if none is."""
    ranks_by_fronts: bool = False
    """True if trials at a rung rank by all objectives, as in `Scheduler.ranks_by_fronts`."""
    promotion_count: Callable[[int], int | None] = lambda _count: None
    """Number of trials that continue of those at a rung, as by `Scheduler.promotion_count`."""

    @classmethod
    def of(cls, scheduler: Scheduler | Foreign, spec: SweepSpec) -> "Aim":
        """Return the measure for a sweep of `spec`."""
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
    """The contents of a running trial's progress file."""

    iteration: int
    """Number of the last finished iteration."""
    time: float | None
    """Value of `time_attr`; None if it was not reported."""
    value: float | None
    """Newest value of the metric; None if there is none."""
    worker: str = ""
    """Worker of a cluster that runs it; empty otherwise."""


#: (Trial, replica) → its note.
Notes = Mapping[tuple[int, int], Note]


def read_notes(folder: Folder, history: History) -> Notes:
    """Return the notes of running replicas, without missing, damaged or outdated ones."""
    notes = {}
    for replica in running(history):
        note = _read_note(folder, replica)
        if note is not None and note.iteration > replica.iteration:
            notes[replica.trial, replica.index] = note
    return notes


class NewestNotes:
    """Reader that keeps the newest valid notes, in case a file is being written when read.

    A note without a value, as between two evaluations, gets the previous value.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int, int], Note] = {}
        """(Trial, replica, number of slices) → its newest note."""

    def read(self, folder: Folder, history: History) -> Notes:
        """Return the newest notes; a damaged one is replaced by the one read before."""
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
    """Return the replicas and tests that are running."""
    return [*history.replicas(Status.RUNNING), *history.test_replicas(Status.RUNNING)]


def _read_note(folder: Folder, replica: Replica) -> Note | None:
    """Return the note of a replica, or None if it is missing or damaged."""
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


def read_lack(folder: Folder, replica: Replica) -> tuple[set[str], set[str]] | None:
    """Return the looked-for results that a running trial lacks, and that it has, if known."""
    try:
        raw = raw_note(folder, replica.trial, replica.index)
        lacks, has = raw["lacks"], raw["has"]
    except (OSError, UsageError, ValueError, KeyError, TypeError):
        return None
    found = [{name for name in names if isinstance(name, str)} for names in (lacks, has)]
    return found[0], found[1]


def raw_note(folder: Folder, trial: int, replica: int) -> Any:
    """Return the unchecked contents of a slice's progress file.

    Raises:
        OSError, UsageError, ValueError: the file is missing, no regular file, or damaged.
    """
    with folders.reading(folder.trial(trial, replica) / folders.PROGRESS) as (file, _size):
        return json.loads(os.pread(file, _LONGEST_NOTE, 0))


def fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """Return the completed share of the expected work, 0 to 1.

    The share of a trial is the mean over its seeds. `notes` are the progress notes of running
    trials, None to use the ledger alone. The share is at most `_MOST` while a trial runs or is
    still to be created.
    """
    if history.ended == "finished":
        return 1.0
    work = _Work(history.for_scheduler(), aim, notes or {})
    share = work.done / (work.done + work.remaining) if work.done > 0 else 0.0
    return min(share, _MOST) if work.open else share


class _Work:
    """The completed and remaining work, in units of `time_attr` or as shares of a trial.

    The history is that of schedulers: held trials have ended, and waiting clones are to come.
    """

    def __init__(self, history: History, aim: Aim, notes: Notes) -> None:
        self._history, self._aim, self._notes = history, aim, notes
        self._levels = bool(aim.levels)
        self._trials = history.trials if self._levels else _members(history)
        self._full = aim.levels[-1] if self._levels else 1.0
        self._at = {trial.number: self._position(trial, notes) for trial in self._trials}
        self._later = [r for t in self._trials for r in t.replicas if r.joined_at is not None]

    @property
    def open(self) -> bool:
        """True if a trial is still to be created or has not reached its goal."""
        live = any(trial.status not in FINISHED and _climbs(trial) for trial in self._trials)
        return live or self._history.uncreated_trials > 0 or bool(self._history.waiting_clones)

    @property
    def done(self) -> float:
        """Completed work, including seeds that joined their trials later."""
        return math.fsum(self._at.values()) + self._joined

    @property
    def remaining(self) -> float:
        """Remaining work, at least 0, in the units of the class."""
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
        """Return the completed work of a trial: the mean over the seeds that it started with."""
        first = [replica for replica in trial.replicas if replica.joined_at is None]
        return math.fsum(self._measured(replica, notes) for replica in first) / len(first)

    def _measured(self, replica: Replica, notes: Notes) -> float:
        """Return the completed work of a replica."""
        if self._levels:
            return min(_time(replica, notes), self._full)
        return _share(replica, self._aim, notes)

    @property
    def _joined(self) -> float:
        """Completed work of the seeds that joined later."""
        return math.fsum(self._measured(replica, self._notes) for replica in self._later)

    def _remaining_by_lengths(self) -> float:
        """Return the remaining work, estimated from the lengths of ended trials.

        Trials that started before `startup_trials` were completed do not count, since they could
        not be ended early.
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
            ended += [trial for trial in live if not _climbs(trial)]
            live = [trial for trial in live if _climbs(trial)]
        lengths = _Lengths(
            [self._at[t.number] / self._full for t in ended if t.proposed_after >= since],
            [self._at[t.number] / self._full for t in live if t.proposed_after >= since],
            (1.0, 1) if startup_trials is None else (_EARLY, _EARLY_WEIGHT),
        )
        to_spare = max(0, needed - len(completed))
        positions = sorted((self._at[t.number] / self._full for t in live), reverse=True)
        positions += [0.0] * max(0, history.uncreated_trials - len(history.waiting_clones))
        shares = [
            1.0 - at if place < to_spare else lengths.beyond(at)
            for place, at in enumerate(positions)
        ]
        return math.fsum(shares) * self._full


class _Lengths:
    """The distribution of trials' lengths, as shares of a whole trial.

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
        """Area under the survival curve from each step to the end."""

    def beyond(self, reached: float) -> float:
        """Return by how much a trial that has `reached` a length is expected to grow."""
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


def _climbs(trial: Trial) -> bool:
    """Return whether the trial has not started, or has not reached its goal."""
    return trial.status is Status.WAITING or is_climbing(trial)


def _members(history: History) -> list[Trial]:
    """Return the trials that count: in a population, those that were not replaced by offspring."""
    if all(trial.parent is None for trial in history.trials):
        return history.trials
    return [trial for trial in history.trials if trial.status is not Status.PRUNED]


def final_evaluation_fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """Return the completed share of the newest final evaluation, 0 to 1."""
    final_evaluation = history.final_evaluation
    if final_evaluation is None:
        return 0.0
    tests = asked_tests(history, final_evaluation)
    done = sum(_tested(test, aim, notes or {}) for test in tests)
    return done / max(1, final_evaluation.seeds * len(final_evaluation.trials))


def newest_fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """Return the share of the final evaluation if the newest term is one, else of the search."""
    measure = final_evaluation_fraction if history.final_evaluation else fraction
    return measure(history, aim, notes)


def asked_tests(history: History, final_evaluation: FinalEvaluationBegan) -> list[Replica]:
    """Return the existing tests of a final evaluation."""
    return [
        test
        for number in final_evaluation.trials
        for test in history.trials[number].test_replicas[: final_evaluation.seeds]
    ]


def _tested(test: Replica, aim: Aim, notes: Notes) -> float:
    """Return the completed share, 0 to 1, of a training under a test seed."""
    if test.status in FINISHED:
        return 1.0
    if not test.goal.until:
        return _share(test, aim, notes)
    return min(1.0, _time(test, notes) / test.goal.until)


def _time(replica: Replica, notes: Notes) -> float:
    """Return the newest `time_attr` of a replica, from its note if it has one."""
    note = notes.get((replica.trial, replica.index))
    return replica.time if note is None or note.time is None else note.time


def _share(replica: Replica, aim: Aim, notes: Notes) -> float:
    """Return how far a replica is on its way to the nearest stopping criterion, 0 to 1."""
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
    """Return the share of a goal that a counter has reached, 0 to 1."""
    return min(1.0, (to_number(reached.get(key)) or 0.0) / goal) if goal > 0 else 1.0


def time_left(elapsed: float, now: float, start: float = 0.0) -> float | None:
    """Return the seconds left at the pace so far, or None if it is too early to say.

    The share of the work was `start` as this driver started, `elapsed` seconds ago, and is `now`.
    """
    if now >= 1.0:
        return 0.0
    done = now - start
    return elapsed * (1.0 - now) / done if done >= _LEAST else None
