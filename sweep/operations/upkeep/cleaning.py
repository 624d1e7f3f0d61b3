"""Free disk space: delete whole sweeps, or the files of a sweep that are no longer needed.

Deletions are recorded in the history first, and a folder is renamed before its files are deleted.
So a kill at any moment leaves either a complete sweep or leftovers that the next `clean` deletes.
"""

import contextlib
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.errors import (
    StorageError,
    SweepError,
    SweepLocked,
    UsageError,
    first_line,
    with_remedy,
)
from sweep.driver.limits import choose_deletions
from sweep.driver.tracking import sync
from sweep.history.events import Dropped
from sweep.history.history import History
from sweep.ledger import folder as folders
from sweep.ledger import hold, lease, storage
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.slices import store
from sweep.slices.store import SweepStore
from sweep.trackers._shared import mlflow_store
from sweep.trackers._shared.mlflow_content import WHOLE, run_name
from sweep.trackers._shared.mlflow_store import StoredRun
from sweep.views import lookup
from trainables.checkpoint.remote import RemoteError
from trainables.errors import printable

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: Names of folders of sweeps that are being created or removed.
_DRAFT = re.compile(r"\..+\.(?:new-[0-9a-f]{8}-[0-9]+|removed-[0-9a-f]{8})")
#: Names of copies of the ledger from before an upgrade of its tables.
_OLD_LEDGER = re.compile(r"sweep\.db\.[0-9a-z_]+")
#: Seconds that trackers have to receive the deletions.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Freed:
    """The checkpoints, files and bytes of one sweep that were deleted, or would be."""

    name: str
    """Name of the sweep, or of a folder left by an interrupted creation or removal."""
    checkpoints: int
    """Number of deleted checkpoints."""
    files: int
    """Number of other deleted files."""
    bytes: int
    """Size of the checkpoints and files, in bytes."""
    runs: int | None = None
    """Number of MLflow runs that were marked as deleted, or would be; None if not requested."""


def check_removable(folder: Folder) -> None:
    """Raise SweepLocked if a driver has the sweep, UsageError if its folder is a link."""
    if folder.path.is_symlink():
        raise UsageError(f"{folder.path}: is a link to another folder; remove the link by hand")
    held = lease.read_file(folder.ledger)
    if held.is_elsewhere:
        takes = f"`sweep gc {folder.in_commands}` takes the sweep over"
        gone = f"if that process no longer exists, {takes}, then try again"
        raise SweepLocked(folder.name, held.describe(), f"stop that process first; {gone}")
    with folder.lock():
        return


def remove(folder: Folder, mlflow: bool = False) -> Freed:
    """Delete a sweep with everything in its folder and its checkpoints in object storage.

    Returns number and size of its checkpoints and files.

    Args:
        mlflow: True to mark its runs as deleted in MLflow first; otherwise they stay there.

    Raises:
        SweepLocked: a driver has the sweep.
        UsageError: the sweep's folder is a link.
        StorageError: MLflow, database, disk or object storage reported an error, and the sweep
            still exists; or only leftovers of it could not be deleted, which `clean_root` deletes
            later.
    """
    check_removable(folder)
    gone = folder.root / f".{folder.name}.removed-{secrets.token_hex(4)}"
    with folder.lock(), _reporting(f"removing {folder.path}"):
        runs = _delete_runs(folder) if mlflow else None
        stored = store.of_sweep(folder)
        freed = replace(_measure_everything(stored, folder.name), runs=runs)
        try:
            with storage.removing(folder.ledger):
                os.utime(folder.path)  # `gc` computes the age of a leftover from this time
                folder.path.rename(gone)
                folders.fsync(folder.root)
                stored.remove()
            shutil.rmtree(gone)
        except RemoteError as error:
            later = (
                f"`sweep gc` tries to delete them again after {folders.STALE_S / 60:.0f} minutes"
            )
            raise StorageError(
                f"{folder.name} was deleted, but its checkpoints were not; {later}: {error}"
            ) from error
    return freed


def _delete_runs(folder: Folder) -> int:
    """Mark the sweep's MLflow runs as deleted; return their number, 0 if MLflow has none.

    Raises StorageError if MLflow reported an error, or another user chose its server.
    """
    context = sync.tracker_context(folder)
    if not context.uri_is_own:
        raise StorageError(
            "another user chose the MLflow server (in the file tracking-uri); accept it with "
            "`sweep sync`"
        )
    if context.tracking_uri is None and not folder.mlflow.is_file():
        return 0
    try:
        store = mlflow_store.find_store(context, only_read=False)
        if store is None:
            return 0
        with contextlib.closing(store), store.writing():
            runs = [run for run in store.runs() if not run.deleted]
            for run in runs:
                store.delete(run)
    except Exception as error:  # a store may fail in any way
        raise StorageError(
            f"{folder.name} was not deleted, because its MLflow runs could not be deleted: "
            f"{first_line(error)}; repair MLflow, or keep the runs with `sweep rm` without "
            "--mlflow"
        ) from error
    return len(runs)


