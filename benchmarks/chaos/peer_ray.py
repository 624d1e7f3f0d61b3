"""Ray Tune on the learning curves, as its documentation recommends for fault tolerance.

    python -m benchmarks.chaos.peer_ray run|read FOLDER [two]
    python -m benchmarks.chaos.peer_ray save

The interpreter needs ray[tune]. `run` begins a search, or continues one that was killed. `read`
writes Tune's trials to ``answer.json``, as `run` does at its end. `save`: see `peer_saver`. All
checkpoints are kept, and the state of the experiment is saved as often as possible; both favour
Tune. With `two`, two checkpoints of a trial are kept, and the state is saved at Tune's default
interval.
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.train._internal.storage import StorageContext

from benchmarks.chaos.peer_curve import ITERATIONS, JOBS, TRIALS, Curve
from benchmarks.chaos.peer_saver import Saving, serve

NAME = "demo"
#: Size of Ray's object store, which is empty here.
STORE_BYTES = 100 * 2**20


class CurveTrainable(tune.Trainable):
    """The curve as a trainable of Tune's class API."""

    def setup(self, config: dict[str, Any]) -> None:
        """Create the curve."""
        self.curve = Curve(config["index"], config["folder"])

    def step(self) -> dict[str, Any]:
        """Make one iteration."""
        return {"loss": self.curve.step()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Start the next trial in the same process."""
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Write a file into the folder, as in Tune's documentation."""
        Path(checkpoint_dir, "state.json").write_text(json.dumps(self.curve.state()))

    def load_checkpoint(self, checkpoint: str) -> None:
        """Restore the state."""
        self.curve.set_state(json.loads(Path(checkpoint, "state.json").read_text()))


def run(folder: Path, two: bool) -> None:
    """Run all trials, or the remaining ones."""
    if not two:
        os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "0"
    ray.init(
        address="local",
        num_cpus=JOBS,
        object_store_memory=STORE_BYTES,
        include_dashboard=False,
        logging_level=logging.ERROR,
        _temp_dir=str(folder / "ray"),
        _node_ip_address="127.0.0.1",
    )
    results = str(folder / "results" / NAME)
    if tune.Tuner.can_restore(results):
        tuner = tune.Tuner.restore(
            results, CurveTrainable, resume_unfinished=True, resume_errored=True
        )
    else:
        tuner = tune.Tuner(
            tune.with_resources(CurveTrainable, {"cpu": 1}),
            param_space={"index": tune.grid_search(list(range(TRIALS))), "folder": str(folder)},
            tune_config=tune.TuneConfig(metric="loss", mode="min", reuse_actors=True),
            run_config=tune.RunConfig(
                name=NAME,
                storage_path=str(folder / "results"),
                stop={"training_iteration": ITERATIONS},
                failure_config=tune.FailureConfig(max_failures=3),
                checkpoint_config=tune.CheckpointConfig(
                    checkpoint_frequency=1, num_to_keep=2 if two else None
                ),
                verbose=0,
            ),
        )
    tuner.fit()
    ray.shutdown()


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the record of each trial in Tune's analysis."""
    analysis = tune.ExperimentAnalysis(str(folder / "results" / NAME))
    return [_trial(trial, analysis.trial_dataframes[trial.trial_id]) for trial in analysis.trials]


def _trial(trial: Any, frame: Any) -> dict[str, Any]:
    rows = [] if frame.empty else zip(frame["training_iteration"], frame["loss"], strict=True)
    checkpoint = trial.checkpoint
    final = None
    if checkpoint is not None:
        file = Path(checkpoint.path, "state.json")
        try:
            final = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            final = {"error": f"{type(error).__name__}: {error}"}
    return {
        "index": trial.config["index"],
        "done": trial.status == "TERMINATED",
        "ended": trial.status in ("TERMINATED", "ERROR"),
        "charged": trial.run_metadata.num_failures > 0,
        "curve": [[int(iteration), float(loss)] for iteration, loss in rows],
        "final": final,
    }


# ---- one checkpoint after the other -----------------------------------------------------------


def _prepare(folder: str) -> CurveTrainable:
    """Return a trainable like one in an actor of Tune, except the working directory."""
    trained = CurveTrainable({"index": 0, "folder": ""})
    trained._storage = StorageContext(folder, NAME, trial_dir_name="trial")
    return trained


def _save(trained: CurveTrainable, k: int) -> str:
    while trained.curve.iteration < k:
        trained.curve.step()
    return str(trained.save().checkpoint.path)


def _load(folder: str, token: str) -> dict[str, Any]:  # noqa: ARG001 the token is a path
    trained = CurveTrainable({"index": 0, "folder": ""})
    trained.restore(token)
    return trained.curve.state()


if __name__ == "__main__":
    if sys.argv[1] == "save":
        serve(Saving(_prepare, _save, _load))
    else:
        folder_given = Path(sys.argv[2])
        if sys.argv[1] == "run":
            run(folder_given, "two" in sys.argv)
        (folder_given / "answer.json").write_text(json.dumps(read(folder_given)))
