"""How far a sweep is, from its history and from the notes that running slices leave.

Progress is work, counted in the scheduler's ``time_attr``: a trial that only waits at a rung has
done its share. Notes are lossy and nothing is decided by them. Durations are seconds.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sweep import folder as folders
from sweep.errors import UsageError
from sweep.events import FINISHED, Metrics, Status
from sweep.folder import Folder
from sweep.history import History, Replica, Trial
from sweep.metrics import number
from sweep.spec.stopping import COUNTERS

#: Least share of the work after which an estimate of the rest is shown.
_LEAST = 0.02
#: Bytes of a note that are read; a longer one is torn.
_LONGEST_NOTE = 2**16


@dataclass(frozen=True)
class Aim:
    """What a sweep's progress is measured against."""

    levels: tuple[float, ...]
    """The scheduler's rungs, in units of ``time_attr``; empty without rungs."""
    stop: Mapping[str, float]
    work: Callable[[int], float | None] = lambda _trials: None
    """What the scheduler expects of so many trials, in units of ``time_attr``."""


@dataclass(frozen=True)
class Note:
    """Where a running trial is."""

    iteration: int
    time: float | None
    value: float | None


#: (trial, replica) → its note.
Notes = Mapping[tuple[int, int], Note]


def read_notes(folder: Folder, history: History) -> Notes:
    """The notes of what runs; what is missing, torn or older than the history is not."""
    notes = {}
    for replica in running(history):
        note = _read_note(folder, replica)
        if note is not None and note.iteration > replica.iteration:
            notes[replica.trial, replica.index] = note
    return notes


def running(history: History) -> list[Replica]:
    """What trains now: replicas, and tests."""
    return [*history.replicas(Status.RUNNING), *history.tests(Status.RUNNING)]


def _read_note(folder: Folder, replica: Replica) -> Note | None:
    try:
        lies = folder.trial(replica.trial, replica.index)
        with folders.reading(lies / "progress.json") as (file, _size):
            raw = json.loads(os.pread(file, _LONGEST_NOTE, 0))
        objective = replica.objective
        return Note(
            int(raw["training_iteration"]),
            number(raw.get(objective.time_attr)),
            number(raw.get(objective.metric)),
        )
    except (OSError, UsageError, ValueError, KeyError, TypeError, AttributeError):
        return None


def fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """The share of the expected work that is done, from 0 to 1; a trial's is its seeds' mean."""
    if history.ended == "finished":
        return 1.0
    expected = float(history.wanted)
    if aim.levels:
        expected = aim.work(history.wanted) or _expected(aim.levels) * history.wanted
    measure = _climbed if aim.levels else _share
    done = 0.0
    for trial in history.trials if aim.levels else _members(history):
        shares = [measure(replica, aim, notes or {}) for replica in trial.replicas]
        done += sum(shares) / len(shares)
    return min(1.0, done / expected) if expected > 0 else 0.0


def _members(history: History) -> list[Trial]:
    """The trials that count: in a population, those in whose place no child goes on."""
    if all(trial.parent is None for trial in history.trials):
        return history.trials
    return [trial for trial in history.trials if trial.status is not Status.PRUNED]


def exam_fraction(history: History, aim: Aim, notes: Notes | None = None) -> float:
    """The share of an exam that is done, from 0 to 1."""
    exam = history.exam
    if exam is None:
        return 0.0
    tests = [test for number in exam.trials for test in history.trials[number].tests[: exam.seeds]]
    done = sum(_tested(test, aim, notes or {}) for test in tests)
    return done / max(1, exam.seeds * len(exam.trials))


def _tested(test: Replica, aim: Aim, notes: Notes) -> float:
    if test.status in FINISHED or not test.goal.at:
        return _share(test, aim, notes)
    return min(1.0, _time(test, notes) / test.goal.at)


def _expected(levels: Sequence[float]) -> float:
    """Work per trial under successive halving: each rung is reached by the share that it leaves."""
    first = levels[0]
    return first + sum(
        (high - low) * first / low / _ratio(levels) for low, high in pairwise(levels)
    )


def _ratio(levels: Sequence[float]) -> float:
    return levels[1] / levels[0] if len(levels) > 1 else 1.0


def _climbed(replica: Replica, aim: Aim, notes: Notes) -> float:
    if replica.status is Status.COMPLETED:
        return aim.levels[-1]
    return min(_time(replica, notes), aim.levels[-1])


def _time(replica: Replica, notes: Notes) -> float:
    note = notes.get((replica.trial, replica.index))
    return replica.time if note is None or note.time is None else note.time


def _share(replica: Replica, aim: Aim, notes: Notes) -> float:
    if replica.status in FINISHED:
        return 1.0
    born = {replica.objective.time_attr: replica.time, "training_iteration": replica.iteration}
    reached = {**born, **replica.last}
    note = notes.get((replica.trial, replica.index))
    if note is not None:
        reached["training_iteration"] = note.iteration
    return max(
        (_towards(reached, key, aim.stop[key]) for key in COUNTERS if key in aim.stop), default=0
    )


def _towards(reached: Metrics, key: str, goal: float) -> float:
    return min(1.0, (number(reached.get(key)) or 0.0) / goal) if goal > 0 else 1.0


def time_left(elapsed: float, now: float, start: float = 0.0) -> float | None:
    """Seconds that the rest takes at the pace so far; None: too early to say.

    Args:
        elapsed: seconds since this driver began.
        now: the fraction that is done.
        start: the fraction that was done when this driver began.
    """
    if now >= 1.0:
        return 0.0
    done = now - start
    return elapsed * (1.0 - now) / done if done >= _LEAST else None
