"""Schedulers that judge each trial at certain levels and end the bad ones there.

A trial pauses at its next level; it is ended at once, or continues from its checkpoint. It never
waits for others, so it keeps its slot and its process. If one iteration passes several levels, the
highest counts.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from sweep import schedulers
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import NewTrial, Plan, Resume, Stop
from sweep.schedulers._shared.rungs import is_waiting


@dataclass(frozen=True)
class Verdict:
    """The decision on a trial at a level, with its reason."""

    continues: bool
    """True if the trial continues; False if it ends."""
    why: str
    """Reason, as a text for the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Values that the decision was based on."""


class PerTrialStopping(schedulers.Scheduler):
    """Judges trials one by one."""

    pauses = False
    spares = 0

    @abstractmethod
    def judge_trials(self, history: History, trials: Sequence[Trial]) -> list[Verdict]:
        """Return the verdicts on one or more trials at the levels that they have reached."""

    @abstractmethod
    def next_goal(self, time: float) -> Goal:
        """Return the next level at which a trial at `time` is judged."""

    def plan(self, history: History, free: int) -> Plan:
        """Judge the trials that reached a level, and fill the remaining slots with new trials."""
        stop: list[Stop] = []
        resume: list[Resume] = []
        there = [trial for trial in history.with_status(Status.PAUSED) if is_waiting(trial)]
        verdicts = self.judge_trials(history, there) if there else []
        for trial, found in zip(there, verdicts, strict=True):
            if not found.continues:
                stop.append(Stop(trial.number, Status.PRUNED, found.why, found.evidence))
            elif len(resume) < free:
                goal = self.next_goal(trial.time)
                resume.append(Resume(trial.number, goal, found.why, found.evidence))
        fresh = min(free - len(resume), history.uncreated_trials)
        goal = self.next_goal(0.0)
        why = f"a slot was free; first look at {goal.until:g}" if goal.until else "a slot was free"
        return Plan(tuple(stop), tuple(resume), fresh=(NewTrial(goal, why),) * fresh)
