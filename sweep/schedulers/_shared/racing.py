"""Racing: each trial begins with one seed, and gets more only while it could still be the best.

There is a race at each rung, among the trials that have reached it, by their scores there; and one
among the completed trials, by their final scores. In each race

1. the trial with the best score, the incumbent, is trained under all `replicas` seeds first;
2. every other one whose mean may be as good gets one seed more, until it has as many; it may be as
   good unless the means differ by more than chance explains:

       difference > t(CONFIDENCE, f) · s · √(1 / seeds of the incumbent + 1 / its own seeds)

   where s is the standard deviation between seeds, pooled over the trials of the race that have
   several, and f its degrees of freedom;
3. the rest are out of the race; the incumbent never is.

Racing: Birattari et al., A Racing Algorithm for Configuring Metaheuristics, 2002; López-Ibáñez et
al., The irace package, 2016, whose t-test variant is this one without pairing, since a seed means
nothing across settings. The incumbent first: Hutter et al., Sequential Model-Based Optimization for
General Algorithm Configuration, 2011, section 3.1 (intensification).

It wraps a scheduler and, like one, is a function of the history. While the incumbent of a race
lacks seeds, its members cannot be compared: to the wrapped scheduler they all still run.
"""

import copy
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import BaseModel

from sweep import schedulers, stats
from sweep import spec as specs
from sweep.history.events import Evidence, Status, group_status
from sweep.history.history import History
from sweep.history.trial import Trial
from sweep.schedulers import AddReplica, Plan
from sweep.schedulers._shared.rungs import ranked_at
from sweep.spec import Plugin, SweepSpec
from sweep.stats import Spread

#: Confidence that a trial is not the best at which it gets no more seeds.
CONFIDENCE = 0.95


def build(
    spec: SweepSpec, paths: Sequence[str] = (), fixed: Collection[str] = ()
) -> schedulers.Scheduler:
    """The scheduler that `spec` names, with its options checked; in a race if ``racing`` is set.

    No child of a trial may change the settings `fixed` (`Trainable.fixed_keys`).
    """
    cls = schedulers.find(spec.scheduler.name, paths)
    key, name, given = "finish_best", spec.scheduler.name, spec.scheduler.options
    if key in given and schedulers.KIND.is_shipped(name) and key not in cls.Options.model_fields:
        allowed = f"no such key with {name}"
        raise spec.source.refuse(("scheduler", key), given[key], allowed, schedulers.NOBODY_WAITS)
    options = specs.build(cls.Options, spec.scheduler, "scheduler", spec.source)
    context = schedulers.SchedulerContext(spec.stop, spec.trials, spec.space, spec.seed, fixed)
    scheduler = cls(options, context)
    return Scheduler(scheduler, spec.replicas) if spec.racing else scheduler


def settled(spec: SweepSpec, paths: Sequence[str] = ()) -> SweepSpec:
    """`spec` as the ledger of a new sweep keeps it: see `schedulers.Scheduler.settle`."""
    plugin = spec.scheduler
    options = schedulers.find(plugin.name, paths).settle(plugin.options)
    return spec.model_copy(update={"scheduler": Plugin(name=plugin.name, options=dict(options))})


class Scheduler(schedulers.Scheduler):
    """A scheduler whose trials race: the one `within` sees the seeds that count."""

    Options: ClassVar[type[BaseModel]] = BaseModel

    def __init__(self, within: schedulers.Scheduler, seeds: int) -> None:
        self._within = within
        self._seeds = seeds
        self.time_attr = within.time_attr
        self.levels = within.levels
        self.pauses = within.pauses
        self.spares = within.spares

    def plan(self, history: History, free: int) -> Plan:
        """Seeds for those that race, then the wrapped scheduler's plan for the others."""
        races = [_Race(members, level, self._seeds) for level, members in _gathered(history)]
        wanted = [seed for race in races for seed in race.wanted()][:free]
        left = free - len(wanted)
        if not left:
            return Plan(seeds=tuple(wanted))
        held = {trial.number for race in races if race.open for trial in race.at_rest}
        held |= {seed.trial for seed in wanted}  # a trial stays where it is until its seed counts
        view = copy.copy(history)  # no decision about those that are held yet
        view.trials = [_Held(**vars(t)) if t.number in held else t for t in history.trials]
        return replace(self._within.plan(view, left), seeds=tuple(wanted))

    def rest(self, history: History) -> float | None:
        """The wrapped scheduler's estimate, without the further seeds."""
        return self._within.rest(history)


