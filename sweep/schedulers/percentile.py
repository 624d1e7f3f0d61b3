"""A percentile instead of the median: Optuna's `PercentilePruner`.

A trial ends if its best value so far is not among the best `percentile` percent of the completed
trials' values at the same level.
"""

from typing import ClassVar

from pydantic import BaseModel, Field

from sweep.schedulers._shared.pruners import Pruned, StartupOptions


class Options(StartupOptions):
    """Options of percentile pruning: the percentage that continues."""

    percentile: float = Field(
        25.0, ge=0, le=100, description="Percentage of trials that continue: the best ones."
    )


class Scheduler(Pruned):
    """Ends a trial whose best value is not among the best `percentile` percent at that step."""

    Options: ClassVar[type[BaseModel]] = Options
    pruner: ClassVar[str] = "PercentilePruner"
