"""The score of a trial: its learning curve as one number.

score: last              the newest value
score: best              the best value so far, by the sweep's mode
score: {mean_last: 10}   the mean of the newest ten; of fewer, while there are fewer
score: area              the mean of all values: the area under the curve, per iteration
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweep import estimates

Mode = Literal["min", "max"]

ALLOWED = "last, best, area, or {mean_last: k} with k from 1 to 1000000"


class Score(BaseModel):
    """Which number of the learning curve counts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Literal["last", "best", "mean_last", "area"] = Field(
        "last", description="How the values of the metric become one number."
    )
    k: int = Field(
        1, ge=1, le=1_000_000, description="With mean_last: how many of the newest values."
    )

    def reduce(self, values: Sequence[float], mode: Mode) -> float | None:
        """The score of a curve; None: there is none.

        Args:
            values: the metric's values, oldest first; iterations without a value left out.
            mode: whether the least or the greatest value is best.

        Returns:
            None for no values, or if a value that counts is NaN or infinite; ``best`` passes over
            such values.
        """
        if self.kind == "best":
            finite = [value for value in values if math.isfinite(value)]
            return (max if mode == "max" else min)(finite, default=None)
        counted = {"last": values[-1:], "mean_last": values[-self.k :], "area": values}[self.kind]
        if not counted or not all(map(math.isfinite, counted)):
            return None
        return estimates.mean(counted)

    def written(self) -> Any:
        """The score as it stands in a spec."""
        return {"mean_last": self.k} if self.kind == "mean_last" else self.kind


def read_score(raw: Any) -> Any:
    """The fields of `Score` for what stands in a spec."""
    if isinstance(raw, Score):
        return raw
    if isinstance(raw, str) and raw in ("last", "best", "area"):
        return {"kind": raw}
    if isinstance(raw, Mapping) and list(raw) == ["mean_last"]:
        k = raw["mean_last"]
        if isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= 1_000_000:
            return {"kind": "mean_last", "k": k}
    raise ValueError(ALLOWED)
