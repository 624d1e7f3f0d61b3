"""Save an exported model in MLflow's format, log it to its trial's run, and register it.

It uses MLflow's ONNX flavour with signature and input example, so `mlflow.pyfunc.load_model` and
`mlflow models serve` have the policy's inputs and outputs. It uses MLflow's client, without its
global experiment and active run.
"""

import importlib.metadata
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from sweep.core.errors import StorageError, UsageError, first_line
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import WHOLE, run_name
from sweep.trackers._shared.mlflow_store import find_store, open_client, prepare
from trainables.core import failpoints
from trainables.core.importing import large_import

#: Packages that a model needs where it is loaded.
REQUIREMENTS = ("mlflow", "numpy", "onnx", "onnxruntime")
#: Tag with a digest: on a model, of its checkpoint; on a run, of the candidates (see `networks`).
MODEL = "sweep.model"
#: Name of the ONNX file in MLflow's folder of a model.
ONNX_NAME = "model.onnx"


def register(context: TrackerContext, card: Mapping[str, Any], out: Path, name: str) -> str:
    """Log the model in the folder `out` to its trial's MLflow run, and register it as `name`.

    Returns:
        The URI of the version, ``models:/NAME/VERSION``.

    Raises:
        UsageError: MLflow has no run of the trial, or the model is not an ONNX file.
        StorageError: MLflow reported an error, or another user chose its server.
    """
    if not card["files"].keys() & {"onnx", "mlflow"}:
        raise UsageError("export-model: --register needs --format onnx or mlflow")
    run = find_run(context, card["trial"])
    try:
        return _register_version(context, card, out, name, run)
    except Exception as error:  # a store may fail in any way
        raise StorageError(
            f"export-model: {name} was not registered: {first_line(error)}; repair MLflow, "
            "then export again"
        ) from error


def find_run(context: TrackerContext, trial: int) -> str:
    """Return the id of the MLflow run of trial number `trial`.

    Raises UsageError if MLflow has none, StorageError if another user chose the sweep's server.
    """
    if not context.uri_is_own:
        raise StorageError(
            "another user chose the MLflow server (in the file tracking-uri); accept it with "
            "`sweep sync`"
        )
    has_store = context.tracking_uri is not None or context.folder.mlflow.is_file()
    store = find_store(context, only_read=True) if has_store else None
    with closing(store) if store is not None else nullcontext():
        runs = store.runs() if store is not None else []
    wanted = run_name(trial, WHOLE)
    ids = [run.id for run in runs if run.name == wanted and not run.deleted]
    if not ids:
        raise UsageError(
            f"export-model: MLflow has no run of trial {trial}; if the sweep's trackers include "
            f"mlflow, `sweep sync {context.folder.in_commands}` sends the missing runs"
        )
    return ids[0]


def _register_version(
    context: TrackerContext, card: Mapping[str, Any], out: Path, name: str, run: str
) -> str:
    """Log the model to the run with the id `run`, and register it as the next version of `name`.

    The name is created in MLflow's registry if it is new. Returns the URI ``models:/NAME/VERSION``.
    """
    model = log(context, card, out, run)
    client = open_client(context)
    import mlflow
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    former = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else ""
    mlflow.set_tracking_uri(client.tracking_uri)  # create_model_version reads the global URI
    try:
        version = client.create_model_version(name, f"models:/{model}", run, model_id=model)
    finally:
        mlflow.set_tracking_uri(former)
    return f"models:/{version.name}/{version.version}"


def log(context: TrackerContext, card: Mapping[str, Any], out: Path, run: str) -> str:
    """Log the model in the folder `out`, and its card, to the run with the id `run`.

    A checkpoint's model is logged once: one that an earlier process began is completed. The card
    is always sent again. Returns the model's id.
    """
    client = open_client(context)
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    mlflow_run, digest = client.get_run(run), card["checkpoint"]["digest"]
    known = client.search_logged_models(
        [mlflow_run.info.experiment_id], f"tags.`{MODEL}` = '{digest}'"
    )
    logged = next((model for model in known if model.source_run_id == run), None)
    if logged is None:
        logged = client.create_logged_model(
            mlflow_run.info.experiment_id, "model", run, {MODEL: digest}
        )
    failpoints.reach("model begun")
    if logged.status != LoggedModelStatus.READY:
        with tempfile.TemporaryDirectory(prefix="sweep-register-") as scratch:
            folder = Path(scratch) / "model"
            save(folder, onnx_file(card, out), card["model"], run, logged.model_id)
            client.log_model_artifacts(logged.model_id, str(folder))
        failpoints.reach("model sent")
        client.finalize_logged_model(logged.model_id, "READY")
    failpoints.reach("model whole")
    if logged.model_id not in [output.model_id for output in mlflow_run.outputs.model_outputs]:
        output = LoggedModelOutput(logged.model_id, card["checkpoint"]["iteration"])
        client.log_outputs(run, [output])
    failpoints.reach("model linked")
    for file in ("card.md", "card.json"):
        client.log_artifact(run, str(out / file))
    return str(logged.model_id)


def onnx_file(card: Mapping[str, Any], out: Path) -> Path:
    """Return the path of an exported model's ONNX file in the folder `out`, given its card."""
    files: Mapping[str, str] = card["files"]
    return out / files["onnx"] if "onnx" in files else out / files["mlflow"] / ONNX_NAME


def save(
    folder: Path,
    file: Path,
    described: Mapping[str, Any],
    run: str | None = None,
    model: str | None = None,
) -> None:
    """Write the ONNX model `file` in MLflow's format into a new `folder`.

    `described` has its inputs and outputs, as by `Trainer.describe_model`. `run` and `model` are
    the ids in MLflow, if it has them.
    """
    with large_import(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns about its own code
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
            pip_requirements=[f"{one}=={importlib.metadata.version(one)}" for one in REQUIREMENTS],
            onnx_execution_providers=["CPUExecutionProvider"],
            save_as_external_data=False,
        )


def _shape(port: Mapping[str, Any], free: int) -> tuple[int, ...]:
    """Return the shape of a model's input or output, as its card describes it in `port`."""
    return tuple(free if isinstance(size, str) else size for size in port["shape"])


def _example(port: Mapping[str, Any]) -> Any:
    """Return an example for the input that `port` describes in the card: zeros with one row."""
    import numpy as np

    return np.zeros(_shape(port, 1), port["dtype"])


def _signature(model: Mapping[str, Any]) -> Any:
    """Return MLflow's ModelSignature for the inputs and outputs that `model` describes."""
    import numpy as np
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    inputs, outputs = (
        Schema([TensorSpec(np.dtype(p["dtype"]), _shape(p, -1), n) for n, p in ports.items()])
        for ports in (model["inputs"], model["outputs"])
    )
    return ModelSignature(inputs, outputs)
