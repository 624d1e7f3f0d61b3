"""The history as a study in memory, on which Optuna's samplers propose.

Each proposal has a study and a sampler of its own, always with today's distributions. The trials in
the study are kept as a cache of the history: one is made anew when an event about it has come.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import optuna
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.history.events import Status
from sweep.history.optuna_terms import ask, directions, distribution, encode
from sweep.history.trial import Trial
from sweep.searchers import Request
from sweep.space import Domain, Settings
from sweep.space.parameters import Parameter

# -------------------------------------------------------------------------------------------------
# How a trial looks to a sampler: what Optuna calls its state, its value and its rungs.

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


optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass
class Cache:
    """Trials as Optuna sees them, in a row; empty is as good as full, only slower."""

    parameters: Mapping[str, Parameter] | None = None
    names: tuple[str, ...] = ()
    """The parameters that were to be proposed."""
    view: View | None = None
    trials: list[Trial] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    """`Trial.k` when it was frozen."""
    frozen: list[FrozenTrial] = field(default_factory=list)

    def bring_up(self, request: Request, view: View) -> list[FrozenTrial]:
        """The trials of `request` through `view`, those of another sweep first."""
        domains = request.space.domains
        same_space = self.parameters is request.space.parameters and self.names == tuple(domains)
        if not same_space or self.view != view:
            self.forget(0)
            self.parameters, self.names = request.space.parameters, tuple(domains)
            self.view = view
        known = [*request.earlier, *request.trials]
        self.forget(len(known))
        for place, trial in enumerate(known):
            if place < len(self.trials) and self._is_current(place, trial):
                continue
            self.trials[place : place + 1] = [trial]
            self.events[place : place + 1] = [trial.k]
            self.frozen[place : place + 1] = [freeze(trial, domains, view(trial), place)]
        return list(self.frozen)

    def _is_current(self, place: int, trial: Trial) -> bool:
        """Whether nothing has happened to a trial; one without an event may change unseen."""
        unchanging = trial.k > 0 or trial.number < 0
        return unchanging and self.trials[place] is trial and self.events[place] == trial.k

    def forget(self, upto: int) -> None:
        """Drop the trials from place `upto` on."""
        for kept in (self.trials, self.events, self.frozen):
            del kept[upto:]


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna warns of what is experimental; which of it is used is decided here, not by users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def suggest(request: Request, sampler: BaseSampler, known: Sequence[FrozenTrial]) -> Settings:
    """Let `sampler` propose settings for the trial after `known`."""
    with quiet():
        study = study_of(request, known, sampler)
        trial = study.ask()
        return request.space.resolve(lambda name, domain: ask(trial, name, domain))


def study_of(
    request: Request, known: Sequence[FrozenTrial], sampler: BaseSampler | None = None
) -> optuna.Study:
    """A study that holds `known`, which are not copied: samplers only read them."""
    storage = InMemoryStorage()
    study = optuna.create_study(
        storage=storage, sampler=sampler, directions=directions(request.objective)
    )
    storage._studies[study._study_id].trials.extend(known)
    storage._max_trial_id = len(known) - 1
    return study


def freeze(trial: Trial, domains: Mapping[str, Domain], seen: Seen, place: int) -> FrozenTrial:
    """`trial` as Optuna sees it, at its place in a study."""
    searched = {name: value for name, value in trial.searched.items() if name in domains}
    if trial.parent is not None:
        seen = Seen(TrialState.FAIL)  # its score is owed to its ancestors' settings too
    frozen = optuna.trial.create_trial(
        state=seen.state,
        values=seen.values or None,
        system_attrs={f"constraints:{n}": v for n, v in enumerate(seen.violations)},
        params={name: encode(domains[name], value) for name, value in searched.items()},
        distributions={name: distribution(domains[name]) for name in searched},
        intermediate_values=dict(seen.rungs or {}),
    )
    frozen.number = frozen._trial_id = place
    return frozen
