"""Check that a ledger is readable and consistent; nothing is written.

The file is opened read-only and read row by row, because `sweep.ledger.ledger` stops at the first
error. The expected statuses and results are derived from the events alone.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sweep.core.errors import StorageError
from sweep.history.events import (
    MOVES,
    Closed,
    Created,
    Event,
    FinalEvaluationBegan,
    Moved,
    Opened,
    Reported,
    Status,
)
from sweep.ledger import lease, storage, tables, upgrade
from sweep.ledger.codec import DecodeError, from_body, read_row, short_repr
from sweep.ledger.tables import Connection

# -------------------------------------------------------------------------------------------------
# Kinds of damage to a sweep's files, as plain data for messages, repairs and tests.


class Remedy(StrEnum):
    """The repair that a damage needs."""

    NONE = ""
    """No repair is possible, since no other data contains what is lost."""
    UPGRADE = "upgrade"
    """Upgrade the ledger's tables to the current revision, and keep a copy."""
    LEASE = "lease"
    """Clear the holder in the lease's row, which is unreadable."""
    STATUSES = "statuses"
    """Derive the table of the replicas' statuses from the events again."""
    DROP = "drop"
    """Record that the checkpoint is lost; its trial continues from an older one."""
    SWEEP_UP = "sweep up"
    """Delete the file, which no row of the ledger names."""
    SEND = "send"
    """Send all events to the tracker again."""


@dataclass(frozen=True)
class Damage:
    """One thing in a sweep's files that is missing, unreadable or contradicts the events."""

    part: str
    """Damaged part: ``ledger``, ``schema``, ``lease``, ``results``, ``statuses``, ``checkpoints``,
    ``files``, or a tracker's name."""
    place: str
    """Place of the damage, for example ``trial 3``, ``event 7`` or a file of the sweep's folder."""
    problem: str
    """Text that says what is wrong, without the place."""
    remedy: Remedy = Remedy.NONE
    """Repair that this damage needs."""
    trial: int = -1
    """Number of the trial that owns the checkpoint or file, with `replica`; -1 if none does."""
    replica: int = 0
    """Index of the replica (the trial under one seed) that owns the checkpoint or file."""
    digest: str = ""
    """Digest of the damaged checkpoint; empty for other damages."""


ReplicaKey = tuple[int, int]
"""Number of a trial, and index of its replica (the trial under one seed)."""

#: The largest number of damaged pages that are listed.
MOST_PAGES = 5


class Replayed:
    """Statuses and reports that follow from a ledger's events, and the damages among the events."""

    def __init__(self) -> None:
        self.damages: list[Damage] = []
        self.last = 0
        """Number of the last event; 0 before the first."""
        self.statuses: dict[ReplicaKey, Status] = {}
        self.reports: dict[int, Reported | Closed] = {}
        """Number of an event → the event, for those that report results of a slice."""
        self._trials = 0
        self._start_iterations: dict[ReplicaKey, int] = {}
        self._term = 0

    def replay(self, rows: Iterable[tuple[int, object, object, object]]) -> None:
        """Apply rows (k, term, kind, body) of the table of events; problems become damages.

        The rows are ascending by k, the event's number.
        """
        for k, said, kind, body in rows:
            term = said if isinstance(said, int) else -1
            if k != self.last + 1:
                self._add_damage(k, f"follows event {self.last}: events between them are missing")
            if term < self._term:
                self._add_damage(k, f"belongs to term {term}, but follows term {self._term}")
            self.last, self._term = k, max(term, self._term)
            try:
                event = from_body(kind, body)
            except DecodeError as error:
                self._add_damage(k, f"cannot be read ({error})")
            else:
                self._apply(k, event)

    def first_iteration(self, key: ReplicaKey) -> int:
        """Return the first iteration that the replica trained itself, after those of its parent."""
        return self._start_iterations.get(key, 0) + 1

    def _apply(self, k: int, event: Event) -> None:
        """Apply event number `k`: it creates a trial, moves a replica or reports results.

        Events with results are stored in `reports`. A final evaluation of a trial that no event
        created is a damage. Others change nothing.
        """
        if isinstance(event, Reported | Closed):
            self.reports[k] = event
        match event:
            case Created():
                self._create(k, event)
            case Opened():
                self._move(k, (event.trial, event.replica), Status.RUNNING)
            case Closed() | Moved():
                self._move(k, (event.trial, event.replica), event.status)
            case FinalEvaluationBegan():
                for trial in event.trials:
                    if (trial, 0) not in self.statuses:
                        self._add_damage(k, f"tests trial {trial}, which no event creates")

    def _create(self, k: int, event: Created) -> None:
        """Apply event `k`, which creates a trial with replicas that wait.

        A number that does not follow the newest trial's is a damage. Stores the iteration at which
        each replica with a parent started.
        """
        if event.trial != self._trials:
            self._add_damage(k, f"creates trial {event.trial}; expected trial {self._trials}")
        self._trials = event.trial + 1
        for index in range(event.replicas):
            self.statuses[event.trial, index] = Status.WAITING
        for index, birth in enumerate(event.births):
            self._start_iterations[event.trial, index] = birth.saved.iteration

    def _move(self, k: int, key: ReplicaKey, status: Status) -> None:
        """Apply event `k`, which gives a replica a new status.

        A forbidden change, or a trial that no event created, is a damage; the status counts still.
        """
        was = self.statuses.get(key)
        if was is None and (key[0], 0) not in self.statuses:
            self._add_damage(k, f"is about trial {key[0]}, which no event creates")
        elif status not in MOVES[was or Status.WAITING]:
            self._add_damage(k, f"trial {key[0]}: {was} may not become {status}")
        self.statuses[key] = status

    def _add_damage(self, k: int, problem: str) -> None:
        """Add the damage that event `k` has this problem."""
        self.damages.append(Damage("ledger", f"event {k}", problem))


