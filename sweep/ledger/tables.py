"""The ledger's tables, and how an SQLite file of ours is opened."""

import functools
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from sweep.errors import DamagedLedger, StorageError
from sweep.ledger.codec import DecodeError
from trainables.checkpoint import disk

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
#: Types of file systems that one kernel has to itself. With any other one, of a network, a
#: hypervisor or a program behind FUSE, another kernel may have the file open: no list names all.
_OWN = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs"),
        *("tmpfs", "ramfs", "rootfs", "overlay", "aufs", "fuse-overlayfs", "ecryptfs", "ubifs"),
        *("vfat", "exfat", "ntfs", "ntfs3", "fuseblk", "hfsplus", "squashfs", "erofs", "iso9660"),
    )
)

#: How often a transaction is made again when a server went away in its middle.
REPEATS = 3
T = TypeVar("T")
P = ParamSpec("P")

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
    since FLOAT NOT NULL, renewed INTEGER NOT NULL, drove_at FLOAT NOT NULL, PRIMARY KEY (epoch)
);
CREATE TABLE requests (
    number INTEGER NOT NULL, epoch INTEGER NOT NULL, at FLOAT NOT NULL, verb VARCHAR NOT NULL,
    body TEXT NOT NULL, answered_at FLOAT, answer TEXT, PRIMARY KEY (number)
);
"""


#: What a file may hold that a driver never makes: what is computed when it is read.
_STRANGE = (
    "SELECT type, name FROM sqlite_master "
    "WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1"
)


class Unreachable(StorageError):
    """A server that cannot be asked now, which says nothing about what is on it."""


class Interrupted(Unreachable):
    """A server went away inside a transaction, which was written as a whole or not at all."""


def repeated(work: Callable[[bool], T]) -> T:
    """Return the result of `work`, which is called again if a server went away in its transaction.

    The argument says whether it is called again: then the transaction may stand already. It can
    look, since a transaction of the broken connection that is not over keeps the lock.
    """
    for again in range(REPEATS):
        with suppress(Interrupted):
            return work(again > 0)
    return work(True)


def repeatable(method: Callable[P, T]) -> Callable[P, T]:
    """A method that changes nothing when it is called twice, as `repeated` calls it."""

    @functools.wraps(method)
    def call(*arguments: P.args, **more: P.kwargs) -> T:
        return repeated(lambda _again: method(*arguments, **more))

    return call


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement wrote."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> list[Any]:
        """The rest of the rows."""

    def __iter__(self) -> Iterator[Any]:
        """Row by row."""


class Connection(Protocol):
    """A transaction's connection: SQL that every database of ours knows, with ``?``."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """One statement."""

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """The statement once for each row."""


