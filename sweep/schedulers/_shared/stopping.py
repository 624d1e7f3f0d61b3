"""Schedulers that look at each trial at certain levels and end the bad ones there.

A trial runs to its next level and comes to rest; at once it is ended, or it goes on from where it
stands. It never waits for others, so it keeps its slot and its process. Of several levels that one
iteration jumped over, the highest counts.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from sweep import schedulers
from sweep.history.events import Evidence, Goal, Status
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import NewTrial, Plan, Resume, Stop
from sweep.schedulers._shared.rungs import waits


@dataclass(frozen=True)
class Verdict:
    """What is thought of a trial at a level."""

    goes_on: bool
    why: str
    evidence: Evidence = field(default_factory=dict)


class PerTrialStopping(schedulers.Scheduler):
    """Judges trials one by one."""

    pauses = False
    spares = 0

    @abstractmethod
    def judge(self, history: History) -> Callable[[Trial], Verdict]:
        """Says of a trial that came to a level whether it goes on."""

    @abstractmethod
    def next_goal(self, time: float) -> Goal:
        """Where a trial that is at `time` is looked at next."""

    def plan(self, history: History, free: int) -> Plan:
        """Judge who came to a level; fill the slots that are left with fresh trials."""
        stop: list[Stop] = []
        resume: list[Resume] = []
        there = [trial for trial in history.of(Status.PAUSED) if waits(trial)]
        for trial, found in self._judged(history, there):
            if not found.goes_on:
                stop.append(Stop(trial.number, Status.PRUNED, found.why, found.evidence))
            elif len(resume) < free:
                goal = self.next_goal(trial.time)
                resume.append(Resume(trial.number, goal, found.why, found.evidence))
        fresh = min(free - len(resume), history.to_create)
        goal = self.next_goal(0.0)
        why = f"a slot was free; first look at {goal.at:g}" if goal.at else "a slot was free"
        return Plan(tuple(stop), tuple(resume), fresh=(NewTrial(goal, why),) * fresh)

    def _judged(self, history: History, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Verdict]]:
        if trials:
            verdict = self.judge(history)
            yield from ((trial, verdict(trial)) for trial in trials)
