"""Schedulers that ask one of Optuna's pruners every `interval` whether a trial continues.

A look is taken at the first result at or past it that has the metric: with an evaluation every few
iterations, looks are no closer than evaluations. The value at a look is interpolated between that
result and the one before, so trials that report at other steps are compared at equal ones. The
pruner is not asked about a trial without a score.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from sweep.history.events import Goal
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import SchedulerContext
from sweep.schedulers._shared.rungs import (
    TimeOptions,
    check_reached,
    sides_text,
    step_at,
    step_text,
)
from sweep.schedulers._shared.stopping import PerTrialStopping, Verdict

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

    from sweep.schedulers._shared.pruner_study import Study

#: Maximum number of completed trials in the evidence of a decision.
_SHOWN = 12


class PrunerOptions(TimeOptions):
    """Options of all schedulers that ask a pruner: how often trials are judged."""

    interval: int = Field(
        1,
        ge=1,
        description="Amount of training between two comparisons of a trial, in units of time_attr.",
    )


class StartupOptions(PrunerOptions):
    """Options of schedulers that prune only after some trials and some training."""

    n_startup_trials: int = Field(
        5, ge=0, description="Number of trials that must complete before any trial is stopped."
    )
    n_warmup_steps: int = Field(
        0,
        ge=0,
        description="Amount of training before which no trial is stopped, in units of time_attr.",
    )
    n_min_trials: int = Field(
        1,
        ge=1,
        description="Number of completed trials that must have a value at a level before a trial "
        "is stopped there.",
    )


class Pruned(PerTrialStopping):
    """Base of schedulers that judge each trial every `interval` by one of Optuna's pruners."""

    pruner: ClassVar[str]
    """Name of the class in ``optuna.pruners``; it gets all options except those of
    `PrunerOptions`."""

    def __init__(self, options: PrunerOptions, context: SchedulerContext) -> None:
        self.time_attr = options.time_attr
        self.interval = options.interval
        startup = getattr(options, "n_startup_trials", None)  # anything, for any of Optuna's
        self.startup_trials = startup if isinstance(startup, int) else self.startup_trials
        self._top = context.stop.get(options.time_attr)
        self._arguments = options.model_dump(exclude=set(PrunerOptions.model_fields))
        check_reached("scheduler.interval", options.interval, options.time_attr, context)

    def make_pruner(self) -> "BasePruner":
        """Return a new pruner of Optuna with the options of the spec.

        Raises TypeError or ValueError if Optuna refuses them.
        """
        from sweep.schedulers._shared.pruner_study import make

        return make(self.pruner, self._arguments)

    def next_goal(self, time: float) -> Goal:
        """Return the next multiple of `interval` after `time` as a goal."""
        return Goal(float((time // self.interval + 1) * self.interval))

    def judge_trials(self, history: History, trials: Sequence[Trial]) -> list[Verdict]:
        """Return the pruner's verdict on each trial at the newest level at which it has a value."""
        from sweep.schedulers._shared.pruner_study import Study

        pruner = self.make_pruner()
        study, name = Study(history, self.interval, pruner), type(pruner).__name__
        return [self._verdict(study, name, trial) for trial in trials]

    def _verdict(self, study: "Study", name: str, trial: Trial) -> Verdict:
        """Return the verdict on a trial by the pruner of class `name`.

        The trial continues if it has no new value since it was judged last.
        """
        due = int(trial.known_until // self.interval) * self.interval
        metric = trial.objective.metric
        level = study.newest_look(trial.number)
        if level is None or level < due:
            return Verdict(True, f"continues: no new {metric} at {due}", {"look": due})
        value = study.value_at(trial.number, level)
        compared = study.level_of(trial.number, level)
        step = step_at(trial, compared)
        count, others = study.completed_at(level, _SHOWN)
        ends = study.prunes(trial.number)
        evidence = {
            "look": level,
            "pruner": name,
            "value": value,
            "step": step,
            "completed": count,
            "trials": [number for number, _ in others],
            "values": [value for _, value in others],
        }
        between = sides_text(trial, compared) if step == compared else ""
        own = f"{metric} {value:.6g} at {trial.objective.time_attr} {step_text(step)}{between}"
        found = f"{own}, compared with {count} completed trials"
        why = f"{found}: {name} ends the trial" if ends else f"continues: {found} by {name}"
        return Verdict(not ends, why, evidence)
