"""Verify a whole sweep: its ledger, checkpoints, files and copies.

The ledger is first, since everything else is compared with it; a damaged ledger ends the check.
While a driver runs, copies and files are not compared, because they change.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.core import pickled
from sweep.core.errors import DamagedLedger, StorageError, first_line
from sweep.driver.tracking import sync
from sweep.history.events import Closed, MetricChanged, Reported, Saved
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import replica_name
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.operations.upkeep import ledger_check
from sweep.operations.upkeep.ledger_check import Damage, Remedy, name_of
from sweep.slices import store
from sweep.slices.store import SweepStore
from sweep.trackers import Comparable, Tracker, TrackerContext
from sweep.views import lookup, reading
from trainables.checkpoint import file
from trainables.errors import CheckpointError, CorruptCheckpoint, MissingCheckpoint, printable


@dataclass(frozen=True)
class Verification:
    """The damages that the verification of a sweep found."""

    damages: tuple[Damage, ...]
    """All damages, those of the ledger first."""
    notes: tuple[str, ...]
    """Sentences about parts that were not compared, with the reasons."""
    checkpoints: int
    """Number of checkpoints in the history, all of which were checked; 0 if the ledger is damaged
    or has old tables."""


#: Part of a ledger whose damage ends the check → the ledger in words.
_ENDING = {"ledger": "a damaged ledger", "schema": "a ledger of old tables"}


def verify(folder: Folder) -> Verification:
    """Compare a sweep's ledger, checkpoints, files and copies; nothing is written.

    A damaged ledger, or one with old tables, ends the check. While a driver runs, copies and files
    are left out. Raises StorageError if the ledger's server or disk is unreachable.
    """
    return inspect_sweep(folder, lookup.is_driven(folder))


def inspect_sweep(folder: Folder, driven: bool) -> Verification:
    """Compare a sweep's ledger, checkpoints, files and copies, like `verify`.

    If it is `driven`, copies and files are left out, since a driver changes them, and so are
    damages of checkpoints that the driver has dropped meanwhile.
    """
    damages = ledger_check.check(folder.ledger)
    history: History | None = None
    wrong: list[Damage] = []
    if not any(damage.part in _ENDING for damage in damages):
        try:
            history, wrong = _check_sums(folder)
        except DamagedLedger as error:
            wrong = [Damage("ledger", folder.ledger.name, error.problem)]
    damages += wrong
    if history is None:
        what = next(_ENDING[damage.part] for damage in damages if damage.part in _ENDING)
        return Verification(tuple(damages), (f"nothing else can be compared with {what}",), 0)
    stored = store.of_sweep(folder)
    lost = [*_check_trainable(folder), *_check_checkpoints(stored, history)]
    if driven:
        named = _named_checkpoints(lookup.read_history(folder))
        lost = [d for d in lost if d.trial < 0 or (d.trial, d.replica, d.digest) in named]
        note = "a driver is running, so the copies and files that it writes were not compared"
        return Verification((*damages, *lost), (note,), len(_named_checkpoints(history)))
    differ, notes = _check_copies(sync.tracker_context(folder))
    rest = (*lost, *_check_files(stored, history), *differ)
    return Verification((*damages, *rest), notes, len(_named_checkpoints(history)))


# ---- the parts ----------------------------------------------------------------------------------


def _check_sums(folder: Folder) -> tuple[History, list[Damage]]:
    """Return the history, and a damage for each event whose sums contradict the results so far.

    Events before the last change of the metric are not compared.
    """
    wrong: list[Damage] = []
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = History(reading.objective(ledger), shows_unsaved=True)
        for record in itertools.chain.from_iterable(iterate(ledger)):
            history.extend([record])
            event = record.event
            if isinstance(event, MetricChanged):
                wrong.clear()  # earlier sums belong to another metric and are never read
            elif isinstance(event, Reported | Closed) and event.sums is not None:
                replica = history.replica(event.trial, event.replica)
                due = replica.sums_after(replica.iteration, ())
                if repr(event.sums) != repr(due):  # NaN equals nothing
                    where = name_of((event.trial, event.replica))
                    said = f"event {record.number} records the sums {event.sums}"
                    said = f"{said}, but its results add up to {due}"
                    wrong.append(Damage("results", where, said))
    return history, wrong


def _named_checkpoints(history: History) -> set[tuple[int, int, str]]:
    """Return trial, replica and digest of each checkpoint that the history has."""
    return {(r.trial, r.index, digest) for r in history.all_replicas for digest in r.checkpoints}


def _check_trainable(folder: Folder) -> Iterator[Damage]:
    """Yield a damage if the saved trainable of a script is missing or its digest is wrong.

    The file is hashed but not loaded.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        spec = reading.spec_of(ledger)
        kept = pickled.newest(folder.trainable, ledger.sweep_id)
    if not pickled.is_of_script(spec.trainable):
        return
    if kept is None:
        yield Damage(
            "files", "trainable", "the file with the script's function or class is missing"
        )
        return
    try:
        file.verify(Path(kept.file))
    except CheckpointError as error:
        yield Damage("files", f"trainable/{Path(kept.file).name}", error.reason)


