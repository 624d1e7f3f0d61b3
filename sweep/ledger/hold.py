"""Exclusive use of a sweep: one process drives, repairs or synchronises it at a time.

On one machine the lock file decides at once. If the lease belongs to another machine, it is watched
for `LEASE_S` and taken if it was not renewed. The holder renews the lease every `RENEW_S` from a
separate thread, since a slice may run in the driver's main thread. Times are in seconds on the
monotonic clock of the process that measures them.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from sweep.core.errors import LedgerError, StorageError, SweepLocked
from sweep.ledger import lease, ledger, storage
from sweep.ledger import upgrade as schema
from sweep.ledger.folder import Folder
from sweep.ledger.lease import Lease
from trainables.core.processes.ending import delete_semaphores

#: Function that shows a message to the user.
Say = Callable[[str], None]

#: Seconds between two renewals of the lease, and the most of a killed driver's time that is lost.
RENEW_S = 2.0
#: Seconds without a renewal after which a holder on another machine counts as dead.
LEASE_S = 30.0
#: Seconds between two reads of a lease that is watched.
LOOK_S = 0.2
#: Seconds between two messages to a waiting user.
REMIND_S = 10.0


class Hold:
    """Exclusive use of a sweep; a thread renews its lease in the ledger until it is closed.

    All writes to the ledger name `term`, which is refused once another process has taken the sweep.
    """

    def __init__(self, folder: Folder, term: int) -> None:
        self.term = term
        self.upgraded = ""
        """Sentence about the upgrade of the ledger's tables; empty if they were current."""
        self.drives = False
        """True while this process drives the search, so that its time counts for `budget.time_s`.
        """
        self._lost: LedgerError | None = None
        self._ended = threading.Event()
        self._database = storage.open_database(folder.ledger, patient=False)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error by which the lease was lost, if the renewing thread has met one.

        Raises:
            SweepLocked: another process has taken the sweep.
            DamagedLedger: the lease in the ledger is not valid any more.
        """
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Stop the renewing thread, and mark the lease in the ledger as free.

        Waits for the thread. If the ledger cannot be written, the lease stays, and others wait
        until it expires; a lease that another process has taken is left alone.
        """
        self._ended.set()
        self._thread.join()
        with (
            contextlib.suppress(StorageError),  # others then wait until the lease expires
            self._database.writing() as connection,
        ):
            lease.give_back(connection, self.term)
        self._database.close()

    def _renew(self) -> None:
        """Renew the lease every `RENEW_S` seconds until closed, in the thread of the hold.

        Ends, keeping the error for `check`, if the lease is lost or damaged. After an error of disk
        or server, tries again at the next time.
        """
        while not self._ended.wait(RENEW_S):
            try:
                with self._database.writing() as connection:
                    lease.renew(connection, self.term, ledger.now() if self.drives else None)
            except LedgerError as error:
                self._lost = error
                return
            except StorageError:
                continue  # such as a full disk; each write checks the term anyway


@contextlib.contextmanager
def hold(folder: Folder, say: Say) -> Iterator[Hold]:
    """Hold the sweep in `folder` inside the block, first upgrading the tables of an older ledger.

    Yields the hold, which a thread renews; it is given back when the block ends. Waits up to
    `LEASE_S` seconds for a holder on another machine. Also sets the journal mode of an SQLite file.
    `say` receives sentences for the user.

    Raises:
        SweepLocked: another process holds the sweep.
        UsageError: a newer version of the program wrote the ledger.
        DamagedLedger: the ledger's contents are not valid.
        StorageError: the disk or the database refused.
    """
    with folder.lock():
        is_old = schema.is_old(folder.ledger)
        term = _take_lease(folder, say)
        with contextlib.closing(storage.open_database(folder.ledger)) as database:
            database.keep_journal()
        with contextlib.closing(Hold(folder, term)) as held:
            if is_old:
                held.upgraded = schema.upgrade(folder.ledger, held.term)
                say(held.upgraded)
            yield held


def upgrade(folder: Folder, say: Say) -> None:
    """Upgrade the tables of an older ledger, for a command that then only reads it.

    Does nothing for a current ledger; otherwise holds the sweep meanwhile. `say` receives sentences
    for the user.

    Raises:
        SweepLocked, UsageError, DamagedLedger, StorageError: as in `hold`.
    """
    if schema.is_old(folder.ledger):
        with hold(folder, say):
            return


def _take_lease(folder: Folder, say: Say) -> int:
    """Write this process into the lease as its holder, and return the number of its new term.

    Waits up to `LEASE_S` seconds for a holder on another machine. Semaphores that a killed holder
    left on this machine are deleted. Raises SweepLocked if the holder on another machine is alive,
    or another process was faster.
    """
    with contextlib.closing(storage.open_database(folder.ledger)) as database:
        with database.reading() as connection:
            current = lease.read(connection)
        if current.is_elsewhere:
            current = _watch(folder, database, current, say)
        with database.writing() as connection:
            term = lease.take(connection, current)
    if current.has_ended:
        delete_semaphores(current.pid)
    return term


def _watch(folder: Folder, database: "storage.Database", first: Lease, say: Say) -> Lease:
    """Watch another machine's lease for `LEASE_S` seconds; return it as last read.

    `first` is the lease as read before, and `say` receives sentences for the user. Returns early if
    the lease was given back or belongs to this machine now. Raises SweepLocked if it changed and
    belongs to another machine.
    """
    began = said_at = time.monotonic()
    say(
        f"{first.describe()} held {folder.name}; waiting up to {LEASE_S:g} s for a sign that it "
        "is still running"
    )
    while (left := began + LEASE_S - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left))
        with database.reading() as connection:
            now = lease.read(connection)
        if now != first:
            if now.is_elsewhere:
                raise SweepLocked(folder.name, now.describe())
            return now
        if time.monotonic() - said_at >= REMIND_S:
            said_at = time.monotonic()
            say(f"no sign of life yet; {began + LEASE_S - said_at:.0f} s are left")
    say("there was no sign of life, so this process takes the sweep over")
    return first
