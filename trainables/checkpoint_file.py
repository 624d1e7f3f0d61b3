"""One checkpoint is one file, whole or absent, under a name that carries its digest.

`write` makes ``.tmp-<epoch>-<pid>-<random>`` in the same folder, writes everything, has it put on
the disk (fsync), renames it to ``ckpt-<step>-<sha256>.swck`` and has the folder's entry put on
the disk too. So whatever the moment of a crash, a file under its final name is whole, and what
came before it is untouched. After an error the temporary file is removed and nothing is tried
again: a second fsync on Linux reports success for pages that the first one lost (Rebello et al.,
USENIX ATC 2020).

`read` opens the file once, reads it into memory, and hashes and parses those bytes.
"""

import contextlib
import errno
import os
import platform
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trainables import container, failpoints
from trainables.errors import (
    CheckpointError,
    CorruptCheckpoint,
    MissingCheckpoint,
    StateError,
    WrongFormat,
    printable,
)
from trainables.state import pack, unpack

#: Name of a temporary file; to be matched in full.
TEMP_PATTERN: Final = re.compile(r"\.tmp-(?P<epoch>[0-9]+)-(?P<pid>[0-9]+)-[0-9a-f]{16}")
#: Largest file, bytes.
MAX_FILE_BYTES: Final = 8 * 2**30

_NAME = re.compile(r"ckpt-(?P<step>[0-9]{10,19})-(?P<digest>[0-9a-f]{64})\.swck")
_NOT_REGULAR = "a link, folder, pipe or device where a file is expected"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV})  # links, sockets, devices
_LIBRARIES = ("numpy", "torch", "gymnasium")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is on the disk."""

    path: Path
    digest: str
    """SHA-256 of its bytes, hexadecimal; in its name too."""
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that has been read and verified."""

    header: dict[str, Any]
    state: dict[str, Any]


def write(
    folder: Path,
    step: int,
    header: Mapping[str, Any],
    state: Mapping[str, Any],
    epoch: int = 0,
) -> Saved:
    """Write one checkpoint; when this returns it survives a power cut.

    Args:
        folder: where to; made if it is not there.
        step: the trial's iteration, for the name.
        header: JSON, which `verify` gives back without reading the state; ``step``, ``epoch``,
            ``versions``, ``cpu``, ``threads`` and the entries of the container are added.
        state: what `trainables.state` allows.
        epoch: which start of the writing program this is, for the temporary file's name.

    Raises:
        StateError: something that cannot stand in a checkpoint; nothing is written.
        OSError: the disk refused; earlier checkpoints are untouched.
    """
    entries = {**header, **_environment(), "step": step, "epoch": epoch}
    pieces = container.build(entries, pack(dict(state)))
    size = sum(len(piece) for piece in pieces)
    if size > MAX_FILE_BYTES:
        raise StateError("state", f"{size} bytes", f"at most {MAX_FILE_BYTES} are allowed")
    digest = bytes(pieces[-1]).hex()
    name = f"ckpt-{step:010d}-{digest}.swck"
    _make_folder(folder)
    with _closing(os.open(folder, _OPEN_FOLDER)) as parent:
        _publish(parent, f".tmp-{epoch}-{os.getpid()}-{secrets.token_hex(8)}", name, pieces)
    failpoints.reach("checkpoint whole")
    return Saved(folder / name, digest, size)


def read(path: Path, digest: str | None = None) -> Loaded:
    """Read and verify one checkpoint; `digest`, where given, must be the file's.

    Raises:
        MissingCheckpoint: there is no such file.
        CorruptCheckpoint: its bytes are not the ones that were written under this name.
        WrongFormat: it is no checkpoint, or needs a newer program.
    """
    with _only_checkpoint_errors(path):
        content = _verified(path, digest)
        header, packed = container.parse(content, path)
        _check_step(path, header)
        state = unpack(packed.pickled, packed.arrays, path)
        if not isinstance(state, dict):
            raise CorruptCheckpoint(path, f"its state is a {type(state).__name__}, not a dict")
        return Loaded(header, state)


