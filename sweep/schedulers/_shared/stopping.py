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
    """Decision of whether a trial continues at a level, with its reason."""

    continues: bool
    """True if the trial continues; False if it ends."""
    reason: str
    """Reason for the decision, as a text for people, stored in the ledger."""
    evidence: Evidence = field(default_factory=dict)
    """Name → number, text or list of them: values that the decision was based on."""


class PerTrialStopping(schedulers.Scheduler):
    """Base of schedulers that judge trials one by one at certain levels.

    Bad trials end at once.
    """

    pauses = False
    startup_trials = 0

    @abstractmethod
    def judge_trials(self, history: History, trials: Sequence[Trial]) -> list[Verdict]:
        """Return a verdict on each of these trials, which wait at levels that they have reached.

        Verdicts are in the order of the trials.
        """

    @abstractmethod
    def next_goal(self, time: float) -> Goal:
        """Return the next level at which a trial is judged that has trained up to `time`.

        Level and `time` are values of `time_attr`.
        """

    def plan(self, history: History, free: int) -> Plan:
        """End or continue the trials that reached a level, and fill free slots with new ones.

        All bad trials are ended; at most `free` trials are continued or started.
        """
        stop: list[Stop] = []
        resume: list[Resume] = []
        there = [trial for trial in history.with_status(Status.PAUSED) if is_waiting(trial)]
        verdicts = self.judge_trials(history, there) if there else []
        for trial, found in zip(there, verdicts, strict=True):
            if not found.continues:
                stop.append(Stop(trial.number, Status.PRUNED, found.reason, found.evidence))
            elif len(resume) < free:
                goal = self.next_goal(trial.time)
                resume.append(Resume(trial.number, goal, found.reason, found.evidence))
        fresh = min(free - len(resume), history.uncreated_trials)
        goal = self.next_goal(0.0)
        why = "a slot was free"
        why += f"; the trial is first compared at {goal.until:g}" if goal.until else ""
        return Plan(tuple(stop), tuple(resume), fresh=(NewTrial(goal, why),) * fresh)
