"""Our own searches on a game: all parts are the real ones, on a simulated pool."""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import getitem
from typing import Any

from benchmarks.search.game import ITERATIONS, Game, Settings
from benchmarks.search.trace import Report, Trace
from sweep.history.events import Closed
from sweep.testing import CurvePoint, simulate

ETA = 3
LOOKS: Mapping[str, Any] = {"grace_period": 1, "reduction_factor": ETA}
#: Without finishing the best trial at the end, which none of the peers does for the same budget.
PROMOTING: Mapping[str, Any] = {"name": "asha", "finish_best": 0, **LOOKS}
#: Trials that are all trained to their end, for the same budget.
WHOLE: Mapping[str, Any] = {"trials": 20}
#: Method → keys of a spec; those of the first kind are given their settings.
SCHEDULERS: Mapping[str, Mapping[str, Any]] = {
    "random": {"scheduler": "fifo", **WHOLE},
    "asha": {"scheduler": PROMOTING},
    "asha, stopping": {"scheduler": {"name": "asha", "type": "stopping", **LOOKS}},
    "hyperband": {"scheduler": {"name": "hyperband", **LOOKS}},
    "median": {"scheduler": {"name": "median"}},
}
SEARCHERS: Mapping[str, Mapping[str, Any]] = {
    "random": {"searcher": "random", "scheduler": "fifo", **WHOLE},
    "tpe": {"searcher": "tpe", "scheduler": "fifo", **WHOLE},
    "tpe, asha": {"searcher": "tpe", "scheduler": PROMOTING},
    "bohb": {"searcher": "bohb", "scheduler": {"name": "bohb", **LOOKS}},
}
POPULATION = 8
BREEDERS: Mapping[str, Mapping[str, Any]] = {
    "pbt": {"scheduler": {"name": "pbt", "perturbation_interval": 3}},
}


def search(
    method: Mapping[str, Any], game: Game, seed: int, settings: Sequence[Settings], trials: int
) -> Trace:
    """One search; `settings` are tried first, if there are any."""

    def curve(at: CurvePoint) -> Mapping[str, Any]:
        before = {k.removeprefix("state/"): v for k, v in at.before.items() if k[:6] == "state/"}
        value, state = game.play(_flat(game, at.config), at.iteration, before)
        return {"value": value, **{f"state/{k}": v for k, v in state.items()}}

    count = method.get("trials", trials)
    spec = {
        "metric": "value",
        "mode": "max",
        "trials": trials,
        "space": {name: {kind: list(words)} for name, (kind, words) in game.space.items()},
        "stop": {"training_iteration": ITERATIONS},
        "seed": seed,
        **({"initial": [dict(s) for s in settings[:count]]} if settings else {}),
        **method,
    }
    course = simulate(spec, curve)
    trace = Trace()
    for record in course.records:
        if isinstance(record.event, Closed):
            event = record.event
            config = _flat(game, course.history.trials[event.trial].config)
            for row in event.rows:
                value = float(row.metrics["value"])
                trace.add(Report(event.trial, row.iteration, value, config))
    return trace


def _flat(game: Game, config: Mapping[str, Any]) -> Settings:
    """The game's settings out of a trial's, in which dotted names are nested."""
    return {name: reduce(getitem, name.split("."), config) for name in game.space}
