"""The order of trials: by expectation, aggregate, several objectives and constraints.

Trials rank by the expected score of their settings under a new seed (`expectation`), unless the
sweep asks for the worst seed or a bound instead. In that case measured scores decide, and
expectations break ties.

A trial that violates a constraint ranks behind all feasible ones, by its total violation. Among
feasible trials, the front ranks first: those that no trial beats in every objective. Then follow
those that only the front beats, and so on. Within a front the order is as with one objective.
"""

import math
import struct
from collections.abc import Callable, Iterable, Sequence

from sweep.history import fronts
from sweep.history.expectation import Expected
from sweep.history.objective import Objective
from sweep.history.trial import Trial, rank_key


def values(trial: Trial) -> tuple[float | None, ...]:
    """Return the trial's present scores in all objectives, the metric's first.

    A score that is missing is None.
    """
    return trial.values_at()


#: Trial → its rank by expectation, infinite without one.
Places = Callable[[int], float]


def is_by_expectation(objective: Objective) -> bool:
    """Return whether expected scores alone decide the ranks.

    They do with one objective, no constraint, and an aggregate that is fair to trials with
    different numbers of seeds.
    """
    return objective.is_simple and objective.aggregate.is_independent_of_count


def ranked(trials: Iterable[Trial], objective: Objective, places: Places) -> list[Trial]:
    """Return the trials best first: feasible ones by front and expectation, then infeasible ones.

    Args:
        places: function from a trial's number to its rank by expected score. That rank decides
            first if the aggregate is fair to trials with different numbers of seeds, else only
            between equal scores.
    """
    chosen = list(trials)
    scores = {trial.number: trial.score for trial in chosen}
    chosen.sort(key=lambda trial: rank_key(trial, scores[trial.number]))
    if objective.aggregate.is_independent_of_count:
        chosen.sort(key=lambda trial: places(trial.number))
    else:
        chosen.sort(
            key=lambda trial: (*rank_key(trial, scores[trial.number])[:2], places(trial.number))
        )
    if objective.is_simple:
        return chosen
    good = [trial for trial in chosen if trial.feasible]
    if objective.objectives:
        level = dict(zip([t.number for t in good], front_indices(good, objective), strict=True))
        good.sort(key=lambda trial: level[trial.number])
    bad = [trial for trial in chosen if not trial.feasible]
    return [*good, *sorted(bad, key=_total_violation)]


def order_text(trial: Trial, expected: Expected | None, is_pick: bool) -> str:
    """Return a text for a tracker to sort by: in alphabetical order, trials are best first.

    The order is that of `ranked` as far as one trial alone determines it, with the pick first. With
    several objectives, the metric decides, then the others in turn, since fronts need all trials.
    Equal trials are ordered by number. The text has fields of fixed width with digits and lowercase
    letters, so that every collation sorts it in the same order.
    """
    objective = trial.objective
    missing, cost, number = rank_key(trial, trial.score)
    costs = [] if objective.aggregate.is_independent_of_count else [cost]
    costs.append(0.0 if expected is None else -objective.sign * expected.value)
    pairs = zip(objective.signs[1:], trial.other_scores, strict=True)
    costs += [math.inf if v is None or math.isnan(v) else -sign * v for sign, v in pairs]
    costs.append(0.0 if expected is None else trial.steps)
    excess, *later_fields = (_sort_key(value) for value in (_total_violation(trial), *costs))
    missing = missing or expected is None
    first = [str(int(not is_pick)), excess, str(int(missing))]
    return ".".join([*first, *later_fields, f"{number:010}"])


def _sort_key(value: float) -> str:
    """Return 16 hexadecimal digits for a number, infinities included; it must not be NaN.

    Such texts sort alphabetically as the numbers do; -0.0 has the text of 0.0.
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # -0.0 equals 0.0
    return f"{bits ^ (2**64 - 1 if bits >> 63 else 1 << 63):016x}"


def _total_violation(trial: Trial) -> float:
    """Return the sum of the amounts by which a trial violates constraints; 0 if it is feasible."""
    return sum(violation for violation in trial.violations if violation > 0)


def front(trials: Iterable[Trial], objective: Objective, places: Places) -> list[Trial]:
    """Return the feasible trials that no other of them dominates, best in the metric first.

    Trials without a finite score in every objective do not take part. `places` is a function from a
    trial's number to its rank by expected score, by which trials of the front are ordered.
    """
    good = [trial for trial in ranked(trials, objective, places) if trial.feasible]
    complete = [trial for trial in good if is_complete(trial)]
    found = zip(complete, front_indices(complete, objective), strict=True)
    return [trial for trial, level in found if level == 0]


def is_complete(trial: Trial) -> bool:
    """Return whether a trial has a finite score in the metric and in every further objective."""
    return all(value is not None and math.isfinite(value) for value in values(trial))


def front_indices(trials: Sequence[Trial], objective: Objective) -> list[int]:
    """Return the index of each trial's front, from 0.

    Trials without a finite score in every objective have ``len(trials)``.
    """
    costs = {
        index: tuple(
            -sign * float(value or 0.0)
            for sign, value in zip(objective.signs, values(trial), strict=True)
        )
        for index, trial in enumerate(trials)
        if is_complete(trial)
    }
    found = dict(zip(costs, fronts.front_indices([*costs.values()]), strict=True))
    return [found.get(index, len(trials)) for index in range(len(trials))]
