"""Tests of the best trial at the top rung, by which ``seeds: auto`` with ``asha`` spends its seeds.

The trial with the best expected score gets further seeds, a few at a time. If they let it down,
another trial has the best expected score, and is tested next. Once the best one has `AUTO_SEEDS`,
another trial is tested if it is expected to improve on the best one by enough; if none is, the best
one gets more seeds in sweeps that are long enough.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from sweep.history import ranking
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.history.order import Entry
from sweep.history.trial import Trial
from sweep.schedulers import AddSeed
from sweep.schedulers._shared.seeding import (
    AUTO_SEEDS,
    Step,
    gets_more,
    more_seeds,
    step_key,
)

#: Number of trials in the evidence of a test of the best one.
_SHOWN = 5
#: Number of trials at the top rung up to which each arrival is a moment to begin a test. With n
#: times as many, every n-th is: the more trials, the longer it takes to find the best of them.
_EACH = 40
#: Expected improvement on a trial with all `AUTO_SEEDS` that is worth a test of another trial, in
#: standard deviations between trainings.
WORTH = 0.02
#: Number of seeds that the best trial gets in the end in long sweeps.
_LONG_SWEEP_SEEDS = 12
#: Numbers of seeds of a trial after one, two and three tests.
_COUNTS = (*AUTO_SEEDS, _LONG_SWEEP_SEEDS)


def decide(history: History, goal: Goal) -> Iterator[AddSeed]:
    """Yield the decisions that train the best trial at the top rung under further seeds.

    It is the trial of `_next_tested`. It gets its next number of seeds once all further seeds of
    the sweep have been trained. In total, there are at most half as many further seeds as trials
    that have reached the top rung; at most a third as many if the trial gets `_LONG_SWEEP_SEEDS`.
    `goal` is that of the further seeds, at the top rung.
    """
    level = goal.until or 0.0
    tested = [history.trials[entry[-1]] for entry in history.order(_running_test)]
    able = [trial for trial in tested if gets_more(trial, Step(level, 1))]
    best = next((trial for trial in able if _is_incomplete(trial)), None)
    if best is None:
        arrived, given = len(history.order(step_key(Step(level, 1)))), history.total(_further_seeds)
        if able or given + AUTO_SEEDS[0] - 1 > arrived // 2:
            return
        if history.uncreated_trials and arrived % max(1, arrived // _EACH):
            return
        best = _next_tested(history, level)
        if best is None:
            return
        share = 3 if _next_count(best) == _LONG_SWEEP_SEEDS else 2
        if given + _next_count(best) - len(best.replicas) > arrived // share:
            return
    if len(best.replicas) < _next_count(best):
        why, compared = _why_tested(history, best, level)
        yield from more_seeds(best, _next_count(best), goal, why, compared)


def _further_seeds(trial: Trial) -> tuple[float, ...]:
    """Return the number of seeds that were added to a trial, as the only amount."""
    return (float(len(trial.replicas) - 1),)


def _running_test(trial: Trial) -> Entry | None:
    """Return an entry for a trial with further seeds that are not trained yet; None for others."""
    is_running = _is_incomplete(trial) or any(one.is_catching_up for one in trial.replicas)
    return (trial.number,) if is_running else None


def _next_count(trial: Trial) -> int:
    """Return the number of seeds that a trial gets next, or its present one if it has all."""
    have = len(trial.replicas)
    return next((count for count in _COUNTS if count > have), have)


def _has_auto_seeds(trial: Trial) -> bool:
    """Return whether a trial has all `AUTO_SEEDS`, or more."""
    return len(trial.replicas) >= AUTO_SEEDS[-1]


def _is_incomplete(trial: Trial) -> bool:
    """Return whether a trial has got only some of the seeds that were decided for it together."""
    return len(trial.replicas) not in (1, *_COUNTS)


def _next_tested(history: History, level: float) -> Trial | None:
    """Return the trial that is tested next at a level, in units of `time_attr`, if tests may begin.

    It is the one with the best expected score. If that has all `AUTO_SEEDS`, it is the trial with
    the largest expected improvement on it, or itself if no other is expected to improve on it by
    `WORTH`. Of equals, it is the trial that has trained longest. Returns None if there is no such
    trial with a score.
    """
    first = next(_ranked_at(history, level), None)
    if first is None:
        return None
    standing = _standing(history, first)
    equals = takewhile(lambda one: _standing(history, one) == standing, _ranked_at(history, level))
    best = _longest_trained(equals)
    if not _has_auto_seeds(best):
        return best
    ranked = [*_ranked_at(history, level)]
    gains = _improvements(history, best, ranked)
    largest = max(gains.values(), default=0.0)
    if largest < WORTH:
        return best
    return _longest_trained(trial for trial in ranked if gains.get(trial.number) == largest)


def _improvements(history: History, best: Trial, ranked: Sequence[Trial]) -> dict[int, float]:
    """Return the expected improvement of each trial in `ranked` without `AUTO_SEEDS`, by number.

    It is that of `Expectations.improvements` on `best`. Trials are left out unless they are as
    feasible as `best`. Returns an empty dict if trials are not ranked by their expected scores.
    """
    if not ranking.is_by_expectation(history.objective):
        return {}
    able = [
        trial.number
        for trial in ranked
        if not _has_auto_seeds(trial) and trial.feasible == best.feasible
    ]
    return history.expectations.improvements(able, best.number) if able else {}


def _longest_trained(trials: Iterable[Trial]) -> Trial:
    """Return the trial whose first seed has trained longest, in units of `time_attr`.

    Its score says most about the end of training; that of a trial that met a target at once may be
    luck.
    """
    return min(trials, key=lambda trial: (-trial.replicas[0].time, trial.number))


def _ranked_at(history: History, level: float) -> Iterator[Trial]:
    """Yield the trials that may get seeds at a level, best first by their expected scores."""
    key = step_key(Step(level, 1))
    by_expectation = ranking.is_by_expectation(history.objective)
    numbers = history.expectations.order if by_expectation else ()
    ranked = (history.trials[number] for number in numbers)
    for trial in ranked if by_expectation else history.ranked():
        first = trial.replicas[0]  # most trials have not arrived, and need no sort key to show it
        has_arrived = first.status is Status.COMPLETED or first.reached(level)
        if has_arrived and key(trial) is not None and gets_more(trial, Step(level, 1)):
            yield trial


def _standing(history: History, trial: Trial) -> tuple[bool, float | None]:
    """Return what decides a trial's rank: whether it is feasible, and its expected score."""
    expected = history.expected(trial)
    return trial.feasible, None if expected is None else expected.value


