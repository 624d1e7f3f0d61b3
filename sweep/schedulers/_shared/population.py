"""Populations: at each interval, offspring of the best trials replace the worst.

Jaderberg et al., Population Based Training of Neural Networks, 2017, algorithm 1, with truncation
selection. Settings of a trial never change: a trial in the bottom quantile ends, and an offspring
of a random one in the top quantile replaces it, with its parent's checkpoint and new settings.
Offspring have a parent and do not count among the searched trials.

``synch: true``: all trials reach a level before any is replaced; decisions depend only on the
population, not on the order of arrival. ``synch: false``: each trial that reaches a level is
compared with every unfinished trial at the highest level that both have reached, and the others
rank by their lead over it. A trial that has ended has no offspring.

Random numbers come from named streams of (sweep seed, number of the offspring).
"""

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from sweep import schedulers
from sweep.core.errors import BadConfig
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
    describe_rank,
    evidence,
    is_waiting,
    ranked_at,
)
from sweep.spec.space.domains import exact_decimal
from trainables.core import rng

#: Pairs of trial and score, best first.
Ranking = Sequence[tuple[Trial, float | None]]


@dataclass(frozen=True)
class Generation:
    """Trials of a population, ranked at one level, of which the worst are to be replaced."""

    level: float
    """Value of `time_attr` at which the trials are compared."""
    ranking: Ranking
    """Pairs of a trial and its score at the level, best first."""
    count: int
    """Number of trials to replace, which is also the greatest number of possible parents."""
    levels: Mapping[int, float] = field(default_factory=dict)
    """Number of a trial → level at which it was compared, for those not compared at `level`."""

    @property
    def possible_parents(self) -> Ranking:
        """Trials that may have offspring, each with its score, best first.

        They are the best that stay, have a score and a checkpoint and have not finished, at most
        `count`.
        """
        staying = self.ranking[: len(self.ranking) - self.count]
        scored = [(trial, score) for trial, score in staying if score is not None]
        return [(trial, score) for trial, score in scored if _can_breed(trial)][: self.count]

    @property
    def replaced_members(self) -> list[Trial]:
        """Trials to replace, even if they have ended, by number; empty if none can be a parent.

        A trial that has not reported the metric yet is not in the ranking.
        """
        if not self.possible_parents:
            return []
        worst = [trial for trial, _ in self.ranking[len(self.ranking) - self.count :]]
        return sorted(worst, key=lambda trial: trial.number)

    def place(self, trial: Trial) -> int:
        """Return the rank, from 1, of a trial that must be in the ranking."""
        return next(i for i, (t, _) in enumerate(self.ranking, start=1) if t is trial)

    def evidence(self, trial: Trial) -> dict[str, Any]:
        """Return `rungs.evidence` for the rank of `trial`.

        With `levels`, ``steps`` has the level at which each trial was compared.
        """
        staying = len(self.ranking) - self.count
        found = dict(evidence(self.level, self.ranking, self.place(trial), staying))
        if self.levels:
            found["steps"] = [self.levels.get(number, self.level) for number in found["trials"]]
        return found

    def describe_rank(self, trial: Trial) -> str:
        """Return a text with the score, the rank and the level of `trial`, of the ranking."""
        level = self.levels.get(trial.number, self.level)
        return f"{describe_rank(self.ranking, self.place(trial), level)} at {level:g}"


#: Pairs of a trial to replace and the generation in which it was compared.
Losers = Sequence[tuple[Trial, Generation]]


def born_at(trial: Trial) -> float:
    """Return the value of `time_attr` at which an offspring started; 0 for other trials."""
    births = [replica.birth.time for replica in trial.replicas if replica.birth is not None]
    return min(births, default=0.0)


def _can_breed(trial: Trial) -> bool:
    """Return whether a trial can be a parent.

    It must not have finished, and each replica must have a checkpoint, and must not be one that was
    added later and still catches up.
    """
    there = all(r.checkpoints and not r.is_catching_up for r in trial.replicas)
    return there and trial.status not in FINISHED


