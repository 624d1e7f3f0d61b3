"""Populations: at each interval, children of the best take the places of the worst.

Jaderberg et al., Population Based Training of Neural Networks, 2017, algorithm 1, with truncation
selection. Settings of a trial never change: a trial in the bottom quantile ends, and a child of
a random one in the top quantile takes its place, with its parent's checkpoint and settings of its
own. Children have a parent and do not count among the searched trials.

``synch: true``: all reach a level before any is replaced; decisions depend on the population alone,
not on the order of arrival. ``synch: false``: each trial that reaches a level is compared with each
other that has not ended at the highest level that both have reached, and the others rank by how far
they are ahead of it there. A trial that has ended has no children.

Random numbers come from named streams of (sweep seed, number of the child).
"""

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from sweep import schedulers
from sweep.errors import BadConfig
from sweep.history import order
from sweep.history.events import FINISHED, Goal, Status
from sweep.history.history import History
from sweep.history.order import Entry
from sweep.history.trial import Trial
from sweep.schedulers import Exploit, NewTrial, Plan, Resume, SchedulerContext, Stop
from sweep.schedulers._shared.mutation import changes, check_names
from sweep.schedulers._shared.rungs import (
    TimeOptions,
    check_first,
    check_reached,
    evidence,
    ranked_at,
    standing,
    waits,
)
from trainables.core import rng

#: Trials with their scores, best first.
Ranking = Sequence[tuple[Trial, float | None]]


@dataclass(frozen=True)
class Generation:
    """The population at one level."""

    level: float
    ranking: Ranking
    count: int
    """The number of trials to replace; as many are their parents."""
    levels: Mapping[int, float] = field(default_factory=dict)
    """Trial → where it was compared with the one that is judged, if that is not the level."""

    @property
    def upper(self) -> Ranking:
        """Members that may have children: the best ones with a score and a checkpoint."""
        staying = self.ranking[: len(self.ranking) - self.count]
        scored = [(trial, score) for trial, score in staying if score is not None]
        return [(trial, score) for trial, score in scored if _can_breed(trial)][: self.count]

    @property
    def lower(self) -> list[Trial]:
        """The members that are replaced, by number; none if no member may have children.

        One that has not reported the metric yet is not in the ranking: nothing is known of it.
        """
        if not self.upper:
            return []
        worst = [trial for trial, _ in self.ranking[len(self.ranking) - self.count :]]
        return sorted(worst, key=lambda trial: trial.number)

    def place(self, trial: Trial) -> int:
        """From 1."""
        return next(i for i, (t, _) in enumerate(self.ranking, start=1) if t is trial)

    def evidence(self, trial: Trial) -> dict[str, Any]:
        """The numbers of a decision about `trial`."""
        staying = len(self.ranking) - self.count
        found = dict(evidence(self.level, self.ranking, self.place(trial), staying))
        if self.levels:
            found["steps"] = [self.levels.get(number, self.level) for number in found["trials"]]
        return found

    def standing(self, trial: Trial) -> str:
        """The score and the place of `trial`, in words."""
        level = self.levels.get(trial.number, self.level)
        return f"{standing(self.ranking, self.place(trial), level)} at {level:g}"


#: Trials that are replaced, each with the generation in which it was compared.
Losers = Sequence[tuple[Trial, Generation]]


def born_at(trial: Trial) -> float:
    """The value of ``time_attr`` at which a bred trial began; 0 for a searched one."""
    births = [replica.birth.time for replica in trial.replicas if replica.birth is not None]
    return min(births, default=0.0)


def _can_breed(trial: Trial) -> bool:
    """Return whether a trial can have a child: it has not ended, and each seed has a checkpoint."""
    there = all(r.checkpoints and not r.catching_up for r in trial.replicas)
    return there and trial.status not in FINISHED


class PopulationOptions(TimeOptions):
    """When trials are compared, and which are replaced."""

    perturbation_interval: float = Field(
        gt=0,
        description="Distance between two comparisons, in units of time_attr.",
        examples=[2],
    )
    burn_in_period: float = Field(
        0, ge=0, description="No trial is replaced before this, in units of time_attr."
    )
    quantile_fraction: float = Field(
        0.25, gt=0, le=0.5, description="The part of the population that is replaced at a time."
    )
    synch: bool = Field(True, description="Whether all come to a level before any is replaced.")
    hyperparam_mutations: Annotated[tuple[str, ...], Field(strict=False)] | None = Field(
        None,
        description="Searched settings that children change; default: all but those that the "
        "parent's checkpoint holds, such as num_workers or observation_filter.",
    )