def verify(path: Path, digest: str | None = None) -> dict[str, Any]:
    """The header of a checkpoint whose bytes are whole; the state is not read. Raises as `read`."""
    with _only_checkpoint_errors(path):
        header = container.header_of(_verified(path, digest), path)
        _check_step(path, header)
        return header


def parse_name(name: str) -> tuple[int, str] | None:
    """Step and digest that a file's name carries; None: not a checkpoint's name."""
    match = _NAME.fullmatch(name)
    return (int(match["step"]), match["digest"]) if match else None


# ---- writing ----------------------------------------------------------------------------------


def _publish(parent: int, temporary: str, name: str, pieces: Sequence[container.Piece]) -> None:
    try:
        _write_file(parent, temporary, pieces)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    os.fsync(parent)


def _write_file(parent: int, name: str, pieces: Sequence[container.Piece]) -> None:
    file = os.open(name, _CREATE, 0o600, dir_fd=parent)
    try:
        for index, piece in enumerate(pieces):
            if index == len(pieces) // 2:
                failpoints.reach("checkpoint half written")
            _write_all(file, piece)
        os.fsync(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(file)
        raise
    os.close(file)  # its error means lost bytes, and is raised


def _write_all(file: int, piece: container.Piece) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(file, rest) :]


def _make_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, each entry put on the disk."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    with _closing(os.open(folder.parent, _OPEN_FOLDER)) as parent:
        os.fsync(parent)


@contextlib.contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _environment() -> dict[str, Any]:
    """What else decides the bits: libraries, CPU capability and threads. Imports nothing."""
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
    except CheckpointError:
        raise
    except OSError as error:
        raise _from_os(path, error) from error
    except Exception as error:  # bytes and names from outside fail in any way
        reason = printable(f"cannot be read: {type(error).__name__}: {error}")
        raise CorruptCheckpoint(path, reason) from error


def _from_os(path: Path, error: OSError) -> CheckpointError:
    if error.errno in _NOT_THERE:
        return MissingCheckpoint(path, "there is no such file")
    if error.errno in _NO_FILE:
        return WrongFormat(path, _NOT_REGULAR)
    return CorruptCheckpoint(path, f"cannot be read: {error.strerror}")


def _verified(path: Path, digest: str | None) -> memoryview:
    """The file's bytes, after comparing their digest with the trailer, the name and `digest`."""
    content = memoryview(_content(path))
    found = container.digest_of(content, path)
    named = parse_name(path.name)
    if named is not None and named[1] != found:
        raise CorruptCheckpoint(path, f"its SHA-256 is {found}, not the one in its name")
    if digest is not None and digest != found:
        raise CorruptCheckpoint(path, f"its SHA-256 is {found}; expected {printable(digest)}")
    return content


def _open(path: Path) -> int:
    try:
        return os.open(path, _OPEN)
    except ValueError as error:  # NUL, or half of a surrogate pair
        raise MissingCheckpoint(path, "no file can have such a name") from error


def _content(path: Path) -> bytearray:
    with _closing(_open(path)) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise WrongFormat(path, _NOT_REGULAR)
        if status.st_size > MAX_FILE_BYTES:
            raise WrongFormat(path, f"{status.st_size} bytes; at most {MAX_FILE_BYTES} are allowed")
        content = bytearray(status.st_size)
        rest = memoryview(content)
        while rest:
            count = os.readv(file, [rest])
            if count == 0:
                raise CorruptCheckpoint(path, "cut off while it was read")
            rest = rest[count:]
    return content


def _check_step(path: Path, header: Mapping[str, Any]) -> None:
    named = parse_name(path.name)
    if named is not None and header.get("step") != named[0]:
        raise CorruptCheckpoint(
            path, f"its step is {header.get('step')!r}, not the one in its name"
        )
