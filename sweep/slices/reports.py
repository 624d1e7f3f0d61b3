"""Read slices' journals: of slices that run, and of slices that did not return.

A worker writes a journal (`sweep.slices.journal`); its contents are checked here. Every few seconds
the driver records the results of running slices in one transaction, so that people and trackers see
them. If a process died, its journal replaces the outcome: the trial continues from the newest
checkpoint named there. A journal that is cut off or damaged is read up to that point.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sweep.core.errors import UsageError
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

#: Seconds between two reads of the journals of running slices.
LOOK_S = 3.0
#: Maximum bytes of a journal read at once.
_MOST = 2**24


@dataclass
class JournalReading:
    """Contents of a slice's journal, as far as they have been read."""

    path: Path
    """Path of the journal file."""
    source: int | None = None
    """Number of the iteration after which the slice started; None until that is read."""
    upto: int = 0
    """Number of the iteration of the last result read; before the first, that of `source`, or 0."""
    skipped: tuple[str, ...] = ()
    """Message for each checkpoint that is lost and was passed over at the start."""
    saved: list[Saved] = field(default_factory=list)
    """Checkpoints written so far, oldest first."""
    exactness: str = ""
    """Text that says how exactly the newest checkpoint can be resumed; empty until one is read."""
    _read: int = 0
    """Number of bytes of the file that were read."""
    _layout: Layout | None = None
    """Layout of the last result that was written in full; None before the first."""
    _ended: bool = False
    """True after a line that is not valid, at which reading ends."""

    def new_results(self) -> list[Row]:
        """Return the results written since the last call, and read new checkpoints into `saved`.

        A missing file, or one that cannot be read now, has no results. At a line that is not valid,
        reading ends for good.
        """
        rows: list[Row] = []
        try:
            with folders.reading(self.path) as (file, _size):
                while not self._ended and (whole := self._read_lines(file)):
                    self._read += len(whole)
                    rows += self._parse_rows(whole.splitlines())
        except ValueError:
            self._ended = True
        except (OSError, UsageError):
            pass
        return rows

    def _read_lines(self, file: int) -> bytes:
        """Return the unread complete lines of the open file, at most `_MOST` bytes.

        Returns no bytes at the end.
        """
        content = os.pread(file, _MOST, self._read)
        return content[: content.rfind(b"\n") + 1]

    def _parse_rows(self, lines: Iterable[bytes]) -> Iterator[Row]:
        """Yield the results in some lines; keep the start and the checkpoints in attributes.

        Raises DecodeError for any other line.
        """
        for line in lines:
            match codec.parse(line.decode(errors="replace")):
                case [iteration, metrics]:
                    row = codec.read_metrics(iteration, metrics)
                    self._layout = Layout(row.metrics)
                    yield self._check_order(row)
                case str(numbers) if self._layout is not None:
                    yield self._check_order(self._layout.unpacked(numbers))
                case {"source": int(source), "skipped": list(skipped)} if self.source is None:
                    self.source = self.upto = source
                    self.skipped = tuple(str(one) for one in skipped)
                case {"exactness": str(exactness), **saved}:
                    self.saved.append(codec.read_saved(saved))
                    self.exactness = exactness
                case _:
                    raise DecodeError("no result, and no checkpoint")

    def _check_order(self, row: Row) -> Row:
        """Return the result if its iteration follows the last one, and count it in `upto`.

        Raises DecodeError if it does not, or the journal has not said where the slice started.
        """
        if self.source is None or row.iteration != self.upto + 1:
            raise DecodeError(
                f"iteration {row.iteration} comes directly after iteration {self.upto}"
            )
        self.upto += 1
        return row


class Reports:
    """Reader of the journals of all slices that a driver has running."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._journals: dict[tuple[int, int, int], JournalReading] = {}
        """(Trial, replica, slice) → its journal, for the slices that ran at the last call."""
        self._looked_at = time.monotonic()

    def new_results(self, running: Iterable[Opened]) -> list[Reported]:
        """Return the results written since the last read, one event for each slice that has some.

        Returns an empty list within `LOOK_S` seconds of the last read. A slice that was not running
        at the last read is first reported by the next read.
        """
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return []
        self._looked_at = now
        known, self._journals = self._journals, {}
        reports: list[Reported] = []
        for opened in running:
            key = (opened.trial, opened.replica, opened.slice)
            reading = self._journals[key] = known.get(key) or JournalReading(
                _journal_path(self._folder, *key)
            )
            if key in known and (rows := reading.new_results()):
                first = rows[0].iteration - 1
                reports.append(Reported(*key, source=first, rows=tuple(rows)))
        return reports


def lost_outcome(stored: SweepStore, ledger: Ledger, replica: Replica) -> SliceOutcome:
    """Return an outcome for the newest slice of a replica, whose process or driver died.

    The outcome's `end` is LOST. Its results come from its journal, or from the ledger if that has
    more. Its checkpoints are those of the journal that are intact on disk; they get other names and
    are made to survive a power cut. With object storage all are taken, unchecked.
    """
    number = replica.slices - 1
    reading = JournalReading(_journal_path(stored.folder, replica.trial, replica.index, number))
    rows, source = reading.new_results(), reading.source
    if source is None:
        source = replica.iteration if replica.tail_after is None else replica.tail_after
    if replica.reported_to is not None and reading.upto < replica.reported_to:
        # the journal was lost, but the ledger has its results
        known = ledger.results(replica.trial, replica.index)
        rows = [row for row in known if row.iteration > source]
    its = stored.replica(replica.trial, replica.index)
    adopted = (its.adopt(saved) for saved in reading.saved if saved.iteration > source)
    saved = {one.digest: one for one in adopted if one is not None}
    return SliceOutcome(
        replica.trial,
        replica.index,
        number,
        End.LOST,
        source,
        tuple(rows),
        tuple(sorted(saved.values(), key=lambda one: one.iteration)),
        skipped=reading.skipped,
        exactness=reading.exactness if saved else "",
    )


def remove(folder: Folder, trial: int, replica: int, number: int | None = None) -> None:
    """Delete the journal of slice `number` of a replica that has ended.

    If `number` is None, the journals of all its slices are deleted. Nothing is deleted if the
    replica's folder is a link.
    """
    its = folder.trial(trial, replica)
    if folders.leads_elsewhere(its):
        return
    name = JOURNALS if number is None else folders.journal(number)
    for path in its.glob(name) if number is None else [its / name]:
        path.unlink(missing_ok=True)


def _journal_path(folder: Folder, trial: int, replica: int, number: int) -> Path:
    """Return the path of the journal of a replica's slice `number`."""
    return folder.trial(trial, replica) / folders.journal(number)
