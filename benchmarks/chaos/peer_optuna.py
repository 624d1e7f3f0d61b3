"""Optuna with joblib on the learning curves, written as its documentation recommends.

    python -m benchmarks.chaos.peer_optuna run|read FOLDER
    python -m benchmarks.chaos.peer_optuna save

Run by an interpreter that has optuna and joblib. `run` begins, or goes on where an earlier one was
killed; `read` writes what the study says of the trials to ``answer.json``, as `run` does at its
end; `save`: see peer_saver.

Checkpoints as in `pytorch_checkpoint.py` of Optuna's examples: a file goes to the artifact store,
and its id to the trial; a heartbeat tells which trials have lost their process, and a callback
queues these again.
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
from benchmarks.chaos.peer_saver import Way, serve

NAME = "demo"
#: Seconds: between two heartbeats, after which one is missed, and that a writer waits for another.
HEARTBEAT_S, GRACE_S, LOCK_S = 1, 10, 100


def _storage(folder: Path, made: bool = False) -> optuna.storages.RDBStorage:
    """The study's tables; `made`: they are there, and are not looked through."""
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
    """One trial, from its last checkpoint if it is tried again."""
    curve = Curve(trial.suggest_categorical("index", list(range(TRIALS))), str(folder))
    artifacts = _artifacts(folder)
    if "artifact_id" in trial.user_attrs:
        curve.set_state(_saved(artifacts, trial.user_attrs["artifact_id"]))
        loss = float(trial.user_attrs["loss"])
    while curve.iteration < ITERATIONS:
        loss = curve.step()
        trial.report(loss, curve.iteration)
        trial.set_user_attr("loss", loss)
        _keep(artifacts, trial, curve.state())
    return loss


def _keep(artifacts: FileSystemArtifactStore, trial: optuna.Trial, state: dict[str, Any]) -> None:
    """A new artifact, its id in the trial, then the one before it goes."""
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


def _saved(artifacts: FileSystemArtifactStore, artifact: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "state.json")
        download_artifact(artifact_store=artifacts, file_path=str(file), artifact_id=artifact)
        state: dict[str, Any] = json.loads(file.read_text())
        return state


def work(folder: Path) -> None:
    """One trial of the queue, in a worker."""
    _quiet()
    study = optuna.load_study(study_name=NAME, storage=_storage(folder))
    study.optimize(partial(objective, folder), n_trials=1)


def run(folder: Path) -> None:
    """All trials, from the beginning or from where they were."""
    again = (folder / "study.db").exists()
    study = optuna.create_study(study_name=NAME, storage=_storage(folder), load_if_exists=True)
    for index in range(TRIALS):
        study.enqueue_trial({"index": index}, skip_if_exists=True)
    if again:  # whoever was killed has missed its heartbeat by then
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
            final = _saved(_artifacts(folder), trial.user_attrs["artifact_id"])
        except Exception as error:  # noqa: BLE001 that is the finding
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
    _keep(_artifacts(folder), trial, curve.state())


def _load(folder: str, token: None) -> Any:  # noqa: ARG001 the study knows
    return read(Path(folder), made=True)[0]["final"]


def _serve() -> None:
    with tempfile.TemporaryDirectory() as template:  # making the tables takes long
        optuna.create_study(study_name=NAME, storage=_storage(Path(template)))
        serve(Way(partial(_prepare, Path(template)), _save, _load))


if __name__ == "__main__":
    _quiet()
    if sys.argv[1] == "save":
        _serve()
    else:
        asked = Path(sys.argv[2])
        if sys.argv[1] == "run":
            run(asked)
        (asked / "answer.json").write_text(json.dumps(read(asked)))