def clean(folder: Folder, say: Callable[[str], None], keep: int, dry_run: bool) -> Freed:
    """Delete checkpoints, logs and other files of a sweep that are no longer needed.

    Each trial that may continue keeps its two newest checkpoints and its best one, so the sweep can
    be resumed with the same results. Leftovers of a crash or an upgrade are deleted, too. The
    deletions are recorded as events and sent to the trackers. Returns number and size of what was
    deleted.

    Args:
        say: called with a message about each wait and each repair.
        keep: number of best trials that keep their best checkpoint.
        dry_run: True to delete nothing, and only count.

    Raises:
        SweepLocked: a driver has the sweep.
        UsageError: the ledger was written by a newer version.
        StorageError: disk, database or object storage reported an error.
    """
    stored = store.of_sweep(folder)
    if dry_run:
        history = lookup.read_history(folder)
        with _reporting(f"looking at {folder.path}"):
            return _count_freed(stored, history, _unneeded_checkpoints(history, keep))
    with _reporting(f"cleaning {folder.path}"), hold.hold(folder, say) as held:
        with contextlib.closing(Ledger(folder.ledger)) as ledger:
            history = lookup.read_history(folder)
            dropped = _unneeded_checkpoints(history, keep)
            freed = _count_freed(stored, history, dropped)
            if dropped:
                history.extend(ledger.append(held.term, dropped))
        stored.sweep_up(history)
        for drop in dropped:
            if drop.log:
                folders.remove_log(folder.trial(drop.trial, drop.replica))
        for path in _leftovers(folder):
            path.unlink(missing_ok=True)
        if dropped:
            sync.send_held(folder, held.term, say, PATIENCE_S)
    return freed


@contextlib.contextmanager
def _reporting(doing: str) -> Iterator[None]:
    """Convert an OSError of disk or object storage in the block to a StorageError.

    `doing` begins its message, for example ``removing demo``.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(f"{doing}: {with_remedy(error)}") from error


@dataclass(frozen=True)
class Orphaned:
    """Runs and models of one MLflow experiment whose sweep or trial no longer exists."""

    name: str
    """Name of the MLflow experiment."""
    runs: tuple[str, ...]
    """Ids of the runs."""
    models: tuple[str, ...]
    """Ids of the models of these runs, except registered ones."""


def orphaned(root: Path) -> list[Orphaned]:
    """Return the runs and models in the root's MLflow file that belong to none of its sweeps.

    A server is not searched, since other people may send sweeps to it.

    Raises:
        StorageError: the file cannot be read.
        SweepError: a sweep in the root cannot be read, so its runs are unknown.
    """
    if not Folder(root, "").mlflow.is_file():
        return []
    with _mlflow_client(root) as client:
        # Read before the sweeps: a run is in the history of its sweep before it is in MLflow.
        runs_of = {
            experiment: list(_runs(client, experiment.experiment_id))
            for experiment in _all_pages(client.search_experiments)
        }
        ids = [experiment.experiment_id for experiment in runs_of]
        models = list(_all_pages(client.search_logged_models, ids)) if ids else []
        registered = [version.source for version in _all_pages(client.search_model_versions)]
    known = {key for name in folders.list_sweeps(root) for key in _known_runs(Folder(root, name))}
    orphans = []
    for experiment, runs in runs_of.items():
        if gone := {run.id for run in runs if (run.tags["sweep.id"], run.name) not in known}:
            its = [one.model_id for one in models if one.source_run_id in gone]
            left = tuple(
                model for model in its if not any(model in source for source in registered)
            )
            orphans.append(Orphaned(experiment.name, tuple(sorted(gone)), left))
    return orphans


def delete_orphaned(root: Path, orphans: Sequence[Orphaned]) -> Iterator[Freed]:
    """Mark orphaned runs and models as deleted, as MLflow's page does.

    Yields a result for each member of `orphans` after marking its runs and models; an iterator that
    is not consumed marks nothing. Raises StorageError if MLflow reported an error; what was marked
    before stays marked.
    """
    for orphan in orphans:
        with _mlflow_client(root) as client:
            for model in orphan.models:
                client.delete_logged_model(model)
            for run in orphan.runs:
                client.delete_run(run)
        yield Freed(orphan.name, 0, 0, 0, len(orphan.runs))


@contextlib.contextmanager
def _mlflow_client(root: Path) -> "Iterator[MlflowClient]":
    """Yield a client for the MLflow file of `root`.

    An error in the block becomes a StorageError.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow warns about its own code
            yield mlflow_store.client_of(mlflow_store.store_url(Folder(root, "")))
    except Exception as error:  # a store may fail in any way
        raise StorageError(
            f"{Folder(root, '').mlflow}: {first_line(error)}; if the file is damaged, move "
            "it away, and `sweep sync` fills a new one"
        ) from error


