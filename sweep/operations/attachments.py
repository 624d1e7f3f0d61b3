"""What MLflow has of a finished sweep beside its rows: report, curves, and the model of the best.

They are made after the last results were sent, when nothing trains any more and everything is said,
in a process of their own, so that no driver imports torch and MLflow:

    python -m sweep.operations.attachments ROOT NAME best

Nothing of the sweep depends on them: after a kill, or where a server was away, `sweep resume` of
the finished sweep makes them.
"""

import contextlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, cast
from urllib.parse import urlsplit

from sweep.driver import sync
from sweep.errors import StorageError, without_password
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.operations import export, register
from sweep.operations.trained import Choice
from sweep.report import page, pictures
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import WHOLE, run_name
from sweep.trackers._shared.mlflow_store import FileStore, Store, StoredRun, look, open_client
from sweep.views import lookup
from sweep.views.lookup import Sweep
from trainables.errors import printable

Models: TypeAlias = Literal["all", "best", "none"]
#: The tag of a trial's run that has a model: the digest of its checkpoint.
TAG = "sweep.model"


def attach(folder: Folder, say: Callable[[str], None], models: Models = "best") -> None:
    """Add them, and say in one line what could not be added.

    Args:
        folder: of a sweep that is finished.
        say: called with a sentence.
        models: of which trials with a checkpoint; none: its trainable has no model to export.
    """
    try:
        where = sync.where(folder)
        if "mlflow" not in where.spec.trackers or not _takes_files(where):
            return
        if sys.stderr.isatty():
            what = "the report goes" if models == "none" else "the report and the best model go"
            say(f"{what} to MLflow; Ctrl-C leaves that out")
        _attach(where, lookup.read(folder), models)
    except KeyboardInterrupt:
        say(f"MLflow lacks the report or the best model; `sweep resume {folder.name}` adds them")
    except Exception as error:  # noqa: BLE001 a store may fail in any way, and the sweep is done
        why = (without_password(str(error)).splitlines() or [type(error).__name__])[0]
        remedy = f"`sweep resume {folder.name}` tries again"
        say(printable(f"MLflow lacks the report or the best model: {why}; {remedy}"))


def _takes_files(where: TrackerContext) -> bool:
    """Whether files are sent: to the root's own file, and to servers of this user."""
    uri = where.tracking_uri
    return where.uri_is_own and (uri is None or uri.startswith("http"))


def _attach(where: TrackerContext, sweep: Sweep, models: Models) -> None:
    if sync.behind(where)["mlflow"][1]:
        raise StorageError("it misses results, too")
    store = look(where, only_read=False)
    if store is None:
        return
    with contextlib.closing(store), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's and matplotlib's are none of a person's business
        runs = {run.name: run for run in store.runs() if not run.deleted}
        if where.tracking_uri is None or _keeps_files(where, runs.values()):
            with tempfile.TemporaryDirectory(prefix="sweep-attached-") as draft:
                _fill(where, sweep, store, runs, Path(draft), models)


def _fill(
    where: TrackerContext,
    sweep: Sweep,
    store: Store,
    runs: Mapping[str, StoredRun],
    draft: Path,
    models: Models,
) -> None:
    """Make everything in the folder `draft`, and add it to the runs that are there."""
    parent = runs.get("")
    if parent is not None:
        report = draft / "report.html"
        page.write(report, page.build(sweep, time.time()))
        _add(where, store, parent, [report, *pictures.write(sweep, draft, ["curves"])])
    for trial in _wanted(sweep, models):
        if (run := runs.get(run_name(trial.number, WHOLE))) is not None:
            _log_model(where, store, run, trial, draft / f"trial-{trial.number}")
    best = sweep.history.best
    card = draft / f"trial-{-1 if best is None else best.number}" / "card.md"
    if parent is not None and card.is_file():
        _add(where, store, parent, [card])


def _keeps_files(where: TrackerContext, runs: Iterable[StoredRun]) -> bool:
    """Whether the server keeps artifacts; else MLflow's client would write them in this folder."""
    client = open_client(where)
    places = (client.get_run(run.id).info.artifact_uri for run in runs)
    return urlsplit(next(places, "")).scheme not in ("", "file")


def _wanted(sweep: Sweep, models: Models) -> list[Trial]:
    best = sweep.history.best
    trials = {"all": sweep.history.trials, "best": [best] if best else [], "none": []}[models]
    return [trial for trial in trials if trial.leader.best_checkpoint is not None]


def _add(where: TrackerContext, store: Store, run: StoredRun, files: Iterable[Path]) -> None:
    for file in files:
        if isinstance(store, FileStore):
            store.attach(run, file)
        else:
            open_client(where).log_artifact(run.id, str(file))


def _log_model(
    where: TrackerContext, store: Store, run: StoredRun, trial: Trial, folder: Path
) -> None:
    """Add a trial's best model to its run, unless it is there."""
    saved = trial.leader.best_checkpoint
    if saved is None or run.tags.get(TAG) == saved.digest:
        return
    card = export.export_model(where.folder, Choice(str(trial.number)), ("onnx",), folder)
    register.log(where, card, folder, run.id)
    with store.writing():
        store.log(run, (), {TAG: saved.digest}, {})


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"sweep: {text}\n")


if __name__ == "__main__":
    attach(Folder(Path(sys.argv[1]), sys.argv[2]), _say, cast(Models, sys.argv[3]))
