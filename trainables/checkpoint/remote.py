"""A folder in object storage, or in any other storage that fsspec reads, by its URL.

This module does not assume that a file is complete as soon as its name appears. The names of
checkpoints and segments contain their digests; a checkpoint's file lists the digests of its
segments and is written after them; and `put` returns only when all files have their full size.

Operations that fail temporarily (a server is busy or unreachable, or its answer is lost) are
repeated for `PATIENCE_S` seconds; writing the same bytes under the same name twice does no harm.
Errors that cannot pass by themselves, such as an expired credential, are raised at once. The
storage's library reads credentials from its usual places; the URL never contains them.
"""

import contextlib
import errno
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainables.checkpoint import disk
from trainables.errors import printable

#: Time for which a request is repeated after temporary failures, seconds.
PATIENCE_S = 60.0
#: Seconds before the second attempt, and longest wait. Each wait is twice as long as the one
#: before, up to the longest.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 2.0
#: Bytes that are read of a small file. For a whole file s3fs would first ask for its size, and a
#: refusal of that request has no reason in it.
SMALL_FILE_BYTES = 2**16
#: Number of concurrent transfers; a chunk of each is in memory.
CONCURRENT_TRANSFERS = 16
#: Errors that do not pass by themselves.
_PERMANENT_ERRORS = (PermissionError, NotADirectoryError, ImportError)
#: Errors of a wrong program, which are raised as they are.
_PROGRAM_ERRORS = (TypeError, AttributeError, NameError)
_T = TypeVar("_T")


