"""Create and send the attachments of finished sweeps: report, curves, card, models, late media.

`sweep.operations.mlflow.attaching` starts this module as a process:

    python -m sweep.operations.mlflow.attachments ROOT PATIENCE_S NAME...

After a kill, the next process continues: files are replaced by name, and a checkpoint has one
model. A lock allows one process at a time for each sweep.
"""

import contextlib
import fcntl
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from sweep.core.errors import StorageError, first_line
from sweep.driver.start import launch
from sweep.driver.tracking import outbox, sync
from sweep.history.events import Closed, Reported
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.models import export, networks, register
from sweep.operations.models.trained import Choice
from sweep.operations.report import page, pictures
from sweep.trackers import TrackerContext
from sweep.trackers._shared.mlflow_content import MEDIA, WHOLE, Content, run_name
from sweep.trackers._shared.mlflow_store import FileStore, Store, StoredRun, find_store, open_client
from sweep.views import lookup
from sweep.views.lookup import Sweep
from trainables.checkpoint import disk
from trainables.core import failpoints
from trainables.errors import printable

#: Function that shows a message to the user.
Say = Callable[[str], None]

#: Seconds between two attempts to lock the log.
POLL_S = 0.1


def attach(folder: Folder, say: Say, patience_s: float) -> None:
    """Send the attachments of a sweep that MLflow lacks; report a failure in one line.

    Messages for `say` also go to the sweep's ``attachments.log``, except those about that file and
    Ctrl-C. For `patience_s` seconds, failures are retried and a lock of another process is waited
    for. Nothing is sent if MLflow has them. Failures and Ctrl-C are reported, not raised.
    """
    deadline, failures = time.monotonic() + patience_s, 0
    try:
        with _locked_log(folder, deadline) as log:
            while k := sync.attachments_due(where := sync.tracker_context(folder)):
                try:
                    _send_once(where, k, lambda text: _say_twice(say, log, text))
                except Exception as error:  # noqa: BLE001 a store may fail in any way
                    failures += 1
                    wait = outbox.longest_wait(failures)
                    if time.monotonic() + wait > deadline:
                        _say_twice(say, log, _describe_failure(folder, first_line(error)))
                        return
                    time.sleep(wait)
                else:
                    return
    except (OSError, StorageError) as error:
        say(_describe_failure(folder, first_line(error)))
    except KeyboardInterrupt:
        say(_describe_failure(folder, "Ctrl-C"))


def _describe_failure(folder: Folder, reason: str) -> str:
    """Return the message that MLflow lacks attachments, with the reason and a remedy."""
    what = "MLflow did not get the report, a model or media files"
    return printable(f"{what}: {reason}; send them with `sweep sync {folder.in_commands}`")


def _say_twice(say: Say, log: TextIO, text: str) -> None:
    """Call `say` with `text`, and append the text with the date to the log."""
    say(text)
    log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(text)}\n")
    log.flush()


