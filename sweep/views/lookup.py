"""Read sweeps without changing them: the contents of a ledger, and whether a driver holds it."""

import contextlib
import gc
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from sweep.core.errors import SweepError
from sweep.history.events import (
    Closed,
    FinalEvaluationBegan,
    MetricChanged,
    Opened,
    Recorded,
    Reported,
    Row,
    TermBegan,
)
from sweep.history.history import History
from sweep.history.replica import Replica
from sweep.history.seeds import replica_name
from sweep.history.trial import Trial
from sweep.ledger import folder as folders
from sweep.ledger import lease
from sweep.ledger.changes import Change, Changes
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger, iterate
from sweep.spec import SweepSpec
from sweep.views import reading
from sweep.views.progress import Aim, newest_fraction
from trainables.errors import printable

#: Maximum bytes read, and lines shown, of the end of a log.
LOG_BYTES, LOG_LINES = 2**20, 2000
#: Text instead of a deleted log.
LOG_DELETED = "(its log was deleted, by `sweep gc` or for checkpoint.max_disk)\n"


class State(StrEnum):
    """The state of a sweep as users see it."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    """The sweep's driver ended in order before all was done, on request or by an error; the sweep
    can be resumed."""
    PAUSED = "paused"
    """Its driver runs and waits for `sweep unpause`."""
    INTERRUPTED = "interrupted"
    """The sweep's driver was killed, or none has begun yet; the sweep can be resumed."""
    TESTING = "testing"
    """A driver retrains the best trials under test seeds."""


#: States of a sweep with a running driver.
DRIVEN = frozenset({State.RUNNING, State.PAUSED, State.TESTING})
#: Events with which a driver's term begins.
_BEGINNINGS = (TermBegan, FinalEvaluationBegan)


@dataclass(frozen=True)
class Sweep:
    """All data of a sweep at one moment, read from its ledger."""

    folder: Folder
    """Folder of the sweep."""
    spec: SweepSpec
    """Spec with the present space, metric and stopping criteria."""
    aim: Aim
    """Rungs and stopping criteria, by which progress is measured."""
    history: History
    """Trials as of the last event; results of running slices count (`shows_unsaved`)."""
    records: tuple[Recorded, ...]
    """All events of the ledger in order, without results if `read` left these out."""
    state: State
    """Present state: running, or how the last driver ended."""
    created_at: float
    """Time of creation in seconds since 1970."""
    first_spec: SweepSpec
    """Spec with which the sweep was created."""

    @cached_property
    def changes(self) -> list[Change]:
        """Changes of the space and of the stopping criteria since the creation, oldest first."""
        return Changes(self.first_spec, self.records).all

    @property
    def first_of_space(self) -> int:
        """Number of the first trial that has, or would have, the present space.

        It is 0 if the space never changed.
        """
        return max((one.trials for one in self.changes if one.key == "space"), default=0)

    @property
    def term_began(self) -> Recorded | None:
        """Event by which the newest driver began; None before the first driver."""
        return next((r for r in reversed(self.records) if isinstance(r.event, _BEGINNINGS)), None)

    def last_trained_at(self, replica: Replica) -> float | None:
        """Return the time at which the replica's newest slice was opened or last reported.

        The time is in seconds since 1970. Returns None without a slice.
        """
        its = (replica.trial, replica.index)
        for record in reversed(self.records):
            event = record.event
            if isinstance(event, Opened | Reported) and (event.trial, event.replica) == its:
                return record.time
        return None

    def fraction_at_term(self) -> float:
        """Return the share of the work, 0 to 1, that was done when the newest driver began.

        It is 0 before the first driver. The history up to that point is built again.
        """
        history, began = self.history, self.term_began
        past = History(history.objective, history.summed, history.shows_unsaved)
        past.extend([record for record in self.records if began and record.number <= began.number])
        return newest_fraction(past, self.aim)


def read(folder: Folder, curves: bool = True) -> Sweep:
    """Read the present state of the sweep in `folder`.

    Without `curves`, results are not read, which takes a tenth of the time. They are read still if
    the metric was changed, or an event lacks the sums of its results. Code that the sweep names is
    not imported. Raises UsageError if one of its files is a link or the ledger's tables are of
    another revision, DamagedLedger if its contents are not valid, and StorageError if it cannot be
    read.
    """
    folder.require_plain()
    with _paused_collector(), contextlib.closing(Ledger(folder.ledger)) as ledger:
        spec = reading.spec_of(ledger)
        scheduler = reading.scheduler_of(ledger)
        summed = not curves and ledger.newest(MetricChanged.kind) is None
        records = _records(ledger, results=not summed)
        events = (record.event for record in records)
        if summed and not all(e.sums for e in events if isinstance(e, Reported | Closed)):
            summed, records = False, _records(ledger)
        objective = reading.objective_of(spec, scheduler.time_attr)
        history = History(objective, summed, shows_unsaved=True)
        history.extend(records)
        created_at, first_spec = ledger.created_at, reading.original_spec(ledger)
    aim = Aim.of(scheduler, spec)
    now = state(folder, history)
    return Sweep(folder, spec, aim, history, records, now, created_at, first_spec)


