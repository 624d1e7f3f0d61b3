"""The median stopping rule.

Golovin et al., Google Vizier: A Service for Black-Box Optimization, 2017, section 3.2.2, as in
Optuna's `MedianPruner`: a trial ends if its best value so far is worse than the median of the
completed trials' values at the same level.
"""

from typing import ClassVar

from pydantic import BaseModel

from sweep.schedulers._shared.pruners import Pruned, StartupOptions


class Scheduler(Pruned):
    """Ends a trial whose best value is worse than the median of completed trials at that step."""

    Options: ClassVar[type[BaseModel]] = StartupOptions
    pruner: ClassVar[str] = "MedianPruner"
