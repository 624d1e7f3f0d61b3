"""The ledger's tables on a PostgreSQL server: one schema for each sweep, of the sweep's id.

A schema, not rows of shared tables: the SQL is the file's to the letter, a sweep is upgraded and
removed alone, and no transaction of one waits for another's. ``sweep.postgresql`` says server and
schema, signed; no password is in it.

Who writes locks the one row of the table `sweep` first, so two writers follow each other as they
do with a file, and the second sees the lease as the first one left it. A transaction in which
nothing comes from its client for `IDLE_S` is ended by the server, so that a driver that stands
still holds nobody up. Times are seconds.
"""

import logging
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import psycopg
from psycopg import conninfo

from sweep.errors import BadConfig, DamagedLedger, StorageError, UsageError, place_of
from sweep.ledger import signed, tables
from sweep.ledger.codec import DecodeError
from sweep.ledger.tables import Connection, Interrupted, Unreachable

#: How long a connection is made for, unless the URL says so.
CONNECT_S = 10
#: How long a server that was reached before is waited for.
PATIENCE_S = 60.0
#: How long a server may say nothing at all in the middle of a statement.
HANG_S = 75.0
#: How long a writer waits for another's transaction.
BUSY_S = 60.0
#: How long a client may say nothing in the middle of a transaction; shorter than a lease.
IDLE_S = 20.0
#: Between two attempts to reach a server: from, doubled up to.
FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 0.5
#: The oldest server that is known to work.
OLDEST = 12

# It warns of connections that are lost, which are made again here, or told of in an error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_URL = re.compile(r"postgresql(\+psycopg)?://")
_SCHEMA = re.compile(r"sweep_[0-9a-f]{32}")
_SECRETS = frozenset(("password", "sslpassword", "oauth_client_secret"))
#: States of SQL that a server has while it starts, ends or recovers, or has no place for now.
_AWAY = ("08", "57P", "53300")
_ABOUT = "SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('server_version')"
#: Settings without which a crash of the server's machine may damage what it has. That a commit is
#: not waited for (synchronous_commit) is no risk here: `_prepare` turns it on.
_CARELESS = """
SELECT name FROM pg_catalog.pg_settings
WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name
"""
_STRANGE = """
SELECT CASE relkind WHEN 'r' THEN 'rule, trigger or policy on'
       ELSE 'relation of kind ' || relkind::text END, relname
FROM pg_catalog.pg_class
WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
      AND (relkind NOT IN ('r', 'i', 'S') OR relhasrules OR relhastriggers OR relrowsecurity)
LIMIT 1
"""
#: What says of a server that was reached that it lets nobody in: to wait changes nothing.
_REFUSED = re.compile("authentication|password|does not exist|pg_hba")
#: Servers that this process has reached.
_reached: set[str] = set()


class Pointer(NamedTuple):
    """The place of a ledger on a server."""

    url: str
    schema: str

    @property
    def shown(self) -> str:
        """In messages."""
        return f"{place_of(self.url)}, schema {self.schema}"


def check(url: str) -> None:
    """Refuse a URL under which no ledger can lie, or with a secret in it.

    Raises:
        BadConfig: it is one; nothing of a secret is shown.
    """
    shown, allowed = place_of(url), "postgresql+psycopg://HOST[:PORT]/DATABASE"
    if not _URL.match(url):
        raise BadConfig("--storage", shown, allowed)
    if _has_secret(url.partition("://")[2]):
        raise BadConfig(
            *("--storage", shown, "a URL without a password, as everybody can read a command line"),
            "write it into ~/.pgpass (or the file that PGPASSFILE or ?passfile=FILE names), or a "
            "service into ~/.pg_service.conf and ?service=NAME into the URL",
            problem="a password is in it",
        )
    try:
        conninfo.conninfo_to_dict(_libpq(url))
    except psycopg.Error:  # whose message may hold what stands in it
        raise BadConfig("--storage", shown, allowed) from None


