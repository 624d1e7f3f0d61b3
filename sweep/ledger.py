"""The ledger: the history of one sweep in SQL, written by its driver alone.

Every write is one transaction of numbered events, made by the holder of the newest epoch. An event
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
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from sweep import clock, lease, ledger_head, schema, tables, typed
from sweep.errors import IllegalMove
from sweep.event_bodies import from_body, read_row, to_body
from sweep.events import (
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
from sweep.seeds import FIRST_TEST
from sweep.typed import Misfit

Also = Callable[[sa.Connection], None]


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class Ledger:
    """One sweep's history on disk.

    Args:
        path: the SQLite file; it must exist (see `create`).

    Raises:
        OutsideError: the database cannot be read or written.
        UsageError: it is of an older or newer revision than today's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine = tables.connect(path)
        head, self.provenance = ledger_head.read(path, self._engine)
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
            schema.stamp(connection)
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

    def begin_epoch(
        self, events: Sequence[Event], epoch: int | None = None, also: Also | None = None
    ) -> list[Recorded]:
        """Write the first events of an epoch, and what `also` writes, in one transaction.

        It is the `epoch` in which the sweep is held, or a new one, taken from whoever has it.
        NotOurs if it is over.
        """
        with tables.outside(self.path), tables.writing(self._engine) as connection:
            if epoch is None:
                epoch = lease.take(connection)
            lease.check(connection, epoch)
            if also is not None:
                also(connection)
            return _insert(connection, epoch, events)

    def append(
        self, epoch: int, events: Sequence[Event], also: Also | None = None
    ) -> list[Recorded]:
        """Write `events`, and what `also` writes, in one transaction; the events with numbers.

        Raises:
            NotOurs: a newer driver has taken the sweep over; nothing was written.
            IllegalMove: a trial may not go from its status to the new one; nothing was written.
            OutsideError: the database refused (disk full, locked); nothing was written.
        """
        with tables.outside(self.path), tables.writing(self._engine) as connection:
            lease.check(connection, epoch)
            if also is not None:
                also(connection)
            return _insert(connection, epoch, events)

    def check(self, epoch: int) -> None:
        """Raises NotOurs when `epoch` is over."""
        with tables.outside(self.path), self._engine.connect() as connection:
            lease.check(connection, epoch)

    def set_published(self, tracker: str, k: int, epoch: int | None = None) -> None:
        """Remember that `tracker` has everything up to event `k`; NotOurs if `epoch` is over."""
        with tables.outside(self.path), tables.writing(self._engine) as connection:
            if epoch is not None:
                lease.check(connection, epoch)
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
                groups.setdefault(row.trial, []).append(typed.read(Status, row.status))
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
        epoch, at = typed.read(int, row.epoch), typed.read(float, row.at)
        return Recorded(row.k, epoch, at, from_body(row.kind, row.body, results))
    except Misfit as error:
        raise Misfit(f"event {row.k}: {error}") from None


def _last(connection: sa.Connection) -> int:
    query = sa.select(tables.events.c.k).order_by(tables.events.c.k.desc()).limit(1)
    return connection.execute(query).scalar() or 0


def _insert(connection: sa.Connection, epoch: int, events: Iterable[Event]) -> list[Recorded]:
    k = _last(connection)
    recorded: list[Recorded] = []
    for event in events:
        k += 1
        record = Recorded(k, epoch, clock.now(), event)
        row = {
            "k": k,
            "epoch": epoch,
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
    was = Status.WAITING if found is None else typed.read(Status, found)
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
