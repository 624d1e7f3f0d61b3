"""Reports of slices in their journals: of those that run, and of those that did not return.

A worker writes a journal (`sweep.slices.journal`); nobody has checked what stands in it. The driver
records the results of slices that run every few seconds, all in one transaction, so that people and
trackers see them. Where a process died, its journal takes the place of the outcome: the trial goes
on from the newest checkpoint that is named there. A journal that is cut off or damaged ends there.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweep.errors import UsageError
from sweep.history.events import End, Opened, Reported, Row, Saved
from sweep.history.replica import Replica
from sweep.ledger import codec
from sweep.ledger import folder as folders
from sweep.ledger.codec import DecodeError
from sweep.ledger.folder import JOURNALS, Folder
from sweep.ledger.ledger import Ledger
from sweep.slices.journal import Layout
from sweep.slices.messages import SliceOutcome
from sweep.slices.store import SweepStore

#: Seconds between two looks at what slices tell that run.
LOOK_S = 3.0
#: Bytes of a journal that are read at once.
_MOST = 2**24


@dataclass
class Told:
    """The contents of a journal, as far as it has been read."""

    path: Path
    source: int | None = None
    """The iteration from which the slice started; None before the journal says it."""
    upto: int = 0
    """The last iteration that it reports."""
    skipped: tuple[str, ...] = ()
    """Checkpoints that could not be used, and why."""
    saved: list[Saved] = field(default_factory=list)
    exactness: str = ""
    _read: int = 0
    """Bytes that have been read."""
    _layout: Layout | None = None
    """That of the last result which is written out."""
    _ended: bool = False
    """True after a line that cannot be read, where the journal ends."""

    def news(self) -> list[Row]:
        """Return the results that were told since the last call."""
        rows: list[Row] = []
        try:
            with folders.reading(self.path) as (file, _size):
                while not self._ended and (whole := self._lines(file)):
                    self._read += len(whole)
                    rows += self._rows(whole.splitlines())
        except ValueError:
            self._ended = True
        except (OSError, UsageError):
            pass
        return rows

    def _lines(self, file: int) -> bytes:
        content = os.pread(file, _MOST, self._read)
        return content[: content.rfind(b"\n") + 1]

    def _rows(self, lines: Iterable[bytes]) -> Iterator[Row]:
        for line in lines:
            match codec.parse(line.decode(errors="replace")):
                case [iteration, metrics]:
                    row = codec.read_metrics(iteration, metrics)
                    self._layout = Layout(row.metrics)
                    yield self._next(row)
                case str(numbers) if self._layout is not None:
                    yield self._next(self._layout.unpacked(numbers))
                case {"source": int(source), "skipped": list(skipped)} if self.source is None:
                    self.source = self.upto = source
                    self.skipped = tuple(str(one) for one in skipped)
                case {"exactness": str(exactness), **saved}:
                    self.saved.append(codec.read_saved(saved))
                    self.exactness = exactness
                case _:
                    raise DecodeError("no result, and no checkpoint")

    def _next(self, row: Row) -> Row:
        if self.source is None or row.iteration != self.upto + 1:
            raise DecodeError(f"iteration {row.iteration} after {self.upto}")
        self.upto += 1
        return row


class Reports:
    """Reads what the slices of a driver tell while they run."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._told: dict[tuple[int, int, int], Told] = {}
        """Trial, replica and slice → its journal, of the slices that ran at the last look."""
        self._looked_at = time.monotonic()

    def news(self, running: Iterable[Opened]) -> list[Reported]:
        """Return what was told since the last look, if that is some seconds ago.

        A slice that began since then has not told anything yet that is worth an event.
        """
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return []
        self._looked_at = now
        known, self._told = self._told, {}
        found: list[Reported] = []
        for opened in running:
            key = (opened.trial, opened.replica, opened.slice)
            told = self._told[key] = known.get(key) or Told(_path(self._folder, *key))
            if key in known and (rows := told.news()):
                first = rows[0].iteration - 1
                found.append(Reported(*key, source=first, rows=tuple(rows)))
        return found


def left(stored: SweepStore, ledger: Ledger, replica: Replica) -> SliceOutcome:
    """Return what is left of the newest slice of a replica, which did not return.

    Its checkpoints are those that are whole; they are taken over, and survive a power cut.
    """
    number = replica.slices - 1
    told = Told(_path(stored.folder, replica.trial, replica.index, number))
    rows, source = told.news(), told.source
    if source is None:
        source = replica.iteration if replica.tail_after is None else replica.tail_after
    if replica.reported_to is not None and told.upto < replica.reported_to:
        known = ledger.results(replica.trial, replica.index)  # the journal was lost
        rows = [row for row in known if row.iteration > source]
    its = stored.replica(replica.trial, replica.index)
    adopted = (its.adopt(saved) for saved in told.saved if saved.iteration > source)
    saved = {one.digest: one for one in adopted if one is not None}
    return SliceOutcome(
        replica.trial,
        replica.index,
        number,
        End.LOST,
        source,
        tuple(rows),
        tuple(sorted(saved.values(), key=lambda one: one.iteration)),
        skipped=told.skipped,
        exactness=told.exactness if saved else "",
    )


def remove(folder: Folder, trial: int, replica: int, number: int | None = None) -> None:
    """Delete the journal of a slice that is over; None: of all slices of the replica."""
    its = folder.trial(trial, replica)
    if folders.leads_elsewhere(its):
        return
    name = JOURNALS if number is None else folders.journal(number)
    for path in its.glob(name) if number is None else [its / name]:
        path.unlink(missing_ok=True)


def _path(folder: Folder, trial: int, replica: int, number: int) -> Path:
    return folder.trial(trial, replica) / folders.journal(number)
