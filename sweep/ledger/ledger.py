"""The ledger: the history of one sweep in SQL, written by its driver alone.

Every write is one transaction of numbered events, made by the holder of the newest term. An event
is durable when `Ledger.append` returns. SQLite in WAL mode with full sync by default, or a schema
in PostgreSQL (`sweep.ledger.storage`); rows are appended, never rewritten: where a trial goes back
to a checkpoint, later results go to a table of their own, so that each event is read as it was.
Paths inside are relative to the sweep's folder, so that the folder can be moved.
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

from sweep.errors import IllegalMove
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
# The time of events: a date whose differences are durations.
#
# It is the wall clock of when this process began, and from there on the time since the machine
# was started. So a wall clock that is set meanwhile, forwards or back, changes no duration.

_BEGAN = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now() -> float:
    """Seconds since 1970."""
    return _BEGAN + time.clock_gettime(time.CLOCK_BOOTTIME)


# -------------------------------------------------------------------------------------------------
# The head of a ledger: the one row that says which sweep it is, and whether it is a ledger at
# all.
#
# A ledger may come from anywhere: its tables must be tables, without triggers, so that reading it
# computes nothing that its file asks for, and the row is checked field by field.


@dataclass(frozen=True)
class LedgerHeader:
    """Which sweep a ledger is of."""

    id: str
    name: str
    spec: str
    """Canonical JSON."""
    provenance: str
    created_at: float


@dataclass(frozen=True)
class Provenance:
    """Conditions of the results beside the spec, as they were when the sweep was created."""

    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    processor: str = ""
    paths: tuple[str, ...] = ()
    time_attr: str = "training_iteration"
    """Of the scheduler, as are its `levels`: a reader need not import it."""
    levels: tuple[float, ...] = ()


@tables.repeatable
def read_header(database: "storage.Database") -> tuple[LedgerHeader, Mapping[str, Any]]:
    """The head, and the provenance in it as plain data.

    Raises:
        StorageError: the file cannot be read.
        UsageError: it is of an older or newer revision than today's.
        DamagedLedger: no driver has written it so.
    """
    names, path = list(LedgerHeader.__dataclass_fields__), database.path
    with upgrade.readable(path), database.reading() as connection:
        if strange := database.strange(connection):
            raise DecodeError(f"it has a {' '.join(strange)}, which no driver makes")
        upgrade.check(connection, path)
        query = f"SELECT {', '.join(names)} FROM sweep"  # noqa: S608 ours
        rows = connection.execute(query).fetchall()
        if len(rows) != 1:
            raise DecodeError(f"its table sweep has {len(rows)} rows, not one")
        head: LedgerHeader = codec.read(LedgerHeader, dict(zip(names, rows[0], strict=True)))
        if not isinstance(codec.parse(head.spec), dict):
            raise DecodeError("its spec is no mapping")
        return head, vars(codec.read(Provenance, codec.parse(head.provenance)))


InTransaction = Callable[[Connection], None]


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Ledger:
    """One sweep's history; `path` is its file (see `storage`).

    Raises:
        StorageError: the database cannot be read or written.
        UsageError: it is of an older or newer revision than today's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = storage.opened(path)
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
        """Make the ledger of a new sweep; `spec` is canonical JSON, `url` as in `storage.made`."""
        sweep_id = uuid.uuid4().hex
        with (
            closing(storage.made(path, url, sweep_id)) as database,
            database.making() as connection,
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
        """Let go of the file."""
        self._database.close()

    # ---- writing ----------------------------------------------------------------------------

    def append(
        self,
        term: int | None,
        events: Sequence[Event],
        in_transaction: InTransaction | None = None,
    ) -> list[Recorded]:
        """Write `events`, and what `in_transaction` writes, in one transaction; with their numbers.

        Args:
            term: in which the sweep is held; None: a new one, taken from its holder.
            events: what is appended.
            in_transaction: writes the rest of the transaction, before the events.

        Raises:
            SweepLocked: a newer driver has taken the sweep over; nothing was written.
            IllegalMove: a trial may not go from its status to the new one; nothing was written.
            StorageError: the database refused (disk full, locked); nothing was written.
        """
        wrote: list[Recorded] = []

        def write(again: bool) -> list[Recorded]:
            with self._database.writing() as connection:
                if again and wrote and _stands(connection, wrote):
                    return wrote
                its = lease.take(connection) if term is None else term
                lease.check(connection, its)
                if in_transaction is not None:
                    in_transaction(connection)
                wrote[:] = _insert(connection, its, events)
            return wrote

        return tables.repeated(write)

    @tables.repeatable
    def check(self, term: int) -> None:
        """Raises SweepLocked when `term` is over."""
        with self._database.reading() as connection:
            lease.check(connection, term)

    @property
    @tables.repeatable
    def drove_at(self) -> float:
        """The newest sign of life of a driver of the search, on the clock of events."""
        with self._database.reading() as connection:
            return lease.standing(connection).drove_at

    @tables.repeatable
    def set_published(self, tracker: str, k: int, term: int | None = None) -> None:
        """Remember that `tracker` has all up to event `k`; SweepLocked if `term` is over."""
        with self._database.writing() as connection:
            if term is not None:
                lease.check(connection, term)
            connection.execute(
                "INSERT INTO published (tracker, k) VALUES (?, ?) "
                "ON CONFLICT (tracker) DO UPDATE SET k = excluded.k",
                (tracker, k),
            )

    # ---- reading ----------------------------------------------------------------------------

    @tables.repeatable
    def published(self, tracker: str) -> int:
        """The number of the last event that `tracker` has; 0: none."""
        query = "SELECT k FROM published WHERE tracker = ?"
        with self._database.reading() as connection:
            found = connection.execute(query, (tracker,)).fetchone()
            return found[0] if found else 0

    @property
    @tables.repeatable
    def last(self) -> int:
        """The number of the last event; 0: there is none."""
        with self._database.reading() as connection:
            return _last(connection)

    @tables.repeatable
    def read(
        self, after: int = 0, limit: int | None = None, results: bool = True
    ) -> list[Recorded]:
        """Events with numbers above `after`, in order, with their `results` or without any."""
        query = f"{_EVENTS} WHERE k > ? ORDER BY k LIMIT ?"
        with self._database.reading() as connection:
            events = connection.execute(query, (after, _ALL if limit is None else limit)).fetchall()
            has_rows = results and any(kind in _WITH_RESULTS for _, _, _, kind, _ in events)
            rows = _rows(connection, events[0][0], events[-1][0]) if has_rows else {}
            return [_recorded(event, tuple(rows.get(event[0], ()))) for event in events]

    @tables.repeatable
    def newest(self, kind: str) -> Event | None:
        """The newest event of a kind that has no results; None: there is none."""
        query = f"{_EVENTS} WHERE kind = ? ORDER BY k DESC LIMIT 1"
        with self._database.reading() as connection:
            row = connection.execute(query, (kind,)).fetchone()
            return None if row is None else _recorded(row, ()).event

    @tables.repeatable
    def finished_at(self) -> int:
        """The number of the last event of a finished sweep; 0: it is not finished.

        Checkpoints that are let go after its end do not count.
        """
        newest, kinds = (
            f"{_EVENTS} WHERE kind IN (?, ?) ORDER BY k DESC LIMIT 1",
            (TermBegan, TermEnded),
        )
        last = "SELECT k FROM events WHERE kind != ? ORDER BY k DESC LIMIT 1"
        with self._database.reading() as connection:
            row = connection.execute(newest, [kind.kind for kind in kinds]).fetchone()
            event = None if row is None else _recorded(row, ()).event
            if not isinstance(event, TermEnded) or event.how != "finished":
                return 0
            return int(connection.execute(last, (Dropped.kind,)).fetchone()[0])

    @tables.repeatable
    def results(self, trial: int, replica: int = 0) -> list[Row]:
        """All results of one replica, all keys, by iteration."""
        query = (
            "SELECT iteration, metrics FROM results WHERE trial = ? AND replica = ? "
            "ORDER BY iteration"
        )
        with self._database.reading() as connection:
            return [read_row(*row) for row in connection.execute(query, (trial, replica))]


#: Kinds of events that have results.
_WITH_RESULTS = frozenset({Reported.kind, Closed.kind})
_EVENTS = "SELECT k, epoch, at, kind, body FROM events"
#: As a limit.
_ALL = 2**62


def _rows(connection: Connection, first: int, last: int) -> dict[int, list[Row]]:
    """Event number → its results as they were recorded."""
    rows: dict[int, list[Row]] = defaultdict(list)
    query = (
        "SELECT k, iteration, metrics FROM results WHERE k BETWEEN ? AND ? "
        "UNION ALL SELECT k, iteration, metrics FROM superseded WHERE k BETWEEN ? AND ? "
        "ORDER BY 1, 2"
    )
    for k, iteration, metrics in connection.execute(query, (first, last, first, last)):
        rows[k].append(read_row(iteration, metrics))
    return rows


def _recorded(event: tuple[Any, ...], results: tuple[Row, ...]) -> Recorded:
    k, epoch, at, kind, body = event
    try:
        term, when = codec.read(int, epoch), codec.read(float, at)
        return Recorded(k, term, when, from_body(kind, body, results))
    except DecodeError as error:
        raise DecodeError(f"event {k}: {error}") from None


def _last(connection: Connection) -> int:
    (last,) = connection.execute("SELECT coalesce(max(k), 0) FROM events").fetchone()
    return int(last)


def _insert(connection: Connection, term: int, events: Iterable[Event]) -> list[Recorded]:
    recorded: list[Recorded] = []
    for k, event in enumerate(events, start=_last(connection) + 1):
        at, trial = now(), getattr(event, "trial", None)
        connection.execute(
            "INSERT INTO events (k, epoch, at, kind, trial, body) VALUES (?, ?, ?, ?, ?, ?)",
            (k, term, at, event.kind, trial, _dump(to_body(event))),
        )
        _set_status(connection, event)
        if isinstance(event, Reported | Closed):
            _insert_results(connection, k, event)
        recorded.append(Recorded(k, term, at, event))
    return recorded


def _stands(connection: Connection, wrote: Sequence[Recorded]) -> bool:
    """Return whether a transaction whose answer was lost is in the ledger."""
    query = "SELECT k, epoch, at FROM events WHERE k BETWEEN ? AND ? ORDER BY k"
    found = connection.execute(query, (wrote[0].k, wrote[-1].k)).fetchall()
    return found == [(record.k, record.term, record.at) for record in wrote]


def _set_status(connection: Connection, event: Event) -> None:
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
    this = (event.trial, event.replica)
    query = "SELECT status FROM replicas WHERE trial = ? AND replica = ?"
    found = connection.execute(query, this).fetchone()
    if found is None:
        _add_replica(connection, *this)
    was = Status.WAITING if found is None else codec.read(Status, *found)
    if status not in MOVES[was]:
        raise IllegalMove(event.trial, was, status)
    change = "UPDATE replicas SET status = ? WHERE trial = ? AND replica = ?"
    connection.execute(change, (status, *this))


def _add_replica(connection: Connection, trial: int, replica: int) -> None:
    row = (trial, replica, Status.WAITING)
    connection.execute("INSERT INTO replicas (trial, replica, status) VALUES (?, ?, ?)", row)


def _insert_results(connection: Connection, k: int, event: Reported | Closed) -> None:
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
    """Events with numbers above `after` in batches, until there are none; see `Ledger.read`."""
    while records := ledger.read(after, batch, results):
        yield records
        after = records[-1].k
