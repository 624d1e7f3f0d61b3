"""The growth of a front: the volume that it dominates, against the training of all trials.

The volume is measured up to a corner a little beyond the worst values of the present front, with
each objective scaled to the range of that front, as a share of the box between its best values and
the corner. So one cheap number, which grows towards 1, says how far the search has come.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sweep.history import fronts
from sweep.history.fronts import Costs
from sweep.history.trial import Trial
from sweep.operations.report.charts import round_to_6_digits
from sweep.operations.report.curves import replay_results, training_axis
from sweep.views.lookup import Sweep

#: Distance of the corner from the worst values of the front, in ranges of the front.
_BEYOND = 0.1
#: Number of points of the curve at most, evenly chosen among the changes of the front.
MOST_POINTS = 200


def growth(sweep: Sweep) -> dict[str, Any] | None:
    """Return the data of the picture of the front's volume and size over the training.

    ``x`` is the training, whose unit ``spent`` names, ``y`` the volume of `_volume`, and ``trials``
    the size. Returns None with one objective, without a front, or if all trials of the front are
    equal in an objective.
    """
    history = sweep.history
    if not history.objective.objectives:
        return None
    end = _corners([fronts.compare(trial).costs or () for trial in history.front()])
    if end is None:
        return None
    unit, training_of = training_axis([sweep])
    states = _states(sweep, training_of)
    kept = [states[place * len(states) // MOST_POINTS] for place in range(MOST_POINTS)]
    shown = states if len(states) <= MOST_POINTS else [*kept, states[-1]]
    return {
        "spent": unit,
        "x": [round_to_6_digits(spent) for spent, _ in shown],
        "y": [round_to_6_digits(_volume(points, *end)) for _, points in shown],
        "trials": [len(points) for _, points in shown],
    }


def _corners(front: Sequence[Costs]) -> tuple[Costs, Costs] | None:
    """Return the best cost of a front in each objective, and the corner beyond the worst ones.

    Returns None if the front is empty, or all its trials are equal in an objective.
    """
    columns = [(min(column), max(column)) for column in zip(*front, strict=True)]
    if not columns or any(low == high for low, high in columns):
        return None
    return (
        tuple(low for low, _ in columns),
        tuple(high + _BEYOND * (high - low) for low, high in columns),
    )


def _volume(points: Sequence[Costs], best: Costs, corner: Costs) -> float:
    """Return the share of the box between `best` and `corner` that the costs `points` dominate."""
    sides = [(low, high - low) for low, high in zip(best, corner, strict=True)]
    scaled = [
        tuple((cost - low) / side for cost, (low, side) in zip(point, sides, strict=True))
        for point in points
    ]
    inside = [tuple(max(0.0, cost) for cost in point) for point in scaled]
    return fronts.hypervolume(inside, (1.0,) * len(best))


def _states(sweep: Sweep, training_of: Callable[[Trial], float]) -> list[tuple[float, list[Costs]]]:
    """Return (training so far, costs of the front) at each change of the front, and at present.

    `training_of` returns a trial's amount of training. Trials that violate a constraint are left
    out.
    """
    costs: dict[int, Costs] = {}
    states: list[tuple[float, list[Costs]]] = []
    total = 0.0
    for trial, total in replay_results(sweep, training_of):
        compared, before = fronts.compare(trial), costs.pop(trial.number, None)
        if compared.costs is not None and compared.violation <= 0:
            costs[trial.number] = compared.costs
        if costs.get(trial.number) == before:
            continue
        points = [*costs.values()]
        found = [
            p for p, level in zip(points, fronts.front_indices(points), strict=True) if not level
        ]
        if not states or found != states[-1][1]:
            states.append((total, found))
    return [*states, (total, states[-1][1])] if states else []
