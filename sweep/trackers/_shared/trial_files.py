"""Files of results, one for each seed of a trial, kept equal to the history.

ROOT/NAME/logs/trial-3/{params.json, progress.csv, …}; further seeds and tests have folders of their
own, ``trial-3.1`` and ``trial-3.test0``.

An event changes a file as it changes the history: rows after the iteration from which its slice
continued are cut off, and its own are appended. The file is synced before the outbox is notified.
So events that are repeated after a crash, even over a half-written row, result in the same bytes.
"""

import json
import math
import os
from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from sweep import trackers
from sweep.core.errors import StorageError
from sweep.history.events import (
    UNSAVED,
    Closed,
    Created,
    Opened,
    Recorded,
    Reported,
    Row,
    Scalar,
)
from sweep.history.results import to_number
from sweep.history.seeds import replica_name
from sweep.ledger.folder import leads_elsewhere, link_problem
from sweep.trackers import TrackerContext
from trainables.checkpoint import disk
from trainables.core.results import VOLATILE_KEYS

#: Column or key that identifies a row in its file; the first one of each row.
IDENTITY = "training_iteration"
#: Name of the file with a trial's settings.
PARAMETERS = "params.json"
#: First parts of result keys that are not written as curves.
NOT_CURVES = VOLATILE_KEYS - {"time_total_s"} | {"done", UNSAVED}
#: Pair of trial and replica.
Seed = tuple[int, int]


@dataclass
class RowPositions:
    """Positions of the complete rows in a file; leftovers of a crash after them do not count."""

    start: int = 0
    """Number of bytes before the first row; 0 if the file has not been started."""
    columns: list[str] = field(default_factory=list)
    """Names of the columns in the file's header, as in CSV; empty without a header."""
    iterations: "array[int]" = field(default_factory=lambda: array("q"))
    """Iteration of each row, ascending."""
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    """Offset in bytes at which each row ends."""

    def add(self, iteration: int, size: int) -> bool:
        """Add a row of `size` bytes at the end.

        Returns False, and adds nothing, if its iteration is not above the last one's.
        """
        if self.iterations and iteration <= self.iterations[-1]:
            return False
        self.iterations.append(iteration)
        self.ends.append(self.end + size)
        return True

    def cut(self, iteration: int) -> None:
        """Forget the rows of later iterations than `iteration`."""
        kept = bisect_right(self.iterations, iteration)
        del self.iterations[kept:], self.ends[kept:]

    @property
    def end(self) -> int:
        """Offset in bytes at which the last row ends; `start` without rows."""
        return self.ends[-1] if self.ends else self.start


