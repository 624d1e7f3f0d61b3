"""Syne Tune's ASHA (which stops trials), ASHACQR and ASHABORE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchmarks.search.game import Game, Parameter, Settings
from benchmarks.search.peers import ETA, Best, PeerMethod, Progress, Trial, best_of


class Scheduler:
    """Search by a scheduler of Syne Tune, called as by its tuner."""

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
        """Return a trial with the next settings."""
        config = self._scheduler.suggest().config
        own = self._make(len(self._trials), config, datetime.now(UTC).replace(tzinfo=None))
        self._scheduler.on_trial_add(own)
        self._trials.append(own)
        return Trial(own.trial_id, _settings(self._game, config), seeds=self._seeds)

    def tell(self, trial: Trial, point: int, value: float) -> bool:
        """Report a result to the scheduler; return whether the trial continues."""
        own, result = self._trials[trial.number], {"score": value, "point": point}
        if point == self._game.points:
            self._scheduler.on_trial_complete(own, result)
            return False
        return bool(self._scheduler.on_trial_result(own, result) != self._stop)

    def best(self, trials: Mapping[int, Progress]) -> Best | None:
        """Return the trial with the best value at any point, like `Tuner.best_config`."""
        return best_of({number: max(one.values) for number, one in trials.items() if one.values})


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
    f"Syne Tune {name}{', means of 3' if seeds > 1 else ''}": PeerMethod(
        "syne-tune", partial(Scheduler, name, seeds)
    )
    for name in ("ASHA", "ASHACQR", "ASHABORE")
    for seeds in (1, 3)
}