def check(path: Path) -> list[Damage]:
    """Return the damages of a ledger; StorageError if its server or disk is unreachable.

    A damaged file or an old revision ends the check, since then the rest cannot be read.
    """
    try:
        with _open_snapshot(path) as (database, connection):
            pages = _check_pages(database, connection)
            return pages or _check_revision(connection, path) or list(_check_content(connection))
    except tables.Unreachable:
        raise
    except StorageError as error:
        if tables.is_away(error.__cause__):
            raise
        return [Damage("ledger", path.name, f"cannot be read ({error.__cause__ or error})")]


def replay(path: Path) -> Replayed:
    """Open a ledger read-only and replay its events; the file must be undamaged."""
    with _open_snapshot(path) as (_, connection):
        return _replay(connection)


@contextmanager
def _open_snapshot(path: Path) -> Iterator[tuple["storage.Database", Connection]]:
    """Yield a ledger's database, opened read-only, and a connection.

    The connection sees all tables as of one moment, also while a driver writes.
    """
    with (
        closing(storage.open_database(path, only_read=True)) as database,
        database.reading() as connection,
    ):
        yield database, connection


def _check_pages(database: "storage.Database", connection: Connection) -> list[Damage]:
    """Return the damages of the database file: a table that no driver creates, or damaged pages.

    At most `MOST_PAGES` pages are listed, and none if there is such a table.
    """
    if strange := database.find_foreign_object(connection):
        kind, name = strange
        return [Damage("ledger", name, f"is a {kind}, which no driver creates")]
    found = database.damages(connection, MOST_PAGES)
    return [Damage("ledger", "pages", text) for text in found]


def _check_revision(database: Connection, path: Path) -> list[Damage]:
    """Return a damage if the tables are not of the current revision, or an empty list.

    An earlier revision has the remedy `Remedy.UPGRADE`; an unknown one is a damaged ledger.
    """
    rows = database.execute(f"SELECT version_num FROM {upgrade.VERSION_TABLE}").fetchall()  # noqa: S608 a name of ours
    if len(rows) != 1:
        return [
            Damage("ledger", "schema", f"the file contains {len(rows)} revisions instead of one")
        ]
    ((revision,),) = rows
    if not (why := upgrade.objection(short_repr(revision).strip("'"), path)):
        return []
    if revision in upgrade.known_revisions():
        return [Damage("schema", path.name, why, Remedy.UPGRADE)]
    return [Damage("ledger", path.name, why)]


