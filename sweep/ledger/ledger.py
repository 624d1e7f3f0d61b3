"""The ledger: the history of one sweep in SQL, written by its driver alone.

Every write is one transaction of numbered events, made by the holder of the newest term. An event
is durable when `Ledger.append` returns. SQLite in WAL mode with full sync by default; rows are
appended, never rewritten: where a trial goes back to a checkpoint, later results go to a table of
their own, so that each event is read as it was. Paths inside are relative to the sweep's folder, so
that the folder can be moved.
"""

import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sweep.errors import IllegalMove, StorageError
from sweep.history.events import (
    MOVES,
    Closed,
    Created,
    Event,
    Moved,
    Opened,
    Recorded,
    Row,
    Status,
    group_status,
)
from sweep.history.seeds import FIRST_TEST
from sweep.ledger import codec, lease, tables, upgrade
from sweep.ledger.codec import DecodeError, from_body, read_row, to_body

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
    """What the results depend on beside the spec, as it was when the sweep was created."""

    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    processor: str = ""
    paths: tuple[str, ...] = ()
    time_attr: str = "training_iteration"
    """Of the scheduler, as are its `levels`: whoever only looks does not import it."""
    levels: tuple[float, ...] = ()


def read_header(path: Path, engine: sa.Engine) -> tuple[LedgerHeader, Mapping[str, Any]]:
    """The head, and the provenance in it as plain data.

    Raises:
        StorageError: the file cannot be read.
        UsageError: it is of an older or newer revision than today's.
        DamagedLedger: no driver has written it so.
    """
    try:
        with engine.connect() as connection:
            strange = connection.exec_driver_sql(tables.STRANGE).first()
            if strange is None:
                upgrade.check(connection, path)
            row = None if strange else connection.execute(sa.select(tables.sweep)).one()
    except (sa.exc.SQLAlchemyError, UnicodeDecodeError) as error:
        raise StorageError(f"{path}: is no readable ledger ({tables.reason(error)})") from error
    with tables.outside(path):
        if row is None:
            raise DecodeError(f"it has a {' '.join(strange or ())}, which no driver makes")
        head: LedgerHeader = codec.read(LedgerHeader, dict(row._mapping))
        if not isinstance(codec.parse(head.spec), dict):
            raise DecodeError("its spec is no mapping")
        return head, vars(codec.read(Provenance, codec.parse(head.provenance)))


