"""End a trial when it has not improved for a while: Optuna's `PatientPruner`.

With `wrapped`, another of Optuna's pruners is then asked, and the trial ends only if that one
agrees.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, Field

from sweep.schedulers import SchedulerContext
from sweep.schedulers._shared.pruners import Pruned, PrunerOptions

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


class Options(PrunerOptions):
    """Options of the patience with a trial, and a further pruner that must agree."""

    patience: int = Field(
        3,
        ge=0,
        description="Number of comparisons: the best score of the newest patience + 1 comparisons "
        "is compared with the best score of all earlier ones.",
    )
    min_delta: float = Field(
        0.0,
        ge=0,
        description="Tolerance: a trial is stopped if the newer of these two scores is worse than "
        "the earlier one by more than this.",
    )
    wrapped: dict[str, Any] | None = Field(
        None,
        description="Second pruner with its arguments, {pruner: MedianPruner, …}, which must "
        "agree to stop the trial; null: none.",
    )


class Scheduler(Pruned):
    """Ends trials whose score has stayed worse than an earlier one for a number of comparisons."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: PrunerOptions, context: SchedulerContext) -> None:
        super().__init__(options, context)
        self._wrapped = self._arguments.pop("wrapped")
        self.make_pruner()

    def make_pruner(self) -> "BasePruner":
        """Return a new PatientPruner, around the wrapped pruner if there is one.

        Raises BadConfig if Optuna has no such wrapped pruner, it refuses the arguments, or it has
        rungs of its own: these are about trials that still improve, too.
        """
        from sweep.schedulers._shared.pruner_study import make, make_asked

        inner = None
        if self._wrapped is not None:
            asked = {"pruner": "", **self._wrapped}
            inner = make_asked(asked, "scheduler.wrapped", self._top, takes_rungs=False)
        return make("PatientPruner", {**self._arguments, "wrapped_pruner": inner})
