"""Populations: at each interval, children of the best take the places of the worst.

Jaderberg et al., Population Based Training of Neural Networks, 2017, algorithm 1, with truncation
selection. Settings of a trial never change: whoever is in the bottom quantile ends, and a child of
a random one of the top quantile goes on in its place, from its parent's checkpoint and with
settings of its own. Children have a parent and do not count among the searched trials.

``synch: true``: all come to a level before any is replaced; what is decided there depends on the
population alone, not on the order of arrival. ``synch: false``: each that comes to a level of its
own is compared with the newest level of each other that has not ended. Nobody goes on from a
trial that has ended.

Chance comes from named streams of (sweep seed, number of the child).
"""

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, Field

from sweep import schedulers
from sweep.errors import BadConfig
from sweep.history import order
from sweep.history.events import FINISHED, Goal, Status
from sweep.history.history import History
from sweep.history.order import Entry
from sweep.history.trial import Trial, rank_key
from sweep.schedulers import Exploit, NewTrial, Plan, Resume, SchedulerContext, Stop
from sweep.schedulers._shared.mutation import changes, check_names
from sweep.schedulers._shared.rungs import (
    TimeOptions,
    check_first,
    check_reached,
    evidence,
    ranked_at,
    waits,
    worth,
)
from trainables.core import rng

# -------------------------------------------------------------------------------------------------
# A population at one level: who is best, who is replaced, and when a child was born.

#: Trials with their scores, best first.
Ranking = Sequence[tuple[Trial, float | None]]


@dataclass(frozen=True)
class Generation:
    """The population at one level."""

    level: float
    ranking: Ranking
    count: int
    """How many are replaced, and how many they are replaced by."""

    @property
    def living(self) -> list[Trial]:
        """Members that have not ended; the ended ones only serve as a comparison."""
        return [trial for trial, _ in self.ranking if trial.status not in FINISHED]

    @property
    def upper(self) -> Ranking:
        """Members that may have children: the best ones with a checkpoint to begin from."""
        staying = self.ranking[: len(self.ranking) - self.count]
        return [(trial, score) for trial, score in staying if _can_breed(trial)][: self.count]

    @property
    def lower(self) -> list[Trial]:
        """Numbers of the members that are replaced; none if no member may have children."""
        if not self.upper:
            return []
        worst = [trial for trial, _ in self.ranking[len(self.ranking) - self.count :]]
        return sorted(worst, key=lambda trial: trial.number)

    def place(self, trial: Trial) -> int:
        """From 1."""
        return next(i for i, (t, _) in enumerate(self.ranking, start=1) if t is trial)

    def told(self, trial: Trial) -> dict[str, Any]:
        """The numbers of a decision about `trial`."""
        staying = len(self.ranking) - self.count
        return dict(evidence(self.level, self.ranking, self.place(trial), staying))

    def says(self, history: History, trial: Trial) -> str:
        """Where it stands, in words."""
        place = self.place(trial)
        value = worth(history, self.ranking[place - 1][1])
        return f"{value} is place {place} of {len(self.ranking)} at {self.level:g}"


def born_at(trial: Trial) -> float:
    """The value of ``time_attr`` at which a bred trial began; 0 for a searched one."""
    births = [replica.birth.time for replica in trial.replicas if replica.birth is not None]
    return min(births, default=0.0)


def _can_breed(trial: Trial) -> bool:
    """Whether a child could go on from it: it has not ended, and each seed is there, and saved."""
    there = all(r.checkpoints and not r.catching_up for r in trial.replicas)
    return there and trial.status not in FINISHED


