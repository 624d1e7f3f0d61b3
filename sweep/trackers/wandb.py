"""W&B: each seed of a trial as an offline run, to be sent with ``wandb sync``.

    wandb sync sweeps/NAME/logs/trial-*/run-sweep.wandb

A run is in the project with the sweep's name and in the group of its trial; its step is the
iteration. The file is written here, in W&B's own format (records in blocks of 32 KiB, as in a log
of LevelDB; each is a protocol buffer, ``wandb_internal.proto``), so that only the tool that sends
it has to be installed, and no W&B process or connection is part of a sweep. The last record says
that the run has ended; if the trial continues, further rows replace it. A run's ID is the same each
time, so sending it again duplicates nothing.
"""

import json
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweep.history.events import Closed, Created, Reported, Row, Status
from sweep.history.seeds import replica_name
from sweep.trackers._shared.protobuf import message, read_varint, tag, text, varint
from sweep.trackers._shared.trial_files import FileTracker, RowPositions, curves, made_at

#: Kinds of records, as field numbers.
HISTORY, SUMMARY, RUN, EXIT = 2, 3, 17, 18
#: Header of a file: a name, a magic number, the version of the format.
_HEAD = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
#: Size of the blocks of W&B's file format, in bytes.
_BLOCK = 32768
#: Header of a piece of a record: checksum, size, kind of piece.
_PIECE = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
#: Beginning of a row's record up to its iteration: kind and size, and those of the step.
_ROW = re.compile(rb"\x12[\x80-\xff]*[\x00-\x7f]\x12.\x08", re.DOTALL)


class Tracker(FileTracker):
    """Writes an offline W&B run, which you can upload later, for each seed of a trial."""

    file = "run-sweep.wandb"

    def read(self, content: bytes) -> RowPositions:
        """Return the positions of the rows in a file, up to a record that belongs to none.

        There are none if the file does not begin with its header and the run's record.
        """
        standing = RowPositions()
        for data, end in _records(content):
            if data.startswith(tag(RUN)) and not standing.start:
                standing.start = end
            elif data.startswith(tag(HISTORY)) and standing.start:
                if not standing.add(_iteration(data), end - standing.end):
                    break
            elif not data.startswith(tag(SUMMARY)):
                break
        return standing

    def head(
        self, columns: Sequence[str], created: Created, created_at: float, replica: int
    ) -> bytes:
        """Return the file's header and the run's record, with all settings of the trial.

        The record also has the run's name, project and group.
        """
        name = replica_name(created.trial, replica)
        config = b"".join(_item(key, value) for key, value in created.config.items())
        whole = int(created_at)
        run = [
            text(1, f"{self._context.sweep_id}-{name}"),
            text(3, self._context.name),
            message(4, config),
            text(6, f"trial-{created.trial}"),
            text(8, f"trial-{name}"),
            message(17, varint(1, whole) + varint(2, int((created_at - whole) * 1e9))),
        ]
        return _HEAD + _record(message(RUN, b"".join(run)), len(_HEAD))

    def encode(self, row: Row, columns: Sequence[str], ended_at: float, place: int) -> bytes:
        """Return a result as two records: the newest value of each result, and the row itself."""
        values: Mapping[str, Any] = {
            **{name: _as_integer(value) for name, value in curves(row).items()},
            "_step": row.iteration,
            "_timestamp": made_at(row, ended_at),
        }
        items = b"".join(_item(name, value) for name, value in values.items())
        step = message(2, varint(1, row.iteration))
        summary = _record(message(SUMMARY, items), place)
        return summary + _record(message(HISTORY, step + items), place + len(summary))

    def tail(self, event: Reported | Closed, place: int) -> bytes:
        """Return the record that ends the run; none while the slice runs."""
        if isinstance(event, Reported):
            return b""
        code = int(event.status is Status.FAILED)
        return _record(message(EXIT, varint(1, code)), place)


def _item(key: str, value: Any) -> bytes:
    """Return a key and its value as JSON, as an item of a record."""
    return message(1, text(1, key) + text(16, json.dumps(value)))


def _as_integer(value: float) -> float:
    """Return a number as an integer if it is one that W&B can read exactly, else unchanged."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _iteration(data: bytes) -> int:
    """Return the iteration of a row's record; -1 if it has none."""
    found = _ROW.match(data)
    return read_varint(data, found.end()) if found else -1


# ---- records in blocks --------------------------------------------------------------------------


def _record(data: bytes, place: int) -> bytes:
    """Return a record that begins at byte `place` of a file, in pieces that fit into its blocks."""
    written, begins = list[bytes](), True
    while data or begins:
        room = _BLOCK - place % _BLOCK
        if room < _PIECE.size:
            written.append(bytes(room))
            place, room = place + room, _BLOCK
        part, data = data[: room - _PIECE.size], data[room - _PIECE.size :]
        kind = (_FIRST if begins else _MIDDLE) if data else (_WHOLE if begins else _LAST)
        written += [_PIECE.pack(_checksum(kind, part), len(part), kind), part]
        place += _PIECE.size + len(part)
        begins = False
    return b"".join(written)


def _records(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the contents of each record and the offset of its end, up to the first damaged one."""
    if not content.startswith(_HEAD):
        return
    place, parts = len(_HEAD), list[bytes]()
    while True:
        room = _BLOCK - place % _BLOCK
        place += room if room < _PIECE.size else 0
        if place + _PIECE.size > len(content):
            return
        checksum, size, kind = _PIECE.unpack_from(content, place)
        place += _PIECE.size
        parts.append(content[place : place + size])
        place += size
        if place > len(content) or checksum != _checksum(kind, parts[-1]):
            return
        if kind in (_WHOLE, _LAST):
            yield b"".join(parts), place
            parts.clear()


def _checksum(kind: int, part: bytes) -> int:
    """Return the checksum of a piece of a record and its kind."""
    return zlib.crc32(part, zlib.crc32(bytes([kind])))
