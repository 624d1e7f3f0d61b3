"""TensorBoard: the curves of each seed as an event file, and its settings for the page HPARAMS.

    tensorboard --logdir sweeps/NAME/logs

A run is a folder ``logs/trial-3``. A row's step is ``timesteps_total`` if the result has it, else
the iteration; its time is the result's ``timestamp``. The file is written here, in TensorBoard's
format (records with a CRC-32C that hold protocol buffers), so that only its viewer has to be
installed. Values there have 32 bits; those of ledger and CSV are exact. If iterations are run again
after a crash, their first rows are removed; an open page shows that when it is reloaded.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sweep.history.events import Created, Row
from sweep.history.results import to_number
from sweep.trackers._shared.protobuf import double, message, single, text, varint
from sweep.trackers._shared.trial_files import IDENTITY, FileTracker, RowPositions, curves, made_at

#: Version in the first record.
VERSION = "brain.Event:2"
#: End of a row's first value, which is its iteration.
_FIRST = text(1, IDENTITY) + single(2, 0)[:1]


class Tracker(FileTracker):
    """Writes a TensorBoard event file for each seed of a trial, with the trial's settings."""

    file = "events.out.tfevents.sweep"

    def read(self, content: bytes) -> RowPositions:
        """Return the positions of the rows' records in a file, up to the first invalid one.

        There are none if its two first records (version and settings) are not complete.
        """
        standing, heads = RowPositions(), 0
        for size, data in _records(content):
            place = data.find(_FIRST)
            if place < 0 and heads < 2:
                standing.start, heads = standing.start + size, heads + 1
            elif place < 0 or not standing.add(_iteration(data, place), size):
                break
        return standing if heads == 2 else RowPositions()

    def head(
        self, columns: Sequence[str], created: Created, created_at: float, replica: int
    ) -> bytes:
        """Return two records: the version of the format, and the trial's searched settings."""
        version = _record(double(1, created_at) + text(3, VERSION))
        return version + _record(
            double(1, created_at) + message(5, _settings(created.searched, created_at))
        )

    def encode(self, row: Row, columns: Sequence[str], ended_at: float, place: int) -> bytes:
        """Return a result as one record, with all its numbers at one step.

        The step is ``timesteps_total``, else the iteration. Texts and results of `NOT_CURVES` are
        left out.
        """
        steps = to_number(row.metrics.get("timesteps_total"))
        step = int(steps) if steps is not None and 0 <= steps < 2**63 else row.iteration
        values = b"".join(
            message(1, text(1, name) + single(2, value)) for name, value in curves(row).items()
        )
        return _record(double(1, made_at(row, ended_at)) + varint(2, step) + message(5, values))


def _iteration(data: bytes, place: int) -> int:
    """Return the iteration of a row's record whose first value begins at byte `place`."""
    (value,) = struct.unpack_from("<f", data, place + len(_FIRST))
    return int(value)


# ---- the page HPARAMS ---------------------------------------------------------------------------


def _settings(searched: Mapping[str, Any], began: float) -> bytes:
    """Return the bytes of a trial's searched settings for TensorBoard's page HPARAMS.

    It is a ``SessionStartInfo`` (``tensorboard/plugins/hparams/plugin_data.proto``). `began` is the
    start of the trial, in seconds since 1970.
    """
    settings = b"".join(
        message(1, text(1, name) + message(2, _setting(value))) for name, value in searched.items()
    )
    session = message(3, settings + double(5, began))
    plugin = message(1, text(1, "hparams") + message(2, session))
    return message(1, text(1, "_hparams_/session_start_info") + message(9, plugin))


def _setting(value: Any) -> bytes:
    """Return a value as a ``google.protobuf.Value``: a number, a boolean, or else a text."""
    if isinstance(value, bool):
        return varint(4, int(value))
    if (found := to_number(value)) is not None:
        return double(2, found)
    return text(3, value if isinstance(value, str) else json.dumps(value))


# ---- records ------------------------------------------------------------------------------------

_HEAD, _CRC = struct.Struct("<Q"), struct.Struct("<I")


def _record(data: bytes) -> bytes:
    """Return a record of an event file with these contents, with length and checksums."""
    size = _HEAD.pack(len(data))
    return b"".join([size, _CRC.pack(_masked(size)), data, _CRC.pack(_masked(data))])


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield size in bytes and contents of each record of a file, in order.

    Ends before a record that is incomplete or whose length is damaged; contents are not checked.
    """
    overhead = _HEAD.size + 2 * _CRC.size
    offset = 0
    while offset + overhead <= len(content):
        (length,) = _HEAD.unpack_from(content, offset)
        begin = offset + _HEAD.size + _CRC.size
        head = content[offset : offset + _HEAD.size]
        if content[offset + _HEAD.size : begin] != _CRC.pack(_masked(head)):
            return
        if begin + length + _CRC.size > len(content):
            return
        yield overhead + length, content[begin : begin + length]
        offset += overhead + length


def _masked(content: bytes) -> int:
    """Return the checksum of some bytes as event files store it: CRC-32C, rotated and shifted."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(content: Iterable[int]) -> int:
    """Return the CRC-32C of some bytes (checksum with Castagnoli's polynomial)."""
    table = _table()
    crc = 0xFFFFFFFF
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    """Return the CRC-32C of each single byte, 256 entries."""
    entries = list(range(256))
    for _ in range(8):
        entries = [entry >> 1 ^ (0x82F63B78 if entry & 1 else 0) for entry in entries]
    return tuple(entries)
