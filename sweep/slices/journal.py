"""Journal of a running slice: its results and its checkpoints, in a file of its trial.

A slice's outcome comes when it has ended. Until then, and where its process dies, its driver reads
the journal. Each line is JSON and is written at once, so that every result reported before a
process died stands there: a list is a result, its iteration and its entries; a text is a result
that differs from the last list in its numbers alone (`Layout`); a mapping with ``source`` says from
which iteration the slice started; any other mapping is a checkpoint that is on the disk. Lines that
the disk refuses are lost, and nothing is written after them.
"""

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import asdict
from itertools import compress
from pathlib import Path

from sweep.history.events import Metrics, Row, Saved
from sweep.ledger.folder import journal
from trainables.checkpoint import disk

_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Layout:
    """The names of a result, the kinds of its values, and its texts.

    The results of a loop have mostly one layout. So what is written of all but the first is their
    numbers, as the hexadecimal digits of bytes: to write a float as decimal digits that give it
    back takes as long as all else that a result costs.
    """

    def __init__(self, metrics: Metrics) -> None:
        values = metrics.values()
        self._names = list(metrics)
        self._kinds = list(map(type, values))
        self._is_text = [kind is str for kind in self._kinds]
        self._is_number = [kind is not str for kind in self._kinds]
        self._texts = list(compress(values, self._is_text))
        codes = [_CODES.get(kind) for kind in self._kinds]
        self._bytes = None if None in codes else struct.Struct(f"<q{''.join(filter(None, codes))}")

    def packed(self, row: Row) -> str | None:
        """Return the iteration and the numbers of a result; None if it has another layout."""
        values = row.metrics.values()
        if (
            self._bytes is None
            or list(row.metrics) != self._names
            or list(map(type, values)) != self._kinds
            or list(compress(values, self._is_text)) != self._texts
        ):
            return None
        try:
            return self._bytes.pack(row.iteration, *compress(values, self._is_number)).hex()
        except struct.error:  # a whole number of more than eight bytes
            return None

    def unpacked(self, text: str) -> Row:
        """Return the result whose iteration and numbers `packed` gave.

        Raises:
            ValueError: it gives no such text.
        """
        try:
            if self._bytes is None:
                raise ValueError("a result that was not written as bytes")
            iteration, *numbers = self._bytes.unpack(bytes.fromhex(text))
        except struct.error as error:
            raise ValueError(str(error)) from error
        texts, rest = iter(self._texts), iter(numbers)
        values = [next(texts if is_text else rest) for is_text in self._is_text]
        return Row(iteration, dict(zip(self._names, values, strict=True)))


#: Kind of a value → its code in `struct`; texts have no bytes.
_CODES = {bool: "?", int: "q", float: "d", str: ""}


class Journal:
    """Writes the journal of one slice."""

    def __init__(self, folder: Path, number: int) -> None:
        self._path = folder / journal(number)
        self._file: int | None = None
        self._layout: Layout | None = None

    def begin(self, source: int, skipped: Sequence[str]) -> None:
        """Say from which iteration the slice goes on, and which checkpoints could not be used."""
        try:
            self._file = disk.open_file(self._path, _ANEW)
        except (OSError, disk.NotRegular):  # what lies there is not ours to write
            return
        self._write(_encoded({"source": source, "skipped": skipped}))

    def result(self, row: Row) -> None:
        """Tell of a result."""
        if self._file is None:
            return
        numbers = None if self._layout is None else self._layout.packed(row)
        if numbers is None:
            self._layout = Layout(row.metrics)
            self._write(_encoded([row.iteration, row.metrics]))
        else:
            self._write(f'"{numbers}"')

    def saved(self, saved: Saved, exactness: str) -> None:
        """Tell of a checkpoint from which the trial can go on."""
        if self._file is not None:
            self._write(_encoded({**asdict(saved), "exactness": exactness}))

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _write(self, line: str) -> None:
        data = f"{line}\n".encode()
        try:
            whole = self._file is not None and os.write(self._file, data) == len(data)
        except OSError:
            whole = False
        if not whole:
            self.close()
