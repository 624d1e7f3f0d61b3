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

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from typing import Any, ClassVar

from pydantic import BaseModel

from sweep import schedulers, stats
from sweep import spec as specs
from sweep.errors import UsageError
from sweep.history.events import Evidence, Status, group_status
from sweep.history.history import History
from sweep.history.order import Entry, Key
from sweep.history.trial import Trial, rank_key
from sweep.schedulers import AddReplica, Plan
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
    context = schedulers.SchedulerContext(spec.stop, spec.trials, spec.space, spec.seed, fixed)
    scheduler = cls(options(spec, paths), context)
    if not hasattr(scheduler, "pauses"):
        raise UsageError(
            f"scheduler: '{spec.scheduler.name}' does not define pauses; give the class True if "
            f"its trials wait while others run, else False"
        )
    return Scheduler(scheduler, spec.replicas) if spec.racing else scheduler


def options(spec: SweepSpec, paths: Sequence[str] = ()) -> BaseModel:
    """The options of the scheduler that `spec` names, checked for themselves."""
    cls = schedulers.find(spec.scheduler.name, paths)
    key, name, given = "finish_best", spec.scheduler.name, spec.scheduler.options
    if key in given and schedulers.KIND.is_shipped(name) and key not in cls.Options.model_fields:
        allowed = f"no such key with {name}"
        raise spec.source.refuse(("scheduler", key), given[key], allowed, schedulers.NOBODY_WAITS)
    if spec.climbs_in_seeds and (spec.replicas > 1 or not spec.aggregate.fair):
        allowed = "1 beside replicas, and beside aggregates that change with the number of seeds"
        raise spec.source.refuse(("scheduler", "seeds"), given["seeds"], allowed)
    return specs.build(cls.Options, spec.scheduler, "scheduler", spec.source)


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
        self.remark = within.remark
        self.pauses = within.pauses
        self.spares = within.spares

    def plan(self, history: History, free: int) -> Plan:
        """Seeds for those that race, then the wrapped scheduler's plan for the others."""
        races = _races(history, self._seeds)
        wanted = tuple(islice(chain.from_iterable(race.wanted() for race in races), free))
        left = free - len(wanted)
        if not left:
            return Plan(seeds=wanted)
        held = {number for race in races if race.open for number in race.at_rest}
        held |= {seed.trial for seed in wanted}  # a trial stays where it is until its seed counts
        view = history.showing(held, _Held.of)  # no decision about these yet
        return replace(self._within.plan(view, left), seeds=wanted)

    def rest(self, history: History) -> float | None:
        """The wrapped scheduler's estimate, without the further seeds."""
        return self._within.rest(history)


@dataclass(frozen=True)
class _Race:
    """Trials that are compared at one level."""

    history: History
    level: float
    """In units of ``time_attr``; infinity for the final scores."""
    seeds: int
    """The most seeds of a trial."""

    @property
    def incumbent(self) -> Trial:
        """The member with the best score."""
        return self.history.trials[self.history.order(_member(self.level))[0][-1]]

    @property
    def at_rest(self) -> Iterator[int]:
        """Trials that wait at this level and can be given another seed."""
        entries = self.history.order(_resting)
        first = bisect_left(entries, (self.level,))
        last = bisect_left(entries, (self.level, math.inf), first)
        return (entries[place][-1] for place in range(first, last))

    @property
    def open(self) -> bool:
        """True if the incumbent still lacks seeds that it can be given here."""
        incumbent = self.incumbent
        return _rests_at(incumbent, self.level) and len(incumbent.counted) < self.seeds

    def wanted(self) -> Iterator[AddReplica]:
        """The seeds to add, in order."""
        incumbent = self.incumbent
        if self.open:
            why = "it is the best so far, and gets all its seeds first"
            for index in range(len(incumbent.replicas), self.seeds):
                yield self._more(incumbent, index, why, {})
            return
        spread = self.history.kept(_several(self.level)).once(_spread)
        for trial, evidence in merge(
            *(self._challengers(incumbent, count, spread) for count in range(1, self.seeds)),
            key=lambda pair: rank_key(pair[0], pair[0].score_at(self.level)),
        ):
            why = "no spread is known"  # the incumbent cannot get a second seed
            if spread is not None:
                why = f"it could still be the best: {evidence['behind']:.6g} behind trial "
                why += f"{incumbent.number}, chance explains {evidence['reach']:.6g}"
            yield self._more(trial, len(trial.replicas), why, evidence)

    def _challengers(
        self, incumbent: Trial, count: int, spread: Spread | None
    ) -> Iterable[tuple[Trial, Evidence]]:
        """Those with `count` seeds that could be as good as the incumbent, best score first.

        By their means, as they stand in the order, they are the first ones.
        """
        found = self._as_good(incumbent, count, spread)
        if count == 1:
            return found  # the only score is the mean
        return sorted(found, key=lambda pair: rank_key(pair[0], pair[0].score_at(self.level)))

    def _as_good(
        self, incumbent: Trial, count: int, spread: Spread | None
    ) -> Iterator[tuple[Trial, Evidence]]:
        best, trials = _scores(incumbent, self.level), self.history.trials
        entries = self.history.order(_challenger(self.seeds))
        for place in range(bisect_left(entries, (self.level, count)), len(entries)):
            level, others, _, number = entries[place]
            if (level, others) != (self.level, count):
                return
            if number == incumbent.number:
                continue
            own = stats.mean(_scores(trials[number], self.level))
            behind = incumbent.objective.sign * (stats.mean(best) - own)
            evidence: dict[str, Any] = {"behind": behind, "mean": own, "seeds": count}
            if spread is not None:
                error = spread.deviation * math.sqrt(1 / len(best) + 1 / count)
                reach = stats.t_quantile(CONFIDENCE, spread.freedom) * error
                if behind > reach:
                    return
                evidence |= {
                    "reach": reach,
                    "spread": spread.deviation,
                    "freedom": spread.freedom,
                    "incumbent": incumbent.number,
                    "best": stats.mean(best),
                }
            yield trials[number], evidence

    def _more(self, trial: Trial, index: int, why: str, evidence: Evidence) -> AddReplica:
        where = "at the end" if math.isinf(self.level) else f"at rung {self.level:g}"
        return AddReplica(trial.number, index, trial.goal, f"{where}: {why}", evidence)


