"""CSV: the results of each seed as ``logs/trial-3/progress.csv``, in the layout of Ray Tune.

A file has one row for each iteration and one column for each result, ``training_iteration`` first;
nested names are joined with ``/``. A result that first appears later gets a column at the end and
the file is rewritten atomically; rows without a value have an empty cell. Numbers are exact; a line
break within a text becomes a space. The settings are in ``params.json`` in the same folder.
"""

import csv
import io
from collections.abc import Iterable, Sequence

from sweep.history.events import Created, Row
from sweep.trackers._shared.trial_files import IDENTITY, FileTracker, RowPositions, identified


class Tracker(FileTracker):
    """Writes a CSV file for each seed of a trial, with a row for each iteration."""

    file = "progress.csv"

    def read(self, content: bytes) -> RowPositions:
        """Return the positions of the rows in a file's contents, up to the first invalid line.

        There are none if the first line does not name the columns.
        """
        header, *lines = content.split(b"\n")[:-1] or [b""]
        columns = _cells(header)
        if columns[:1] != [IDENTITY]:
            return RowPositions()
        standing = RowPositions(len(header) + 1, columns)
        for line in lines:
            first = line.partition(b",")[0]
            if not first.isdigit() or not standing.add(int(first), len(line) + 1):
                break
        return standing

    def head(
        self, columns: Sequence[str], created: Created, created_at: float, replica: int
    ) -> bytes:
        """Return the line with the names of the columns."""
        return _line(columns)

    def columns(self, row: Row) -> Iterable[str]:
        """Return the name of a column for each result in a row."""
        return map(_plain, identified(row))

    def encode(self, row: Row, columns: Sequence[str], ended_at: float, place: int) -> bytes:
        """Return a row as a line with a cell for each column, empty for missing results."""
        result = {_plain(name): value for name, value in identified(row).items()}
        return _line([result.get(name, "") for name in columns])

    def widen(self, content: bytes, columns: Sequence[str], before: int) -> bytes:
        """Return the contents with all `columns` in the header, and empty cells for the new ones.

        The contents had the first `before` columns.
        """
        _, *rows = content.split(b"\n")[:-1]
        empty = b"," * (len(columns) - before) + b"\n"
        return b"".join([_line(columns), *(row + empty for row in rows)])

    def is_equal(self, expected: bytes, stored: bytes) -> bool:
        """Return whether the cells of two lines are equal, ignoring empty ones at the end."""
        return expected.rstrip(b",\n") == stored.rstrip(b",\n")


def _line(cells: Iterable[object]) -> bytes:
    """Return cells as a line of CSV."""
    text = io.StringIO()
    plain = [_plain(cell) if isinstance(cell, str) else cell for cell in cells]
    csv.writer(text, lineterminator="\n").writerow(plain)
    return text.getvalue().encode()


def _plain(text: str) -> str:
    """Return a text on one line, with lone surrogates from file names escaped."""
    return " ".join(text.splitlines()).encode("utf-8", "backslashreplace").decode()


def _cells(line: bytes) -> list[str]:
    """Return the cells of a line of CSV, as texts."""
    return next(csv.reader([line.decode("utf-8", "replace")]), [])
