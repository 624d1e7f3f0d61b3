"""The ledger's tables on a PostgreSQL server: one schema for each sweep, named by the sweep's ID.

Schemas are used instead of shared tables so that the SQL is the same as for a file, a sweep can be
upgraded and removed alone, and transactions of different sweeps never wait for each other. The
signed file ``sweep.postgresql`` names server and schema; it contains no password.

A writer first locks the one row of the table `sweep`. So writers follow each other as with a file,
and each sees the lease as its predecessor left it. The server ends a transaction whose client is
silent for `IDLE_S`, so a suspended driver blocks nobody. Times are in seconds.
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

from sweep.core.errors import BadConfig, DamagedLedger, StorageError, UsageError, place_of
from sweep.ledger import signed, tables
from sweep.ledger.codec import DecodeError
from sweep.ledger.tables import Connection, Interrupted, Unreachable

#: Timeout of connecting, in seconds, unless the URL has one.
CONNECT_S = 10
#: Seconds for which a lost server is retried if this process has reached it before.
PATIENCE_S = 60.0
#: Seconds of silence in the middle of a statement after which the server counts as hung.
HANG_S = 75.0
#: Seconds for which a writer waits for another transaction.
BUSY_S = 60.0
#: Seconds of silence in a transaction after which the server ends it; shorter than a lease.
IDLE_S = 20.0
#: Seconds between two attempts to reach a server: the first delay, doubled up to the second.
FIRST_RETRY_S, LONGEST_RETRY_S = 0.05, 0.5
#: Remedies: for a server that is away, for a missing right, and for any other error.
_SEE = "check that the server is running and that you can log in, then try again"
#: Advice if a right is missing.
_ASK = "ask the owner of the database for that right"
#: Advice if the ledger may be damaged.
_VERIFY = "`sweep verify` lists the damage"
#: Oldest supported version of PostgreSQL.
OLDEST = 12

# psycopg logs lost connections; they are remade here, or reported in an error.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

#: Pattern of the beginning of a PostgreSQL URL.
_URL = re.compile(r"postgresql(\+psycopg)?://")
#: Pattern of the name of a ledger's schema.
_SCHEMA = re.compile(r"sweep_[0-9a-f]{32}")
#: Keys of a connection whose values are never shown.
_SECRETS = frozenset(("password", "sslpassword", "oauth_client_secret"))
#: Prefixes of SQLSTATE while a server starts, stops or recovers, or has too many clients.
_AWAY = ("08", "57P", "53300")
#: SQL that selects the server's time in seconds since 1970, and its version.
_ABOUT = "SELECT extract(epoch FROM clock_timestamp())::float8, current_setting('server_version')"
#: Query for settings whose value "off" may damage the database when its machine crashes. The
#: setting synchronous_commit is no risk: `_prepare` turns it on.
_CARELESS = """
SELECT name FROM pg_catalog.pg_settings
WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name
"""
#: SQL that selects objects in a schema that no ledger has.
_STRANGE = """
SELECT CASE relkind WHEN 'r' THEN 'rule, trigger or policy on'
       ELSE 'relation of kind ' || relkind::text END, relname
FROM pg_catalog.pg_class
WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = current_schema())
      AND (relkind NOT IN ('r', 'i', 'S') OR relhasrules OR relhastriggers OR relrowsecurity)
LIMIT 1
"""
#: Pattern of errors by which a server refuses this user: retrying changes nothing.
_REFUSED = re.compile("authentication|password|does not exist|pg_hba")
#: URLs of the servers that this process has reached.
_reached: set[str] = set()


class Pointer(NamedTuple):
    """Address of a ledger on a PostgreSQL server."""

    url: str
    """URL of the server."""
    schema: str
    """Name of the sweep's schema in the database."""

    @property
    def shown(self) -> str:
        """Address for messages: server and schema, without secrets."""
        return f"{place_of(self.url)}, schema {self.schema}"


def check(url: str) -> None:
    """Raise BadConfig if a URL is not one for a ledger in PostgreSQL, or contains a password.

    The message shows no secret.
    """
    shown, allowed = place_of(url), "postgresql+psycopg://HOST[:PORT]/DATABASE"
    if not _URL.match(url):
        raise BadConfig("--storage", shown, allowed)
    if _has_secret(url.partition("://")[2]):
        raise BadConfig(
            *(
                "--storage",
                shown,
                ("a URL without a password, because everybody can read a command line"),
            ),
            "write the password into ~/.pgpass (or the file that PGPASSFILE or "
            "?passfile=FILE names), or write a service into ~/.pg_service.conf and add "
            "?service=NAME to the URL",
            problem="the URL contains a password",
        )
    try:
        conninfo.conninfo_to_dict(_libpq_url(url))
    except psycopg.Error:  # its message may contain parts of the URL
        raise BadConfig("--storage", shown, allowed) from None


