"""Seeds on the rungs: a trial climbs in steps of training and in seeds.

A step of the ladder is a level of ``time_attr`` and a number of seeds. A trial promoted to a step
with more seeds than the previous one, at the same level, is trained from scratch under further
seeds up to that level; a trial promoted to the next level continues under all its seeds. Trials at
a step are compared by the aggregate of that many first seeds. So only few trials are trained
several times, and luck under one seed does not make one of them the best.

A trial that has met a stopping criterion counts at every level with its last score, since it would
not get further.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from sweep.core import stats
from sweep.core.errors import BadConfig
from sweep.history.events import FINISHED, Evidence, Goal, Status
from sweep.history.fronts import Compared, CompareKey, compare
from sweep.history.history import History
from sweep.history.order import Entry, Key, level_key
from sweep.history.trial import Trial, rank_key
from sweep.schedulers import AddSeed, NewTrial, Resume, Stop
from sweep.schedulers import Plan as ToDo
from sweep.schedulers._shared import front_rungs
from sweep.schedulers._shared.front_rungs import FrontRung, values_at_level
from sweep.schedulers._shared.rungs import Described, Listed, Rung
from sweep.spec.sections import AUTO, Seeds, written_seeds

#: Numbers of seeds of a trial at the top rung for ``auto``, after the first seed. At lower
#: rungs further seeds are worth their cost only in long searches: one longer training says more.
AUTO_SEEDS = (3, 6)
#: Rung → numbers of seeds that the best trials there get, one number after another.
Added = Mapping[float, tuple[int, ...]]


class Step(NamedTuple):
    """Step that trials climb: a level up to which each of some seeds is trained."""

    level: float
    """Value of `time_attr` up to which each seed is trained."""
    seeds: int
    """Number of seeds of the trial at this step."""


def added(plan: Seeds, levels: Sequence[float], time_attr: str) -> Added:
    """Return the rungs at which trials get further seeds → the numbers of seeds there, in order.

    `plan` is the spec's `seeds`, and `levels` are the rungs. The result is empty if the plan is a
    number. Raises BadConfig if a level of the plan is not a rung, or the rungs are unknown.
    """
    if isinstance(plan, int):
        return {}
    if not levels:
        problem = (
            f"the rungs are unknown, because neither max_t nor stop.{time_attr} sets the top rung"
        )
        hint = "set one of the two, or set seeds to a number"
        raise BadConfig("seeds", written_seeds(plan), hint=hint, problem=problem)
    if plan == AUTO:
        return {levels[-1]: AUTO_SEEDS}
    rungs = {f"{level:g}": level for level in levels}  # as users read and write them
    for level, _ in plan:
        if f"{level:g}" not in rungs:
            problem = f"there is no rung {level:g}"
            raise BadConfig("seeds", f"{level:g}", f"one of {', '.join(rungs)}", problem=problem)
    return {rungs[f"{level:g}"]: (seeds,) for level, seeds in plan}


def most_seeds(plan: Seeds) -> int:
    """Return an upper bound of the mean number of seeds per trial under a plan.

    Single trials may get more with `AUTO`, but then few trials have more than one.
    """
    if isinstance(plan, int):
        return plan
    return AUTO_SEEDS[-1] if plan == AUTO else max(seeds for _, seeds in plan)


def ladder(seeds: Added, levels: Sequence[float]) -> Iterator[Step]:
    """Yield the steps that a trial climbs, given ascending rungs and the seeds at some of them.

    If the first level is above a rung with further seeds, it has these seeds, too.
    """
    count = 1
    for level in levels:
        yield Step(level, count)
        below = max((n for at, counts in seeds.items() if at < level for n in counts), default=1)
        for more in sorted({below, *seeds.get(level, ())}):
            if more > count:
                count = more
                yield Step(level, count)


def first_seeds(trial: Trial, seeds: int) -> Trial | None:
    """Return a copy of a trial with only its first `seeds` replicas, or itself if it has no others.

    Returns None if one is missing, or was added later and is still catching up.
    """
    its = trial.replicas[:seeds]
    if len(its) < seeds or any(replica.is_catching_up for replica in its):
        return None
    return trial if len(trial.replicas) == seeds else replace(trial, replicas=its)


def remaining_seed_training(
    steps: Sequence[Step], finals: Sequence[float], trials: Sequence[Trial]
) -> float:
    """Return about how much training the trials' further seeds still need.

    ``finals[i]`` trials reach ``steps[i]``. The unit is that of the steps' levels, summed over the
    seeds. The training of first seeds is not included.
    """
    before, whole = Step(0.0, 1), 0.0
    for step, final in zip(steps, finals, strict=True):
        fresh = (step.seeds - before.seeds) * step.level
        whole += final * (fresh + (before.seeds - 1) * (step.level - before.level))
        before = step
    done = (
        min(replica.time, before.level)
        for trial in trials
        for replica in trial.replicas
        if replica.joined_at is not None
    )
    return max(0.0, whole - math.fsum(done))


@cache
def step_key(step: Step, by_curves: bool = False) -> Key:
    """Return a key that sorts the trials at a step by the score of the step's seeds, best first.

    COMPLETED trials with these seeds are among them even if they ended before the step's level;
    trials that ended without the metric are not. If `by_curves`, trials with the same score, such
    as the highest possible one, are sorted by their curves: early and steady ones first.
    """
    there = level_key(step.level)

    def key(trial: Trial) -> Entry | None:
        """Return the sort key of a trial at the step; None to leave the trial out."""
        if (its := first_seeds(trial, step.seeds)) is None:
            return None
        if its.status is Status.COMPLETED:
            entry = rank_key(its, its.score_at(step.level)) if its.is_known else None
        else:
            entry = there(its)
        if entry is None or not by_curves:
            return entry
        return (*entry[:-1], _curve_cost(its, step.level), entry[-1])

    return key


def _curve_cost(trial: Trial, level: float) -> float:
    """Return the mean over a trial's replicas of `Replica.mean_until`, less for better ones.

    The result is infinite if one is unknown.
    """
    means = [replica.mean_until(level) for replica in trial.replicas]
    known = [mean for mean in means if mean is not None]
    return -trial.objective.sign * stats.mean(known) if len(known) == len(means) else math.inf


def compared_at(trials: Sequence[Trial], step: Step, following: Step) -> Described:
    """Return the ranking of trials at a step from which some are promoted to `following`.

    It is by fronts if there are several objectives. If the step `following` has more seeds, equal
    scores are sorted as by `step_key`.
    """
    theirs = [first_seeds(trial, step.seeds) or trial for trial in trials]
    ranking = front_rungs.compared_at(theirs, step.level)
    if following.seeds == step.seeds or any(trial.objective.objectives for trial in theirs):
        return ranking
    pairs = [ranking[place] for place in range(len(ranking))]

    def key(pair: tuple[Trial, float | None]) -> Entry:
        """Return the sort key of a trial and its score: the score, then the curve."""
        *worse, number = rank_key(*pair)
        return (*worse, _curve_cost(pair[0], step.level), number)

    return Listed(sorted(pairs, key=key))


@cache
def values_at_step(step: Step) -> CompareKey:
    """Return a key (for a `FrontsSummary`) that gives trials at a step all their objectives there.

    Only the step's seeds count. COMPLETED trials are included even if they ended before the step's
    level; trials that ended without the metric are not.
    """

    def key(trial: Trial) -> Compared | None:
        """Return a trial's values at the step; None if it has not reached the step."""
        its = first_seeds(trial, step.seeds)
        if its is None or not its.is_known:
            return None
        there = its.status is Status.COMPLETED or its.reached(step.level)
        return compare(its, step.level) if there else None

    return key


