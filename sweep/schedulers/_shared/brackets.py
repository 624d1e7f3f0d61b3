"""Hyperband's brackets: synchronous successive halving, from many short trials to few long ones.

Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, JMLR 18, 2018,
algorithm 1. With R the top rung, eta the reduction factor and s_max the most halvings that fit
above the grace period, bracket s = s_max, …, 0 has ceil((s_max + 1) / (s + 1) · eta^s) trials and
rungs at R · eta^-s, …, R / eta, R. When all of a bracket's trials have come to a rung, the best
``1 / eta`` go on and the others end. Trials are assigned to brackets by their numbers; after
bracket 0 the next is s_max again. Decisions in a bracket depend on its own trials alone, in any
order of arrival; slots that would wait begin the next bracket.

A last bracket that ``trials`` does not fill is halved like the others, to at least one trial.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from sweep import schedulers
from sweep.errors import BadConfig
from sweep.history.events import FINISHED, Goal, Status
from sweep.history.history import History
from sweep.history.order import living
from sweep.schedulers import NewTrial, Plan, Resume, SchedulerContext, Stop
from sweep.schedulers._shared.rungs import (
    RungOptions,
    evidence,
    ranked_at,
    standing,
    to_climb,
    top_rung,
    waits,
)

#: Relative rounding error allowed in the top rung over a power of the factor.
_HAIR = 1e-9
#: The most trials that a bracket may have.
MOST_TRIALS = 10**12


@dataclass(frozen=True)
class Bracket:
    """A set of trials that are compared only with each other."""

    s: int
    """How often it is halved."""
    first: int
    """The number of its first trial."""
    size: int
    rungs: tuple[float, ...]
    """Ascending; the last is the top."""


class Brackets(schedulers.Scheduler):
    """Fills one bracket after the other and halves each at its rungs."""

    Options: ClassVar[type[BaseModel]] = RungOptions
    pauses = True

    def __init__(self, options: RungOptions, context: SchedulerContext) -> None:
        self.time_attr = options.time_attr
        self.eta = options.reduction_factor
        top = top_rung(options, context)
        halvings = 0
        while top / self.eta ** (halvings + 1) >= options.grace_period * (1 - _HAIR):
            halvings += 1
            if self.eta**halvings > MOST_TRIALS:
                least = f"{top / self.eta**halvings:.3g} or more"
                hint = f"the first bracket would have more than {MOST_TRIALS:,} trials"
                raise BadConfig("scheduler.grace_period", options.grace_period, least, hint)
        self.levels = tuple(top / self.eta**s for s in range(halvings, -1, -1))
        self.sizes = tuple(
            math.ceil((halvings + 1) * self.eta**s / (s + 1)) for s in range(halvings, -1, -1)
        )

    def brackets(self, trials: int, first: int = 0) -> Iterator[Bracket]:
        """The brackets of so many trials in their order, from that of trial `first` on."""
        while first < trials:
            bracket = self._bracket(first, trials)
            yield bracket
            first = bracket.first + bracket.size

    def _bracket(self, number: int, trials: int) -> Bracket:
        """The bracket to which a trial is dealt, of so many trials."""
        round_began = number - number % sum(self.sizes)
        firsts = list(itertools.accumulate(self.sizes[:-1], initial=round_began))
        place = bisect_right(firsts, number) - 1
        size = min(self.sizes[place], trials - firsts[place])
        return Bracket(len(self.levels) - 1 - place, firsts[place], size, self.levels[place:])

    def _unsettled(self, history: History, trials: int) -> Iterator[Bracket]:
        """Those of so many trials in which one has not ended or is still to come, in order."""
        end = 0
        for (number,) in history.order(living):
            if number >= end:
                bracket = self._bracket(number, trials)
                yield bracket
                end = bracket.first + bracket.size
        yield from self.brackets(trials, max(end, len(history.trials)))

    def rest(self, history: History) -> float:
        """What the brackets still take; a trial that ends before a rung is not replaced."""
        trials, left = history.trials, 0.0
        for bracket in self.brackets(len(trials) + history.to_create - len(history.waiting)):
            members = trials[bracket.first : bracket.first + bracket.size]
            missing = bracket.size - len(members)
            finals = []
            for rung, level in enumerate(bracket.rungs):
                below = [trial for trial in members if not trial.reached(level)]
                done = sum(trial.status is Status.COMPLETED for trial in below)
                ended = sum(trial.status in FINISHED for trial in below)
                most = bracket.size - ended if missing or rung else len(members) - ended
                finals.append(min(self._count(bracket, rung) - done, most))
            left += to_climb(bracket.rungs, members, finals)
        return left

    def _count(self, bracket: Bracket, rung: int) -> int:
        """How many of a bracket reach a rung."""
        return max(1, bracket.size // int(self.eta**rung))

    def plan(self, history: History, free: int) -> Plan:
        """Halve the brackets whose trials have all arrived; then start fresh trials."""
        stop: list[Stop] = []
        resume: list[Resume] = []
        fresh: list[NewTrial] = []
        trials, to_come = history.trials, history.to_create - len(history.waiting)
        for bracket in self._unsettled(history, len(trials) + to_come):
            if bracket.first >= len(trials) and len(fresh) >= free:
                break
            self._halve(history, bracket, stop, resume)
            goal = Goal(bracket.rungs[0], top=self.levels[-1])
            members = trials[bracket.first : bracket.first + bracket.size]
            missing = bracket.size - sum(t.status is not Status.WAITING for t in members)
            why = f"bracket {bracket.s} has a place; to rung {goal.at:g}"
            fresh += [NewTrial(goal, why)] * missing
        resume = resume[:free]
        return Plan(tuple(stop), tuple(resume), fresh=tuple(fresh[: free - len(resume)]))

    def _halve(
        self, history: History, bracket: Bracket, stop: list[Stop], resume: list[Resume]
    ) -> None:
        """Decide, rung by rung, which trials are promoted and which end."""
        alive = history.trials[bracket.first : bracket.first + bracket.size]
        if len(alive) < bracket.size:
            return
        for rung, level in enumerate(bracket.rungs[:-1]):
            if not all(trial.reached(level) or trial.status in FINISHED for trial in alive):
                return
            there = [t for t in alive if t.reached(level) or t.status is Status.COMPLETED]
            ranking = ranked_at(there, level)
            count = self._count(bracket, rung + 1)
            next_level = bracket.rungs[rung + 1]
            alive = []
            for place, (trial, _) in enumerate(ranking, start=1):
                compared = {**evidence(level, ranking, place, count), "bracket": bracket.s}
                why = f"{standing(ranking, place)} at rung {level:g} of bracket {bracket.s}"
                why += f", where {count} go on"
                goal = trial.goal.at
                if place <= count or (goal is not None and goal > level):  # promoted, or earlier
                    alive.append(trial)
                    if waits(trial) and not trial.reached(next_level):
                        following = Goal(next_level, top=self.levels[-1])
                        why = f"promoted: {why}"
                        resume.append(Resume(trial.number, following, why, compared))
                elif waits(trial):
                    stop.append(Stop(trial.number, Status.PRUNED, f"stopped: {why}", compared))
