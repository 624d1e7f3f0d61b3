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
from collections.abc import Callable, Iterable
from pathlib import Path

from sweep.driver import launch, sync
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

#: The tag of a trial's run that has a model: the digest of its checkpoint.
TAG = "sweep.model"


def attach(folder: Folder, say: Callable[[str], None], all_models: bool = False) -> None:
    """Add them, and say in one line what could not be added.

    Args:
        folder: of a sweep that is finished.
        say: called with a sentence.
        all_models: the models of all trials with a checkpoint, not of the best alone.
    """
    try:
        where = sync.where(folder)
        if "mlflow" not in where.spec.trackers or not _takes_files(where):
            return
        if sys.stderr.isatty():
            say("the report and the best model go to MLflow; Ctrl-C leaves that out")
        _attach(where, lookup.read(folder), all_models)
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


def _attach(where: TrackerContext, sweep: Sweep, all_models: bool) -> None:
    if sync.behind(where)["mlflow"][1]:
        raise StorageError("it misses results, too")
    with contextlib.ExitStack() as until, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's and matplotlib's are none of a person's business
        store = look(where, only_read=False)
        if store is None:
            return
        until.callback(store.close)
        runs = {run.name: run for run in store.runs() if not run.deleted}
        draft = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="sweep-attached-")))
        if (parent := runs.get("")) is not None:
            report = draft / "report.html"
            page.write(report, page.build(sweep, time.time()))
            _add(where, store, parent, [report, *pictures.write(sweep, draft, ["curves"])])
        if not hasattr(launch.trainable_of(where.folder), "describe_model"):
            return
        for trial in _wanted(sweep, all_models):
            if (run := runs.get(run_name(trial.number, WHOLE))) is not None:
                _log_model(where, store, run, trial, draft / f"trial-{trial.number}")
        best = sweep.history.best
        card = draft / f"trial-{-1 if best is None else best.number}" / "card.md"
        if parent is not None and card.is_file():
            _add(where, store, parent, [card])


def _wanted(sweep: Sweep, all_models: bool) -> list[Trial]:
    best = sweep.history.best
    trials = sweep.history.trials if all_models else [] if best is None else [best]
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
    attach(Folder(Path(sys.argv[1]), sys.argv[2]), _say, all_models=sys.argv[3] == "all")