def _runs(client: "MlflowClient", experiment: str) -> Iterator[StoredRun]:
    """Yield those runs of an experiment (by its id) that a sweep created and nobody deleted."""
    for run in _all_pages(client.search_runs, [experiment], "tags.`sweep.id` LIKE '%'"):
        yield StoredRun(run.info.run_id, run.info.run_name, tags=run.data.tags)


def _all_pages(search: Callable[..., Any], *arguments: object) -> Iterator[Any]:
    """Yield all results of a search method of MLflow's client, which returns one page per call."""
    token: str | None = None
    while token != "":
        page = search(*arguments, page_token=token)
        yield from page
        token = page.token or ""


def _known_runs(folder: Folder) -> Iterator[tuple[str, str]]:
    """Yield sweep id and name of each run that this sweep may have in MLflow.

    The sweep's own run has the name "". One for each trial and each of its seeds follows, and a
    trial's may be repeated.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        sweep = ledger.sweep_id
    yield sweep, ""
    for replica in lookup.read_history(folder).all_replicas:
        yield sweep, run_name(replica.trial, WHOLE)
        yield sweep, run_name(replica.trial, replica.index)


def clean_root(root: Path, say: Callable[[str], None], dry_run: bool) -> Iterator[Freed]:
    """Delete folders in `root` whose sweep's creation or removal was killed; yield each one's size.

    Only a folder's age (`folders.STALE_S`) shows this: a process id means nothing if each container
    has its own. Each folder that cannot be removed now is skipped and reported to `say`. With
    `dry_run` nothing is deleted, nor before the iterator is consumed.
    """
    for path in sorted(root.glob(".*")):
        if not _DRAFT.fullmatch(path.name) or path.is_symlink() or not folders.is_stale(path):
            continue
        try:
            yield _remove_draft(Folder(root, path.name), dry_run)
        except (SweepError, OSError) as error:  # of its server, or of storage
            say(f"{printable(path.name)} was skipped: {error}")


def _remove_draft(draft: Folder, dry_run: bool) -> Freed:
    """Delete the folder of an interrupted creation or removal, unless `dry_run`; return its size.

    Its checkpoints in object storage are deleted, too. A file that cannot be deleted is left.
    """
    stored = store.of_sweep(draft)
    freed = _measure_everything(stored, draft.name)
    if not dry_run:
        with storage.removing(draft.ledger):
            stored.remove()
        shutil.rmtree(draft.path, ignore_errors=True)  # last, since it names the server
    return freed


def _unneeded_checkpoints(history: History, keep: int) -> list[Dropped]:
    """Return events that drop the checkpoints and logs that are not needed.

    The `keep` best trials keep their best checkpoint and their log.
    """
    leaders = [trial.leader for trial in history.ranked()[:keep]]
    kept = {best.digest for leader in leaders if (best := leader.best_checkpoint) is not None}
    numbers = {leader.trial for leader in leaders}
    spared = [
        replace(
            drop,
            digests=tuple(digest for digest in drop.digests if digest not in kept),
            log=drop.log and drop.trial not in numbers,
        )
        for drop in choose_deletions(history, 0)[0]
    ]
    return [drop for drop in spared if drop.digests or drop.log]


def _count_freed(stored: SweepStore, history: History, dropped: Sequence[Dropped]) -> Freed:
    """Return number and size of the checkpoints and logs that the events `dropped` name.

    Checkpoint files that no event names and old copies of the ledger are counted, too.
    """
    saved = [
        history.replica(drop.trial, drop.replica).checkpoints[digest]
        for drop in dropped
        for digest in drop.digests
    ]
    folder = stored.folder
    logs = [folders.log_size(folder.trial(d.trial, d.replica)) for d in dropped if d.log]
    sizes = [*logs, *(path.lstat().st_size for path in _leftovers(folder))]
    sizes += [spare.size for spare in stored.unnamed_files(history)]
    size = sum(one.size for one in saved) + sum(sizes)
    return Freed(stored.folder.name, len(saved), len(sizes), size)


def _leftovers(folder: Folder) -> Iterator[Path]:
    """Yield the paths of copies of the ledger from before an upgrade of its tables."""
    for path in sorted(folder.path.glob("sweep.db.*")):
        if _OLD_LEDGER.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield path


def _measure_everything(stored: SweepStore, name: str) -> Freed:
    """Return number and size of all checkpoints and files of a sweep, also in object storage."""
    files = [p for p in stored.folder.path.rglob("*") if p.is_symlink() or p.is_file()]
    sizes = [(path.name, path.lstat().st_size) for path in files]
    sizes += [(Path(file).name, size) for file, size in stored.list_sizes().items()]
    checkpoints = {file for file, _ in sizes if file.startswith("ckpt-")}
    others = sum(file not in checkpoints for file, _ in sizes)
    return Freed(name, len(checkpoints), others, sum(size for _, size in sizes))
