"""An exported model as MLflow keeps it: a folder, in its trial's run, as a version of a name.

MLflow's onnx flavour, with the signature and an input example, so that `mlflow.pyfunc.load_model`
and `mlflow models serve` take and give what the policy does. In a run the card lies beside the
model. MLflow's client is used, without its global experiment and active run.
"""

import importlib.metadata
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from sweep.errors import StorageError, UsageError, without_password
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import WHOLE, run_name
from sweep.trackers._shared.mlflow_store import look, open_client, prepare
from trainables.core import failpoints
from trainables.core.importing import large_import

#: What a model needs where it is loaded.
NEEDED = ("mlflow", "numpy", "onnx", "onnxruntime")
#: The tag of a model: the digest of the checkpoint that it is made from. Of a run that has one: of
#: the checkpoints that it was chosen from.
MODEL = "sweep.model"
#: The ONNX file in MLflow's folder of a model.
IN_FOLDER = "model.onnx"


def register(where: TrackerContext, card: Mapping[str, Any], out: Path, name: str) -> str:
    """Add the model in the folder `out` to its trial's run, as the next version of `name`.

    Returns:
        The URI of the version.

    Raises:
        UsageError: MLflow has no run of the trial, or the model is no ONNX file.
        StorageError: MLflow refused, or somebody else has named its server.
    """
    if not card["files"].keys() & {"onnx", "mlflow"}:
        raise UsageError("export-model: --register needs --format onnx or mlflow")
    run = find_run(where, card["trial"])
    try:
        return _registered(where, card, out, name, run)
    except Exception as error:  # a store may fail in any way
        why = without_password(str(error)).splitlines() or [type(error).__name__]
        raise StorageError(f"export-model: {name} was not registered: {why[0]}") from error


def find_run(where: TrackerContext, trial: int) -> str:
    """The id of a trial's run in MLflow; raises as `register`."""
    if not where.uri_is_own:
        raise StorageError(
            "somebody else chose its MLflow server (the file tracking-uri); `sweep sync` accepts it"
        )
    is_there = where.tracking_uri is not None or where.folder.mlflow.is_file()
    store = look(where, only_read=True) if is_there else None
    with closing(store) if store is not None else nullcontext():
        runs = store.runs() if store is not None else []
    wanted = run_name(trial, WHOLE)
    found = [run.id for run in runs if run.name == wanted and not run.deleted]
    if not found:
        raise UsageError(
            f"export-model: MLflow has no run of trial {trial}; `sweep sync "
            f"{where.folder.in_commands}` sends what it misses, where the sweep's trackers have "
            f"mlflow"
        )
    return found[0]


def _registered(
    where: TrackerContext, card: Mapping[str, Any], out: Path, name: str, run: str
) -> str:
    model = log(where, card, out, run)
    client = open_client(where)
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    mlflow.set_tracking_uri(client.tracking_uri)  # where it looks for the model
    try:
        made = client.create_model_version(name, f"models:/{model}", run, model_id=model)
    finally:
        mlflow.set_tracking_uri("")
    return f"models:/{made.name}/{made.version}"


def log(where: TrackerContext, card: Mapping[str, Any], out: Path, run: str) -> str:
    """Add the model in the folder `out` to a run, with its card; returns the model's id.

    The model of a checkpoint is there once: one that was begun before is completed.
    """
    client = open_client(where)
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    its, digest = client.get_run(run), card["checkpoint"]["digest"]
    known = client.search_logged_models([its.info.experiment_id], f"tags.`{MODEL}` = '{digest}'")
    logged = next((model for model in known if model.source_run_id == run), None)
    if logged is None:
        logged = client.create_logged_model(its.info.experiment_id, "model", run, {MODEL: digest})
    failpoints.reach("model begun")
    if logged.status != LoggedModelStatus.READY:
        with tempfile.TemporaryDirectory(prefix="sweep-register-") as scratch:
            folder = Path(scratch) / "model"
            save(folder, onnx_file(card, out), card["model"], run, logged.model_id)
            client.log_model_artifacts(logged.model_id, str(folder))
        failpoints.reach("model sent")
        client.finalize_logged_model(logged.model_id, "READY")
    failpoints.reach("model whole")
    if logged.model_id not in [output.model_id for output in its.outputs.model_outputs]:
        output = LoggedModelOutput(logged.model_id, card["checkpoint"]["iteration"])
        client.log_outputs(run, [output])
    failpoints.reach("model linked")
    for file in ("card.md", "card.json"):
        client.log_artifact(run, str(out / file))
    return str(logged.model_id)


def onnx_file(card: Mapping[str, Any], out: Path) -> Path:
    """The ONNX file of an exported folder, which the format mlflow has inside."""
    files: Mapping[str, str] = card["files"]
    return out / files["onnx"] if "onnx" in files else out / files["mlflow"] / IN_FOLDER


def save(
    folder: Path,
    file: Path,
    described: Mapping[str, Any],
    run: str | None = None,
    model: str | None = None,
) -> None:
    """Write MLflow's folder of the model in an ONNX file.

    Args:
        folder: that is made.
        file: the model.
        described: what it takes and gives, see `Trainable.describe_model`.
        run: that it belongs to, if any.
        model: its id in MLflow, if it has one.
    """
    with large_import(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's are about MLflow
        prepare()
        import mlflow.onnx
        import onnx
        from mlflow.models import Model

        mlflow.onnx.save_model(
            onnx.load(file),
            folder,
            mlflow_model=Model(run_id=run, model_id=model),
            signature=_signature(described),
            input_example={name: _example(port) for name, port in described["inputs"].items()},
            pip_requirements=[f"{one}=={importlib.metadata.version(one)}" for one in NEEDED],
            onnx_execution_providers=["CPUExecutionProvider"],
            save_as_external_data=False,
        )


def _shape(port: Mapping[str, Any], free: int) -> tuple[int, ...]:
    return tuple(free if isinstance(size, str) else size for size in port["shape"])


def _example(port: Mapping[str, Any]) -> Any:
    import numpy as np

    return np.zeros(_shape(port, 1), port["dtype"])


def _signature(model: Mapping[str, Any]) -> Any:
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    inputs, outputs = (
        Schema([TensorSpec(np.dtype(p["dtype"]), _shape(p, -1), n) for n, p in ports.items()])
        for ports in (model["inputs"], model["outputs"])
    )
    return ModelSignature(inputs, outputs)
