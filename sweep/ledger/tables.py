"""The ledger's tables, and access to its SQLite files."""

import functools
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from sweep.core.errors import DamagedLedger, StorageError, with_remedy
from sweep.ledger.codec import DecodeError
from trainables.checkpoint import disk

#: File in which Linux lists the mounted file systems.
_MOUNTS = Path("/proc/self/mountinfo")
#: Pattern of a character that `_MOUNTS` contains as an octal number.
_OCTAL = re.compile(r"\\([0-7]{3})")
#: File systems that only one kernel can have mounted. On any other, such as a network or virtual
#: machine share or a FUSE program, another kernel may have the file open: no list is complete.
_OWN = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs"),
        *("tmpfs", "ramfs", "rootfs", "overlay", "aufs", "fuse-overlayfs", "ecryptfs", "ubifs"),
        *("vfat", "exfat", "ntfs", "ntfs3", "fuseblk", "hfsplus", "squashfs", "erofs", "iso9660"),
    )
)

#: Maximum number of repetitions of a transaction during which the server was lost.
REPEATS = 3
T = TypeVar("T")
P = ParamSpec("P")

#: Seconds for which a transaction waits for another one's lock.
BUSY_S = 60.0
#: SQLite codes of missing rights, locks, memory or space, not of the file's content.
_AWAY = frozenset(
    (
        *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY),
        *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM),
    )
)

#: The current tables; `sweep.ledger.migrations` has their earlier revisions.
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


#: Query for triggers, views and virtual tables, which run code when read; drivers create none.
_STRANGE = (
    "SELECT type, name FROM sqlite_master "
    "WHERE type NOT IN ('table', 'index') OR sql LIKE 'CREATE VIRTUAL%' LIMIT 1"
)


class Unreachable(StorageError):
    """A database server cannot be reached now, which says nothing about its contents."""


class Interrupted(Unreachable):
    """A database server was lost inside a transaction.

    The transaction was committed as a whole or not at all.
    """


def call_repeatedly(work: Callable[[bool], T]) -> T:
    """Return the result of `work`, calling it up to `REPEATS` more times after Interrupted.

    Raises Interrupted if the last call does so too.

    Args:
        work: function that does one transaction. It gets False at the first call. At repetitions
            it gets True and must check whether the interrupted transaction was committed. The
            check is reliable, since a transaction of a lost connection that is still open keeps
            its lock.
    """
    for again in range(REPEATS):
        with suppress(Interrupted):
            return work(again > 0)
    return work(True)