@dataclass(frozen=True)
class _Race:
    """Trials that are compared at one level."""

    members: Sequence[Trial]
    """With a score at the level, best first."""
    level: float
    """In units of ``time_attr``; infinity for the final scores."""
    seeds: int
    """How many a trial has at most."""

    @property
    def at_rest(self) -> list[Trial]:
        """Trials that wait at this level and can be given another seed."""
        return [trial for trial in self.members if _rests_at(trial, self.level)]

    @property
    def open(self) -> bool:
        """Whether the incumbent still lacks seeds that it can be given here."""
        incumbent = self.members[0]
        return _rests_at(incumbent, self.level) and len(incumbent.counted) < self.seeds

    def wanted(self) -> Iterator[AddReplica]:
        """The seeds to add, in order."""
        incumbent = self.members[0]
        if self.open:
            why = "it is the best so far, and gets all its seeds first"
            for index in range(len(incumbent.replicas), self.seeds):
                yield self._more(incumbent, index, why, {})
            return
        spread = stats.pooled_spread([self._scores(trial) for trial in self.members])
        for trial in self.members[1:]:
            may_grow = len(trial.replicas) < self.seeds and len(trial.counted) == len(
                trial.replicas
            )
            if may_grow and _rests_at(trial, self.level):  # it trains no other seed already
                yield from self._challenge(trial, incumbent, spread)

    def _challenge(
        self, trial: Trial, incumbent: Trial, spread: Spread | None
    ) -> Iterator[AddReplica]:
        """Another seed for `trial`, if it could be as good as the incumbent."""
        own, best = self._scores(trial), self._scores(incumbent)
        behind = trial.objective.sign * (stats.mean(best) - stats.mean(own))
        evidence = {"behind": behind, "mean": stats.mean(own), "seeds": len(own)}
        why = "no spread is known"  # the incumbent cannot get a second seed
        if spread is not None:
            error = spread.deviation * math.sqrt(1 / len(best) + 1 / len(own))
            reach = stats.t_quantile(CONFIDENCE, spread.freedom) * error
            if behind > reach:
                return
            evidence |= {"reach": reach, "spread": spread.deviation, "freedom": spread.freedom}
            evidence |= {"incumbent": incumbent.number, "best": stats.mean(best)}
            why = f"it could still be the best: {behind:.6g} behind trial {incumbent.number}, "
            why += f"chance explains {reach:.6g}"
        yield self._more(trial, len(trial.replicas), why, evidence)

    def _more(self, trial: Trial, index: int, why: str, evidence: Evidence) -> AddReplica:
        where = "at the end" if math.isinf(self.level) else f"at rung {self.level:g}"
        return AddReplica(trial.number, index, trial.goal, f"{where}: {why}", evidence)

    def _scores(self, trial: Trial) -> list[float]:
        scores = (replica.score_at(self.level) for replica in trial.counted)
        return [score for score in scores if score is not None]


def _gathered(history: History) -> Iterator[tuple[float, list[Trial]]]:
    """(level, its racing trials, best first): final scores first, then from the top rung down."""
    racing = [
        trial
        for trial in history.trials
        if trial.parent is None
        and trial.status not in (Status.FAILED, Status.STOPPED)
        and not trial.held
        and not any(replica.ended_early for replica in trial.replicas)
    ]
    levels = {trial.goal.at for trial in racing if _standing(trial) is Status.PAUSED}
    for level in sorted({*(at for at in levels if at is not None), math.inf}, reverse=True):
        there = [
            trial
            for trial in racing
            if (_rests_at(trial, level) if math.isinf(level) else trial.reached(level))
        ]
        scored = [trial for trial, score in ranked_at(there, level) if score is not None]
        if scored:
            yield level, scored


def _standing(trial: Trial) -> Status:
    """The trial's status without seeds that are catching up."""
    return group_status([replica.status for replica in trial.counted])


def _rests_at(trial: Trial, level: float) -> bool:
    """Whether the trial is paused at `level`, or completed if that is infinity."""
    if math.isinf(level):
        return _standing(trial) is Status.COMPLETED
    waits = _standing(trial) is Status.PAUSED and trial.goal.at == level
    return waits and not any(replica.unfinished for replica in trial.counted)


class _Held(Trial):
    """A trial that cannot be compared yet: it counts at the rungs it reached, and seems to run."""

    @property
    def status(self) -> Status:
        return Status.RUNNING