InTransaction = Callable[[sa.Connection], None]


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Ledger:
    """One sweep's history on disk.

    Args:
        path: the SQLite file; it must exist (see `create`).

    Raises:
        StorageError: the database cannot be read or written.
        UsageError: it is of an older or newer revision than today's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = tables.connect(path)
        head, self.provenance = read_header(path, self._engine)
        self.sweep_id: str = head.id
        self.name: str = head.name
        self.spec: str = head.spec
        self.created_at: float = head.created_at

    @classmethod
    def create(cls, path: Path, name: str, spec: str, provenance: Mapping[str, Any]) -> "Ledger":
        """Make the file of a new sweep; `spec` is canonical JSON."""
        tables.keep_journal(path)
        engine = tables.connect(path)
        with tables.outside(path), tables.writing(engine) as connection:
            tables.metadata.create_all(connection)
            upgrade.stamp(connection)
            lease.begin(connection)
            row = {
                "id": uuid.uuid4().hex,
                "name": name,
                "spec": spec,
                "provenance": _dump(provenance),
                "created_at": time.time(),
            }
            connection.execute(tables.sweep.insert().values(row))
        engine.dispose()
        return cls(path)

    def close(self) -> None:
        """Let go of the file."""
        self._engine.dispose()

    # ---- writing ----------------------------------------------------------------------------

    def begin_term(
        self,
        events: Sequence[Event],
        term: int | None = None,
        in_transaction: InTransaction | None = None,
    ) -> list[Recorded]:
        """Write the first events of an term, and what `also` writes, in one transaction.

        It is the `term` in which the sweep is held, or a new one, taken from whoever has it.
        SweepLocked if it is over.
        """
        with tables.outside(self.path), tables.writing(self._engine) as connection:
            if term is None:
                term = lease.take(connection)
            lease.check(connection, term)
            if in_transaction is not None:
                in_transaction(connection)
            return _insert(connection, term, events)

    def append(
        self, term: int, events: Sequence[Event], in_transaction: InTransaction | None = None
    ) -> list[Recorded]:
        """Write `events`, and what `also` writes, in one transaction; the events with numbers.

        Raises:
            SweepLocked: a newer driver has taken the sweep over; nothing was written.
            IllegalMove: a trial may not go from its status to the new one; nothing was written.
            StorageError: the database refused (disk full, locked); nothing was written.
        """
        with tables.outside(self.path), tables.writing(self._engine) as connection:
            lease.check(connection, term)
            if in_transaction is not None:
                in_transaction(connection)
            return _insert(connection, term, events)

    def check(self, term: int) -> None:
        """Raises SweepLocked when `term` is over."""
        with tables.outside(self.path), self._engine.connect() as connection:
            lease.check(connection, term)

    def set_published(self, tracker: str, k: int, term: int | None = None) -> None:
        """Remember that `tracker` has all up to event `k`; SweepLocked if `term` is over."""
        with tables.outside(self.path), tables.writing(self._engine) as connection:
            if term is not None:
                lease.check(connection, term)
            connection.execute(
                tables.published.delete().where(tables.published.c.tracker == tracker)
            )
            connection.execute(tables.published.insert().values(tracker=tracker, k=k))

    # ---- reading ----------------------------------------------------------------------------

    def published(self, tracker: str) -> int:
        """The number of the last event that `tracker` has; 0: none."""
        query = sa.select(tables.published.c.k).where(tables.published.c.tracker == tracker)
        with tables.outside(self.path), self._engine.connect() as connection:
            return connection.execute(query).scalar() or 0

    @property
    def last(self) -> int:
        """The number of the last event; 0: there is none."""
        with tables.outside(self.path), self._engine.connect() as connection:
            return _last(connection)

    def read(self, after: int = 0, limit: int | None = None) -> list[Recorded]:
        """Events with numbers above `after`, in order, with their results."""
        query = (
            sa.select(tables.events)
            .where(tables.events.c.k > after)
            .order_by(tables.events.c.k)
            .limit(limit)
        )
        with tables.outside(self.path), self._engine.connect() as connection:
            events = connection.execute(query).all()
            if not events:
                return []
            has_rows = any(event.kind == Closed.kind for event in events)
            rows = _rows(connection, events[0].k, events[-1].k) if has_rows else {}
            return [_recorded(row, tuple(rows.get(row.k, ()))) for row in events]

    def newest(self, kind: str) -> Event | None:
        """The newest event of a kind that has no results; None: there is none."""
        of_kind = tables.events.select().where(tables.events.c.kind == kind)
        with tables.outside(self.path), self._engine.connect() as connection:
            row = connection.execute(of_kind.order_by(tables.events.c.k.desc()).limit(1)).first()
            return None if row is None else _recorded(row, ()).event

    def counts(self) -> dict[Status, int]:
        """How many trials have each status."""
        columns = tables.replicas.c
        query = sa.select(columns.trial, columns.status).where(columns.replica < FIRST_TEST)
        with tables.outside(self.path), self._engine.connect() as connection:
            groups: dict[int, list[Status]] = {}
            for row in connection.execute(query).all():
                groups.setdefault(row.trial, []).append(codec.read(Status, row.status))
        return Counter(group_status(statuses) for statuses in groups.values())

    def results(self, trial: int, replica: int = 0) -> list[Row]:
        """All results of one replica, all keys, by iteration."""
        columns = tables.results.c
        query = (
            sa.select(tables.results)
            .where((columns.trial == trial) & (columns.replica == replica))
            .order_by(columns.iteration)
        )
        with tables.outside(self.path), self._engine.connect() as connection:
            return [read_row(row.iteration, row.metrics) for row in connection.execute(query)]


def _rows(connection: sa.Connection, first: int, last: int) -> dict[int, list[Row]]:
    """Event number → its results as they were recorded."""
    rows: dict[int, list[Row]] = {}
    for table in (tables.results, tables.superseded):
        columns = table.c
        query = sa.select(columns.k, columns.iteration, columns.metrics)
        for row in connection.execute(query.where(columns.k.between(first, last))):
            rows.setdefault(row.k, []).append(read_row(row.iteration, row.metrics))
    return {k: sorted(its, key=lambda row: row.iteration) for k, its in rows.items()}


def _recorded(row: sa.Row[Any], results: tuple[Row, ...]) -> Recorded:
    try:
        term, at = codec.read(int, row.epoch), codec.read(float, row.at)
        return Recorded(row.k, term, at, from_body(row.kind, row.body, results))
    except DecodeError as error:
        raise DecodeError(f"event {row.k}: {error}") from None


def _last(connection: sa.Connection) -> int:
    query = sa.select(tables.events.c.k).order_by(tables.events.c.k.desc()).limit(1)
    return connection.execute(query).scalar() or 0


def _insert(connection: sa.Connection, term: int, events: Iterable[Event]) -> list[Recorded]:
    k = _last(connection)
    recorded: list[Recorded] = []
    for event in events:
        k += 1
        record = Recorded(k, term, now(), event)
        row = {
            "k": k,
            "epoch": term,
            "at": record.at,
            "kind": event.kind,
            "trial": getattr(event, "trial", None),
            "body": _dump(to_body(event)),
        }
        connection.execute(tables.events.insert().values(row))
        _set_status(connection, event)
        if isinstance(event, Closed):
            _insert_results(connection, k, event)
        recorded.append(record)
    return recorded


def _set_status(connection: sa.Connection, event: Event) -> None:
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
    columns = tables.replicas.c
    this = (columns.trial == event.trial) & (columns.replica == event.replica)
    found = connection.execute(sa.select(columns.status).where(this)).scalar()
    if found is None:
        _add_replica(connection, event.trial, event.replica)
    was = Status.WAITING if found is None else codec.read(Status, found)
    if status not in MOVES[was]:
        raise IllegalMove(event.trial, was, status)
    connection.execute(tables.replicas.update().where(this).values(status=status))


def _add_replica(connection: sa.Connection, trial: int, replica: int) -> None:
    waiting = {"trial": trial, "replica": replica, "status": Status.WAITING}
    connection.execute(tables.replicas.insert().values(waiting))


def _insert_results(connection: sa.Connection, k: int, event: Closed) -> None:
    old, new = tables.results.c, tables.superseded.c
    this = (old.trial == event.trial) & (old.replica == event.replica)
    passed = this & (old.iteration > event.source)
    copied = [old[column.name] for column in new]
    copy = tables.superseded.insert().from_select(list(new), sa.select(*copied).where(passed))
    if connection.execute(copy).rowcount:
        connection.execute(tables.results.delete().where(passed))
    rows = [
        {
            "trial": event.trial,
            "replica": event.replica,
            "iteration": row.iteration,
            "k": k,
            "metrics": _dump(dict(row.metrics)),
        }
        for row in event.rows
    ]
    if rows:
        connection.execute(tables.results.insert(), rows)


def iterate(ledger: Ledger, after: int = 0, batch: int = 500) -> Iterator[list[Recorded]]:
    """Events with numbers above `after` in batches, until there are none."""
    while records := ledger.read(after, batch):
        yield records
        after = records[-1].k
