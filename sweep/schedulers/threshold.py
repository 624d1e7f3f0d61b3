"""A trial ends when its score leaves two bounds: Optuna's `ThresholdPruner`."""

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, Field

from sweep.errors import BadConfig
from sweep.schedulers import Frame
from sweep.schedulers._pruners import Pruned, PrunerOptions

if TYPE_CHECKING:
    from optuna.pruners import BasePruner


class Options(PrunerOptions):
    """The bounds."""

    lower: float | None = Field(None, description="A trial below this ends.")
    upper: float | None = Field(None, description="A trial above this ends.")
    n_warmup_steps: int = Field(
        0, ge=0, description="A trial is not ended before this, in units of time_attr."
    )


class Scheduler(Pruned):
    """Ends trials outside the bounds."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel, frame: Frame) -> None:
        super().__init__(options, frame)
        self._arguments = options.model_dump(exclude={"time_attr", "interval"})
        lower, upper = self._arguments["lower"], self._arguments["upper"]
        if lower is None and upper is None:
            raise BadConfig("scheduler.lower", None, "a number", "give lower, upper or both")
        if lower is not None and upper is not None and lower > upper:
            raise BadConfig("scheduler.lower", lower, f"at most scheduler.upper, {upper:g}")

    def make_pruner(self) -> "BasePruner":
        """Optuna's."""
        from sweep.schedulers import _pruning

        return _pruning.make("ThresholdPruner", self._arguments)
