"""Protocol buffers, field by field: what the files of TensorBoard and of W&B are made of.

https://protobuf.dev/programming-guides/encoding has the format. A message is the bytes of its
fields one after the other, in any order. Written here, a file needs no package of theirs.
"""

import struct

_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5


def tag(field: int, kind: int = _BYTES) -> bytes:
    """Return the first bytes of a field; by default of one that holds bytes."""
    return _plain(field << 3 | kind)


def _plain(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


def varint(field: int, value: int) -> bytes:
    """A whole number from 0 on, or a truth value."""
    return tag(field, _VARINT) + _plain(value)


def read_varint(data: bytes, at: int) -> int:
    """The whole number that begins at a byte."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value
    return -1


def message(field: int, content: bytes) -> bytes:
    """A message in a message, or bytes."""
    return tag(field) + _plain(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A text, without half characters of odd file names."""
    return message(field, content.encode("utf-8", "backslashreplace"))


def double(field: int, value: float) -> bytes:
    """A number of 64 bits."""
    return tag(field, _DOUBLE) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """A number of 32 bits; infinite, where it is beyond them."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return tag(field, _FLOAT) + packed