class PopulationOptions(TimeOptions):
    """How a population lives."""

    perturbation_interval: float = Field(
        gt=0,
        description="Distance between two comparisons, in units of time_attr.",
        examples=[2],
    )
    burn_in_period: float = Field(
        0, ge=0, description="Nobody is replaced before this, in units of time_attr."
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


@dataclass
class Offspring:
    """The children that one decision breeds."""

    history: History
    first: int
    """The number of the first."""
    bred: list[Exploit] = field(default_factory=list)


class Population(schedulers.Scheduler):
    """Replaces the worst by children of the best."""

    pauses = True

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        if not isinstance(options, PopulationOptions):
            raise TypeError(f"expected {PopulationOptions}, got {type(options)}")
        self.time_attr = options.time_attr
        self.levels: tuple[float, ...] = ()
        self.options = options
        self.context = context
        self.mutated = check_names(options.hyperparam_mutations, context)
        place, interval = "scheduler.perturbation_interval", options.perturbation_interval
        check_first(place, interval, options.time_attr)
        check_reached(place, self._after(0.0), options.time_attr, context)
        if context.trials < 2:
            raise BadConfig(
                "trials", context.trials, "at least 2", "a population has worse members and better"
            )

    @abstractmethod
    def explore(
        self,
        history: History,
        parent: Trial,
        number: int,
        siblings: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """The searched values of the child of `parent` that gets this number.

        `siblings` are those of the children that are bred by the same decision, before it.
        """

    def plan(self, history: History, free: int) -> Plan:
        """Compare whoever came to a level; then found the population."""
        if self.options.synch:
            return self._together(history, free)
        return self._each(history, free)

    # ---- all at once ------------------------------------------------------------------------

    def _together(self, history: History, free: int) -> Plan:
        # A clone may be ahead of the population, which comes to its levels in its own time. Where
        # all have ended, whoever joins begins at the first level, and clones go on alone.
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
            if generation is not None:
                plan = self._replace(history, generation, following, free)
                if plan:
                    return plan
        return Plan()

    def _generation(self, history: History, level: float) -> Generation | None:
        """The population at a level; None: some are still on their way to it."""
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
        """What a generation's comparison leads to, less what has been done of it before.

        Who is replaced ends in the transaction in which its child is bred, so nobody is twice.
        """
        level = generation.level
        at_level = [t for t, _ in generation.ranking if t.goal.at == level]
        if following is None:
            following = self._after(max((t.time for t in generation.living), default=level))
        goal = Goal(following)
        missing = [t for t in generation.lower if t in at_level and waits(t)]
        replaced = missing[:free]
        stop = [self._stop(history, generation, t) for t in replaced]
        offspring = Offspring(history, len(history.trials))
        for loser in replaced:
            self._breed(offspring, generation, loser, goal)
        breed = offspring.bred
        resume = [
            Resume(t.number, goal, f"goes on: {generation.says(history, t)}", generation.told(t))
            for t in sorted(at_level, key=lambda t: t.number)
            if waits(t) and t not in generation.lower and len(breed) == len(missing)
        ]
        return Plan(tuple(stop), tuple(resume[: free - len(breed)]), tuple(breed))

    # ---- one by one -------------------------------------------------------------------------

    def _each(self, history: History, free: int) -> Plan:
        there = [trial for trial in history.of(Status.PAUSED) if waits(trial)][:free]
        found = [(trial, self._newest(history, trial)) for trial in there]
        losers = [(trial, generation) for trial, generation in found if trial in generation.lower]
        fresh = self._found(history, free - len(there), self._after(0.0)).fresh
        stop = [self._stop(history, generation, trial) for trial, generation in losers]
        offspring = Offspring(history, len(history.trials) + len(fresh))
        for trial, generation in losers:
            self._breed(offspring, generation, trial, None)
        resume = [
            Resume(
                trial.number,
                Goal(self._after(trial.time)),
                f"goes on: {generation.says(history, trial)}",
                generation.told(trial),
            )
            for trial, generation in found
            if trial not in generation.lower
        ]
        return Plan(tuple(stop), tuple(resume), tuple(offspring.bred), fresh)

    def _newest(self, history: History, trial: Trial) -> Generation:
        """Everybody who has not ended, each with its score at its newest level."""
        scored: list[tuple[Trial, float | None]] = []
        for other in history.ordered(order.living):
            level = self._upto(other.time)
            if level is not None and born_at(other) < other.time:
                scored.append((other, other.score_at(level)))
        ranking = sorted(scored, key=lambda pair: rank_key(*pair))
        return Generation(self._upto(trial.time) or 0.0, ranking, self._count(len(ranking)))

    # ---- parts ------------------------------------------------------------------------------

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
        """The last level up to `time`; None: there was none."""
        interval = self.options.perturbation_interval
        level = interval * math.floor(time / interval)
        return level if level >= self._after(0.0) else None

    def _stop(self, history: History, generation: Generation, trial: Trial) -> Stop:
        why = f"replaced: {generation.says(history, trial)}, among the last {generation.count}"
        return Stop(trial.number, Status.PRUNED, why, generation.told(trial))

    def _breed(
        self, offspring: Offspring, generation: Generation, loser: Trial, goal: Goal | None
    ) -> None:
        """Add a child to the brood, in the place of `loser`; by default to its next level."""
        number = offspring.first + len(offspring.bred)
        stream = rng.generator(self.context.seed, "exploit", number)
        parent, _ = generation.upper[int(stream.integers(len(generation.upper)))]
        siblings = [sibling.searched for sibling in offspring.bred]
        searched = self.explore(offspring.history, parent, number, siblings)
        told = generation.told(parent) | {
            "parent": parent.number,
            "replaces": loser.number,
            "settings": list(searched),
            "parent's": [parent.searched.get(name) for name in searched],
            "child's": list(searched.values()),
        }
        why = f"a child of trial {parent.number} in the place of trial {loser.number}, with "
        why += f"{changes(parent.searched, searched)}: {generation.says(offspring.history, parent)}"
        goal = goal or Goal(self._after(parent.time))
        offspring.bred.append(Exploit(parent.number, searched, goal, why, told))


# ---- trials by their goals ------------------------------------------------------------------


def _with_goal(trial: Trial) -> Entry | None:
    """Trials with a goal, by the level."""
    return None if trial.goal.at is None else (trial.goal.at, trial.number)


def _living(trial: Trial) -> Entry | None:
    """Trials that have not ended, by their goals; those without one come first."""
    at = -math.inf if trial.goal.at is None else trial.goal.at
    return None if trial.status in FINISHED else (at, trial.number)


def _members(trial: Trial) -> Entry | None:
    """The same without clones, which may be ahead of the population."""
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
    """Whether the trial has reached the level and its score there is final."""
    went_on = trial.goal.at is None or trial.goal.at > level
    return trial.reached(level) and (went_on or waits(trial))
