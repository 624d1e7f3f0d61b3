"""What the scores of a trial's replicas count as together.

aggregate: mean      the arithmetic mean
aggregate: iqm       the interquartile mean: of the middle half, its ends counted by their share
aggregate: median    the middle one; of two middle ones their mean
aggregate: worst     the least where more is better, the greatest where less is
aggregate: {lower_bound: 0.9}   what the mean is better than with this confidence (Student's t)
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from sweep import estimates
from sweep.spec.score import Mode

Kind = Literal["mean", "iqm", "median", "worst", "lower_bound"]

ALLOWED = "mean, iqm, median, worst, or {lower_bound: level} with a level from 0.5 to below 1"


class Aggregate(BaseModel):
    """Which number several scores become."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Kind = Field("mean", description="How the scores of the replicas become one number.")
    level: float = Field(
        0.5, ge=0.5, lt=1, description="With lower_bound: how sure it is that the mean is better."
    )

    def combine(self, values: Sequence[float], mode: Mode) -> float:
        """One number for the scores of at least one replica; NaN if one of them is NaN.

        Of one score it is that score, except that a bound needs two: ValueError.
        """
        if any(math.isnan(value) for value in values):
            return math.nan
        if self.kind == "worst":
            return min(values) if mode == "max" else max(values)
        if self.kind == "lower_bound":
            return estimates.confidence_bound(values, self.level, upper=mode == "min")
        return self.centre(values)

    def centre(self, values: Sequence[float]) -> float:
        """Where the scores lie: what `combine` is without its caution."""
        return _CENTRES.get(self.kind, estimates.mean)(sorted(values))

    @property
    def fair(self) -> bool:
        """Whether it favours neither few seeds nor many, so that unequal numbers compare."""
        return self.kind in _CENTRES

    def written(self) -> Any:
        """The aggregate as it stands in a spec."""
        return {"lower_bound": self.level} if self.kind == "lower_bound" else self.kind


def read_aggregate(raw: Any) -> Any:
    """The fields of `Aggregate` for what stands in a spec."""
    if isinstance(raw, Aggregate):
        return raw
    if isinstance(raw, str) and raw in get_args(Kind) and raw != "lower_bound":
        return {"kind": raw}
    if isinstance(raw, Mapping) and list(raw) == ["lower_bound"]:
        level = raw["lower_bound"]
        if isinstance(level, float) and 0.5 <= level < 1:
            return {"kind": "lower_bound", "level": level}
    raise ValueError(ALLOWED)


AggregateField = Annotated[
    Aggregate, BeforeValidator(read_aggregate), PlainSerializer(Aggregate.written)
]


def _median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    return estimates.mean((ordered[middle], ordered[-1 - middle]))


def interquartile_mean(ordered: Sequence[float]) -> float:
    """The mean of the middle half of ascending values.

    A value at an end of that half counts by the share of it that lies inside: of five values the
    second and the fourth count three quarters. Agarwal et al., Deep Reinforcement Learning at the
    Edge of the Statistical Precipice, 2021, section 4.3, recommend it for few runs.
    """
    low, high = len(ordered) / 4, len(ordered) * 3 / 4
    weights = [max(0.0, min(i + 1, high) - max(i, low)) for i in range(len(ordered))]
    return estimates.weighted_mean(ordered, weights)


_CENTRES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": estimates.mean,
    "iqm": interquartile_mean,
    "median": _median,
}
