"""Revisions of the ledger's tables, and the upgrade of older ledgers.

A revision is a numbered script in `SCRIPTS`. A ledger stores its revision in `VERSION_TABLE`, which
has a name of its own since Optuna and MLflow use ``alembic_version``. Alembic runs the scripts and
is imported only if there is one to run. A new ledger is created from `sweep.ledger.tables` and
stamped with the newest revision, which gives equal tables (a test compares them).

Only the holder of a sweep may upgrade its ledger: a copy is made first, then all scripts run in one
transaction. Whenever the process is killed, the ledger is either the old one or the new one.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sweep.core.errors import StorageError, UsageError
from sweep.ledger import lease, storage, tables
from sweep.ledger.codec import DecodeError
from sweep.ledger.folder import Folder
from sweep.ledger.tables import Connection
from trainables.core import failpoints

#: Table with the revision of the ledger's tables.
VERSION_TABLE = "sweep_schema"
#: Folder of the scripts ``r0001_first_tables.py``, …: one line of revisions, the last is current.
SCRIPTS = Path(__file__).parent / "migrations"


def known_revisions() -> list[str]:
    """Return the revisions that this program knows, such as ``0001``, oldest first."""
    return sorted(script.name[1:5] for script in SCRIPTS.glob("r[0-9][0-9][0-9][0-9]_*.py"))


def stamp(connection: Connection) -> None:
    """Record in a new ledger, in a transaction, that it has the newest revision.

    Creates the table for it.
    """
    connection.execute(
        f"CREATE TABLE {VERSION_TABLE} "
        "(version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num))"
    )
    connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES (?)", (known_revisions()[-1],))  # noqa: S608 ours


def read_revision(connection: Connection) -> str:
    """Return the revision recorded in a ledger, in a transaction.

    Raises DecodeError unless there is exactly one.
    """
    query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 ours
    found = connection.execute(query).fetchall()
    if len(found) != 1:
        raise DecodeError(f"{VERSION_TABLE} has {len(found)} rows, not one")
    revision: str = found[0][0]
    return revision


def objection(revision: str, ledger: Path) -> str:
    """Return a text on why a ledger of `revision` cannot be read, with a remedy; empty if it can.

    `ledger` is its path, for the commands in the remedy.
    """
    revisions = known_revisions()
    if revision == revisions[-1]:
        return ""
    if revision not in revisions:
        return (
            f"has revision {revision}, but this version of sweep knows only revisions up to "
            f"{revisions[-1]}; use the version that wrote it, or a newer one"
        )
    lies = ledger.resolve().parent
    sweep = Folder(lies.parent, lies.name).in_commands
    return (
        f"has revision {revision} of an earlier version, but this version of sweep needs "
        f"{revisions[-1]}; `sweep verify {sweep} --repair` or `sweep resume {sweep}` "
        "upgrades it and keeps a copy"
    )


def check(connection: Connection, path: Path) -> None:
    """Raise UsageError if the ledger at `path` does not have the current revision.

    The message says what to do. Raises DecodeError unless the ledger has exactly one revision.
    """
    if why := objection(read_revision(connection), path):
        raise UsageError(f"{path}: {why}")


def is_old(path: Path) -> bool:
    """Return whether the ledger at `path` has an older revision than the current one.

    Raises:
        UsageError: its revision is newer than this program.
        StorageError: the file is not a ledger.
        DamagedLedger: it does not have exactly one revision.
    """
    revision = _revision(path)
    if revision not in known_revisions():
        raise UsageError(f"{path}: {objection(revision, path)}")
    return revision != known_revisions()[-1]


def _revision(path: Path) -> str:
    """Return the revision recorded in the ledger at `path`, opened for that.

    Raises StorageError if the file is not a ledger, and DamagedLedger unless it has exactly one
    revision.
    """
    with (
        readable(path),
        closing(storage.open_database(path)) as database,
        database.reading() as found,
    ):
        return read_revision(found)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Convert a StorageError inside the block to one that says that `path` is no readable ledger.

    `Unreachable` passes unchanged, since it says nothing about the contents.
    """
    try:
        yield
    except tables.Unreachable:
        raise
    except StorageError as error:
        why = tables.reason(error.__cause__ or error)
        raise StorageError(
            f"{path}: this is not a readable ledger ({why}); restore a copy of it, or delete "
            "its folder"
        ) from error


def upgrade(path: Path, term: int) -> str:
    """Bring the tables of an old ledger to the newest revision, keeping a copy of the old ones.

    Returns a sentence about that for people.

    Raises:
        SweepLocked: `term` is not the current one any more.
        StorageError: the disk or the database refused; the ledger is unchanged.
    """
    before = _revision(path)
    with closing(storage.open_database(path)) as database:
        copy = database.copy(before)
    failpoints.reach("ledger copied")
    run_scripts(path, lambda connection: lease.check(connection, term))
    return (
        f"{path.name} was upgraded from revision {before} to {known_revisions()[-1]}; {copy} "
        "is a copy of the old one"
    )


def run_scripts(path: Path, first: Callable[[Connection], None]) -> None:
    """Run all migrations that a ledger lacks, in one transaction.

    `first` is called in the transaction before them, and raises if the ledger may not be changed;
    its error is raised here. Raises StorageError if the disk or the database refused. After an
    error the ledger is unchanged.
    """
    import sqlalchemy as sa
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(SCRIPTS), version_locations=[str(SCRIPTS)])
    options = {
        "version_table": VERSION_TABLE,
        "fn": lambda revision, _context: scripts._upgrade_revs("head", revision),
    }
    database = storage.open_database(path)
    with database.migrating() as (raw, ours, begin):
        engine = sa.create_engine(
            f"{database.dialect}://", creator=lambda: raw, poolclass=sa.StaticPool
        )
        try:
            with engine.begin() as connection:
                for statement in begin:
                    connection.exec_driver_sql(statement)
                first(ours)
                context = MigrationContext.configure(connection, opts=options)
                with Operations.context(context):
                    context.run_migrations()
                failpoints.reach("ledger upgraded")
        except sa.exc.DBAPIError as error:
            why = tables.with_advice(error.orig or error)
            raise StorageError(f"the database {path}: {why}") from error
