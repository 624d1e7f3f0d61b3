"""Trials against each other where one number does not decide: several objectives, constraints.

A trial that breaks a constraint ranks behind all that break none, by how much it breaks them. Of
the others those rank first that none is better than in every objective: the front; then those that
only the front is better than, and so on; within one front the metric decides, then age. With one
objective and no constraints that is the order of the scores.
"""

import math
from collections.abc import Iterable, Sequence

from sweep.history.objective import Objective
from sweep.history.trial import Trial, rank_key


def values(trial: Trial) -> tuple[float | None, ...]:
    """The scores in all objectives, the metric's first; None: it has none yet."""
    return (trial.score, *trial.others)


def ranked(trials: Iterable[Trial], objective: Objective) -> list[Trial]:
    """Trials, best first."""
    chosen = list(trials)
    scores = {trial.number: trial.score for trial in chosen}
    chosen.sort(key=lambda trial: rank_key(trial, scores[trial.number]))
    if objective.is_simple:
        return chosen
    good = [trial for trial in chosen if trial.feasible]
    level = dict(zip([t.number for t in good], levels(good, objective), strict=True))
    bad = [trial for trial in chosen if not trial.feasible]
    return [
        *sorted(good, key=lambda trial: level[trial.number]),
        *sorted(bad, key=lambda trial: sum(v for v in trial.violations if v > 0)),
    ]


def front(trials: Iterable[Trial], objective: Objective) -> list[Trial]:
    """The trials that none is better than; best in the metric first; none that breaks a limit."""
    good = [trial for trial in ranked(trials, objective) if trial.feasible]
    complete = [trial for trial in good if is_complete(trial)]
    found = zip(complete, levels(complete, objective), strict=True)
    return [trial for trial, level in found if level == 0]


def is_complete(trial: Trial) -> bool:
    """Whether it has a score in every objective."""
    return all(value is not None and not math.isnan(value) for value in values(trial))


def levels(trials: Sequence[Trial], objective: Objective) -> list[int]:
    """How many fronts lie before each trial; one that lacks a score comes after all fronts.

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
    """Whether `one` is no worse anywhere and better somewhere; equal points are not."""
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
