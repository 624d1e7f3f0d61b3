"""The bytes of a checkpoint file: magic, header, sections, digest.

    magic           6 bytes   ``SWCK``, format (1 byte), newline
    header length   4 bytes   unsigned, little-endian; at most 1 MiB
    header                    JSON, canonical: sorted keys, no spaces, ASCII
    sections                  each begins at a multiple of 64 bytes; zeros between
    digest          32 bytes  SHA-256 of everything before it

The first section is the pickled state, the others are its arrays in C order. The header lists
them in order: name, offset (bytes after the first 64-byte boundary behind the header), len
(bytes), sha256, dtype, shape. A newer format of the header raises `FORMAT`; `MIN_READER` is
raised only when older programs cannot read it.
"""

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from trainables.errors import CorruptCheckpoint, StateError, WrongFormat, printable
from trainables.state import Packed
from trainables.tagged import array_of

FORMAT: Final = 1
MIN_READER: Final = 1
MAX_HEADER_BYTES: Final = 2**20

_MAGIC = b"SWCK\x01\n"
_PREFIX = struct.Struct("<6sI")
_DIGEST_BYTES = 32
_ALIGNMENT = 64
_MAX_DEPTH = 32
_MAX_DIGITS = 40
_SECTION_KEYS = {"name", "offset", "len", "sha256", "dtype", "shape"}

Piece = bytes | memoryview


class Container(NamedTuple):
    """A parsed file; the arrays are views of its bytes."""

    header: dict[str, Any]
    packed: Packed


# ---- writing ----------------------------------------------------------------------------------


def build(header: Mapping[str, Any], packed: Packed) -> list[Piece]:
    """The file as pieces, to be written one after the other; the last is the digest.

    Raises:
        StateError: a header that is no JSON, or more arrays than a header can list.
    """
    state = np.frombuffer(packed.pickled, dtype=np.uint8)
    arrays = [state, *packed.arrays]
    bodies = [array.reshape(-1).view(np.uint8).data for array in arrays]
    sections, offset = [], 0
    for index, (array, body) in enumerate(zip(arrays, bodies, strict=True)):
        sections.append(
            {
                "name": _name(index),
                "offset": offset,
                "len": body.nbytes,
                "sha256": hashlib.sha256(body).hexdigest(),
                "dtype": array.dtype.str,
                "shape": list(array.shape),
            }
        )
        offset = _aligned(offset + body.nbytes)
    text = _json_bytes(header, sections)
    start = _PREFIX.size + len(text)
    pieces: list[Piece] = [_PREFIX.pack(_MAGIC, len(text)) + text + _padding(start)]
    for body in bodies[:-1]:
        pieces += [body, _padding(body.nbytes)]
    pieces.append(bodies[-1])
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, digest.digest()]


