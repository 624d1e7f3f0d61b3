"""The median stopping rule.

Golovin et al., Google Vizier: A Service for Black-Box Optimization, 2017, section 3.2.2, as
Optuna's `MedianPruner` has it: a trial ends if the best value that it has had is worse than the
median of the completed trials' values at the same level.
"""

from typing import ClassVar

from pydantic import BaseModel, Field

from sweep.schedulers._shared.pruners import Pruned, StartupOptions


class Options(StartupOptions):
    """When trials are compared with the median."""

    n_min_trials: int = Field(
        1, ge=1, description="Values that there must be at a level before one is compared."
    )


class Scheduler(Pruned):
    """Ends trials that are worse than the median."""

    Options: ClassVar[type[BaseModel]] = Options
    pruner: ClassVar[str] = "MedianPruner"
