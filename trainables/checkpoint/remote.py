"""A folder in object storage, or in whatever else fsspec reads, by its URL.

Nothing here relies on a file being whole under its name the moment it appears: the names that
checkpoints and segments have carry their digests, a checkpoint's file names the digests of its
segments and is written after them, and `put` returns only when everything is there in full size.

What fails for the moment (a server that is busy, away, or whose answer is lost) is tried again for
`PATIENCE_S` seconds; to write the same bytes under the same name twice does no harm. What cannot
pass by itself, such as a credential that has expired, is an error at once. Credentials come from
where the library of the storage looks for them, never from the URL.
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

#: Seconds for which something that may pass is tried again.
PATIENCE_S = 60.0
#: Seconds before the second attempt; each wait is twice as long as the one before, up to the
#: longest, so that a storage that is there for a moment only is met.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.25, 2.0
#: Bytes that are read of a small file. To read all of it s3fs would first ask for its size, by a
#: request whose refusal has no reason in it.
SMALL = 2**16
#: Transfers at once: a chunk of each is in memory.
AT_ONCE = 16
_NO_USE = (PermissionError, NotADirectoryError, ImportError)
_MISTAKES = (TypeError, AttributeError, NameError)
_T = TypeVar("_T")


class RemoteError(OSError):
    """The storage took or gave nothing: its URL and why, in one line; nothing is wrong in it."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(errno.EIO, printable(f"{url}: {why}"))

    def __str__(self) -> str:
        return str(self.strerror)


class RemoteFileMissing(RemoteError):
    """The storage answered that there is no such file, or nowhere to put one."""


@dataclass(frozen=True)
class Remote:
    """A folder by its URL; names in it may have slashes. Errors are `RemoteError`."""

    url: str
    patience_s: float | None = None
    """Seconds for which what may pass is tried again; None: `PATIENCE_S`."""

    def below(self, name: str) -> "Remote":
        """The folder `name` in it."""
        return Remote(f"{self.url}/{name}", self.patience_s)

    def put(self, files: Mapping[str, Path]) -> None:
        """Write files, each under a name; FileNotFoundError if one of `files` is not there."""
        sizes = {name: path.stat().st_size for name, path in files.items()}
        try:
            self._again(lambda: self._put(files))
        except RemoteFileMissing:
            for path in files.values():
                path.stat()
            raise
        found = self.sizes()
        if cut := next((name for name, size in sizes.items() if found.get(name) != size), None):
            why = f"{cut} has {found.get(cut, 0)} of its {sizes[cut]} bytes after it was written"
            raise RemoteError(self.url, why)

    def get(self, files: Mapping[str, Path]) -> None:
        """Read files, each into a path; RemoteFileMissing if there is one of them not."""

        def read() -> None:
            opened, root = _opened(self.url)
            names = [f"{root}/{name}" for name in files]
            opened.get(names, list(map(str, files.values())), batch_size=AT_ONCE)

        self._again(read)

    def sizes(self, below: str = "") -> dict[str, int]:
        """Name → bytes of every file, or of those in the folder `below`."""

        def look() -> dict[str, int]:
            opened, root = _opened(self.url)
            found = opened.find(f"{root}/{below}" if below else root, detail=True)
            return {name[len(root) :].strip("/"): one["size"] for name, one in found.items()}

        try:
            return self._again(look)
        except RemoteFileMissing:  # of a file system with folders
            return {}

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; those that are gone already are no error."""

        def remove() -> None:
            opened, root = _opened(self.url)
            try:
                opened.rm([f"{root}/{name}" for name in names])
            except FileNotFoundError:
                for name in names:
                    if opened.exists(path := f"{root}/{name}"):
                        opened.rm(path)

        if names:
            self._again(remove)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        self._again(lambda: self._pipe(name, content))

    def read(self, name: str) -> bytes:
        """The beginning of a file, at most `SMALL` bytes; RemoteFileMissing if it is not there."""

        def read() -> bytes:
            opened, root = _opened(self.url)
            return bytes(opened.cat_file(f"{root}/{name}", start=0, end=SMALL))

        return self._again(read)

    def written_at(self, name: str) -> float | None:
        """When a file was written, by the storage's clock; None: its library does not say."""

        def look() -> float | None:
            opened, root = _opened(self.url)
            with contextlib.suppress(NotImplementedError):
                return float(opened.modified(f"{root}/{name}").timestamp())
            return None

        return self._again(look)

    def _put(self, files: Mapping[str, Path]) -> None:
        opened, root = _opened(self.url)
        if _is_disk(opened):
            for name, path in files.items():
                self._pipe(name, path.read_bytes())
            return
        names = [f"{root}/{name}" for name in files]
        opened.put(list(map(str, files.values())), names, batch_size=AT_ONCE)

    def _pipe(self, name: str, content: bytes) -> None:
        opened, root = _opened(self.url)
        if not _is_disk(opened):
            opened.pipe_file(f"{root}/{name}", content)
            return
        path = Path(root) / name
        disk.make_folder(path.parent, path.name)
        with disk.opened(path.parent) as parent:
            disk.publish(parent, path.name, len(content), [content], 0)
            disk.sync(parent)

    def _again(self, attempt: Callable[[], _T]) -> _T:
        """Return the result of `attempt`, after as many attempts as it takes."""
        patience_s = PATIENCE_S if self.patience_s is None else self.patience_s
        until, wait = time.monotonic() + patience_s, FIRST_WAIT_S
        while True:
            try:
                return attempt()
            except _MISTAKES:
                raise
            except Exception as error:  # a library of a storage raises what it likes
                if isinstance(error, FileNotFoundError):
                    raise RemoteFileMissing(self.url, f"not there: {_why(error)}") from error
                if isinstance(error, _NO_USE) or "Credential" in type(error).__name__:
                    raise RemoteError(self.url, _why(error)) from error
                if time.monotonic() + wait > until:
                    raise RemoteError(self.url, _why(error)) from error
            time.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT_S)


@functools.cache
def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the folder's name in it.

    What botocore would try again for minutes is left to s3fs and `PATIENCE_S`.
    """
    import fsspec

    once = {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    options = once if url.startswith(("s3://", "s3a://")) else {}
    opened, root = fsspec.url_to_fs(url, use_listings_cache=False, **options)
    return opened, root.rstrip("/")


def _is_disk(opened: Any) -> bool:
    return "file" in (opened.protocol if isinstance(opened.protocol, tuple) else [opened.protocol])


def _why(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    return text or type(error).__name__
