"""The lease of a sweep: one row in its ledger that names its holder and the current term.

    term     grows with every holder; a writer in another one is refused
    host …    who holds it; none: it was given back. The kernel stands there with the pid namespace
    renewed   a counter to which its holder adds as long as it lives
    drove_at  when a driver last lived, for the seconds that no event counts; other holders keep it

On one machine the lock file decides, since the kernel knows who lives. The lease is for others: to
them a holder is dead when its counter stands still for so long on *their* monotonic clock. No date
is compared with another, so no clock that is set, anywhere, ends a lease.
"""

import os
import socket
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from sweep.errors import DamagedLedger, StorageError, SweepLocked
from sweep.ledger import codec, process, storage
from sweep.ledger.codec import DecodeError
from sweep.ledger.tables import Connection

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LEFT = "this driver was not heard of for too long and has stopped; every result it wrote is kept"


class Host(NamedTuple):
    """A machine, or a container on one."""

    name: str
    kernel: str
    """Containers with the same one share their locks; it is another after each start."""
    namespace: str = ""
    """In which its processes are counted."""


def this_host() -> Host:
    """Return the host and the namespace of this process."""
    name = socket.gethostname()
    kernel = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else name
    return Host(name, kernel, process.namespace())


@dataclass(frozen=True)
class Lease:
    """The row, and how far the history was: whatever changes in it is a sign of life."""

    term: int = 0
    host: str | None = None
    kernel: str = ""
    pid: int = 0
    since: float = 0.0
    """When it was taken, seconds since 1970; only shown."""
    renewed: int = 0
    drove_at: float = 0.0
    """The newest sign of life of a driver of the search, on the clock of events."""
    last: int = 0
    """The number of the last event."""
    namespace: str = ""
    """Of `pid`; empty: it is not known."""

    @property
    def elsewhere(self) -> bool:
        """True if the holder is, or was when it was cut off, on another machine."""
        return self.host is not None and self.kernel != this_host().kernel

    @property
    def lives(self) -> bool:
        """True if the holder is another process that runs, as far as is known here."""
        return self.elsewhere or (self.is_other and process.runs(self.pid, self.namespace) is True)

    @property
    def has_ended(self) -> bool:
        """True if the holder is known here to be a process that runs no more."""
        here = self.is_other and not self.elsewhere
        return here and process.runs(self.pid, self.namespace) is False

    @property
    def is_other(self) -> bool:
        """True if there is a holder, and it is not this process."""
        own = (os.getpid(), process.namespace())
        return self.host is not None and (self.pid, self.namespace) != own

    def describe(self) -> str:
        """Return words for the holder."""
        if self.host is None:
            return "another process"
        try:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        except (OverflowError, ValueError, OSError):  # no date, in a ledger from anywhere
            since = "no date"
        return f"process {self.pid} on {self.host}, since {since},"


# ---- inside a transaction of the caller ----------------------------------------------------------


_COLUMNS = "epoch, host, kernel, pid, since, renewed, drove_at"
_FIELDS = ("term", "host", "kernel", "pid", "since", "renewed", "drove_at")
#: Stands between a kernel and a namespace.
_BETWEEN = "|"
#: No term follows it: databases have no larger number.
_LAST_TERM = 2**63 - 1


def read(connection: Connection) -> Lease:
    """The lease as it is now.

    Raises:
        DecodeError: no driver writes one so.
    """
    (last,) = connection.execute("SELECT coalesce(max(k), 0) FROM events").fetchone()
    return replace(standing(connection), last=codec.read(int, last))


def standing(connection: Connection) -> Lease:
    """The lease's row; nobody's lease where there is none.

    Raises:
        DecodeError: no driver writes one so.
    """
    row = connection.execute(f"SELECT {_COLUMNS} FROM lease").fetchone()  # noqa: S608 ours
    if row is None:
        return Lease()
    try:
        lease: Lease = codec.read(Lease, dict(zip(_FIELDS, row, strict=True)))
    except DecodeError as error:
        raise DecodeError(f"its lease: {error}") from None
    _next(lease.term)
    kernel, _, namespace = lease.kernel.partition(_BETWEEN)
    return replace(lease, kernel=kernel, namespace=namespace)


def _next(term: int) -> int:
    if term == _LAST_TERM:
        raise DecodeError(f"its lease: no term follows {term}")
    return term + 1


def take(connection: Connection, seen: Lease | None = None) -> int:
    """Make this process the holder, in a new term, which is returned.

    The transaction has the write lock. That was decided on the lease `seen`; None: on none.

    Raises:
        SweepLocked: it is not that one any more.
    """
    found = read(connection)
    if seen not in (None, found):
        raise SweepLocked(_name(connection), found.describe())
    (newest,) = connection.execute("SELECT coalesce(max(epoch), 0) FROM events").fetchone()
    term = _next(max(found.term, codec.read(int, newest)))
    put(connection, term)
    return term


def check(connection: Connection, term: int) -> None:
    """Refuse to write in a term that is over.

    Raises:
        SweepLocked: somebody else has taken the sweep.
    """
    if connection.execute("SELECT epoch FROM lease").fetchone() != (term,):
        raise SweepLocked(_name(connection), read(connection).describe(), _LEFT)


def renew(connection: Connection, term: int, drove_at: float | None = None) -> None:
    """Give a sign of life; `drove_at` is its date if the search is driven, else None.

    Raises:
        SweepLocked: somebody else has taken the sweep.
    """
    check(connection, term)
    connection.execute(
        "UPDATE lease SET renewed = renewed + 1, drove_at = coalesce(?, drove_at)", (drove_at,)
    )


def give_back(connection: Connection, term: int) -> None:
    """Hold it no more, if it is still ours."""
    connection.execute("UPDATE lease SET host = NULL WHERE epoch = ?", (term,))


def free(connection: Connection) -> None:
    """Let nobody hold it, whatever stands there; a holder that lives is told that it has lost it.

    Raises:
        DecodeError: no term follows those of the events.
    """
    (newest,) = connection.execute("SELECT coalesce(max(epoch), 0) FROM events").fetchone()
    (said,) = connection.execute("SELECT max(epoch) FROM lease").fetchone()
    is_term = isinstance(said, int) and 0 <= said < _LAST_TERM
    term = _next(max(codec.read(int, newest), said if is_term else 0))
    put(connection, term)
    give_back(connection, term)


def put(connection: Connection, term: int) -> None:
    """Make this process the holder in `term`, in the stead of any other."""
    host, *where = this_host()
    (drove_at,) = connection.execute("SELECT max(drove_at) FROM lease").fetchone()
    connection.execute("DELETE FROM lease")
    driven = drove_at if isinstance(drove_at, float) else 0.0
    row = (term, host, _BETWEEN.join(where), os.getpid(), time.time(), 0, driven)
    connection.execute(
        f"INSERT INTO lease ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 ours
        row,
    )


def _name(connection: Connection) -> str:
    (name,) = connection.execute("SELECT name FROM sweep").fetchone() or (None,)
    return str(name)


# ---- from outside --------------------------------------------------------------------------------


def look(path: Path) -> Lease:
    """The lease in the ledger at `path`, which is only read; nobody's where none can be read."""
    try:
        with (
            closing(storage.opened(path, patient=False, only_read=True)) as database,
            database.reading() as connection,
        ):
            return standing(connection)
    except (StorageError, DamagedLedger):  # `sweep verify` tells of a damage
        return Lease()
