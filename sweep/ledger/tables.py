"""The ledger's tables, and how an SQLite file of ours is opened."""

import os
import re
import sqlite3
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sweep.errors import DamagedLedger, StorageError
from sweep.ledger.codec import DecodeError

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
#: Types of file systems that several machines share.
_SHARED = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs", "beegfs", "sshfs")
) | {"glusterfs", "gfs2", "ocfs2", "orangefs", "wekafs"}

#: Seconds that one waits for another's transaction.
BUSY_S = 60.0
#: Codes of SQLite that are about rights, locks and room, not about the file's content.
_AWAY = frozenset(
    (
        *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM),
    )
)

metadata = sa.MetaData()
sweep = sa.Table(
    "sweep",
    metadata,
    sa.Column("id", sa.String, primary_key=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("provenance", sa.Text, nullable=False),
    sa.Column("created_at", sa.Float, nullable=False),
)
events = sa.Table(
    "events",
    metadata,
    sa.Column("k", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("trial", sa.Integer, index=True),
    sa.Column("body", sa.Text, nullable=False),
)
results = sa.Table(
    "results",
    metadata,
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("replica", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("iteration", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("k", sa.Integer, nullable=False, index=True),
    sa.Column("metrics", sa.Text, nullable=False),
)
superseded = sa.Table(
    "superseded",
    metadata,
    sa.Column("k", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("replica", sa.Integer, nullable=False),
    sa.Column("iteration", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("metrics", sa.Text, nullable=False),
)
replicas = sa.Table(
    "replicas",
    metadata,
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("replica", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String, nullable=False),
)
published = sa.Table(
    "published",
    metadata,
    sa.Column("tracker", sa.String, primary_key=True),
    sa.Column("k", sa.Integer, nullable=False),
)
lease = sa.Table(
    "lease",
    metadata,
    sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("host", sa.String),
    sa.Column("kernel", sa.String, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("since", sa.Float, nullable=False),
    sa.Column("renewed", sa.Integer, nullable=False),
)
requests = sa.Table(
    "requests",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("verb", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("answered_at", sa.Float),
    sa.Column("answer", sa.Text),
)


def connect(path: Path) -> sa.Engine:
    """An engine for an SQLite file with the settings that every file of ours needs.

    Full sync makes a commit survive a power cut; transactions take the write lock at once, since
    one that reads first cannot wait for it later. A file in a folder in which one may not write can
    be read.
    """
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)), creator=lambda: _opened(path)
    )

    @sa.event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in (
            "synchronous=FULL",
            "foreign_keys=ON",
            "trusted_schema=OFF",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        immediate = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def keep_journal(path: Path) -> None:
    """Set how an SQLite file is written to, which it remembers; whoever holds the sweep does.

    WAL lets readers work while the driver writes. It is memory that the machine's processes share,
    so on a file system of several machines the file has a rollback journal, and readers and the
    driver wait for each other.
    """
    journal = "DELETE" if _is_shared(path) else "WAL"
    with outside(path), closing(sqlite3.connect(path, timeout=BUSY_S)) as database:
        database.execute(f"PRAGMA journal_mode={journal}")


def _opened(path: Path) -> sqlite3.Connection:
    """To read and write where one may; the engine's pool keeps each connection to its thread."""
    if os.access(path.parent, os.W_OK):
        return sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    return reading(path, check_same_thread=False)


def _is_shared(path: Path) -> bool:
    """Whether other machines may see the file too: by the type of what is mounted nearest to it."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    above = {str(folder) for folder in path.absolute().resolve().parents}
    kind, longest = "", 0
    for mount in mounts:  # 36 35 98:0 /root /mount-point options … - type source options
        place, _, rest = mount.partition(" - ")
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), place.split(" ")[4])
        if point in above and len(point) >= longest:  # the last one at a place covers others
            kind, longest = rest.split(" ")[0], len(point)
    return kind.removeprefix("fuse.") in _SHARED


def reading(path: Path, check_same_thread: bool = True) -> sqlite3.Connection:
    """An SQLite file that is only read, and must be there.

    Reading WAL takes a file beside it, which cannot be made in a folder in which one may not write.
    There, unless somebody has it open at this moment, the file is taken to stay as it is.
    """
    still = not os.access(path.parent, os.W_OK) and _is_closed_wal(path)
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=check_same_thread)


def _is_closed_wal(path: Path) -> bool:
    """Whether the file is in WAL mode, by its header, and no process has it open for writing."""
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:
        return False
    return header[18:] == b"\x02\x02" and not path.with_name(f"{path.name}-wal").exists()


def writing(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
    """A transaction that has the write lock from its beginning."""
    return engine.execution_options(write=True).begin()


class outside:  # noqa: N801 reads as a phrase: with outside(path)
    """Turns what a database reports into one sentence that names the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, sa.exc.SQLAlchemyError | sqlite3.Error | UnicodeDecodeError):
            raise StorageError(f"the database {self._path}: {reason(error)}") from error
        if isinstance(error, DecodeError):
            raise DamagedLedger(self._path, str(error)) from error


def reason(error: Exception) -> str:
    """What the database says, on one line."""
    cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    return str(cause).splitlines()[0]


#: What an SQLite file may hold that a driver never makes: what is computed when it is read.
STRANGE = (
    "SELECT type, name FROM sqlite_master "
    "WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1"
)


def has(path: Path, table: str) -> bool:
    """Whether an SQLite file that can be read has a table of this name."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    with closing(reading(path)) as database:
        return database.execute(query, (table,)).fetchone() is not None


def is_away(error: Exception) -> bool:
    """Whether a file could not be looked into, which says nothing about what is in it."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _AWAY


def unreadable(path: Path) -> str:
    """Why an SQLite file cannot be read, or what is damaged in it; empty: it is whole.

    Raises:
        StorageError: it cannot be looked into.
    """
    if not path.exists():
        return f"{path.name} is gone"
    try:
        with closing(reading(path)) as database:
            (told,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        if is_away(error):
            raise StorageError(f"the database {path}: {error}") from error
        return f"{path.name} cannot be read ({error})"
    return "" if told == "ok" else f"{path.name} is damaged ({told})"
