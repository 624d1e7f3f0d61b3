"""Schedulers that ask one of Optuna's pruners, every `interval`, whether a trial goes on.

Optuna is imported when the first trial is judged, not where a sweep is only looked at. A missing
score is no value: the pruner is not asked about a trial that has none at its level.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, Field

from sweep.events import Goal
from sweep.history import History, Trial
from sweep.schedulers import Frame
from sweep.schedulers._looks import Looks, Verdict
from sweep.schedulers._rungs import TimeOptions, check_reached

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from sweep.schedulers._pruning import Study

#: Completed trials that a decision remembers.
_SHOWN = 12


class PrunerOptions(TimeOptions):
    """When trials are looked at."""

    interval: int = Field(
        1, ge=1, description="Distance between two looks at a trial, in units of time_attr."
    )


class StartupOptions(PrunerOptions):
    """When pruning begins."""

    n_startup_trials: int = Field(
        5, ge=0, description="Trials that must be completed before any is ended."
    )
    n_warmup_steps: int = Field(
        0, ge=0, description="A trial is not ended before this, in units of time_attr."
    )


class Pruned(Looks):
    """Looks at each trial every `interval`."""

    pruner: ClassVar[str]
    """The name of Optuna's class; it takes all options but those of when to look."""

    def __init__(self, options: BaseModel, frame: Frame) -> None:
        if not isinstance(options, PrunerOptions):
            raise TypeError(f"expected {PrunerOptions}, got {type(options)}")
        self.time_attr = options.time_attr
        self.interval = options.interval
        self.levels: tuple[float, ...] = ()
        startup = getattr(options, "n_startup_trials", 0)
        self.spares = startup if isinstance(startup, int) else 0
        self._arguments = options.model_dump(exclude=set(PrunerOptions.model_fields))
        check_reached("scheduler.interval", options.interval, options.time_attr, frame)

    def make_pruner(self) -> "BasePruner":
        """One of Optuna's, new each time."""
        from sweep.schedulers import _pruning

        return _pruning.make(self.pruner, self._arguments)

    def next_goal(self, time: float) -> Goal:
        """The next multiple of `interval`."""
        return Goal(float((time // self.interval + 1) * self.interval))

    def judge(self, history: History) -> Callable[[Trial], Verdict]:
        """Ask the pruner about each trial at its newest level."""
        from sweep.schedulers._pruning import Study

        pruner = self.make_pruner()
        name = type(pruner).__name__
        return functools.partial(self._verdict, Study(history, self.interval, pruner), name)

    def _verdict(self, study: "Study", name: str, trial: Trial) -> Verdict:
        level = int(trial.time // self.interval) * self.interval
        metric = trial.objective.metric
        value = study.value_at(trial.number, level)
        if value is None:
            return Verdict(True, f"goes on: no {metric} at {level} yet", {"look": level})
        others, ends = study.completed_at(level), study.prunes(trial.number)
        told = {
            "look": level,
            "pruner": name,
            "value": value,
            "completed": len(others),
            "trials": [number for number, _ in others[-_SHOWN:]],
            "values": [value for _, value in others[-_SHOWN:]],
        }
        what = "stopped" if ends else "goes on"
        why = f"{what}: {metric} {value:.6g} at {level} beside {len(others)} completed trials"
        return Verdict(not ends, f"{why}, says {name}", told)
