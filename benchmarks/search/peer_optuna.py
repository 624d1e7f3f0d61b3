"""Optuna's pruners and its TPE; variants get the mean of three seeds, as in rl-baselines3-zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.search.game import Game, Parameter
from benchmarks.search.peers import ETA, Best, PeerMethod, Progress, Trial, best_of, best_of_longest


class Study:
    """Search by a study of Optuna."""

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
        """Return a trial with the next settings."""
        trial = self._study.ask()
        self._trials[trial.number] = trial
        space = self._game.space
        settings = {name: _suggest(trial, name, space[name]) for name in space}
        return Trial(trial.number, settings, seeds=self._seeds)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Report a value; return whether the trial continues, by the pruner's decision."""
        own = self._trials[trial.number]
        own.report(value, point)
        if point == self._game.points:
            self._study.tell(own, value)
            return False
        if own.should_prune():
            self._study.tell(own, state=self._pruned)
            return False
        return True

    def best(self, trials: Mapping[int, Progress]) -> Best | None:
        """Return the best completed trial, like `study.best_trial`, or the best of the longest."""
        done = {n: one.values[-1] for n, one in trials.items() if one.is_completed}
        return best_of(done) or best_of_longest(trials)


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
    f"Optuna TPE, {pruner}{', means of 3' if seeds > 1 else ''}": PeerMethod(
        "optuna", partial(Study, make, seeds)
    )
    for pruner, make in (("Hyperband", _hyperband), ("successive halving", _halving))
    for seeds in (1, 3)
}
