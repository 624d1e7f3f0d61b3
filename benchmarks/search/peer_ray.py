"""Ray Tune's ASHA with random settings, its default without a search library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.search.game import Game
from benchmarks.search.peers import ETA, Best, PeerMethod, Progress, Trial, best_of


class Asha:
    """Search by Ray Tune's scheduler, called as by its controller."""

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
        self._count = 0

    def ask(self) -> Trial:
        """Return a trial with the next settings."""
        trial = Trial(self._count, self._game.draw(self._rng), seeds=self._seeds)
        self._count += 1
        self._scheduler.on_trial_add(None, _as_ray_trial(trial))
        return trial

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Report a result to the scheduler; return whether the trial continues."""
        result = {"training_iteration": point, "score": value}
        if point == self._game.points:
            self._scheduler.on_trial_complete(None, _as_ray_trial(trial), result)
            return False
        return bool(
            self._scheduler.on_trial_result(None, _as_ray_trial(trial), result) != self._stops
        )

    def best(self, trials: Mapping[int, Progress]) -> Best | None:
        """Return the trial with the best last value, like `ResultGrid.get_best_result`."""
        return best_of({number: one.values[-1] for number, one in trials.items() if one.values})


def _as_ray_trial(trial: Trial) -> Any:
    return SimpleNamespace(trial_id=str(trial.number))


METHODS = {
    f"Ray Tune ASHA{', means of 3' if seeds > 1 else ''}": PeerMethod("ray", partial(Asha, seeds))
    for seeds in (1, 3)
}