def _has_secret(rest: str) -> bool:
    """Return whether a password is in the text after ``://``, quoted as it should be or not."""
    before, _, query = rest.partition("?")
    # To PostgreSQL's library a `?` before the first `/` is one of the password.
    users = (part.rpartition("@")[0] for part in (before, rest.partition("/")[0]))
    keys = {unquote(part.partition("=")[0]).lower() for part in query.split("&")}
    return any(":" in user for user in users) or bool(keys & _SECRETS)


class Server(NamedTuple):
    """A server's version, clock and settings."""

    version: str
    ahead_s: float
    """By how many seconds its clock is ahead of this one."""
    careless: tuple[str, ...]
    """Its settings that risk the whole database when its machine crashes."""


def examine(url: str) -> Server:
    """Reach a server, and make a schema there as for a sweep, of which nothing is kept.

    Raises:
        BadConfig: no ledger can lie there.
        StorageError: it cannot be reached, is too old, or lets no schema be made.
    """
    check(url)
    schema = f"sweep_{uuid.uuid4().hex}"
    with closing(Database(Path(), Pointer(url, schema), patient=False)) as database:
        try:
            with database.making() as connection:
                began = time.time()
                now, version = connection.execute(_ABOUT).fetchone()
                ahead_s = float(now) - (began + time.time()) / 2
                careless = tuple(name for (name,) in connection.execute(_CARELESS).fetchall())
                connection.execute(f"DROP SCHEMA {schema}")  # nobody else has seen it
        except StorageError as error:
            said = str(error).replace(f", schema {schema}", "")
            if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                said += "; its owner lets you: GRANT CREATE ON DATABASE name TO you"
            raise StorageError(said) from error
    return Server(version, ahead_s, careless)


def keep(path: Path, url: str, sweep_id: str) -> Pointer:
    """Write where the ledger of a new sweep lies."""
    pointer = Pointer(url, f"sweep_{sweep_id}")
    signed.keep(path, pointer._asdict())
    return pointer


def recall(path: Path) -> Pointer:
    """Return the pointer that `keep` wrote.

    Raises:
        UsageError: the file holds something else, or is somebody else's.
    """
    try:
        said = signed.read(path)
        pointer = Pointer(str(said["url"]), str(said["schema"]))
        check(pointer.url)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, BadConfig) as error:
        raise UsageError(f"{path}: says no place of a ledger ({error})") from error
    if not _SCHEMA.fullmatch(pointer.schema):
        raise UsageError(f"{path}: says no place of a ledger (schema {pointer.schema[:80]!r})")
    if not signed.is_accepted(said, path):
        raise UsageError(
            f"{path}: names the server {place_of(pointer.url)}, and somebody else signed "
            f"it; to ask that server with your credentials, first `sweep trust {path}`"
        )
    return pointer


def _libpq(url: str) -> str:
    """The URL as PostgreSQL's own library reads it."""
    return f"postgresql:{url.partition(':')[2]}"


class _Silent(psycopg.OperationalError):
    """A server that is there and does not answer: to ask again would take as long."""


class _Client(psycopg.Connection[tuple[Any, ...]]):
    """A connection that gives up a server that says nothing any more."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run a step of the protocol, as long as something comes."""
        return super().wait(_hurried(gen), interval, timeout)

    def __del__(self, *_: object) -> None:
        """Say nothing: as with a file, the last reference closes it, in the process it is of."""


def _hurried(gen: Any) -> Any:
    """The steps of `gen`, ended when nothing was heard for too long."""
    heard = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > HANG_S:
                gen.close()
                raise _Silent(f"the server has said nothing for {HANG_S:g} s")
            wanted = gen.send(ready)
    except StopIteration as stop:
        return stop.value


class _Statements:
    """`tables.Connection` over psycopg's."""

    def __init__(self, raw: _Client) -> None:
        self.raw = raw

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> tables.Cursor:
        return self.raw.execute(_translated(statement), parameters)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> tables.Cursor:
        cursor = self.raw.cursor()
        cursor.executemany(_translated(statement), parameters)
        return cursor