def _races(history: History, seeds: int) -> list[_Race]:
    """Those with a member: of the final scores first, then from the top rung down."""
    entries, levels = history.order(_waiting), list[float]()
    while len(entries) > (first := bisect_left(entries, (levels[-1], math.inf)) if levels else 0):
        levels.append(entries[first][0])
    races = (_Race(history, level, seeds) for level in [math.inf, *reversed(levels)])
    return [race for race in races if history.order(_member(race.level))]


# ---- the members of races, as orders of the history ---------------------------------------------


def _may_race(trial: Trial) -> bool:
    return (
        trial.parent is None
        and trial.status not in (Status.FAILED, Status.STOPPED)
        and not trial.held
        and not any(replica.ended_early for replica in trial.replicas)
    )


def _waiting(trial: Trial) -> Entry | None:
    """Trials that wait at a level, by level."""
    at = trial.goal.at
    if at is None or not _may_race(trial) or _standing(trial) is not Status.PAUSED:
        return None
    return (at, trial.number)


@cache
def _member(level: float) -> Key:
    """Trials with a score at the level, best first."""

    def key(trial: Trial) -> Entry | None:
        there = _rests_at(trial, level) if math.isinf(level) else trial.reached(level)
        score = trial.score_at(level) if there and _may_race(trial) else None
        return None if score is None else rank_key(trial, score)

    return key


def _resting(trial: Trial) -> Entry | None:
    """Members that rest at a level, by level and number: one order, as each costs a look at all."""
    level = math.inf if _standing(trial) is Status.COMPLETED else trial.goal.at
    rests = level is not None and _rests_at(trial, level) and _member(level)(trial)
    return (level, trial.number) if rests else None


@cache
def _several(level: float) -> Key:
    """Members with several seeds, best first, with the deviations of their scores."""
    member = _member(level)

    def key(trial: Trial) -> Entry | None:
        entry = member(trial) if len(trial.counted) > 1 else None
        return entry and (*entry, stats.deviations(_scores(trial, level)), trial.number)

    return key


def _spread(several: list[Entry]) -> Spread | None:
    """The spread of the deviations in these entries."""
    return stats.spread_of(map(itemgetter(-2), several))


@cache
def _challenger(seeds: int) -> Key:
    """Members that can be given a seed where they rest.

    By level, then by how many they have, then by mean, best first.
    """

    def key(trial: Trial) -> Entry | None:
        trains = len(trial.counted) < len(trial.replicas)  # another seed already
        if trains or len(trial.replicas) >= seeds or (rests := _resting(trial)) is None:
            return None
        level, number = rests
        own = _scores(trial, level)
        return (level, len(own), -trial.objective.sign * stats.mean(own), number)

    return key


def _scores(trial: Trial, level: float) -> list[float]:
    scores = (replica.score_at(level) for replica in trial.counted)
    return [score for score in scores if score is not None]


def _standing(trial: Trial) -> Status:
    """The trial's status without seeds that are catching up."""
    return group_status([replica.status for replica in trial.counted])


def _rests_at(trial: Trial, level: float) -> bool:
    """Return whether the trial is paused at `level`, or completed if that is infinity."""
    if math.isinf(level):
        return _standing(trial) is Status.COMPLETED
    waits = _standing(trial) is Status.PAUSED and trial.goal.at == level
    return waits and not any(replica.unfinished for replica in trial.counted)


class _Held(Trial):
    """A trial that cannot be compared yet: it counts at the rungs it reached, and seems to run."""

    @classmethod
    def of(cls, trial: Trial) -> "_Held":
        """A trial of a history, held."""
        return cls(**vars(trial))

    @property
    def status(self) -> Status:
        return Status.RUNNING