def _why_tested(history: History, tested: Trial, level: float) -> tuple[str, Evidence]:
    """Return the reason for testing a trial at a level, and the evidence.

    Another one may be before it if some of the seeds decided together are done, and may even have
    left it without a score.
    """
    ranked = [*_ranked_at(history, level)]
    standings = [_standing(history, trial) for trial in (*ranked, tested)]
    place = 1 + standings.index(standings[-1])
    shown = [tested, *(trial for trial in ranked if trial is not tested)][:_SHOWN]
    values = [_standing(history, trial)[1] for trial in shown]
    seeds = [sum(not one.is_catching_up for one in trial.replicas) for trial in shown]
    found = history.expected(tested)
    expected = "unknown" if found is None else f"{found.value:.6g}"
    why = (
        f"tested under {_next_count(tested)} seeds: its expected score on a new seed, {expected}, "
        f"is place {place} of {len(ranked)} at rung {level:g}"
    )
    if place > 1 and found is not None and found.error is not None:
        why += f"; with a standard error of {found.error:.3g} it may still be the best"
    numbers = [trial.number for trial in shown]
    return why, {"rung": level, "trials": numbers, "expected": values, "seeds": seeds}


def remaining_training(level: float, arriving: float, trials: Sequence[Trial]) -> float:
    """Return about how much training the tests of the best trials at the top rung still need.

    `level` is the top rung, in whose unit the result is, and `arriving` is the number of trials
    that reach it. About as many further seeds are expected as one trial gets, unless fewer trials
    arrive; none are left once a trial has them all.
    """
    further = [one for trial in trials for one in trial.replicas if one.joined_at is not None]
    is_done = any(len(trial.replicas) >= AUTO_SEEDS[-1] for trial in trials)
    expected = len(further) if is_done else max(len(further), min(arriving // 2, AUTO_SEEDS[-1]))
    return max(0.0, expected * level - math.fsum(min(one.time, level) for one in further))
