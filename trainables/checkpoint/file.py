"""Checkpoint files: one file each, whole or absent, whose name contains its digest.

`write` makes ``ckpt-<step>-<sha256>.swck`` (`trainables.checkpoint.disk` describes how), after its
large arrays, which are segments beside it (`trainables.checkpoint.segments`). When it returns, both
survive a power cut, unless that is left to `make_durable`.

`read` opens the file once, reads it into memory, and hashes and parses those bytes. Its errors tell
the caller what to do: a missing or corrupt checkpoint is lost, so use an older one; a checkpoint of
another format, unreadable now or not trusted may still be good.
"""

import contextlib
import errno
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainables.checkpoint import container, disk, segments, signing
from trainables.checkpoint.disk import Piece
from trainables.checkpoint.pickle_scan import MAX_BYTES
from trainables.checkpoint.signing import Trust
from trainables.checkpoint.state import Packed, pack, unpack
from trainables.core import failpoints
from trainables.errors import (
    CheckpointError,
    CorruptCheckpoint,
    MissingCheckpoint,
    SigningError,
    UnreadableCheckpoint,
    printable,
    type_of,
)

#: Largest file without its segments, bytes: pickle, arrays inside, header and padding.
MAX_FILE_BYTES: Final = MAX_BYTES + segments.INSIDE_BYTES + 2 * container.MAX_HEADER_BYTES

#: Largest file that is copied in order to be written in two calls, bytes.
_JOINED_BYTES: Final = 2**20
#: Pattern of a checkpoint's file name.
_NAME = re.compile(r"ckpt-(?P<step>[0-9]{10,19})-(?P<digest>[0-9a-f]{64})\.swck")
#: Error numbers of a file that does not exist.
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
#: Error numbers for bytes that the file system has lost. All others (memory, rights, a share that
#: is away or was mounted again) say nothing about the file.
_LOST = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ})
#: Libraries whose versions the header records.
_LIBRARIES = ("numpy", "torch", "gymnasium")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was written to the disk."""

    path: Path
    """Path of the checkpoint's file."""
    digest: str
    """SHA-256 of the file's bytes, hexadecimal; the file's name contains it."""
    size: int
    """Size of the file in bytes, including the checkpoint's segments."""
    segments: frozenset[str] = frozenset()
    """File names of the segments that the checkpoint needs."""


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that has been read and verified."""

    header: dict[str, Any]
    """JSON header: the caller's entries, step, epoch, versions and sections."""
    state: dict[str, Any]
    """State that `write` was given, unpacked."""


def write(
    folder: Path,
    step: int,
    header: Mapping[str, Any],
    state: Mapping[str, Any] | Packed,
    epoch: int = 0,
    trust: Trust | None = None,
    durable: bool = True,
) -> Saved:
    """Write one checkpoint file and its segments; when this returns it survives a power cut.

    Args:
        folder: folder of the checkpoint; made if it does not exist.
        step: the trial's iteration, for the name.
        header: JSON data, which `verify` returns without reading the state. ``step``, ``epoch``,
            ``versions``, ``cpu``, ``threads`` and the entries of the container are added.
        state: data that `trainables.checkpoint.state` allows, or a packed state.
        epoch: number of the period in which one driver holds the sweep, for the temporary file's
            name.
        trust: has the key that signs the checkpoint if it contains opaque bytes; None for this
            user's key.
        durable: False to survive only the end of this process; `make_durable` does the rest.

    Raises:
        StateError: the state contains a value that cannot be stored, or the header is not JSON.
        SigningError: it must be signed, and there is no key.
        OSError: the disk refused; earlier checkpoints are untouched.
    """
    entries = {**header, **_environment(), "step": step, "epoch": epoch}
    packed = state if isinstance(state, Packed) else pack(dict(state))
    signer = (trust or signing.user_trust()) if packed.opaque else None
    disk.make_folder(folder, "ckpt-")
    with disk.open_folder(folder) as parent:
        chosen = segments.large_arrays(packed.arrays)
        outside = {i: segments.write(parent, packed.arrays[i], epoch) for i in chosen}
        pieces = container.build(entries, packed, outside, signer)
        size = sum(len(piece) for piece in pieces)
        digest = bytes(pieces[-1]).hex()
        name = f"ckpt-{step:010d}-{digest}.swck"
        disk.publish(parent, name, size, _join_small(pieces, size), epoch, durable)
        if durable:
            disk.sync(parent)
    failpoints.reach("checkpoint whole")
    beside = segments.segment_names({"sections": outside.values()})
    total = size + sum(part["len"] for part in outside.values())
    return Saved(folder / name, digest, total, frozenset(beside))