def _has_secret(after_scheme: str) -> bool:
    """Return whether the part of a URL after ``://`` contains a password, even if badly quoted."""
    before, _, query = after_scheme.partition("?")
    # libpq reads a `?` before the first `/` as part of the password.
    users = (part.rpartition("@")[0] for part in (before, after_scheme.partition("/")[0]))
    keys = {unquote(part.partition("=")[0]).lower() for part in query.split("&")}
    return any(":" in user for user in users) or bool(keys & _SECRETS)


class Server(NamedTuple):
    """Properties of a PostgreSQL server, for `sweep doctor`."""

    version: str
    """Version of PostgreSQL, as the server says it."""
    ahead_s: float
    """Seconds by which the server's clock is ahead of this machine's."""
    unsafe_settings: tuple[str, ...]
    """Names of settings that are off although the database may be lost without them when the
    server's machine crashes."""


def examine(url: str) -> Server:
    """Connect to a server and return its properties; tests that a schema may be created.

    The schema is dropped again in the same transaction.

    Raises:
        BadConfig: the URL is not valid for a ledger.
        StorageError: the server cannot be reached, is too old, or refuses to create a schema.
    """
    check(url)
    schema = f"sweep_{uuid.uuid4().hex}"
    with closing(Database(Path(), Pointer(url, schema), patient=False)) as database:
        try:
            with database.creating() as connection:
                began = time.time()
                now, version = connection.execute(_ABOUT).fetchone()
                ahead_s = float(now) - (began + time.time()) / 2
                careless = tuple(name for (name,) in connection.execute(_CARELESS).fetchall())
                connection.execute(f"DROP SCHEMA {schema}")  # the transaction is not committed yet
        except StorageError as error:
            said = str(error).replace(f", schema {schema}", "")
            said = said.removesuffix(f"; {_SEE}").removesuffix(f"; {_ASK}")
            if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                said += "; ask its owner to run GRANT CREATE ON DATABASE name TO you"
            raise StorageError(said) from error
    return Server(version, ahead_s, careless)


def write_pointer(path: Path, url: str, sweep_id: str) -> Pointer:
    """Write a signed file with the address of a new sweep's ledger, and return the address.

    The schema is named after `sweep_id`; it is not created. Raises OSError if the file cannot be
    written.
    """
    pointer = Pointer(url, f"sweep_{sweep_id}")
    signed.write(path, pointer._asdict())
    return pointer


def read_pointer(path: Path) -> Pointer:
    """Return the address of a ledger from the signed file at `path`.

    Raises:
        UsageError: the file cannot be read, holds something else, or is neither signed by this user
            nor trusted.
    """
    try:
        content = signed.read(path)
        pointer = Pointer(str(content["url"]), str(content["schema"]))
        check(pointer.url)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, BadConfig) as error:
        raise UsageError(
            f"{path}: this file does not name the database of a ledger ({error}); restore a copy "
            "of the file"
        ) from error
    if not _SCHEMA.fullmatch(pointer.schema):
        raise UsageError(
            f"{path}: this file does not name the database of a ledger (schema "
            f"{pointer.schema[:80]!r}); restore a copy of the file"
        )
    if not signed.is_accepted(content, path):
        raise UsageError(
            f"{path}: another user chose the server {place_of(pointer.url)}; to send it your "
            f"credentials, run `sweep trust {path}` first"
        )
    return pointer


def _libpq_url(url: str) -> str:
    """Return a URL with the scheme ``postgresql``, without a name of a driver."""
    return f"postgresql:{url.partition(':')[2]}"


class _ServerSilent(psycopg.OperationalError):
    """A server accepted the connection but did not answer for `HANG_S` seconds.

    It is not retried, since that would take as long again.
    """


class _Client(psycopg.Connection[tuple[Any, ...]]):
    """A psycopg connection that gives up a server after `HANG_S` seconds of silence."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run one step of psycopg's protocol.

        Raises `_ServerSilent` after `HANG_S` seconds without data.
        """
        return super().wait(_limit_silence(gen), interval, timeout)

    def __del__(self, *_: object) -> None:
        """Do nothing, where psycopg would warn of an open connection: it may end as files do."""


def _limit_silence(gen: Any) -> Any:
    """Run psycopg's generator `gen` as its caller does, and return its result.

    Raises `_ServerSilent` if the connection is not ready for `HANG_S` seconds.
    """
    heard = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                heard = time.monotonic()
            elif time.monotonic() - heard > HANG_S:
                gen.close()
                raise _ServerSilent(f"the server has not answered for {HANG_S:g} s")
            wanted = gen.send(ready)
    except StopIteration as stop:
        return stop.value


