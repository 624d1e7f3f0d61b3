"""The lease of a sweep: one row in its ledger that names its holder and the current term.

    term      grows with every holder; writes in an older term are refused
    host …    the holder; NULL once given back. The column `kernel` also has the pid namespace
    renewed   a counter that the holder increments while it lives
    drove_at  time of a driver's last renewal, to count time after the last event; kept by others

On one machine the lock file decides, since the kernel knows which processes live. The lease is for
other machines: they regard a holder as dead once its counter has not changed for a while on *their*
monotonic clock. Dates are never compared, so setting a clock anywhere ends no lease.
"""

import os
import socket
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sweep.core.errors import DamagedLedger, StorageError, SweepLocked
from sweep.ledger import codec, process, storage
from sweep.ledger.codec import DecodeError
from sweep.ledger.tables import Connection

#: File with a random id that changes at each start of the machine.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Message of a driver that has lost its lease.
_LEFT = (
    "this driver gave no sign of life for too long and has stopped; every result it wrote is kept"
)


class Host(NamedTuple):
    """Machine, or container on it, in which a process runs."""

    name: str
    """Host name."""
    kernel: str
    """Boot ID of the kernel: equal for containers of one machine, whose locks exclude each other,
    and new after each boot."""
    namespace: str = ""
    """Name of the pid namespace; empty if unknown."""


def this_host() -> Host:
    """Return the host and pid namespace of this process."""
    name = socket.gethostname()
    kernel = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else name
    return Host(name, kernel, process.namespace())


@dataclass(frozen=True)
class Lease:
    """Row of the ledger that names the holder of the sweep, with the number of the newest event.

    Any change of it shows that the holder lives.
    """

    term: int = 0
    """Number of the present term (the time in which one process holds the sweep); each holder gets
    a greater one."""
    host: str | None = None
    """Host name of the holder's machine; None once the lease was given back."""
    kernel: str = ""
    """Boot ID of the kernel under which the holder runs (`Host.kernel`)."""
    pid: int = 0
    """Process id of the holder, counted in `namespace`."""
    taken_at: float = 0.0
    """Time at which the lease was taken, in seconds since 1970; only for messages."""
    renewals: int = 0
    """Number of renewals by the holder, which show that it lives."""
    driven_at: float = 0.0
    """Time of the newest renewal by a process that drove the search, in seconds since 1970 on the
    clock of events (`ledger.now`); 0 if none has driven it yet."""
    last_event: int = 0
    """Number of the newest event in the ledger; 0 if there is none, or it was not read."""
    namespace: str = ""
    """Name of the pid namespace in which `pid` counts; empty if unknown."""

    @property
    def is_elsewhere(self) -> bool:
        """True if the holder runs under another kernel: on another machine, or before a reboot."""
        return self.host is not None and self.kernel != this_host().kernel

    @property
    def is_live(self) -> bool:
        """True if the holder is another process that runs here, or may run on another machine.

        A process of another container on this machine counts as not live, since this process cannot
        see it.
        """
        return self.is_elsewhere or (
            self.is_other and process.runs(self.pid, self.namespace) is True
        )

    @property
    def has_ended(self) -> bool:
        """True if the holder was another process of this machine and is known to have ended."""
        here = self.is_other and not self.is_elsewhere
        return here and process.runs(self.pid, self.namespace) is False

    @property
    def is_other(self) -> bool:
        """True if there is a holder and it is another process than this one."""
        own = (os.getpid(), process.namespace())
        return self.host is not None and (self.pid, self.namespace) != own

    def describe(self) -> str:
        """Return a text for messages: ``process 12 on host, since 2026-01-01 10:00:00,``.

        Without a holder it is ``another process``.
        """
        if self.host is None:
            return "another process"
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.taken_at))
        # not a valid date: the ledger may come from anywhere
        except (OverflowError, ValueError, OSError):
            since = "no date"
        return f"process {self.pid} on {self.host}, since {since},"


# ---- functions called inside a transaction ------------------------------------------------------


#: Field of `Lease` → its column in the table.
_COLUMN_OF = {
    "term": "epoch",
    "host": "host",
    "kernel": "kernel",
    "pid": "pid",
    "taken_at": "since",
    "renewals": "renewed",
    "driven_at": "drove_at",
}
#: Columns of a lease, for SQL.
_COLUMNS = ", ".join(_COLUMN_OF.values())
#: Separator between kernel and namespace in the column `kernel`.
_SEPARATOR = "|"
#: Largest term: databases cannot store a larger number.
_LAST_TERM = 2**63 - 1


def read(connection: Connection) -> Lease:
    """Return the lease, its `last_event` included, as a transaction sees it.

    Raises DecodeError if the lease's row is not valid.
    """
    (last,) = connection.execute("SELECT coalesce(max(k), 0) FROM events").fetchone()
    return replace(read_row(connection), last_event=codec.read(int, last))


