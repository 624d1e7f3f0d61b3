"""Any of Optuna's pruners by its class's name, with its own arguments.

    scheduler: {name: optuna, pruner: SuccessiveHalvingPruner, min_resource: 10, interval: 10}

Its steps are values of ``time_attr``; it is asked at every multiple of `interval`.
"""

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sweep.schedulers import SchedulerContext
from sweep.schedulers._shared.pruners import Pruned, PrunerOptions

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


class Options(PrunerOptions):
    """Name of one of Optuna's pruners; all other keys are its arguments."""

    model_config = ConfigDict(extra="allow")

    pruner: str = Field(
        description="Name of a class in optuna.pruners; all other keys are its arguments."
    )


class Scheduler(Pruned):
    """Ends trials with one of Optuna's pruners, which the spec names."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: PrunerOptions, context: SchedulerContext) -> None:
        super().__init__(options, context)
        self.make_pruner()

    def make_pruner(self) -> "BasePruner":
        """Return a new pruner as named in the spec.

        Raises BadConfig if Optuna has no such pruner, or it refuses the arguments.
        """
        from sweep.schedulers._shared.pruner_study import make_asked

        return make_asked(self._arguments, "scheduler", self._top)
