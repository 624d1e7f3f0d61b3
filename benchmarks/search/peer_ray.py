"""Ray Tune's ASHA with settings at random, as it is used without a search library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.search.game import Game
from benchmarks.search.peers import ETA, Best, Kind, Told, Trial, greatest


class Asha:
    """Its scheduler, asked as its controller asks it."""

    def __init__(self, seeds: int, game: Game, seed: int) -> None:
        from ray.tune.schedulers import AsyncHyperBandScheduler

        self._scheduler = AsyncHyperBandScheduler(
            time_attr="training_iteration",
            metric="score",
            mode="max",
            max_t=game.points,
            grace_period=1,
            reduction_factor=ETA,
        )
        self._stops = AsyncHyperBandScheduler.STOP
        self._game, self._seeds = game, seeds
        self._rng = np.random.default_rng(seed)
        self._asked = 0

    def ask(self) -> Trial:
        """The next settings."""
        trial = Trial(self._asked, self._game.draw(self._rng), seeds=self._seeds)
        self._asked += 1
        self._scheduler.on_trial_add(None, _known(trial))
        return trial

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Hand over a result; the scheduler says whether the trial goes on."""
        result = {"training_iteration": point, "score": value}
        if point == self._game.points:
            self._scheduler.on_trial_complete(None, _known(trial), result)
            return False
        return bool(self._scheduler.on_trial_result(None, _known(trial), result) != self._stops)

    def best(self, told: Mapping[int, Told]) -> Best | None:
        """As `ResultGrid.get_best_result`: the best last value, however far it came."""
        return greatest({number: its.values[-1] for number, its in told.items() if its.values})


def _known(trial: Trial) -> Any:
    return SimpleNamespace(trial_id=str(trial.number))


METHODS = {
    f"Ray Tune ASHA{', means of 3' if seeds > 1 else ''}": Kind("ray", partial(Asha, seeds))
    for seeds in (1, 3)
}
