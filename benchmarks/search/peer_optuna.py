"""Optuna's own pruners and sampler on a game, one trial after the other."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna

from benchmarks.search.game import ITERATIONS, Game, Settings
from benchmarks.search.trace import Report, Trace

ETA = 3
Pruner = Callable[[], optuna.pruners.BasePruner]
PRUNERS: Mapping[str, Pruner] = {
    "SuccessiveHalvingPruner": lambda: optuna.pruners.SuccessiveHalvingPruner(
        min_resource=1, reduction_factor=ETA
    ),
    "HyperbandPruner": lambda: optuna.pruners.HyperbandPruner(1, ITERATIONS, ETA),
    "MedianPruner": optuna.pruners.MedianPruner,
}
SAMPLED: Mapping[str, Pruner] = {
    "TPE": optuna.pruners.NopPruner,
    "TPE, SuccessiveHalvingPruner": PRUNERS["SuccessiveHalvingPruner"],
    "TPE, HyperbandPruner": PRUNERS["HyperbandPruner"],
}


def search(
    pruner: Pruner, game: Game, seed: int, settings: Sequence[Settings], budget: int
) -> Trace:
    """One search of at most `budget` iterations; without `settings` TPE proposes them."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner())
    for given in settings:
        study.enqueue_trial({name: _key(value) for name, value in given.items()})
    trace = Trace()
    while len(trace.reports) < budget and (not settings or len(study.trials) <= len(settings)):
        if settings and not study.get_trials(states=[optuna.trial.TrialState.WAITING]):
            break
        _run(study, game, trace)
    return trace


def _run(study: optuna.Study, game: Game, trace: Trace) -> None:
    trial = study.ask()
    chosen = {name: _ask(trial, name, *raw) for name, raw in game.space.items()}
    value, state = 0.0, dict[str, float]()
    for iteration in range(1, ITERATIONS + 1):
        value, found = game.play(chosen, iteration, state)
        state = dict(found)
        trace.add(Report(trial.number, iteration, value, chosen))
        trial.report(value, iteration)
        if iteration < ITERATIONS and trial.should_prune():
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return
    study.tell(trial, value)


def _key(value: Any) -> Any:
    return str(value) if isinstance(value, list) else value


def _ask(trial: optuna.Trial, name: str, kind: str, words: Any) -> Any:
    if kind == "choice":
        by_key = {_key(word): word for word in words}
        return by_key[trial.suggest_categorical(name, list(by_key))]
    if kind == "randint":
        return trial.suggest_int(name, *words)
    return trial.suggest_float(name, *words, log=kind == "loguniform")