class FileTracker(trackers.Tracker):
    """Base of trackers that keep one file for each seed of a trial.

    A subclass defines its format.
    """

    file: ClassVar[str]
    """Name of the file in the folder of each seed."""

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._created: dict[int, tuple[Created, float]] = {}
        """Number of a trial → the event that created it, and its time in seconds since 1970."""
        self._standing: dict[Seed, RowPositions] = {}

    # ---- defined by a subclass ------------------------------------------------------------------

    @abstractmethod
    def read(self, content: bytes) -> RowPositions:
        """Return the positions of the rows in a file's contents, up to the first invalid one."""

    @abstractmethod
    def head(
        self, columns: Sequence[str], created: Created, created_at: float, replica: int
    ) -> bytes:
        """Return the bytes before the first row of a file.

        `created` is the event of the trial's creation, `created_at` its time in seconds since 1970,
        and `replica` the index of the seed.
        """

    @abstractmethod
    def encode(self, row: Row, columns: Sequence[str], ended_at: float, place: int) -> bytes:
        """Return the bytes of a row.

        `ended_at` is the time at which its slice ended, in seconds since 1970. `place` is the
        offset in the file at which the bytes will begin.
        """

    def tail(self, event: Reported | Closed, place: int) -> bytes:
        """Return the bytes after the last row until further rows follow; none by default.

        `event` is the newest event with results, and `place` the offset in the file at which they
        will begin.
        """
        return b""

    def columns(self, row: Row) -> Iterable[str]:
        """Return the names of the columns that a row needs; none if every row names its values."""
        return ()

    def widen(self, content: bytes, columns: Sequence[str], before: int) -> bytes:
        """Return the contents of a file with all `columns`, of which it had the first `before`.

        By default they do not change.
        """
        return content

    def is_equal(self, expected: bytes, stored: bytes) -> bool:
        """Return whether the bytes of a row in a file equal those that should be there."""
        return expected == stored

    # ---- writing --------------------------------------------------------------------------------

    def publish(self, records: Sequence[Recorded]) -> None:
        """Write the results in these events to the files, and sync each file.

        The first slice of a seed also writes its settings to ``params.json``. If this fails, the
        file is read again next time. Raises StorageError if a link is in a folder's place.
        """
        for record in records:
            match record.event:
                case Created() as event:
                    self._created[event.trial] = event, record.time
                case Opened() as event if event.slice == 0:
                    self._write_parameters(event, record.number)
                case Reported() | Closed() as event:
                    self._take(event, record)

    def close(self) -> None:
        """Forget the positions of rows, so that files are read again."""
        self._standing.clear()

    def _take(self, event: Reported | Closed, record: Recorded) -> None:
        """Write the results of an event to the file of its seed, after the rows that stay.

        The file is synced. Rows after the event's `source` are cut off first. Does nothing if
        neither results nor a file exist.
        """
        seed = (event.trial, event.replica)
        folder = self._folder(seed)
        if not event.rows and not (folder / self.file).exists():
            return
        _make(folder)
        with _opened(folder) as parent:
            standing = self._standing.pop(seed, None) or self._read_rows(parent)
            standing.cut(event.source)
            standing = self._with_columns(parent, standing, event.rows)
            written, end = [], standing.end
            if not end:
                its = self._created_event(event.trial, record.number)
                written.append(self.head(standing.columns, *its, event.replica))
                standing.start = len(written[0])
            for row in event.rows:
                written.append(self.encode(row, standing.columns, record.time, standing.end))
                standing.add(row.iteration, len(written[-1]))
            written.append(self.tail(event, standing.end))
            with _file(parent, self.file) as file, os.fdopen(file, "wb", closefd=False) as stream:
                stream.truncate(end)
                stream.seek(end)
                stream.writelines(written)
                stream.flush()
                os.fdatasync(file)
            self._standing[seed] = standing

    def _with_columns(
        self, parent: int, standing: RowPositions, rows: Sequence[Row]
    ) -> RowPositions:
        """Rewrite the file atomically if the rows have columns that it lacks; return its positions.

        A file without a header is not rewritten; `standing` only gets the columns. `parent` is the
        descriptor of the folder.
        """
        known = len(standing.columns)
        self._add_columns(standing.columns, rows)
        if len(standing.columns) == known or not known:
            return standing
        content = _content(parent, self.file)[: standing.end]
        content = self.widen(content, standing.columns, known)
        disk.publish(parent, self.file, len(content), [content], 0)
        disk.sync(parent)
        return self.read(content)

    def _read_rows(self, parent: int) -> RowPositions:
        """Return the positions of the rows in the file in the open folder `parent`.

        Temporary files of other processes are deleted first.
        """
        for name in os.listdir(parent):
            temporary = disk.TEMP_PATTERN.fullmatch(name)
            if temporary and int(temporary["pid"]) != os.getpid():
                os.unlink(name, dir_fd=parent)
        return self.read(_content(parent, self.file))

    def _add_columns(self, columns: list[str], rows: Iterable[Row]) -> None:
        """Append to `columns` the names that the rows need and it lacks."""
        known = set(columns)
        for row in rows:
            columns += [name for name in self.columns(row) if name not in known]
            known.update(columns)

    def _write_parameters(self, event: Opened, k: int) -> None:
        """Write the file with the trial's settings if it differs.

        `k` is the number of the event.
        """
        content = parameters(self._created_event(event.trial, k)[0])
        folder = self._folder((event.trial, event.replica))
        _make(folder)
        with _opened(folder) as parent:
            if _content(parent, PARAMETERS) != content:
                disk.publish(parent, PARAMETERS, len(content), [content], 0)
                disk.sync(parent)

    def _created_event(self, trial: int, k: int) -> tuple[Created, float]:
        """Return the event that created a trial, and its time in seconds since 1970.

        The ledger is read up to event `k` if needed.
        """
        if trial not in self._created:
            for record in (
                record for records in self._context.earlier_events(k) for record in records
            ):
                if isinstance(record.event, Created):
                    self._created[record.event.trial] = record.event, record.time
        return self._created[trial]

    def _folder(self, seed: Seed) -> Path:
        """Return the folder of a seed, such as ``logs/trial-3``."""
        return self._context.folder.logs / f"trial-{replica_name(*seed)}"

    # ---- comparing ------------------------------------------------------------------------------

    def unreadable(self) -> str:
        """Return an empty text: a file that cannot be read counts as one that differs."""
        return ""

    def differences(self) -> list[str]:
        """Return a text for each difference between the files and the whole ledger.

        A file of a trial that is not in the ledger is one, too.
        """
        expected: dict[Seed, dict[int, tuple[Row, float]]] = {}
        last: dict[Seed, Reported | Closed] = {}
        for records in self._context.earlier_events(math.inf):
            for record in records:
                match record.event:
                    case Created() as event:
                        self._created[event.trial] = event, record.time
                    case Opened() as event:
                        expected.setdefault((event.trial, event.replica), {})
                    case Reported() | Closed() as event:
                        seed = (event.trial, event.replica)
                        kept = {i: row for i, row in expected[seed].items() if i <= event.source}
                        new = {row.iteration: (row, record.time) for row in event.rows}
                        expected[seed], last[seed] = {**kept, **new}, event
        known = {self._folder(seed): seed for seed in expected}
        problems = [
            f"logs/{folder.name}: {problem}"
            for folder, seed in known.items()
            for problem in self._compare(folder, seed, expected[seed], last.get(seed))
        ]
        files = sorted(self._context.folder.logs.glob(f"trial-*/{self.file}"))
        strangers = [file for file in files if file.parent not in known]
        return problems + [f"logs/{file.parent.name}: no such trial" for file in strangers]

    def _compare(
        self,
        folder: Path,
        seed: Seed,
        expected: Mapping[int, tuple[Row, float]],
        newest: Reported | Closed | None,
    ) -> Iterator[str]:
        """Yield the differences of one seed's folder, as phrases.

        `expected` maps an iteration to its row and the time of its event; `newest` is the last
        event with results.
        """
        if not folder.is_dir():
            yield "is missing"
            return
        with _opened(folder) as parent:
            if _content(parent, PARAMETERS) != parameters(self._created[seed[0]][0]):
                yield f"{PARAMETERS} differs"
            content = _content(parent, self.file)
        for problem in self._compare_rows(content, expected, newest):
            yield f"{self.file} {problem}"

    def _compare_rows(
        self,
        content: bytes,
        expected: Mapping[int, tuple[Row, float]],
        newest: Reported | Closed | None,
    ) -> Iterator[str]:
        """Yield the differences between a file's contents and the rows `expected`, as phrases.

        `expected` maps an iteration to its row and the time of its event; `newest` is the last
        event with results.
        """
        standing = self.read(content)
        starts = dict(zip(standing.iterations, [standing.start, *standing.ends], strict=False))
        ends = dict(zip(standing.iterations, standing.ends, strict=True))
        present = {
            iteration: content[start : ends[iteration]] for iteration, start in starts.items()
        }
        tail = self.tail(newest, standing.end) if content and newest else b""
        if content[standing.end :] != tail:
            yield f"has {len(content) - standing.end} other bytes at its end than it should"
        if missing := expected.keys() - present.keys():
            yield f"lacks {len(missing)} rows, the first is of iteration {min(missing)}"
        if extra := present.keys() - expected.keys():
            yield f"has {len(extra)} rows too many, the first is of iteration {min(extra)}"
        columns = list(standing.columns)
        wrong = [
            iteration
            for iteration in expected.keys() & present.keys()
            if not self.is_equal(
                self.encode(
                    expected[iteration][0], columns, expected[iteration][1], starts[iteration]
                ),
                present[iteration],
            )
        ]
        if wrong:
            yield f"has {len(wrong)} other rows, the first is of iteration {min(wrong)}"

    def set_aside(self) -> None:
        """Delete the files of rows, since wrong ones would stay if all events were sent again.

        ``params.json`` and the folders stay.
        """
        for file in self._context.folder.logs.glob(f"trial-*/{self.file}"):
            with _opened(file.parent) as parent:
                os.unlink(self.file, dir_fd=parent)


