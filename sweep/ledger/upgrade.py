"""Which revision of the tables a ledger has, and how an older one is brought to today's.

A revision is a script in `SCRIPTS`, named by its number; a ledger names the one that it has in the
table `VERSION_TABLE`, a name of our own, since Optuna and MLflow have an ``alembic_version`` too.
Alembic runs the scripts; it is imported only where there is something to run. A new ledger is made
from `sweep.ledger.tables` and stamped, which comes to the same (a test compares).

Only who holds the sweep may upgrade it: first a copy is made beside it, then all scripts run in one
transaction. Killed at any instant, the ledger is the old one or the new one.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sweep.errors import StorageError, UsageError
from sweep.ledger import lease, storage, tables
from sweep.ledger.codec import DecodeError
from sweep.ledger.folder import Folder
from sweep.ledger.tables import Connection
from trainables.core import failpoints

VERSION_TABLE = "sweep_schema"
#: The scripts, ``r0001_first_tables.py`` and so on: one line of revisions, the last is today's.
SCRIPTS = Path(__file__).parent / "migrations"


def known() -> list[str]:
    """The revisions that this program knows, oldest first."""
    return sorted(script.name[1:5] for script in SCRIPTS.glob("r[0-9][0-9][0-9][0-9]_*.py"))


def stamp(connection: Connection) -> None:
    """Write into a new ledger that its tables are today's."""
    connection.execute(
        f"CREATE TABLE {VERSION_TABLE} "
        "(version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num))"
    )
    connection.execute(f"INSERT INTO {VERSION_TABLE} VALUES (?)", (known()[-1],))  # noqa: S608 ours


def of(connection: Connection) -> str:
    """The revision that a ledger says it has; DecodeError if it says none."""
    query = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 ours
    found = connection.execute(query).fetchall()
    if len(found) != 1:
        raise DecodeError(f"{VERSION_TABLE} has {len(found)} rows, not one")
    revision: str = found[0][0]
    return revision


def objection(revision: str, ledger: Path) -> str:
    """Why a ledger of `revision` cannot be read as it is, and what to do; empty: it can."""
    revisions = known()
    if revision == revisions[-1]:
        return ""
    if revision not in revisions:
        return (
            f"has revision {revision}, this program knows up to {revisions[-1]}; use the program "
            f"that wrote it, or a newer one"
        )
    lies = ledger.resolve().parent
    sweep = Folder(lies.parent, lies.name).in_commands
    return (
        f"has revision {revision} of an earlier program, this one works with {revisions[-1]}; "
        f"`sweep verify {sweep} --repair` brings it there and keeps a copy, and so does "
        f"`sweep resume {sweep}`"
    )


def check(connection: Connection, path: Path) -> None:
    """Refuse a ledger that is not of today's revision.

    Raises:
        UsageError: it is older or newer; the message says what to do.
    """
    if why := objection(of(connection), path):
        raise UsageError(f"{path}: {why}")


def is_old(path: Path) -> bool:
    """Return whether a ledger is of a revision before today's.

    Raises:
        UsageError: it is newer.
        StorageError: it is no ledger.
    """
    revision = _revision(path)
    if revision not in known():
        raise UsageError(f"{path}: {objection(revision, path)}")
    return revision != known()[-1]


def _revision(path: Path) -> str:
    with readable(path), closing(storage.opened(path)) as database, database.reading() as found:
        return of(found)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Say of what is no ledger that it is none, and what its database says.

    Raises:
        StorageError: in so many words.
    """
    try:
        yield
    except tables.Unreachable:
        raise
    except StorageError as error:
        why = tables.reason(error.__cause__ or error)
        raise StorageError(f"{path}: is no readable ledger ({why})") from error


def upgrade(path: Path, term: int) -> str:
    """Bring an old ledger, held in `term`, to today's revision; returns what was done, in words.

    A copy is kept.

    Raises:
        SweepLocked: somebody else has taken the sweep.
        StorageError: the disk or the database refused; the ledger is as it was.
    """
    before = _revision(path)
    with closing(storage.opened(path)) as database:
        copy = database.copy(before)
    failpoints.reach("ledger copied")
    run_scripts(path, lambda connection: lease.check(connection, term))
    return f"{path.name} went from revision {before} to {known()[-1]}; {copy} is as it was"


def run_scripts(path: Path, first: Callable[[Connection], None]) -> None:
    """Run the scripts that are missing, all in one transaction, in which `first` is called first.

    Raises:
        StorageError: the disk or the database refused; the ledger is as it was.
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
    database = storage.opened(path)
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
            raise StorageError(f"the database {path}: {tables.reason(error)}") from error
