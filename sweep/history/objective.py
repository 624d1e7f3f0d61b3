"""Objective by which the trials of a sweep are compared."""

import math
from dataclasses import dataclass, field
from functools import cached_property

from sweep.spec.objective import Aggregate, Constraint, Mode, Objectives, Score


@dataclass(frozen=True)
class Objective:
    """Everything by which trials are compared.

    It has the metric with its direction and its rule for a score, further objectives, and
    constraints.
    """

    metric: str
    """Name of the compared result, with ``/`` between nested keys."""
    mode: Mode
    """Direction: ``max`` or ``min``."""
    score: Score
    """Rule that makes one number of a curve, such as its last value or the mean of the last
    ones."""
    time_attr: str = "training_iteration"
    """Name of the result that is the horizontal axis of curves, such as iterations or environment
    steps."""
    aggregate: Aggregate = field(default_factory=Aggregate)
    """Rule that makes one score of several replicas' scores, such as their mean."""
    objectives: Objectives = ()
    """Further objectives: pairs of a result's name and ``max`` or ``min``."""
    constraints: tuple[Constraint, ...] = ()
    """Limits on results; trials that violate one rank behind all others."""

    @property
    def sign(self) -> float:
        """+1 if the metric is maximised, -1 if it is minimised."""
        return 1.0 if self.mode == "max" else -1.0

    @property
    def signs(self) -> tuple[float, ...]:
        """+1 for each objective that is maximised, -1 for the others; the metric's is first."""
        return (self.sign, *(1.0 if mode == "max" else -1.0 for _, mode in self.objectives))

    @cached_property
    def other_results(self) -> tuple[str, ...]:
        """Names of the results of further objectives, then of those with constraints."""
        return (*(path for path, _ in self.objectives), *(c.path for c in self.constraints))

    @property
    def is_simple(self) -> bool:
        """True if there is only the metric, without further objectives or constraints."""
        return not (self.objectives or self.constraints)


def rank(objective: Objective, score: float | None, number: int) -> tuple[bool, float, int]:
    """Return a key that sorts trials best first by `score`, then by `number`.

    A score that is None or NaN comes last.
    """
    missing = score is None or math.isnan(score)
    return (missing, 0.0 if missing else -objective.sign * (score or 0.0), number)
