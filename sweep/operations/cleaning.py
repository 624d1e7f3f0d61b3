"""Frees disk space: whole sweeps, or what nobody needs of them any more.

What goes is named in the history first, and a folder loses its name before its files go, so that a
kill at any moment leaves a whole sweep, or none, and files that the next `clean` deletes.
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

from sweep.driver import sync
from sweep.driver.limits import to_drop
from sweep.errors import StorageError, SweepError, SweepLocked, UsageError, without_password
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

#: Folders that are being made or removed.
_DRAFT = re.compile(r"\..+\.(?:new-[0-9a-f]{8}-[0-9]+|removed-[0-9a-f]{8})")
#: A ledger as it was before its tables were brought to a newer release's.
_OLD_LEDGER = re.compile(r"sweep\.db\.[0-9a-z_]+")
#: Seconds that trackers have to hear what went.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Freed:
    """Bytes and files that were removed, or would be."""

    name: str
    """A sweep's, or that of a folder that was left half made or half removed."""
    checkpoints: int
    files: int
    """Others, such as those that a crash left."""
    bytes: int
    runs: int | None = None
    """The number of runs in MLflow that were marked deleted, or would be; None if not asked for."""


def check_removable(folder: Folder) -> None:
    """Refuse a sweep that `remove` would not delete now.

    Raises:
        SweepLocked: a driver holds it.
        UsageError: its folder is a link.
    """
    if folder.path.is_symlink():
        raise UsageError(f"{folder.path}: is a link to another folder; remove the link by hand")
    held = lease.look(folder.ledger)
    if held.is_elsewhere:
        takes = f"`sweep gc {folder.in_commands}` takes the sweep over"
        gone = f"if it runs no more, {takes}, then try again"
        raise SweepLocked(folder.name, held.describe(), f"stop that one first; {gone}")
    with folder.lock():
        return


def remove(folder: Folder, mlflow: bool = False) -> Freed:
    """Delete a sweep with everything in its folder.

    Args:
        folder: the sweep's.
        mlflow: its runs are marked deleted in MLflow first; else they stay there.

    Raises:
        SweepLocked, UsageError: as `check_removable`.
        StorageError: the disk or MLflow refused; the sweep is still there.
    """
    check_removable(folder)
    gone = folder.root / f".{folder.name}.removed-{secrets.token_hex(4)}"
    with folder.lock():
        runs = _delete_runs(folder) if mlflow else None
        stored = store.of(folder)
        freed = replace(_measure(stored, folder.name), runs=runs)
        try:
            with storage.removing(folder.ledger):
                os.utime(folder.path)  # its removal begins, for a `gc` that looks at its age
                folder.path.rename(gone)
                folders.fsync(folder.root)
                stored.remove()
            shutil.rmtree(gone)
        except RemoteError as error:
            later = f"`sweep gc` tries that again after {folders.STALE_S / 60:.0f} minutes"
            raise StorageError(
                f"{folder.name} was deleted, but its checkpoints were not; {later}: {error}"
            ) from error
        except OSError as error:
            raise StorageError(f"removing {folder.path}: {error.strerror or error}") from error
    return freed


def _delete_runs(folder: Folder) -> int:
    """Mark the sweep's runs deleted, as MLflow's page does; how many there were."""
    where = sync.tracker_context(folder)
    if not where.uri_is_own:
        raise StorageError(
            "somebody else chose its MLflow server (the file tracking-uri); `sweep sync` accepts it"
        )
    if where.tracking_uri is None and not folder.mlflow.is_file():
        return 0
    try:
        store = mlflow_store.look(where, only_read=False)
        if store is None:
            return 0
        with contextlib.closing(store), store.writing():
            runs = [run for run in store.runs() if not run.deleted]
            for run in runs:
                store.delete(run)
    except Exception as error:  # a store may fail in any way
        why = without_password(str(error)).splitlines() or [type(error).__name__]
        text = f"{folder.name} stays: its runs in MLflow were not deleted: {why[0]}"
        raise StorageError(text) from error
    return len(runs)


def clean(folder: Folder, say: Callable[[str], None], keep: int, dry_run: bool) -> Freed:
    """Delete what nobody needs of a sweep.

    That is checkpoints without which it goes on to the same results: each trial that may go on
    keeps its newest two and its best. Further, what a crash or an upgrade left.

    Args:
        folder: the sweep's.
        say: called with what there is to wait for, and what was done.
        keep: so many of the best trials keep their best checkpoint.
        dry_run: count only.

    Raises:
        SweepLocked: a driver holds it.
        UsageError: its ledger is of a newer program.
        StorageError: the disk or the database refused.
    """
    stored = store.of(folder)
    if dry_run:
        history = lookup.read_history(folder)
        return _count(stored, history, _needless(history, keep))
    with hold.hold(folder, say) as held:
        with contextlib.closing(Ledger(folder.ledger)) as ledger:
            history = lookup.read_history(folder)
            dropped = _needless(history, keep)
            freed = _count(stored, history, dropped)
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


@dataclass(frozen=True)
class Orphaned:
    """Runs and models in MLflow of sweeps, or of their trials, that are not in the root."""

    name: str
    runs: tuple[str, ...]
    models: tuple[str, ...]
    """Those of the runs, but for registered ones."""


