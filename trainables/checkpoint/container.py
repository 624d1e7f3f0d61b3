"""The bytes of a checkpoint file: magic, header, sections, digest.

    magic           6 bytes   ``SWCK``, format (1 byte), newline
    header length   4 bytes   unsigned, little-endian; at most 1 MiB
    header                    JSON, canonical: sorted keys, no spaces, ASCII
    sections                  each begins at a multiple of 64 bytes; zeros between
    digest          32 bytes  SHA-256 of everything before it

The first section is the pickled state, the others are its arrays in C order. The header lists
them in order: name, offset (bytes after the first 64-byte boundary behind the header), len
(bytes), sha256, dtype, shape. The section of a large array names segments in place of an offset
(`trainables.checkpoint.segments`). The header may be signed (`trainables.checkpoint.signing`).
Every change of the header increases `FORMAT`; one that older programs cannot read increases
`MIN_READER` too.
"""

import contextlib
import hashlib
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from trainables.checkpoint import segments, signing
from trainables.checkpoint.disk import Piece
from trainables.checkpoint.state import Packed
from trainables.checkpoint.tagged import array_of
from trainables.core import strict_json
from trainables.errors import (
    CheckpointError,
    CorruptCheckpoint,
    StateError,
    WrongFormat,
    printable,
)

#: Version of the file format that this program writes.
FORMAT: Final = 1
#: Oldest version of the format whose readers can read the files that this program writes.
MIN_READER: Final = 1
#: Largest header, bytes.
MAX_HEADER_BYTES: Final = 2**20

#: First bytes of a file.
_MAGIC = b"SWCK\x01\n"
#: Layout of the first bytes and the header's length.
_PREFIX = struct.Struct("<6sI")
#: Length of a SHA-256, in bytes.
_DIGEST_BYTES = 32
#: Arrays begin at multiples of this number of bytes.
_ALIGNMENT = 64
#: Keys of a section whose bytes are in the file itself.
_INSIDE_KEYS = {"name", "offset", "len", "sha256", "dtype", "shape"}


# ---- writing ----------------------------------------------------------------------------------


def build(
    header: Mapping[str, Any],
    packed: Packed,
    outside_sections: Mapping[int, segments.Section],
    trust: signing.Trust | None = None,
) -> list[Piece]:
    """Return the bytes of a checkpoint file, as pieces to be written one after the other.

    These are the header, the pickled state, its arrays without those in `outside_sections`, and at
    the end the SHA-256 of all that.

    Args:
        header: JSON data for the header; the format, a list of the sections (state and arrays) and
            the signature are added.
        outside_sections: index of an array → its header entry, for arrays that `segments.write` has
            written to files of their own.
        trust: has the key that signs the header; None for no signature.

    Raises:
        StateError: the header is not JSON, or there are more arrays than a header can list.
        SigningError: `trust` has no key.
    """
    sections, bodies, offset = [], [], 0
    for index, array in enumerate([np.frombuffer(packed.pickled, np.uint8), *packed.arrays]):
        if index - 1 in outside_sections:
            sections.append({"name": _name(index), **outside_sections[index - 1]})
            continue
        body = array.reshape(-1).view(np.uint8).data
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
        bodies.append(body)
        offset = _aligned(offset + body.nbytes)
    text = _header_bytes(header, sections, trust)
    start = _PREFIX.size + len(text)
    pieces: list[Piece] = [_PREFIX.pack(_MAGIC, len(text)) + text + _padding(start)]
    for body in bodies[:-1]:
        pieces += [body, _padding(body.nbytes)]
    pieces.append(bodies[-1])
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, digest.digest()]


def _header_bytes(
    header: Mapping[str, Any], sections: list[segments.Section], trust: signing.Trust | None
) -> bytes:
    """Return the header with versions and its list of `sections` as JSON, signed with `trust`.

    It is not signed if `trust` is None. Raises StateError if it is not JSON or too long,
    SigningError if `trust` has no key.
    """
    entries = {**header, "format": FORMAT, "min_reader": MIN_READER, "sections": sections}
    try:
        strict_json.check_depth(header)
        text = strict_json.canonical(signing.sign(entries, trust) if trust else entries)
    except (TypeError, ValueError) as error:
        raise StateError(
            "header",
            str(error),
            "use only values that JSON can represent, with str keys and finite numbers",
        ) from error
    if len(text) > MAX_HEADER_BYTES:
        found = f"{len(text)} bytes, with a list of {len(sections)} large arrays,"
        raise StateError("header", found, "stack arrays of the same shape into one array")
    return text


