"""The history as an in-memory study, on which Optuna's samplers propose.

Each proposal gets a new study and a new sampler, with the present distributions. The study's trials
are a cache of the history: a trial is converted again after an event about it.

After a change of the space, a sampler learns from the trials that lie in the present one; the
others are shown as failed, which it ignores. Optuna's estimator would put the weight of a value
outside a range at its end, and no sampler can hold a choice that is gone.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.history.events import Status
from sweep.history.optuna_terms import STATES, ask, directions, distribution, encode, finite
from sweep.history.trial import Trial
from sweep.searchers import Request
from sweep.searchers._shared.changes import Changes
from sweep.spec.space import Domain, Settings
from sweep.spec.space.parameters import Parameter

# -------------------------------------------------------------------------------------------------
# Conversion of a trial for a sampler: Optuna's state, values and intermediate values.

_STATES = {**STATES, Status.WAITING: TrialState.RUNNING, Status.PAUSED: TrialState.PRUNED}


@dataclass(frozen=True)
class SamplerView:
    """A trial as a sampler sees it."""

    state: TrialState
    """State that Optuna's sampler sees."""
    values: tuple[float, ...] = ()
    """Scores in all objectives, for a complete trial."""
    rungs: Mapping[int, float] | None = None
    """Rung (from 1) → score there, for an incomplete trial; None for others."""
    violations: tuple[float, ...] = ()
    """Violation of each constraint."""


@dataclass(frozen=True)
class WithRungs:
    """View in which a paused trial is pruned, with its scores at the rungs."""

    levels: tuple[float, ...]
    """Rungs of the scheduler, ascending."""

    def __call__(self, trial: Trial) -> SamplerView:
        state = TrialState.RUNNING if trial.is_interrupted else _STATES[trial.status]
        if state is TrialState.COMPLETE:
            return _complete((trial.score,), trial.violations)
        return SamplerView(state, rungs=self._values(trial), violations=finite(trial.violations))

    def _values(self, trial: Trial) -> dict[int, float]:
        """Return rung → score; without rungs, the score so far at its iteration."""
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
    """View in which a trial with a milestone is complete with its score there, even if it runs."""

    k: float = math.inf
    """Number of the event up to which the history is used."""

    def __call__(self, trial: Trial) -> SamplerView:
        rest = next((rest for rest in reversed(trial.milestones) if rest.event <= self.k), None)
        if rest is not None:
            failed = rest.status is Status.FAILED
            values = (None,) if failed else (rest.score, *rest.other_scores)
            return _complete(values, rest.violations)
        return SamplerView(TrialState.RUNNING)


#: Equal views convert every trial equally.
View = WithRungs | AsComplete


def _complete(values: Sequence[float | None], violations: Sequence[float]) -> SamplerView:
    """Return a complete trial with scores `values`; a failed one if a score is None."""
    known = tuple(value for value in values if value is not None and not math.isnan(value))
    if len(known) < len(values):
        return SamplerView(TrialState.FAIL, violations=finite(violations))
    return SamplerView(TrialState.COMPLETE, known, violations=finite(violations))


@dataclass
class Cache:
    """Trials converted for Optuna; a cache that never changes a proposal."""

    parameters: Mapping[str, Parameter] | None = None
    """Parameters of the space for which trials were converted; None before the first."""
    names: tuple[str, ...] = ()
    """Names of the parameters to propose."""
    view: View | None = None
    """View by which trials were converted; None before the first."""
    frozen: list[FrozenTrial] = field(default_factory=list)
    """Converted trials, by number."""
    _changes: Changes = field(default_factory=Changes)
    """Record of the trials that have changed since the last update."""

    def update(self, request: Request, view: View) -> list[int]:
        """Convert the trials of `request` that have changed; return their indices, ascending."""
        space, known = request.space, request.trials
        domains = space.domains
        same_space = self.parameters is space.parameters and self.names == tuple(domains)
        if not same_space or self.view != view:
            self._changes = Changes()
            self.parameters, self.names = space.parameters, tuple(domains)
            self.view = view
        changed = self._changes.update(request)
        del self.frozen[len(known) :]
        for place in changed:
            trial = known[place]
            if space.has(trial.searched):
                frozen = freeze(trial, domains, view(trial), place)
            else:
                frozen = freeze(trial, {}, SamplerView(TrialState.FAIL), place)
            self.frozen[place : place + 1] = [frozen]
        return changed


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress Optuna's warnings about experimental features, which users did not choose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def suggest(request: Request, sampler: BaseSampler, trials: Sequence[FrozenTrial]) -> Settings:
    """Return the settings that `sampler` proposes for the trial after `trials`."""
    with without_warnings():
        study = study_of(request, trials, sampler)
        trial = study.ask()
        return request.space.resolve(lambda name, domain: ask(trial, name, domain))


def study_of(
    request: Request, trials: Sequence[FrozenTrial], sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return a study of the trials `trials`, which are renumbered but not copied."""
    storage = InMemoryStorage()
    study = optuna.create_study(
        storage=storage, sampler=sampler, directions=directions(request.objective)
    )
    for place, trial in enumerate(trials):  # the trials may be a subset
        trial.number = trial._trial_id = place
    storage._studies[study._study_id].trials.extend(trials)
    storage._max_trial_id = len(trials) - 1
    return study


def shared_distributions(trials: Sequence[FrozenTrial]) -> dict[str, BaseDistribution]:
    """Return the distributions of the parameters that all trials `trials` have, by name.

    Those with a single value are left out. Distributions are not compared: those of one name are
    equal, since all trials were converted for one space.
    """
    if not trials:
        return {}
    first = trials[0].distributions
    shared = set(first).intersection(*(trial.distributions for trial in trials[1:]))
    return {name: first[name] for name in sorted(shared) if not first[name].single()}


def freeze(
    trial: Trial, domains: Mapping[str, Domain], result: SamplerView, place: int
) -> FrozenTrial:
    """Return `trial` converted for Optuna, with number `place` in its study."""
    searched = {name: value for name, value in trial.searched.items() if name in domains}
    if trial.parent is not None:
        result = SamplerView(TrialState.FAIL)  # its score depends on its ancestors' settings too
    frozen = optuna.trial.create_trial(
        state=result.state,
        values=result.values or None,
        system_attrs={f"constraints:{n}": v for n, v in enumerate(result.violations)},
        params={name: encode(domains[name], value) for name, value in searched.items()},
        distributions={name: distribution(domains[name]) for name in searched},
        intermediate_values=dict(result.rungs or {}),
    )
    frozen.number = frozen._trial_id = place
    return frozen
