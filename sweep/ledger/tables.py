"""The ledger's tables, and how an SQLite file of ours is opened."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

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

#: Today's tables; how they came to be stands in `sweep.ledger.migrations`.
SCHEMA = """
CREATE TABLE sweep (
    id VARCHAR NOT NULL, name VARCHAR NOT NULL, spec TEXT NOT NULL, provenance TEXT NOT NULL,
    created_at FLOAT NOT NULL, PRIMARY KEY (id)
);
CREATE TABLE events (
    k INTEGER NOT NULL, epoch INTEGER NOT NULL, at FLOAT NOT NULL, kind VARCHAR NOT NULL,
    trial INTEGER, body TEXT NOT NULL, PRIMARY KEY (k)
);
CREATE INDEX ix_events_trial ON events (trial);
CREATE TABLE results (
    trial INTEGER NOT NULL, replica INTEGER NOT NULL, iteration INTEGER NOT NULL,
    k INTEGER NOT NULL, metrics TEXT NOT NULL, PRIMARY KEY (trial, replica, iteration)
);
CREATE INDEX ix_results_k ON results (k);
CREATE TABLE superseded (
    k INTEGER NOT NULL, trial INTEGER NOT NULL, replica INTEGER NOT NULL,
    iteration INTEGER NOT NULL, metrics TEXT NOT NULL, PRIMARY KEY (k, iteration)
);
CREATE TABLE replicas (
    trial INTEGER NOT NULL, replica INTEGER NOT NULL, status VARCHAR NOT NULL,
    PRIMARY KEY (trial, replica)
);
CREATE TABLE published (
    tracker VARCHAR NOT NULL, k INTEGER NOT NULL, PRIMARY KEY (tracker)
);
CREATE TABLE lease (
    epoch INTEGER NOT NULL, host VARCHAR, kernel VARCHAR NOT NULL, pid INTEGER NOT NULL,
    since FLOAT NOT NULL, renewed INTEGER NOT NULL, PRIMARY KEY (epoch)
);
CREATE TABLE requests (
    number INTEGER NOT NULL, epoch INTEGER NOT NULL, at FLOAT NOT NULL, verb VARCHAR NOT NULL,
    body TEXT NOT NULL, answered_at FLOAT, answer TEXT, PRIMARY KEY (number)
);
"""


class Database:
    """An SQLite file of ours: one connection, opened with the first transaction.

    What the database reports is raised as `outside` says. Full sync makes a commit survive a power
    cut. A file in a folder in which one may not write can be read. Threads may use it in turn.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        """Let go of the file; the next transaction opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that only reads: all of it sees the file at one moment."""
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that has the write lock from its beginning.

        One that reads first cannot wait for the lock later.
        """
        return self._transaction("BEGIN IMMEDIATE")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with outside(self.path):
            if self._connection is None:
                self._connection = opened(self.path)
            connection = self._connection
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # it may have been rolled back by what went wrong
                    connection.execute("ROLLBACK")
                raise


def keep_journal(path: Path) -> None:
    """Set how an SQLite file is written to, which it remembers; the holder of the sweep does.

    WAL lets readers work while the driver writes. It is memory that the machine's processes share,
    so on a file system of several machines the file has a rollback journal, and readers and the
    driver wait for each other.
    """
    journal = "DELETE" if _is_shared(path) else "WAL"
    with outside(path), closing(sqlite3.connect(path, timeout=BUSY_S)) as database:
        database.execute(f"PRAGMA journal_mode={journal}")


def opened(path: Path) -> sqlite3.Connection:
    """A connection of which every transaction is begun in so many words; it writes where it may."""
    if os.access(path.parent, os.W_OK):
        connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    else:
        connection = reading(path, check_same_thread=False)
    connection.isolation_level = None
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "trusted_schema=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _is_shared(path: Path) -> bool:
    """Whether other machines may see the file too: by the type of what is mounted nearest to it."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    above = {str(folder) for folder in path.absolute().resolve().parents}
    kind, longest = "", 0
    for mount in mounts:  # 36 35 98:0 /root /mount-point options … - type source options
        mounted, _, rest = mount.partition(" - ")
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), mounted.split(" ")[4])
        if point in above and len(point) >= longest:  # the last one at a point covers others
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


@contextmanager
def outside(path: Path) -> Iterator[None]:
    """Turn what a database reports into one sentence that names the file."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StorageError(f"the database {path}: {reason(error)}") from error
    except DecodeError as error:
        raise DamagedLedger(path, str(error)) from error


def reason(error: Exception) -> str:
    """What the database says, on one line."""
    return str(error).splitlines()[0]


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
            (answer,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        if is_away(error):
            raise StorageError(f"the database {path}: {error}") from error
        return f"{path.name} cannot be read ({error})"
    return "" if answer == "ok" else f"{path.name} is damaged ({answer})"
