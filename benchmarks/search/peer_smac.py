"""SMAC3's multi-fidelity facade: a forest and Hyperband.

Its own `n_seeds` above 1 is refused beside budgets, so several seeds are means of three.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.search.game import Game, Parameter
from benchmarks.search.peers import ETA, Best, Kind, Told, Trial, furthest


class Facade:
    """The facade, asked and told; a trial of it is one setting, under one seed, to one budget.

    It begins each from nothing, as the facade knows of no checkpoints.
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
        self._asked: list[Any] = []
        self._settings: dict[Any, int] = {}

    def ask(self) -> Trial:
        """The next settings, or more of earlier ones."""
        info = self._facade.ask()
        self._asked.append(info)
        setting = self._settings.setdefault(info.config, len(self._settings))
        own = self._game.space
        settings = {name: _value(own[name], info.config[name]) for name in own}
        return Trial(len(self._asked) - 1, settings, self._seeds, setting)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Hand over the value at the budget that was asked for; nothing before it."""
        from smac.runhistory.dataclasses import TrialValue

        info = self._asked[trial.number]
        if point < max(1, round(info.budget)):
            return True
        self._facade.tell(info, TrialValue(cost=-value))
        return False

    def best(self, told: Mapping[int, Told]) -> Best | None:
        """Its incumbent: of the trials of that setting the one that came furthest."""
        incumbents = self._facade.intensifier.get_incumbents()
        its = {
            number: it
            for number, it in told.items()
            if it.values and incumbents and self._asked[number].config == incumbents[0]
        }
        return furthest(its or told)


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
    f"SMAC3 multi-fidelity{', means of 3' if seeds > 1 else ''}": Kind(
        "smac", partial(Facade, seeds)
    )
    for seeds in (1, 3)
}
