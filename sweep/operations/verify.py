"""Verification of a whole sweep: its ledger, its checkpoints, its copies, its files.

The ledger comes first, since everything else is compared with it: one that is damaged ends the
look. Beside a driver that writes, copies and files are not compared, as they change meanwhile.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep import pickled
from sweep.driver import sync
from sweep.errors import StorageError, without_password
from sweep.history.events import Closed, Measured, Reported, Saved
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import replica_name
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.operations import ledger_check
from sweep.operations.ledger_check import Damage, Remedy, name_of
from sweep.slices import store
from sweep.slices.store import SweepStore
from sweep.trackers import Comparable, Tracker, TrackerContext
from sweep.views import lookup, reading
from trainables.checkpoint import file
from trainables.errors import CheckpointError, CorruptCheckpoint, MissingCheckpoint, printable


@dataclass(frozen=True)
class Found:
    """Everything that was found."""

    damages: tuple[Damage, ...]
    notes: tuple[str, ...]
    """Parts that could not be compared, and the reasons."""
    checkpoints: int
    """The number of checkpoints that were hashed, their segments included."""


def verify(folder: Folder) -> Found:
    """Look at everything; nothing is written."""
    return look_at(folder, lookup.is_driven(folder))


def look_at(folder: Folder, driven: bool) -> Found:
    """`verify`, for who knows whether a driver runs."""
    damages = ledger_check.check(folder.ledger)
    for part, what in (("ledger", "a damaged ledger"), ("schema", "a ledger of old tables")):
        if any(damage.part == part for damage in damages):
            return Found(tuple(damages), (f"nothing else was compared with {what}",), 0)
    history, wrong = _folded(folder)
    damages += wrong
    stored = store.of(folder)
    lost = [*_trainable(folder), *_checkpoints(stored, history)]
    if driven:
        named = _named(lookup.read_history(folder))
        lost = [d for d in lost if d.trial < 0 or (d.trial, d.replica, d.digest) in named]
        note = "a driver runs: its copies and the files of its slices were not compared"
        return Found((*damages, *lost), (note,), len(_named(history)))
    differ, notes = _copies(sync.tracker_context(folder))
    rest = (*lost, *_unnamed(stored, history), *differ)
    return Found((*damages, *rest), notes, len(_named(history)))


# ---- looking ------------------------------------------------------------------------------------


def _folded(folder: Folder) -> tuple[History, list[Damage]]:
    """The history by all its results, and the slices with other sums than these come to."""
    wrong: list[Damage] = []
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        history = History(reading.objective(ledger), shows_unsaved=True)
        for record in itertools.chain.from_iterable(iterate(ledger)):
            history.extend([record])
            event = record.event
            if isinstance(event, Measured):
                wrong.clear()  # those before it are of another metric, and nobody reads them
            elif isinstance(event, Reported | Closed) and event.sums is not None:
                replica = history.replica(event.trial, event.replica)
                due = replica.sums_after(replica.iteration, ())
                if repr(event.sums) != repr(due):  # NaN equals nothing
                    where = name_of((event.trial, event.replica))
                    said = f"event {record.k} says that its results come to {event.sums}"
                    wrong.append(Damage("results", where, f"{said}; they come to {due}"))
    return history, wrong


def _named(history: History) -> set[tuple[int, int, str]]:
    return {(r.trial, r.index, digest) for r in history.all_replicas for digest in r.checkpoints}


def _trainable(folder: Folder) -> Iterator[Damage]:
    """Yield the damages of the trainable of a script, which is hashed and not loaded."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        spec = reading.spec_of(ledger)
        kept = pickled.newest(folder.trainable, ledger.sweep_id)
    if not pickled.is_of_script(spec.trainable):
        return
    if kept is None:
        yield Damage("files", "trainable", "the trainable of a script, is missing")
        return
    try:
        file.verify(Path(kept.file))
    except CheckpointError as error:
        yield Damage("files", f"trainable/{Path(kept.file).name}", error.reason)


def _checkpoints(stored: SweepStore, history: History) -> list[Damage]:
    return [
        damage
        for replica in history.all_replicas
        for saved in replica.checkpoints.values()
        if (damage := _damaged(stored, replica, saved)) is not None
    ]


def _damaged(stored: SweepStore, replica: Replica, saved: Saved) -> Damage | None:
    its = stored.replica(replica.trial, replica.index)
    place = f"trials/{its.folder.name}/{saved.file}"
    whose = (replica.trial, replica.index, saved.digest)
    try:
        its.verify(saved)
    except (MissingCheckpoint, CorruptCheckpoint) as error:
        return Damage("checkpoints", place, error.reason, Remedy.DROP, *whose)
    except CheckpointError as error:  # it may be good: nothing is derived from not knowing
        return Damage("checkpoints", place, error.reason, Remedy.NONE, *whose)
    return None


def _unnamed(stored: SweepStore, history: History) -> Iterator[Damage]:
    for spare in stored.unnamed_files(history):
        whose = (spare.trial, spare.replica)
        place = f"trials/{replica_name(*whose)}/{spare.name}"
        yield Damage("files", place, "no row names it", Remedy.SWEEP_UP, *whose)


def _copies(where: TrackerContext) -> tuple[list[Damage], tuple[str, ...]]:
    """Each tracker's copy, compared where it has everything and can be reached; else a note."""
    damages: list[Damage] = []
    notes: list[str] = []
    behind = sync.count_missing_events(where)
    for name, why in sync.left_out(where).items():
        notes.append(printable(f"{name} was not compared: {why}"))
    for name, tracker in sync.load_trackers(where, only_installed=True).items():
        try:
            found = _differences(tracker, *behind[name])
        except Exception as error:  # noqa: BLE001 a store may fail in any way; the rest counts
            problem = without_password(str(error)) or type(error).__name__
            notes.append(printable(f"{name} was not compared: {problem.splitlines()[0]}"))
        else:
            damages += [Damage(name, "copy", text, Remedy.SEND) for text in found]
    return damages, tuple(notes)


def _differences(tracker: Tracker, had: int, misses: int) -> list[str]:
    """Return the differences of a copy that `had` events; one that misses some is refused."""
    if not isinstance(tracker, Comparable):
        raise StorageError("the tracker has no method differences()")
    problem = tracker.unreadable() if had else ""
    if misses and not problem:
        raise StorageError(f"it lacks {misses} events; run `sweep sync`")
    return [problem] if problem else tracker.differences()
