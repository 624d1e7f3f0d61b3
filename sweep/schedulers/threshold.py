"""End a trial when its score leaves two bounds: Optuna's `ThresholdPruner`."""

from typing import ClassVar

from pydantic import BaseModel, Field

from sweep.core.errors import BadConfig
from sweep.schedulers import SchedulerContext
from sweep.schedulers._shared.pruners import Pruned, PrunerOptions


class Options(PrunerOptions):
    """Options of threshold pruning: the bounds of the score."""

    lower: float | None = Field(
        None,
        description="Lower bound; a trial with a value below it is stopped. null: no lower bound.",
    )
    upper: float | None = Field(
        None,
        description="Upper bound; a trial with a value above it is stopped. null: no upper bound.",
    )
    n_warmup_steps: int = Field(
        0,
        ge=0,
        description="Amount of training before which no trial is stopped, in units of time_attr.",
    )


class Scheduler(Pruned):
    """Ends a trial whose score is below one bound or above the other."""

    Options: ClassVar[type[BaseModel]] = Options
    pruner: ClassVar[str] = "ThresholdPruner"

    def __init__(self, options: PrunerOptions, context: SchedulerContext) -> None:
        super().__init__(options, context)
        lower, upper = self._arguments["lower"], self._arguments["upper"]
        if lower is None and upper is None:
            hint = "set lower, upper or both"
            problem = "is missing, and so is scheduler.upper"
            raise BadConfig("scheduler.lower", None, hint=hint, problem=problem)
        if lower is not None and upper is not None and lower > upper:
            problem = f"{lower:g} is more than scheduler.upper, {upper:g}"
            raise BadConfig(
                "scheduler.lower", lower, hint="lower it, or raise upper", problem=problem
            )