def _check_content(database: Connection) -> Iterator[Damage]:
    """Yield the damages of the rows: of sweep, lease, events, statuses, results and trackers."""
    (sweeps,) = database.execute("SELECT count(*) FROM sweep").fetchone()
    if sweeps != 1:
        yield Damage("ledger", "sweep", f"the file contains {sweeps} sweeps instead of one")
    try:
        lease.read_row(database)
    except DecodeError as error:
        yield Damage("lease", "lease", f"cannot be read ({error})", Remedy.LEASE)
    replayed = _replay(database)
    yield from replayed.damages
    yield from _check_statuses(database, replayed)
    yield from _check_results(database, replayed)
    for tracker, k in database.execute("SELECT tracker, k FROM published"):
        if not isinstance(k, int) or not 0 <= k <= replayed.last:
            problem = f"is recorded as having received event {short_repr(k)} of {replayed.last}"
            yield Damage(tracker, "published", problem, Remedy.SEND)


def _replay(database: Connection) -> Replayed:
    """Replay all events of an open ledger."""
    replayed = Replayed()
    replayed.replay(database.execute("SELECT k, epoch, kind, body FROM events ORDER BY k"))
    return replayed


def _check_statuses(database: Connection, replayed: Replayed) -> Iterator[Damage]:
    """Yield a damage for each replica whose status in the table differs from the events'."""
    standing = {(t, r): s for t, r, s in database.execute("SELECT * FROM replicas")}
    for key in sorted(standing.keys() | replayed.statuses.keys(), key=str):
        seen, due = standing.get(key), replayed.statuses.get(key)
        if seen != due:
            problem = f"is {str(seen or 'missing')[:40]}, but its events say {due or 'missing'}"
            yield Damage("statuses", name_of(key), problem, Remedy.STATUSES)


def _check_results(database: Connection, replayed: Replayed) -> Iterator[Damage]:
    """Yield a damage for each result that no slice reported, and for replicas that lack some."""
    present: dict[ReplicaKey, set[int]] = {}
    yield from _check_rows(database, replayed, "superseded", {})
    yield from _check_rows(database, replayed, "results", present)
    yield from _check_gaps(replayed, present)


def _check_rows(
    database: Connection,
    replayed: Replayed,
    table: str,
    present: dict[ReplicaKey, set[int]],
) -> Iterator[Damage]:
    """Yield a damage for each unreadable or unreported row of a table of results.

    The iterations of its readable rows are added to `present`.
    """
    query = f"SELECT trial, replica, iteration, k, metrics FROM {table} ORDER BY 1, 2, 3"  # noqa: S608 ours
    for trial, replica, iteration, k, metrics in database.execute(query):
        key, report = (trial, replica), replayed.reports.get(k)
        place = f"{name_of(key)}, iteration {iteration}"
        try:
            row = read_row(iteration, metrics)
        except DecodeError as error:
            yield Damage("ledger", place, f"its result cannot be read ({error})")
            continue
        present.setdefault(key, set()).add(row.iteration)
        if report is None or (report.trial, report.replica) != key:
            yield Damage("results", place, "no slice of this trial reported it")


def _check_gaps(replayed: Replayed, present: Mapping[ReplicaKey, set[int]]) -> Iterator[Damage]:
    """Yield a damage for each replica that lacks results; `present` has the iterations that exist.

    Results are expected up to the replica's newest checkpoint or newest result.
    """
    reach: dict[ReplicaKey, int] = {}
    for report in replayed.reports.values():
        saved = report.saved if isinstance(report, Closed) else ()
        reach[report.trial, report.replica] = max(
            [report.source, *(one.iteration for one in saved)]
        )
    for key in sorted(reach):
        first = replayed.first_iteration(key)
        own = {iteration for iteration in present.get(key, ()) if iteration >= first}
        missing = max([reach[key], *own]) + 1 - first - len(own)
        if missing > 0:
            gap = next(iteration for iteration in itertools.count(first) if iteration not in own)
            problem = f"{missing} iterations have no result, the first is {gap}"
            yield Damage("results", name_of(key), problem)


def name_of(key: ReplicaKey) -> str:
    """Return the name of a replica in messages: ``trial 3`` or ``trial 3, seed 1``."""
    trial, replica = key
    return f"trial {trial}, seed {replica}" if replica else f"trial {trial}"
