"""Asynchronous successive halving.

``type: promotion``: Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020,
algorithm 2. A trial that reaches a rung is paused with its checkpoint. A free slot promotes first:
from the highest rung downwards, the best trial among the top ``1 / reduction_factor`` of those that
reached the rung, if it still waits there; it goes on from its checkpoint to the next rung. Only
when none can be promoted a fresh trial starts. When there is none to start either, and no trial is
on the way to a rung, those of the best ``finish_best`` trials that wait go on to the top rung: so
the winner is trained to its end, also where too few trials reached a rung for a promotion.

``type: stopping``: Klein et al., Model-based Asynchronous Hyperparameter and Neural Architecture
Search, 2020, section 3. A trial that reaches a rung goes on at once if it is among the top
``1 / reduction_factor`` of those that reached it so far, or if those are fewer than
``reduction_factor``; otherwise it ends there. Trials that equal the last one to go on go on too: as
before the first reward all are equal. Nothing waits, so it serves trainables that cannot save.

A rung's value is the score at the first iteration at or past it; a missing score ranks last.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from sweep.errors import BadConfig
from sweep.history.events import FINISHED, Goal, Status
from sweep.history.history import History
from sweep.history.order import Key, at_level, of_status, unfinished
from sweep.history.trial import Trial
from sweep.schedulers import NOBODY_WAITS, NewTrial, Plan, Resume, SchedulerContext
from sweep.schedulers._shared.rungs import (
    Rung,
    RungOptions,
    evidence,
    standing,
    to_climb,
    top_rung,
    waits,
)
from sweep.schedulers._shared.stopping import PerTrialStopping, Verdict

PROMOTION: Literal["promotion"] = "promotion"
#: How many of the best trials a new sweep trains to the top rung, if its spec does not say.
FINISH_BEST = 1


class Options(RungOptions):
    """Where the rungs are, and what happens at them."""

    type: Literal["promotion", "stopping"] = Field(
        PROMOTION,
        description="Whether trials wait at rungs to be promoted, or go on at once or end there.",
    )
    finish_best: int = Field(
        0,
        ge=0,
        description="How many of the best trials are trained to the top rung at the end, if they "
        "wait below it; with type: promotion.",
    )


class Scheduler(PerTrialStopping):
    """Lets the best third (say) of each rung go on to the next."""

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.time_attr = options.time_attr
        self.eta = options.reduction_factor
        self.levels = _levels(options.grace_period, top_rung(options, context), self.eta)
        self.pauses = options.type == PROMOTION
        self.finish_best = options.finish_best
        if self.finish_best and not self.pauses:
            key, allowed = "scheduler.finish_best", "0, or no such key"
            raise BadConfig(key, self.finish_best, allowed, NOBODY_WAITS)

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """With the number of trials that are trained to the top rung at the end."""
        promotes = options.get("type", PROMOTION) == PROMOTION
        return {"finish_best": FINISH_BEST, **options} if promotes else options

    def plan(self, history: History, free: int) -> Plan:
        """Promote, then start fresh trials, then finish; or judge the trials at their rungs."""
        if not self.pauses:
            return super().plan(history, free)
        resume = tuple(itertools.islice(self._promotions(history), free))
        fresh = min(free - len(resume), history.to_create)
        goal = self._goal(0)
        why = f"no trial could be promoted; to rung {goal.at:g}"
        plan = Plan(resume=resume, fresh=(NewTrial(goal, why),) * fresh)
        return plan or Plan(resume=tuple(itertools.islice(self._finishing(history), free)))

    # ---- how much is left -------------------------------------------------------------------

    def rest(self, history: History) -> float:
        """What is left if as many go on from each rung as so far, or as in a random order."""
        trials = history.trials
        to_come = sum(not t.reached(self.levels[0]) and t.status not in FINISHED for t in trials)
        finals = [float(sum(t.reached(self.levels[0]) for t in trials) + to_come)]
        finals[0] += max(0, history.to_create - len(history.waiting))
        for level, following in itertools.pairwise(self.levels):
            there = [trial for trial in trials if trial.reached(level)]
            went_on = sum(_has_left(trial, level) for trial in there)
            reached = sum(trial.reached(following) for trial in there)
            final = self._leaving(there, went_on, finals[-1])
            finals.append(min(finals[-1], max(float(reached), final)))
        missing = min(max(0.0, self.finish_best - finals[-1]), finals[0])
        finals = [max(final, finals[-1] + missing) for final in finals]
        return to_climb(self.levels, trials, finals)

    def _leaving(self, there: Sequence[Trial], went_on: int, final: float) -> float:
        """How many leave a rung that `final` reach; of those `there`, `went_on` have left it."""
        if self.pauses:
            more = self._promoted(final) - self._promoted(len(there))
            return max(went_on + more, final // self.eta)
        judged = sum(trial.status in FINISHED for trial in there) + went_on
        expected = self._let_go_on(judged)
        luck = (went_on + 1) / (expected + 1)
        return went_on + luck * (self._let_go_on(int(final)) - expected)

    def _promoted(self, count: float) -> float:
        """How many of `count` trials in random order are promoted, about."""
        return max(count // self.eta, count / self.eta + 0.35 * math.sqrt(count) - 0.5, 0.0)

    def _let_go_on(self, count: int) -> float:
        """How many of `count` trials in random order go on at once, on average."""
        return math.fsum(
            1.0 if place < self.eta else (place // self.eta) / place
            for place in range(1, count + 1)
        )

    # ---- promotion --------------------------------------------------------------------------

    def _promotions(self, history: History) -> Iterator[Resume]:
        for rung in reversed(range(len(self.levels) - 1)):
            level = self.levels[rung]
            ranking = Rung(history, level)
            going_on = len(ranking) // self.eta
            for entry in history.order(_waiting(level, self.levels[rung + 1])):
                trial = history.trials[entry[-1]]
                place = ranking.place(trial)
                if place > going_on:
                    break
                goal = self._goal(rung + 1)
                yield Resume(
                    trial.number,
                    goal,
                    f"promoted to rung {goal.at:g}: {standing(ranking, place)} at rung {level:g}",
                    evidence(level, ranking, place, going_on),
                )

    def _finishing(self, history: History) -> Iterator[Resume]:
        """The best trials that wait go on to the top rung; those on the way there count.

        None while a trial may still begin, or is on the way to a lower rung: promotions may follow.
        """
        if history.to_create:
            return
        under_way = history.ordered(of_status(Status.RUNNING), unfinished)
        top = self._goal(len(self.levels) - 1)
        if any(trial.goal != top for trial in under_way):
            return
        rest = [t for t in history.trials if t.status is Status.COMPLETED or waits(t)]
        ranking = [(trial, trial.score) for trial in history.ranked(rest)]
        count = max(0, self.finish_best - len(under_way))
        for place, (trial, _) in enumerate(ranking[:count], start=1):
            if waits(trial):
                why = f"finished: {standing(ranking, place)} that wait or are done"
                compared = dict(evidence(trial.time, ranking, place, self.finish_best))
                del compared["rung"]  # they are compared wherever they are
                yield Resume(trial.number, top, f"{why}, and nothing else is left to do", compared)

    def _goal(self, rung: int) -> Goal:
        return Goal(self.levels[rung], top=self.levels[-1])

    # ---- stopping ---------------------------------------------------------------------------

    def next_goal(self, time: float) -> Goal:
        """The lowest rung above `time`."""
        return self._goal(sum(level <= time for level in self.levels))

    def judge(self, history: History, trials: Sequence[Trial]) -> list[Verdict]:
        """Compare each trial with all that have reached its rung."""
        return [self._verdict(history, trial) for trial in trials]

    def _verdict(self, history: History, trial: Trial) -> Verdict:
        level = max(level for level in self.levels if trial.reached(level))
        ranking = Rung(history, level)
        place = ranking.place(trial)
        best = len(ranking) if len(ranking) < self.eta else len(ranking) // self.eta
        going_on = best + ranking.equals(best)  # the last that goes on takes its equals along
        what = "goes on" if place <= going_on else "stopped"
        few = f", fewer than {self.eta}" if len(ranking) < self.eta else ""
        equal = f", equal to place {best}" if best < place <= going_on else ""
        why = f"{what}: {standing(ranking, place)}{few}{equal} at rung {level:g}"
        return Verdict(place <= going_on, why, evidence(level, ranking, place, going_on))


def _has_left(trial: Trial, level: float) -> bool:
    """Whether the trial was promoted from this rung, or is past it."""
    goal = trial.goal.at
    return trial.time > level or (goal is not None and goal > level)


@cache
def _waiting(level: float, following: float) -> Key:
    """Trials that wait at a rung to be promoted to the next, by their score there, best first."""
    there = at_level(level)
    return lambda trial: (
        None if trial.status is not Status.PAUSED or trial.reached(following) else there(trial)
    )


def _levels(grace: float, top: float, eta: int) -> tuple[float, ...]:
    levels, level = [], grace
    while level < top:
        levels.append(level)
        level *= eta
    return (*levels, top)