def _name(index: int) -> str:
    """Return the name of a file's section by its index: ``state`` is 0, ``array-0`` is 1."""
    return f"array-{index - 1}" if index else "state"


def _aligned(position: int) -> int:
    """Return the lowest multiple of `_ALIGNMENT` bytes that is at least `position`."""
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _padding(length: int) -> bytes:
    """Return the zero bytes that fill up `length` bytes to a multiple of `_ALIGNMENT`."""
    return bytes(_aligned(length) - length)


# ---- reading ----------------------------------------------------------------------------------


def digest_of(content: memoryview, source: object) -> str:
    """Compute the SHA-256 of a file's content without its last 32 bytes, hexadecimal.

    Of a file that is too short, raises WrongFormat if it does not begin as a checkpoint, else
    CorruptCheckpoint. `source` names the file in errors.
    """
    if len(content) < _PREFIX.size + _DIGEST_BYTES:
        _check_magic(content, source)
        raise CorruptCheckpoint(
            source, f"the file is cut off after {len(content)} bytes; use another checkpoint"
        )
    return hashlib.sha256(content[:-_DIGEST_BYTES]).hexdigest()


def check_seal(content: memoryview, digest: str, source: object) -> None:
    """Check that the content begins with the magic bytes and ends with `digest`.

    `source` names the file in errors.

    Raises:
        WrongFormat: it is not a checkpoint, or of another format.
        CorruptCheckpoint: its digest is another one.
    """
    _check_magic(content, source)
    if digest != content[-_DIGEST_BYTES:].hex():
        raise CorruptCheckpoint(
            source,
            "the file is damaged or cut off, because its bytes do not match its SHA-256; use "
            "another checkpoint",
        )


def header_of(content: memoryview, source: object) -> dict[str, Any]:
    """Return the JSON header of a file's content, whose digest was checked before.

    `source` names the file in errors.

    Raises:
        CorruptCheckpoint: the header is not valid JSON.
        WrongFormat: the file needs a newer reader.
    """
    length = _PREFIX.unpack_from(content)[1]
    if not 0 < length <= min(MAX_HEADER_BYTES, len(content) - _PREFIX.size - _DIGEST_BYTES):
        raise CorruptCheckpoint(
            source, f"the header cannot have {length} bytes; use another checkpoint"
        )
    try:
        header = strict_json.parse(bytes(content[_PREFIX.size : _PREFIX.size + length]))
    except (ValueError, RecursionError) as error:
        reason = printable(f"the header is not valid ({error}); use another checkpoint")
        raise CorruptCheckpoint(source, reason) from error
    if not isinstance(header, dict):
        raise CorruptCheckpoint(source, "the header is damaged; use another checkpoint")
    _check_versions(header, source)
    return header


def parse(content: memoryview, header: dict[str, Any], source: Path) -> Packed:
    """Return the packed state of a file; its arrays are copies, not views of `content`.

    Its attribute `opaque` is not set.

    Args:
        content: all bytes of the file.
        header: the file's header, as `header_of` returned it.
        source: path of the file; its segments are in the same folder.

    Raises:
        CorruptCheckpoint: a section or segment is invalid.
        UnreadableCheckpoint: there is too little memory for its arrays.
    """
    with _valid_sections(source):
        outside = [section for section in header["sections"] if "segments" in section]
        for section in outside:
            segments.check(section, source)
        if outside:
            segments.check_memory(outside, source)
        arrays = [
            segments.load(section, source)
            if body is None
            else array_of(body, section["dtype"], section["shape"]).copy()
            for section, body in _sections(header, content)
        ]
    return Packed(arrays[0].tobytes(), arrays[1:])


