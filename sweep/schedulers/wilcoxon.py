"""End a trial that is worse than the best by a signed-rank test: Optuna's `WilcoxonPruner`.

Wilcoxon, Individual Comparisons by Ranking Methods, 1945. The values of a trial at its levels are
paired with those of the best completed trial at the same levels.
"""

from typing import ClassVar

from pydantic import BaseModel, Field

from sweep.schedulers._shared.pruners import Pruned, PrunerOptions


class Options(PrunerOptions):
    """Options of the signed-rank test."""

    p_threshold: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Significance level; a trial is stopped if the test's p-value is lower.",
    )
    n_startup_steps: int = Field(
        2,
        ge=0,
        description="Number of levels, at least 2, at which a trial and the best trial must both "
        "have values before they are compared.",
    )


class Scheduler(Pruned):
    """Ends a trial whose scores are significantly worse than the best completed trial's."""

    Options: ClassVar[type[BaseModel]] = Options
    pruner: ClassVar[str] = "WilcoxonPruner"
    startup_trials = 1  # trials are compared with the best that is completed