def _records(ledger: Ledger, results: bool = True) -> tuple[Recorded, ...]:
    """Read all events of a ledger, with their results unless `results` is False."""
    return tuple(record for batch in iterate(ledger, results=results) for record in batch)


@contextlib.contextmanager
def _paused_collector() -> Iterator[None]:
    """Disable the garbage collector inside the block; it costs a third of reading a long sweep."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_all(root: Path) -> tuple[list[Sweep], list[str]]:
    """Read all sweeps in `root`, sorted by name, without curves as far as `read` can.

    Also returns a message for each that cannot be read.
    """
    sweeps, problems = [], []
    for name in folders.list_sweeps(root):
        try:
            sweeps.append(read(Folder(root, name), curves=False))
        except SweepError as error:
            problems.append(f"{printable(name)}: {error}")
    return sweeps, problems


def read_spec(folder: Folder) -> tuple[SweepSpec, tuple[str, ...]]:
    """Read a sweep's present spec, and the folders in which Python looks for its trainable."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return reading.spec_of(ledger), tuple(ledger.provenance["paths"])


def read_history(folder: Folder) -> History:
    """Read the history of the sweep in `folder`, with curves, as the driver's decisions use it.

    Results of running slices do not count.
    """
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return reading.history(ledger)


def read_log(folder: Folder, trial: Trial) -> str:
    """Return the end of a trial's printed output, seed by seed; UsageError if a log is no file.

    Test seeds are included. A deleted log is `LOG_DELETED`; several logs get headings.
    """
    logs = {
        replica_name(replica.trial, replica.index): _log_of(
            folder.trial(replica.trial, replica.index)
        )
        or (LOG_DELETED if replica.log_deleted else "")
        for replica in [*trial.replicas, *trial.test_replicas]
    }
    if len(logs) == 1:
        return next(iter(logs.values()))
    return "\n".join(f"==> {name} <==\n{text}" for name, text in logs.items())


def _log_of(trial: Path) -> str:
    """Return the end of the log in a trial's folder: `LOG_BYTES` and `LOG_LINES` at most.

    A first line says how much was left out, if any. Returns an empty text without a log.
    """
    size, read, parts = 0, b"", list[Path]()
    for part in (trial / folders.LOG, trial / folders.OLDER_LOG):
        with contextlib.suppress(FileNotFoundError), folders.reading(part) as (file, its):
            room = LOG_BYTES - len(read)
            read = os.pread(file, room, max(0, its - room)) + read if room else read
            size += its
            parts += [part] if its else []
    lines = io.BytesIO(read).readlines()
    if len(read) < size and len(lines) > 1:
        del lines[0]  # the first line is incomplete
    shown = b"".join(lines[-LOG_LINES:])
    before = size - len(shown)
    kept = " and ".join(str(part) for part in reversed(parts))
    head = f"({before} bytes before this are left out; they are in {kept})\n" if before else ""
    return head + shown.decode(errors="replace")


def read_results(folder: Folder, replica: Replica) -> list[Row]:
    """Read all results of one replica, one row for each iteration."""
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return ledger.results(replica.trial, replica.index)


def state(folder: Folder, history: History) -> State:
    """Return the present state of a sweep, by its history and its lock.

    With a driver it is running, paused by a user, or testing; without one it is finished, stopped
    (the driver ended early, in order) or interrupted (the driver was killed).
    """
    if history.final_evaluation and is_driven(folder):
        return State.PAUSED if history.suspended else State.TESTING
    if history.ended:
        return State.FINISHED if history.ended == "finished" else State.STOPPED
    if not is_driven(folder):
        return State.INTERRUPTED
    return State.PAUSED if history.suspended else State.RUNNING


def is_driven(folder: Folder) -> bool:
    """Return whether a driver holds the sweep's lock here, or its lease on another machine."""
    try:
        return folder.is_locked() or lease.read_file(folder.ledger).is_elsewhere
    except PermissionError:  # the lock belongs to another user: only the ledger can tell
        return lease.read_file(folder.ledger).is_live
