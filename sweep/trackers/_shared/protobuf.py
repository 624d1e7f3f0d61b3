"""Protocol buffers, field by field: the format of TensorBoard's and W&B's files.

https://protobuf.dev/programming-guides/encoding describes it. A message is the concatenation of its
fields, in any order. Encoding them here means that no package has to be installed for it.
"""

import struct

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


def tag(field: int, kind: int = _BYTES) -> bytes:
    """Return the first bytes of a field: its number and the kind of its value, by default bytes."""
    return _plain(field << 3 | kind)


def _plain(value: int) -> bytes:
    """Return a number as a varint (7 bits per byte), without the first bytes of a field."""
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def varint(field: int, value: int) -> bytes:
    """Return the field number `field` with a non-negative integer or a boolean."""
    return tag(field, _VARINT) + _plain(value)


def read_varint(data: bytes, offset: int) -> int:
    """Return the varint that begins at byte `offset`; -1 if there is none."""
    value = 0
    for place, byte in enumerate(data[offset : offset + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value
    return -1


def message(field: int, content: bytes) -> bytes:
    """Return the field number `field` with a nested message or other bytes."""
    return tag(field) + _plain(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return the field number `field` with a text; lone surrogates from file names are escaped."""
    return message(field, content.encode("utf-8", "backslashreplace"))


def double(field: int, value: float) -> bytes:
    """Return the field number `field` with a 64-bit float."""
    return tag(field, _DOUBLE) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """Return the field number `field` with a 32-bit float; infinite if out of its range."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return tag(field, _FLOAT) + packed