def front_rung(history: History, step: Step | None, level: float) -> FrontRung:
    """Return the ranking by fronts of all trials at a level.

    With a `step`, only its seeds count; None compares trials under all their seeds.
    """
    if step is None:
        return FrontRung.of_key(history, values_at_level(level), level, lambda trial: trial)
    seeds = step.seeds
    return FrontRung.of_key(
        history, values_at_step(step), level, lambda trial: first_seeds(trial, seeds) or trial
    )


def is_comparable(trial: Trial, step: Step) -> bool:
    """Return whether a trial has reached a step, or is COMPLETED, with all the step's seeds."""
    its = first_seeds(trial, step.seeds)
    return its is not None and (its.reached(step.level) or its.status is Status.COMPLETED)


def has_arrived(trial: Trial, step: Step) -> bool:
    """Return whether a trial has reached a step, or will never reach it.

    A completed trial may still get the seeds that it lacks, unless a user holds it.
    """
    gets_more = trial.status is Status.COMPLETED and not trial.hold
    return is_comparable(trial, step) or (trial.status in FINISHED and not gets_more)


def is_past(trial: Trial, step: Step) -> bool:
    """Return whether a trial has been promoted from a step, to a higher level or more seeds."""
    at = trial.goal.until
    return len(trial.replicas) > step.seeds or (at is not None and at > step.level)


def gets_more(trial: Trial, step: Step) -> bool:
    """Return whether a trial may get more seeds than a step has: these are PAUSED or COMPLETED.

    That they have reached the step's level is not checked. Returns False if a user holds the trial
    or a seed of it failed or was pruned. Seeds beyond the step's may still be training.
    """
    its = first_seeds(trial, step.seeds)
    rests = its is not None and its.status in (Status.PAUSED, Status.COMPLETED)
    return rests and not trial.hold and not any(one.ended_early for one in trial.replicas)


def more_seeds(
    trial: Trial, seeds: int, goal: Goal, reason: str, compared: Evidence
) -> Iterator[AddSeed]:
    """Yield the decisions, with reason and evidence, that give a trial `seeds` seeds in all."""
    for index in range(len(trial.replicas), seeds):
        yield AddSeed(trial.number, index, goal, reason, compared)


def plan_of(
    decided: Sequence[Resume | AddSeed],
    fresh: Sequence[NewTrial] = (),
    stop: Sequence[Stop] = (),
) -> ToDo:
    """Return a plan of these decisions, sorted by their kinds."""
    resume = tuple(one for one in decided if isinstance(one, Resume))
    seeds = tuple(one for one in decided if isinstance(one, AddSeed))
    return ToDo(tuple(stop), resume, fresh=tuple(fresh), seeds=seeds)


@cache
def promotion_key(step: Step, following: Step) -> Key:
    """Return a key that sorts trials at `step` that may be promoted to `following`, best first."""
    more = following.seeds > step.seeds
    there, ahead = step_key(step, more), step_key(following)

    def key(trial: Trial) -> Entry | None:
        """Return the sort key of a trial that may be promoted now; None for another trial."""
        climbs = trial.status is Status.PAUSED and not trial.hold
        if not (gets_more(trial, step) if more else climbs):
            return None
        return there(trial) if ahead(trial) is None else None

    return key


class Members(Rung):
    """Trials at a step, with their scores under the step's seeds, best first.

    If the step `following`, to which some are promoted, has more seeds, trials with the same score
    are sorted by their curves.
    """

    def __init__(self, history: History, step: Step, following: Step) -> None:
        key = step_key(step, following.seeds > step.seeds)
        super().__init__(history, step.level, key)
        self._seeds = step.seeds

    def _compared(self, trial: Trial) -> Trial:
        """Return the trial with only the seeds of this step, by which it is compared."""
        return first_seeds(trial, self._seeds) or trial
