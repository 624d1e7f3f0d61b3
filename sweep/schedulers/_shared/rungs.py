"""Rungs, as schedulers share them: their options, the top rung, and the numbers of a ranking."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol

from pydantic import Field

from sweep.errors import BadConfig
from sweep.history.events import Evidence, Status
from sweep.history.history import History
from sweep.history.order import at_level
from sweep.history.trial import Trial, rank_key
from sweep.schedulers import SchedulerContext
from trainables.core.settings import Settings

#: Places of a ranking in a decision's evidence: its head, and either side of those in question.
_HEAD, _AROUND = 3, 1


class TimeOptions(Settings):
    """The unit in which a scheduler counts."""

    time_attr: str = Field(
        "training_iteration", description="Result key in which rungs are counted."
    )


class RungOptions(TimeOptions):
    """Settings of the rungs: the lowest, the top, and their ratio."""

    max_t: float | None = Field(
        None,
        gt=0,
        description="Top rung, in units of time_attr; default: stop[time_attr]. Without both, "
        "rungs grow as trials reach them.",
    )
    grace_period: float = Field(1, gt=0, description="Lowest rung, in units of time_attr.")
    reduction_factor: int = Field(
        3, ge=2, description="Of this many trials at a rung, one goes on; also the rungs' ratio."
    )


def top_rung(options: RungOptions, context: SchedulerContext) -> float | None:
    """Return the level of the top rung; None if trials end by themselves, at a level not yet known.

    Raises:
        BadConfig: no trial would ever reach a rung.
    """
    attr, end = options.time_attr, context.stop.get(options.time_attr)
    top = options.max_t if options.max_t is not None else end
    if top is not None and end is not None and top > end:
        hint = "trials end there; leave max_t out, or raise the stop"
        raise BadConfig("scheduler.max_t", top, f"at most stop.{attr}, {end:g}", hint)
    key, grace = "scheduler.grace_period", options.grace_period
    if top is not None and grace > top:
        raise BadConfig(key, grace, f"at most the top rung, {top:g}")
    check_first(key, grace, attr)
    return top


def check_first(key: str, level: float, time_attr: str) -> None:
    """Refuse a first level that lies before the end of the first iteration."""
    if time_attr == "training_iteration" and level < 1:
        hint = "a slice is at least one iteration; no trial stops earlier"
        raise BadConfig(key, level, "at least 1", hint)


def check_reached(key: str, level: float, time_attr: str, context: SchedulerContext) -> None:
    """Refuse a first level that no trial reaches before a stopping criterion ends it."""
    end = context.stop.get(time_attr)
    if end is not None and level >= end:
        hint = "trials would end before the scheduler looks at them"
        raise BadConfig(key, level, f"less than stop.{time_attr}, {end:g}", hint)


def waits(trial: Trial) -> bool:
    """Return whether the trial has reached its goal and waits for a decision."""
    return trial.status is Status.PAUSED and not trial.unfinished


class Ranking(Protocol):
    """Trials with their scores, best first."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]: ...


def standing(ranking: Ranking, place: int, level: float) -> str:
    """Return the score at a level and the place (from 1) of a trial in a ranking, in words.

    A value of another step than the level names its step. One that was interpolated names the
    results on both sides of the level, as the trial itself has reported no such value.
    """
    trial, score = ranking[place - 1]
    value = "no score" if score is None else f"{trial.objective.metric} {score:.6g}"
    step = step_at(trial, level)
    if score is None or step is None or math.isinf(level):
        of = ""
    else:
        of = sides_text(trial, level) if step == level else f" at {step_text(step)}"
    return f"{value}{of} is place {place} of {len(ranking)}"


def sides_text(trial: Trial, level: float) -> str:
    """Return the results between which a score was interpolated, in brackets; empty if it was not.

    Of several seeds, or of a score made of several results, no single pair says it all.
    """
    found = [reading.sides for reading in trial.readings_at(level) if reading.sides is not None]
    if not found:
        return ""
    if len(trial.counted) > 1 or trial.objective.score.kind != "last":
        return " (interpolated)"
    before, after = (f"{point.value or 0.0:.6g} at {point.time:.6g}" for point in found[0])
    return f" (interpolated between {before} and {after})"