def _check_checkpoints(stored: SweepStore, history: History) -> list[Damage]:
    """Return a damage for each checkpoint in the history that is missing, unreadable or changed."""
    return [
        damage
        for replica in history.all_replicas
        for saved in replica.checkpoints.values()
        if (damage := _check_checkpoint(stored, replica, saved)) is not None
    ]


def _check_checkpoint(stored: SweepStore, replica: Replica, saved: Saved) -> Damage | None:
    """Read and hash a checkpoint; return its damage, or None if it is intact."""
    its = stored.replica(replica.trial, replica.index)
    place = f"trials/{its.folder.name}/{saved.file}"
    checkpoint = (replica.trial, replica.index, saved.digest)
    try:
        its.verify(saved)
    except (MissingCheckpoint, CorruptCheckpoint) as error:
        return Damage("checkpoints", place, error.reason, Remedy.DROP, *checkpoint)
    except CheckpointError as error:  # it may be intact, so it is not dropped
        return Damage("checkpoints", place, error.reason, Remedy.NONE, *checkpoint)
    return None


def _check_files(stored: SweepStore, history: History) -> Iterator[Damage]:
    """Yield a damage for each file in the checkpoints' folders that no row of the ledger names."""
    for spare in stored.unnamed_files(history):
        whose = (spare.trial, spare.replica)
        place = f"trials/{replica_name(*whose)}/{spare.name}"
        yield Damage(
            "files", place, "the ledger does not mention this file", Remedy.SWEEP_UP, *whose
        )


def _check_copies(context: TrackerContext) -> tuple[list[Damage], tuple[str, ...]]:
    """Compare the copy of each tracker that is complete and reachable with the history.

    Returns the damages, and a sentence about each copy that was not compared.
    """
    damages: list[Damage] = []
    notes: list[str] = []
    behind = sync.count_missing_events(context)
    for name, why in sync.uninstalled_trackers(context).items():
        notes.append(printable(f"{name} was not compared: {why}"))
    for name, tracker in sync.load_trackers(context, only_installed=True).items():
        try:
            found = _compare_copy(tracker, *behind[name])
        except Exception as error:  # noqa: BLE001 a store may fail in any way; the rest counts
            notes.append(printable(f"{name} was not compared: {first_line(error)}"))
        else:
            damages += [Damage(name, "copy", text, Remedy.SEND) for text in found]
    return damages, tuple(notes)


def _compare_copy(tracker: Tracker, count: int, missing: int) -> list[str]:
    """Return the differences between a tracker's copy and the history, one line each.

    Args:
        count: number of events that the copy contains, the first ones of the history.
        missing: number of events that it lacks.

    Raises:
        StorageError: the copy lacks events, or the tracker cannot compare its copy.
    """
    if not isinstance(tracker, Comparable):
        raise StorageError(
            "the tracker has no method differences(), so its copy cannot be compared"
        )
    problem = tracker.unreadable() if count else ""
    if missing and not problem:
        raise StorageError(f"the copy lacks {missing} events; run `sweep sync`")
    return [problem] if problem else tracker.differences()