class _Statements:
    """Connection that runs statements in SQLite's dialect on a psycopg connection.

    It implements `tables.Connection`.
    """

    def __init__(self, raw: _Client) -> None:
        self.raw = raw

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> tables.Cursor:
        """Execute one statement in SQLite's dialect; return its cursor."""
        return self.raw.execute(_translate(statement), parameters)

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> tables.Cursor:
        """Execute one statement in SQLite's dialect for each row of parameters.

        Returns the cursor.
        """
        cursor = self.raw.cursor()
        cursor.executemany(_translate(statement), parameters)
        return cursor


@cache
def _translate(statement: str) -> bytes:
    """Return a statement in SQLite's dialect as one for psycopg.

    It has ``%s`` in place of ``?``, and BIGINT in place of INTEGER in new tables.
    """
    if statement.startswith("CREATE TABLE"):
        statement = statement.replace(" INTEGER", " BIGINT")
    return statement.replace("%", "%%").replace("?", "%s").encode()


class Database:
    """Schema of one sweep on a PostgreSQL server, with one connection that is opened on demand.

    A lost connection is opened again by the next transaction. If this process has ever reached the
    server, beginning a transaction is retried for `PATIENCE_S` seconds. Threads may use the object
    in turn.

    Args:
        path: file that names the schema, for messages.
        patient: False to retry nothing.
    """

    dialect = "postgresql+psycopg"
    """Name of the dialect in SQLAlchemy."""

    def __init__(self, path: Path, pointer: Pointer, patient: bool = True) -> None:
        self.path = path
        self._pointer = pointer
        self._patient = patient
        self._raw: _Client | None = None

    def close(self) -> None:
        """Close the connection; the next transaction opens another."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    def reading(self) -> AbstractContextManager[Connection]:
        """Return a context manager with a read-only transaction.

        It sees all tables at one moment.
        """
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def writing(self) -> AbstractContextManager[Connection]:
        """Return a context manager with a transaction that holds the write lock throughout.

        It waits up to `BUSY_S` seconds for the lock, then raises StorageError.
        """
        return self._transaction(*_WRITING)

    @contextmanager
    def creating(self) -> Iterator[Connection]:
        """Create the schema, and yield the transaction in which its tables are to be created.

        Raises StorageError if the schema exists already.
        """
        with self._transaction(_BEGIN) as connection:
            connection.execute(f"CREATE SCHEMA {self._pointer.schema}")
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[tuple[Any, Connection, Sequence[str]]]:
        """Yield (connection of psycopg, `Connection`, statements) for a migration by SQLAlchemy.

        The second wraps the first, which is new and is closed when the block ends. The statements
        begin a transaction with the write lock.
        """
        with self._convert_errors(), closing(self._connect()) as raw:
            yield raw, _Statements(raw), _WRITING

    @contextmanager
    def removing(self) -> Iterator[None]:
        """Delete the sweep's schemas when the block succeeds.

        These are all whose names begin with the name of its schema. Raises StorageError, before the
        block begins, if the server refuses.
        """
        query = "SELECT nspname FROM pg_catalog.pg_namespace WHERE starts_with(nspname, ?)"
        with self._transaction(_BEGIN) as connection:
            for (name,) in connection.execute(query, (self._pointer.schema,)).fetchall():
                connection.execute(f'DROP SCHEMA "{name}" CASCADE')
            yield

    def companion_schema(self, name: str) -> "Database":
        """Return the database of a further schema of this sweep, named after `name`.

        `removing` deletes it together with this one. Nothing is created.
        """
        pointer = self._pointer._replace(schema=f"{self._pointer.schema}_{name}")
        return Database(self.path, pointer, self._patient)

    def connected(self, only_read: bool) -> Any:
        """Return a new psycopg connection for SQLAlchemy, which begins and ends its transactions.

        With `only_read`, the server refuses to write. The caller must close the connection.
        """
        with self._convert_errors():
            raw = self._connect()
            raw.execute(f"SET default_transaction_read_only TO {only_read}".encode())
            raw.autocommit = False
        return raw

    def make_schema(self) -> None:
        """Create the schema if it does not exist, without tables."""
        with self._transaction(_BEGIN) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._pointer.schema}")

    def drop_schema(self) -> None:
        """Delete the schema with all its tables, if it exists."""
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
        """Address of the ledger for messages: server and schema, without secrets."""
        return self._pointer.shown

    def keep_journal(self) -> None:
        """Do nothing: only files have a journal mode."""

    def copy(self, revision: str) -> str:
        """Copy all tables to a schema whose name ends with `revision`; return a text that names it.

        An older copy of this name is replaced, in one transaction.
        """
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

    def find_foreign_object(self, connection: Connection) -> tuple[str, str] | None:
        """Return kind and name of something in the schema that no driver creates.

        Returns None if there is none. Such an object, as a view or trigger, could run code when the
        tables are read.
        """
        found: tuple[str, str] | None = connection.execute(_STRANGE).fetchone()
        return found

    def damages(self, connection: Connection, limit: int) -> list[str]:
        """Return an empty list: a server itself reports damaged pages when they are read."""
        return []

    # ---- transactions and connections -------------------------------------------------------

    @contextmanager
    def _transaction(self, *begin: str) -> Iterator[Connection]:
        """Yield a connection inside a transaction; commit at the end, roll back on any error.

        `begin` are the statements that begin it. Connects to the server first if there is no
        connection. Raises Interrupted if the server was lost inside the transaction.
        """
        with self._convert_errors():
            raw = self._begin(begin)
            try:
                yield _Statements(raw)
                raw.execute("COMMIT")
            except BaseException as error:
                with suppress(psycopg.Error):
                    raw.execute("ROLLBACK")
                if isinstance(error, psycopg.Error) and _is_away(error, raw):
                    self.close()
                    raise Interrupted(self._describe_error(error)) from error
                if raw.info.transaction_status:  # the rollback failed
                    self.close()
                raise

    def _begin(self, begin: Sequence[str]) -> _Client:
        """Return the connection inside a new transaction, after executing the statements `begin`.

        Connects first if necessary. Retries for `PATIENCE_S` seconds while the server is away, if
        this process has reached it before and the database was made with `patient`. Raises
        `psycopg.Error` otherwise.
        """
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
                # A connection lost while this process was suspended says nothing about the server
                # now.
                late = time.monotonic() > deadline and not broke
                if not (away and patient) or late:
                    raise
                time.sleep(wait)
                wait = min(2 * wait, LONGEST_RETRY_S)
            else:
                return raw

    def _connect(self) -> _Client:
        """Return a new connection with its settings, and note that the server was reached.

        Raises `psycopg.Error` if it cannot be reached, and StorageError if it is too old.
        """
        url = _libpq_url(self._pointer.url)
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
        """Set schema, encoding, timeouts and durable commits of a new connection.

        Raises StorageError for a server that is too old.
        """
        version = raw.info.server_version // 10000
        if version < OLDEST:
            said = (
                f"the server is PostgreSQL {version}, but {OLDEST} or newer is needed; upgrade "
                "the server"
            )
            raise StorageError(f"the database {self._pointer.shown}: {said}")
        raw.execute(
            f"SET search_path TO {self._pointer.schema}; SET client_encoding TO UTF8;"
            f"SET lock_timeout TO '{BUSY_S:g}s';"
            f"SET idle_in_transaction_session_timeout TO '{IDLE_S:g}s';"
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'".encode()
        )

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Convert errors inside the block: psycopg's to StorageError, the codec's to DamagedLedger.

        Operational errors, such as a lost server, become `Unreachable`.
        """
        try:
            yield
        except psycopg.OperationalError as error:
            raise Unreachable(self._describe_error(error)) from error
        except (psycopg.Error, UnicodeError) as error:
            raise StorageError(self._describe_error(error)) from error
        except DecodeError as error:
            raise DamagedLedger(self.path, str(error)) from error

    def _describe_error(self, error: Exception) -> str:
        """Return one line about an error of the server, with its address and a remedy."""
        todo = _SEE if isinstance(error, psycopg.OperationalError) else _VERIFY
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            todo = _ASK
        return f"the database {self._pointer.shown}: {_reason(error)}; {todo}"


def _reason(error: Exception) -> str:
    """Return the message in an error of the server or of libpq, on one line."""
    said = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return said or " ".join(str(error).split())


#: Statement that begins a writing transaction, whatever the server's defaults are. At a higher
#: isolation level than READ COMMITTED, a writer that waited for the lock would see the old lease.
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
#: Statements that begin a transaction with the write lock.
_WRITING = (_BEGIN, "SELECT 1 FROM sweep FOR UPDATE")


def _is_away(error: psycopg.Error, raw: _Client) -> bool:
    """Return whether the connection is lost or the server is too busy, so that a retry may work."""
    if raw.broken or raw.closed:
        return True
    if error.sqlstate is None:
        # The error is from libpq, and the connection may not know yet that it is gone. One example
        # is "Cannot exit pipeline mode while busy", if the server stops between two responses.
        return isinstance(error, psycopg.OperationalError) and not isinstance(error, _ServerSilent)
    return error.sqlstate.startswith(_AWAY)
