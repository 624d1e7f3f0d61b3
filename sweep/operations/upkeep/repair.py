"""Repair the damage of a sweep that the remaining files allow, under its lock.

Statuses are derived from the events again. An unreadable lease is released. A lost checkpoint is
dropped by an event of the history, so its trial continues from an older one. Files that no row
names are deleted. A tracker whose copy differs receives everything again. Damaged events and
results cannot be repaired; that needs a copy of the sweep's folder.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sweep.driver.tracking import sync
from sweep.history.events import Dropped
from sweep.history.seeds import replica_name
from sweep.ledger import hold, lease, storage
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.operations.upkeep import ledger_check
from sweep.operations.upkeep.ledger_check import Remedy
from sweep.operations.upkeep.verify import Verification, inspect_sweep
from sweep.slices import store
from sweep.trackers import Comparable
from sweep.views import lookup

#: Seconds that trackers have to receive everything again.
PATIENCE_S = 600.0


@dataclass(frozen=True)
class Mended:
    """The repairs that were made, and the damages that remain."""

    repairs: tuple[str, ...]
    """Sentences for the user, one for each repair."""
    verification: Verification
    """Verification of the sweep after the repairs."""


def repair(folder: Folder, say: Callable[[str], None]) -> Mended:
    """Repair the damages that the sweep's remaining files allow, then verify the sweep again.

    Nothing is repaired if the ledger itself is damaged: its file, an event, or an unreadable
    result. An older ledger's tables are upgraded. `say` is called with messages for the user.

    Raises:
        SweepLocked: a driver has the sweep; nothing was changed.
        StorageError: the disk or the database reported an error.
    """
    with folder.lock():
        inspected = inspect_sweep(folder, driven=False)
        if any(damage.part == "ledger" for damage in inspected.damages):
            return Mended((), inspected)
        freed = tuple(_free_lease(folder, inspected))
    with hold.hold(folder, say) as held:
        inspected = inspect_sweep(folder, driven=False)
        upgraded = (held.upgraded,) if held.upgraded else ()
        done = (*freed, *upgraded, *_mend(folder, held.term, inspected, say))
        return Mended(done, inspect_sweep(folder, driven=False) if done else inspected)


def _free_lease(folder: Folder, verification: Verification) -> Iterator[str]:
    """Clear the lease's holder if the lease is unreadable. Yields a sentence about it."""
    if any(damage.remedy is Remedy.LEASE for damage in verification.damages):
        with (
            contextlib.closing(storage.open_database(folder.ledger)) as database,
            database.writing() as connection,
        ):
            lease.clear_holder(connection)
        yield "the unreadable lease was released"


def _mend(
    folder: Folder, term: int, verification: Verification, say: Callable[[str], None]
) -> Iterator[str]:
    """Apply the remedies of all damages in `verification`. Yields a sentence about each repair.

    `say` is called with messages for the user. `term` is the term in which the sweep is held.
    """
    remedies = {damage.remedy for damage in verification.damages}
    if Remedy.STATUSES in remedies:
        yield _rebuild_statuses(folder, term)
    if Remedy.DROP in remedies:
        yield from _drop_checkpoints(folder, term, verification)
    if remedies & {Remedy.DROP, Remedy.SWEEP_UP}:
        yield from _delete_unnamed_files(folder)
    if again := sorted({d.part for d in verification.damages if d.remedy is Remedy.SEND}):
        yield from _send_copies(folder, term, again, say)
    elif Remedy.DROP in remedies:
        sync.send_held(folder, term, say, PATIENCE_S)  # copies name the newest checkpoint


def _rebuild_statuses(folder: Folder, term: int) -> str:
    """Replace the table of statuses by the statuses after all events.

    Returns a sentence about it.
    """
    statuses = ledger_check.replay(folder.ledger).statuses
    rows = [(trial, replica, status) for (trial, replica), status in statuses.items()]
    with (
        contextlib.closing(storage.open_database(folder.ledger)) as database,
        database.writing() as connection,
    ):
        lease.check(connection, term)
        connection.execute("DELETE FROM replicas")
        connection.executemany("INSERT INTO replicas VALUES (?, ?, ?)", rows)
    return "the statuses were derived from the events again"


def _drop_checkpoints(folder: Folder, term: int, verification: Verification) -> Iterator[str]:
    """Append events that drop the lost checkpoints. Yields a sentence for each replica."""
    lost = [damage for damage in verification.damages if damage.remedy is Remedy.DROP]
    history = lookup.read_history(folder)
    events = [Dropped(damage.trial, damage.replica, (damage.digest,)) for damage in lost]
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history.extend(ledger.append(term, events))
    for place in sorted({(damage.trial, damage.replica) for damage in lost}):
        replica = history.replica(*place)
        newest = replica.newest_checkpoint
        names = sum((damage.trial, damage.replica) == place for damage in lost)
        if not history.trials[place[0]].may_continue(replica):
            next_step = "its training has ended"
        elif newest is not None:
            next_step = f"it continues from iteration {newest.iteration}"
        else:
            next_step = "it has no other"
        yield f"trial {place[0]}: {names} lost checkpoints were dropped; {next_step}"


def _delete_unnamed_files(folder: Folder) -> Iterator[str]:
    """Delete checkpoint files that no row of the ledger names.

    Yields a sentence for each replica.
    """
    gone = store.of_sweep(folder).sweep_up(lookup.read_history(folder))
    for whose, count in Counter((spare.trial, spare.replica) for spare in gone).items():
        yield (
            f"trials/{replica_name(*whose)}: {count} files that no row of the ledger names were "
            "deleted"
        )


def _send_copies(
    folder: Folder, term: int, names: list[str], say: Callable[[str], None]
) -> Iterator[str]:
    """Send all events to the trackers `names` again, as into an empty copy.

    Yields a sentence for each tracker. `say` is called with messages for the user. `term` is
    the term in which the sweep is held.
    """
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