def _json_bytes(header: Mapping[str, Any], sections: list[dict[str, Any]]) -> bytes:
    entries = {**header, "format": FORMAT, "min_reader": MIN_READER, "sections": sections}
    try:
        _check_depth(header)
        text = json.dumps(entries, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise StateError("header", str(error), "use JSON: str keys, finite numbers") from error
    if len(text) > MAX_HEADER_BYTES:
        found = f"{len(text)} bytes, with a list of {len(sections)} large arrays,"
        raise StateError("header", found, "stack arrays of one shape into one")
    return text


def _name(index: int) -> str:
    return f"array-{index - 1}" if index else "state"


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _padding(length: int) -> bytes:
    return bytes(_aligned(length) - length)


# ---- reading ----------------------------------------------------------------------------------


def digest_of(content: memoryview, source: object) -> str:
    """The digest of a whole file, in hexadecimal, after checking it and the magic.

    Raises:
        WrongFormat: no checkpoint, or one of another format.
        CorruptCheckpoint: too short, or the bytes do not give the digest.
    """
    magic = bytes(content[: len(_MAGIC)])
    if magic != _MAGIC:
        _refuse_magic(magic, source)
    if len(content) < _PREFIX.size + _DIGEST_BYTES:
        raise CorruptCheckpoint(source, f"cut off after {len(content)} bytes")
    digest = hashlib.sha256(content[:-_DIGEST_BYTES]).digest()
    if digest != content[-_DIGEST_BYTES:]:
        raise CorruptCheckpoint(source, "damaged or cut off: its bytes do not give its SHA-256")
    return digest.hex()


def header_of(content: memoryview, source: object) -> dict[str, Any]:
    """The header of a file whose digest has been checked.

    Raises:
        WrongFormat: it asks for a newer reader.
        CorruptCheckpoint: it is not what `build` writes.
    """
    length = _header_length(content)
    if not 0 < length <= min(MAX_HEADER_BYTES, len(content) - _PREFIX.size - _DIGEST_BYTES):
        raise CorruptCheckpoint(source, f"its header cannot have {length} bytes")
    try:
        header = parse_json(bytes(content[_PREFIX.size : _PREFIX.size + length]))
    except (ValueError, RecursionError) as error:
        reason = printable(f"its header is not valid: {error}")
        raise CorruptCheckpoint(source, reason) from error
    if not isinstance(header, dict):
        raise CorruptCheckpoint(source, "its header is no JSON object")
    _check_versions(header, source)
    return header


def parse(content: memoryview, source: object) -> Container:
    """Header and sections of a file whose digest has been checked; raises as `header_of` does."""
    header = header_of(content, source)
    start = _aligned(_PREFIX.size + _header_length(content))
    data = content[start : len(content) - _DIGEST_BYTES]
    try:
        state, *arrays = _sections(header["sections"], data)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = printable(f"its list of sections is not valid: {error}")
        raise CorruptCheckpoint(source, reason) from error
    return Container(header, Packed(state.tobytes(), arrays))


def parse_json(text: bytes) -> Any:
    """JSON without duplicate keys, NaN, huge numbers or deep nesting; raises ValueError."""
    value = json.loads(
        text.decode("utf-8"),
        object_pairs_hook=_without_duplicates,
        parse_constant=_refuse_constant,
        parse_int=_short_int,
        parse_float=_finite,
    )
    _check_depth(value)
    return value


def _refuse_magic(magic: bytes, source: object) -> NoReturn:
    if magic[:4] == _MAGIC[:4] and len(magic) == len(_MAGIC) and magic[-1:] == b"\n":
        raise WrongFormat(source, f"of format {magic[4]}; this program reads format {FORMAT}")
    if _MAGIC.startswith(magic):
        raise CorruptCheckpoint(source, f"cut off after {len(magic)} bytes")
    raise WrongFormat(source, "no checkpoint: it does not begin with SWCK")


def _header_length(content: memoryview) -> int:
    return int(_PREFIX.unpack_from(content)[1])


def _check_versions(header: Mapping[str, Any], source: object) -> None:
    written, needed = header.get("format"), header.get("min_reader")
    if not (type(written) is int and type(needed) is int and 1 <= needed <= written):
        raise WrongFormat(source, f"its format is {written!r}, for readers from {needed!r}")
    if needed > FORMAT:
        raise WrongFormat(source, f"for readers of format {needed}; this program reads {FORMAT}")


def _sections(listed: Any, data: memoryview) -> Iterator[NDArray[Any]]:
    """The arrays that `listed` describes; they must fill `data` in order and without overlap."""
    if not isinstance(listed, list) or not listed:
        raise ValueError("expected a list with the section 'state'")
    offset, end = 0, 0
    for index, section in enumerate(listed):
        if not isinstance(section, dict) or section.keys() != _SECTION_KEYS:
            raise ValueError(f"section {index} must have {', '.join(sorted(_SECTION_KEYS))}")
        if section["name"] != _name(index) or section["offset"] != offset:
            raise ValueError(f"expected the section {_name(index)} at byte {offset}")
        yield _section(section, data[offset:])
        end = offset + section["len"]
        offset = _aligned(end)
    if end != len(data):
        raise ValueError(f"the sections end at byte {end} of {len(data)}")


def _section(section: Mapping[str, Any], rest: memoryview) -> NDArray[Any]:
    name, length = section["name"], section["len"]
    if not 0 <= length <= len(rest):
        raise ValueError(f"the section {name} reaches beyond the end")
    body = rest[:length]
    if hashlib.sha256(body).hexdigest() != section["sha256"]:
        raise ValueError(f"the section {name} does not give its SHA-256")
    return array_of(body, section["dtype"], section["shape"])


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _short_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:_MAX_DIGITS]} is too large")
    return number


def _check_depth(value: Any, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            _check_depth(item, depth + 1)
