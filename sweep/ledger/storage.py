"""Storage of a sweep's ledger: the file ``sweep.db``, or the server in ``sweep.postgresql``.

The path of that file is the ledger's name everywhere, and its name alone decides: to look into an
SQLite file would let go of the locks that this process has on it. Both are one interface:
transactions that read or write, with the same SQL.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.errors import UsageError
from sweep.ledger import tables
from sweep.ledger.signed import REMOTE

if TYPE_CHECKING:
    from sweep.ledger import postgres

    Database = tables.Database | postgres.Database


def opened(path: Path, patient: bool = True, only_read: bool = False) -> "Database":
    """The database of the ledger at `path`; nothing of it is opened yet.

    Args:
        path: see `sweep.ledger.folder.Folder.ledger`.
        patient: a server that was reached before and is away is waited for.
        only_read: a file is opened for reading alone.

    Raises:
        UsageError: it is on a server that somebody else has named, or its driver is missing.
    """
    if path.suffix != REMOTE:
        return tables.Database(path, only_read)
    with _from_the_extra():
        from sweep.ledger import postgres
    return postgres.Database(path, postgres.recall(path), patient)


def made(path: Path, url: str | None, sweep_id: str) -> "Database":
    """The database for the ledger of a new sweep at `path`, or beside it on the server of `url`.

    Raises:
        BadConfig: no ledger can lie there.
        OSError: the disk refused.
    """
    if url is None:
        return tables.Database(path)
    check(url)
    from sweep.ledger import postgres

    path = path.with_suffix(REMOTE)
    return postgres.Database(path, postgres.keep(path, url, sweep_id))


def url_of(path: Path) -> str | None:
    """The server on which the ledger at `path` lies, as it was given; None: it is a file.

    Raises:
        UsageError: as `opened`.
    """
    if path.suffix != REMOTE:
        return None
    with _from_the_extra():
        from sweep.ledger import postgres
    return postgres.recall(path).url


def beside(path: Path, name: str) -> "postgres.Database | None":
    """The schema `name` beside that of the ledger at `path`, or None if the ledger is a file."""
    database = opened(path)
    return None if isinstance(database, tables.Database) else database.beside(name)


def check(url: str) -> None:
    """Refuse a URL under which no ledger can lie, before anything is written."""
    with _from_the_extra():
        from sweep.ledger import postgres
    postgres.check(url)


@contextlib.contextmanager
def removing(path: Path) -> Iterator[None]:
    """While this is entered a sweep's folder is removed; what it has on a server goes with it.

    Raises:
        StorageError: the server refused; nothing has gone.
    """
    with contextlib.closing(opened(path)) as database, database.removing():
        yield


@contextlib.contextmanager
def _from_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise UsageError(
            "--storage: a ledger in PostgreSQL needs psycopg: pip install 'sweep-rl[postgres]'"
        ) from error
