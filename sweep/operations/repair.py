"""Mends of a damaged sweep what can be worked out from what is left, under its lock.

Statuses are folded from the events again; a lease that cannot be read is nobody's; a checkpoint
that is lost loses its name, as an event of the history, so that its trial goes on from an older
one; files that no row names are deleted; a tracker whose copy differs is sent everything again.
Events and results cannot be worked out: where they are damaged, a copy of the sweep's folder is
needed.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweep.driver import sync
from sweep.history.events import Dropped
from sweep.history.seeds import replica_name
from sweep.ledger import hold, lease, storage
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations import ledger_check
from sweep.operations.ledger_check import Remedy
from sweep.operations.verify import Found, look_at
from sweep.slices import store
from sweep.trackers import Comparable
from sweep.views import lookup

#: Seconds that trackers have to take everything again.
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Mended:
    """The effects of a repair, in words, and the damages that are left."""

    done: tuple[str, ...]
    left: Found


def repair(folder: Folder, say: Callable[[str], None]) -> Mended:
    """Mend what can be worked out from what is left, then look again.

    Raises:
        SweepLocked: a driver holds the sweep; nothing was changed.
        StorageError: the disk or the database refused.
    """
    with folder.lock():
        found = look_at(folder, driven=False)
        if any(damage.part == "ledger" for damage in found.damages):
            return Mended((), found)
        freed = tuple(_free(folder, found))
    with hold.hold(folder, say) as held:
        found = look_at(folder, driven=False)
        upgraded = (held.upgraded,) if held.upgraded else ()
        done = (*freed, *upgraded, *_mend(folder, held.term, found, say))
        return Mended(done, look_at(folder, driven=False) if done else found)


def _free(folder: Folder, found: Found) -> Iterator[str]:
    """Let nobody hold a sweep of which nobody can say who does."""
    if any(damage.remedy is Remedy.LEASE for damage in found.damages):
        with (
            contextlib.closing(storage.open_database(folder.ledger)) as database,
            database.writing() as connection,
        ):
            lease.clear_holder(connection)
        yield "nobody holds the lease any more"


def _mend(folder: Folder, term: int, found: Found, say: Callable[[str], None]) -> Iterator[str]:
    remedies = {damage.remedy for damage in found.damages}
    if Remedy.STATUSES in remedies:
        yield _restate(folder, term)
    if Remedy.DROP in remedies:
        yield from _drop(folder, term, found)
    if remedies & {Remedy.DROP, Remedy.SWEEP_UP}:
        yield from _sweep_up(folder)
    if again := sorted({d.part for d in found.damages if d.remedy is Remedy.SEND}):
        yield from _send(folder, term, again, say)
    elif Remedy.DROP in remedies:
        sync.send_held(folder, term, say, PATIENCE_S)  # copies say which checkpoint is the newest


def _restate(folder: Folder, term: int) -> str:
    statuses = ledger_check.replay(folder.ledger).statuses
    rows = [(trial, replica, status) for (trial, replica), status in statuses.items()]
    with (
        contextlib.closing(storage.open_database(folder.ledger)) as database,
        database.writing() as connection,
    ):
        lease.check(connection, term)
        connection.execute("DELETE FROM replicas")
        connection.executemany("INSERT INTO replicas VALUES (?, ?, ?)", rows)
    return "the statuses were worked out from the events again"


def _drop(folder: Folder, term: int, found: Found) -> Iterator[str]:
    lost = [damage for damage in found.damages if damage.remedy is Remedy.DROP]
    history = lookup.read_history(folder)
    events = [Dropped(damage.trial, damage.replica, (damage.digest,)) for damage in lost]
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history.extend(ledger.append(term, events))
    for place in sorted({(damage.trial, damage.replica) for damage in lost}):
        replica = history.replica(*place)
        newest = replica.newest
        names = sum((damage.trial, damage.replica) == place for damage in lost)
        if not history.trials[place[0]].may_go_on(replica):
            goes_on = "it is done"
        elif newest is not None:
            goes_on = f"it goes on from iteration {newest.iteration}"
        else:
            goes_on = "it has no other"
        yield f"trial {place[0]}: {names} lost checkpoints were let go; {goes_on}"


def _sweep_up(folder: Folder) -> Iterator[str]:
    gone = store.of(folder).sweep_up(lookup.read_history(folder))
    for whose, count in Counter((spare.trial, spare.replica) for spare in gone).items():
        yield f"trials/{replica_name(*whose)}: {count} files that no row names were deleted"


def _send(folder: Folder, term: int, names: list[str], say: Callable[[str], None]) -> Iterator[str]:
    for name, tracker in sync.load_trackers(
        sync.tracker_context(folder), only_installed=True
    ).items():
        if name in names and isinstance(tracker, Comparable):
            tracker.set_aside()
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        for name in (*names, *([sync.ATTACHMENTS] if "mlflow" in names else [])):
            ledger.set_published(name, 0, term)
    for sent in sync.send_held(folder, term, say, PATIENCE_S):
        if sent.tracker in names:
            rest = f", {sent.missing} are missing" if sent.missing else ""
            yield f"{sent.tracker} was sent {sent.events} events again{rest}"