def read_row(connection: Connection) -> Lease:
    """Return the lease in a transaction, without the number of the newest event.

    Returns an empty `Lease` if there is no row. Raises DecodeError if the row is not valid, or its
    term is the largest possible one.
    """
    row = connection.execute(f"SELECT {_COLUMNS} FROM lease").fetchone()  # noqa: S608 ours
    if row is None:
        return Lease()
    try:
        lease: Lease = codec.read(Lease, dict(zip(_COLUMN_OF, row, strict=True)))
    except DecodeError as error:
        field, colon, problem = str(error).partition(":")
        raise DecodeError(f"its lease: {_COLUMN_OF.get(field, field)}{colon}{problem}") from None
    _next_term(lease.term)
    kernel, _, namespace = lease.kernel.partition(_SEPARATOR)
    return replace(lease, kernel=kernel, namespace=namespace)


def _next_term(term: int) -> int:
    """Return `term` + 1; raises DecodeError if the database could not store that number."""
    if term == _LAST_TERM:
        raise DecodeError(f"its lease: no term follows {term}")
    return term + 1


def take(connection: Connection, expected: Lease | None = None) -> int:
    """Make this process the holder of the lease, and return the number of its new term.

    Call it in a transaction with the write lock. Raises SweepLocked if the lease, or the newest
    event, is not as in `expected`, which the caller read before; None takes it from any holder.
    Raises DecodeError if the lease's row is not valid, or no larger term can be stored.
    """
    found = read(connection)
    if expected not in (None, found):
        raise SweepLocked(_sweep_name(connection), found.describe())
    (newest,) = connection.execute("SELECT coalesce(max(epoch), 0) FROM events").fetchone()
    term = _next_term(max(found.term, codec.read(int, newest)))
    put(connection, term)
    return term


def check(connection: Connection, term: int) -> None:
    """Raise SweepLocked unless `term` is the term in the lease, in a transaction.

    With another term, another process has taken the sweep.
    """
    if connection.execute("SELECT epoch FROM lease").fetchone() != (term,):
        raise SweepLocked(_sweep_name(connection), read(connection).describe(), _LEFT)


def renew(connection: Connection, term: int, driven_at: float | None = None) -> None:
    """Count a renewal of the lease held in `term`, in a transaction with the write lock.

    `driven_at` is the current time (`ledger.now`) if this process drives the search; None keeps the
    stored time. Raises SweepLocked if another process has taken the sweep.
    """
    check(connection, term)
    connection.execute(
        "UPDATE lease SET renewed = renewed + 1, drove_at = coalesce(?, drove_at)", (driven_at,)
    )


def give_back(connection: Connection, term: int) -> None:
    """Remove the holder from the lease if `term` is still the current term, in a transaction."""
    connection.execute("UPDATE lease SET host = NULL WHERE epoch = ?", (term,))


def clear_holder(connection: Connection) -> None:
    """Begin a new term without a holder, in a transaction, even if the lease's row is damaged.

    A live holder loses the sweep. Raises DecodeError if the events already have the largest term.
    """
    (newest,) = connection.execute("SELECT coalesce(max(epoch), 0) FROM events").fetchone()
    (said,) = connection.execute("SELECT max(epoch) FROM lease").fetchone()
    is_term = isinstance(said, int) and 0 <= said < _LAST_TERM
    term = _next_term(max(codec.read(int, newest), said if is_term else 0))
    put(connection, term)
    give_back(connection, term)


def put(connection: Connection, term: int) -> None:
    """Replace the lease's row, in a transaction, by one with this process as the holder in `term`.

    Renewals are counted from 0 again. The time of the newest renewal by a driver is kept, or 0
    without one.
    """
    host, *where = this_host()
    (driven_at,) = connection.execute("SELECT max(drove_at) FROM lease").fetchone()
    connection.execute("DELETE FROM lease")
    driven = driven_at if isinstance(driven_at, float) else 0.0
    row = (term, host, _SEPARATOR.join(where), os.getpid(), time.time(), 0, driven)
    connection.execute(
        f"INSERT INTO lease ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 ours
        row,
    )


def _sweep_name(connection: Connection) -> str:
    """Return the name of the sweep that the ledger contains; ``None`` as a text without one."""
    (name,) = connection.execute("SELECT name FROM sweep").fetchone() or (None,)
    return str(name)


# ---- functions that open the ledger themselves --------------------------------------------------


def read_file(path: Path) -> Lease:
    """Return the lease of the ledger at `path`, opened read-only; an empty one if unreadable.

    Its `last_event` is not read and stays 0. Raises UsageError if the ledger is on a server that
    another person named, or psycopg is not installed.
    """
    try:
        with (
            closing(storage.open_database(path, patient=False, only_read=True)) as database,
            database.reading() as connection,
        ):
            return read_row(connection)
    except (StorageError, DamagedLedger):  # `sweep verify` reports damage
        return Lease()
