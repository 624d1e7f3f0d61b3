"""Hyperband's brackets: synchronous successive halving, from many short trials to few long ones.

Li et al., Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization, JMLR 18, 2018,
algorithm 1. With R the top rung, eta the reduction factor and s_max the most halvings that fit
above the grace period, bracket s = s_max, …, 0 has ceil((s_max + 1) / (s + 1) · eta^s) trials and
rungs at R · eta^-s, …, R / eta, R. When all of a bracket's trials have reached a rung, the best ``1
/ eta`` continue and the others end. Trials are assigned to brackets by their numbers; after bracket
0 the next is s_max again. Decisions in a bracket depend only on its own trials, in any order of
arrival; slots that would be idle start the next bracket.

With a plan of ``seeds`` a bracket is also halved in seeds: see `sweep.schedulers._shared.seeding`.
A bracket that starts above a rung of the plan gets that rung's seeds at its start.

With several objectives, trials at a rung rank by fronts (`sweep.schedulers._shared.front_rungs`).

If ``trials`` does not fill the last bracket, it is halved like the others, to at least one trial.

If R is unknown, the trials that start before one has ended train to their ends, in no bracket; R is
then where the first of them ended, as in Optuna's Hyperband.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pydantic import BaseModel

from sweep import schedulers
from sweep.core.errors import BadConfig
from sweep.history.events import FINISHED, Evidence, Goal, Status, UserHold
from sweep.history.history import History
from sweep.history.order import Summary
from sweep.history.trial import Trial
from sweep.schedulers import AddSeed, NewTrial, Plan, Resume, SchedulerContext, Stop
from sweep.schedulers._shared import seeding
from sweep.schedulers._shared.rungs import (
    RungOptions,
    estimate_remaining_training,
    is_waiting,
    top_rung,
)
from sweep.schedulers._shared.seeding import Step
from trainables.errors import shorten

#: Relative rounding error allowed in the top rung over a power of the factor.
_HAIR = 1e-9
#: Maximum number of trials in a bracket.
MOST_TRIALS = 10**12
Decision = Stop | Resume | AddSeed


@dataclass(frozen=True)
class Bracket:
    """Group of trials with successive numbers that are compared only with each other."""

    s: int
    """Number of halvings: rungs before the top one."""
    first: int
    """Number of the bracket's first trial."""
    size: int
    """Number of trials in the bracket, including those not created yet."""
    rungs: tuple[float, ...]
    """Values of `time_attr` at which trials are compared, ascending; the last is the top rung."""
    steps: tuple[Step, ...]
    """Steps that a trial climbs, in order: rungs, and rungs at which it gets further seeds."""


@dataclass(frozen=True)
class _Assignment:
    """Rule that assigns trials to brackets by their numbers, round after round."""

    first: int
    """Number of the first trial that belongs to a bracket."""
    levels: tuple[float, ...]
    """All rungs (values of `time_attr`), ascending; the last is the top rung."""
    sizes: tuple[int, ...]
    """Number of trials of each bracket of one round, the bracket with the lowest rung first."""
    seeds: tuple[tuple[float, tuple[int, ...]], ...]
    """Pairs of a rung at which trials get further seeds, and the numbers of seeds that they have
    there, one after another."""

    def brackets(self, trials: int, first: int = 0) -> Iterator[Bracket]:
        """Yield the brackets of a sweep of `trials` trials, from that of trial `first` on."""
        first = max(first, self.first)
        while first < trials:
            bracket = self.bracket(first, trials)
            yield bracket
            first = bracket.first + bracket.size

    def bracket(self, number: int, trials: int) -> Bracket:
        """Return the bracket of trial `number` in a sweep of `trials` trials."""
        dealt = number - self.first
        round_began = number - dealt % sum(self.sizes)
        firsts = list(itertools.accumulate(self.sizes[:-1], initial=round_began))
        place = bisect_right(firsts, number) - 1
        size = min(self.sizes[place], trials - firsts[place])
        levels = self.levels[place:]
        steps = tuple(seeding.ladder(dict(self.seeds), levels))
        return Bracket(len(levels) - 1, firsts[place], size, levels, steps)

    def unsettled(self, history: History, trials: int) -> Iterator[Bracket]:
        """Yield the brackets, in order, in which a decision may be needed.

        These are brackets with a change since they were settled, then those without a trial yet.
        `trials` is the number of trials of the sweep.
        """
        end, open_ = self.first, history.summary(self, lambda: _OpenBrackets(self))
        for first in sorted(open_.firsts):
            bracket = self.bracket(first, trials)
            yield bracket
            end = bracket.first + bracket.size
        yield from self.brackets(trials, max(end, len(history.trials)))

    def settle(self, history: History, bracket: Bracket) -> None:
        """Mark a bracket as settled, so that it is skipped until one of its trials changes.

        Does nothing if a trial of it has not finished or is missing.
        """
        members = history.trials[bracket.first : bracket.first + bracket.size]
        full = len(members) == bracket.size
        if full and all(trial.status in FINISHED for trial in members):
            history.summary(self, lambda: _OpenBrackets(self)).firsts.discard(bracket.first)