class RemoteError(OSError):
    """An error of the object storage at `url`: it could not be read or written."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(errno.EIO, printable(f"{url}: {reason}"))

    def __str__(self) -> str:
        return str(self.strerror)


class RemoteFileMissing(RemoteError):
    """The storage answered that the file or its bucket does not exist."""


@dataclass(frozen=True)
class Remote:
    """A folder in object storage (or on a disk), given by its URL; file names may contain slashes.

    Failed requests are repeated. All methods raise RemoteError if the storage still fails.
    """

    url: str
    """URL of the folder, without a slash at its end: ``s3://bucket/folder``."""
    patience_s: float | None = None
    """Time for which requests are repeated, seconds; None for `PATIENCE_S`."""

    def subfolder(self, name: str) -> "Remote":
        """Return the folder `name` inside this one."""
        return Remote(f"{self.url}/{name}", self.patience_s)

    def put(self, files: Mapping[str, Path]) -> None:
        """Upload files, given as name in the folder → local path; existing ones are replaced.

        Returns when all have their full size in the storage. Raises FileNotFoundError if a local
        file does not exist.
        """
        sizes = {name: path.stat().st_size for name, path in files.items()}
        try:
            self._retry(lambda: self._put(files))
        except RemoteFileMissing:
            for path in files.values():
                path.stat()
            raise
        found = self.sizes()
        if cut := next((name for name, size in sizes.items() if found.get(name) != size), None):
            why = f"{cut} has {found.get(cut, 0)} of its {sizes[cut]} bytes after it was written"
            raise RemoteError(self.url, why)

    def get(self, files: Mapping[str, Path]) -> None:
        """Download files, given as name in the folder → local path.

        Raises RemoteFileMissing if one does not exist.
        """

        def read() -> None:
            """Download the files."""
            opened, root = _opened(self.url)
            names = [f"{root}/{name}" for name in files]
            opened.get(names, list(map(str, files.values())), batch_size=CONCURRENT_TRANSFERS)

        self._retry(read)

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return name → size in bytes of all files in this folder, or in its subfolder `folder`.

        Names are relative to this folder and include those in deeper folders. Empty if the folder
        does not exist.
        """

        def look() -> dict[str, int]:
            """Return name → size in bytes of each file."""
            opened, root = _opened(self.url)
            found = opened.find(f"{root}/{folder}" if folder else root, detail=True)
            return {name[len(root) :].strip("/"): one["size"] for name, one in found.items()}

        try:
            return self._retry(look)
        except RemoteFileMissing:  # of a file system with folders
            return {}

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; those that do not exist are skipped."""

        def remove() -> None:
            """Delete the files that exist."""
            opened, root = _opened(self.url)
            try:
                opened.rm([f"{root}/{name}" for name in names])
            except FileNotFoundError:
                for name in names:
                    if opened.exists(path := f"{root}/{name}"):
                        opened.rm(path)

        if names:
            self._retry(remove)

    def write(self, name: str, content: bytes) -> None:
        """Write `content` to the file `name`, which is small enough for one request.

        An existing file is replaced.
        """
        self._retry(lambda: self._pipe(name, content))

    def read(self, name: str) -> bytes:
        """Return the first `SMALL_FILE_BYTES` (64 KiB) of a file.

        Raises RemoteFileMissing if it does not exist.
        """

        def read() -> bytes:
            """Return the first `SMALL_FILE_BYTES` bytes of the file."""
            opened, root = _opened(self.url)
            return bytes(opened.cat_file(f"{root}/{name}", start=0, end=SMALL_FILE_BYTES))

        return self._retry(read)

    def written_at(self, name: str) -> float | None:
        """Return the modification time of a file by the storage's clock, as a Unix timestamp.

        Returns None if this kind of storage has no such times. Raises RemoteFileMissing if the file
        does not exist.
        """

        def look() -> float | None:
            """Return the modification time, seconds since 1970; None if the storage has none."""
            opened, root = _opened(self.url)
            with contextlib.suppress(NotImplementedError):
                return float(opened.modified(f"{root}/{name}").timestamp())
            return None

        return self._retry(look)

    def _put(self, files: Mapping[str, Path]) -> None:
        """Upload files, given as name → local path, in a single attempt."""
        opened, root = _opened(self.url)
        if _is_disk(opened):
            for name, path in files.items():
                self._pipe(name, path.read_bytes())
            return
        names = [f"{root}/{name}" for name in files]
        opened.put(list(map(str, files.values())), names, batch_size=CONCURRENT_TRANSFERS)

    def _pipe(self, name: str, content: bytes) -> None:
        """Write `content` to the file `name` in a single attempt; with fsync on a local disk."""
        opened, root = _opened(self.url)
        if not _is_disk(opened):
            opened.pipe_file(f"{root}/{name}", content)
            return
        path = Path(root) / name
        disk.make_folder(path.parent, path.name)
        with disk.open_folder(path.parent) as parent:
            disk.publish(parent, path.name, len(content), [content], 0)
            disk.sync(parent)

    def _retry(self, attempt: Callable[[], _T]) -> _T:
        """Call `attempt` until it succeeds, with growing pauses, and return its result.

        Raises RemoteFileMissing or RemoteError if a repetition is pointless, or time is up. Errors
        of a wrong program (`_PROGRAM_ERRORS`) are raised as they are.
        """
        patience_s = PATIENCE_S if self.patience_s is None else self.patience_s
        until, wait = time.monotonic() + patience_s, FIRST_WAIT_S
        while True:
            try:
                return attempt()
            except _PROGRAM_ERRORS:
                raise
            except Exception as error:  # a library of a storage raises what it likes
                if isinstance(error, FileNotFoundError):
                    raise RemoteFileMissing(
                        self.url, f"there is no such file: {_reason(error)}"
                    ) from error
                if isinstance(error, _PERMANENT_ERRORS) or "Credential" in type(error).__name__:
                    raise RemoteError(self.url, _reason(error)) from error
                if time.monotonic() + wait > until:
                    raise RemoteError(self.url, _reason(error)) from error
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)


@functools.cache
def _opened(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the folder's path in that; cached.

    botocore's own retries, which take minutes, are switched off: `Remote` repeats requests itself.
    """
    import fsspec

    once = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    options = once if url.startswith(("s3://", "s3a://")) else {}
    opened, root = fsspec.url_to_fs(url, use_listings_cache=False, **options)
    return opened, root.rstrip("/")


def _is_disk(opened: Any) -> bool:
    """Return whether a file system is the local disk."""
    return "file" in (opened.protocol if isinstance(opened.protocol, tuple) else [opened.protocol])


def _reason(error: Exception) -> str:
    """Return the first line of an error's message, or its class name."""
    text = (str(error).splitlines() or [""])[0]
    return text or type(error).__name__