@cache
def _translated(statement: str) -> bytes:
    """A statement with the signs for parameters and the types that PostgreSQL has."""
    if statement.startswith("CREATE TABLE"):
        statement = statement.replace(" INTEGER", " BIGINT")
    return statement.replace("%", "%%").replace("?", "%s").encode()


class Database:
    """A sweep's schema: one connection, made with the first transaction, and again when it broke.

    A transaction that has not begun is begun anew for `PATIENCE_S`, if the server was ever reached.
    Threads may use it in turn.
    """

    dialect = "postgresql+psycopg"
    """As SQLAlchemy calls it."""

    def __init__(self, path: Path, pointer: Pointer, patient: bool = True) -> None:
        self.path = path
        self._pointer = pointer
        self._patient = patient
        self._raw: _Client | None = None

    def close(self) -> None:
        """Let go of the connection; the next transaction makes another."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that only reads: all of it sees the tables at one moment."""
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that has the write lock from its beginning."""
        return self._transaction(*_WRITING)

    @contextmanager
    def making(self) -> Iterator[Connection]:
        """The transaction in which the tables are made."""
        with self._transaction(_BEGIN) as connection:
            connection.execute(f"CREATE SCHEMA {self._pointer.schema}")
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[tuple[Any, Connection, Sequence[str]]]:
        """A connection as SQLAlchemy takes it, as ours, and how a writing transaction begins."""
        with self._outside(), closing(self._connect()) as raw:
            yield raw, _Statements(raw), _WRITING

    @contextmanager
    def removing(self) -> Iterator[None]:
        """The tables go, and their copies, if nothing is raised."""
        query = "SELECT nspname FROM pg_catalog.pg_namespace WHERE starts_with(nspname, ?)"
        with self._transaction(_BEGIN) as connection:
            for (name,) in connection.execute(query, (self._pointer.schema,)).fetchall():
                connection.execute(f'DROP SCHEMA "{name}" CASCADE')
            yield

    def beside(self, name: str) -> "Database":
        """The schema `name` beside this one, which goes with it when this one is removed."""
        pointer = self._pointer._replace(schema=f"{self._pointer.schema}_{name}")
        return Database(self.path, pointer, self._patient)

    def connected(self, only_read: bool) -> Any:
        """A connection as SQLAlchemy takes it, whose transactions are SQLAlchemy's."""
        with self._outside():
            raw = self._connect()
            raw.execute(f"SET default_transaction_read_only TO {only_read}".encode())
            raw.autocommit = False
        return raw

    def make_schema(self) -> None:
        """Make the schema, if there is none; its tables are somebody else's."""
        with self._transaction(_BEGIN) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._pointer.schema}")

    def drop_schema(self) -> None:
        """Delete the schema, if there is one, and all that is in it."""
        with self._transaction(_BEGIN) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {self._pointer.schema} CASCADE")

    def has(self, table: str) -> bool:
        """Return whether the schema has a table of this name."""
        with self.reading() as connection:
            query = "SELECT to_regclass(?)"
            found = connection.execute(query, (f"{self._pointer.schema}.{table}",)).fetchone()
            return bool(found and found[0])

    @property
    def shown(self) -> str:
        """The place of the ledger, for messages."""
        return self._pointer.shown

    def keep_journal(self) -> None:
        """Nothing: a server has one journal."""

    def copy(self, revision: str) -> str:
        """Keep a copy of everything as it is now, whole or not at all; returns its name."""
        schema = self._pointer.schema
        name = f"{schema}_{revision}"
        with self.writing() as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
            connection.execute(f"CREATE SCHEMA {name}")
            query = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = ?"
            for (table,) in connection.execute(query, (schema,)).fetchall():
                connection.execute(f'CREATE TABLE {name}."{table}" (LIKE "{table}" INCLUDING ALL)')
                connection.execute(f'INSERT INTO {name}."{table}" SELECT * FROM "{table}"')  # noqa: S608 ours
        return f"schema {name}"

    def strange(self, connection: Connection) -> tuple[str, str] | None:
        """Kind and name of what stands beside the tables and no driver makes."""
        found: tuple[str, str] | None = connection.execute(_STRANGE).fetchone()
        return found

    def damages(self, connection: Connection, most: int) -> list[str]:
        """Nothing: what the server finds damaged it says when it is read."""
        return []

    # ---- parts --------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, *begin: str) -> Iterator[Connection]:
        with self._outside():
            raw = self._begun(begin)
            try:
                yield _Statements(raw)
                raw.execute("COMMIT")
            except BaseException as error:
                with suppress(psycopg.Error):
                    raw.execute("ROLLBACK")
                if isinstance(error, psycopg.Error) and _is_away(error, raw):
                    self.close()
                    raise Interrupted(self._said(error)) from error
                if raw.info.transaction_status:  # it was not to be ended
                    self.close()
                raise

    def _begun(self, begin: Sequence[str]) -> _Client:
        """The connection, in a transaction that has begun."""
        deadline = time.monotonic() + PATIENCE_S
        wait = FIRST_RETRY_S
        while True:
            raw = before = self._raw
            try:
                if raw is None:
                    raw = self._raw = self._connect()
                for statement in begin:
                    raw.execute(statement.encode())
            except psycopg.Error as error:
                away = _is_away(error, raw) if raw else not _REFUSED.search(str(error))
                broke = before is not None and before.broken
                self.close()
                patient = self._patient and self._pointer.url in _reached
                # What broke while this process stood still says nothing of the server now.
                late = time.monotonic() > deadline and not broke
                if not (away and patient) or late:
                    raise
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_RETRY_S)
            else:
                return raw

    def _connect(self) -> _Client:
        url = _libpq(self._pointer.url)
        known = conninfo.conninfo_to_dict(url)
        defaults = {"connect_timeout": CONNECT_S, "application_name": "sweep"}
        ours: dict[str, Any] = {key: value for key, value in defaults.items() if key not in known}
        raw = _Client.connect(conninfo.make_conninfo(url, **ours), autocommit=True)
        try:
            self._prepare(raw)
        except BaseException:
            raw.close()
            raise
        _reached.add(self._pointer.url)
        return raw

    def _prepare(self, raw: _Client) -> None:
        """Set up a new connection."""
        version = raw.info.server_version // 10000
        if version < OLDEST:
            said = f"the server is PostgreSQL {version}, {OLDEST} or newer is needed"
            raise StorageError(f"the database {self._pointer.shown}: {said}")
        raw.execute(
            f"SET search_path TO {self._pointer.schema}; SET client_encoding TO UTF8;"
            f"SET lock_timeout TO '{BUSY_S:g}s';"
            f"SET idle_in_transaction_session_timeout TO '{IDLE_S:g}s';"
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'".encode()
        )

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Turn what the server reports into one sentence that names it."""
        try:
            yield
        except psycopg.OperationalError as error:
            raise Unreachable(self._said(error)) from error
        except (psycopg.Error, UnicodeError) as error:
            raise StorageError(self._said(error)) from error
        except DecodeError as error:
            raise DamagedLedger(self.path, str(error)) from error

    def _said(self, error: Exception) -> str:
        return f"the database {self._pointer.shown}: {_reason(error)}"


def _reason(error: Exception) -> str:
    """Return the message of the server, or of the library that cannot reach it, on one line."""
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return said or " ".join(str(error).split())


#: How a transaction that changes something begins, whatever the server's defaults are: above READ
#: COMMITTED, who waits for another's lock sees afterwards the lease as it was before.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
#: How a transaction that writes begins.
_WRITING = (_BEGIN, "SELECT 1 FROM sweep FOR UPDATE")


def _is_away(error: psycopg.Error, raw: _Client) -> bool:
    """Return whether the connection is lost or the server too busy: a later try may work."""
    if raw.broken or raw.closed:
        return True
    if error.sqlstate is None:
        # Not the server's word: libpq's, of a connection that may not know yet that it is gone.
        # "Cannot exit pipeline mode while busy" is one, where a server ends between two answers.
        return isinstance(error, psycopg.OperationalError) and not isinstance(error, _Silent)
    return error.sqlstate.startswith(_AWAY)
