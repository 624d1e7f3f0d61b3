"""Ray Tune's ASHA and PBT on a game; run by an interpreter that has ray[tune].

    python -m benchmarks.search.peer_ray METHOD GAME SEED BUDGET

Prints one JSON line: what each iteration reported, in the order in which Tune saw the results.
"""

import json
import logging
import os
import sys
import tempfile
from typing import Any

import ray
from ray import tune
from ray.tune.callback import Callback
from ray.tune.schedulers import AsyncHyperBandScheduler, PopulationBasedTraining

from benchmarks.search.game import ITERATIONS, Game
from benchmarks.search.games import load

ETA, POPULATION, INTERVAL = 3, 8, 3


class Played(tune.Trainable):
    """A game as Tune's class API."""

    def setup(self, config: dict[str, Any]) -> None:
        """Nothing is built."""
        self.game = load(config["game"], config["seed"])
        self.settings = {name: _plain(config[name]) for name in self.game.space}
        self.state: dict[str, float] = {}

    def step(self) -> dict[str, Any]:
        """One iteration."""
        value, state = self.game.play(self.settings, self.iteration + 1, self.state)
        self.state = dict(state)
        return {"value": value, "done": self.iteration + 1 >= ITERATIONS}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """The game's state."""
        return {"state": self.state}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put it back."""
        self.state = dict(checkpoint["state"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Reused for the next trial."""
        self.setup(new_config)
        return True


class Seen(Callback):
    """Keeps the results in the order in which Tune sees them."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int, float, dict[str, Any]]] = []

    def on_trial_result(
        self, iteration: int, trials: Any, trial: Any, result: Any, **_: Any
    ) -> None:
        """One iteration of one trial."""
        config = {name: _plain(value) for name, value in result["config"].items()}
        seen = (trial.trial_id, result["training_iteration"], result["value"], config)
        self.reports.append(seen)


def _plain(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value.startswith("[") else value


def _word(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def _domain(kind: str, words: Any) -> Any:
    if kind == "choice":
        return tune.choice([_word(word) for word in words])
    if kind == "randint":
        return tune.randint(words[0], words[1] + 1)
    return (tune.loguniform if kind == "loguniform" else tune.uniform)(*words)


def _mutated(kind: str, words: Any) -> Any:
    """How PBT changes a parameter: what it multiplies has to be a number, choices are a list."""
    return [_word(word) for word in words] if kind == "choice" else _domain(kind, words)


def _fit(game: Game, scheduler: Any, points: list[dict[str, Any]], fixed: dict[str, Any]) -> Seen:
    seen = Seen()
    space = {name: _domain(*raw) for name, raw in game.space.items()}
    given = [{name: _word(value) for name, value in point.items()} for point in points]
    with tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            tune.with_resources(Played, {"cpu": 1}),
            param_space={**space, **fixed},
            tune_config=tune.TuneConfig(
                metric="value",
                mode="max",
                num_samples=len(points),
                scheduler=scheduler,
                reuse_actors=True,
                search_alg=tune.search.BasicVariantGenerator(
                    points_to_evaluate=[{**point, **fixed} for point in given]
                ),
            ),
            run_config=tune.RunConfig(storage_path=folder, callbacks=[seen], verbose=0),
        ).fit()
    return seen


def main() -> None:
    """The command line."""
    method, name, seed, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    game = load(name, seed)
    fixed = {"game": name, "seed": seed}
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    slots = 1 if method == "ASHA" else POPULATION
    ray.init(
        num_cpus=slots, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    if method == "ASHA":
        scheduler: Any = AsyncHyperBandScheduler(
            time_attr="training_iteration", max_t=ITERATIONS, grace_period=1, reduction_factor=ETA
        )
        seen = _fit(game, scheduler, game.draw(budget // 4), fixed)
    else:
        scheduler = PopulationBasedTraining(
            time_attr="training_iteration",
            perturbation_interval=INTERVAL,
            hyperparam_mutations={name: _mutated(*raw) for name, raw in game.space.items()},
        )
        seen = _fit(game, scheduler, game.draw(POPULATION), fixed)
    sys.stdout.write(json.dumps(seen.reports[:budget]) + "\n")


if __name__ == "__main__":
    main()