def make_durable(path: Path) -> None:
    """Flush a checkpoint that was written with ``durable=False``, to survive a power cut.

    Raises OSError if the disk has lost some of it, or it does not exist, and NotRegular if it is a
    link or folder.
    """
    with disk.open_folder(path.parent) as parent:
        with disk.open_regular_file(path.name, parent) as (file, _size):
            os.fsync(file)
        disk.sync(parent)


def read(path: Path, digest: str | None = None, trust: Trust | None = None) -> Loaded:
    """Read and verify one checkpoint.

    Args:
        path: the file; its segments are in the same folder.
        digest: expected SHA-256 of the file, hexadecimal, or None if unknown.
        trust: has the key whose signature opaque bytes need; None for this user's key.

    Raises:
        MissingCheckpoint: the file does not exist.
        CorruptCheckpoint: its bytes differ from those that were written under this name.
        WrongFormat: it is not a checkpoint, or needs a newer program.
        UnreadableCheckpoint: memory, rights or descriptors are short, or its file system is
            away.
        UntrustedCheckpoint: it contains opaque bytes, and is not signed by a trusted key.
        SigningError: it contains opaque bytes, and this user's key cannot be used.
    """
    with _as_checkpoint_errors(path):
        content, found = _verified(path, digest)
        header = _checked_header(path, content)
        packed = container.parse(content, header, path)

        def vouch() -> None:
            """Raise an error unless the file's signature, or its digest, is trusted."""
            judge = trust or signing.user_trust()
            if found not in judge.digests:
                signing.check(header, judge, path)

        state = unpack(packed.pickled, packed.arrays, path, vouch, uses_arrays=True)
        if not isinstance(state, dict):
            raise CorruptCheckpoint(path, f"the state is {type_of(state)}, not a dict")
        return Loaded(header, state)


def verify(path: Path, digest: str | None = None) -> dict[str, Any]:
    """Check all digests of a checkpoint and its segments, and return its header.

    `digest` is the expected SHA-256 of the file, or None if unknown. Signatures are not checked.
    Raises CheckpointError if it is missing, damaged, of another format, or unreadable.
    """
    with _as_checkpoint_errors(path):
        content, _ = _verified(path, digest)
        header = _checked_header(path, content)
        container.verify(content, header, path)
        return header


