"""Segments: large arrays beside the checkpoint, in immutable files named by their digest.

An array of `SEGMENT_BYTES` or more is cut into chunks; each is a file ``seg-<sha256>`` in the
checkpoint's folder. A chunk that is there already, byte for byte, is not written again: of a
replay buffer only what changed since the last checkpoint goes to the disk. Chunks are views of the
array, and reading fills the array that is handed out, so nothing is held twice.

A section of a container's header that names segments has the keys `KEYS`. Segments are durable
before the checkpoint that names them gets its final name. Only code that knows all checkpoints of
the folder, and that no process writes to it, may delete segments (`segment_names` lists those that
a checkpoint needs).
"""

import contextlib
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trainables.checkpoint import disk
from trainables.checkpoint.tagged import DTYPES
from trainables.errors import CorruptCheckpoint, UnreadableCheckpoint

#: Smallest array that is stored in segments, bytes.
SEGMENT_BYTES: Final = 16 * 2**20
#: Largest sum of arrays inside one file, bytes; further ones go to segments whatever their size.
INSIDE_BYTES: Final = 64 * 2**20
#: Smallest chunk, bytes.
CHUNK_BYTES: Final = 4 * 2**20
#: Largest number of chunks of an array: larger arrays have larger chunks.
MOST_CHUNKS: Final = 1024
#: Largest number of axes of an array; numpy's limit.
MOST_AXES: Final = 64
#: Pattern of a segment's whole file name.
PATTERN: Final = re.compile(r"seg-[0-9a-f]{64}")
#: Keys of a section whose bytes are in segments.
KEYS: Final = frozenset({"name", "len", "dtype", "shape", "chunk", "segments"})

#: Pattern of a SHA-256 in hexadecimal digits.
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Number of bytes that are compared at once.
_PAGE = 4 * 2**20

#: Entry of an array in a container's header.
Section = dict[str, Any]


# ---- writing ----------------------------------------------------------------------------------


def large_arrays(arrays: Sequence[NDArray[Any]]) -> list[int]:
    """Return the indices of the arrays that are stored in segments, files beside the checkpoint.

    These are arrays of `SEGMENT_BYTES` or more, and those with which the arrays inside the file
    would exceed `INSIDE_BYTES`.
    """
    chosen, inside = [], 0
    for index, array in enumerate(arrays):
        if array.nbytes >= SEGMENT_BYTES or inside + array.nbytes > INSIDE_BYTES:
            chosen.append(index)
        else:
            inside += array.nbytes
    return chosen


def write(parent: int, array: NDArray[Any], epoch: int) -> Section:
    """Write `array` (C order) as segment files in the folder `parent`; return its header entry.

    The array is cut into chunks; a segment that exists already, byte for byte, is not written
    again. Segments are flushed (fsync), but not their names in the folder. The entry has all `KEYS`
    but ``name``. `parent` is the folder's descriptor, `epoch` the number of the period in which one
    driver holds the sweep.
    """
    body = array.reshape(-1).view(np.uint8)
    chunk = _chunk_of(body.nbytes)
    digests = []
    for start in range(0, body.nbytes, chunk):
        piece = body[start : start + chunk]
        digest = hashlib.sha256(piece.data).hexdigest()
        if not _is_stored(parent, f"seg-{digest}", piece):
            disk.publish(parent, f"seg-{digest}", piece.nbytes, [piece.data], epoch)
        digests.append(digest)
    return {
        "len": body.nbytes,
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "chunk": chunk,
        "segments": digests,
    }


def _chunk_of(length: int) -> int:
    """Return the size of the chunks into which an array of `length` bytes is cut, bytes."""
    chunk = CHUNK_BYTES
    while chunk * MOST_CHUNKS < length:
        chunk *= 2
    return chunk


def _is_stored(parent: int, name: str, piece: NDArray[np.uint8]) -> bool:
    """Return whether the segment `name` exists with exactly the bytes of `piece`.

    Returns False, too, if it cannot be read. `parent` is the descriptor of the folder.
    """
    try:
        with disk.open_regular_file(name, parent) as (file, size):
            if size != piece.nbytes:
                return False
            buffer = np.empty(min(size, _PAGE), np.uint8)
            for start in range(0, size, _PAGE):
                part = piece[start : start + _PAGE]
                found = buffer[: part.nbytes]
                if not (disk.fill(file, found.data) and np.array_equal(found, part)):
                    return False
            return True
    except (OSError, disk.NotRegular):
        return False


