"""Folder of a sweep on disk, and the lock of its driver.

ROOT/mlflow.db                      all sweeps, for one MLflow page
ROOT/NAME/sweep.yaml                the original spec
          sweep.db  optuna.db       the ledger, and its copy in Optuna's tables
          sweep.postgresql          instead of sweep.db: address of a ledger on a server
          tracking-uri              the tracking URI of its runs, if not mlflow.db
          checkpoints               the storage of its checkpoints, if not only this folder
          attachments               present if MLflow gets the report and models at the end
          attachments.log           log of sending these attachments
          by-a-model                present if a language model started the sweep (`sweep mcp`)
          run.lock                  locked by the one driver
          trainable/ckpt-*          the trainable of a script or notebook (`sweep.core.pickled`)
          pool.json                 last remark of its pool, for `sweep status`
          shared/                   measurements shared by concurrent trials; not needed again
          trials/N/{ckpt-*, log.txt, log.1.txt, progress.json, slice-*.jsonl}
          logs/trial-N/{params.json, progress.csv, …}   files of file trackers
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

from sweep.core.errors import (
    NameTaken,
    StorageError,
    SweepError,
    SweepLocked,
    UnknownName,
    UsageError,
    with_remedy,
)
from sweep.history.seeds import replica_name
from sweep.ledger import process
from sweep.ledger.signed import REMOTE
from trainables.checkpoint import disk
from trainables.errors import printable

#: Name of the lock file; the kernel releases the lock when the process ends.
LOCK = "run.lock"
#: Name of the file that names the storage of a sweep's checkpoints.
CHECKPOINTS = "checkpoints"
#: Name of the file in a trial's folder with the position of its running slice.
PROGRESS = "progress.json"
#: Pattern of the journals that slices write (`sweep.slices.journal`).
JOURNALS = "slice-*.jsonl"
#: Names of the log in a trial's folder: the newest part of its output, and the part before it.
LOG, OLDER_LOG = "log.txt", "log.1.txt"
#: Seconds within which a new holder of the lock writes its signature.
SIGN_S = 1.0
#: Seconds for which a driver tries to take the lock: `Folder.is_locked` holds it for an instant.
LOOK_S = 0.2
#: Age in seconds after which a draft folder counts as abandoned; live ones change more often.
STALE_S = 3600.0
#: Bytes of the note of a pool's remark that are read; a longer one is torn.
_LONGEST_REMARK = 2**12
#: Flags that open a file for writing, emptied if it exists.
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Folder:
    """Paths of one sweep's files; nothing is created before a method does so.

    `root` is the folder of all sweeps, and `name` the sweep's own folder in it.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.name = name
        self.path = root / name
        self.optuna = self.path / "optuna.db"
        """File of the copy in Optuna's tables."""
        self.mlflow = root / "mlflow.db"
        """MLflow database of all sweeps in this root."""
        self.spec = self.path / "sweep.yaml"
        """File with the original spec."""
        self.trainable = self.path / "trainable"
        """Folder of a script's or notebook's pickled trainable."""
        self.tracking_uri = self.path / "tracking-uri"
        """File with the tracking URI, if the runs are not tracked in `mlflow`."""
        self.checkpoints = self.path / CHECKPOINTS
        """File that names the storage of the checkpoints, if that is not this folder."""
        self.attachments = self.path / "attachments"
        """File that exists if MLflow gets the report and models of the finished sweep."""
        self.attachments_log = self.path / "attachments.log"
        """Log of the attachments; locked by the process that sends them."""
        self.by_a_model = self.path / "by-a-model"
        """File that exists if a language model started the sweep."""
        self.shared = self.path / "shared"
        """Folder in which concurrent trials share measurements."""
        self.pool = self.path / "pool.json"
        """File with the last remark of the driver's pool."""
        self.logs = self.path / "logs"
        """Folder for the files of file trackers."""
        self._has_trials = False
        """True once ``trials`` itself is known to be durable on disk."""

    @property
    def ledger(self) -> Path:
        """Path of the SQLite file ``sweep.db``, by default.

        It is the path of the file with the address of the ledger's server if that exists.
        """
        local = self.path / "sweep.db"
        remote = local.with_suffix(REMOTE)
        return remote if remote.exists() else local

    @property
    def in_commands(self) -> str:
        """Arguments that name this sweep in a shell command for the user: ``demo --root /data``."""
        return f"{shlex.quote(self.name)}{root_option(self.root)}"

    def require_plain(self) -> None:
        """Raise UsageError if a file of the sweep, or `mlflow`, is a link or no regular file.

        Files that do not exist are accepted, and files of trials are not checked.
        """
        for database in (self.ledger, self.optuna, self.mlflow):
            for suffix in ("", "-wal", "-shm"):
                require_regular_file(database.with_name(f"{database.name}{suffix}"))
        mine = (self.spec, self.tracking_uri, self.checkpoints, self.path / LOCK)
        for path in (*mine, self.attachments, self.attachments_log, self.by_a_model):
            require_regular_file(path)

    def trial(self, number: int, replica: int = 0) -> Path:
        """Return the path of a replica's folder.

        It ends with ``trials/12`` for the first seed of trial 12, ``trials/12.1`` for the second
        and ``trials/12.test0`` for the first test. `number` is the trial's number; `replica` is the
        index of its seed.
        """
        return self.path / "trials" / replica_name(number, replica)

    def make_trial(self, number: int, replica: int = 0) -> Path:
        """Return the path of a replica's folder, creating it durably if it does not exist.

        Raises:
            UsageError: the folder or its parent is a link, so that files would be written
                elsewhere.
        """
        folder = self.trial(number, replica)
        if leads_elsewhere(folder):
            raise UsageError(link_problem(folder))
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            fsync(folder.parent)
            if not self._has_trials:
                fsync(self.path)
                self._has_trials = True
        return folder

    def stop_file(self, term: int, trial: int | None = None) -> Path:
        """Return the path of the file whose presence tells slices to end.

        It ends all slices of driver term `term`, or only those of `trial`.
        """
        of_trial = "" if trial is None else f"-{trial}"
        return self.path / f".stop-{term}{of_trial}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold this sweep's lock file inside the block, so that no other process here drives it.

        The kernel releases the lock if the process dies. Writes pid, host and time into the file,
        which stays. Raises SweepLocked if another process holds the lock for longer than `LOOK_S`,
        and UsageError if the lock file is a link or no regular file.
        """
        path = self.path / LOCK
        require_regular_file(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o644)  # other users who may read it can test the lock
        try:
            if not _try_lock(descriptor):
                raise SweepLocked(self.name, _describe_holder(descriptor))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(_own_signature()).encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Return whether a process on this machine holds the sweep's lock, in any container.

        The lock is tried for an instant, and not at all if its last holder is known to be dead, so
        that this test rarely delays a driver that starts at the same moment. Returns False if there
        is no lock file. Raises PermissionError if it may not be read.
        """
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except PermissionError:
            raise
        except OSError:
            return False
        try:
            if _has_signer_ended(os.pread(descriptor, 1000, 0)):
                return False
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextmanager
    def creating(self) -> Iterator["Folder"]:
        """Yield a draft folder that is renamed to this one when the block ends without an error.

        If the block fails, the draft is deleted, with the schema on a server that it names.

        Raises:
            NameTaken: a sweep of this name exists, or appeared meanwhile.
            UsageError: a sweep exists whose name differs only in upper and lower case.
            StorageError: the disk refused.
        """
        self._refuse_a_name_in_other_case()
        if self.path.exists():
            raise self._name_taken_error()
        try:
            with create_atomically(self.path, self._remove_draft_schema) as draft:
                yield Folder(self.root, draft.name)
        except StorageError as error:
            if isinstance(error.__cause__, OSError) and self.ledger.exists():
                raise self._name_taken_error() from error  # another process created it meanwhile
            raise

    def _refuse_a_name_in_other_case(self) -> None:
        """Raise UsageError if a name in the root differs only in upper and lower case.

        Not every disk can hold both. The name may be that of any file or folder.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in (path.name for path in self.root.iterdir()):
                if name != self.name and name.lower() == self.name.lower():
                    raise UsageError(
                        f"name: '{self.name}' and the existing '{name}' in {self.root} "
                        "differ only in upper and lower case, which not every file system "
                        "distinguishes; give another --name"
                    )

    def _remove_draft_schema(self, draft: Path) -> None:
        """Delete the PostgreSQL schema that an abandoned draft folder names, if any.

        Errors are ignored.
        """
        # not at the top, as workers open no ledger
        from sweep.ledger import storage

        its = Folder(self.root, draft.name).ledger
        with contextlib.suppress(SweepError), storage.removing(its):
            pass

    def _name_taken_error(self) -> NameTaken:
        """Return the error for a sweep that exists already, with commands to continue it."""
        return NameTaken(
            f"name: the sweep '{self.name}' exists already in {self.root}; continue with "
            f"`sweep resume {self.in_commands}`, delete it with `sweep rm {self.in_commands}`, or "
            f"give another --name"
        )


def free_name(root: Path, name: str) -> str:
    """Return `name`, or the first of ``name-2``, ``name-3``, … that nothing in `root` has.

    Other files and folders count like sweeps, and upper and lower case are not told apart. A name
    that would become too long for a sweep is cut before the number.
    """
    from sweep.spec.sections import LONGEST_NAME  # not at the top: workers read no spec

    taken: set[str] = set()
    with contextlib.suppress(OSError):  # the root is created, or refused, later
        taken = {path.name.lower() for path in root.iterdir()}
    ends = (f"-{number}" for number in itertools.count(2))
    numbered = (name[: LONGEST_NAME - len(end)] + end for end in ends)
    return next(one for one in itertools.chain([name], numbered) if one.lower() not in taken)


def journal(number: int) -> str:
    """Return the file name of the journal that slice `number` of a replica writes.

    For example, ``slice-3.jsonl`` is that of slice 3.
    """
    return JOURNALS.replace("*", str(number))


def root_option(root: str | Path) -> str:
    """Return the option `` --root …`` (with a space before it) for a shell command.

    Returns an empty text if `root` is the default one, ``sweeps``.
    """
    if Path(root).absolute() == Path("sweeps").absolute():
        return ""
    return f" --root {shlex.quote(printable(str(root)))}"


@contextmanager
def create_atomically(
    path: Path, undo: Callable[[Path], None] = lambda _draft: None
) -> Iterator[Path]:
    """Yield a new draft folder, renamed to `path` when the block ends without an error.

    It lies beside `path`, whose parent folders are created. Each call writes into a draft of its
    own, since another thread, or a process of another container with the same pid, may create the
    same name at the same time. If the block fails, the draft is deleted; old drafts of killed
    processes are deleted first.

    Args:
        undo: called with the draft before it is deleted because the block failed.

    Raises:
        StorageError: the disk refused, the block raised OSError, or `path` exists and is not an
            empty folder.
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
        where = error.filename or draft
        raise StorageError(f"cannot create {path}: {where}: {with_remedy(error)}") from error