def retried(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method that may be repeated without harm: it is called again after Interrupted.

    It is repeated at most `REPEATS` times; then Interrupted is raised.
    """

    @functools.wraps(method)
    def call(*arguments: P.args, **more: P.kwargs) -> T:
        """Call the method until no other process locks the database."""
        return call_repeatedly(lambda _again: method(*arguments, **more))

    return call


class Cursor(Protocol):
    """Result of an SQL statement."""

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement changed."""

    def fetchone(self) -> Any:
        """Return the next row as a tuple, or None at the end."""

    def fetchall(self) -> list[Any]:
        """Return the remaining rows as tuples."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the remaining rows, which are tuples."""


class Connection(Protocol):
    """Database connection inside a transaction.

    It executes SQL that both databases understand, with ``?`` as placeholder.
    """

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Execute one SQL statement with values for its placeholders; return its cursor."""

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> Cursor:
        """Execute an SQL statement once for each row of values for its placeholders.

        Returns the cursor.
        """


class Database:
    """SQLite file of a ledger, with one connection that the first transaction opens.

    SQLite's errors are converted by `translate_errors`. Full sync makes commits survive a power
    cut. A file in a read-only folder can be read. Threads may use the object in turn.
    """

    dialect = "sqlite"
    """Name of the dialect in SQLAlchemy's URLs."""

    def __init__(self, path: Path, only_read: bool = False) -> None:
        self.path = path
        self._only_read = only_read
        self._connection: sqlite3.Connection | None = None

    def close(self) -> None:
        """Close the file; the next transaction opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a context manager with a transaction that sees the whole file at one moment."""
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[Connection]:
        """Return a context manager with a transaction that has the write lock from its beginning.

        It waits up to `BUSY_S` seconds for the lock, then raises StorageError. A transaction that
        begins with a read could not wait for the lock later.
        """
        return self._transaction("BEGIN IMMEDIATE")

    def creating(self) -> AbstractContextManager[Connection]:
        """Return a context manager with the transaction in which the tables are to be created.

        Sets the file's journal mode first.
        """
        self.keep_journal()
        return self.writing()

    @contextmanager
    def migrating(self) -> Iterator[tuple[Any, Connection, Sequence[str]]]:
        """Yield (connection of sqlite3, `Connection`, statements) for a migration by SQLAlchemy.

        The first two are the same new connection, which is closed when the block ends. The
        statements begin a transaction with the write lock.
        """
        with translate_errors(self.path), closing(opened(self.path)) as raw:
            yield raw, raw, ("BEGIN IMMEDIATE",)

    def removing(self) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: the file goes with its folder."""
        return nullcontext()

    def keep_journal(self) -> None:
        """Set the journal mode of the file (WAL, or a rollback journal on a shared file system).

        SQLite stores it in the file. Only the sweep's holder calls this. With a rollback journal,
        readers and the driver wait for each other.
        """
        with (
            translate_errors(self.path),
            closing(sqlite3.connect(self.path, timeout=BUSY_S)) as database,
        ):
            database.execute(f"PRAGMA journal_mode={journal(self.path)}")

    def copy(self, revision: str) -> str:
        """Copy the ledger to a file ``sweep.db.REVISION`` beside it; return the copy's name.

        The copy is there whole or not at all, and replaces an older one of this name. SQLite copies
        the pages, since the file alone is incomplete while in use. Raises StorageError if the disk
        or the database refused.
        """
        copy = self.path.with_name(f"{self.path.name}.{revision}")
        draft = copy.with_name(f".{copy.name}.new")
        try:
            draft.unlink(missing_ok=True)  # left by a killed process
            with (
                closing(sqlite3.connect(self.path, timeout=BUSY_S)) as source,
                closing(sqlite3.connect(draft)) as target,
            ):
                source.backup(target)
            with disk.open_folder(self.path.parent) as folder:
                with disk.open_regular_file(draft.name, folder) as (file, _size):
                    os.fsync(file)
                draft.replace(copy)
                disk.sync(folder)
        except (OSError, sqlite3.Error) as error:
            why = with_remedy(error) if isinstance(error, OSError) else with_advice(error)
            raise StorageError(
                f"cannot copy the ledger, which is unchanged, to {copy}: {why}"
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return copy.name

    def find_foreign_object(self, connection: Connection) -> tuple[str, str] | None:
        """Return type and name of something that no driver creates, such as a view or trigger.

        Returns None if there is none. Such an object could run code when the file is read.
        """
        found: tuple[str, str] | None = connection.execute(_STRANGE).fetchone()
        return found

    def damages(self, connection: Connection, limit: int) -> list[str]:
        """Return up to `limit` messages of SQLite's integrity check.

        Returns an empty list if the file is intact.
        """
        found = [text for (text,) in connection.execute(f"PRAGMA integrity_check({limit})")]
        return [] if found == ["ok"] else found

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        """Yield the connection inside a transaction; commit at the end, roll back on any error.

        Opens the file at the first call. `begin` is the statement that begins the transaction.
        """
        with translate_errors(self.path):
            if self._connection is None:
                self._connection = (
                    connect_read_only(self.path, check_same_thread=False)
                    if self._only_read
                    else opened(self.path)
                )
            connection = self._connection
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # SQLite may have rolled back already
                    connection.execute("ROLLBACK")
                raise


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection to an SQLite file that begins no transaction by itself, with full sync.

    The file is created if it does not exist. The connection is read-only if the folder is not
    writable.
    """
    if os.access(path.parent, os.W_OK):
        connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    else:
        connection = connect_read_only(path, check_same_thread=False)
    connection.isolation_level = None
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "trusted_schema=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def journal(path: Path) -> str:
    """Return the journal mode for a file on its file system, ``WAL`` or ``DELETE``.

    WAL lets readers work while one process writes. It needs memory shared by all processes, so a
    file system that other machines may have mounted gets a rollback journal.
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
        if point in above and len(point) >= longest:  # later mounts at one point cover earlier ones
            kind, longest = rest.split(" ")[0], len(point)
    return "WAL" if not kind or kind.removeprefix("fuse.") in _OWN else "DELETE"


def connect_read_only(path: Path, check_same_thread: bool = True) -> sqlite3.Connection:
    """Return a read-only connection to an existing SQLite file.

    Reading in WAL mode needs a companion file, which cannot be created in a read-only folder.
    There, the file is opened as immutable unless another process has it open for writing.
    `check_same_thread` is that of `sqlite3.connect`.
    """
    still = not os.access(path.parent, os.W_OK) and _is_closed_wal(path)
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if still else ''}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, check_same_thread=check_same_thread)


def _is_closed_wal(path: Path) -> bool:
    """Return whether an SQLite file is in WAL mode, and no process has it open for writing.

    A file ``-wal`` beside it shows that one has. Returns False if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:
        return False
    return header[18:] == b"\x02\x02" and not path.with_name(f"{path.name}-wal").exists()


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Convert errors inside the block: SQLite's to StorageError, the codec's to DamagedLedger.

    `path` is the database for the message.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StorageError(f"the database {path}: {with_advice(error)}") from error
    except DecodeError as error:
        raise DamagedLedger(path, str(error)) from error


def reason(error: BaseException) -> str:
    """Return SQLite's message on one line.

    If no further file could be opened, it is the system's message about that, with a remedy.
    """
    message = str(error).splitlines()[0]
    if isinstance(error, sqlite3.OperationalError) and message.startswith("unable to open"):
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as short:
            return with_remedy(short)
    return message


#: Error of SQLite → the remedy.
_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some space on that disk",
    sqlite3.SQLITE_BUSY: (
        "another process uses the database; try again when that process has ended"
    ),
    sqlite3.SQLITE_LOCKED: (
        "another process uses the database; try again when that process has ended"
    ),
    sqlite3.SQLITE_READONLY: "get permission to write the file and its folder",
    sqlite3.SQLITE_PERM: "get permission to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "check that its folder exists and that you can write to it",
    sqlite3.SQLITE_IOERR: "repair its disk, then try again",
}


