"""Asynchronous successive halving.

``type: promotion``: Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020,
algorithm 2. A trial that reaches a rung is paused with its checkpoint. A free slot promotes first:
from the highest rung downwards, the best trial among the top ``1 / reduction_factor`` of those that
reached the rung, if it still waits there; it continues from its checkpoint to the next rung. A new
trial starts only if none can be promoted. If there is none to start either, and no trial is on its
way to a rung, those of the best ``finish_best`` trials that wait continue to the top rung: so the
winner is trained to its end even if too few trials reached a rung for a promotion.

``type: stopping``: Klein et al., Model-based Asynchronous Hyperparameter and Neural Architecture
Search, 2020, section 3. A trial that reaches a rung continues at once if it is among the top ``1 /
reduction_factor`` of those that reached it so far, or if those are fewer than ``reduction_factor``;
otherwise it ends there. Trials that equal the last one to continue do so too: before the first
reward, for example, all are equal. Nothing waits, so trainables that cannot save are supported.

If the ends of trials are unknown, there is no top rung: rungs follow each other, each
`reduction_factor` times the previous one, as far as trials get.

With several objectives, trials at a rung rank by fronts (`sweep.schedulers._shared.front_rungs`).

A trial pauses at the first result at or past a rung that has the metric. Its value there is
interpolated between that result and the one before (`sweep.history.curve`); missing scores rank
last.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from sweep.core.errors import BadConfig
from sweep.history.events import FINISHED, Goal, Status
from sweep.history.history import History
from sweep.history.order import Key, interrupted, level_key, trial_status_key
from sweep.history.trial import Trial
from sweep.schedulers import (
    NOBODY_WAITS,
    WAITING,
    AddSeed,
    NewTrial,
    Plan,
    Resume,
    SchedulerContext,
)
from sweep.schedulers._shared import best_tests, seeding
from sweep.schedulers._shared.front_rungs import FrontRung
from sweep.schedulers._shared.rungs import (
    Described,
    Listed,
    Rung,
    RungOptions,
    estimate_remaining_training,
    is_waiting,
    top_rung,
)
from sweep.schedulers._shared.seeding import Step
from sweep.schedulers._shared.stopping import PerTrialStopping, Verdict
from sweep.spec.sections import AUTO, written_seeds

#: Value of the option ``type``: trials pause at rungs, and the best are promoted.
PROMOTION: Literal["promotion"] = "promotion"
#: Number of the best trials that a new sweep trains to the top rung by default.
FINISH_BEST = 1


class Options(RungOptions):
    """Options of asynchronous successive halving: its rungs and its decisions there."""

    type: Literal["promotion", "stopping"] = Field(
        PROMOTION,
        description="promotion: trials are paused at rungs until they are promoted; stopping: a "
        "trial that reaches a rung either continues at once or ends.",
    )
    finish_best: int = Field(
        0,
        ge=0,
        description="With type promotion: number of best trials that are trained to the top rung "
        "at the end of the sweep even if they were not promoted.",
    )


class Scheduler(PerTrialStopping):
    """Asynchronous successive halving: the best fraction of each rung continues to the next."""

    Options: ClassVar[type[BaseModel]] = Options
    adds_seeds = True
    ranks_by_fronts = True

    def __init__(self, options: BaseModel, context: SchedulerContext) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.time_attr = options.time_attr
        self.eta = options.reduction_factor
        self.top, self.grace = top_rung(options, context), options.grace_period
        if self.top is None:
            self.remark = self._growing_remark()
        else:
            self.levels = _levels(self.grace, self.top, self.eta)
        self.pauses = options.type == PROMOTION
        self.finish_best = options.finish_best
        if self.finish_best and not self.pauses:
            problem = f"has no effect with type: stopping, because {NOBODY_WAITS}"
            hint = f"remove it, or use {WAITING}"
            key, share = "scheduler.finish_best", self.finish_best
            raise BadConfig(key, share, hint=hint, problem=problem)
        if not (isinstance(context.seeds, int) or self.pauses):
            plan = written_seeds(context.seeds)
            problem = "with type: stopping no trial waits at a rung, where it could get more seeds"
            hint = f"write a number, such as 3, or use {WAITING}"
            raise BadConfig("seeds", plan, hint=hint, problem=problem)
        seeds = seeding.added(context.seeds, self.levels, self.time_attr)
        self.steps = tuple(seeding.ladder(seeds, self.levels)) if seeds else ()
        self._single_seed_steps = _single_seed_steps(self.levels) if seeds else ()
        self._is_auto = context.seeds == AUTO
        self.default_seeds = AUTO if self.pauses and len(self.levels) > 1 else 1
        if context.seeds == AUTO:
            self.remark = self._remark_on_seeds(seeds)

    @classmethod
    def settle(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options, with ``finish_best: 1`` by default for ``type: promotion``."""
        promotes = options.get("type", PROMOTION) == PROMOTION
        return {"finish_best": FINISH_BEST, **options} if promotes else options

    def plan(self, history: History, free: int) -> Plan:
        """Return promotions of waiting trials, then new trials, at most `free` in total.

        If there are neither, the best waiting trials are trained to the top rung. With ``type:
        stopping``, trials at their rungs are judged instead.
        """
        if not self.pauses:
            return super().plan(history, free)
        decided = itertools.chain(self._tests(history), self._promotions(history))
        promoted = list(itertools.islice(decided, free))
        fresh = min(free - len(promoted), history.uncreated_trials)
        goal = self._goal(self.grace)
        why = f"no trial could be promoted, so a new one trains to rung {goal.until:g}"
        plan = seeding.plan_of(promoted, (NewTrial(goal, why),) * fresh)
        return plan or seeding.plan_of(list(itertools.islice(self._finishing(history), free)))

    # ---- estimate of the remaining training --------------------------------------------------

    def remaining_training(self, history: History) -> float | None:
        """Return an estimate of the training left, in units of `time_attr`.

        Returns None without a top rung. The estimate of the number of trials that leave each rung
        is based on the trials that have left it, and on the share that would be promoted if scores
        were random. Further seeds and `finish_best` are included.
        """
        if not self.levels:
            return None
        trials, steps = history.trials, self._steps_of(history) or _single_seed_steps(self.levels)
        to_come = sum(not t.reached(self.levels[0]) and t.status not in FINISHED for t in trials)
        finals = [float(sum(t.reached(self.levels[0]) for t in trials) + to_come)]
        finals[0] += max(0, history.uncreated_trials - len(history.waiting_clones))
        for step, following in itertools.pairwise(steps):
            there = [trial for trial in trials if self._is_comparable(trial, step)]
            continued = sum(self._has_left(trial, step) for trial in there)
            reached = sum(self._is_comparable(trial, following) for trial in there)
            final = self._estimate_leaving(there, continued, finals[-1])
            finals.append(min(finals[-1], max(float(reached), final)))
        # Training to the end leads to the top, but not to the further seeds there.
        top = next(place for place, step in enumerate(steps) if step.level == self.levels[-1])
        finishing = finals[top] + min(max(0.0, self.finish_best - finals[top]), finals[0])
        finals[: top + 1] = [max(final, finishing) for final in finals[: top + 1]]
        at_levels = dict(reversed([*zip((step.level for step in steps), finals, strict=True)]))
        climbing = estimate_remaining_training(
            self.levels, trials, [at_levels[level] for level in self.levels]
        )
        if self.tests_best(history):
            tests = best_tests.remaining_training(self.levels[-1], finals[top], trials)
            return climbing + tests
        return climbing + seeding.remaining_seed_training(steps, finals, trials)

    def _is_comparable(self, trial: Trial, step: Step) -> bool:
        """Return whether a trial has reached a step with all the step's seeds.

        With a plan of seeds, COMPLETED trials that have these seeds count too.
        """
        return seeding.is_comparable(trial, step) if self.steps else trial.reached(step.level)

    def _has_left(self, trial: Trial, step: Step) -> bool:
        """Return whether a trial was promoted from a step, or has trained past it."""
        at, more = trial.goal.until, bool(self.steps) and len(trial.replicas) > step.seeds
        return more or trial.time > step.level or (at is not None and at > step.level)

    def _estimate_leaving(self, present: Sequence[Trial], continued: int, final: float) -> float:
        """Return an estimate of how many of `final` trials at a rung will leave it upwards.

        Of the trials `present` at it, `continued` have left it so far.
        """
        if self.pauses:
            more = self._expected_promotions(final) - self._expected_promotions(len(present))
            return max(continued + more, final // self.eta)
        judged = sum(trial.status in FINISHED for trial in present) + continued
        expected = self._expected_to_continue(judged)
        luck = (continued + 1) / (expected + 1)
        return continued + luck * (self._expected_to_continue(int(final)) - expected)

    def _expected_promotions(self, count: float) -> float:
        """Return roughly how many of `count` trials that arrive in random order are promoted."""
        return max(count // self.eta, count / self.eta + 0.35 * math.sqrt(count) - 0.5, 0.0)

    def _expected_to_continue(self, count: int) -> float:
        """Return how many of `count` trials in random order continue at once, on average.

        It is for ``type: stopping``.
        """
        return math.fsum(
            1.0 if place < self.eta else (place // self.eta) / place
            for place in range(1, count + 1)
        )

    def promotion_count(self, count: int) -> int:
        """Return how many of `count` trials continue: one in `reduction_factor`, rounded down.

        With ``type: stopping`` all of fewer than `reduction_factor` do; trials equal to the last
        one, which then continue too, are not counted.
        """
        return count if not self.pauses and count < self.eta else count // self.eta

    # ---- promotion --------------------------------------------------------------------------

    def _tests(self, history: History) -> Iterator[AddSeed]:
        """Yield the decisions that test the best trial at the top rung, with ``seeds: auto``."""
        if self.tests_best(history):
            yield from best_tests.decide(history, self._goal(self.levels[-1]))

    def tests_best(self, history: History) -> bool:
        """Return whether further seeds are for the trial with the best expected score.

        That is so with ``seeds: auto``, unless there are several objectives: trials then climb
        `steps` in seeds, too.
        """
        return self._is_auto and not history.objective.objectives

    def _steps_of(self, history: History) -> tuple[Step, ...]:
        """Return the steps to which trials are promoted; empty if the rungs alone decide."""
        return self._single_seed_steps if self.tests_best(history) else self.steps

    def _promotions(self, history: History) -> Iterator[Resume | AddSeed]:
        """Yield all promotions that are possible now: highest step first, in it best trial first.

        One to a step with more seeds is an AddSeed for each of them.
        """
        steps = self._steps_of(history) or _single_seed_steps(self._rungs(history))
        for step, following in reversed([*itertools.pairwise(steps)]):
            ranking, waiting = self._step(history, step, following)
            promoted = self.promotion_count(len(ranking))
            for trial in waiting:
                place = ranking.place(trial)
                if place > promoted:
                    break
                rank = f"{ranking.describe(place, step.level)} at rung {step.level:g}"
                rank += f" under {step.seeds} seeds" if step.seeds > 1 else ""
                compared = ranking.evidence(step.level, place, promoted)
                goal = self._goal(following.level)
                if following.level == step.level:
                    why = f"promoted to {following.seeds} seeds: {rank}"
                    yield from seeding.more_seeds(trial, following.seeds, goal, why, compared)
                else:
                    why = f"promoted to rung {following.level:g}: {rank}"
                    yield Resume(trial.number, goal, why, compared)

    def _step(
        self, history: History, step: Step, following: Step
    ) -> tuple[Rung | FrontRung, Iterator[Trial]]:
        """Return the ranking of all trials at a step, and an iterator over those that wait there.

        The latter wait for a promotion to the step `following`, and are best first.
        """
        single = not self.steps
        waiting = (
            _waiting(step.level, following.level)
            if single
            else seeding.promotion_key(step, following)
        )
        if history.objective.objectives:
            fronts = seeding.front_rung(history, None if single else step, step.level)
            there = (history.trials[number] for number in fronts.numbers)
            return fronts, (trial for trial in there if waiting(trial))
        ranking = Rung(history, step.level) if single else seeding.Members(history, step, following)
        return ranking, (history.trials[entry[-1]] for entry in history.order(waiting))

    def _finishing(self, history: History) -> Iterator[Resume]:
        """Yield the decisions that train the best waiting trials to the top rung.

        They are those among the best `finish_best` trials; trials that run towards the top rung are
        counted as some of these. All keep the seeds that they have: only promotions justify the
        cost of more. Nothing is yielded while a trial may still start, or runs towards a lower
        rung: promotions may follow.
        """
        if history.uncreated_trials:
            return
        under_way = history.ordered(trial_status_key(Status.RUNNING), interrupted)
        top = Goal() if self.top is None else self._goal(self.top)
        if any(trial.goal != top for trial in under_way):
            return
        rest = [t for t in history.trials if is_waiting(t) or t.status is Status.COMPLETED]
        ranking = _final_ranking(history.ranked(rest))
        count = max(0, self.finish_best - len(under_way))
        for place in range(1, min(count, len(ranking)) + 1):
            trial, _ = ranking[place - 1]
            if is_waiting(trial):
                found = ranking.describe(place, math.inf)
                why = f"trained to the end: {found} paused or completed trials"
                compared = dict(ranking.evidence(math.inf, place, self.finish_best))
                del compared["rung"]  # they are compared at different levels
                yield Resume(trial.number, top, f"{why}, and nothing else is left to do", compared)

    def _goal(self, level: float) -> Goal:
        """Return a goal at `level` that knows the top rung."""
        return Goal(level, top=self.top)

    def _rungs(self, history: History) -> list[float]:
        """Return all rungs, ascending.

        Without a top rung, they are those that a trial has reached and the next one.
        """
        if self.top is not None:
            return [*self.levels]
        rungs = [self.grace]
        while history.order(level_key(rungs[-1])):
            rungs.append(rungs[-1] * self.eta)
        return rungs

    def _growing_remark(self) -> str:
        """Return the sentence for users that rungs are added as trials reach them."""
        first = ", ".join(f"{self.grace * self.eta**rung:g}" for rung in range(4))
        return (
            f"scheduler: neither max_t nor stop.{self.time_attr} is given, so rungs are "
            f"added as trials reach them, at {self.time_attr} {first}, …; the trial promoted "
            "last trains to its end"
        )

    def _remark_on_seeds(self, seeds: seeding.Added) -> str:
        """Return the sentence for users about the rung at which trials get further seeds."""
        (level,) = seeds
        return (
            f"seeds: auto, so the best trials at rung {level:g} are tested under further seeds "
            "(seeds: 1 turns this off)"
        )

    # ---- stopping ---------------------------------------------------------------------------

    def next_goal(self, time: float) -> Goal:
        """Return the lowest rung above `time` as a goal, for ``type: stopping``.

        `time` must be below the top rung, if there is one.
        """
        if self.top is not None:
            return self._goal(next(level for level in self.levels if level > time))
        level = self.grace
        while level <= time:
            level *= self.eta
        return self._goal(level)

    def judge_trials(self, history: History, trials: Sequence[Trial]) -> list[Verdict]:
        """Return a verdict on each trial, compared with all that have reached its rung."""
        return [self._verdict(history, trial) for trial in trials]

    def _verdict(self, history: History, trial: Trial) -> Verdict:
        """Return the verdict on a trial at the highest rung that it has reached.

        It continues if it is among the best, `promotion_count` in number, or equals the last one.
        """
        level = max(level for level in self._rungs(history) if trial.reached(level))
        ranking: Rung | FrontRung = Rung(history, level)
        if history.objective.objectives:
            ranking = seeding.front_rung(history, None, level)
        place = ranking.place(trial)
        best = self.promotion_count(len(ranking))
        equals = ranking.equal_places(best)  # these continue too
        continues = place <= best or place in equals
        equal = f", equal to place {best}" if place in equals else ""
        if len(ranking) < self.eta:
            count = f"all continue while there are fewer than {self.eta}"
        else:
            count = "1 continues" if best == 1 else f"{best} continue"
        why = f"{ranking.describe(place, level)}{equal} at rung {level:g}, where {count}"
        return Verdict(continues, why, ranking.evidence(level, place, best + len(equals)))


def _final_ranking(ranked: Sequence[Trial]) -> Described:
    """Return the ranking of trials by their present scores; `ranked` are these trials, best first.

    Those of one front are ordered so that the first of them cover the front.
    """
    if ranked and ranked[0].objective.objectives:
        return FrontRung.of_trials(ranked)
    return Listed([(trial, trial.score) for trial in ranked])


def _single_seed_steps(levels: Sequence[float]) -> tuple[Step, ...]:
    """Return one step per level, each with one seed."""
    return tuple(Step(level, 1) for level in levels)


@cache
def _waiting(level: float, following: float) -> Key:
    """Return a key that sorts the trials waiting at a rung for promotion, best first.

    `following` is the next rung, which they have not reached.
    """
    there = level_key(level)
    return lambda trial: (
        None if trial.status is not Status.PAUSED or trial.reached(following) else there(trial)
    )


def _levels(grace: float, top: float, eta: int) -> tuple[float, ...]:
    """Return the rungs from `grace` to `top`, each `eta` times the previous one.

    The last is `top`.
    """
    levels, level = [], grace
    while level < top:
        levels.append(level)
        level *= eta
    return (*levels, top)