def require_regular_file(path: Path) -> None:
    """Raise UsageError if `path` exists and is not a regular file.

    A link would redirect reads and writes, and opening a pipe would block forever.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file"
        raise UsageError(f"{path}: is {kind}, but sweep stores a file there; move it away")


@contextmanager
def reading(path: Path) -> Iterator[tuple[int, int]]:
    """Open a file in a trial's folder for reading; yield its descriptor and its size in bytes.

    Raises:
        UsageError: `path` is not a regular file, or the trial's folder is a link.
        OSError: the file cannot be opened.
    """
    if leads_elsewhere(path.parent):
        raise UsageError(link_problem(path.parent))
    require_regular_file(path)
    try:
        with disk.open_regular_file(path) as found:
            yield found
    except disk.NotRegular:  # it was replaced a moment ago
        raise UsageError(
            f"{path}: is not a regular file, but sweep stores one there; move it away"
        ) from None


# ---- notes beside the ledger ------------------------------------------------------------------


def note_remark(folder: Folder, term: int, remark: str) -> None:
    """Write a text of the pool, for `sweep status`, to the sweep's folder; errors are ignored.

    `term` is the number of the driver's term, so that a later driver's readers ignore the text.
    """
    note = json.dumps({"term": term, "remark": remark}).encode()
    with (
        contextlib.suppress(OSError, disk.NotRegular),
        disk.closing(disk.open_file(folder.pool, _WRITE_ANEW)) as file,
    ):
        os.write(file, note)


def noted_remark(folder: Folder, term: int) -> str:
    """Return the text that the pool of the driver in `term` left for `sweep status`.

    Returns an empty text if there is none, it is torn, or the pool of another term wrote it.
    Nothing has checked the text: show it, but do not act on it.
    """
    with contextlib.suppress(OSError, disk.NotRegular, ValueError, KeyError, TypeError):
        with disk.open_regular_file(folder.pool) as (file, _size):
            note = json.loads(os.pread(file, _LONGEST_REMARK, 0))
        if note["term"] == term:
            return str(note["remark"])
    return ""


# ---- contents of the root folder ----------------------------------------------------------------


def link_problem(trial: Path) -> str:
    """Return the message about a trial's folder that `leads_elsewhere`; it names the link."""
    link = trial if trial.is_symlink() else trial.parent
    return (
        f"{link}: is a symbolic link, but a trial's folder must be inside its sweep's "
        "folder; replace the link with the folder to which it points"
    )


