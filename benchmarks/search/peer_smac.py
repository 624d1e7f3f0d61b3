"""SMAC3's multi-fidelity facade: a random forest and Hyperband.

SMAC3 refuses `n_seeds` above 1 together with budgets, so a variant gets the mean of three seeds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.search.game import Game, Parameter
from benchmarks.search.peers import ETA, Best, PeerMethod, Progress, Trial, best_of_longest


class Facade:
    """Search by SMAC3's facade; each of its trials is one setting with one seed and one budget.

    Each trial trains from the beginning, because the facade has no checkpoints.
    """

    def __init__(self, seeds: int, game: Game, seed: int) -> None:
        from ConfigSpace import ConfigurationSpace
        from smac import MultiFidelityFacade, Scenario

        space = ConfigurationSpace(seed=seed)
        space.add([_hyperparameter(name, parameter) for name, parameter in game.space.items()])
        self._folder = tempfile.TemporaryDirectory(prefix="search-smac-")
        scenario = Scenario(
            space,
            deterministic=False,
            min_budget=1,
            max_budget=game.points,
            n_trials=10**6,
            seed=seed,
            output_directory=Path(self._folder.name),
        )
        self._facade = MultiFidelityFacade(
            scenario,
            _never_called,
            intensifier=MultiFidelityFacade.get_intensifier(scenario, eta=ETA),
            overwrite=True,
            logging_level=False,
        )
        self._game, self._seeds = game, seeds
        self._trials: list[Any] = []
        self._settings: dict[Any, int] = {}

    def ask(self) -> Trial:
        """Return a trial with new settings, or with a larger budget for earlier ones."""
        info = self._facade.ask()
        self._trials.append(info)
        setting = self._settings.setdefault(info.config, len(self._settings))
        own = self._game.space
        settings = {name: _value(own[name], info.config[name]) for name in own}
        return Trial(len(self._trials) - 1, settings, self._seeds, setting)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Report the value at the trial's budget; return True before it."""
        from smac.runhistory.dataclasses import TrialValue

        info = self._trials[trial.number]
        if point < max(1, round(info.budget)):
            return True
        self._facade.tell(info, TrialValue(cost=-value))
        return False

    def best(self, trials: Mapping[int, Progress]) -> Best | None:
        """Return the longest trial of the incumbent's settings."""
        incumbents = self._facade.intensifier.get_incumbents()
        own = {
            number: one
            for number, one in trials.items()
            if one.values and incumbents and self._trials[number].config == incumbents[0]
        }
        return best_of_longest(own or trials)


def _never_called(config: Any, seed: int, budget: float) -> float:
    raise NotImplementedError


def _hyperparameter(name: str, parameter: Parameter) -> Any:
    from ConfigSpace import CategoricalHyperparameter, Float, Integer

    if parameter.kind == "choice":
        return CategoricalHyperparameter(name, list(range(len(parameter.words))))
    log = parameter.kind in ("log", "logint")
    make = Integer if parameter.kind in ("int", "logint") else Float
    return make(name, parameter.words, log=log)


def _value(parameter: Parameter, chosen: Any) -> Any:
    if parameter.kind == "choice":
        return parameter.words[int(chosen)]
    return int(chosen) if parameter.kind in ("int", "logint") else float(chosen)


METHODS = {
    f"SMAC3 multi-fidelity{', means of 3' if seeds > 1 else ''}": PeerMethod(
        "smac", partial(Facade, seeds)
    )
    for seeds in (1, 3)
}
