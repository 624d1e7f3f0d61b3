"""Trials against each other: expectation, aggregate, several objectives, constraints.

Trials rank by what their settings are expected to score under a new seed (`expectation`), unless
a sweep asks for something else than what is to be expected: the worst of the seeds, or a bound.
There, the scores decide, and expectations between equals.

A trial that breaks a constraint ranks behind all that break none, by how much it breaks them. Of
the others those rank first that none is better than in every objective: the front; then those that
only the front is better than, and so on; within one front the order is as with one objective.
"""

import math
import struct
from collections.abc import Callable, Iterable, Sequence

from sweep.history.expectation import Expected
from sweep.history.objective import Objective
from sweep.history.trial import Trial, rank_key


def values(trial: Trial) -> tuple[float | None, ...]:
    """The scores in all objectives, the metric's first; None: it has none yet."""
    return (trial.score, *trial.others)


#: Trial → its place by expectation, infinite where it has none.
Places = Callable[[int], float]


def is_by_expectation(objective: Objective) -> bool:
    """Return whether the expectation alone decides the rank."""
    return objective.is_simple and objective.aggregate.fair


def ranked(trials: Iterable[Trial], objective: Objective, places: Places) -> list[Trial]:
    """Trials, best first."""
    chosen = list(trials)
    scores = {trial.number: trial.score for trial in chosen}
    chosen.sort(key=lambda trial: rank_key(trial, scores[trial.number]))
    if objective.aggregate.fair:
        chosen.sort(key=lambda trial: places(trial.number))
    else:
        chosen.sort(
            key=lambda trial: (*rank_key(trial, scores[trial.number])[:2], places(trial.number))
        )
    if objective.is_simple:
        return chosen
    good = [trial for trial in chosen if trial.feasible]
    if objective.objectives:
        level = dict(zip([t.number for t in good], levels(good, objective), strict=True))
        good.sort(key=lambda trial: level[trial.number])
    bad = [trial for trial in chosen if not trial.feasible]
    return [*good, *sorted(bad, key=_excess)]


def order_text(trial: Trial, expected: Expected | None, is_pick: bool) -> str:
    """Return text by which a store of texts sorts trials best first, of equals the lowest number.

    The order is that of `ranked`, from this trial alone, the pick first of all: of several
    objectives the metric decides, then the others in their order, since a front would take a
    comparison with all other trials. The characters are digits and lowercase letters in fields of
    fixed width, so that every collation sorts them alike.
    """
    objective = trial.objective
    missing, cost, number = rank_key(trial, trial.score)
    costs = [] if objective.aggregate.fair else [cost]
    costs.append(0.0 if expected is None else -objective.sign * expected.value)
    pairs = zip(objective.signs[1:], trial.others, strict=True)
    costs += [math.inf if v is None or math.isnan(v) else -sign * v for sign, v in pairs]
    costs.append(0.0 if expected is None else trial.steps)
    excess, *rest = (_sortable(value) for value in (_excess(trial), *costs))
    missing = missing or expected is None
    first = [str(int(not is_pick)), excess, str(int(missing))]
    return ".".join([*first, *rest, f"{number:010}"])


def _sortable(value: float) -> str:
    """Return 16 hexadecimal digits that sort as numbers do."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))  # -0.0 equals 0.0
    return f"{bits ^ (2**64 - 1 if bits >> 63 else 1 << 63):016x}"


def _excess(trial: Trial) -> float:
    """Return by how much a trial breaks its constraints, in all."""
    return sum(violation for violation in trial.violations if violation > 0)


def front(trials: Iterable[Trial], objective: Objective, places: Places) -> list[Trial]:
    """The trials that none is better than; best in the metric first; none that breaks a limit."""
    good = [trial for trial in ranked(trials, objective, places) if trial.feasible]
    complete = [trial for trial in good if is_complete(trial)]
    found = zip(complete, levels(complete, objective), strict=True)
    return [trial for trial, level in found if level == 0]


def is_complete(trial: Trial) -> bool:
    """Return whether a trial has a score in every objective."""
    return all(value is not None and not math.isnan(value) for value in values(trial))


def levels(trials: Sequence[Trial], objective: Objective) -> list[int]:
    """Return the number of fronts before each trial; one that lacks a score comes after all fronts.

    Zhang et al., An Efficient Approach to Nondominated Sorting for Evolutionary Multiobjective
    Optimization, 2015: in lexicographic order no later point is better than an earlier one.
    """
    signs = objective.signs
    costs = {
        index: tuple(-s * float(v or 0.0) for s, v in zip(signs, values(trial), strict=True))
        for index, trial in enumerate(trials)
        if is_complete(trial)
    }
    fronts: list[list[tuple[float, ...]]] = []
    found = dict.fromkeys(range(len(trials)), len(trials))
    for index in sorted(costs, key=lambda index: costs[index]):
        cost = costs[index]
        level = next(
            (n for n, other in enumerate(fronts) if not any(_better(c, cost) for c in other)),
            len(fronts),
        )
        fronts[level : level + 1] = [[*(fronts[level] if level < len(fronts) else []), cost]]
        found[index] = level
    return [found[index] for index in range(len(trials))]


def _better(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether `one` is no worse anywhere and better somewhere; equal points are not."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