def identify(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the SHA-256 and header of a checkpoint, after checking the file but not its segments.

    Raises CheckpointError if it is missing, damaged, of another format, or unreadable.
    """
    with _as_checkpoint_errors(path):
        content, digest = _verified(path, None)
        return digest, _checked_header(path, content)


def segments_of(path: Path) -> set[str]:
    """Return the file names of the segments that a checkpoint needs, from its header.

    Raises CheckpointError if the file is missing, damaged, of another format, or unreadable.
    """
    header = identify(path)[1]
    with _as_checkpoint_errors(path):
        return segments.segment_names(header)


def parse_name(name: str) -> tuple[int, str] | None:
    """Return the step and SHA-256 in the name of a checkpoint's file; None for any other name."""
    match = _NAME.fullmatch(name)
    return (int(match["step"]), match["digest"]) if match else None


# ---- writing ----------------------------------------------------------------------------------


def _join_small(pieces: Sequence[Piece], size: int) -> Iterator[Piece]:
    """Yield the pieces of a small file joined to two, since two writes are faster than fifty.

    A large file's pieces are yielded as they are.
    """
    middle = len(pieces) // 2
    for half in (pieces[:middle], pieces[middle:]):
        yield from [b"".join(half)] if size <= _JOINED_BYTES else half
        if half[-1] is not pieces[-1]:
            failpoints.reach("checkpoint half written")


def _environment() -> dict[str, Any]:
    """Return what else determines the bits of later results, for a checkpoint's header.

    These are ``versions`` of Python and, if imported, numpy, torch and gymnasium, torch's CPU
    capability ``cpu`` and its number of ``threads``, both None if torch is not imported.
    """
    libraries = {name: sys.modules[name] for name in _LIBRARIES if name in sys.modules}
    versions = {name: str(module.__version__) for name, module in libraries.items()}
    torch: Any = libraries.get("torch")
    return {
        "versions": {"python": platform.python_version(), **versions},
        "cpu": torch.backends.cpu.get_cpu_capability() if torch else None,
        "threads": torch.get_num_threads() if torch else None,
    }


# ---- reading ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _as_checkpoint_errors(path: Path) -> Iterator[None]:
    """Turn every exception inside the block into a CheckpointError that names `path`.

    A file that does not exist is a MissingCheckpoint. Errors that may pass, such as too little
    memory or missing rights, become UnreadableCheckpoint, and all others CorruptCheckpoint.
    SigningErrors stay as they are.
    """
    try:
        yield
    except (CheckpointError, SigningError):
        raise
    except disk.NotRegular as error:
        reason = "this is a link, folder, pipe or device, not a file"
        raise CorruptCheckpoint(path, reason) from error
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise MissingCheckpoint(path, "there is no such file") from error
        kind = CorruptCheckpoint if error.errno in _LOST else UnreadableCheckpoint
        raise kind(path, f"cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise UnreadableCheckpoint(path, "there is not enough memory to read it") from error
    except Exception as error:  # bytes and names from outside fail in any way
        reason = printable(f"cannot be read: {type(error).__name__}: {error}")
        raise CorruptCheckpoint(path, reason) from error


def _verified(path: Path, digest: str | None) -> tuple[memoryview, str]:
    """Read a checkpoint file, and return its bytes and their SHA-256.

    Raises CorruptCheckpoint unless the digest is the one in its name, the expected `digest` (None
    if unknown) and the one at its end; WrongFormat if it is no checkpoint. Name and `digest` are
    compared first: so a file with damaged first bytes is reported as a corrupt checkpoint, not as a
    file of another format.
    """
    content = memoryview(_content(path))
    actual = container.digest_of(content, path)
    named = parse_name(path.name)
    if named is not None and named[1] != actual:
        problem = f"the file is damaged: its SHA-256 is {actual}, not the one in its name"
        raise CorruptCheckpoint(path, f"{problem}; use another checkpoint")
    if digest is not None and digest != actual:
        problem = f"the file is damaged: its SHA-256 is {actual}; expected {printable(digest)}"
        raise CorruptCheckpoint(path, f"{problem}; use another checkpoint")
    container.check_seal(content, actual, path)
    return content, actual


def _content(path: Path) -> bytearray:
    """Read all bytes of a file.

    Raises CorruptCheckpoint if it is too large or shrinks meanwhile, MissingCheckpoint if no file
    can have its name, and OSError or NotRegular if it cannot be opened.
    """
    try:
        with disk.open_regular_file(path) as (file, size):
            if size > MAX_FILE_BYTES:
                raise CorruptCheckpoint(
                    path, f"the file has {size} bytes, but at most {MAX_FILE_BYTES} are allowed"
                )
            content = bytearray(size)
            if not disk.fill(file, memoryview(content)):
                raise CorruptCheckpoint(
                    path, "the file became shorter while it was read; try again"
                )
            return content
    except ValueError as error:  # NUL, or half of a surrogate pair
        raise MissingCheckpoint(path, "no file can have such a name") from error


def _checked_header(path: Path, content: memoryview) -> dict[str, Any]:
    """Return the header of a file's content.

    Raises CorruptCheckpoint if it is not valid or the file's name has another step, and WrongFormat
    if the file needs a newer reader.
    """
    header = container.header_of(content, path)
    named, step = parse_name(path.name), header.get("step")
    if named is not None and step != named[0]:
        problem = (
            f"the step is {step!r}, not the one in the name of the file; use another checkpoint"
        )
        raise CorruptCheckpoint(path, problem)
    return header