def orphaned(root: Path) -> list[Orphaned]:
    """Return the runs and models in a root's MLflow file that belong to no sweep there.

    A server is not looked into: others may send it sweeps of theirs.

    Raises:
        StorageError: the file cannot be read.
        SweepError: a sweep of the root cannot be read, so nobody knows what belongs to it.
    """
    if not Folder(root, "").mlflow.is_file():
        return []
    with _of_mlflow(root) as client:
        found = {  # before the sweeps are read, which know of each run before MLflow does
            experiment: list(_runs(client, experiment.experiment_id))
            for experiment in _all(client.search_experiments)
        }
        ids = [experiment.experiment_id for experiment in found]
        models = list(_all(client.search_logged_models, ids)) if ids else []
        registered = [version.source for version in _all(client.search_model_versions)]
    known = {key for name in folders.list_sweeps(root) for key in _known_runs(Folder(root, name))}
    orphans = []
    for experiment, runs in found.items():
        if gone := {run.id for run in runs if (run.tags["sweep.id"], run.name) not in known}:
            its = [one.model_id for one in models if one.source_run_id in gone]
            left = tuple(
                model for model in its if not any(model in source for source in registered)
            )
            orphans.append(Orphaned(experiment.name, tuple(sorted(gone)), left))
    return orphans


def delete_orphaned(root: Path, orphans: Sequence[Orphaned]) -> Iterator[Freed]:
    """Mark it deleted, as MLflow's page does.

    Raises:
        StorageError: MLflow refused; what was marked before stays so.
    """
    for one in orphans:
        with _of_mlflow(root) as client:
            for model in one.models:
                client.delete_logged_model(model)
            for run in one.runs:
                client.delete_run(run)
        yield Freed(one.name, 0, 0, 0, len(one.runs))


@contextlib.contextmanager
def _of_mlflow(root: Path) -> "Iterator[MlflowClient]":
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's are about MLflow
            yield mlflow_store.client_of(mlflow_store.store_url(Folder(root, "")))
    except Exception as error:  # a store may fail in any way
        why = str(error).splitlines() or [type(error).__name__]
        raise StorageError(f"{Folder(root, '').mlflow}: {why[0]}") from error


def _runs(client: "MlflowClient", experiment: str) -> Iterator[StoredRun]:
    """The runs of an experiment that a sweep has made and nobody has deleted."""
    for run in _all(client.search_runs, [experiment], "tags.`sweep.id` LIKE '%'"):
        yield StoredRun(run.info.run_id, run.info.run_name, tags=run.data.tags)


def _all(search: Callable[..., Any], *arguments: object) -> Iterator[Any]:
    """Yield the results of a search by MLflow's client, page by page."""
    token: str | None = None
    while token != "":
        page = search(*arguments, page_token=token)
        yield from page
        token = page.token or ""


def _known_runs(folder: Folder) -> Iterator[tuple[str, str]]:
    """The sweep's id with the name of each run that MLflow may have of it."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        sweep = ledger.sweep_id
    yield sweep, ""
    for replica in lookup.read_history(folder).all_replicas:
        yield sweep, run_name(replica.trial, WHOLE)
        yield sweep, run_name(replica.trial, replica.index)


def clean_root(root: Path, say: Callable[[str], None], dry_run: bool) -> Iterator[Freed]:
    """Delete the folders of sweeps that were killed while they were made or removed.

    Their age alone tells: the number of the process that did it says nothing where each container
    counts its own. What cannot be removed now is passed over, which `say` is called with.
    """
    for path in sorted(root.glob(".*")):
        if not _DRAFT.fullmatch(path.name) or path.is_symlink() or not folders.is_stale(path):
            continue
        try:
            yield _remove_draft(Folder(root, path.name), dry_run)
        except (SweepError, OSError) as error:  # of its server, or of storage
            say(f"{printable(path.name)} is passed over: {error}")


def _remove_draft(draft: Folder, dry_run: bool) -> Freed:
    stored = store.of(draft)
    freed = _measure(stored, draft.name)
    if not dry_run:
        with storage.removing(draft.ledger):
            stored.remove()
            shutil.rmtree(draft.path, ignore_errors=True)
    return freed


def _needless(history: History, keep: int) -> list[Dropped]:
    """Return the checkpoints that may be deleted so that the rest is as little as possible."""
    leaders = [trial.leader for trial in history.ranked()[:keep]]
    kept = {best.digest for leader in leaders if (best := leader.best_checkpoint) is not None}
    numbers = {leader.trial for leader in leaders}
    spared = [
        replace(
            drop,
            digests=tuple(digest for digest in drop.digests if digest not in kept),
            log=drop.log and drop.trial not in numbers,
        )
        for drop in to_drop(history, 0)[0]
    ]
    return [drop for drop in spared if drop.digests or drop.log]


def _count(stored: SweepStore, history: History, dropped: Sequence[Dropped]) -> Freed:
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
    for path in sorted(folder.path.glob("sweep.db.*")):
        if _OLD_LEDGER.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield path


def _measure(stored: SweepStore, name: str) -> Freed:
    """All that a sweep has, on the disk and in storage."""
    files = [p for p in stored.folder.path.rglob("*") if p.is_symlink() or p.is_file()]
    sizes = [(path.name, path.lstat().st_size) for path in files]
    sizes += [(Path(file).name, size) for file, size in stored.list_sizes().items()]
    checkpoints = {file for file, _ in sizes if file.startswith("ckpt-")}
    others = sum(file not in checkpoints for file, _ in sizes)
    return Freed(name, len(checkpoints), others, sum(size for _, size in sizes))
