"""Ray Tune on the learning curves, written as its documentation recommends for fault tolerance.

    python -m benchmarks.chaos.peer_ray run|read FOLDER [two]
    python -m benchmarks.chaos.peer_ray save

Run by an interpreter that has ray[tune]. `run` begins, or goes on where an earlier one was killed;
`read` writes what Tune says of the trials to ``answer.json``, as `run` does at its end; `save`: see
peer_saver. Every checkpoint is kept, and the state of the experiment is saved as often as it can
be, which both favour Tune; with `two`, two checkpoints of a trial are kept, and the state is saved
when Tune thinks so.
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
from benchmarks.chaos.peer_saver import Way, serve

NAME = "demo"
#: Of Ray's object store, which holds nothing here.
STORE_BYTES = 100 * 2**20


class Trained(tune.Trainable):
    """A curve as Tune's class API."""

    def setup(self, config: dict[str, Any]) -> None:
        """At the start."""
        self.curve = Curve(config["index"], config["folder"])

    def step(self) -> dict[str, Any]:
        """One iteration."""
        return {"loss": self.curve.step()}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """The process is used for the next trial."""
        self.setup(new_config)
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """A file in the folder, as in the documentation."""
        Path(checkpoint_dir, "state.json").write_text(json.dumps(self.curve.state()))

    def load_checkpoint(self, checkpoint: str) -> None:
        """Put it back."""
        self.curve.set_state(json.loads(Path(checkpoint, "state.json").read_text()))


def run(folder: Path, two: bool) -> None:
    """All trials, from the beginning or from where they were."""
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
        tuner = tune.Tuner.restore(results, Trained, resume_unfinished=True, resume_errored=True)
    else:
        tuner = tune.Tuner(
            tune.with_resources(Trained, {"cpu": 1}),
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


def _prepare(folder: str) -> Trained:
    """As an actor of Tune is made, but for its working directory, which needs a cluster."""
    trained = Trained({"index": 0, "folder": ""})
    trained._storage = StorageContext(folder, NAME, trial_dir_name="trial")
    return trained


def _save(trained: Trained, k: int) -> str:
    while trained.curve.iteration < k:
        trained.curve.step()
    return str(trained.save().checkpoint.path)


def _load(folder: str, token: str) -> dict[str, Any]:  # noqa: ARG001 the token is a path
    trained = Trained({"index": 0, "folder": ""})
    trained.restore(token)
    return trained.curve.state()


if __name__ == "__main__":
    if sys.argv[1] == "save":
        serve(Way(_prepare, _save, _load))
    else:
        asked = Path(sys.argv[2])
        if sys.argv[1] == "run":
            run(asked, "two" in sys.argv)
        (asked / "answer.json").write_text(json.dumps(read(asked)))