@dataclass
class _OpenBrackets(Summary):
    """Brackets of a history with a change since they were settled."""

    assignment: _Assignment
    """Rule that assigns trials to brackets."""
    firsts: set[int] = field(default_factory=set)
    """Number of the first trial of each of these brackets."""

    def update(self, trials: Sequence[Trial], touched: Sequence[int]) -> None:
        """Add the brackets of the trials that changed since the last call.

        `touched` lists the numbers of all trials changed so far, in the order of the changes.
        """
        for number in self.changed(trials, touched):
            if number >= self.assignment.first:
                self.firsts.add(self.assignment.bracket(number, len(trials)).first)


class Brackets(schedulers.Scheduler):
    """Scheduler that fills one bracket of trials after another and halves each at its rungs."""

    Options: ClassVar[type[BaseModel]] = RungOptions
    adds_seeds = True
    ranks_by_fronts = True
    pauses = True

    def __init__(self, options: RungOptions, context: SchedulerContext) -> None:
        self.time_attr = options.time_attr
        self._seeds: tuple[tuple[float, tuple[int, ...]], ...] = ()
        self.eta, self.grace = options.reduction_factor, options.grace_period
        top = top_rung(options, context)
        if top is None:
            self.remark = (
                f"scheduler: neither max_t nor stop.{self.time_attr} is given, so the first "
                "trials train to their ends; the first trial to end sets the top rung of all "
                "others"
            )
            seeding.added(context.seeds, (), self.time_attr)
            return
        self._assignment = self._make_assignment(top, 0)
        self.levels, self.sizes = self._assignment.levels, self._assignment.sizes
        if self.eta ** (len(self.levels) - 1) > MOST_TRIALS:
            least = f"at least {top / self.eta ** (len(self.levels) - 1):.3g}"
            grace = options.grace_period
            problem = (
                f"{shorten(grace)} is too small: the first bracket would have more than "
                f"{MOST_TRIALS:,} trials"
            )
            raise BadConfig("scheduler.grace_period", grace, least, problem=problem)
        self._seeds = tuple(seeding.added(context.seeds, self.levels, self.time_attr).items())
        self._assignment = replace(self._assignment, seeds=self._seeds)

    def _make_assignment(self, top: float, first: int) -> "_Assignment":
        """Return the assignment to brackets of trials from number `first` on.

        `top` is the top rung. Its plan of seeds is empty.
        """
        halvings = 0
        while (
            top / self.eta ** (halvings + 1) >= self.grace * (1 - _HAIR)
            and self.eta**halvings <= MOST_TRIALS
        ):
            halvings += 1
        return _Assignment(
            first,
            tuple(top / self.eta**s for s in range(halvings, -1, -1)),
            tuple(
                math.ceil((halvings + 1) * self.eta**s / (s + 1)) for s in range(halvings, -1, -1)
            ),
            (),
        )

    def _find_assignment(self, history: History) -> "_Assignment | None":
        """Return the assignment of trials to brackets; None while the top rung is unknown.

        Without one in the spec, the top rung is where the first COMPLETED trial ended; the trials
        that started before that, without a goal, belong to no bracket.
        """
        if self.levels:
            return self._assignment
        ended = [
            (rest.event, trial.replicas[0].time)
            for trial in history.trials
            for rest in trial.milestones
            if rest.status is Status.COMPLETED
        ]
        if not ended:
            return None
        _, top = min(ended)
        free = itertools.takewhile(lambda t: t.slices and t.goal.until is None, history.trials)
        return self._make_assignment(top, sum(1 for _ in free))

    def brackets(self, trials: int) -> Iterator[Bracket]:
        """Yield the brackets of a sweep of `trials` trials in order.

        The top rung must be in the spec.
        """
        return self._assignment.brackets(trials)

    def remaining_training(self, history: History) -> float | None:
        """Return the training left in all brackets, in units of `time_attr`.

        Returns None without a top rung. Trials that end before a rung are not replaced.
        """
        trials, left = history.trials, 0.0
        if not self.levels:
            return None
        for bracket in self.brackets(
            len(trials) + history.uncreated_trials - len(history.waiting_clones)
        ):
            members = trials[bracket.first : bracket.first + bracket.size]
            missing = bracket.size - len(members)
            finals, places = (
                [],
                {step.level: n for n, step in reversed([*enumerate(bracket.steps)])},
            )
            for rung, level in enumerate(bracket.rungs):
                below = [trial for trial in members if not trial.reached(level)]
                done = sum(trial.status is Status.COMPLETED for trial in below)
                ended = sum(trial.status in FINISHED for trial in below)
                most = bracket.size - ended if missing or rung else len(members) - ended
                finals.append(min(self._count(bracket, places[level]) - done, most))
            left += estimate_remaining_training(bracket.rungs, members, finals)
            counts = [self._count(bracket, number) for number in range(len(bracket.steps))]
            left += seeding.remaining_seed_training(bracket.steps, counts, members)
        return left

    def _count(self, bracket: Bracket, step: int) -> int:
        """Return how many trials of a bracket reach the step with index `step` of it; at least 1.

        Each step, of training or seeds, keeps one trial in `eta`.
        """
        return max(1, bracket.size // int(self.eta**step))

    def plan(self, history: History, free: int) -> Plan:
        """Promote and end trials of brackets whose trials have all arrived, and start new ones.

        At most `free` trials are promoted or started. While the top rung is unknown, new trials
        start without a goal.
        """
        stop: list[Stop] = []
        promoted: list[Resume | AddSeed] = []
        fresh: list[NewTrial] = []
        trials, to_come = history.trials, history.uncreated_trials - len(history.waiting_clones)
        assignment = self._find_assignment(history)
        if assignment is None:
            why = (
                "no trial has reached its end yet, which sets the top rung, so this trial trains "
                "to its end"
            )
            return Plan(fresh=(NewTrial(Goal(), why),) * min(free, history.uncreated_trials))
        for bracket in assignment.unsettled(history, len(trials) + to_come):
            if bracket.first >= len(trials) and len(fresh) >= free:
                break
            decided = list(self._halve(history, bracket))
            stop += [one for one in decided if isinstance(one, Stop)]
            promoted += [one for one in decided if not isinstance(one, Stop)]
            if not decided:
                assignment.settle(history, bracket)
            goal = Goal(bracket.rungs[0], top=bracket.rungs[-1])
            members = trials[bracket.first : bracket.first + bracket.size]
            missing = bracket.size - sum(t.status is not Status.WAITING for t in members)
            why = (
                f"bracket {bracket.s} has a free place, so a new trial trains to rung "
                f"{goal.until:g}"
            )
            fresh += [NewTrial(goal, why)] * missing
        promoted = promoted[:free]
        return seeding.plan_of(promoted, fresh[: free - len(promoted)], stop)

    def _halve(self, history: History, bracket: Bracket) -> Iterator[Decision]:
        """Yield the decisions that promote a bracket's best trials and prune the others, by steps.

        Stops at the first step at which not all trials have arrived. Yields nothing if trials of
        the bracket are missing. Trials that were promoted or ended before get no further decision.
        """
        trials = history.trials
        alive = trials[bracket.first : bracket.first + bracket.size]
        if len(alive) < bracket.size:
            return
        for number, (step, next_step) in enumerate(itertools.pairwise(bracket.steps), start=1):
            if not all(seeding.has_arrived(trial, step) for trial in alive):
                return
            count = self._count(bracket, number)
            there = [
                t
                for t in alive
                if seeding.is_comparable(t, step) and not _was_stopped_before(t, next_step)
            ]
            ranking = seeding.compared_at(there, step, next_step)
            alive = []
            for place in range(1, len(ranking) + 1):
                trial = trials[ranking[place - 1][0].number]
                compared = {**ranking.evidence(step.level, place, count), "bracket": bracket.s}
                where = f"rung {step.level:g} of bracket {bracket.s}"
                where += f" under {step.seeds} seeds" if step.seeds > 1 else ""
                why = f"{ranking.describe(place, step.level)} at {where}, where {count} continue"
                if place <= count or seeding.is_past(trial, step):
                    alive.append(trial)
                    goal = Goal(next_step.level, top=bracket.rungs[-1])
                    yield from _promote(trial, step, next_step, goal, why, compared)
                elif is_waiting(trial):
                    yield Stop(trial.number, Status.PRUNED, why, compared)


def _promote(
    trial: Trial, step: Step, next_step: Step, goal: Goal, reason: str, compared: Evidence
) -> Iterator[Resume | AddSeed]:
    """Yield the decisions that bring a trial from one step to the next, if it waits there.

    If the next step has more seeds, a COMPLETED trial gets them too. `goal` is the goal of the next
    step, `reason` says how the trial compares, and `compared` is the evidence.
    """
    if next_step.seeds > step.seeds:
        if seeding.gets_more(trial, step):
            reason = f"promoted to {next_step.seeds} seeds: {reason}"
            yield from seeding.more_seeds(trial, next_step.seeds, goal, reason, compared)
    elif is_waiting(trial) and not trial.reached(next_step.level):
        yield Resume(trial.number, goal, f"promoted: {reason}", compared)


def _was_stopped_before(trial: Trial, next_step: Step) -> bool:
    """Return whether a user stopped a trial before a step, so that another takes its place."""
    ended = trial.hold is UserHold.STOP and trial.status in FINISHED
    return (
        ended
        and trial.status is not Status.COMPLETED
        and not seeding.is_comparable(trial, next_step)
    )
