"""What schedulers with rungs share: their options, the top rung, and the numbers of a ranking."""

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
    """Where the rungs begin and end, and how they are spaced."""

    max_t: float | None = Field(
        None, gt=0, description="Top rung, in units of time_attr; default: stop[time_attr]."
    )
    grace_period: float = Field(1, gt=0, description="Lowest rung, in units of time_attr.")
    reduction_factor: int = Field(
        3, ge=2, description="Of this many trials at a rung, one goes on; also the rungs' ratio."
    )


def top_rung(options: RungOptions, context: SchedulerContext) -> float:
    """Where the top rung is.

    Raises:
        BadConfig: it is not known, or no trial would ever reach a rung.
    """
    attr, end = options.time_attr, context.stop.get(options.time_attr)
    top = options.max_t if options.max_t is not None else end
    if top is None:
        hint = f"set it, or stop.{attr}, so that the top rung is known"
        raise BadConfig("scheduler.max_t", None, "a number", hint)
    if end is not None and top > end:
        hint = "trials end there; leave max_t out, or raise the stop"
        raise BadConfig("scheduler.max_t", top, f"at most stop.{attr}, {end:g}", hint)
    key, grace = "scheduler.grace_period", options.grace_period
    if grace > top:
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
    """Whether the trial has reached its goal and waits for a decision."""
    return trial.status is Status.PAUSED and not trial.unfinished


class Ranking(Protocol):
    """Trials with their scores, best first."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]: ...


def standing(ranking: Ranking, place: int) -> str:
    """The score and the place (from 1) of a trial in a ranking, in words."""
    trial, score = ranking[place - 1]
    value = "no score" if score is None else f"{trial.objective.metric} {score:.6g}"
    return f"{value} is place {place} of {len(ranking)}"


def ranked_at(trials: Sequence[Trial], level: float) -> list[tuple[Trial, float | None]]:
    """Trials with their scores at a level, best first; a missing score is last."""
    scored = [(trial, trial.score_at(level)) for trial in trials]
    return sorted(scored, key=lambda pair: rank_key(*pair))


class Rung(Ranking):
    """The trials that have reached a level, with their scores there, best first.

    It is kept up while results come in: who asks for a place does not look at the others.
    """

    def __init__(self, history: History, level: float) -> None:
        self._trials = history.trials
        self._level = level
        self._entries = history.order(at_level(level))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]:
        trial = self._trials[self._entries[place][-1]]
        return trial, trial.score_at(self._level)

    def place(self, trial: Trial) -> int:
        """Where one of them stands, from 1."""
        return bisect_left(self._entries, rank_key(trial, trial.score_at(self._level))) + 1

    def equals(self, place: int) -> int:
        """How many behind the one at `place`, from 1, have the same score."""
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
    """Whether the trial runs, or was interrupted, before its goal."""
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
    }
