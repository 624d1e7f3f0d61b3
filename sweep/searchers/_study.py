"""The history as a study in memory, on which Optuna's samplers propose.

The study is made anew for each proposal, always with today's distributions. A paused trial stands
there as pruned with its values at the rungs: as a running one it would tell the sampler nothing.
"""

import math
import warnings

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweep.events import Status
from sweep.history import Trial
from sweep.searchers import Request
from sweep.space import Domain, Settings
from sweep.study import View, ask, direction, distribution, encode

optuna.logging.set_verbosity(optuna.logging.WARNING)

_STATES = {
    Status.WAITING: TrialState.RUNNING,
    Status.RUNNING: TrialState.RUNNING,
    Status.PAUSED: TrialState.PRUNED,
    Status.PRUNED: TrialState.PRUNED,
    Status.STOPPED: TrialState.PRUNED,
    Status.COMPLETED: TrialState.COMPLETE,
    Status.FAILED: TrialState.FAIL,
}


def suggest(request: Request, sampler: BaseSampler, view: View = "modelled") -> Settings:
    """Let `sampler` propose settings for the trial after `request.trials`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(direction=direction(request.objective), sampler=sampler)
        domains = request.space.domains
        study.add_trials(
            [freeze(t, domains, request.levels, view) for t in (*request.earlier, *request.trials)]
        )
        trial = study.ask()
        return request.space.resolve(lambda name, domain: ask(trial, name, domain, view))


def freeze(
    trial: Trial, domains: dict[str, Domain], levels: tuple[float, ...], view: View = "modelled"
) -> FrozenTrial:
    """`trial` as Optuna sees it."""
    searched = {name: value for name, value in trial.searched.items() if name in domains}
    state = TrialState.RUNNING if trial.unfinished else _STATES[trial.status]
    score = trial.score
    if state is TrialState.COMPLETE and (score is None or math.isnan(score)):
        state = TrialState.FAIL
    return optuna.trial.create_trial(
        state=state,
        value=score if state is TrialState.COMPLETE else None,
        params={name: encode(domains[name], value, view) for name, value in searched.items()},
        distributions={name: distribution(domains[name], view) for name in searched},
        intermediate_values=rung_values(trial, levels),
    )


def rung_values(trial: Trial, levels: tuple[float, ...]) -> dict[int, float]:
    """Rung (from 1) → the score there; without rungs the score so far, at its iteration."""
    reached = [
        (rung, trial.score_at(level))
        for rung, level in enumerate(levels, start=1)
        if trial.reached(level)
    ]
    if not levels:
        reached = [(trial.iteration, trial.score)]
    return {step: value for step, value in reached if value is not None}
