"""Folder of a sweep on disk, and the lock of its driver.

ROOT/mlflow.db                      all sweeps, for one MLflow page
ROOT/NAME/sweep.yaml                the spec as it was given
          sweep.db  optuna.db       the ledger, and its copy in Optuna's tables
          sweep.postgresql          instead of sweep.db: where the ledger lies on a server
          tracking-uri              where its runs are tracked, if not in mlflow.db
          checkpoints               where its checkpoints lie, if not in trials alone
          attachments               that MLflow is given its report and models when it is finished
          attachments.log           what became of that
          run.lock                  held by the one driver
          trainable/ckpt-*          the trainable of a script or notebook (`sweep.pickled`)
          shared/                   what trials that run at once find out together; not needed again
          trials/N/{ckpt-*, log.txt, log.1.txt, progress.json, slice-*.jsonl}
          logs/trial-N/{params.json, progress.csv, …}   what file trackers write
"""

import contextlib
import fcntl
import glob
import itertools
import json
import os
import secrets
import shlex
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sweep.errors import (
    NameTaken,
    StorageError,
    SweepError,
    SweepLocked,
    UnknownName,
    UsageError,
)
from sweep.history.seeds import replica_name
from sweep.ledger import process
from sweep.ledger.signed import REMOTE
from trainables.checkpoint import disk
from trainables.errors import printable

#: The file that is locked; the kernel lets go of it with the process.
LOCK = "run.lock"
#: The file that says which storage a sweep's checkpoints lie in.
CHECKPOINTS = "checkpoints"
#: The note of a trial's slice in the trial's folder: where it is.
PROGRESS = "progress.json"
#: Names of the files in which slices tell what they do (`sweep.slices.journal`).
JOURNALS = "slice-*.jsonl"
#: In a trial's folder: what it prints, and the part before that.
LOG, OLDER_LOG = "log.txt", "log.1.txt"
#: Seconds that a process that takes the lock has to write down who it is.
SIGN_S = 1.0
#: Seconds that a driver tries to take the lock: a process that looks at the sweep holds it for an
#: instant.
LOOK_S = 0.2
#: A folder that somebody makes or removes, here or on another machine, changes more often, seconds.
STALE_S = 3600.0


