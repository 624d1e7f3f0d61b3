"""Files that are whole or absent, and file names that survive a power cut.

`publish` makes ``.tmp-<epoch>-<pid>-<random>`` in the folder, writes everything, flushes it to the
disk (fsync) and renames it; `sync` then flushes the folder's entries. So whenever a crash happens,
a file under its final name is whole, and its predecessor is untouched until then. After an error
the temporary file is removed and nothing is tried again: a second fsync on Linux reports success
for pages that the first one lost (Rebello et al., USENIX ATC 2020).

Folders are passed as descriptors, so that a folder that is moved meanwhile stays the same one.
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

#: Bytes to be written.
Piece = bytes | memoryview

#: Pattern of a temporary file's whole name.
TEMP_PATTERN: Final = re.compile(r"\.tmp-(?P<epoch>[0-9]+)-(?P<pid>[0-9]+)-[0-9a-f]{16}")
#: A file is written only if this many times its size is free, since others need the disk too.
FREE_SPACE_FACTOR: Final = 2

#: Flags that create a new file for writing.
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Flags that open a folder.
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Flags that open a file but follow no link and do not wait.
_SAFELY = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block
#: Errors of opening something that is not a regular file.
_NO_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR})  # links, sockets, …


class NotRegular(Exception):
    """A link, folder, pipe, socket or device in the place of a regular file."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(
            f"{path}: not a regular file, but a link, folder, pipe, socket or device; move it away"
        )


# ---- writing ----------------------------------------------------------------------------------


def publish(
    parent: int,
    name: str,
    size: int,
    pieces: Iterable[Piece],
    epoch: int,
    durable: bool = True,
) -> None:
    """Write `pieces` as the file `name` in the folder `parent`, replacing an existing one at once.

    They are written to a temporary file, readable by this user alone, which is then renamed. The
    name is durable only after `sync`.

    Args:
        parent: descriptor of the folder.
        size: sum of the sizes of `pieces`, bytes.
        epoch: number of the period in which one driver holds the sweep, for the temporary file's
            name.
        durable: False to skip fsync: the bytes then outlive the process, but perhaps not a power
            cut.

    Raises:
        OSError: the disk refused, or has less than `FREE_SPACE_FACTOR` times `size` free; the
            existing file is unchanged and the temporary one removed.
    """
    _check_free_space(parent, size)
    temporary = f".tmp-{epoch}-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        _write_file(parent, temporary, pieces, durable)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise


def sync(parent: int) -> None:
    """Flush the names in a folder to the disk (fsync), so that they survive a power cut.

    `parent` is the folder's descriptor.
    """
    os.fsync(parent)


def make_folder(folder: Path, prefix: str) -> None:
    """Make `folder` and missing folders above it, and flush the entries of all of them to the disk.

    Existing folders on the same disk are flushed, too, since a process that was killed may have
    made them without: that is skipped once `folder` contains a file whose name starts with
    `prefix`. Folders above that this user cannot open are not flushed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with os.scandir(folder) as entries:
        if any(entry.name.startswith(prefix) for entry in entries):
            return
    device = folder.stat().st_dev
    for above in folder.absolute().parents:
        if above.stat().st_dev != device:
            return
        with contextlib.suppress(PermissionError), open_folder(above) as parent:
            os.fsync(parent)


@contextlib.contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """Open `folder` inside the block; yields its descriptor."""
    with closing(os.open(folder, _OPEN_FOLDER)) as descriptor:
        yield descriptor


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Yield the descriptor, and close it when the block ends."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_free_space(parent: int, size: int) -> None:
    """Raise OSError (ENOSPC) unless `FREE_SPACE_FACTOR` times `size` bytes are free.

    `parent` is the descriptor of a folder on the disk in question.
    """
    found = os.statvfs(parent)
    free = found.f_bavail * found.f_frsize
    if free < FREE_SPACE_FACTOR * size:
        raise OSError(
            errno.ENOSPC,
            f"{os.strerror(errno.ENOSPC)}: {free} bytes are free, but {FREE_SPACE_FACTOR * size} "
            "are needed",
        )


def _write_file(parent: int, name: str, pieces: Iterable[Piece], durable: bool) -> None:
    """Create the file `name` and write `pieces` to it; with `durable`, flush them to the disk.

    `parent` is the folder's descriptor. Raises OSError if the file exists or the disk refuses.
    """
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
    """Write all bytes of `piece` to the descriptor `file`."""
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(file, rest) :]


def open_file(path: str | Path, flags: int, parent: int | None = None, mode: int = 0o666) -> int:
    """Open a regular file as `os.open` does, and return its descriptor.

    `parent` is the descriptor of the folder that `path` is relative to, or None.

    Raises:
        NotRegular: it is a link, pipe, device or folder; never blocks on one.
        OSError: it cannot be opened.
    """
    try:
        file = os.open(path, flags | _SAFELY, mode, dir_fd=parent)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise NotRegular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotRegular(path)
    return file


# ---- reading ----------------------------------------------------------------------------------


@contextlib.contextmanager
def open_regular_file(path: str | Path, parent: int | None = None) -> Iterator[tuple[int, int]]:
    """Open a regular file for reading inside the block; yields its descriptor and size in bytes.

    `parent` is the descriptor of the folder that `path` is relative to, or None. Raises NotRegular
    for a link, folder, pipe or device.
    """
    with closing(open_file(path, os.O_RDONLY, parent)) as file:
        yield file, os.fstat(file).st_size


def fill(file: int, buffer: memoryview) -> bool:
    """Read the next bytes of `file` until `buffer` is full.

    Returns False if the file is too short.
    """
    rest = buffer
    while rest:
        count = os.readv(file, [rest])
        if count == 0:
            return False
        rest = rest[count:]
    return True
