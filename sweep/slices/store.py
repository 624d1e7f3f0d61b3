"""Storage of a sweep's checkpoints: its folder alone, or object storage behind it.

URL/NAME-ID/sweep.json               identifies the sweep of these checkpoints
            trials/N/SLICE/ckpt-*    files written by one slice, with the same names as on disk
            trials/N/SLICE/seg-*

With object storage the folder is a cache. A slice writes a checkpoint to disk as usual, then sends
it, and only then names it in its outcome: segments first, then the file that names their digests.

**Write access.** A slice only adds files, under its own number, which the ledger assigns once. A
driver deletes only files under the numbers of finished slices that its history does not name. So a
worker or driver that was cut off and returns can neither replace nor delete files of another one,
and nothing names the files that it leaves.
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

from sweep.core.errors import BadConfig, StorageError, UsageError
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

#: Name of the file in the storage that identifies the sweep.
MARK = "sweep.json"
#: Fraction of the cache's size, as a divisor: after writing so much, a process checks the size.
_SHARE = 32
#: Pattern of a checkpoint's or segment's name in object storage, with its slice.
_FILE_PATTERN = re.compile(r"(?P<slice>[0-9]{1,19})/(?P<name>ckpt-.*\.swck|seg-[0-9a-f]{64})")
#: Beginning of a storage's URL → extra of this package that installs its client.
_EXTRAS = {"s3": "s3", "s3a": "s3"}
_T = TypeVar("_T")


class Spare(NamedTuple):
    """File of a checkpoint or segment that no row of the ledger names, to be deleted."""

    trial: int
    """Number of the trial."""
    replica: int
    """Index of the replica in the trial."""
    name: str
    """Path relative to the replica's folder; one in object storage begins with the slice's number
    and ``/``."""
    size: int
    """Size in bytes."""


# ---- one replica --------------------------------------------------------------------------------


@dataclass
class Store:
    """Storage of one replica's checkpoints: its folder, and the sweep's object storage if any."""

    folder: Path
    """Path of the replica's folder on disk."""
    url: str = ""
    """URL of the sweep's folder in object storage; empty if checkpoints are only on disk."""
    sources: Sequence[Saved] = ()
    """Checkpoints that are not deleted while this store is used, so that new ones may share their
    segments."""
    _stored_segments: set[str] | None = field(default=None, init=False)
    """Names of segments in object storage that new checkpoints may share: those of `sources`, and
    those sent since; None until they are listed."""

    @property
    def remote(self) -> Remote:
        """Folder of the replica in object storage; only with `url`."""
        return Remote(f"{self.url}/trials/{self.folder.name}")

    def path(self, saved: Saved) -> Path:
        """Return the path that a checkpoint has on disk.

        With object storage the file may be missing.
        """
        return self.folder / saved.file.rpartition("/")[2]

    def describe_location(self, saved: Saved) -> str:
        """Return the URL or path of a checkpoint, for messages."""
        return f"{self.remote.url}/{saved.file}" if self.url else str(self.path(saved))

    def read(self, saved: Saved, trust: Trust | None = None) -> Loaded:
        """Read and verify a checkpoint, from disk or else from object storage.

        `trust` is needed for one that may run code, else None.

        Raises:
            RemoteError: the object storage failed.
            CheckpointError: as in `file.read`.
        """
        if self.url:
            with contextlib.suppress(CheckpointError):
                return file.read(self.path(saved), saved.digest, trust)
            return self._use_copy(saved, lambda path: file.read(path, saved.digest, trust))
        return file.read(self.path(saved), saved.digest, trust)

    def verify(self, saved: Saved) -> None:
        """Check that a checkpoint is intact in object storage, or on disk without one.

        Raises CheckpointError if it is not, and RemoteError if the object storage failed.
        """
        if self.url:
            self._use_copy(saved, lambda path: file.verify(path, saved.digest))
        else:
            file.verify(self.path(saved), saved.digest)

    def adopt(self, saved: Saved) -> Saved | None:
        """Take over a checkpoint of a slice that did not return.

        Returns its new record; None if it is lost. The slice may still run somewhere, cut off, and
        delete its older files. So on disk the file gets a second name, which that slice does not
        know, and is made to survive a power cut. With object storage the record is returned
        unchanged and unchecked.
        """
        if self.url:
            return saved
        path = self.path(saved)
        second = path.with_name(f"ckpt-{saved.iteration:019d}-{saved.digest}.swck")
        try:
            # an earlier driver was killed just after this
            with contextlib.suppress(FileExistsError):
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
        """Send a checkpoint that slice `number` wrote to the object storage, if there is one.

        Returns the file name for the ledger. Segments that the storage has already are not sent
        again. Sent files become read-only, and about `cache` bytes at most stay on disk: older ones
        are deleted. Raises RemoteError if the object storage refused, and OSError if the file was
        deleted meanwhile.
        """
        name = written.path.name
        if not self.url:
            return name
        ours, shared = self.remote.subfolder(str(number)), self._shared_segments(written)
        try:
            if new := sorted(written.segments - shared):
                ours.put({segment: self.folder / segment for segment in new})
                failpoints.reach("segments sent")
            ours.put({name: written.path})
        except FileNotFoundError as error:
            raise OSError(
                errno.ESTALE, f"{written.path}: the file was deleted before it was uploaded"
            ) from error
        failpoints.reach("checkpoint sent")
        shared |= written.segments
        for sent in (name, *written.segments):
            with contextlib.suppress(FileNotFoundError):
                (self.folder / sent).chmod(_SENT)
        _make_room(self.folder.parent, written.size, cache)
        return f"{number}/{name}"

    def _shared_segments(self, written: file.Saved) -> set[str]:
        """Return the names of segments in object storage that a checkpoint may share.

        Every call returns the same set. The first call fills it with the segments of `sources` that
        are in the storage, if `written` has segments; it stays empty if a source is unusable. The
        caller adds the segments that it sends. Raises RemoteError if the storage failed.
        """
        if self._stored_segments is None:
            self._stored_segments = set()
            if written.segments and self.sources:
                with contextlib.suppress(CheckpointError):
                    needed = _needed_segments(self, [saved.file for saved in self.sources])
                    self._stored_segments = needed & _local_names(self.remote.sizes())
        return self._stored_segments

    def _use_copy(self, saved: Saved, use: Callable[[Path], _T]) -> _T:
        """Return `use(path)` for a downloaded copy of a checkpoint, which is deleted afterwards.

        A damaged copy is downloaded once more.

        Raises:
            MissingCheckpoint: the storage does not have the checkpoint.
            RemoteError: the storage failed, or is not that of the sweep.
            CheckpointError: `use` raised it for the second copy.
        """
        try:
            try:
                return self._download(saved, use)
            except (CorruptCheckpoint, WrongFormat):  # it may have been damaged in transit
                return self._download(saved, use)
        except RemoteFileMissing as error:
            require(self.url)
            raise MissingCheckpoint(
                self.describe_location(saved), "there is no such file"
            ) from error
        except CheckpointError as error:
            raise type(error)(self.describe_location(saved), error.reason) from error

    def _download(self, saved: Saved, use: Callable[[Path], _T]) -> _T:
        """Download a checkpoint with its segments, and return `use(path)`.

        The copy is deleted afterwards. Raises RemoteFileMissing if the checkpoint is not there, and
        CorruptCheckpoint if a segment is missing or the files are larger than recorded.
        """
        with _scratch(self.folder) as scratch:
            path = scratch / self.path(saved).name
            its_slice, _, name = saved.file.rpartition("/")
            if (size := self.remote.subfolder(its_slice).sizes().get(name)) is None:
                raise RemoteFileMissing(self.remote.url, f"there is no file {saved.file}")
            sizes = {saved.file: size}
            self._check_size(saved, sizes)
            self.remote.get({saved.file: path})
            if needed := file.segments_of(path):
                listed = self.remote.sizes()
                # A segment whose upload was cut off may also exist under another slice: use the
                # largest.
                by_size = sorted(listed, key=listed.__getitem__)
                lies = {name.rpartition("/")[2]: name for name in by_size}
                if lost := sorted(needed - lies.keys()):
                    raise CorruptCheckpoint(
                        path, f"the file {lost[0]} of the checkpoint is missing"
                    )
                sizes |= {lies[segment]: listed[lies[segment]] for segment in needed}
                self._check_size(saved, sizes)
                self.remote.get({lies[segment]: scratch / segment for segment in sorted(needed)})
            return use(path)

    def _check_size(self, saved: Saved, sizes: Mapping[str, int]) -> None:
        """Raise CorruptCheckpoint if files to download are larger than the ledger says.

        `sizes` maps their names to bytes.
        """
        if (found := sum(sizes.values())) > saved.size:
            reason = f"its files have {found} bytes, but the ledger says {saved.size}"
            raise CorruptCheckpoint(self.describe_location(saved), reason)


