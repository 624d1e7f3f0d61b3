"""Storage of a sweep's checkpoints: its folder alone, or object storage behind it.

URL/NAME-ID/sweep.json               whose checkpoints these are
            trials/N/SLICE/ckpt-*    what one slice has written, under the names that it has on disk
            trials/N/SLICE/seg-*

With storage the folder is a cache. A slice writes a checkpoint there as ever, then sends it, and
only then does its outcome name it: segments first, the file that names their digests last.

**Who may write what.** A slice only adds, under its own number, which the ledger gives out once; a
driver deletes only what stands under numbers of slices that are over and that its history does not
name. So a worker or a driver that was cut off and comes back can neither replace nor delete what
another one has: what it leaves is named by nobody.
"""

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from sweep.errors import BadConfig, StorageError, UsageError
from sweep.history.events import Saved
from sweep.ledger import signed
from sweep.ledger.folder import Folder
from sweep.slices import retention
from trainables.checkpoint import file, segments, signing
from trainables.checkpoint.file import Loaded
from trainables.checkpoint.opaque import TEMPORARY
from trainables.checkpoint.remote import Remote, RemoteError, RemoteFileMissing
from trainables.checkpoint.signing import Trust
from trainables.core import failpoints
from trainables.errors import (
    CheckpointError,
    CorruptCheckpoint,
    MissingCheckpoint,
    WrongFormat,
)

if TYPE_CHECKING:
    from sweep.history.history import History
    from sweep.history.replica import Replica

#: Says in the storage whose checkpoints lie beside it.
MARK = "sweep.json"
#: A part of the cache's bound; when a process has written so much it looks whether to delete.
_SHARE = 32
_OURS = re.compile(r"(?P<slice>[0-9]{1,19})/(?P<name>ckpt-.*\.swck|seg-[0-9a-f]{64})")
_EXTRAS = {"s3": "s3", "s3a": "s3"}
_T = TypeVar("_T")


class Spare(NamedTuple):
    """A file that no row of the ledger names."""

    trial: int
    replica: int
    name: str
    """Relative to the trial's folder, on disk or in storage."""
    size: int


# ---- one replica's ------------------------------------------------------------------------------


