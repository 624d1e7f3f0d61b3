"""First in, first out: each trial runs until a stopping criterion ends it."""

from typing import ClassVar

from pydantic import BaseModel

from sweep import schedulers
from sweep.history.events import Goal
from sweep.history.history import History
from sweep.schedulers import NewTrial, Plan
from trainables.core.settings import Settings


class Options(Settings):
    """No option: the scheduler decides nothing."""


class Scheduler(schedulers.Scheduler):
    """Starts trials in the order of their numbers and ends none early."""

    Options: ClassVar[type[BaseModel]] = Options
    pauses = False

    def plan(self, history: History, free: int) -> Plan:
        """Return a new trial without a goal for each free slot, as far as settings are left."""
        count = min(free, history.uncreated_trials)
        return Plan(fresh=(NewTrial(Goal(), "a slot was free"),) * count)
