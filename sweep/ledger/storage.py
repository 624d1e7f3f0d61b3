"""Storage of a sweep's ledger: the file ``sweep.db``, or the server named in ``sweep.postgresql``.

The path of that file identifies the ledger everywhere, and its suffix alone selects the storage:
opening an SQLite file to look at its contents would release this process's locks on it. Both
storages have one interface: reading and writing transactions with the same SQL.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.core.errors import UsageError
from sweep.ledger import tables
from sweep.ledger.signed import REMOTE

if TYPE_CHECKING:
    from sweep.ledger import postgres

    Database = tables.Database | postgres.Database


def open_database(path: Path, patient: bool = True, only_read: bool = False) -> "Database":
    """Return the database of the ledger at `path`; its first transaction connects to it.

    Args:
        path: ``sweep.db``, or the file with a server's address (`Folder.ledger`).
        patient: True to retry a lost server that this process has reached before.
        only_read: True to open an SQLite file read-only; a server ignores it.

    Raises:
        UsageError: another person named the server, or psycopg is not installed.
    """
    if path.suffix != REMOTE:
        return tables.Database(path, only_read)
    with _require_psycopg():
        from sweep.ledger import postgres
    return postgres.Database(path, postgres.read_pointer(path), patient)


def create_database(path: Path, url: str | None, sweep_id: str) -> "Database":
    """Return the database for a new sweep's ledger, without creating its tables.

    For a server, the signed file with its address is written.

    Args:
        path: file of the ledger; for a server, the address is written beside it.
        url: URL of the server, or None for a file.
        sweep_id: ID of the sweep, which names the schema.

    Raises:
        BadConfig: the URL is not valid for a ledger.
        UsageError: psycopg is not installed.
        OSError: the disk refused.
    """
    if url is None:
        return tables.Database(path)
    check(url)
    from sweep.ledger import postgres

    path = path.with_suffix(REMOTE)
    return postgres.Database(path, postgres.write_pointer(path, url, sweep_id))


def url_of(path: Path) -> str | None:
    """Return the URL of the server that the ledger at `path` is on; None for an SQLite file.

    Raises UsageError if another person named the server, or psycopg is not installed.
    """
    if path.suffix != REMOTE:
        return None
    with _require_psycopg():
        from sweep.ledger import postgres
    return postgres.read_pointer(path).url


def companion_schema(path: Path, name: str) -> "postgres.Database | None":
    """Return the database of a further schema of the ledger's sweep, named after `name`.

    Returns None if the ledger is an SQLite file. Nothing is created. Raises UsageError if another
    person named the server, or psycopg is not installed.
    """
    database = open_database(path)
    return None if isinstance(database, tables.Database) else database.companion_schema(name)


def check(url: str) -> None:
    """Raise BadConfig if a URL is not one for a ledger, before anything is written.

    Raises UsageError if psycopg is not installed.
    """
    with _require_psycopg():
        from sweep.ledger import postgres
    postgres.check(url)


@contextlib.contextmanager
def removing(path: Path) -> Iterator[None]:
    """Delete the sweep's schemas on a server when the block succeeds.

    The block must keep the file at `path`, perhaps under another name: if the server is lost at the
    end, the schemas are still there, and only the file names them. Does nothing for an SQLite file.
    Raises StorageError, before the block begins, if the server refuses, and UsageError if another
    person named the server or psycopg is not installed.
    """
    with contextlib.closing(open_database(path)) as database, database.removing():
        yield


@contextlib.contextmanager
def _require_psycopg() -> Iterator[None]:
    """Convert a missing psycopg inside the block to a UsageError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise UsageError(
            "--storage: a ledger in PostgreSQL needs the package psycopg; install it: pip "
            "install 'sweep-rl[postgres]'"
        ) from error