@dataclass
class Store:
    """The checkpoints of one replica: in its folder, and in the sweep's storage if it has one."""

    folder: Path
    url: str = ""
    """The sweep's, in some storage; empty: they are in the folder alone."""
    sources: Sequence[Saved] = ()
    """Those that stay while this is used, of which new ones may share segments."""
    _there: set[str] | None = field(default=None, init=False)

    @property
    def remote(self) -> Remote:
        """The replica's folder in storage."""
        return Remote(f"{self.url}/trials/{self.folder.name}")

    def path(self, saved: Saved) -> Path:
        """Return the path of a checkpoint on disk, should it be there."""
        return self.folder / saved.file.rpartition("/")[2]

    def where(self, saved: Saved) -> str:
        """Return the URL or the path of a checkpoint, for messages."""
        return f"{self.remote.url}/{saved.file}" if self.url else str(self.path(saved))

    def read(self, saved: Saved, trust: Trust | None = None) -> Loaded:
        """Read and verify one; raises as `file.read`, and RemoteError."""
        if self.url:
            with contextlib.suppress(CheckpointError):
                return file.read(self.path(saved), saved.digest, trust)
            return self._fetched(saved, lambda path: file.read(path, saved.digest, trust))
        return file.read(self.path(saved), saved.digest, trust)

    def verify(self, saved: Saved) -> None:
        """Check that it is whole where it lies; raises as `read`."""
        if self.url:
            self._fetched(saved, lambda path: file.verify(path, saved.digest))
        else:
            file.verify(self.path(saved), saved.digest)

    def adopt(self, saved: Saved) -> Saved | None:
        """Take over a checkpoint of a slice that did not return; None: it is lost.

        The slice may live on, cut off, and deletes what it has written on the disk when it has
        written more; so it is given a second name, of which the slice knows nothing.
        """
        if self.url:
            return saved
        path = self.path(saved)
        second = path.with_name(f"ckpt-{saved.iteration:019d}-{saved.digest}.swck")
        try:
            with contextlib.suppress(FileExistsError):  # a driver that was killed then gave it
                _link(path, second)
            digest, _ = file.identify(second)
            whole = digest == saved.digest and all(
                (self.folder / segment).is_file() for segment in file.segments_of(second)
            )
            if whole:
                file.make_durable(second)
        except (OSError, CheckpointError):
            whole = False
        return replace(saved, file=second.name) if whole else None

    def send(self, written: file.Saved, number: int, cache: int) -> str:
        """Put what slice `number` has written into the folder where it is to lie.

        Returns what the ledger names it. At most about `cache` bytes stay on disk.

        Raises:
            RemoteError: the storage did not take it.
        """
        name = written.path.name
        if not self.url:
            return name
        ours, there = self.remote.below(str(number)), self._shared(written)
        try:
            if new := sorted(written.segments - there):
                ours.put({segment: self.folder / segment for segment in new})
                failpoints.reach("segments sent")
            ours.put({name: written.path})
        except FileNotFoundError as error:
            raise OSError(errno.ESTALE, f"{written.path}: deleted before it was sent") from error
        failpoints.reach("checkpoint sent")
        there |= written.segments
        for sent in (name, *written.segments):
            with contextlib.suppress(FileNotFoundError):
                (self.folder / sent).chmod(_SENT)
        _make_room(self.folder.parent, written.size, cache)
        return f"{number}/{name}"

    def _shared(self, written: file.Saved) -> set[str]:
        """Names of segments that are in storage and stay there."""
        if self._there is None:
            self._there = set()
            if written.segments and self.sources:
                with contextlib.suppress(CheckpointError):
                    needed = _needed(self, [saved.file for saved in self.sources])
                    self._there = needed & _names(self.remote.sizes())
        return self._there

    def _fetched(self, saved: Saved, use: Callable[[Path], _T]) -> _T:
        """Return the result of `use` on a copy; if that is damaged, on a second copy."""
        try:
            try:
                return self._with_copy(saved, use)
            except (CorruptCheckpoint, WrongFormat):  # it may have been damaged on its way
                return self._with_copy(saved, use)
        except RemoteFileMissing as error:
            require(self.url)
            raise MissingCheckpoint(self.where(saved), "there is no such file") from error
        except CheckpointError as error:
            raise type(error)(self.where(saved), error.reason) from error

    def _with_copy(self, saved: Saved, use: Callable[[Path], _T]) -> _T:
        with _scratch(self.folder) as scratch:
            path = scratch / self.path(saved).name
            its_slice, _, name = saved.file.rpartition("/")
            if (size := self.remote.below(its_slice).sizes().get(name)) is None:
                raise RemoteFileMissing(self.remote.url, f"{saved.file} is not there")
            sizes = {saved.file: size}
            self._check_size(saved, sizes)
            self.remote.get({saved.file: path})
            if needed := file.segments_of(path):
                listed = self.remote.sizes()
                # One that was cut off while it was sent may lie below another slice: the largest.
                by_size = sorted(listed, key=listed.__getitem__)
                lies = {name.rpartition("/")[2]: name for name in by_size}
                if lost := sorted(needed - lies.keys()):
                    raise CorruptCheckpoint(path, f"its segment {lost[0]} is missing")
                sizes |= {lies[segment]: listed[lies[segment]] for segment in needed}
                self._check_size(saved, sizes)
                self.remote.get({lies[segment]: scratch / segment for segment in sorted(needed)})
            return use(path)

    def _check_size(self, saved: Saved, sizes: Mapping[str, int]) -> None:
        if (found := sum(sizes.values())) > saved.size:
            reason = f"its files have {found} bytes; the ledger names {saved.size}"
            raise CorruptCheckpoint(self.where(saved), reason)


