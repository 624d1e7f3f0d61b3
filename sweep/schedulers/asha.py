"""Asynchronous successive halving by promotion.

Li et al., A System for Massively Parallel Hyperparameter Tuning, 2020, algorithm 2.

A trial that reaches a rung is paused with its checkpoint. A free slot promotes first: from the
highest rung downwards, the best trial among the top ``1 / reduction_factor`` of those that reached
the rung, if it still waits there; it goes on from where it stood to the next rung. Only when none
can be promoted a fresh trial starts. A rung's value is the score at the first iteration at or past
it; a missing score ranks last.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sweep import schedulers
from sweep.errors import BadConfig
from sweep.events import Goal, Status
from sweep.history import History, Trial, rank_key
from sweep.schedulers import Fresh, Plan, Resume


class Options(BaseModel):
    """How the rungs stand."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    time_attr: str = Field(
        "training_iteration", description="Result key in which rungs are counted."
    )
    max_t: float | None = Field(
        None, gt=0, description="Top rung, in units of time_attr; default: stop[time_attr]."
    )
    grace_period: float = Field(1, gt=0, description="Lowest rung, in units of time_attr.")
    reduction_factor: int = Field(
        3,
        ge=2,
        description="Of this many trials at a rung, one is promoted; also the rungs' ratio.",
    )


class Scheduler(schedulers.Scheduler):
    """Promotes the best third (say) of each rung to the next."""

    Options: ClassVar[type[BaseModel]] = Options
    pauses: ClassVar[bool] = True

    def __init__(self, options: BaseModel, stop: Mapping[str, float]) -> None:
        if not isinstance(options, Options):
            raise TypeError(f"expected {Options}, got {type(options)}")
        self.time_attr = options.time_attr
        self.eta = options.reduction_factor
        top = options.max_t if options.max_t is not None else stop.get(options.time_attr)
        if top is None:
            raise BadConfig(
                "scheduler.max_t",
                None,
                "a number",
                f"set it, or stop.{options.time_attr}, so that the top rung is known",
            )
        if options.grace_period > top:
            raise BadConfig(
                "scheduler.grace_period", options.grace_period, f"at most the top rung, {top:g}"
            )
        self.levels = _levels(options.grace_period, top, self.eta)

    def plan(self, history: History, free: int) -> Plan:
        """Promote, then start fresh trials."""
        resume = tuple(itertools.islice(self._promotions(history), free))
        fresh = min(free - len(resume), history.to_create)
        goal = self._goal(0)
        why = f"no trial could be promoted; to rung {goal.at:g}"
        return Plan(resume=resume, fresh=(Fresh(goal, why),) * fresh)

    def _promotions(self, history: History) -> Iterator[Resume]:
        for rung in reversed(range(len(self.levels) - 1)):
            level = self.levels[rung]
            entered = [trial for trial in history.trials if trial.reached(level)]
            scores = {trial.number: trial.score_at(level) for trial in entered}
            entered.sort(key=lambda trial: rank_key(trial, scores[trial.number]))
            for place, trial in enumerate(entered[: len(entered) // self.eta], start=1):
                if self._waits_at(trial, rung):
                    score = scores[trial.number]
                    value = (
                        "no score" if score is None else f"{history.objective.metric} {score:.6g}"
                    )
                    why = f"{value} is place {place} of {len(entered)} at rung {level:g}"
                    goal = self._goal(rung + 1)
                    yield Resume(trial.number, goal, f"promoted to rung {goal.at:g}: {why}")

    def _waits_at(self, trial: Trial, rung: int) -> bool:
        return trial.status is Status.PAUSED and not trial.reached(self.levels[rung + 1])

    def _goal(self, rung: int) -> Goal:
        return Goal(self.levels[rung], top=self.levels[-1])


def _levels(grace: float, top: float, eta: int) -> tuple[float, ...]:
    levels, level = [], grace
    while level < top:
        levels.append(level)
        level *= eta
    return (*levels, top)