def with_advice(error: BaseException) -> str:
    """Return SQLite's message on one line, with a remedy.

    An error of no known kind gets the advice to run `sweep verify`. A message that `reason` has
    given a remedy is returned unchanged.
    """
    message, code = reason(error), getattr(error, "sqlite_errorcode", 0)
    if "; " in message:
        return message
    return f"{message}; {_REMEDIES.get(code & 0xFF, '`sweep verify` lists the damage')}"


def has(path: Path, table: str) -> bool:
    """Return whether an SQLite file has a table of this name.

    Raises `sqlite3.Error` if the file cannot be read.
    """
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    with closing(connect_read_only(path)) as database:
        return database.execute(query, (table,)).fetchone() is not None


def is_away(error: BaseException | None) -> bool:
    """Return whether an error of SQLite is about access to the file, not about its contents.

    Such errors are of locks, rights, memory or the disk.
    """
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _AWAY


def find_damage(path: Path) -> str:
    """Return a text about why an SQLite file cannot be read, or its first damage.

    Returns an empty text if it is intact. Raises StorageError if the file cannot be accessed now,
    such as for lack of rights.
    """
    if not path.exists():
        return f"{path.name} is gone"
    try:
        with closing(connect_read_only(path)) as database:
            (answer,) = database.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.Error as error:
        if is_away(error):
            raise StorageError(f"the database {path}: {with_advice(error)}") from error
        return f"{path.name} cannot be read ({error})"
    return "" if answer == "ok" else f"{path.name} is damaged ({answer})"
