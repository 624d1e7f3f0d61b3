"""How a trial looks to a sampler: what Optuna calls its state, its value and its rungs."""

import math
from collections.abc import Mapping, Sequence
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
    values: tuple[float, ...] = ()
    """The scores in all objectives, of a complete one."""
    rungs: Mapping[int, float] | None = None
    """Rung (from 1) → the score there, of others."""
    violations: tuple[float, ...] = ()
    """How far it breaks each constraint."""


class View(Protocol):
    """Two equal views show every trial the same."""

    def __call__(self, trial: Trial) -> Seen: ...


@dataclass(frozen=True)
class WithRungs:
    """A paused trial is pruned, with its values at the rungs."""

    levels: tuple[float, ...]

    def __call__(self, trial: Trial) -> Seen:
        state = TrialState.RUNNING if trial.unfinished else STATES[trial.status]
        if state is TrialState.COMPLETE:
            return _complete((trial.score,), trial.violations)
        return Seen(state, rungs=self._values(trial), violations=_finite(trial.violations))

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
        rest = next((rest for rest in reversed(trial.rests) if rest.k <= self.k), None)
        if rest is not None:
            failed = rest.status is Status.FAILED
            values = (None,) if failed else (rest.score, *rest.others)
            return _complete(values, rest.violations)
        return Seen(TrialState.RUNNING)


def _complete(values: Sequence[float | None], violations: Sequence[float]) -> Seen:
    """A score that is missing tells nothing: Optuna has no complete trial without its values."""
    known = tuple(value for value in values if value is not None and not math.isnan(value))
    if len(known) < len(values):
        return Seen(TrialState.FAIL, violations=_finite(violations))
    return Seen(TrialState.COMPLETE, known, violations=_finite(violations))


def _finite(violations: Sequence[float]) -> tuple[float, ...]:
    """What is not known counts as broken more than anything that is."""
    return tuple(min(violation, _UNKNOWN) for violation in violations)


_UNKNOWN = 1e100