class Population(schedulers.Scheduler):
    """Replaces the worst by children of the best."""

    pauses = True

    def __init__(self, options: PopulationOptions, context: SchedulerContext) -> None:
        self.time_attr = options.time_attr
        self.options = options
        self.context = context
        self.mutated = check_names(options.hyperparam_mutations, context)
        key, interval = "scheduler.perturbation_interval", options.perturbation_interval
        check_first(key, interval, options.time_attr)
        check_reached(key, self._after(0.0), options.time_attr, context)
        if context.trials < 2:
            hint = "a population has worse members and better"
            raise BadConfig("trials", context.trials, "at least 2", hint)

    @abstractmethod
    def explore(
        self,
        history: History,
        parent: Trial,
        number: int,
        siblings: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """The searched values of child `number` of `parent`.

        `siblings` are those of the children that the same decision has bred before it.
        """

    def plan(self, history: History, free: int) -> Plan:
        """Compare the trials that reached a level; then start the population's first trials."""
        if self.options.synch:
            return self._together(history, free)
        return self._each(history, free)

    def _together(self, history: History, free: int) -> Plan:
        # A clone may be ahead of the population, which does not wait for it. Where all have ended,
        # new trials begin at the first level, and clones go on alone.
        members = history.order(_members)
        alone = not members and not history.to_create
        newest = _highest(history.order(_living) if alone else members)
        if history.to_create:
            goal = newest[-1] if newest else self._after(0.0)
            return self._found(history, free, goal)
        behind = [t for t in _below(history, min(newest, default=0.0)) if waits(t)]
        if behind:
            why = f"it was held while the others went on to {newest[-1]:g}"
            catches_up = [Resume(t.number, Goal(newest[-1]), why) for t in behind]
            return Plan(resume=tuple(catches_up[:free]))
        for level, following in zip(newest, [*newest[1:], None], strict=False):
            generation = self._generation(history, level)
            if generation and (plan := self._replace(history, generation, following, free)):
                return plan
        return Plan()

    def _generation(self, history: History, level: float) -> Generation | None:
        """The population at a level, or None while some are on their way to it."""
        goals = history.order(_with_goal)
        bound = [history.trials[number] for _, number in goals[bisect_left(goals, (level,)) :]]
        expected = [trial for trial in bound if born_at(trial) < level]
        if not all(trial.status in FINISHED or _is_there(trial, level) for trial in expected):
            return None
        ranking = ranked_at([trial for trial in expected if trial.reached(level)], level)
        return Generation(level, ranking, self._count(len(ranking)))

    def _replace(
        self, history: History, generation: Generation, following: float | None, free: int
    ) -> Plan:
        """Return the decisions that remain for a generation.

        A replaced trial ends in the transaction that breeds its child, so it is replaced only once.
        """
        level = generation.level
        at_level = [t for t, _ in generation.ranking if t.goal.at == level]
        if following is None:
            living = [trial for trial, _ in generation.ranking if trial.status not in FINISHED]
            following = self._after(max((trial.time for trial in living), default=level))
        goal = Goal(following)
        missing = [t for t in generation.lower if t in at_level and waits(t)]
        losers = [(trial, generation) for trial in missing[:free]]
        breed = self._breed(history, len(history.trials), losers, goal)
        resume = [
            _resume(t, generation, goal)
            for t in sorted(at_level, key=lambda t: t.number)
            if waits(t) and t not in generation.lower and len(breed) == len(missing)
        ]
        return Plan(_stops(losers), tuple(resume[: free - len(breed)]), breed)

    def _each(self, history: History, free: int) -> Plan:
        there = [trial for trial in history.of(Status.PAUSED) if waits(trial)][:free]
        found = [(trial, self._newest(history, trial)) for trial in there]
        losers = [(trial, generation) for trial, generation in found if trial in generation.lower]
        fresh = self._found(history, free - len(there), self._after(0.0)).fresh
        resume = [
            _resume(trial, generation, Goal(self._after(trial.time)))
            for trial, generation in found
            if trial not in generation.lower
        ]
        breed = self._breed(history, len(history.trials) + len(fresh), losers)
        return Plan(_stops(losers), tuple(resume), breed, fresh)

    def _newest(self, history: History, trial: Trial) -> Generation:
        """All trials that have not ended, each with its score where it and `trial` both have been.

        They rank by how much better than `trial` they were there: best first, of equals the older.
        """
        own, levels = self._upto(trial.known_until) or 0.0, dict[int, float]()
        scored: list[tuple[float, int, Trial, float | None]] = []
        for other in history.ordered(order.living):
            level = self._upto(other.known_until)
            if level is not None and other.is_known:
                levels[other.number] = level = min(level, own)
                its = _lineage_score(history, other, level)
                behind = _behind(its, _lineage_score(history, trial, level), trial.objective.sign)
                scored.append((behind, other.number, other, its))
        scored.sort(key=lambda one: one[:2])
        ranking = [(other, its) for _, _, other, its in scored]
        return Generation(own, ranking, self._count(len(ranking)), levels)

    def _found(self, history: History, free: int, goal: float) -> Plan:
        count = max(0, min(free, history.to_create))
        begins = [*(trial.time for trial in history.waiting), *[0.0] * count][:count]
        goals = [goal if time < goal else self._after(time) for time in begins]
        fresh = (NewTrial(Goal(at), f"a member of the population; to {at:g}") for at in goals)
        return Plan(fresh=tuple(fresh))

    def _count(self, size: int) -> int:
        return min(math.ceil(size * self.options.quantile_fraction), size // 2)

    def _after(self, time: float) -> float:
        """The first level after `time`."""
        interval = self.options.perturbation_interval
        first = max(1, math.ceil(self.options.burn_in_period / interval))
        return interval * max(first, math.floor(time / interval) + 1)

    def _upto(self, time: float) -> float | None:
        """The last level up to `time`, if there is one."""
        interval = self.options.perturbation_interval
        level = interval * math.floor(time / interval)
        return level if level >= self._after(0.0) else None

    def _breed(
        self, history: History, first: int, losers: Losers, goal: Goal | None = None
    ) -> tuple[Exploit, ...]:
        """Children that replace `losers`, numbered from `first`; by default to their next level."""
        bred: list[Exploit] = []
        for number, (loser, generation) in enumerate(losers, start=first):
            stream = rng.generator(self.context.seed, "exploit", number)
            parent, _ = generation.upper[int(stream.integers(len(generation.upper)))]
            siblings = [sibling.searched for sibling in bred]
            searched = self.explore(history, parent, number, siblings)
            compared = generation.evidence(parent) | {
                "parent": parent.number,
                "replaces": loser.number,
                "settings": list(searched),
                "parent's": [parent.searched.get(name) for name in searched],
                "child's": list(searched.values()),
            }
            why = f"a child of trial {parent.number} in the place of trial {loser.number}, with "
            why += f"{changes(parent.searched, searched)}: {generation.standing(parent)}"
            upto = goal or Goal(self._after(parent.time))
            bred.append(Exploit(parent.number, searched, upto, why, compared))
        return tuple(bred)


def _stops(losers: Losers) -> tuple[Stop, ...]:
    return tuple(
        Stop(
            trial.number,
            Status.PRUNED,
            f"replaced: {generation.standing(trial)}, among the last {generation.count}",
            generation.evidence(trial),
        )
        for trial, generation in losers
    )


def _resume(trial: Trial, generation: Generation, goal: Goal) -> Resume:
    why = f"goes on: {generation.standing(trial)}"
    return Resume(trial.number, goal, why, generation.evidence(trial))


def _lineage_score(history: History, trial: Trial, level: float) -> float | None:
    """The score at a level; of a child that began after it, that of its ancestor there."""
    while trial.parent is not None and born_at(trial) >= level:
        trial = history.trials[trial.parent]
    return trial.score_at(level)


def _behind(its: float | None, own: float | None, sign: float) -> float:
    """Return by how much a score is worse than the judged one; a missing one is worse than all."""
    if its is None:
        return math.inf
    return -math.inf if own is None else sign * (own - its)


# ---- trials by their goals ------------------------------------------------------------------


def _with_goal(trial: Trial) -> Entry | None:
    """Trials with a goal, by the level."""
    return None if trial.goal.at is None else (trial.goal.at, trial.number)


def _living(trial: Trial) -> Entry | None:
    """Trials that have not ended, by their goals; those without one come first."""
    at = -math.inf if trial.goal.at is None else trial.goal.at
    return None if trial.status in FINISHED else (at, trial.number)


def _members(trial: Trial) -> Entry | None:
    """Living trials without clones, which may be ahead of the population."""
    return _living(trial) if trial.clone_of is None else None


def _highest(entries: Sequence[Entry]) -> list[float]:
    """The highest two goals of these entries, ascending."""
    goals: list[float] = []
    end = len(entries)
    while end and len(goals) < 2 and entries[end - 1][0] > -math.inf:
        goals.insert(0, entries[end - 1][0])
        end = bisect_left(entries, (goals[0],))
    return goals


def _below(history: History, level: float) -> list[Trial]:
    """Trials that have not ended and whose goals are below a level, by number."""
    entries = history.order(_living)
    first, end = bisect_left(entries, (-math.inf, math.inf)), bisect_left(entries, (level,))
    return [history.trials[number] for number in sorted(entry[-1] for entry in entries[first:end])]


def _is_there(trial: Trial, level: float) -> bool:
    """Return whether the trial has reached the level and its score there is final."""
    went_on = trial.goal.at is None or trial.goal.at > level
    return trial.reached(level) and (went_on or waits(trial))
