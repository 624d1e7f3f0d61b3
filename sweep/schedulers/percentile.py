"""A percentile in place of the median: Optuna's `PercentilePruner`.

A trial ends if the best value that it has had is not among the best `percentile` percent of the
completed trials' values at the same level.
"""

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, Field

from sweep.schedulers import Frame
from sweep.schedulers._pruners import Pruned, StartupOptions

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


class Options(StartupOptions):
    """When trials are compared with the percentile."""

    percentile: float = Field(
        25.0, ge=0, le=100, description="The best part of the trials that goes on, in percent."
    )
    n_min_trials: int = Field(
        1, ge=1, description="Values that there must be at a level before one is compared."
    )


class Scheduler(Pruned):
    """Ends trials that are not among the best part."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel, frame: Frame) -> None:
        super().__init__(options, frame)
        self._arguments = options.model_dump(exclude={"time_attr", "interval"})

    def make_pruner(self) -> "BasePruner":
        """Optuna's."""
        from sweep.schedulers import _pruning

        return _pruning.make("PercentilePruner", self._arguments)
