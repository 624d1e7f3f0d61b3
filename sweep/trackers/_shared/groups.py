"""The curve of a trial with several seeds: the aggregate over seeds at each iteration.

A row is added once all seeds that count have finished the iteration or are completed; a completed
seed keeps its last value, as in its trial's score. A row never changes: a seed that joins later
changes the score, not the earlier rows.
"""

import math
from collections.abc import Iterator, Sequence

from sweep.history.events import Closed, Reported, Row, Scalar, Status
from sweep.history.objective import Objective
from sweep.history.replica import Replica
from sweep.history.results import to_number
from sweep.history.trial import Trial

#: Name of the result that counts environment steps.
_STEPS = "timesteps_total"


class Curve:
    """Curve of one trial over all its seeds, extended by the results of its slices."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._upto = 0
        """Number of the last iteration of the curve; 0 before the first."""
        self._waiting: dict[int, dict[int, Row]] = {}
        """Iteration → index of a replica → its result, while other replicas have none."""
        self._last: dict[int, Row] = {}
        """Index of a replica → its newest result that has the metric."""

    def extend(self, trial: Trial, event: Reported | Closed) -> Iterator[Row]:
        """Yield the rows that the results in an event complete, one per iteration.

        An iteration is complete once each of the trial's `compared_replicas` has a result of it or
        was completed before it, and all iterations before it are complete. Other results are kept
        until then; those of iterations already in the curve are ignored. `trial` is the trial after
        the event.
        """
        for row in event.rows:
            if row.iteration > self._upto:
                self._waiting.setdefault(row.iteration, {})[event.replica] = row
            if to_number(row.metrics.get(self._objective.metric)) is not None:
                self._last[event.replica] = row
        for iteration in sorted(self._waiting):
            rows = [self._row_at(iteration, replica) for replica in trial.compared_replicas]
            known = [row for row in rows if row is not None]
            if len(known) < len(rows):
                return
            yield self._row(iteration, known)
            del self._waiting[iteration]
            self._upto = iteration

    def _row_at(self, iteration: int, replica: Replica) -> Row | None:
        """Return a replica's result of a waiting iteration; of a completed replica the last one.

        Returns None if it may still come.
        """
        row = self._waiting[iteration].get(replica.index)
        is_completed = replica.status is Status.COMPLETED
        return self._last.get(replica.index) if row is None and is_completed else row

    def _row(self, iteration: int, rows: list[Row]) -> Row:
        """Return the row of an iteration, with the metric aggregated over the seeds' rows.

        It also has their largest number of environment steps. Either is left out if it is not
        known.
        """
        metrics: dict[str, Scalar] = {"training_iteration": iteration}
        steps = [to_number(row.metrics.get(_STEPS)) for row in rows]
        found = [step for step in steps if step is not None]
        if found:
            metrics[_STEPS] = max(found)
        metric = self._objective.metric
        value = aggregate_seeds(
            self._objective, [to_number(row.metrics.get(metric)) for row in rows]
        )
        if value is not None:
            metrics[metric] = value
        return Row(iteration, metrics)


def aggregate_seeds(objective: Objective, values: Sequence[float | None]) -> float | None:
    """Return the aggregate of the seeds' values of the metric at one iteration.

    Returns None if a value is missing or, of several, not finite.
    """
    if len(values) == 1:
        return values[0]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(finite) < len(values):
        return None
    return objective.aggregate.combine(finite, objective.mode)
