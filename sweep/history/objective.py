"""Objective by which the trials of a sweep are compared."""

import math
from dataclasses import dataclass, field
from functools import cached_property

from sweep.spec.objective import Aggregate, Constraint, Mode, Objectives, Score


@dataclass(frozen=True)
class Objective:
    """The compared results, their directions, and the time attribute of the curves."""

    metric: str
    """Name of the result that is compared."""
    mode: Mode
    """Direction: ``max`` or ``min``."""
    score: Score
    """Rule that makes one score of a curve, such as its last value or a mean."""
    time_attr: str = "training_iteration"
    """Key of the results that is the horizontal axis of curves."""
    aggregate: Aggregate = field(default_factory=Aggregate)
    """Aggregate over several replicas."""
    objectives: Objectives = ()
    """Further objectives: pairs of result and mode."""
    constraints: tuple[Constraint, ...] = ()
    """Limits on results that a trial must not violate."""

    @property
    def sign(self) -> float:
        """+1 if the metric is maximised, -1 if it is minimised."""
        return 1.0 if self.mode == "max" else -1.0

    @property
    def signs(self) -> tuple[float, ...]:
        """Sign of every objective, the metric's first."""
        return (self.sign, *(1.0 if mode == "max" else -1.0 for _, mode in self.objectives))

    @cached_property
    def other_results(self) -> tuple[str, ...]:
        """Names of the compared results other than the metric."""
        return (*(path for path, _ in self.objectives), *(c.path for c in self.constraints))

    @property
    def is_simple(self) -> bool:
        """True if there is only the metric, without further objectives or constraints."""
        return not (self.objectives or self.constraints)


def rank(objective: Objective, score: float | None, number: int) -> tuple[bool, float, int]:
    """Return a key that sorts best first: missing scores and NaN last, then by number."""
    missing = score is None or math.isnan(score)
    return (missing, 0.0 if missing else -objective.sign * (score or 0.0), number)
