"""Syne Tune's ASHA (which stops trials), ASHACQR and ASHABORE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks.search.game import Game, Parameter, Settings
from benchmarks.search.peers import ETA, Best, Kind, Told, Trial, greatest


class Scheduler:
    """One of its schedulers, asked as its tuner asks it."""

    def __init__(self, name: str, seeds: int, game: Game, seed: int) -> None:
        from syne_tune.backend import trial_status
        from syne_tune.optimizer import baselines
        from syne_tune.optimizer.scheduler import SchedulerDecision

        self._scheduler = getattr(baselines, name)(
            {key: _domain(parameter) for key, parameter in game.space.items()},
            metric="score",
            time_attr="point",
            max_t=game.points,
            do_minimize=False,
            random_seed=seed,
            reduction_factor=ETA,
        )
        self._make, self._stop = trial_status.Trial, SchedulerDecision.STOP
        self._game, self._seeds = game, seeds
        self._trials: list[Any] = []

    def ask(self) -> Trial:
        """The next settings."""
        config = self._scheduler.suggest().config
        its = self._make(len(self._trials), config, datetime.now(UTC).replace(tzinfo=None))
        self._scheduler.on_trial_add(its)
        self._trials.append(its)
        return Trial(its.trial_id, _settings(self._game, config), seeds=self._seeds)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Hand over a result; the scheduler says whether the trial goes on."""
        its, result = self._trials[trial.number], {"score": value, "point": point}
        if point == self._game.points:
            self._scheduler.on_trial_complete(its, result)
            return False
        return bool(self._scheduler.on_trial_result(its, result) != self._stop)

    def best(self, told: Mapping[int, Told]) -> Best | None:
        """As `Tuner.best_config`: the best value that any trial has ever reported."""
        return greatest({number: max(its.values) for number, its in told.items() if its.values})


def _domain(parameter: Parameter) -> Any:
    from syne_tune import config_space

    if parameter.kind == "choice":
        return config_space.choice([json.dumps(word) for word in parameter.words])
    makers = {"log": "loguniform", "int": "randint", "logint": "lograndint"}
    return getattr(config_space, makers.get(parameter.kind, parameter.kind))(*parameter.words)


def _settings(game: Game, config: Settings) -> Settings:
    return {
        name: json.loads(config[name]) if parameter.kind == "choice" else config[name]
        for name, parameter in game.space.items()
    }


METHODS = {
    f"Syne Tune {name}{', means of 3' if seeds > 1 else ''}": Kind(
        "syne-tune", partial(Scheduler, name, seeds)
    )
    for name in ("ASHA", "ASHACQR", "ASHABORE")
    for seeds in (1, 3)
}
