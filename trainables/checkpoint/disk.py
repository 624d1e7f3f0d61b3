"""Files that are whole or absent, and names that survive a power cut.

`publish` makes ``.tmp-<epoch>-<pid>-<random>`` in the folder, writes everything, has it put on the
disk (fsync) and renames it; `sync` then has the folder's entries put on the disk. So whatever the
moment of a crash, a file under its final name is whole, and what came before it is untouched.
After an error the temporary file is removed and nothing is tried again: a second fsync on Linux
reports success for pages that the first one lost (Rebello et al., USENIX ATC 2020).

Folders are descriptors, so that a folder that is moved meanwhile stays the same one.
"""

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

Piece = bytes | memoryview

#: Name of a temporary file; to be matched in full.
TEMP_PATTERN: Final = re.compile(r"\.tmp-(?P<epoch>[0-9]+)-(?P<pid>[0-9]+)-[0-9a-f]{16}")
#: A file is written only where so many times its size is free: others need the disk too.
ROOM: Final = 2

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})  # links, sockets, …


class NotRegular(Exception):
    """A link, folder, pipe, socket or device lies where a file is expected."""


# ---- writing ----------------------------------------------------------------------------------


def publish(
    parent: int,
    name: str,
    size: int,
    pieces: Iterable[Piece],
    epoch: int,
    durable: bool = True,
) -> None:
    """Write `pieces`, of `size` bytes in all, as the file `name` in the folder `parent`.

    A file of that name is replaced. The name is durable only after `sync`; unless the bytes are to
    be `durable`, they outlive the process and may be lost in a power cut.

    Raises:
        OSError: the disk refused; no file of ours is left, and what was there before still is.
    """
    _check_room(parent, size)
    temporary = f".tmp-{epoch}-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        _write_file(parent, temporary, pieces, durable)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def sync(parent: int) -> None:
    """Make the names in the folder `parent` durable."""
    os.fsync(parent)


def make_folder(folder: Path, begun: str) -> None:
    """Make `folder` and what is missing above it, each entry put on the disk.

    A process that was killed may have made them without getting so far. So until the folder holds
    a file whose name starts with `begun`, the entries above it are put on the disk again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with os.scandir(folder) as entries:
        if any(entry.name.startswith(begun) for entry in entries):
            return
    device = folder.stat().st_dev
    for above in folder.absolute().parents:
        if above.stat().st_dev != device:
            return
        with contextlib.suppress(PermissionError), opened(above) as parent:
            os.fsync(parent)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[int]:
    """A descriptor of `folder`."""
    with closing(os.open(folder, _OPEN_FOLDER)) as descriptor:
        yield descriptor


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close the descriptor at the end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_room(parent: int, size: int) -> None:
    found = os.statvfs(parent)
    free = found.f_bavail * found.f_frsize
    if free < ROOM * size:
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {free} bytes for {size}")


def _write_file(parent: int, name: str, pieces: Iterable[Piece], durable: bool) -> None:
    file = os.open(name, _CREATE, 0o600, dir_fd=parent)
    try:
        for piece in pieces:
            write_all(file, piece)
        if durable:
            os.fsync(file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(file)
        raise
    os.close(file)  # its error means lost bytes, and is raised


def write_all(file: int, piece: Piece) -> None:
    """Write all bytes of `piece`."""
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(file, rest) :]


def open_file(path: str | Path, flags: int, parent: int | None = None, mode: int = 0o666) -> int:
    """A descriptor, as by `os.open`; NotRegular, at once, for a link, pipe or device."""
    try:
        file = os.open(path, flags | _SAFELY, mode, dir_fd=parent)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise NotRegular(f"{path}: no regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotRegular(f"{path}: no regular file")
    return file


# ---- reading ----------------------------------------------------------------------------------


@contextlib.contextmanager
def reading(path: str | Path, parent: int | None = None) -> Iterator[tuple[int, int]]:
    """Descriptor and size, bytes, of a regular file; NotRegular for anything else."""
    with closing(open_file(path, os.O_RDONLY, parent)) as file:
        yield file, os.fstat(file).st_size


def fill(file: int, buffer: memoryview) -> bool:
    """Read the next bytes of `file` into all of `buffer`; False: there are not so many."""
    rest = buffer
    while rest:
        count = os.readv(file, [rest])
        if count == 0:
            return False
        rest = rest[count:]
    return True