def curves(row: Row) -> dict[str, float]:
    """Return a row's numbers by name, without those of `NOT_CURVES`, such as dates and host names.

    Texts are left out. The iteration is always included.
    """
    return {
        name: value
        for name, result in identified(row).items()
        if name.split("/")[0] not in NOT_CURVES or name == IDENTITY
        if not isinstance(result, str) and (value := to_number(result)) is not None
    }


def made_at(row: Row, ended_at: float) -> float:
    """Return the time of a result in seconds since 1970.

    It is its timestamp if that is above 0 and not after `ended_at`, the end of its slice; else
    `ended_at`.
    """
    said = to_number(row.metrics.get("timestamp"))
    return said if said is not None and 0 < said <= ended_at else ended_at


def identified(row: Row) -> dict[str, Scalar]:
    """Return all results of a row, with the iteration as the first."""
    return {IDENTITY: row.iteration, **{k: v for k, v in row.metrics.items() if k != IDENTITY}}


def parameters(created: Created) -> bytes:
    """Return the contents of the file ``params.json``: all settings of a trial as JSON."""
    return json.dumps(created.config, indent=2, sort_keys=True).encode() + b"\n"


def _make(folder: Path) -> None:
    """Create a trial's folder durably, if it does not exist.

    Raises StorageError if it or its parent is a link.
    """
    _refuse_links(folder)
    for missing in (folder.parent, folder):
        if not missing.is_dir():
            missing.mkdir(exist_ok=True)
            with disk.open_folder(missing.parent) as above:
                disk.sync(above)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Yield the descriptor of a trial's folder.

    Raises StorageError if it or its parent is a link.
    """
    _refuse_links(folder)
    with disk.open_folder(folder) as descriptor:
        yield descriptor


def _refuse_links(folder: Path) -> None:
    """Raise StorageError if a trial's folder or its parent is a link."""
    if leads_elsewhere(folder):
        raise StorageError(link_problem(folder))


@contextmanager
def _file(parent: int, name: str) -> Iterator[int]:
    """Yield the descriptor of a file in the open folder `parent` for writing.

    It is created if missing.
    """
    try:
        file = disk.open_file(name, os.O_WRONLY, parent)
    except FileNotFoundError:
        file = disk.open_file(name, os.O_WRONLY | os.O_CREAT, parent)
        disk.sync(parent)
    with disk.closing(file):
        yield file


def _content(parent: int, name: str) -> bytes:
    """Return the contents of a file in the open folder `parent`; empty if it does not exist."""
    try:
        with disk.open_regular_file(name, parent) as (file, size):
            content = bytearray(size)
            disk.fill(file, memoryview(content))
            return bytes(content)
    except FileNotFoundError:
        return b""
