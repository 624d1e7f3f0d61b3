"""Schedulers as other people would write them, beside their spec."""

from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from sweep import schedulers
from sweep.history.events import Goal, Status
from sweep.history.history import History
from sweep.schedulers import NewTrial, Plan, Resume, SchedulerContext


class Options(BaseModel):
    """How far the second half goes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    first: float = 2


class FirstPast(schedulers.Scheduler):
    """Only the first trial to come to `first` goes on to the end."""

    Options: ClassVar[type[BaseModel]] = Options
    pauses = True

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        assert isinstance(options, Options)
        self.time_attr = "training_iteration"
        self.levels: tuple[float, ...] = (options.first,)

    def plan(self, history: History, free: int) -> Plan:
        there = [trial for trial in history.trials if trial.reached(self.levels[0])]
        resume = []
        if len(there) == 1 and there[0].status is Status.PAUSED:
            resume = [Resume(there[0].number, Goal(), "it was the first")]
        fresh = min(free - len(resume), history.uncreated_trials)
        return Plan(
            resume=tuple(resume), fresh=(NewTrial(Goal(self.levels[0]), "a slot was free"),) * fresh
        )


class Forgetful(FirstPast):
    """Keeps something between calls, which a kill loses: a mistake."""

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        super().__init__(options, context)
        self.called = 0

    def plan(self, history: History, free: int) -> Plan:
        self.called += 1
        plan = super().plan(history, free)
        return replace(
            plan, fresh=tuple(NewTrial(f.goal, f"call {self.called}") for f in plan.fresh)
        )


class NoScheduler:
    """Something else."""