class Folder:
    """One sweep's folder, by root and name."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.path = root / name
        self.optuna = self.path / "optuna.db"
        """The file of the copy in Optuna's tables."""
        self.mlflow = root / "mlflow.db"
        """The MLflow database of all sweeps of this root."""
        self.spec = self.path / "sweep.yaml"
        """The spec as it was given."""
        self.trainable = self.path / "trainable"
        """The folder of a script's or notebook's pickled trainable."""
        self.tracking_uri = self.path / "tracking-uri"
        """The file with the tracking URI, if the runs are not tracked in `mlflow`."""
        self.checkpoints = self.path / CHECKPOINTS
        """Which storage its checkpoints lie in, if it is not this folder."""
        self.attachments = self.path / "attachments"
        """That MLflow is given what it has of a finished sweep beside its rows."""
        self.attachments_log = self.path / "attachments.log"
        """The log of the attachments; locked by the process that sends them."""
        self.shared = self.path / "shared"
        """The folder in which concurrent trials share measurements."""
        self.logs = self.path / "logs"
        """The folder of trackers that keep files."""
        self._has_trials = False
        """True once the folder of all trials' folders is known to be durable."""

    @property
    def ledger(self) -> Path:
        """The ledger's file, or that which says on which server it is (`sweep.ledger.storage`)."""
        local = self.path / "sweep.db"
        remote = local.with_suffix(REMOTE)
        return remote if remote.exists() else local

    @property
    def in_commands(self) -> str:
        """The arguments by which a command typed here finds this sweep: ``demo --root /data``."""
        return f"{shlex.quote(self.name)}{root_option(self.root)}"

    def require_plain(self) -> None:
        """Refuse a folder in which something else lies than a sweep puts there; see `plain`."""
        for database in (self.ledger, self.optuna, self.mlflow):
            for suffix in ("", "-wal", "-shm"):
                plain(database.with_name(f"{database.name}{suffix}"))
        mine = (self.spec, self.tracking_uri, self.checkpoints, self.path / LOCK)
        for path in (*mine, self.attachments, self.attachments_log):
            plain(path)

    def trial(self, number: int, replica: int = 0) -> Path:
        """The folder of one replica: ``trials/12``, ``trials/12.1``, ``trials/12.test0``."""
        return self.path / "trials" / replica_name(number, replica)

    def make_trial(self, number: int, replica: int = 0) -> Path:
        """The folder of one replica, made durable if it was not there.

        Raises:
            UsageError: a link lies in its place, so that files would go elsewhere.
        """
        folder = self.trial(number, replica)
        if leads_elsewhere(folder):
            raise UsageError(f"{folder}: a link; a trial's folder must lie in that of its sweep")
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            fsync(folder.parent)
            if not self._has_trials:
                fsync(self.path)
                self._has_trials = True
        return folder

    def stop_file(self, term: int, trial: int | None = None) -> Path:
        """The file at whose sight the slices of `term` end, or those of one trial."""
        of_trial = "" if trial is None else f"-{trial}"
        return self.path / f".stop-{term}{of_trial}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one driver of this sweep on this host; SweepLocked if another is.

        The lock goes with the process, however it ends.
        """
        path = self.path / LOCK
        plain(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o644)  # whoever may read it sees whether it is held
        try:
            if not _take(descriptor):
                raise SweepLocked(self.name, _holder(descriptor))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_me()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Return whether a driver on this machine holds the sweep, in any container, of any user.

        The lock is tried for an instant, and not at all if its last holder is known to be dead, so
        that looking rarely makes a driver wait that starts at that moment.

        Raises:
            PermissionError: the lock may not be read.
        """
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except PermissionError:
            raise
        except OSError:
            return False
        try:
            if _has_ended(os.pread(descriptor, 1000, 0)):
                return False
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextmanager
    def creating(self) -> Iterator["Folder"]:
        """A folder that becomes this one when everything in it is written.

        Raises:
            NameTaken: there is one of this name.
            UsageError: there is one whose name differs in upper and lower case alone.
        """
        self._refuse_a_name_in_other_case()
        if self.path.exists():
            raise self._taken()
        try:
            with arriving(self.path, self._undo) as draft:
                yield Folder(self.root, draft.name)
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and self.ledger.exists():
                raise self._taken() from error  # somebody else was quicker
            raise

    def _refuse_a_name_in_other_case(self) -> None:
        """Raise UsageError where a disk that ignores case would have one folder for both names."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in (path.name for path in self.root.iterdir()):
                if name != self.name and name.lower() == self.name.lower():
                    raise UsageError(
                        f"name: '{self.name}' differs from '{name}' in {self.root} in upper and "
                        f"lower case alone, which not every disk tells apart; give another --name"
                    )

    def _undo(self, draft: Path) -> None:
        """Remove what a draft that becomes nothing has on a server."""
        from sweep.ledger import storage  # a worker has this file, and opens no ledger

        its = Folder(self.root, draft.name).ledger
        with contextlib.suppress(SweepError), storage.removing(its):
            pass

    def _taken(self) -> NameTaken:
        return NameTaken(
            f"name: the sweep '{self.name}' exists already in {self.root}; go on with "
            f"`sweep resume {self.in_commands}`, delete it with `sweep rm {self.in_commands}`, or "
            f"give another --name"
        )


def free_name(root: Path, name: str) -> str:
    """`name`, or where a sweep in `root` has it already, the first of ``name-2``, … that is free.

    Names that differ in upper and lower case alone count as the same.
    """
    taken: set[str] = set()
    with contextlib.suppress(OSError):  # it is made later, or refused then
        taken = {path.name.lower() for path in root.iterdir()}
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one.lower() not in taken)


def journal(number: int) -> str:
    """Return the name of the file in which slice `number` of a trial tells what it does."""
    return JOURNALS.replace("*", str(number))


def root_option(root: str | Path) -> str:
    """Return the option with which a command typed in this folder finds `root`; may be empty."""
    if Path(root).absolute() == Path("sweeps").absolute():
        return ""
    return f" --root {shlex.quote(printable(str(root)))}"


@contextmanager
def arriving(path: Path, undo: Callable[[Path], None] = lambda _draft: None) -> Iterator[Path]:
    """A new folder beside `path` that takes its name when everything in it is written.

    Each call writes into a draft of its own: another thread, or a process of another container with
    the same number, may make one of this name at the same time. What was left there half made is
    deleted when it is old; `undo` is called with a draft that is given up.

    Raises:
        StorageError: the disk does not let it be written.
    """
    path = path.resolve()
    draft = path.parent / f".{path.name}.new-{secrets.token_hex(4)}-{os.getpid()}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_drafts(path)
        draft.mkdir()
        try:
            yield draft
            fsync(draft)
            draft.rename(path)
            fsync(path.parent)
        finally:
            if draft.exists():
                undo(draft)
                shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise StorageError(f"making {path}: {why}: {error.filename or draft}") from error


def plain(path: Path) -> None:
    """Refuse what is neither a file nor nothing.

    A link leads what is read and written elsewhere, and a pipe holds it up for ever.

    Raises:
        UsageError: it is something else.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kind = "a link" if stat.S_ISLNK(mode) else "no file"
        raise UsageError(f"{path}: {kind}, where sweeps have a file of their own; move it away")


