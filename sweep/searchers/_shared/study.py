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

#: Status of a trial → Optuna's state in the study.
_STATES = {**STATES, Status.WAITING: TrialState.RUNNING, Status.PAUSED: TrialState.PRUNED}


@dataclass(frozen=True)
class SamplerView:
    """State and results of a trial as a sampler of Optuna shall see them."""

    state: TrialState
    """State of the trial in Optuna."""
    values: tuple[float, ...] = ()
    """Scores in all objectives, for a complete trial; else empty."""
    rungs: Mapping[int, float] | None = None
    """Number of a rung (from 1), or without rungs the iteration → score there, for a trial that is
    not complete. None for a complete or failed trial, or if the sampler knows no rungs."""
    violations: tuple[float, ...] = ()
    """Amount by which each constraint is violated; 0 or less if it holds."""


@dataclass(frozen=True)
class WithRungs:
    """Function from a trial to its view for a sampler that knows rungs.

    A paused trial is shown as pruned, with its scores at the rungs, and an interrupted or waiting
    one as running.
    """

    levels: tuple[float, ...]
    """Rungs of the scheduler (values of `time_attr`), ascending."""

    def __call__(self, trial: Trial) -> SamplerView:
        state = TrialState.RUNNING if trial.is_interrupted else _STATES[trial.status]
        if state is TrialState.COMPLETE:
            return _complete((trial.score,), trial.violations)
        return SamplerView(state, rungs=self._values(trial), violations=finite(trial.violations))

    def _values(self, trial: Trial) -> dict[int, float]:
        """Return number of a rung → score there; without rungs, iteration → score so far.

        Rungs that the trial has not reached, and those without a score, are left out.
        """
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
    """Function from a trial to its view for a sampler that knows no rungs.

    A trial that ever paused or ended is shown as complete with its score then, even if it runs; as
    failed if it failed or a score is missing. Any other trial is shown as running.
    """

    k: float = math.inf
    """Number of the event up to which the history is used; infinite for all."""

    def __call__(self, trial: Trial) -> SamplerView:
        milestone = trial.milestone_at(self.k)
        if milestone is not None:
            failed = milestone.status is Status.FAILED
            values = (None,) if failed else (milestone.score, *milestone.other_scores)
            return _complete(values, milestone.violations)
        return SamplerView(TrialState.RUNNING)


#: Equal views convert every trial equally.
View = WithRungs | AsComplete


def _complete(values: Sequence[float | None], violations: Sequence[float]) -> SamplerView:
    """Return the view of a complete trial with these scores.

    It is that of a failed trial if a score is missing or NaN.
    """
    known = tuple(value for value in values if value is not None and not math.isnan(value))
    if len(known) < len(values):
        return SamplerView(TrialState.FAIL, violations=finite(violations))
    return SamplerView(TrialState.COMPLETE, known, violations=finite(violations))


@dataclass
class Cache:
    """All trials as trials of Optuna, converted again only when they change.

    It never changes a proposal.
    """

    parameters: Mapping[str, Parameter] | None = None
    """Parameters of the space for which trials were converted, by name; None before the first."""
    names: tuple[str, ...] = ()
    """Names of the parameters that are to be proposed."""
    view: View | None = None
    """Function by which trials were converted (`WithRungs` or `AsComplete`); None before the
    first."""
    frozen: list[FrozenTrial] = field(default_factory=list)
    """Converted trials, by number."""
    _changes: Changes = field(default_factory=Changes)
    """Reads which trials have changed since the last update."""

    def update(self, request: Request, view: View) -> list[int]:
        """Convert the trials of a request that have changed, and return their numbers, ascending.

        All are converted if the space or the view is another one than before. Trials outside the
        space are converted as failed; trials that are gone are dropped.
        """
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
    """Suppress Optuna's warnings about experimental features inside the block.

    Users did not choose these features.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def suggest(request: Request, sampler: BaseSampler, trials: Sequence[FrozenTrial]) -> Settings:
    """Return the settings that Optuna's sampler proposes for a new trial, after `trials`.

    Sets the numbers and IDs of `trials` to their positions. Raises BadSpace if the proposal is not
    a point of the space.
    """
    with without_warnings():
        study = study_of(request, trials, sampler)
        trial = study.ask()
        return request.space.resolve(lambda name, domain: ask(trial, name, domain))


def study_of(
    request: Request, trials: Sequence[FrozenTrial], sampler: BaseSampler | None = None
) -> optuna.Study:
    """Return an in-memory study of Optuna with these trials and the sweep's directions.

    The trials are not copied: their numbers and IDs are set to their positions.
    """
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
    """Return the distributions of the parameters that all these trials have, by name.

    Parameters with a single value are left out. Distributions are not compared: those of one name
    are equal, since all trials were converted for one space.
    """
    if not trials:
        return {}
    first = trials[0].distributions
    shared = set(first).intersection(*(trial.distributions for trial in trials[1:]))
    return {name: first[name] for name in sorted(shared) if not first[name].single()}


def freeze(
    trial: Trial, domains: Mapping[str, Domain], result: SamplerView, place: int
) -> FrozenTrial:
    """Return a trial as Optuna's trial number `place`, with the state and values in `result`.

    Parameters outside `domains` are left out. An offspring is converted as failed, since its score
    depends on its ancestors' settings too.
    """
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