class Database:
    """An SQLite file of ours: one connection, opened with the first transaction.

    What the database reports is raised as `outside` says. Full sync makes a commit survive a power
    cut. A file in a folder in which one may not write can be read. Threads may use it in turn.
    """

    dialect = "sqlite"
    """As SQLAlchemy calls it."""

    def __init__(self, path: Path, only_read: bool = False) -> None:
        self.path = path
        self._only_read = only_read
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        """Let go of the file; the next transaction opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that only reads: all of it sees the file at one moment."""
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that has the write lock from its beginning.

        One that reads first cannot wait for the lock later.
        """
        return self._transaction("BEGIN IMMEDIATE")

    def making(self) -> AbstractContextManager[Connection]:
        """The transaction in which the tables are made."""
        self.keep_journal()
        return self.writing()

    @contextmanager
    def migrating(self) -> Iterator[tuple[Any, Connection, Sequence[str]]]:
        """A connection as SQLAlchemy takes it, as ours, and how a writing transaction begins."""
        with outside(self.path), closing(opened(self.path)) as raw:
            yield raw, raw, ("BEGIN IMMEDIATE",)

    def removing(self) -> AbstractContextManager[None]:
        """The tables go where they lie outside of the sweep's folder, if nothing is raised."""
        return nullcontext()

    def keep_journal(self) -> None:
        """Set how the file is written to, which it remembers; the holder of the sweep does.

        With a rollback journal readers and the driver wait for each other.
        """
        with outside(self.path), closing(sqlite3.connect(self.path, timeout=BUSY_S)) as database:
            database.execute(f"PRAGMA journal_mode={journal(self.path)}")

    def copy(self, revision: str) -> str:
        """Keep a copy of everything as it is now, whole or not at all; returns its name.

        The database itself copies its pages: the file alone is not the ledger while it is in use.
        """
        copy = self.path.with_name(f"{self.path.name}.{revision}")
        draft = copy.with_name(f".{copy.name}.new")
        try:
            draft.unlink(missing_ok=True)  # of a process that was killed
            with (
                closing(sqlite3.connect(self.path, timeout=BUSY_S)) as source,
                closing(sqlite3.connect(draft)) as target,
            ):
                source.backup(target)
            with disk.open_folder(self.path.parent) as folder:
                with disk.reading(draft.name, folder) as (file, _size):
                    os.fsync(file)
                draft.replace(copy)
                disk.sync(folder)
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"{copy}: {error}; the ledger is as it was") from error
        finally:
            draft.unlink(missing_ok=True)
        return copy.name

    def strange(self, connection: Connection) -> tuple[str, str] | None:
        """Kind and name of what stands beside the tables and no driver makes."""
        found: tuple[str, str] | None = connection.execute(_STRANGE).fetchone()
        return found

    def damages(self, connection: Connection, most: int) -> list[str]:
        """Return the damages that the database finds in its own pages, at most `most` of them."""
        found = [text for (text,) in connection.execute(f"PRAGMA integrity_check({most})")]
        return [] if found == ["ok"] else found

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with outside(self.path):
            if self._connection is None:
                self._connection = (
                    reading(self.path, check_same_thread=False)
                    if self._only_read
                    else opened(self.path)
                )
            connection = self._connection
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # it may have been rolled back by what went wrong
                    connection.execute("ROLLBACK")
                raise


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


def journal(path: Path) -> str:
    """The journal mode of an SQLite file of ours, by the type of what is mounted nearest to it.

    WAL lets readers work while one writes. It is memory that the processes of one kernel share, so
    where another machine may see the file too it has a rollback journal.
    """
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return "WAL"
    above = {str(folder) for folder in path.absolute().resolve().parents}
    kind, longest = "", 0
    for mount in mounts:  # 36 35 98:0 /root /mount-point options … - type source options
        mounted, _, rest = mount.partition(" - ")
        point = _OCTAL.sub(lambda code: chr(int(code[1], 8)), mounted.split(" ")[4])
        if point in above and len(point) >= longest:  # the last one at a point covers others
            kind, longest = rest.split(" ")[0], len(point)
    return "WAL" if not kind or kind.removeprefix("fuse.") in _OWN else "DELETE"


def reading(path: Path, check_same_thread: bool = True) -> sqlite3.Connection:
    """An SQLite file that is only read, and must be there.

    Reading WAL takes a file beside it, which cannot be made in a folder in which one may not write.
    There, unless somebody has it open at this moment, the file is taken to stay as it is.
    """
    still = not os.access(path.parent, os.W_OK) and _is_closed_wal(path)
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=check_same_thread)


def _is_closed_wal(path: Path) -> bool:
    """Return whether the file is in WAL mode, by its header, and not open for writing anywhere."""
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


def reason(error: BaseException) -> str:
    """Return the message of the database on one line, with the cause that SQLite leaves out."""
    said = str(error).splitlines()[0]
    if isinstance(error, sqlite3.OperationalError) and said.startswith("unable to open"):
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as short:
            return f"{short.strerror}; allow more with `ulimit -n 1024`, or give fewer --jobs"
    return said


def has(path: Path, table: str) -> bool:
    """Return whether an SQLite file that can be read has a table of this name."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    with closing(reading(path)) as database:
        return database.execute(query, (table,)).fetchone() is not None


def is_away(error: BaseException | None) -> bool:
    """Return whether a file could not be opened, which says nothing about its contents."""
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