def _link(path: Path, second: Path) -> None:
    """Give a file a second name, where it is copied if the file system has no such names."""
    try:
        os.link(path, second, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        shutil.copyfile(path, second, follow_symlinks=False)


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder that is gone afterwards; in `folder`, where the sweep has its room, if it may."""
    within = folder if os.access(folder, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=within) as scratch:
        yield Path(scratch)


def _needed(store: Store, files: Collection[str]) -> set[str]:
    """Names of the segments that checkpoints need; raises as `Store.read`, but for missing ones."""
    needed: set[str] = set()
    for name in files:
        try:
            try:
                needed |= file.segments_of(store.folder / name.rpartition("/")[2])
            except (MissingCheckpoint, CorruptCheckpoint):
                with _scratch(store.folder) as scratch:
                    path = scratch / name.rpartition("/")[2]
                    store.remote.get({name: path})
                    needed |= file.segments_of(path)
        except RemoteFileMissing:
            continue
    return needed


# ---- the cache ----------------------------------------------------------------------------------

#: Folder of all trials → bytes that this process has written there since it last looked.
_written: dict[Path, int] = {}
#: Mode of a file that is in storage, too: nobody may write it.
_SENT = 0o400


def _make_room(trials: Path, size: int, cache: int) -> None:
    """Delete from the disk what was written first and is in storage, until `cache` bytes suffice.

    It is called when `size` bytes were sent, and looks when they have become a share of the bound.
    """
    _written[trials] = _written.get(trials, cache) + size
    if _written[trials] < cache // _SHARE:
        return
    _written[trials] = 0
    found = sorted(_on_disk(trials))
    over = sum(size for _, size, _, _ in found) - (cache - cache // 4)
    for _, size, path, sent in found:
        if over <= 0:
            return
        if sent:
            path.unlink(missing_ok=True)
            over -= size


def _on_disk(trials: Path) -> Iterator[tuple[int, int, Path, bool]]:
    """Each checkpoint and segment: when it was written, bytes, path, whether it is in storage."""
    for path in trials.glob("*/*-*"):
        if path.name.startswith(("ckpt-", "seg-")):
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                sent = stat.S_IMODE(found.st_mode) == _SENT
                yield found.st_mtime_ns, found.st_size, path, sent


# ---- all of a sweep -----------------------------------------------------------------------------


class SweepStore:
    """The checkpoints of a sweep."""

    def __init__(self, folder: Folder, url: str = "") -> None:
        self.folder = folder
        self.url = url
        self._behind: ThreadPoolExecutor | None = None
        """Deletes what nobody needs in storage while the driver goes on."""

    def replica(self, trial: int, replica: int) -> Store:
        """Those of one replica."""
        return Store(self.folder.trial(trial, replica), self.url)

    def spare(self, history: "History") -> list[Spare]:
        """All files of ours that no row names; no slice may run."""
        listed = Remote(self.url).sizes("trials") if self.url else {}
        sizes: dict[str, dict[str, int]] = {}
        for name, size in listed.items():
            trial, _, within = name.removeprefix("trials/").partition("/")
            sizes.setdefault(trial, {})[within] = size
        return [spare for replica in history.everyone for spare in self._spare(replica, sizes)]

    def _spare(self, replica: "Replica", sizes: Mapping[str, Mapping[str, int]]) -> Iterator[Spare]:
        store = self.replica(replica.trial, replica.index)
        for name in retention.left_over(store.folder, _names(replica.files)):
            size = (store.folder / name).lstat().st_size
            yield Spare(replica.trial, replica.index, name, size)
        there = sizes.get(store.folder.name, {})
        for name in _unnamed(store, there, replica.files, replica.slices):
            yield Spare(replica.trial, replica.index, name, there[name])

    def sweep_up(self, history: "History") -> list[Spare]:
        """Delete what a crash left, and what the ledger no longer names; no slice may run.

        Raises:
            RemoteError: the storage did not let it be deleted.
        """
        gone = self.spare(history)
        for spare in gone:
            if "/" not in spare.name:
                (self.folder.trial(spare.trial, spare.replica) / spare.name).unlink(missing_ok=True)
        remote = [
            f"trials/{self.folder.trial(spare.trial, spare.replica).name}/{spare.name}"
            for spare in gone
            if "/" in spare.name
        ]
        if remote:
            Remote(self.url).delete(remote)
        return gone

    def let_go(self, replica: "Replica") -> None:
        """Delete the files of a replica that the history has let go of, where no slice runs.

        In storage they are deleted soon, or when the driver ends.
        """
        store = self.replica(replica.trial, replica.index)
        retention.sweep_up(store.folder, _names(replica.files))
        if self._behind is not None:
            self._behind.submit(_delete_unnamed, store, replica.files, replica.slices)

    @contextlib.contextmanager
    def driven(self) -> Iterator[None]:
        """While it is entered, what is let go of is deleted in storage, too."""
        if not self.url:
            yield
            return
        self._behind = ThreadPoolExecutor(1)
        try:
            yield
        finally:
            self._behind.shutdown(cancel_futures=True)
            self._behind = None

    def everything(self) -> Mapping[str, int]:
        """Name → bytes of all that lies in storage."""
        return Remote(self.url).sizes() if self.url else {}

    def remove(self) -> None:
        """Delete everything in storage; the mark goes last."""
        if names := self.everything():
            Remote(self.url).delete([name for name in names if name != MARK])
            Remote(self.url).delete([MARK])


def _names(files: Collection[str]) -> set[str]:
    """The names on disk of what the ledger names."""
    return {name.rpartition("/")[2] for name in files}


def _unnamed(
    store: Store, sizes: Mapping[str, int], named: Collection[str], slices: int
) -> list[str]:
    """Return the files of the first `slices` slices that are neither named nor needed."""
    ours = {name: match for name in sizes if (match := _OURS.fullmatch(name))}
    over = {name: m["name"] for name, m in ours.items() if int(m["slice"]) < slices}
    large = {name for name, alone in over.items() if segments.PATTERN.fullmatch(alone)}
    needed = set(over.values())
    if large:
        with contextlib.suppress(CheckpointError):  # then all of them stay
            needed = _needed(store, named)
    return [
        name
        for name, alone in over.items()
        if name not in named and not (name in large and alone in needed)
    ]


def _delete_unnamed(store: Store, named: Collection[str], slices: int) -> None:
    with contextlib.suppress(OSError):  # what stays goes when the driver ends
        store.remote.delete(_unnamed(store, store.remote.sizes(), named, slices))


# ---- which storage ------------------------------------------------------------------------------


def check(url: str) -> str:
    """The URL that ``--checkpoints`` gives, as it is kept.

    Raises:
        BadConfig: it is none, or names a person or a secret, or its library is not installed.
    """
    allowed = "the URL of a folder, such as s3://bucket/prefix"
    scheme, netloc, path, query, fragment = urlsplit(url)
    if "@" in netloc or query or fragment:
        hint = "credentials come from the environment or files, such as AWS_ACCESS_KEY_ID"
        problem = "a URL with a user, a key or a query"
        raise BadConfig("--checkpoints", "", f"{allowed}, alone", hint, problem=problem)
    import fsspec

    if "::" in url or not scheme or not (netloc + path).strip("/"):
        raise BadConfig("--checkpoints", url, allowed)
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError as error:  # fsspec knows no such scheme
        raise BadConfig("--checkpoints", url, allowed) from error
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        hint = f"pip install 'sweep-rl[{extra}]'" if extra else str(error)
        known = f"a URL of what is installed, which {scheme} is not"
        raise BadConfig("--checkpoints", url, known, hint) from error
    return url.rstrip("/")


def examine(url: str, patience_s: float) -> float | None:
    """Write, list, read and delete a small file in the storage of `url`, as a sweep would.

    Returns:
        By how many seconds the storage's clock is ahead of this one, to about a second; None: it
        does not say.

    Raises:
        BadConfig: no checkpoints can lie there.
        StorageError: it does not let one of these be done.
    """
    scheme, _, path = check(url).partition("://")
    if scheme == "file":  # a folder that is not there yet is not made for this
        there = Path(path)
        path = str(next(one for one in (there, *there.parents) if one.is_dir()))
    place, name = Remote(f"{scheme}://{path}", patience_s), f".sweep-doctor-{secrets.token_hex(8)}"
    doing = "written"
    try:
        began = time.time()
        place.write(name, name.encode())
        written = place.written_at(name)
        middle = (began + time.time()) / 2
        doing = "listed"
        if name not in place.sizes(name):
            raise RemoteError(place.url, f"{name} is not listed after it was written")
        doing = "read"
        if place.read(name) != name.encode():
            raise RemoteError(place.url, f"{name} is read as something else")
        doing = "deleted"
        place.delete([name])
    except OSError as error:
        with contextlib.suppress(OSError):
            Remote(place.url, 0.0).delete([name])
        raise StorageError(f"nothing can be {doing}: {error}") from error
    return None if written is None else written - middle


def begin(folder: Folder, url: str, name: str, sweep_id: str) -> None:
    """Make the place in storage of a new sweep, and keep its URL in the sweep's folder.

    Raises:
        StorageError: the storage does not take it.
        SigningError: there is no key, so nobody could know that this person chose the URL.
    """
    its = f"{url}/{name}-{sweep_id}"
    try:
        Remote(its).write(MARK, json.dumps({"sweep": sweep_id, "name": name}).encode())
        _require(its, sweep_id)
    except OSError as error:
        raise StorageError(f"--checkpoints: {error}") from error
    _keep(folder, its)


def of(folder: Folder) -> SweepStore:
    """Return the store of a sweep's checkpoints.

    Raises:
        UsageError: somebody else has chosen the storage.
    """
    url = said(folder)
    if url and not signed.is_accepted(signed.read(folder.checkpoints), folder.checkpoints):
        raise UsageError(
            f"{folder.name}: its checkpoints lie in {url}, as somebody else has said; "
            f"`sweep resume {folder.in_commands} --checkpoints URL` takes your word for it, "
            f"`sweep trust {folder.checkpoints}` theirs"
        )
    return SweepStore(folder, url)


def said(folder: Folder) -> str:
    """The URL of a sweep's storage as somebody has said it; empty: it has none."""
    try:
        return str(signed.read(folder.checkpoints)["url"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{folder.checkpoints}: holds no URL of checkpoints") from error


def move(folder: Folder, url: str, name: str, sweep_id: str) -> None:
    """Have a sweep's checkpoints be looked for in another storage from now on.

    Raises:
        StorageError: they are not there.
    """
    its = f"{url}/{name}-{sweep_id}"
    try:
        _require(its, sweep_id)
    except OSError as error:
        raise StorageError(f"--checkpoints: {error}") from error
    _keep(folder, its)


def _keep(folder: Folder, url: str) -> None:
    signing.local()  # without a key nobody could know that this person chose it
    signed.keep(folder.checkpoints, {"url": url})


def require(url: str) -> None:
    """RemoteError unless the storage has the mark of a sweep: nothing there proves no loss."""
    _require(url, url.rpartition("-")[2])


def _require(url: str, sweep_id: str) -> None:
    try:
        said = json.loads(Remote(url).read(MARK))
    except (RemoteFileMissing, ValueError) as error:
        why = f"has no {MARK}: is it the right storage, and the right endpoint?"
        raise RemoteError(url, why) from error
    if said.get("sweep") != sweep_id:
        raise RemoteError(url, f"its {MARK} names another sweep")
