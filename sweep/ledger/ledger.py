"""The ledger: the history of one sweep in SQL, written by its driver alone.

Every write is one transaction of numbered events, made by the holder of the newest term. An event
is durable when `Ledger.append` returns. The database is SQLite in WAL mode with full sync, or a
schema in PostgreSQL (`sweep.ledger.storage`). Rows are appended and never rewritten: if a trial
returns to a checkpoint, its later results move to another table, so that each event can be read as
it was recorded. Paths are relative to the sweep's folder, so that the folder can be moved.
"""

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import IllegalMove
from sweep.history.events import (
    MOVES,
    Closed,
    Created,
    Dropped,
    Event,
    Moved,
    Opened,
    Recorded,
    Reported,
    Row,
    Status,
    TermBegan,
    TermEnded,
)
from sweep.ledger import codec, lease, storage, tables, upgrade
from sweep.ledger.codec import DecodeError, from_body, read_row, to_body
from sweep.ledger.tables import Connection

# -------------------------------------------------------------------------------------------------
# The clock of events: dates whose differences are durations.
#
# It is the wall clock at the start of this process plus the time since then on the boot clock, so
# setting the wall clock meanwhile changes no duration.

#: Wall clock at the start of the boot clock, in seconds since 1970.
_BEGAN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now() -> float:
    """Return the current time on the clock of events, in seconds since 1970.

    It is the wall clock when this process started plus the time since then, so setting the wall
    clock meanwhile does not change it.
    """
    return _BEGAN + time.clock_gettime(time.CLOCK_BOOTTIME)


# -------------------------------------------------------------------------------------------------
# The header of a ledger: the one row that identifies the sweep.
#
# A ledger may come from anywhere, so it may have tables only: views and triggers would execute SQL
# of its file when it is read. The row is checked field by field.


@dataclass(frozen=True)
class LedgerHeader:
    """The one row that identifies the sweep of a ledger."""

    id: str
    """Unique ID of the sweep."""
    name: str
    """Name of the sweep."""
    spec: str
    """Spec at the sweep's creation, as canonical JSON."""
    provenance: str
    """Fields of `Provenance` as JSON."""
    created_at: float
    """Time of creation in seconds since 1970."""


@dataclass(frozen=True)
class Provenance:
    """Conditions of the results that the spec lacks, recorded at the sweep's creation."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """Name of an installed package → its version."""
    source: str = ""
    """SHA-256 in hexadecimal digits of the trainable's source file, or of the code of a script's
    trainable; empty if it has no file."""
    processor: str = ""
    """Model name of the processor."""
    paths: tuple[str, ...] = ()
    """Folders in which modules are looked for after all installed packages."""
    time_attr: str = "training_iteration"
    """Result in whose units the scheduler counts; stored with `levels` so that readers need not
    import the scheduler."""
    levels: tuple[float, ...] = ()
    """Rungs of the scheduler (values of `time_attr`), ascending; empty if it has none or they are
    not known in advance."""


@tables.retried
def read_header(database: "storage.Database") -> tuple[LedgerHeader, Mapping[str, Any]]:
    """Return the header of a ledger, and its provenance as plain data.

    Raises:
        StorageError: the ledger cannot be read.
        UsageError: its tables are of an older or newer revision.
        DamagedLedger: its contents are not valid.
    """
    names, path = list(LedgerHeader.__dataclass_fields__), database.path
    with upgrade.readable(path), database.reading() as connection:
        if strange := database.find_foreign_object(connection):
            raise DecodeError(f"it contains a {' '.join(strange)}, which sweep does not create")
        upgrade.check(connection, path)
        query = f"SELECT {', '.join(names)} FROM sweep"  # noqa: S608 ours
        rows = connection.execute(query).fetchall()
        if len(rows) != 1:
            raise DecodeError(f"its table sweep has {len(rows)} rows, not one")
        head: LedgerHeader = codec.read(LedgerHeader, dict(zip(names, rows[0], strict=True)))
        if not isinstance(codec.parse(head.spec), dict):
            raise DecodeError("its spec is not a mapping")
        return head, vars(codec.read(Provenance, codec.parse(head.provenance)))


#: Function that writes further rows in the transaction of an append.
InTransaction = Callable[[Connection], None]


def _dump(value: Any) -> str:
    """Return a value as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