def is_interpolated(trial: Trial, level: float) -> bool:
    """Return whether the score of a trial at a level lies between two of its results."""
    return any(reading.sides is not None for reading in trial.readings_at(level))


def step_at(trial: Trial, level: float) -> float | str | None:
    """The step that a trial's score at a level is of; of seeds that differ, each in words.

    It is the level itself where the trial has results on both sides of it.
    """
    steps = trial.steps_at(level)
    if len(steps) < 2:
        return steps[0] if steps else None
    return " and ".join(f"{step:.6g}" for step in steps)


def step_text(step: float | str | None) -> str:
    """A step as it stands in a sentence."""
    return f"{step:.6g}" if isinstance(step, float) else str(step)


def ranked_at(trials: Sequence[Trial], level: float) -> list[tuple[Trial, float | None]]:
    """Trials with their scores at a level, best first; a missing score is last.

    Those that have never had the metric are left out: they are compared with nobody.
    """
    scored = [(trial, trial.score_at(level)) for trial in trials if trial.is_known]
    return sorted(scored, key=lambda pair: rank_key(*pair))


class Rung(Ranking):
    """The trials that were compared at a level, with their scores there, best first.

    It is kept up while results come in: who asks for a place does not look at the others.
    """

    def __init__(self, history: History, level: float) -> None:
        self._trials = history.trials
        self._level = level
        self._entries = history.order(at_level(level))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]:
        trial = self._compared(self._trials[self._entries[place][-1]])
        return trial, trial.score_at(self._level)

    def _compared(self, trial: Trial) -> Trial:
        """A trial as it is compared here."""
        return trial

    def place(self, trial: Trial) -> int:
        """Return the place of a trial, from 1."""
        score = self._compared(trial).score_at(self._level)
        return bisect_left(self._entries, rank_key(trial, score)) + 1

    def equals(self, place: int) -> int:
        """Return how many behind the one at `place`, from 1, have the same score."""
        missing, cost, _ = self._entries[place - 1]
        if missing:  # no score equals no score, but NaN equals nothing
            _, score = self[place - 1]
            return sum(self[other][1] == score for other in range(place, len(self)))
        return bisect_right(self._entries, (missing, cost, math.inf)) - place


def to_climb(levels: Sequence[float], trials: Sequence[Trial], finals: Sequence[float]) -> float:
    """About how much is left to train if `finals[i]` trials reach ``levels[i]`` in all."""
    left = bottom = 0.0
    for level, final in zip(levels, finals, strict=True):
        left += max(0.0, final - sum(t.reached(level) for t in trials)) * (level - bottom)
        bottom = level
    begun = (
        trial.time - max((level for level in levels if level <= trial.time), default=0.0)
        for trial in trials
        if climbs(trial)
    )
    return max(0.0, left - sum(begun))


def climbs(trial: Trial) -> bool:
    """Return whether the trial runs, or was interrupted, before its goal."""
    return trial.status is Status.RUNNING or trial.unfinished


def evidence(level: float, ranking: Ranking, place: int, going_on: int) -> Evidence:
    """The numbers of a decision about the trial at `place`, where the first `going_on` go on.

    Of a long ranking: its head, and the neighbours of the cut and of the trial itself.
    """
    wanted = {*range(1, _HEAD + 1)}
    for middle in (place, going_on):
        wanted |= {*range(middle - _AROUND, middle + _AROUND + 1)}
    places = [p for p in sorted(wanted | {going_on + 1}) if 1 <= p <= len(ranking)]
    return {
        "rung": level,
        "place": place,
        "of": len(ranking),
        "going_on": going_on,
        "places": places,
        "trials": [ranking[p - 1][0].number for p in places],
        "scores": [ranking[p - 1][1] for p in places],
        "steps": [step_at(ranking[p - 1][0], level) for p in places],
    }