def _link(path: Path, second: Path) -> None:
    """Give a file a second name: a hard link, or a copy if the file system has no links.

    Raises FileExistsError if that name exists.
    """
    try:
        os.link(path, second, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        shutil.copyfile(path, second, follow_symlinks=False)


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, inside `folder` if that is writable; it is deleted afterwards."""
    within = folder if os.access(folder, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=within) as scratch:
        yield Path(scratch)


def _needed_segments(store: Store, files: Collection[str]) -> set[str]:
    """Return the names of the segments that these checkpoint files need.

    Files that are not on disk are downloaded; those missing in storage are skipped.

    Raises:
        CheckpointError, RemoteError: as in `Store.read`.
    """
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

#: Folder of all trials → bytes that this process has written there since its last check.
_unchecked_bytes: dict[Path, int] = {}
#: Mode of a file that is in storage too: read-only marks it as sent.
_SENT = 0o400


def _make_room(trials: Path, size: int, cache: int) -> None:
    """Delete the oldest sent files from disk until all files fit in three quarters of the cache.

    Sent files are those that are also in object storage; others stay.

    Args:
        trials: folder of all trials' folders.
        size: bytes that were just written; the check is made once they add up to a share of
            `cache`.
        cache: maximum bytes of checkpoints on disk.
    """
    _unchecked_bytes[trials] = _unchecked_bytes.get(trials, cache) + size
    if _unchecked_bytes[trials] < cache // _SHARE:
        return
    _unchecked_bytes[trials] = 0
    found = sorted(_list_disk(trials))
    excess = sum(size for _, size, _, _ in found) - (cache - cache // 4)
    for _, size, path, sent in found:
        if excess <= 0:
            return
        if sent:
            path.unlink(missing_ok=True)
            excess -= size


def _list_disk(trials: Path) -> Iterator[tuple[int, int, Path, bool]]:
    """Yield the checkpoints and segments of all trials on disk.

    Each item is (time of writing in ns, bytes, path, True if it is in object storage too).
    """
    for path in trials.glob("*/*-*"):
        if path.name.startswith(("ckpt-", "seg-")):
            with contextlib.suppress(FileNotFoundError):
                found = path.lstat()
                sent = stat.S_IMODE(found.st_mode) == _SENT
                yield found.st_mtime_ns, found.st_size, path, sent


# ---- a whole sweep ------------------------------------------------------------------------------


class SweepStore:
    """Storage of a whole sweep's checkpoints."""

    def __init__(self, folder: Folder, url: str = "") -> None:
        self.folder = folder
        self.url = url
        self._deleter: ThreadPoolExecutor | None = None
        """Executor that deletes files in object storage in the background; None unless a driver
        enables it."""

    def replica(self, trial: int, replica: int) -> Store:
        """Return the storage of one replica's checkpoints; `replica` is its index."""
        return Store(self.folder.trial(trial, replica), self.url)

    def unnamed_files(self, history: "History") -> list[Spare]:
        """Return all checkpoint files that no row of the ledger names.

        These are checkpoints, segments that no named checkpoint needs, and temporary files, on disk
        and in object storage. No slice may run. Raises RemoteError if the object storage refused.
        """
        listed = Remote(self.url).sizes("trials") if self.url else {}
        sizes: dict[str, dict[str, int]] = {}
        for name, size in listed.items():
            trial, _, within = name.removeprefix("trials/").partition("/")
            sizes.setdefault(trial, {})[within] = size
        return [
            spare for replica in history.all_replicas for spare in self._find_spare(replica, sizes)
        ]

    def _find_spare(
        self, replica: "Replica", sizes: Mapping[str, Mapping[str, int]]
    ) -> Iterator[Spare]:
        """Yield the files of one replica that no row of the ledger names.

        `sizes` lists the object storage: name of a replica's folder → name of a file → bytes.
        """
        store = self.replica(replica.trial, replica.index)
        for name in retention.leftover_files(store.folder, _local_names(replica.files)):
            size = (store.folder / name).lstat().st_size
            yield Spare(replica.trial, replica.index, name, size)
        there = sizes.get(store.folder.name, {})
        for name in _unnamed_files(store, there, replica.files, replica.slices):
            yield Spare(replica.trial, replica.index, name, there[name])

    def sweep_up(self, history: "History") -> list[Spare]:
        """Delete leftovers of crashes and files that the ledger no longer names; return them.

        No slice may run. Raises RemoteError if the object storage refused.
        """
        gone = self.unnamed_files(history)
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

    def delete_unnamed_files(self, replica: "Replica") -> None:
        """Delete the files of a replica that its history no longer names.

        Files on disk are deleted at once. Those in object storage are deleted in a thread, but only
        inside `background_deletion`. No slice of the replica may run.
        """
        store = self.replica(replica.trial, replica.index)
        retention.sweep_up(store.folder, _local_names(replica.files))
        if self._deleter is not None:
            self._deleter.submit(_delete_unnamed, store, replica.files, replica.slices)

    @contextlib.contextmanager
    def background_deletion(self) -> Iterator[None]:
        """Let `delete_unnamed_files` delete files in object storage, in a thread, inside the block.

        Deletions that have not begun at the end of the block are dropped.
        """
        if not self.url:
            yield
            return
        self._deleter = ThreadPoolExecutor(1)
        try:
            yield
        finally:
            self._deleter.shutdown(cancel_futures=True)
            self._deleter = None

    def list_sizes(self) -> Mapping[str, int]:
        """Return path → bytes of all files in the sweep's folder in object storage.

        Paths are relative to that folder. The mapping is empty if the sweep has no object storage.
        """
        return Remote(self.url).sizes() if self.url else {}

    def remove(self) -> None:
        """Delete all files of the sweep in object storage, if it has one.

        The file that identifies it goes last. Raises RemoteError if the storage refused.
        """
        if names := self.list_sizes():
            Remote(self.url).delete([name for name in names if name != MARK])
            Remote(self.url).delete([MARK])


def _local_names(files: Collection[str]) -> set[str]:
    """Return the names on disk of files as the ledger names them, without the slice's number."""
    return {name.rpartition("/")[2] for name in files}


def _unnamed_files(
    store: Store, sizes: Mapping[str, int], named: Collection[str], slices: int
) -> list[str]:
    """Return files in object storage that are neither named by the ledger nor needed.

    Segments of named checkpoints are needed. `sizes` maps the replica's files there to bytes; only
    those of its first `slices` slices, which have ended, are returned. `named` are the files that
    the ledger names. All segments stay if a named checkpoint cannot be read.
    """
    ours = {name: match for name in sizes if (match := _FILE_PATTERN.fullmatch(name))}
    ended = {name: m["name"] for name, m in ours.items() if int(m["slice"]) < slices}
    large = {name for name, alone in ended.items() if segments.PATTERN.fullmatch(alone)}
    needed = set(ended.values())
    if large:
        with contextlib.suppress(CheckpointError):  # then all segments stay
            needed = _needed_segments(store, named)
    return [
        name
        for name, alone in ended.items()
        if name not in named and not (name in large and alone in needed)
    ]


def _delete_unnamed(store: Store, named: Collection[str], slices: int) -> None:
    """Delete a replica's files in object storage that `_unnamed_files` finds.

    Errors of the storage are ignored. `named` are the files that the ledger names, `slices` is the
    number of the replica's slices, which have all ended.
    """
    with contextlib.suppress(OSError):  # the rest is deleted when the driver ends
        store.remote.delete(_unnamed_files(store, store.remote.sizes(), named, slices))


# ---- choice of the storage ----------------------------------------------------------------------


def check(url: str) -> str:
    """Return the URL given to ``--checkpoints`` without trailing slashes.

    Raises:
        BadConfig: it is not a URL of a folder, contains a user or secret, or its library is not
            installed.
    """
    allowed = "the URL of a folder, such as s3://bucket/prefix"
    scheme, netloc, path, query, fragment = urlsplit(url)
    if "@" in netloc or query or fragment:
        hint = "give credentials in the environment or in files, for example AWS_ACCESS_KEY_ID"
        problem = "the URL contains a user, a key or a query"
        raise BadConfig("--checkpoints", "", f"{allowed}, without these", hint, problem=problem)
    import fsspec

    if "::" in url or not scheme or not (netloc + path).strip("/"):
        raise BadConfig("--checkpoints", url, allowed)
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError as error:  # fsspec does not know the scheme
        raise BadConfig("--checkpoints", url, allowed) from error
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        problem = f"the library for {scheme} is not installed"
        hint = f"install it: pip install 'sweep-rl[{extra}]'" if extra else str(error)
        raise BadConfig("--checkpoints", url, hint=hint, problem=problem) from error
    return url.rstrip("/")


#: Remedy for a storage that fails.
_DOCTOR = "test the storage with `sweep doctor --checkpoints URL`"


def examine(url: str, patience_s: float) -> float | None:
    """Write, list, read and delete a small file in the storage at `url`, as a sweep would.

    Failing operations are retried for `patience_s` seconds.

    Returns:
        Seconds by which the storage's clock is ahead of this machine's, accurate to about a second;
        None if the storage reports no time.

    Raises:
        BadConfig: the URL is not valid for checkpoints.
        StorageError: one of the operations failed.
    """
    scheme, _, path = check(url).partition("://")
    if scheme == "file":  # a missing folder is not created for this test
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
            raise RemoteError(
                place.url,
                f"{name} is not listed after it was written; use a storage that lists new files "
                "at once",
            )
        doing = "read"
        if place.read(name) != name.encode():
            raise RemoteError(
                place.url,
                f"the contents read from {name} differ from those written to it; use another "
                "storage",
            )
        doing = "deleted"
        place.delete([name])
    except OSError as error:
        with contextlib.suppress(OSError):
            Remote(place.url, 0.0).delete([name])
        raise StorageError(f"nothing can be {doing}: {error}") from error
    return None if written is None else written - middle


def begin(folder: Folder, url: str, name: str, sweep_id: str) -> None:
    """Create a new sweep's folder ``<url>/<name>-<sweep_id>`` in object storage.

    Its URL, signed by this user, is written to the sweep's `folder`.

    Raises:
        StorageError: the storage refused.
        SigningError: there is no key to sign the URL with.
    """
    folder_url = f"{url}/{name}-{sweep_id}"
    try:
        Remote(folder_url).write(MARK, json.dumps({"sweep": sweep_id, "name": name}).encode())
        _require(folder_url, sweep_id)
    except OSError as error:
        raise StorageError(f"--checkpoints: {error}; {_DOCTOR}") from error
    _write_url(folder, folder_url)


def of_sweep(folder: Folder) -> SweepStore:
    """Return the storage of a sweep's checkpoints, as the sweep's folder names it.

    Raises UsageError if another person chose the storage, and this user has not trusted that.
    """
    url = storage_url(folder)
    if url and not signed.is_accepted(signed.read(folder.checkpoints), folder.checkpoints):
        raise UsageError(
            f"{folder.name}: another user chose {url} as the storage of its checkpoints; to "
            f"choose it yourself, run `sweep resume {folder.in_commands} --checkpoints URL`; "
            f"to accept their choice, run `sweep trust {folder.checkpoints}`"
        )
    return SweepStore(folder, url)


def storage_url(folder: Folder) -> str:
    """Return the URL of a sweep's object storage as its folder names it; empty if it has none.

    Raises UsageError if the file holds no URL, and OSError if it cannot be read.
    """
    try:
        return str(signed.read(folder.checkpoints)["url"])
    except FileNotFoundError:
        return ""
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{folder.checkpoints}: this file contains no URL of a storage for checkpoints; "
            "write it again with `sweep resume NAME --checkpoints URL`"
        ) from error