class Ledger:
    """The history of one sweep in its database, with methods that read it and append events.

    `path` is the ledger's file (`Folder.ledger`).

    Raises:
        StorageError: the database cannot be read or written.
        UsageError: its tables are of an older or newer revision.
        DamagedLedger: its contents are not valid.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = storage.open_database(path)
        try:
            head, self.provenance = read_header(self._database)
        except BaseException:
            self._database.close()
            raise
        self.sweep_id: str = head.id
        self.name: str = head.name
        self.spec: str = head.spec
        self.created_at: float = head.created_at

    @classmethod
    def create(
        cls,
        path: Path,
        name: str,
        spec: str,
        provenance: Mapping[str, Any],
        url: str | None = None,
    ) -> "Ledger":
        """Create the tables of a new sweep's ledger with its header, and return the ledger.

        The lease names this process as the holder, in term 0.

        Args:
            spec: spec as canonical JSON.
            provenance: fields of `Provenance` as plain data.
            url: URL of a PostgreSQL server for the ledger, or None for an SQLite file at `path`.
                With a URL, a signed file with the address is written beside `path`.

        Raises:
            BadConfig: the URL is not valid for a ledger.
            UsageError: psycopg is not installed.
            StorageError: the database refused, or it has these tables already.
            OSError: the file with the address cannot be written.
        """
        sweep_id = uuid.uuid4().hex
        with (
            closing(storage.create_database(path, url, sweep_id)) as database,
            database.creating() as connection,
        ):
            for statement in tables.SCHEMA.strip().split(";\n"):
                connection.execute(statement)
            upgrade.stamp(connection)
            lease.put(connection, 0)
            row = (sweep_id, name, spec, _dump(provenance), time.time())
            connection.execute(
                "INSERT INTO sweep (id, name, spec, provenance, created_at) VALUES (?, ?, ?, ?, ?)",
                row,
            )
        return cls(database.path)

    def close(self) -> None:
        """Close the connection; the next call of another method opens it again."""
        self._database.close()

    # ---- writing ----------------------------------------------------------------------------

    def append(
        self,
        term: int | None,
        events: Sequence[Event],
        in_transaction: InTransaction | None = None,
    ) -> list[Recorded]:
        """Commit events in one transaction and return them with their numbers.

        They are durable when the call returns. Also updates the stored status of replicas. If a
        server is lost meanwhile, tries again, without committing the events twice.

        Args:
            term: number of the term in which the caller holds the sweep; None takes the sweep from
                its holder in a new term.
            in_transaction: function that writes further rows in the same transaction, before the
                events.

        Raises:
            SweepLocked: another driver has taken the sweep; nothing was written.
            IllegalMove: a replica may not change from its status to the new one; nothing was
                written.
            StorageError: the database refused (disk full, locked); nothing was written. After
                `Interrupted`, which is one, all events may have been written or none.
        """
        wrote: list[Recorded] = []

        def write(is_retry: bool) -> list[Recorded]:
            """Write the events, unless an earlier try has committed them; return them numbered."""
            with self._database.writing() as connection:
                if is_retry and wrote and _is_committed(connection, wrote):
                    return wrote
                its = lease.take(connection) if term is None else term
                lease.check(connection, its)
                if in_transaction is not None:
                    in_transaction(connection)
                wrote[:] = _insert(connection, its, events)
            return wrote

        return tables.call_repeatedly(write)

    @tables.retried
    def check(self, term: int) -> None:
        """Raise SweepLocked unless `term` is the current one.

        With another term, another process has taken the sweep.
        """
        with self._database.reading() as connection:
            lease.check(connection, term)

    @property
    @tables.retried
    def driven_at(self) -> float:
        """Time of the newest renewal of the lease by a process that drove the search.

        It is in seconds since 1970, on the clock of events (`now`); 0 if none has driven it yet.
        """
        with self._database.reading() as connection:
            return lease.read_row(connection).driven_at

    @tables.retried
    def set_published(self, tracker: str, k: int, term: int | None = None) -> None:
        """Record durably that a tracker has received all events up to number `k`.

        Raises SweepLocked if `term` is given and is not the current term.
        """
        with self._database.writing() as connection:
            if term is not None:
                lease.check(connection, term)
            connection.execute(
                "INSERT INTO published (tracker, k) VALUES (?, ?) "
                "ON CONFLICT (tracker) DO UPDATE SET k = excluded.k",
                (tracker, k),
            )

    # ---- reading ----------------------------------------------------------------------------

    @tables.retried
    def published(self, tracker: str) -> int:
        """Return the number of the last event that a tracker has received; 0 if it has none."""
        query = "SELECT k FROM published WHERE tracker = ?"
        with self._database.reading() as connection:
            found = connection.execute(query, (tracker,)).fetchone()
            return found[0] if found else 0

    @property
    @tables.retried
    def last(self) -> int:
        """Number of the newest event in the ledger; 0 if there is none."""
        with self._database.reading() as connection:
            return _last_number(connection)

    @tables.retried
    def read(
        self, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Recorded]:
        """Return the events with numbers above `after`, in order, at most `limit` of them.

        A `limit` of None returns all. Result rows are as recorded then; if `results` is False, they
        are left out, which takes less time.
        """
        query = f"{_EVENTS} WHERE k > ? ORDER BY k LIMIT ?"
        with self._database.reading() as connection:
            events = connection.execute(query, (after, _ALL if limit is None else limit)).fetchall()
            has_rows = results and any(kind in _WITH_RESULTS for _, _, _, kind, _ in events)
            rows = _read_results(connection, events[0][0], events[-1][0]) if has_rows else {}
            return [_decode_event(event, tuple(rows.get(event[0], ()))) for event in events]

    @tables.retried
    def newest(self, kind: str) -> Event | None:
        """Return the newest event whose `kind` is this text, without result rows.

        Returns None if there is none.
        """
        query = f"{_EVENTS} WHERE kind = ? ORDER BY k DESC LIMIT 1"
        with self._database.reading() as connection:
            row = connection.execute(query, (kind,)).fetchone()
            return None if row is None else _decode_event(row, ()).event

    @tables.retried
    def finished_at(self) -> int:
        """Return the number of the last event of a finished sweep; 0 if the sweep is not finished.

        Deletions of checkpoints (`Dropped`) after its end do not count.
        """
        newest, kinds = (
            f"{_EVENTS} WHERE kind IN (?, ?) ORDER BY k DESC LIMIT 1",
            (TermBegan, TermEnded),
        )
        last = "SELECT k FROM events WHERE kind != ? ORDER BY k DESC LIMIT 1"
        with self._database.reading() as connection:
            row = connection.execute(newest, [kind.kind for kind in kinds]).fetchone()
            event = None if row is None else _decode_event(row, ()).event
            if not isinstance(event, TermEnded) or event.outcome != "finished":
                return 0
            return int(connection.execute(last, (Dropped.kind,)).fetchone()[0])

    @tables.retried
    def results(self, trial: int, replica: int = 0) -> list[Row]:
        """Return the results that a replica has now, one row per iteration, ascending."""
        query = (
            "SELECT iteration, metrics FROM results WHERE trial = ? AND replica = ? "
            "ORDER BY iteration"
        )
        with self._database.reading() as connection:
            return [read_row(*row) for row in connection.execute(query, (trial, replica))]


#: Kinds of events that have result rows.
_WITH_RESULTS = frozenset({Reported.kind, Closed.kind})
#: SQL that selects whole events.
_EVENTS = "SELECT k, epoch, at, kind, body FROM events"
#: SQL limit that means no limit.
_ALL = 2**62


def _read_results(connection: Connection, first: int, last: int) -> dict[int, list[Row]]:
    """Return the results of events number `first` to `last`: event number → rows.

    They are as recorded then, including results that later ones replaced.
    """
    rows: dict[int, list[Row]] = defaultdict(list)
    query = (
        "SELECT k, iteration, metrics FROM results WHERE k BETWEEN ? AND ? "
        "UNION ALL SELECT k, iteration, metrics FROM superseded WHERE k BETWEEN ? AND ? "
        "ORDER BY 1, 2"
    )
    for k, iteration, metrics in connection.execute(query, (first, last, first, last)):
        rows[k].append(read_row(iteration, metrics))
    return rows


def _decode_event(event: tuple[Any, ...], results: tuple[Row, ...]) -> Recorded:
    """Return the event of a row (k, epoch, at, kind, body) of the table `events`, with its results.

    Raises DecodeError if the row is not valid; the message begins with the event's number.
    """
    k, epoch, at, kind, body = event
    try:
        term, when = codec.read(int, epoch), codec.read(float, at)
        return Recorded(k, term, when, from_body(kind, body, results))
    except DecodeError as error:
        raise DecodeError(f"event {k}: {error}") from None


def _last_number(connection: Connection) -> int:
    """Return the number of the newest event in a transaction; 0 if there is none."""
    (last,) = connection.execute("SELECT coalesce(max(k), 0) FROM events").fetchone()
    return int(last)


def _insert(connection: Connection, term: int, events: Iterable[Event]) -> list[Recorded]:
    """Insert events with consecutive numbers, their results, and the new status of their replicas.

    Returns them with number, `term` and time. Raises IllegalMove for a change of status that is not
    allowed.
    """
    recorded: list[Recorded] = []
    for k, event in enumerate(events, start=_last_number(connection) + 1):
        time_now, trial = now(), getattr(event, "trial", None)
        connection.execute(
            "INSERT INTO events (k, epoch, at, kind, trial, body) VALUES (?, ?, ?, ?, ?, ?)",
            (k, term, time_now, event.kind, trial, _dump(to_body(event))),
        )
        _set_status(connection, event)
        if isinstance(event, Reported | Closed):
            _insert_results(connection, k, event)
        recorded.append(Recorded(k, term, time_now, event))
    return recorded


def _is_committed(connection: Connection, wrote: Sequence[Recorded]) -> bool:
    """Return whether the database has these events, so that only the reply was lost.

    Number, term and time of each must be equal. `wrote` must not be empty.
    """
    query = "SELECT k, epoch, at FROM events WHERE k BETWEEN ? AND ? ORDER BY k"
    found = connection.execute(query, (wrote[0].number, wrote[-1].number)).fetchall()
    return found == [(record.number, record.term, record.time) for record in wrote]


def _set_status(connection: Connection, event: Event) -> None:
    """Store the status that an event gives its replica, adding the row of a new replica.

    A new trial gets a WAITING row for each replica; events without a status change nothing. Raises
    IllegalMove if the change of status is not allowed.
    """
    match event:
        case Created():
            for replica in range(event.replicas):
                _add_replica(connection, event.trial, replica)
            return
        case Opened():
            status = Status.RUNNING
        case Closed() | Moved():
            status = event.status
        case _:
            return
    key = (event.trial, event.replica)
    query = "SELECT status FROM replicas WHERE trial = ? AND replica = ?"
    found = connection.execute(query, key).fetchone()
    if found is None:
        _add_replica(connection, *key)
    was = Status.WAITING if found is None else codec.read(Status, *found)
    if status not in MOVES[was]:
        raise IllegalMove(event.trial, was, status)
    change = "UPDATE replicas SET status = ? WHERE trial = ? AND replica = ?"
    connection.execute(change, (status, *key))


def _add_replica(connection: Connection, trial: int, replica: int) -> None:
    """Insert the row of a new replica, with status WAITING."""
    row = (trial, replica, Status.WAITING)
    connection.execute("INSERT INTO replicas (trial, replica, status) VALUES (?, ?, ?)", row)


def _insert_results(connection: Connection, k: int, event: Reported | Closed) -> None:
    """Insert the results of event number `k` as the replica's present ones.

    Older results of the replica after iteration `source` of the event are moved to the table
    `superseded`.
    """
    passed = "FROM results WHERE trial = ? AND replica = ? AND iteration > ?"
    columns, after = "k, trial, replica, iteration, metrics", (event.trial, event.replica)
    copy = f"INSERT INTO superseded ({columns}) SELECT {columns} {passed}"
    if connection.execute(copy, (*after, event.source)).rowcount:
        connection.execute(f"DELETE {passed}", (*after, event.source))
    connection.executemany(
        "INSERT INTO results (trial, replica, iteration, k, metrics) VALUES (?, ?, ?, ?, ?)",
        [(*after, row.iteration, k, _dump(dict(row.metrics))) for row in event.rows],
    )


def iterate(
    ledger: Ledger, after: int = 0, batch: int = 500, results: bool = True
) -> Iterator[list[Recorded]]:
    """Yield the events with numbers above `after` in lists of at most `batch`, in order.

    If `results` is False, their result rows are left out. Ends when no further event is there.
    """
    while records := ledger.read(after, batch, results):
        yield records
        after = records[-1].number
