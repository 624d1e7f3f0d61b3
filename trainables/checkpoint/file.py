"""One checkpoint is one file, whole or absent, under a name that carries its digest.

`write` puts it on the disk as ``ckpt-<step>-<sha256>.swck`` (`trainables.checkpoint.disk` says
how), its large arrays first, as segments beside it (`trainables.checkpoint.segments`). When it
returns, both survive a power cut, unless that is left to `make_durable`.

`read` opens the file once, reads it into memory, and hashes and parses those bytes. Its
errors say what may be done: a checkpoint that is missing or corrupt is lost, and an older one is
used; one that is of another format, unreadable now or not trusted may be good.
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
)

#: Largest file, bytes, without its segments: the pickle, the arrays inside, the header, padding.
MAX_FILE_BYTES: Final = MAX_BYTES + segments.INSIDE_BYTES + 2 * container.MAX_HEADER_BYTES

#: Largest file that is copied to be written in one go.
_JOINED_BYTES: Final = 2**20
_NAME = re.compile(r"ckpt-(?P<step>[0-9]{10,19})-(?P<digest>[0-9a-f]{64})\.swck")
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
#: What a file system says of bytes that it has lost; all else (memory, rights, a share that is away
#: or was mounted anew) says nothing of the file.
_LOST = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ})
_LIBRARIES = ("numpy", "torch", "gymnasium")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is on the disk."""

    path: Path
    digest: str
    """SHA-256 of its bytes, hexadecimal; in its name too."""
    size: int
    """Bytes, those of its segments included."""
    segments: frozenset[str] = frozenset()
    """The file names of its segments."""


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that has been read and verified."""

    header: dict[str, Any]
    state: dict[str, Any]


def write(
    folder: Path,
    step: int,
    header: Mapping[str, Any],
    state: Mapping[str, Any] | Packed,
    epoch: int = 0,
    trust: Trust | None = None,
    durable: bool = True,
) -> Saved:
    """Write one checkpoint; when this returns it survives a power cut.

    Args:
        folder: where to; made if it is not there.
        step: the trial's iteration, for the name.
        header: JSON, which `verify` gives back without reading the state; ``step``, ``epoch``,
            ``versions``, ``cpu``, ``threads`` and the entries of the container are added.
        state: what `trainables.checkpoint.state` allows, or what it has packed.
        epoch: the driver's term, for the temporary file's name.
        trust: what signs it, if it holds opaque bytes; None: the key of the person who runs this.
        durable: False: it survives the end of this process, and a power cut only after
            `make_durable`.

    Raises:
        StateError: something that cannot stand in a checkpoint.
        SigningError: it must be signed, and there is no key.
        OSError: the disk refused; earlier checkpoints are untouched.
    """
    entries = {**header, **_environment(), "step": step, "epoch": epoch}
    packed = state if isinstance(state, Packed) else pack(dict(state))
    signer = (trust or signing.local()) if packed.opaque else None
    disk.make_folder(folder, "ckpt-")
    with disk.opened(folder) as parent:
        chosen = segments.outside(packed.arrays)
        outside = {i: segments.write(parent, packed.arrays[i], epoch) for i in chosen}
        pieces = container.build(entries, packed, outside, signer)
        size = sum(len(piece) for piece in pieces)
        digest = bytes(pieces[-1]).hex()
        name = f"ckpt-{step:010d}-{digest}.swck"
        disk.publish(parent, name, size, _joined(pieces, size), epoch, durable)
        if durable:
            disk.sync(parent)
    failpoints.reach("checkpoint whole")
    beside = segments.named({"sections": outside.values()})
    total = size + sum(part["len"] for part in outside.values())
    return Saved(folder / name, digest, total, frozenset(beside))


def make_durable(path: Path) -> None:
    """Have a checkpoint that was written survive a power cut.

    Raises:
        OSError: the disk has lost some of it, or it is not there.
    """
    with disk.opened(path.parent) as parent:
        with disk.reading(path.name, parent) as (file, _size):
            os.fsync(file)
        disk.sync(parent)


def read(path: Path, digest: str | None = None, trust: Trust | None = None) -> Loaded:
    """Read and verify one checkpoint.

    Args:
        path: the file; its segments lie beside it.
        digest: what the file's must be, where the caller knows it.
        trust: whose signature opaque bytes need; None: that of the person who runs this.

    Raises:
        MissingCheckpoint: there is no such file.
        CorruptCheckpoint: its bytes are not the ones that were written under this name.
        WrongFormat: it is no checkpoint, or needs a newer program.
        UnreadableCheckpoint: memory, rights or descriptors are short, or the file system is away.
        UntrustedCheckpoint: it holds opaque bytes that somebody else signed, or nobody.
    """
    with _only_checkpoint_errors(path):
        content, found = _verified(path, digest)
        header = _checked_header(path, content)
        packed = container.parse(content, header, path)

        def vouch() -> None:
            judge = trust or signing.local()
            if found not in judge.digests:
                signing.check(header, judge, path)

        state = unpack(packed.pickled, packed.arrays, path, vouch, own=True)
        if not isinstance(state, dict):
            raise CorruptCheckpoint(path, f"its state is a {type(state).__name__}, not a dict")
        return Loaded(header, state)


def verify(path: Path, digest: str | None = None) -> dict[str, Any]:
    """The header of a checkpoint that is whole with its segments; raises as `read`."""
    with _only_checkpoint_errors(path):
        content, _ = _verified(path, digest)
        header = _checked_header(path, content)
        container.verify(content, header, path)
        return header


def identify(path: Path) -> tuple[str, dict[str, Any]]:
    """Digest and header of a checkpoint file, without its segments; raises as `read`."""
    with _only_checkpoint_errors(path):
        content, digest = _verified(path, None)
        return digest, _checked_header(path, content)


def segments_of(path: Path) -> set[str]:
    """File names of the segments that a checkpoint needs; raises as `read`."""
    header = identify(path)[1]
    with _only_checkpoint_errors(path):
        return segments.named(header)


def parse_name(name: str) -> tuple[int, str] | None:
    """Step and digest that a file's name carries; None: not a checkpoint's name."""
    match = _NAME.fullmatch(name)
    return (int(match["step"]), match["digest"]) if match else None


# ---- writing ----------------------------------------------------------------------------------


def _joined(pieces: Sequence[Piece], size: int) -> Iterator[Piece]:
    """Both halves of a small file, as two calls take less time than fifty; a large one as it is."""
    middle = len(pieces) // 2
    for half in (pieces[:middle], pieces[middle:]):
        yield from [b"".join(half)] if size <= _JOINED_BYTES else half
        if half[-1] is not pieces[-1]:
            failpoints.reach("checkpoint half written")


def _environment() -> dict[str, Any]:
    """Return what else decides the bits: libraries, CPU capability, threads. Imports nothing."""
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
def _only_checkpoint_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (CheckpointError, SigningError):
        raise
    except disk.NotRegular as error:
        reason = "a link, folder, pipe or device where a file is expected"
        raise CorruptCheckpoint(path, reason) from error
    except OSError as error:
        if error.errno in _NOT_THERE:
            raise MissingCheckpoint(path, "there is no such file") from error
        kind = CorruptCheckpoint if error.errno in _LOST else UnreadableCheckpoint
        raise kind(path, f"cannot be read: {error.strerror}") from error
    except MemoryError as error:
        raise UnreadableCheckpoint(path, "there is not memory enough to read it") from error
    except Exception as error:  # bytes and names from outside fail in any way
        reason = printable(f"cannot be read: {type(error).__name__}: {error}")
        raise CorruptCheckpoint(path, reason) from error


def _verified(path: Path, digest: str | None) -> tuple[memoryview, str]:
    """The file's bytes and their digest, which must be that of the name, `digest` and the trailer.

    The name and `digest` come first: a file whose first bytes are damaged is still a checkpoint.
    """
    content = memoryview(_content(path))
    found = container.digest_of(content, path)
    named = parse_name(path.name)
    if named is not None and named[1] != found:
        raise CorruptCheckpoint(path, f"its SHA-256 is {found}, not the one in its name")
    if digest is not None and digest != found:
        raise CorruptCheckpoint(path, f"its SHA-256 is {found}; expected {printable(digest)}")
    container.check_seal(content, found, path)
    return content, found


def _content(path: Path) -> bytearray:
    try:
        with disk.reading(path) as (file, size):
            if size > MAX_FILE_BYTES:
                raise CorruptCheckpoint(path, f"{size} bytes; at most {MAX_FILE_BYTES} are allowed")
            content = bytearray(size)
            if not disk.fill(file, memoryview(content)):
                raise CorruptCheckpoint(path, "cut off while it was read")
            return content
    except ValueError as error:  # NUL, or half of a surrogate pair
        raise MissingCheckpoint(path, "no file can have such a name") from error


def _checked_header(path: Path, content: memoryview) -> dict[str, Any]:
    header = container.header_of(content, path)
    named, step = parse_name(path.name), header.get("step")
    if named is not None and step != named[0]:
        raise CorruptCheckpoint(path, f"its step is {step!r}, not the one in its name")
    return header
