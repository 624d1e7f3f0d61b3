"""Holding a sweep: nobody else drives, mends or sends it, and its tables are today's.

On one machine the lock file decides at once. A sweep whose lease is of another machine is watched
for a whole `LEASE_S`, and taken when there was no sign of life. Who holds it gives one every
`RENEW_S`, from a thread of its own, since a slice may run in the driver's. Times are seconds on
the monotonic clock of the process that measures them.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from sweep.errors import LedgerError, StorageError, SweepLocked
from sweep.ledger import lease, ledger, storage
from sweep.ledger import upgrade as schema
from sweep.ledger.folder import Folder
from sweep.ledger.lease import Lease
from trainables.core.processes.ending import delete_semaphores

Say = Callable[[str], None]

#: Between two signs of life of a holder; so much of a killed driver's time is lost at most.
RENEW_S = 2.0
#: Without one for so long a holder on another machine is taken for dead.
LEASE_S = 30.0
#: Between two looks for one.
LOOK_S = 0.2
#: Between two words to a person who waits.
REMIND_S = 10.0


class Hold:
    """A sweep that is ours, as long as nobody took it; everything is written in `term`."""

    def __init__(self, folder: Folder, term: int) -> None:
        self.term = term
        self.upgraded = ""
        """The upgrade of the ledger's tables, as a sentence; empty if they were current."""
        self.drives = False
        """True if it drives the search, so that its seconds count for `budget.time_s`."""
        self._lost: LedgerError | None = None
        self._ended = threading.Event()
        self._database = storage.opened(folder.ledger, patient=False)
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises SweepLocked as soon as it is known that somebody else has taken the sweep.

        DamagedLedger, if what is there now is nobody's.
        """
        if self._lost is not None:
            raise self._lost

    def close(self) -> None:
        """Give it back."""
        self._ended.set()
        self._thread.join()
        with (
            contextlib.suppress(StorageError),  # then others wait until it is over
            self._database.writing() as connection,
        ):
            lease.give_back(connection, self.term)
        self._database.close()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_S):
            try:
                with self._database.writing() as connection:
                    lease.renew(connection, self.term, ledger.now() if self.drives else None)
            except LedgerError as error:
                self._lost = error
                return
            except StorageError:
                continue  # a disk that is full; whatever is written says whose the sweep is


@contextlib.contextmanager
def hold(folder: Folder, say: Say) -> Iterator[Hold]:
    """Hold the sweep in `folder`; an older ledger is brought to today's tables first.

    `say` is called with what there is to wait for, and what was done.

    Raises:
        SweepLocked: somebody else holds it.
        UsageError: its ledger is of a newer program.
        DamagedLedger: no driver wrote what stands in it.
        StorageError: the disk or the database refused.
    """
    with folder.lock():
        is_old = schema.is_old(folder.ledger)
        term = _take(folder, say)
        with contextlib.closing(storage.opened(folder.ledger)) as database:
            database.keep_journal()
        with contextlib.closing(Hold(folder, term)) as held:
            if is_old:
                held.upgraded = schema.upgrade(folder.ledger, held.term)
                say(held.upgraded)
            yield held


def upgrade(folder: Folder, say: Say) -> None:
    """Bring an older ledger to today's tables, before what is only read of it is read.

    Raises:
        As `hold`.
    """
    if schema.is_old(folder.ledger):
        with hold(folder, say):
            return


def _take(folder: Folder, say: Say) -> int:
    """The term in which the sweep is ours."""
    with contextlib.closing(storage.opened(folder.ledger)) as database:
        with database.reading() as connection:
            seen = lease.read(connection)
        if seen.elsewhere:
            seen = _watch(folder, database, seen, say)
        with database.writing() as connection:
            term = lease.take(connection, seen)
    if seen.has_ended:
        delete_semaphores(seen.pid)
    return term


def _watch(folder: Folder, database: "storage.Database", seen: Lease, say: Say) -> Lease:
    """Wait until a lease of another machine is over; returns it as it was last seen."""
    began = said_at = time.monotonic()
    say(f"{seen.describe()} held {folder.name}: {LEASE_S:g} s are waited for a sign of life")
    while (left := began + LEASE_S - time.monotonic()) > 0:
        time.sleep(min(LOOK_S, left))
        with database.reading() as connection:
            now = lease.read(connection)
        if now != seen:
            if now.elsewhere:
                raise SweepLocked(folder.name, now.describe())
            return now
        if time.monotonic() - said_at >= REMIND_S:
            said_at = time.monotonic()
            say(f"no sign of life yet; {began + LEASE_S - said_at:.0f} s are left")
    say("there was none: the sweep is taken over")
    return seen
