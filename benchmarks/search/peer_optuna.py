"""Optuna's pruners and its TPE; several seeds a setting as the mean of three, as in rl-zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.search.game import Game, Parameter
from benchmarks.search.peers import ETA, Best, Kind, Told, Trial, furthest, greatest


class Study:
    """A study that is asked and told."""

    def __init__(self, pruner: Callable[[Game], Any], seeds: int, game: Game, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        self._study = optuna.create_study(
            direction="maximize", sampler=sampler, pruner=pruner(game)
        )
        self._trials: dict[int, Any] = {}
        self._game, self._seeds = game, seeds
        self._pruned = optuna.trial.TrialState.PRUNED

    def ask(self) -> Trial:
        """The next settings."""
        trial = self._study.ask()
        self._trials[trial.number] = trial
        space = self._game.space
        settings = {name: _suggest(trial, name, space[name]) for name in space}
        return Trial(trial.number, settings, seeds=self._seeds)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Report a value; its pruner says whether the trial goes on."""
        its = self._trials[trial.number]
        its.report(value, point)
        if point == self._game.points:
            self._study.tell(its, value)
            return False
        if its.should_prune():
            self._study.tell(its, state=self._pruned)
            return False
        return True

    def best(self, told: Mapping[int, Told]) -> Best | None:
        """As `study.best_trial`: of the completed ones; before there are any, whoever is ahead."""
        done = {n: its.values[-1] for n, its in told.items() if its.completed}
        return greatest(done) or furthest(told)


def _suggest(trial: Any, name: str, parameter: Parameter) -> Any:
    if parameter.kind == "choice":
        number = trial.suggest_categorical(name, list(range(len(parameter.words))))
        return parameter.words[number]
    log = parameter.kind in ("log", "logint")
    if parameter.kind in ("int", "logint"):
        return trial.suggest_int(name, *parameter.words, log=log)
    return trial.suggest_float(name, *parameter.words, log=log)


def _hyperband(game: Game) -> Any:
    import optuna

    return optuna.pruners.HyperbandPruner(1, game.points, ETA)


def _halving(_game: Game) -> Any:
    import optuna

    return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=ETA)


METHODS = {
    f"Optuna TPE, {pruner}{', means of 3' if seeds > 1 else ''}": Kind(
        "optuna", partial(Study, make, seeds)
    )
    for pruner, make in (("Hyperband", _hyperband), ("successive halving", _halving))
    for seeds in (1, 3)
}
