"""Check of a ledger's file: whether it is whole and agrees with itself; nothing is written.

The file is opened read-only and read row by row, not through `sweep.ledger.ledger`, which stops at
the first thing that is wrong. What the statuses and the results must be is worked out from the
events alone.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sweep.errors import StorageError
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
# What can be wrong with a sweep's files, as plain data for messages, repairs and tests.


class Remedy(StrEnum):
    """The remedy for a damage."""

    NONE = ""
    """Nothing that is left says what stood there."""
    UPGRADE = "upgrade"
    """The ledger's tables are brought to today's, and a copy is kept."""
    LEASE = "lease"
    """Nobody holds the sweep, in a term after the last."""
    STATUSES = "statuses"
    """The statuses are worked out from the events."""
    DROP = "drop"
    """The ledger lets go of the checkpoint's name; the trial goes on from an older one."""
    SWEEP_UP = "sweep up"
    """The file is deleted."""
    SEND = "send"
    """The tracker is sent everything again."""


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong."""

    part: str
    """``ledger``, ``schema``, ``lease``, ``results``, ``statuses``, ``checkpoints``, ``files``, or
    a tracker's name."""
    place: str
    """The place in the sweep, for example ``trial 3`` or a file of its folder."""
    problem: str
    remedy: Remedy = Remedy.NONE
    trial: int = -1
    """Of a checkpoint or a file: whose it is, with `replica`; -1: it is no trial's."""
    replica: int = 0
    digest: str = ""
    """Of the checkpoint that is lost."""


ReplicaKey = tuple[int, int]
"""Trial and replica."""

#: Damaged pages that are listed; more of them say nothing more.
MOST_PAGES = 5


class Replayed:
    """The events once more, with everything in them that cannot be."""

    def __init__(self) -> None:
        self.damages: list[Damage] = []
        self.last = 0
        """The number of the last event."""
        self.statuses: dict[ReplicaKey, Status] = {}
        self.told: dict[int, Reported | Closed] = {}
        """Event number → what has the results of a slice."""
        self._trials = 0
        self._births: dict[ReplicaKey, int] = {}
        self._term = 0

    def replay(self, rows: Iterable[tuple[int, object, object, object]]) -> None:
        """Take in (k, term, kind, body) in the order of k."""
        for k, said, kind, body in rows:
            term = said if isinstance(said, int) else -1
            if k != self.last + 1:
                self._note(k, f"follows event {self.last}: events between them are missing")
            if term < self._term:
                self._note(k, f"is of term {term}, after term {self._term} had begun")
            self.last, self._term = k, max(term, self._term)
            try:
                event = from_body(kind, body)
            except DecodeError as error:
                self._note(k, f"cannot be read ({error})")
            else:
                self._follow(k, event)

    def first_iteration(self, key: ReplicaKey) -> int:
        """The first that the replica itself trains."""
        return self._births.get(key, 0) + 1

    def _follow(self, k: int, event: Event) -> None:
        if isinstance(event, Reported | Closed):
            self.told[k] = event
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
                        self._note(k, f"tests trial {trial}, which no event makes")

    def _create(self, k: int, event: Created) -> None:
        if event.trial != self._trials:
            self._note(k, f"makes trial {event.trial}, and there are {self._trials} before it")
        self._trials = event.trial + 1
        for index in range(event.replicas):
            self.statuses[event.trial, index] = Status.WAITING
        for index, birth in enumerate(event.births):
            self._births[event.trial, index] = birth.saved.iteration

    def _move(self, k: int, key: ReplicaKey, status: Status) -> None:
        was = self.statuses.get(key)
        if was is None and (key[0], 0) not in self.statuses:
            self._note(k, f"is about trial {key[0]}, which no event makes")
        elif status not in MOVES[was or Status.WAITING]:
            self._note(k, f"trial {key[0]}: {was} may not become {status}")
        self.statuses[key] = status

    def _note(self, k: int, problem: str) -> None:
        self.damages.append(Damage("ledger", f"event {k}", problem))


def check(path: Path) -> list[Damage]:
    """Return the damages of a ledger, empty if it is whole; StorageError if it cannot be read."""
    try:
        with _looking(path) as (database, connection):
            pages = _pages(database, connection)
            return pages or _revision(connection, path) or list(_content(connection))
    except tables.Unreachable:
        raise
    except StorageError as error:
        if tables.is_away(error.__cause__):
            raise
        return [Damage("ledger", path.name, f"cannot be read ({error.__cause__ or error})")]


def replay(path: Path) -> Replayed:
    """The events of a ledger whose file is whole."""
    with _looking(path) as (_, connection):
        return _replay(connection)


@contextmanager
def _looking(path: Path) -> Iterator[tuple["storage.Database", Connection]]:
    """One moment of all tables, beside a driver that writes."""
    with (
        closing(storage.open_database(path, only_read=True)) as database,
        database.reading() as connection,
    ):
        yield database, connection