@contextmanager
def reading(path: Path) -> Iterator[tuple[int, int]]:
    """Descriptor and size, bytes, of a file of a trial.

    Raises:
        UsageError: something else lies in its place, or the trial's folder is a link.
        OSError: as the system says.
    """
    if leads_elsewhere(path.parent):
        raise UsageError(f"{path.parent}: a link; a trial's folder must lie in that of its sweep")
    plain(path)
    try:
        with disk.reading(path) as found:
            yield found
    except disk.NotRegular:  # since just now
        raise UsageError(f"{path}: no file") from None


# ---- notes beside the ledger ------------------------------------------------------------------


# ---- what lies there ----------------------------------------------------------------------------


def leads_elsewhere(trial: Path) -> bool:
    """Return whether a trial's folder, or the one above it, is a link."""
    return trial.is_symlink() or trial.parent.is_symlink()


def _remove_drafts(path: Path) -> None:
    """Delete drafts by their age alone: their makers may be on other machines, or in containers."""
    for draft in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
        on_a_server = (draft / f"sweep{REMOTE}").exists()  # `sweep gc` removes what it has there
        if is_stale(draft) and not on_a_server:
            shutil.rmtree(draft, ignore_errors=True)


def is_stale(draft: Path) -> bool:
    """Return whether the maker or remover of this folder is gone."""
    try:
        return time.time() - draft.lstat().st_mtime > STALE_S
    except FileNotFoundError:  # it has its name now, or is gone
        return False


def fsync(folder: Path) -> None:
    """Make the names in `folder` durable."""
    with disk.open_folder(folder) as descriptor:
        disk.sync(descriptor)


def existing(root: Path) -> list[str]:
    """The names of the sweeps in `root`."""
    files = (*root.glob("[!.]*/sweep.db"), *root.glob(f"[!.]*/sweep{REMOTE}"))
    return sorted({path.parent.name for path in files})


def find(root: Path, name: str) -> Folder:
    """The folder of an existing sweep.

    Raises:
        UnknownName: there is none; with the nearest one.
        UsageError: something else lies in it than a sweep puts there.
    """
    names = existing(root)
    if name not in names:
        hint = f"looked in {root}; `sweep run` starts one, --root looks elsewhere"
        raise UnknownName("sweep", name, names, hint)
    found = Folder(root, name)
    found.require_plain()
    return found


# ---- the lock -----------------------------------------------------------------------------------


def _take(descriptor: int) -> bool:
    """Take the lock; False if another process keeps it for longer than a look takes."""
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        else:
            return True


#: Raised by a lock file that is empty, half written or of something else.
_NO_SIGNATURE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


def _me() -> dict[str, Any]:
    """Return the signature that the holder of a lock writes into its file."""
    pid, host = os.getpid(), socket.gethostname()
    return {"pid": pid, "namespace": process.namespace(), "host": host, "since": time.time()}


def _has_ended(signature: bytes) -> bool:
    """Return whether the process that signed a lock is dead; False if unknown here."""
    try:
        who = json.loads(signature)
        here = who["host"] == socket.gethostname()
        return here and process.runs(int(who["pid"]), who["namespace"]) is False
    except _NO_SIGNATURE:
        return False


def _holder(descriptor: int) -> str:
    """The holder of the lock, as text; a new holder is given a moment to write its name."""
    deadline = time.monotonic() + SIGN_S
    while True:
        signature = os.pread(descriptor, 1000, 0)
        with contextlib.suppress(*_NO_SIGNATURE, OSError):
            who = json.loads(signature)
            if not _has_ended(signature):
                since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
                return f"process {who['pid']} on {who['host']}, since {since},"
        if time.monotonic() > deadline:
            return "another process"
        time.sleep(0.01)


def log_size(trial: Path) -> int:
    """Bytes of the log in a trial's folder."""
    size = 0
    for name in (LOG, OLDER_LOG):
        with contextlib.suppress(OSError):
            size += (trial / name).lstat().st_size
    return size


def remove_log(trial: Path) -> None:
    """Delete the log in a trial's folder; one that the disk keeps stays."""
    for name in (LOG, OLDER_LOG):
        with contextlib.suppress(OSError):
            (trial / name).unlink()
