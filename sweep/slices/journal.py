"""Journal of a running slice: its results and checkpoints, in a file of its trial.

The outcome of a slice arrives when it has ended. Until then, and if its process dies, the driver
reads the journal. Each line is JSON and is written at once, so that every result reported before a
process died is there. A list is a result: its iteration and its entries. A text is a result that
differs from the last list only in its numbers (`Layout`). A mapping with ``source`` says from which
iteration the slice started; any other mapping is a checkpoint on disk. Lines that the disk refuses
are lost, and nothing is written after them.
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

#: Flags that open a new, empty journal for appending.
_OPEN_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Function that writes plain data as JSON without spaces.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Layout:
    """Form that successive results share: their keys, the types of their values, and their texts.

    Of all results of one layout but the first, only the numbers are written, as hexadecimal digits
    of their bytes: writing floats as exact decimal digits takes as long as everything else that a
    result costs.
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
        """Return the iteration and numbers of a result as hexadecimal digits.

        Returns None if its layout differs, or a number cannot be written in eight bytes.
        """
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
        except struct.error:  # an integer of more than eight bytes
            return None

    def unpacked(self, text: str) -> Row:
        """Return the result that `packed` turned into `text`.

        Raises ValueError if `text` cannot come from `packed`.
        """
        try:
            if self._bytes is None:
                raise ValueError("a result that was not written as bytes")
            iteration, *numbers = self._bytes.unpack(bytes.fromhex(text))
        except struct.error as error:
            raise ValueError(str(error)) from error
        texts, remaining_numbers = iter(self._texts), iter(numbers)
        values = [next(texts if is_text else remaining_numbers) for is_text in self._is_text]
        return Row(iteration, dict(zip(self._names, values, strict=True)))


#: Type of a value → its format character in `struct`; texts are not packed.
_CODES = {bool: "?", int: "q", float: "d", str: ""}


class Journal:
    """Writer of one slice's journal, a file with its results and checkpoints as they arise.

    It writes nothing more once the disk has refused something.
    """

    def __init__(self, folder: Path, number: int) -> None:
        """Prepare the journal of slice `number` in a replica's folder; `begin` opens the file."""
        self._path = folder / journal(number)
        self._file: int | None = None
        self._layout: Layout | None = None

    def begin(self, source: int, skipped: Sequence[str]) -> None:
        """Open the file, empty it, and write the iteration `source` after which the slice starts.

        `skipped` has messages about checkpoints that are lost. If the file cannot be opened,
        nothing is written from now on.
        """
        try:
            self._file = disk.open_file(self._path, _OPEN_FLAGS)
        except (OSError, disk.NotRegular):  # something else has that name
            return
        self._write(_encode({"source": source, "skipped": skipped}))

    def result(self, row: Row) -> None:
        """Write a result as one line; do nothing if the file is not open."""
        if self._file is None:
            return
        numbers = None if self._layout is None else self._layout.packed(row)
        if numbers is None:
            self._layout = Layout(row.metrics)
            self._write(_encode([row.iteration, row.metrics]))
        else:
            self._write(f'"{numbers}"')

    def saved(self, saved: Saved, exactness: str) -> None:
        """Write the record of a checkpoint from which the trial can continue, as one line.

        `exactness` is the text that says how exactly it can be resumed. Does nothing if the file is
        not open.
        """
        if self._file is not None:
            self._write(_encode({**asdict(saved), "exactness": exactness}))

    def close(self) -> None:
        """Close the file; later calls write nothing."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _write(self, line: str) -> None:
        """Write one line; close the file if the disk does not accept all of it."""
        data = f"{line}\n".encode()
        try:
            whole = self._file is not None and os.write(self._file, data) == len(data)
        except OSError:
            whole = False
        if not whole:
            self.close()