def leads_elsewhere(trial: Path) -> bool:
    """Return whether a trial's folder, or the folder above it, is a symbolic link."""
    return trial.is_symlink() or trial.parent.is_symlink()


def _remove_drafts(path: Path) -> None:
    """Delete abandoned draft folders of `path`, except those with a ledger on a server.

    A draft is abandoned if it has not changed for `STALE_S` seconds. Errors are ignored.
    """
    for draft in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
        # `sweep gc` removes both draft and schema
        on_a_server = (draft / f"sweep{REMOTE}").exists()
        if is_stale(draft) and not on_a_server:
            shutil.rmtree(draft, ignore_errors=True)


def is_stale(draft: Path) -> bool:
    """Return whether a draft folder has not changed for `STALE_S` seconds.

    Its process is then gone. Returns False if the folder does not exist any more.
    """
    try:
        return time.time() - draft.lstat().st_mtime > STALE_S
    except FileNotFoundError:  # it was renamed or deleted meanwhile
        return False


def fsync(folder: Path) -> None:
    """Flush the entries of a directory to disk, so that new files in it survive a power cut."""
    with disk.open_folder(folder) as descriptor:
        disk.sync(descriptor)


def list_sweeps(root: Path) -> list[str]:
    """Return the names of the sweeps in `root`, sorted: the folders that have a ledger.

    Folders whose names begin with a dot, such as drafts, are left out.
    """
    files = (*root.glob("[!.]*/sweep.db"), *root.glob(f"[!.]*/sweep{REMOTE}"))
    return sorted({path.parent.name for path in files})