class PopulationOptions(TimeOptions):
    """When trials are compared, and which are replaced."""

    perturbation_interval: float = Field(
        gt=0,
        description="Amount of training between two comparisons of the population, in units of "
        "time_attr.",
        examples=[2],
    )
    burn_in_period: float = Field(
        0,
        ge=0,
        description="Amount of training before the first replacement, in units of time_attr.",
    )
    quantile_fraction: float = Field(
        0.25,
        gt=0,
        le=0.5,
        description="Fraction of the population: after each comparison, this share of worst "
        "trials is replaced with offspring of an equal share of best trials.",
    )
    synch: bool = Field(
        True,
        description="true: wait until all trials have trained up to a comparison before any is "
        "replaced; false: compare each trial as soon as it has done so.",
    )
    hyperparam_mutations: Annotated[tuple[str, ...], Field(strict=False)] | None = Field(
        None,
        description="Searched settings in which offspring may differ from their parents; null: "
        "all except those stored in the parent's checkpoint, such as model or observation_filter.",
    )


class Population(schedulers.Scheduler):
    """Base of schedulers that replace the worst trials by offspring of the best."""

    pauses = True

    def __init__(self, options: PopulationOptions, context: SchedulerContext) -> None:
        self.time_attr = options.time_attr
        self.options = options
        self.context = context
        self.mutated = check_names(options.hyperparam_mutations, context)
        key, interval = "scheduler.perturbation_interval", options.perturbation_interval
        check_first(key, interval, options.time_attr)
        check_reached(key, self._next_level(0.0), options.time_attr, context)
        if context.trials < 2:
            problem = (
                f"{context.trials} is too few, because a population needs better and worse members"
            )
            raise BadConfig("trials", context.trials, "at least 2", problem=problem)

    @abstractmethod
    def explore(
        self,
        history: History,
        parent: Trial,
        number: int,
        siblings: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the searched values, by parameter, of a new offspring of `parent`.

        `number` is the new trial's number, from which random streams are derived, so that the same
        history gives the same values. `siblings` are the values of the offspring created earlier by
        the same decision.
        """

    def plan(self, history: History, free: int) -> Plan:
        """Replace and continue trials that reached a level, or start the population's first trials.

        At most `free` trials are started or continued.
        """
        if self.options.synch:
            return self._plan_synchronous(history, free)
        return self._plan_asynchronous(history, free)

    def _plan_synchronous(self, history: History, free: int) -> Plan:
        """Return the plan if all trials are compared at once (``synch: true``).

        While settings are left to search, it only starts trials. Otherwise it first continues
        trials that were held while the others continued to a higher level, then replaces and
        continues those at the second-highest level, then those at the highest.
        """
        # The population does not wait for a clone, which may be ahead of it. If all members have
        # ended, new trials start at the first level, and clones continue alone.
        members = history.order(_member_key)
        alone = not members and not history.uncreated_trials
        newest = _highest_goals(history.order(_living_key) if alone else members)
        if history.uncreated_trials:
            goal = newest[-1] if newest else self._next_level(0.0)
            return self._start_members(history, free, goal)
        behind = [t for t in _unfinished_below(history, min(newest, default=0.0)) if is_waiting(t)]
        if behind:
            why = f"it was paused while the others trained on to {newest[-1]:g}"
            catches_up = [Resume(t.number, Goal(newest[-1]), why) for t in behind]
            return Plan(resume=tuple(catches_up[:free]))
        for level, following in zip(newest, [*newest[1:], None], strict=False):
            generation = self._generation(history, level)
            if generation and (plan := self._replace(history, generation, following, free)):
                return plan
        return Plan()

    def _generation(self, history: History, level: float) -> Generation | None:
        """Return the ranked trials that reached a level; None while some are on their way to it.

        Offspring that started at or past the level are not among them.
        """
        goals = history.order(_goal_key)
        bound = [history.trials[number] for _, number in goals[bisect_left(goals, (level,)) :]]
        expected = [trial for trial in bound if born_at(trial) < level]
        if not all(
            trial.status in FINISHED or _has_final_score(trial, level) for trial in expected
        ):
            return None
        ranking = ranked_at([trial for trial in expected if trial.reached(level)], level)
        return Generation(level, ranking, self._count(len(ranking)))

    def _replace(
        self, history: History, generation: Generation, following: float | None, free: int
    ) -> Plan:
        """Return the remaining decisions for the trials compared at one level.

        `following` is the level up to which offspring and the others train next; None to derive it
        from the trials that have not finished. A replaced trial ends in the transaction that
        creates its offspring, so it is replaced only once. At most `free` trials are started or
        continued; none is continued before all that are to be replaced are.
        """
        level = generation.level
        at_level = [t for t, _ in generation.ranking if t.goal.until == level]
        if following is None:
            living = [trial for trial, _ in generation.ranking if trial.status not in FINISHED]
            following = self._next_level(max((trial.time for trial in living), default=level))
        goal = Goal(following)
        missing = [t for t in generation.replaced_members if t in at_level and is_waiting(t)]
        losers = [(trial, generation) for trial in missing[:free]]
        breed = self._breed(history, len(history.trials), losers, goal)
        resume = [
            _resume(t, generation, goal)
            for t in sorted(at_level, key=lambda t: t.number)
            if is_waiting(t) and t not in generation.replaced_members and len(breed) == len(missing)
        ]
        return Plan(_stops(losers), tuple(resume[: free - len(breed)]), breed)

    def _plan_asynchronous(self, history: History, free: int) -> Plan:
        """Return the plan if each trial is compared when it arrives (``synch: false``).

        At most `free` trials are started or continued; those that have arrived come before new
        ones.
        """
        waiting = [trial for trial in history.with_status(Status.PAUSED) if is_waiting(trial)][
            :free
        ]
        found = [(trial, self._newest(history, trial)) for trial in waiting]
        losers = [
            (trial, generation)
            for trial, generation in found
            if trial in generation.replaced_members
        ]
        fresh = self._start_members(history, free - len(waiting), self._next_level(0.0)).fresh
        resume = [
            _resume(trial, generation, Goal(self._next_level(trial.time)))
            for trial, generation in found
            if trial not in generation.replaced_members
        ]
        breed = self._breed(history, len(history.trials) + len(fresh), losers)
        return Plan(_stops(losers), tuple(resume), breed, fresh)

    def _newest(self, history: History, trial: Trial) -> Generation:
        """Return all unfinished trials, each compared with `trial` at the highest level of both.

        They rank by how much better than `trial` they were there: best first, and of equals the
        older. Those without the metric, or below the first level, are left out.
        """
        reached, levels = self._last_level(trial.known_until) or 0.0, dict[int, float]()
        scored: list[tuple[float, int, Trial, float | None]] = []
        for other in history.ordered(order.living):
            level = self._last_level(other.known_until)
            if level is not None and other.is_known:
                levels[other.number] = level = min(level, reached)
                score = _lineage_score(history, other, level)
                behind = _deficit(
                    score, _lineage_score(history, trial, level), trial.objective.sign
                )
                scored.append((behind, other.number, other, score))
        scored.sort(key=lambda one: one[:2])
        ranking = [(other, score) for _, _, other, score in scored]
        return Generation(reached, ranking, self._count(len(ranking)), levels)

    def _start_members(self, history: History, free: int, goal: float) -> Plan:
        """Return a plan that starts missing trials of the population, at most `free`.

        They train up to `goal`. A clone that is ahead of it trains up to its own next level.
        """
        count = max(0, min(free, history.uncreated_trials))
        begins = [*(trial.time for trial in history.waiting_clones), *[0.0] * count][:count]
        goals = [goal if time < goal else self._next_level(time) for time in begins]
        fresh = (
            NewTrial(Goal(at), f"a member of the population, which trains to {at:g}")
            for at in goals
        )
        return Plan(fresh=tuple(fresh))

    def _count(self, size: int) -> int:
        """Return how many of `size` trials are replaced: a quantile, rounded up, at most half.

        The fraction counts as its decimal text says, so 0.07 of 100 trials are 7.
        """
        return min(math.ceil(size * exact_decimal(self.options.quantile_fraction)), size // 2)

    def _next_level(self, time: float) -> float:
        """Return the first level after `time` at which trials are compared.

        Both are values of `time_attr`. Levels are multiples of the interval, from the end of the
        burn-in period on.
        """
        interval, burn_in = self.options.perturbation_interval, self.options.burn_in_period
        first = math.ceil(exact_decimal(burn_in) / exact_decimal(interval))
        return interval * max(1, first, self._levels_up_to(time) + 1)

    def _last_level(self, time: float) -> float | None:
        """Return the last level up to `time` at which trials are compared.

        Returns None if there is none.
        """
        level = self.options.perturbation_interval * self._levels_up_to(time)
        return level if level >= self._next_level(0.0) else None

    def _levels_up_to(self, time: float) -> int:
        """Return the greatest whole number of intervals that make at most `time`."""
        interval = self.options.perturbation_interval
        count = math.floor(time / interval)  # a quotient of 3 may be rounded to 2.999…
        return count + (interval * (count + 1) <= time) - (interval * count > time)

    def _breed(
        self, history: History, first: int, losers: Losers, goal: Goal | None = None
    ) -> tuple[Exploit, ...]:
        """Return the offspring that replace the trials `losers`, with numbers from `first` on.

        Each parent is drawn at random, from a stream that belongs to the offspring's number. The
        offspring train up to `goal`; None lets each train up to the level after its start.
        """
        bred: list[Exploit] = []
        for number, (loser, generation) in enumerate(losers, start=first):
            stream = rng.generator(self.context.seed, "exploit", number)
            parent, _ = generation.possible_parents[
                int(stream.integers(len(generation.possible_parents)))
            ]
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
            why += f"{changes(parent.searched, searched)}: {generation.describe_rank(parent)}"
            upto = goal or Goal(self._next_level(parent.time))
            bred.append(Exploit(parent.number, searched, upto, why, compared))
        return tuple(bred)


def _stops(losers: Losers) -> tuple[Stop, ...]:
    """Return the decisions that end the replaced trials as PRUNED, with their ranks as reasons."""
    return tuple(
        Stop(
            trial.number,
            Status.PRUNED,
            f"replaced: {generation.describe_rank(trial)}, among the last {generation.count}",
            generation.evidence(trial),
        )
        for trial, generation in losers
    )


def _resume(trial: Trial, generation: Generation, goal: Goal) -> Resume:
    """Return the decision that a trial continues up to `goal`."""
    why = f"continues: {generation.describe_rank(trial)}"
    return Resume(trial.number, goal, why, generation.evidence(trial))


def _lineage_score(history: History, trial: Trial, level: float) -> float | None:
    """Return a trial's score at a level; its ancestor's if it started at or after the level."""
    while trial.parent is not None and born_at(trial) >= level:
        trial = history.trials[trial.parent]
    return trial.score_at(level)


def _deficit(other: float | None, judged: float | None, sign: float) -> float:
    """Return by how much score `other` is worse than `judged`; infinite if `other` is missing.

    If only `judged` is missing, it is minus infinity. `sign` is +1 if the metric is maximised, -1
    if it is minimised.
    """
    if other is None:
        return math.inf
    return -math.inf if judged is None else sign * (judged - other)


# ---- keys of trials by goal ------------------------------------------------------------------


def _goal_key(trial: Trial) -> Entry | None:
    """Return the entry (goal, number), by which trials are sorted; None without a goal."""
    return None if trial.goal.until is None else (trial.goal.until, trial.number)


def _living_key(trial: Trial) -> Entry | None:
    """Return the entry (goal, number) of an unfinished trial; minus infinity stands for no goal.

    Returns None for a finished one.
    """
    at = -math.inf if trial.goal.until is None else trial.goal.until
    return None if trial.status in FINISHED else (at, trial.number)


def _member_key(trial: Trial) -> Entry | None:
    """Return the entry of `_living_key`; None for clones, which may be ahead of the population."""
    return _living_key(trial) if trial.clone_of is None else None


def _highest_goals(entries: Sequence[Entry]) -> list[float]:
    """Return the two highest different goals among entries of `_living_key`, ascending.

    Entries without a goal are ignored, so there may be fewer.
    """
    goals: list[float] = []
    end = len(entries)
    while end and len(goals) < 2 and entries[end - 1][0] > -math.inf:
        goals.insert(0, entries[end - 1][0])
        end = bisect_left(entries, (goals[0],))
    return goals


def _unfinished_below(history: History, level: float) -> list[Trial]:
    """Return the unfinished trials that have a goal below `level`, by number."""
    entries = history.order(_living_key)
    first, end = bisect_left(entries, (-math.inf, math.inf)), bisect_left(entries, (level,))
    return [history.trials[number] for number in sorted(entry[-1] for entry in entries[first:end])]


def _has_final_score(trial: Trial, level: float) -> bool:
    """Return whether a trial has reached a level, and its score there cannot change any more."""
    continued = trial.goal.until is None or trial.goal.until > level
    return trial.reached(level) and (continued or is_waiting(trial))
