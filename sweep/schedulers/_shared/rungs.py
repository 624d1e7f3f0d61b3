"""Rungs, shared by several schedulers: options, the top rung, and the evidence of a ranking."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol

from pydantic import Field

from sweep.core.errors import BadConfig
from sweep.history.events import Evidence, Status
from sweep.history.history import History
from sweep.history.order import Key, level_key
from sweep.history.trial import Trial, rank_key
from sweep.schedulers import SchedulerContext
from trainables.core.settings import Settings

#: Ranks in a decision's evidence: so many at the top, and so many around those in question.
_HEAD, _AROUND = 3, 1


class TimeOptions(Settings):
    """Option of all schedulers with levels: the unit in which they count."""

    time_attr: str = Field(
        "training_iteration",
        description="Result that measures training, such as timesteps_total; it must never "
        "decrease.",
    )


class RungOptions(TimeOptions):
    """Options of schedulers with rungs: lowest rung, top rung, and ratio between rungs."""

    max_t: float | None = Field(
        None,
        gt=0,
        description="Top rung, in units of time_attr; null: the value in stop for time_attr. "
        "Without one, asha adds rungs as trials reach them; hyperband and bohb use the level at "
        "which the first trial ended.",
    )
    grace_period: float = Field(1, gt=0, description="Lowest rung, in units of time_attr.")
    reduction_factor: int = Field(
        3,
        ge=2,
        description="Ratio of successive rungs; one in this many trials is promoted from each "
        "rung.",
    )


def top_rung(options: RungOptions, context: SchedulerContext) -> float | None:
    """Return the top rung (value of `time_attr`): `max_t`, or where the spec's `stop` ends trials.

    Returns None if trials end by themselves at unknown levels. Raises BadConfig if `max_t` is above
    that stop, or the lowest rung is above the top rung or before the end of the first iteration.
    """
    attr, end = options.time_attr, context.stop.get(options.time_attr)
    top = options.max_t if options.max_t is not None else end
    if top is not None and end is not None and top > end:
        problem = f"{top:g} is more than stop.{attr}, {end:g}, where trials end"
        hint = f"lower or remove max_t, or raise stop.{attr}"
        raise BadConfig("scheduler.max_t", top, hint=hint, problem=problem)
    key, grace = "scheduler.grace_period", options.grace_period
    if top is not None and grace > top:
        problem = f"{grace:g} is above the top rung, {top:g}"
        raise BadConfig(key, grace, hint="lower it", problem=problem)
    check_first(key, grace, attr)
    return top


def check_first(key: str, level: float, time_attr: str) -> None:
    """Raise BadConfig if the first level is before the end of the first iteration.

    Only levels that count iterations are checked. `key` names the option in the message.
    """
    if time_attr == "training_iteration" and level < 1:
        problem = (
            f"{level:g} is before the end of the first iteration, where a trial can first be "
            "stopped"
        )
        raise BadConfig(key, level, "at least 1", problem=problem)


def check_reached(key: str, level: float, time_attr: str, context: SchedulerContext) -> None:
    """Raise BadConfig if the first level is not below the value at which `stop` ends trials.

    Does nothing if `stop` has no value of `time_attr`. `key` names the option in the message.
    """
    end = context.stop.get(time_attr)
    if end is not None and level >= end:
        problem = (
            f"{level:g} is not less than stop.{time_attr}, {end:g}, so trials would end before the "
            "scheduler compares them"
        )
        raise BadConfig(key, level, hint=f"lower it, or raise stop.{time_attr}", problem=problem)


def is_waiting(trial: Trial) -> bool:
    """Return whether the trial is PAUSED at its goal and waits for a decision of the scheduler.

    It must be of `History.for_scheduler`: elsewhere, PAUSED trials that a user holds count too.
    """
    return trial.status is Status.PAUSED and not trial.is_interrupted


class Ranking(Protocol):
    """Trials with their scores, best first, by index from 0."""

    def __len__(self) -> int: ...
    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]: ...


def describe_rank(ranking: Ranking, place: int, level: float) -> str:
    """Return a text with the score and the rank of the trial at rank `place` (from 1).

    If the value was read at another step than `level`, the text names that step. If it was
    interpolated, the text names the results on both sides, since the trial reported no such value.
    """
    trial, score = ranking[place - 1]
    value = "no score" if score is None else f"{trial.objective.metric} {score:.6g}"
    of = "" if score is None else origin_text(trial, level)
    return f"{value}{of} is place {place} of {len(ranking)}"


def origin_text(trial: Trial, level: float) -> str:
    """Return a text on where a trial's score at a level comes from, to follow the score.

    It is empty if a result is exactly at that level, if there is no score, or if the level is
    infinite.
    """
    step = step_at(trial, level)
    if step is None or math.isinf(level):
        return ""
    return sides_text(trial, level) if step == level else f" at {step_text(step)}"


def sides_text(trial: Trial, level: float) -> str:
    """Return a text, in brackets, with the results between which a score was interpolated.

    It is empty if the score was not interpolated. With several seeds, or a score over several
    results, the text only says so. `level` is the value of `time_attr` at which trials are
    compared.
    """
    found = [reading.sides for reading in trial.readings_at(level) if reading.sides is not None]
    if not found:
        return ""
    if len(trial.compared_replicas) > 1 or trial.objective.score.kind != "last":
        return " (interpolated)"
    before, after = (f"{point.value or 0.0:.6g} at {point.time:.6g}" for point in found[0])
    return f" (interpolated between {before} and {after})"


def is_interpolated(trial: Trial, level: float) -> bool:
    """Return whether the score of a trial at a level was interpolated between two results."""
    return any(reading.sides is not None for reading in trial.readings_at(level))


def step_at(trial: Trial, level: float) -> float | str | None:
    """Return the value of `time_attr` at which a trial's score at a level was read.

    It is a text with all of them if seeds differ, and None without a value. It equals the level if
    the trial has results on both sides of it.
    """
    steps = trial.steps_at(level)
    if len(steps) < 2:
        return steps[0] if steps else None
    return " and ".join(f"{step:.6g}" for step in steps)


def step_text(step: float | str | None) -> str:
    """Return a result of `step_at` as a text."""
    return f"{step:.6g}" if isinstance(step, float) else str(step)


def ranked_at(trials: Sequence[Trial], level: float) -> list[tuple[Trial, float | None]]:
    """Return pairs of trial and score at a level, best first; those without a score are last.

    Trials that have never had the metric are left out.
    """
    scored = [(trial, trial.score_at(level)) for trial in trials if trial.is_known]
    return sorted(scored, key=lambda pair: rank_key(*pair))


class Described(Ranking, Protocol):
    """Ranking that describes its places, for the reasons and the evidence of decisions."""

    def describe(self, place: int, level: float) -> str:
        """Return a text with score at `level` and rank of the trial at rank `place` (from 1)."""
        return describe_rank(self, place, level)

    def evidence(self, level: float, place: int, promoted: int) -> Evidence:
        """Return the values behind a decision about rank `place`, if the first `promoted` continue.

        `level` is the value of `time_attr` at which trials are compared.
        """
        return evidence(level, self, place, promoted)


class Listed(Described):
    """Ranking by the metric, given as pairs of trial and score, best first."""

    def __init__(self, pairs: Sequence[tuple[Trial, float | None]]) -> None:
        self._pairs = pairs

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]:
        return self._pairs[place]


class Rung(Described):
    """All trials that reached a level, with their scores there, best first.

    The order is updated incrementally, so looking up one rank does not touch the other trials.
    """

    def __init__(self, history: History, level: float, key: Key | None = None) -> None:
        """`key` sorts the trials; by default they are sorted by their scores at `level`."""
        self._trials = history.trials
        self._level = level
        self._key = key or level_key(level)
        self._entries = history.order(self._key)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: int, /) -> tuple[Trial, float | None]:
        trial = self._compared(self._trials[self._entries[place][-1]])
        return trial, trial.score_at(self._level)

    def _compared(self, trial: Trial) -> Trial:
        """Return the trial as it is compared at this rung; subclasses leave seeds out."""
        return trial

    def place(self, trial: Trial) -> int:
        """Return the rank, from 1, of a trial that reached the level."""
        entry = self._key(trial)
        if entry is None:  # it has no score
            entry = rank_key(trial, self._compared(trial).score_at(self._level))
        return bisect_left(self._entries, entry) + 1

    def equal_places(self, place: int) -> Sequence[int]:
        """Return the ranks behind `place` (from 1) whose trials have the same score."""
        missing, cost, *_ = self._entries[place - 1]
        if missing:  # missing scores are equal, NaN are not
            _, score = self[place - 1]
            return [n + 1 for n in range(place, len(self)) if self[n][1] == score]
        return range(place + 1, bisect_right(self._entries, (missing, cost, math.inf)) + 1)


def estimate_remaining_training(
    levels: Sequence[float], trials: Sequence[Trial], finals: Sequence[float]
) -> float:
    """Return about how much training is left if ``finals[i]`` trials reach ``levels[i]`` in total.

    `levels` are ascending. The unit is theirs, summed over the trials.
    """
    left = bottom = 0.0
    for level, final in zip(levels, finals, strict=True):
        left += max(0.0, final - sum(t.reached(level) for t in trials)) * (level - bottom)
        bottom = level
    begun = (
        trial.time - max((level for level in levels if level <= trial.time), default=0.0)
        for trial in trials
        if is_climbing(trial)
    )
    return max(0.0, left - sum(begun))


def is_climbing(trial: Trial) -> bool:
    """Return whether the trial trains towards its goal: it runs, or was interrupted."""
    return trial.status is Status.RUNNING or trial.is_interrupted


def evidence(level: float, ranking: Ranking, place: int, promoted: int) -> Evidence:
    """Return the values behind a decision about rank `place`, if the first `promoted` continue.

    The keys are `rung` (the level), `place`, `of` (the number of trials) and `promoted`; and lists
    `places`, `trials`, `scores` and `steps` (values of `time_attr` at which scores were read). Of a
    long ranking they contain the top, and the neighbours of the cut and of the trial itself.
    """
    places = shown_places(ranking, place, promoted)
    return {
        "rung": level,
        "place": place,
        "of": len(ranking),
        "promoted": promoted,
        "places": places,
        "trials": [ranking[p - 1][0].number for p in places],
        "scores": [ranking[p - 1][1] for p in places],
        "steps": [step_at(ranking[p - 1][0], level) for p in places],
    }


def shown_places(ranking: Ranking, place: int, promoted: int) -> list[int]:
    """Return the ranks, ascending, that the evidence of a decision about rank `place` shows.

    The first `promoted` ranks continue.
    """
    wanted = {*range(1, _HEAD + 1)}
    for middle in (place, promoted):
        wanted |= {*range(middle - _AROUND, middle + _AROUND + 1)}
    return [p for p in sorted(wanted | {promoted + 1}) if 1 <= p <= len(ranking)]