@contextlib.contextmanager
def _locked_log(folder: Folder, deadline: float) -> Iterator[TextIO]:
    """Open and lock the file ``attachments.log``; StorageError if it stays locked until `deadline`.

    `deadline` is a time of time.monotonic(), in seconds. The file is created if necessary, and what
    the block writes is appended.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with os.fdopen(disk.open_file(folder.attachments_log, flags), "w", encoding="utf-8") as log:
        while True:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StorageError("another process is still sending these files") from None
                time.sleep(POLL_S)
        yield log


def _send_once(context: TrackerContext, k: int, say: Say) -> None:
    """Send all attachments as of event number `k`, and record in the ledger that this was done.

    Nothing is sent, but this is recorded too, if the experiment was deleted or the server keeps no
    files. Raises StorageError if MLflow lacks events.
    """
    folder = context.folder
    if sync.count_missing_events(context)["mlflow"][1]:
        raise StorageError("MLflow also lacks results of this sweep")
    store = find_store(context, only_read=False)
    if store is not None:  # None if the experiment was deleted
        with contextlib.closing(store), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow and matplotlib warn about their own code
            runs = {run.name: run for run in store.runs() if not run.deleted}
            if context.tracking_uri is None or _keeps_files(context, runs.values()):
                with tempfile.TemporaryDirectory(prefix="sweep-attached-") as draft:
                    said = _send_report_and_models(
                        context, lookup.read(folder), store, runs, Path(draft), say
                    )
                    said += _send_media(context, k, runs) if context.tracking_uri else ""
                say(f"MLflow has {said}")
            else:
                say(
                    "MLflow's server does not store files, so it got neither the report nor a model"
                )
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        ledger.set_published(sync.ATTACHMENTS, k)
    failpoints.reach("attached")


def _send_report_and_models(
    context: TrackerContext,
    sweep: Sweep,
    store: Store,
    runs: Mapping[str, StoredRun],
    draft: Path,
    say: Say,
) -> str:
    """Add report and curves to the sweep's run, and the models to their trials' runs.

    The files are created in the folder `draft`. `runs` maps a run's name to the run; the sweep's
    has the name "". A run that is missing there gets nothing. Returns the report and the models of
    trials that MLflow has, in words, such as ``demo's report and the model of trial 3``.
    """
    parent = runs.get("")
    if parent is not None:
        report = draft / "report.html"
        page.write(report, page.build(sweep, time.time()))
        _add_files(context, store, parent, [report, *pictures.write(sweep, draft, say, ["curves"])])
        failpoints.reach("report attached")
    sent = []
    for trial in _find_trials_with_models(context, sweep, say):
        above = parent if trial is sweep.history.best else None
        if (run := runs.get(run_name(trial.number, WHOLE))) is not None and _send_model(
            context, store, run, above, trial, draft / f"trial-{trial.number}", say
        ):
            sent.append(str(trial.number))
    several, name = "s" if len(sent) > 1 else "", context.folder.name
    models = f"the model{several} of trial{several} {', '.join(sent)}" if sent else ""
    if parent is None:
        sent_there = models or "neither the report nor a model"
        return f"{sent_there} of {name}, whose own run was deleted there"
    return f"{name}'s report and {models}" if models else f"{name}'s report"


def _send_media(context: TrackerContext, k: int, runs: Mapping[str, StoredRun]) -> str:
    """Send videos and pictures of episodes, up to event `k`, that the server lacks.

    `runs` maps a run's name to the run; one that is missing gets nothing. Returns the number of
    files as the end of a sentence, or an empty text if there are none.
    """
    client, content, sent = open_client(context), Content(context), 0
    present: dict[str, set[str]] = {}
    for event in (record.event for records in context.earlier_events(k) for record in records):
        if not isinstance(event, Reported | Closed) or not (files := [*content.media(event)]):
            continue
        if (run := runs.get(run_name(*content.run_of(event)))) is None:
            continue
        if run.id not in present:
            present[run.id] = {Path(one.path).name for one in client.list_artifacts(run.id, MEDIA)}
        for file in files:
            if file.name not in present[run.id]:
                client.log_artifact(run.id, str(file), MEDIA)
                present[run.id].add(file.name)
                sent += 1
    return f", and {sent} media file{'s' if sent > 1 else ''} that it had not taken" if sent else ""


def _keeps_files(context: TrackerContext, runs: Iterable[StoredRun]) -> bool:
    """Return true if the server stores artifacts itself, judged by the first of its `runs`.

    Otherwise, and without any run, MLflow's client would write them to a path of this machine.
    """
    client = open_client(context)
    places = (client.get_run(run.id).info.artifact_uri for run in runs)
    return urlsplit(next(places, "")).scheme not in ("", "file")


def _find_trials_with_models(context: TrackerContext, sweep: Sweep, say: Say) -> list[Trial]:
    """Return the trials whose models MLflow should get: the best one, or all if the user wants.

    Trials without a best checkpoint are left out. Imports the trainable if any are left. Returns an
    empty list, and tells `say` why, if this user's drivers have not run the sweep's present code,
    or the trainable cannot be imported or does not describe its model.
    """
    best = sweep.history.best
    everyone = sync.wants_all_models(context.folder, context.sweep_id)
    trials = sweep.history.trials if everyone else [best] if best else []
    wanted = [trial for trial in trials if trial.leader.best_checkpoint is not None]
    if not wanted:
        return []
    if not sync.may_make_models(context.folder, sweep.history):
        say(
            "no model is sent to MLflow, because you have not run the sweep's current code; "
            f"run `sweep resume {context.folder.in_commands}` first"
        )
        return []
    try:
        trainable = launch.trainable_of(context.folder)
    except Exception as error:  # noqa: BLE001 a person's module may raise anything
        say(f"no model is sent to MLflow: {first_line(error)}")
        return []
    if not hasattr(trainable, "describe_model"):
        say(f"no model is sent to MLflow: {trainable.__name__} has no describe_model()")
        return []
    return wanted


def _add_files(
    context: TrackerContext, store: Store, run: StoredRun, files: Iterable[Path]
) -> None:
    """Add files to an MLflow run as artifacts."""
    for file in files:
        if isinstance(store, FileStore):
            store.attach(run, file)
        else:
            open_client(context).log_artifact(run.id, str(file))


def _send_model(
    context: TrackerContext,
    store: Store,
    run: StoredRun,
    parent: StoredRun | None,
    trial: Trial,
    folder: Path,
    say: Say,
) -> bool:
    """Export a trial's best model into `folder` and add it to the trial's run.

    Its card also goes to `parent`, the sweep's run, if that is given; then the trial's networks are
    compared on fresh episodes first. Nothing is done if the runs have the model. Returns true
    unless the export failed; `say` then gets the reason. Raises OSError or StorageError if disk or
    MLflow refused.
    """
    choices = networks.candidates_digest(trial)
    lacking = [r for r in (run, parent) if r and r.tags.get(register.MODEL) != choices]
    if not lacking:
        return True
    choice = Choice(str(trial.number), "best" if parent is None else networks.COMPARED)
    episodes = 0 if parent is None else networks.EPISODES
    try:
        card = export.export_model(context.folder, choice, ("onnx",), folder, episodes)
    except (OSError, StorageError):
        raise  # retried, since a full disk may get free space
    except Exception as error:  # noqa: BLE001 a person's code may raise anything
        say(f"no model of trial {trial.number} is sent to MLflow: {first_line(error)}")
        return False
    for target in lacking:
        if target is run:
            register.log(context, card, folder, run.id)
        else:
            _add_files(context, store, target, [folder / "card.md"])
        with store.writing():
            store.log(target, (), {register.MODEL: choices}, {})
        failpoints.reach("model attached")
    return True


def _say(text: str) -> None:
    """Write a message to standard error, if that is still open."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"sweep: {text}\n")


def main(root: str, patience_s: str, *names: str) -> None:
    """Send the attachments of the sweeps `names` of one root, one sweep after the other.

    `patience_s` is the time for retries of each sweep, in seconds, as text.
    """
    for name in names:
        attach(Folder(Path(root), name), _say, float(patience_s))


if __name__ == "__main__":
    main(*sys.argv[1:])