def verify(content: memoryview, header: dict[str, Any], source: Path) -> None:
    """Check the digests of all sections and segments of a file, without making a state of them.

    `content` has all bytes of the file, `header` is the header as `header_of` returned it, and
    `source` the file's path. Raises CorruptCheckpoint if one is missing or damaged.
    """
    with _valid_sections(source):
        for section, body in _sections(header, content):
            if body is None:
                segments.verify(section, source)


@contextlib.contextmanager
def _valid_sections(source: object) -> Iterator[None]:
    """Raise CorruptCheckpoint for a Value-, Type-, Key- or OverflowError inside the block.

    Such errors come from invalid entries in the header's list of sections. `source` names the file.
    """
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = printable(f"the list of sections is not valid ({error}); use another checkpoint")
        raise CorruptCheckpoint(source, reason) from error


def _check_magic(content: memoryview, source: object) -> None:
    """Raise WrongFormat unless the content begins as a checkpoint, or CorruptCheckpoint if cut off.

    `source` names the file in errors.
    """
    magic = bytes(content[: len(_MAGIC)])
    if magic == _MAGIC:
        return
    if magic[:4] == _MAGIC[:4] and len(magic) == len(_MAGIC) and magic[-1:] == b"\n":
        raise WrongFormat(
            source,
            f"the file has format {magic[4]}, but this version of sweep reads format {FORMAT}; use "
            "the version that wrote it",
        )
    if _MAGIC.startswith(magic):
        raise CorruptCheckpoint(
            source, f"the file is cut off after {len(magic)} bytes; use another checkpoint"
        )
    raise WrongFormat(source, "this is not a checkpoint, because it does not begin with SWCK")


def _check_versions(header: Mapping[str, Any], source: object) -> None:
    """Raise WrongFormat if the header's ``min_reader`` is above `FORMAT`, or no valid version.

    `source` names the file in errors.
    """
    written, needed = header.get("format"), header.get("min_reader")
    if not (type(written) is int and type(needed) is int and 1 <= needed <= written):
        raise WrongFormat(
            source,
            f"the file has format {written!r} and needs a reader of format {needed!r}, which "
            "is impossible; use another checkpoint",
        )
    if needed > FORMAT:
        raise WrongFormat(
            source,
            f"the file needs a reader of format {needed}, but this version of sweep reads format "
            f"{FORMAT}; use a newer version",
        )


def _sections(
    header: Mapping[str, Any], content: memoryview
) -> Iterator[tuple[segments.Section, memoryview | None]]:
    """Yield each section's header entry with its bytes, whose digest is checked.

    The bytes are None if they are in segments. Raises ValueError for an invalid entry or a gap.
    """
    listed = header["sections"]
    if not isinstance(listed, list) or not listed:
        raise ValueError("expected a list with the section 'state'")
    start = _aligned(_PREFIX.size + _PREFIX.unpack_from(content)[1])
    data = content[start : len(content) - _DIGEST_BYTES]
    offset, end = 0, 0
    for index, section in enumerate(listed):
        if not isinstance(section, dict) or section.get("name") != _name(index):
            raise ValueError(f"expected the section {_name(index)}")
        if section.keys() == segments.KEYS and index:
            yield section, None
            continue
        if section.keys() != _INSIDE_KEYS:
            raise ValueError(f"section {index} must have {', '.join(sorted(_INSIDE_KEYS))}")
        if section["offset"] != offset:
            raise ValueError(f"expected the section {_name(index)} at byte {offset}")
        yield section, _body(section, data[offset:])
        end = offset + section["len"]
        offset = _aligned(end)
    if end != len(data):
        raise ValueError(f"the sections end at byte {end} of {len(data)}")


def _body(section: segments.Section, data: memoryview) -> memoryview:
    """Return the bytes of a section, which are the first of `data`.

    Raises ValueError unless their length and SHA-256 are those in the section's header entry.
    """
    name, length = section["name"], section["len"]
    if not 0 <= length <= len(data):
        raise ValueError(f"the section {name} reaches beyond the end")
    body = data[:length]
    if hashlib.sha256(body).hexdigest() != section["sha256"]:
        raise ValueError(f"the section {name} does not give its SHA-256")
    return body
