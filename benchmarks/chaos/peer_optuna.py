"""Optuna with joblib on the learning curves, as its documentation recommends.

    python -m benchmarks.chaos.peer_optuna run|read FOLDER
    python -m benchmarks.chaos.peer_optuna save

The interpreter needs optuna and joblib. `run` begins a search, or continues one that was killed.
`read` writes the study's trials to ``answer.json``, as `run` does at its end. `save`: see
`peer_saver`.

Checkpoints are those of `pytorch_checkpoint.py` of Optuna's examples: a file is added to the
artifact store, and its id to the trial. A heartbeat shows the trials whose process has died, and a
callback queues them again.
"""

import json
import shutil
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import optuna
from optuna.artifacts import FileSystemArtifactStore, download_artifact, upload_artifact
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState

from benchmarks.chaos.peer_curve import ITERATIONS, JOBS, TRIALS, Curve
from benchmarks.chaos.peer_saver import Saving, serve

NAME = "demo"
#: Seconds between two heartbeats, until a heartbeat is stale, and for a lock of the database.
HEARTBEAT_S, GRACE_S, LOCK_S = 1, 10, 100


def _storage(folder: Path, made: bool = False) -> optuna.storages.RDBStorage:
    """Return the study's storage; `made` is True if its tables exist and need no check."""
    return optuna.storages.RDBStorage(
        f"sqlite:///{folder}/study.db",
        engine_kwargs={"connect_args": {"timeout": LOCK_S}},
        heartbeat_interval=HEARTBEAT_S,
        grace_period=GRACE_S,
        heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(
            max_retry=3, inherit_intermediate_values=True
        ),
        skip_compatibility_check=made,
        skip_table_creation=made,
    )


def _artifacts(folder: Path) -> FileSystemArtifactStore:
    (folder / "artifacts").mkdir(exist_ok=True)
    return FileSystemArtifactStore(folder / "artifacts")


def objective(folder: Path, trial: optuna.Trial) -> float:
    """Run one trial, from its last checkpoint if it is retried; return its loss."""
    curve = Curve(trial.suggest_categorical("index", list(range(TRIALS))), str(folder))
    artifacts = _artifacts(folder)
    if "artifact_id" in trial.user_attrs:
        curve.set_state(_download(artifacts, trial.user_attrs["artifact_id"]))
        loss = float(trial.user_attrs["loss"])
    while curve.iteration < ITERATIONS:
        loss = curve.step()
        trial.report(loss, curve.iteration)
        trial.set_user_attr("loss", loss)
        _upload(artifacts, trial, curve.state())
    return loss


def _upload(artifacts: FileSystemArtifactStore, trial: optuna.Trial, state: dict[str, Any]) -> None:
    """Upload a state, store its id in the trial, and remove the previous artifact."""
    before = trial.user_attrs.get("artifact_id")
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "state.json")
        file.write_text(json.dumps(state))
        artifact = upload_artifact(
            artifact_store=artifacts, file_path=str(file), study_or_trial=trial
        )
    trial.set_user_attr("artifact_id", artifact)
    if before is not None:
        artifacts.remove(before)


def _download(artifacts: FileSystemArtifactStore, artifact: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "state.json")
        download_artifact(artifact_store=artifacts, file_path=str(file), artifact_id=artifact)
        state: dict[str, Any] = json.loads(file.read_text())
        return state


def work(folder: Path) -> None:
    """Run one trial of the queue, in a worker."""
    _quiet()
    study = optuna.load_study(study_name=NAME, storage=_storage(folder))
    study.optimize(partial(objective, folder), n_trials=1)


def run(folder: Path) -> None:
    """Run all trials, or the remaining ones."""
    again = (folder / "study.db").exists()
    study = optuna.create_study(study_name=NAME, storage=_storage(folder), load_if_exists=True)
    for index in range(TRIALS):
        study.enqueue_trial({"index": index}, skip_if_exists=True)
    if again:  # until the heartbeats of killed processes are stale
        time.sleep(GRACE_S + 2 * HEARTBEAT_S)
        optuna.storages.fail_stale_trials(study)
    while waiting := len(study.get_trials(states=(TrialState.WAITING,))):
        joblib.Parallel(n_jobs=JOBS)(joblib.delayed(work)(folder) for _ in range(waiting))


def read(folder: Path, made: bool = False) -> list[dict[str, Any]]:
    """Return the study's record of each trial."""
    study = optuna.load_study(study_name=NAME, storage=_storage(folder, made))
    return [_trial(folder, trial) for trial in study.get_trials()]


def _trial(folder: Path, trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    final = None
    if "artifact_id" in trial.user_attrs:
        try:
            final = _download(_artifacts(folder), trial.user_attrs["artifact_id"])
        except Exception as error:  # noqa: BLE001 the error is the result
            final = {"error": f"{type(error).__name__}: {error}"}
    queued = trial.system_attrs.get("fixed_params", {})
    return {
        "index": trial.params.get("index", queued.get("index")),
        "done": trial.state == TrialState.COMPLETE,
        "ended": trial.state.is_finished(),
        "charged": trial.state == TrialState.FAIL,
        "curve": [[step, loss] for step, loss in sorted(trial.intermediate_values.items())],
        "final": final,
    }


def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")


# ---- one checkpoint after the other -----------------------------------------------------------


Prepared = tuple[Path, optuna.Trial, Curve]


def _prepare(template: Path, folder: str) -> Prepared:
    shutil.copy(template / "study.db", folder)
    study = optuna.load_study(study_name=NAME, storage=_storage(Path(folder), made=True))
    return Path(folder), study.ask(), Curve(0)


def _save(prepared: Prepared, k: int) -> None:
    folder, trial, curve = prepared
    while curve.iteration < k:
        curve.step()
    _upload(_artifacts(folder), trial, curve.state())


def _load(folder: str, token: None) -> Any:  # noqa: ARG001 the study has the id
    return read(Path(folder), made=True)[0]["final"]


def _serve() -> None:
    with tempfile.TemporaryDirectory() as template:  # creating the tables is slow
        optuna.create_study(study_name=NAME, storage=_storage(Path(template)))
        serve(Saving(partial(_prepare, Path(template)), _save, _load))


if __name__ == "__main__":
    _quiet()
    if sys.argv[1] == "save":
        _serve()
    else:
        folder_given = Path(sys.argv[2])
        if sys.argv[1] == "run":
            run(folder_given)
        (folder_given / "answer.json").write_text(json.dumps(read(folder_given)))