def _pages(database: "storage.Database", connection: Connection) -> list[Damage]:
    if strange := database.find_foreign_object(connection):
        kind, name = strange
        return [Damage("ledger", name, f"is a {kind}, which no driver makes")]
    found = database.damages(connection, MOST_PAGES)
    return [Damage("ledger", "pages", text) for text in found]


def _revision(database: Connection, path: Path) -> list[Damage]:
    """Tables of another revision are not looked into."""
    rows = database.execute(f"SELECT version_num FROM {upgrade.VERSION_TABLE}").fetchall()  # noqa: S608 a name of ours
    if len(rows) != 1:
        return [Damage("ledger", "schema", f"{len(rows)} revisions in a file that has one")]
    ((revision,),) = rows
    if not (why := upgrade.objection(short_repr(revision).strip("'"), path)):
        return []
    if revision in upgrade.known_revisions():
        return [Damage("schema", path.name, why, Remedy.UPGRADE)]
    return [Damage("ledger", path.name, why)]


def _content(database: Connection) -> Iterator[Damage]:
    (sweeps,) = database.execute("SELECT count(*) FROM sweep").fetchone()
    if sweeps != 1:
        yield Damage("ledger", "sweep", f"{sweeps} sweeps in a file that has one")
    try:
        lease.read_row(database)
    except DecodeError as error:
        yield Damage("lease", "lease", f"cannot be read ({error})", Remedy.LEASE)
    replayed = _replay(database)
    yield from replayed.damages
    yield from _statuses(database, replayed)
    yield from _results(database, replayed)
    for tracker, k in database.execute("SELECT tracker, k FROM published"):
        if not isinstance(k, int) or not 0 <= k <= replayed.last:
            problem = f"is said to have event {short_repr(k)} of {replayed.last}"
            yield Damage(tracker, "published", problem, Remedy.SEND)


def _replay(database: Connection) -> Replayed:
    replayed = Replayed()
    replayed.replay(database.execute("SELECT k, epoch, kind, body FROM events ORDER BY k"))
    return replayed


def _statuses(database: Connection, replayed: Replayed) -> Iterator[Damage]:
    standing = {(t, r): s for t, r, s in database.execute("SELECT * FROM replicas")}
    for key in sorted(standing.keys() | replayed.statuses.keys(), key=str):
        seen, due = standing.get(key), replayed.statuses.get(key)
        if seen != due:
            problem = f"stands as {str(seen or 'nothing')[:40]}, its events say {due or 'nothing'}"
            yield Damage("statuses", name_of(key), problem, Remedy.STATUSES)


def _results(database: Connection, replayed: Replayed) -> Iterator[Damage]:
    """Each row must be of a slice, and rows must reach as far as checkpoints do."""
    present: dict[ReplicaKey, set[int]] = {}
    yield from _rows(database, replayed, "superseded", {})
    yield from _rows(database, replayed, "results", present)
    yield from _gaps(replayed, present)


def _rows(
    database: Connection,
    replayed: Replayed,
    table: str,
    present: dict[ReplicaKey, set[int]],
) -> Iterator[Damage]:
    """The rows of a table of results, whose iterations go into `present`."""
    query = f"SELECT trial, replica, iteration, k, metrics FROM {table} ORDER BY 1, 2, 3"  # noqa: S608 ours
    for trial, replica, iteration, k, metrics in database.execute(query):
        key, told = (trial, replica), replayed.told.get(k)
        where = f"{name_of(key)}, iteration {iteration}"
        try:
            row = read_row(iteration, metrics)
        except DecodeError as error:
            yield Damage("ledger", where, f"its result cannot be read ({error})")
            continue
        present.setdefault(key, set()).add(row.iteration)
        if told is None or (told.trial, told.replica) != key:
            yield Damage("results", where, "no slice of this trial reported it")


def _gaps(replayed: Replayed, present: Mapping[ReplicaKey, set[int]]) -> Iterator[Damage]:
    """Iterations up to a replica's newest checkpoint, or its newest result, that have none."""
    reach: dict[ReplicaKey, int] = {}
    for told in replayed.told.values():
        saved = told.saved if isinstance(told, Closed) else ()
        reach[told.trial, told.replica] = max([told.source, *(one.iteration for one in saved)])
    for key in sorted(reach):
        first = replayed.first_iteration(key)
        own = {iteration for iteration in present.get(key, ()) if iteration >= first}
        missing = max([reach[key], *own]) + 1 - first - len(own)
        if missing > 0:
            gap = next(iteration for iteration in itertools.count(first) if iteration not in own)
            problem = f"{missing} iterations have no result, the first is {gap}"
            yield Damage("results", name_of(key), problem)


def name_of(key: ReplicaKey) -> str:
    """A trial under one seed in the words of messages."""
    trial, replica = key
    return f"trial {trial}, seed {replica}" if replica else f"trial {trial}"
