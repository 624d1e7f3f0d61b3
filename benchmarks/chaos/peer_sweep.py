"""sweep on the learning curves, for the comparison with its peers.

    python -m benchmarks.chaos.peer_sweep run|read FOLDER
    python -m benchmarks.chaos.peer_sweep save

`run` is ``sweep run``, or ``sweep resume`` if a search was killed. `read` writes the ledger's
trials to ``answer.json``. `save`: see `peer_saver`.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.chaos.peer_curve import ITERATIONS, JOBS, SLICE_S, TRIALS, Curve
from benchmarks.chaos.peer_saver import Saving, serve
from sweep.history.events import Status
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import retention
from sweep.views import reading
from trainables import Trainable
from trainables.checkpoint import file
from trainables.errors import CheckpointError

NAME = "demo"
ENDED = (Status.COMPLETED, Status.PRUNED, Status.STOPPED, Status.FAILED)


class CurveTrainable(Trainable):
    """The curve as a Trainable."""

    def setup(self, config: dict[str, Any]) -> None:
        """Create the curve."""
        self.curve = Curve(config["index"], config["folder"])

    def step(self) -> dict[str, Any]:
        """Make one iteration."""
        return {"loss": self.curve.step()}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        """Return the curve's state."""
        return self.curve.state()

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state."""
        self.curve.set_state(checkpoint)


def run(folder: Path) -> None:
    """Replace this process by the command line."""
    spec = {
        "name": NAME,
        "trials": TRIALS,
        "trainable": "benchmarks.chaos.peer_sweep:CurveTrainable",
        "metric": "loss",
        "mode": "min",
        "config": {"folder": str(folder)},
        "space": {"index": {"choice": list(range(TRIALS))}},
        "searcher": "grid",
        "scheduler": "fifo",
        "stop": {"training_iteration": ITERATIONS},
        "checkpoint": {"every": 1, "keep_last": 2},
        "limits": {"slice_s": SLICE_S, "max_failures": 3},
        "trackers": [],
        "seed": 0,
    }
    begun = Folder(folder / "results", NAME).ledger.exists()
    (folder / "spec.yaml").write_text(json.dumps(spec))
    words = ["resume", NAME] if begun else ["run", str(folder / "spec.yaml")]
    options = ["--jobs", str(JOBS), "--root", str(folder / "results")]
    os.execv(sys.executable, [sys.executable, "-m", "sweep.cli.main", *words, *options])  # noqa: S606


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the ledger's record of each trial."""
    own = Folder(folder / "results", NAME)
    ledger = Ledger(own.ledger)
    return [_trial(own, ledger, trial) for trial in reading.history(ledger).trials]


def _trial(folder: Folder, ledger: Ledger, trial: Trial) -> dict[str, Any]:
    replica = trial.replicas[0]
    final = None
    if replica.newest_checkpoint is not None:
        try:
            path = folder.trial(trial.number) / replica.newest_checkpoint.file
            final = file.read(path, replica.newest_checkpoint.digest).state["trainable"]["data"]
        except CheckpointError as error:
            final = {"error": str(error)}
    return {
        "index": trial.config["index"],
        "done": trial.status is Status.COMPLETED,
        "ended": trial.status in ENDED,
        "charged": bool(replica.crashes) or replica.lost_slices > 0,
        "curve": [[row.iteration, row.metrics["loss"]] for row in ledger.results(trial.number, 0)],
        "final": final,
    }


# ---- one checkpoint after the other -----------------------------------------------------------


def _prepare(folder: str) -> tuple[Path, Curve, list[str]]:
    (Path(folder) / "trial").mkdir()
    return Path(folder) / "trial", Curve(0), []


def _save(prepared: tuple[Path, Curve, list[str]], k: int) -> list[str]:
    folder, curve, kept = prepared
    while curve.iteration < k:
        curve.step()
    saved = file.write(folder, k, {}, curve.state())
    kept.insert(0, saved.path.name)
    with contextlib.suppress(OSError):  # the next save deletes the files
        retention.sweep_up(folder, kept[: retention.ALWAYS_KEPT])
    return [saved.path.name, saved.digest]


def _load(folder: str, token: list[str]) -> Any:
    return file.read(Path(folder) / "trial" / token[0], token[1]).state


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    elif sys.argv[1] == "read":
        Path(sys.argv[2], "answer.json").write_text(json.dumps(read(Path(sys.argv[2]))))
    else:
        serve(Saving(_prepare, _save, _load))