def find(root: Path, name: str) -> Folder:
    """Return the folder of an existing sweep, after checking that its files are no links.

    Raises:
        UnknownName: `root` has no sweep `name`; the message names the most similar one.
        UsageError: one of the sweep's own files is a link or no regular file.
    """
    names = list_sweeps(root)
    if name not in names:
        hint = (
            f"sweeps were looked for in {root}; start one with `sweep run`, or give another root "
            "folder with --root"
        )
        raise UnknownName("sweep", name, names, hint)
    found = Folder(root, name)
    found.require_plain()
    return found


# ---- the lock -----------------------------------------------------------------------------------


def _try_lock(descriptor: int) -> bool:
    """Lock an open file exclusively, and return whether that succeeded within `LOOK_S` seconds."""
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


#: Errors raised by parsing a lock file that is empty, half written or something else.
_SIGNATURE_ERRORS = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


def _own_signature() -> dict[str, Any]:
    """Return the fields by which this process signs a lock file, to be written as JSON.

    They are ``pid``, ``namespace`` (of pids), ``host`` and ``since`` (now, in seconds since 1970).
    """
    pid, host = os.getpid(), socket.gethostname()
    return {"pid": pid, "namespace": process.namespace(), "host": host, "since": time.time()}


def _has_signer_ended(signature: bytes) -> bool:
    """Return whether the process that signed a lock file is dead.

    Returns False if that cannot be known here.
    """
    try:
        who = json.loads(signature)
        here = who["host"] == socket.gethostname()
        return here and process.runs(int(who["pid"]), who["namespace"]) is False
    except _SIGNATURE_ERRORS:
        return False


def _describe_holder(descriptor: int) -> str:
    """Return a text about the process that holds a locked file.

    It is like ``process 12 on host, since 2026-01-01 10:00:00,``. Waits up to `SIGN_S` seconds for
    the process to sign the file; else returns ``another process``.
    """
    deadline = time.monotonic() + SIGN_S
    while True:
        signature = os.pread(descriptor, 1000, 0)
        with contextlib.suppress(*_SIGNATURE_ERRORS, OSError):
            who = json.loads(signature)
            if not _has_signer_ended(signature):
                since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(who["since"]))
                return f"process {who['pid']} on {who['host']}, since {since},"
        if time.monotonic() > deadline:
            return "another process"
        time.sleep(0.01)


def log_size(trial: Path) -> int:
    """Return the size in bytes of the log in a trial's folder, both parts together.

    Returns 0 without one.
    """
    size = 0
    for name in (LOG, OLDER_LOG):
        with contextlib.suppress(OSError):
            size += (trial / name).lstat().st_size
    return size


def remove_log(trial: Path) -> None:
    """Delete the log files in a trial's folder; errors are ignored."""
    for name in (LOG, OLDER_LOG):
        with contextlib.suppress(OSError):
            (trial / name).unlink()