def move(folder: Folder, url: str, name: str, sweep_id: str) -> None:
    """Record that a sweep's checkpoints are in another object storage from now on.

    Nothing is copied.

    Raises:
        StorageError: the storage ``<url>/<name>-<sweep_id>`` does not hold this sweep, or cannot
            be read.
        SigningError: there is no key to sign the URL with.
    """
    its = f"{url}/{name}-{sweep_id}"
    try:
        _require(its, sweep_id)
    except OSError as error:
        raise StorageError(f"--checkpoints: {error}; {_DOCTOR}") from error
    _write_url(folder, its)


def _write_url(folder: Folder, url: str) -> None:
    """Write the URL of the object storage, signed by this user, to the sweep's folder.

    Raises SigningError if there is no key and none can be made.
    """
    signing.user_trust()  # without a key, the choice could not be attributed to this user
    signed.write(folder.checkpoints, {"url": url})


def require(url: str) -> None:
    """Raise RemoteError unless the storage at `url` says that it holds the sweep in that URL.

    The URL ends with the sweep's ID. Only then do missing files prove that a checkpoint is lost.
    """
    _require(url, url.rpartition("-")[2])


def _require(url: str, sweep_id: str) -> None:
    """Raise RemoteError unless the storage at `url` says that it holds the sweep `sweep_id`.

    It says so in its file `MARK`; without a readable one the error is raised, too.
    """
    try:
        said = json.loads(Remote(url).read(MARK))
    except (RemoteFileMissing, ValueError) as error:
        why = (
            f"the folder contains no {MARK}; copy this sweep's checkpoints there, or correct the "
            "URL or the endpoint"
        )
        raise RemoteError(url, why) from error
    if not isinstance(said, dict) or said.get("sweep") != sweep_id:
        raise RemoteError(
            url,
            f"the {MARK} there names another sweep; give the folder of this sweep with "
            "--checkpoints",
        )