# ---- reading ----------------------------------------------------------------------------------


def segment_names(header: Mapping[str, Any]) -> set[str]:
    """Return the file names of all segments that a checkpoint with this (checked) header needs."""
    return {
        f"seg-{digest}" for section in header["sections"] for digest in section.get("segments", ())
    }


def load(section: Section, source: Path) -> NDArray[Any]:
    """Read an array from its segments, which are in the folder of the checkpoint `source`.

    `section` is the array's header entry, as `write` returned it.

    Raises:
        CorruptCheckpoint: a segment is missing or damaged.
        ValueError: the section is invalid.
    """
    check(section, source)
    array = np.empty(tuple(section["shape"]), section["dtype"])
    body = array.reshape(-1).view(np.uint8)
    for digest, start in _chunks(section):
        _fill(source, digest, body[start : start + section["chunk"]])
    return array


def check_memory(sections: Iterable[Section], source: Path) -> None:
    """Raise UnreadableCheckpoint if the arrays of these header entries exceed the free memory.

    The system would otherwise kill the process while they are allocated. `source` names the file.
    """
    import psutil

    length = sum(section["len"] for section in sections)
    if length > (free := psutil.virtual_memory().available):
        needed = f"needs {length} bytes of memory for its arrays, but only {free} are free"
        raise UnreadableCheckpoint(source, needed)


def verify(section: Section, source: Path) -> None:
    """Read all segments of one array, and check their digests.

    Raises CorruptCheckpoint for a missing or damaged segment, ValueError for an invalid `section`,
    the array's header entry.
    """
    check(section, source)
    buffer = np.empty(min(section["chunk"], section["len"]), np.uint8)
    for digest, start in _chunks(section):
        _fill(source, digest, buffer[: section["len"] - start])


def check(section: Section, source: Path) -> None:
    """Check an array's header entry, and that its segments exist with the right sizes.

    Their bytes are not read. Raises CorruptCheckpoint for a segment that is missing or of another
    size, ValueError for an invalid entry.
    """
    length, digests = section["len"], section["segments"]
    if _length_of(section["dtype"], section["shape"]) != length or length == 0:
        raise ValueError(f"{length} bytes do not fit an array of shape {section['shape']}")
    chunk = section["chunk"]
    if type(chunk) is not int or chunk < 1 or len(digests) != -(-length // chunk):
        raise ValueError(f"{len(digests)} segments cannot hold {length} bytes")
    for digest, start in _chunks(section):
        if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
            raise ValueError("a segment's digest is not valid")
        with _open_segment(source, digest) as (_, size):
            if size != (due := min(chunk, length - start)):
                problem = f"the file seg-{digest} has {size} bytes instead of {due}"
                raise CorruptCheckpoint(source, f"{problem}; use another checkpoint")


def _length_of(dtype: str, shape: Sequence[int]) -> int:
    """Return the size of an array in bytes; raises ValueError for an invalid dtype or shape."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not allowed")
    if len(shape) > MOST_AXES or any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"shape {shape} is not one of an array")
    return math.prod(shape) * np.dtype(dtype).itemsize


def _chunks(section: Section) -> Iterator[tuple[str, int]]:
    """Yield the digest of each segment of an array, and its offset in the array in bytes."""
    for index, digest in enumerate(section["segments"]):
        yield digest, index * section["chunk"]


@contextlib.contextmanager
def _open_segment(source: Path, digest: str) -> Iterator[tuple[int, int]]:
    """Open a segment beside the checkpoint `source`; yields its descriptor and size in bytes.

    Raises CorruptCheckpoint if there is none.
    """
    try:
        with disk.open_regular_file(source.with_name(f"seg-{digest}")) as found:
            yield found
    except (FileNotFoundError, disk.NotRegular) as error:
        problem = f"the file seg-{digest} is missing; use another checkpoint"
        raise CorruptCheckpoint(source, problem) from error


def _fill(source: Path, digest: str, part: NDArray[np.uint8]) -> None:
    """Read a segment into `part`, of its size; CorruptCheckpoint if the SHA-256 is not `digest`."""
    with _open_segment(source, digest) as (file, _):
        whole = disk.fill(file, part.data)
    if not whole or hashlib.sha256(part.data).hexdigest() != digest:
        problem = f"the file seg-{digest} is damaged or cut off; use another checkpoint"
        raise CorruptCheckpoint(source, problem)
