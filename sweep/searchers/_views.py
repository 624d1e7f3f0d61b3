"""How a trial looks to a sampler: what Optuna calls its state, its value and its rungs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from optuna.trial import TrialState

from sweep.events import Status
from sweep.history import Trial

STATES: Mapping[Status, TrialState] = {
    Status.WAITING: TrialState.RUNNING,
    Status.RUNNING: TrialState.RUNNING,
    Status.PAUSED: TrialState.PRUNED,
    Status.PRUNED: TrialState.PRUNED,
    Status.STOPPED: TrialState.PRUNED,
    Status.COMPLETED: TrialState.COMPLETE,
    Status.FAILED: TrialState.FAIL,
}


@dataclass(frozen=True)
class Seen:
    """A trial to a sampler."""

    state: TrialState
    value: float | None = None
    """The score, of a complete one."""
    rungs: Mapping[int, float] | None = None
    """Rung (from 1) → the score there, of others."""


class View(Protocol):
    """Two equal views show every trial the same."""

    def __call__(self, trial: Trial) -> Seen: ...


@dataclass(frozen=True)
class WithRungs:
    """A paused trial is pruned, with its values at the rungs."""

    levels: tuple[float, ...]

    def __call__(self, trial: Trial) -> Seen:
        state = TrialState.RUNNING if trial.unfinished else STATES[trial.status]
        score = trial.score
        if state is TrialState.COMPLETE:
            return _complete(score)
        return Seen(state, rungs=self._values(trial))

    def _values(self, trial: Trial) -> dict[int, float]:
        """Without rungs the score so far, at its iteration."""
        reached = [
            (rung, trial.score_at(level))
            for rung, level in enumerate(self.levels, start=1)
            if trial.reached(level)
        ]
        if not self.levels:
            reached = [(trial.iteration, trial.score)]
        return {step: value for step, value in reached if value is not None}


@dataclass(frozen=True)
class AsComplete:
    """A trial that has come to rest is complete with its score there, also while it goes on.

    Args:
        k: the event up to which the history is seen.
    """

    k: float = math.inf

    def __call__(self, trial: Trial) -> Seen:
        for rest in reversed(trial.rests):
            if rest.k <= self.k:
                return (
                    Seen(TrialState.FAIL) if rest.status is Status.FAILED else _complete(rest.score)
                )
        return Seen(TrialState.RUNNING)


@dataclass(frozen=True)
class AtLevel:
    """A trial that has reached a rung is complete with its score at that rung; others are failed.

    Args:
        level: the rung; infinite: the end.
    """

    level: float

    def __call__(self, trial: Trial) -> Seen:
        if trial.status in (Status.WAITING, Status.RUNNING) or trial.unfinished:
            if not trial.reached(self.level):
                return Seen(TrialState.RUNNING)
        elif trial.status is Status.FAILED or not self._reached(trial):
            return Seen(TrialState.FAIL)
        return _complete(trial.score_at(self.level))

    def _reached(self, trial: Trial) -> bool:
        return trial.status is Status.COMPLETED or trial.reached(self.level)


def _complete(score: float | None) -> Seen:
    """A score that is missing tells nothing: Optuna has no complete trial without a value."""
    if score is None or math.isnan(score):
        return Seen(TrialState.FAIL)
    return Seen(TrialState.COMPLETE, score)
