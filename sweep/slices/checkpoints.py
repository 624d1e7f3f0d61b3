"""The checkpoints of one slice: from which one it begins, and which ones it writes."""

import errno
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sweep.history.events import Saved
from sweep.slices import retention
from sweep.slices.journal import Journal
from sweep.slices.messages import SliceSpec
from sweep.slices.store import Store
from trainables.checkpoint import file
from trainables.checkpoint.remote import RemoteError
from trainables.checkpoint.state import Packed, pack
from trainables.errors import (
    CorruptCheckpoint,
    MissingCheckpoint,
    UnreadableCheckpoint,
    shorten,
)
from trainables.trainable import Trainable

# -------------------------------------------------------------------------------------------------
# Where a slice begins: the newest checkpoint that can be used, or the trial's own beginning.
#
# A checkpoint is taken only if it is the one that the ledger names: its digest, its sweep, its
# trial and its iteration must agree. A bred trial's beginning is a checkpoint of its parent;
# should that be damaged too, there is nothing to fall back to, and the slice fails.
#
# Only what is lost is passed over: a checkpoint that is missing or damaged. One that cannot be
# read just now, that a newer program wrote or that somebody else signed may be good, and the
# slice fails with the reason: to begin anew would let go of it. Where the disk is away that is
# no trial's fault.


@dataclass(frozen=True)
class Loaded:
    """The state that a trainable is restored to."""

    state: Mapping[str, Any] | None
    """None: it begins anew."""
    iteration: int
    skipped: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""


def first_iteration(spec: SliceSpec) -> int:
    """Return the iteration from which a slice starts if nothing is damaged."""
    if spec.sources:
        return spec.sources[0].iteration
    return spec.birth.saved.iteration if spec.birth else 0


def load(spec: SliceSpec, store: Store) -> Loaded:
    """The state that a slice begins from; `store` is of its replica.

    Raises:
        RemoteError: the storage does not give it.
        DiskRefuses: the disk does not give it.
        CheckpointError: one cannot be used, and is not lost; or the checkpoint that a bred trial
            begins from cannot be used.
    """
    skipped: list[str] = []
    for saved in spec.sources:
        try:
            state = _read(spec, store, saved, spec.trial, spec.replica)
        except (MissingCheckpoint, CorruptCheckpoint) as error:
            skipped.append(str(error))
            continue
        return Loaded(state, saved.iteration, tuple(skipped))
    birth = spec.birth
    if birth is None:
        return Loaded(None, 0, tuple(skipped))
    parents = Store(Path(spec.birth_folder), spec.store)
    state = _read(spec, parents, birth.saved, birth.trial, birth.replica)
    return Loaded(state, birth.saved.iteration, tuple(skipped))


def _read(
    spec: SliceSpec, store: Store, saved: Saved, trial: int, replica: int
) -> Mapping[str, Any]:
    try:
        loaded = store.read(saved, spec.trust)
    except UnreadableCheckpoint as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno not in SHORT_OF | _RIGHTS:
            raise DiskRefuses(str(error)) from error
        raise
    expected = {"sweep": spec.sweep_id, "trial": trial, "replica": replica}
    for key, value in {**expected, "step": saved.iteration}.items():
        found = loaded.header.get(key)
        if found != value:
            where = store.where(saved)
            raise CorruptCheckpoint(where, f"belongs elsewhere: its {key} is {shorten(found)}")
    return loaded.state


# -------------------------------------------------------------------------------------------------
# The checkpoints that one slice writes: when, while the disk refuses, and which it keeps.
#
# A checkpoint is written at once, or `HELD_S` after the one before it: small ones are held in
# memory until then, and only those are written that the policy still keeps. Of iterations of some
# milliseconds those are a few in a hundred. What is written on the way is told in the slice's
# journal, so that it is there when the process dies; a power cut it survives only when the slice
# ends, since until then the trial can go on from the slice's beginning. So nothing waits for the
# disk on the way. A checkpoint that the disk refuses is left out and the trial goes on; where the
# slice ends it tries again. Each attempt is a new file. After `MOST_REFUSALS` in a row the slice
# ends without.
#
# The last checkpoint of a trial that is over is told by the slice's outcome alone: a trial that
# goes on from it would train on.

#: How often in a row the disk may refuse before the slice ends.
MOST_REFUSALS = 3
#: Seconds between two attempts where the slice must save.
RETRY_S = 0.5
#: Seconds between two checkpoints on a slice's way, at least, if the spec counts no iterations.
APART_S = 0.5
#: Seconds for which a checkpoint is held in memory, at most; where it is sent to object storage.
HELD_S, HELD_TO_SEND_S = 1.0, 5.0
#: Bytes of all that are held, at most; a checkpoint that is larger is written at once.
HELD_BYTES = 16 * 2**20
#: How many are held before it is asked which of them the policy keeps, if memory allows it.
HELD_COUNT = 8
_OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.ESTALE}
)
#: Errors that are about a process or its machine, and not about a disk.
SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_RIGHTS = frozenset({errno.EACCES, errno.EPERM})


class DiskRefuses(Exception):
    """The disk has refused `MOST_REFUSALS` checkpoints in a row, or the storage or a read one."""


@dataclass(frozen=True, eq=False)
class _Held:
    """A checkpoint in memory."""

    iteration: int
    value: float | None
    header: Mapping[str, Any]
    state: Packed | Mapping[str, Any]
    """Not packed where the trainable gives copies."""
    is_last: bool
    """True if its trial is over there."""


class _Offered(NamedTuple):
    """A checkpoint that is taken when its time has come."""

    state: Mapping[str, Any]
    iteration: int
    value: float | None
    header: Mapping[str, Any]


class Saving:
    """Writes a slice's checkpoints; `saved` are those that it keeps."""

    def __init__(self, spec: SliceSpec, saved: list[Saved], store: Store, journal: Journal) -> None:
        self.saved = saved
        self._store = store
        self._journal = journal
        self._spec = spec
        self._folder = Path(spec.folder)
        self._refusals = 0
        self._held: list[_Held] = []
        self._held_s = HELD_TO_SEND_S if spec.store else HELD_S
        self._taken_at = time.monotonic()
        self._written_at = self._taken_at if spec.store else -math.inf
        self._size: float = math.inf
        """Bytes of the latest one that was packed."""
        self._durable: set[str] = set()
        """Digests of those that survive a power cut."""
        self._lock = threading.RLock()
        """Of everything here: what is held is written by a thread when its time is up."""
        self._offered: _Offered | None = None
        self._later: threading.Timer | None = None
        self._error: BaseException | None = None
        """The exception raised in that thread."""

    def is_due(self, iteration: int) -> bool:
        """Return whether this iteration's checkpoint is to be taken though it is no new best."""
        policy = self._spec.policy
        if policy.every is not None:
            return iteration % policy.every == 0
        # The second best may be any of them.
        return policy.keep_best > 1 or time.monotonic() - self._taken_at >= APART_S

    def has(self, iteration: int) -> bool:
        """Return whether there is a checkpoint of this iteration, on the disk or in memory."""
        with self._lock:
            both: list[Saved | _Held] = [*self.saved, *self._held]
            return any(one.iteration == iteration for one in both)

    def save(
        self,
        trainable: Trainable,
        header: Mapping[str, Any],
        value: float | None,
        must: bool,
        is_last: bool = False,
    ) -> None:
        """Take a checkpoint of where the trainable stands.

        Args:
            trainable: what is saved.
            header: says whose it is; entry ``term``.
            value: the metric there, if there is one.
            must: whether the slice ends here, and must not go on without it.
            is_last: whether the trial is over here.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        finite = value if value is not None and math.isfinite(value) else None
        with self._lock:
            self._save(trainable, header, finite, must, is_last)

    def _save(
        self,
        trainable: Trainable,
        header: Mapping[str, Any],
        value: float | None,
        must: bool,
        is_last: bool,
    ) -> None:
        if self._error is not None:
            raise self._error
        self._offered = None
        while (state := self._taken(trainable)) is None:
            if not must:
                return
            time.sleep(RETRY_S)
        self._taken_at = time.monotonic()
        self._held.append(_Held(trainable.iteration, value, header, state, is_last))
        if self._is_full or len(self._held) > HELD_COUNT:
            self._let_go()
        left_s = self._written_at + self._held_s - time.monotonic()
        if must or self._is_full or left_s <= 0:
            self._write_held(must)
        else:
            self._wake(left_s)

    @property
    def _is_full(self) -> bool:
        return len(self._held) * self._size > HELD_BYTES

    def offer(self, trainable: Trainable, header: Mapping[str, Any], value: float | None) -> None:
        """Take a checkpoint of where a trainable stood that hands its states over.

        It is taken now, or later if there is no newer one until then.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        left_s = self._written_at + self._held_s - time.monotonic()
        if left_s <= 0:
            self.save(trainable, header, value, must=False)
            return
        finite = value if value is not None and math.isfinite(value) else None
        with self._lock:
            self._offered = _Offered(trainable.get_state(), trainable.iteration, finite, header)
            self._wake(left_s)

    def _wake(self, left_s: float) -> None:
        """Write what is held in so many seconds, if nothing else does it before."""
        if self._later is None:
            self._later = threading.Timer(left_s, self._write_later)
            self._later.daemon = True
            self._later.start()

    def finish(self) -> None:
        """Write what is held, and have all that is kept survive a power cut.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        with self._lock:
            if self._later is not None:
                self._later.cancel()
                self._later = None
            if self._error is not None:
                raise self._error
            self._take_offered()
            self._write_held()
            for saved in [one for one in self.saved if one.digest not in self._durable]:
                try:
                    file.make_durable(self._store.path(saved))
                except OSError as error:
                    self.saved.remove(saved)
                    self._refuse(error)

    def _write_later(self) -> None:
        """Write what is held, in a thread of its own."""
        with self._lock:
            if self._later is None:
                return
            self._later = None
            try:
                self._take_offered()
                self._write_held()
            except BaseException as error:  # noqa: BLE001 it is raised where the slice looks next
                self._error = error

    def _take_offered(self) -> None:
        offered, self._offered = self._offered, None
        if offered is not None:
            packed = self._packed(offered.state)
            at = (offered.iteration, offered.value, offered.header)
            self._held.append(_Held(*at, packed, is_last=False))
            self._taken_at = time.monotonic()

    def _write_held(self, must: bool = False) -> None:
        """Write what is held; with `must`, the newest one until the disk takes it."""
        self._let_go()
        while self._held:
            held = self._held.pop(0)
            while not self._write(held, durable=must) and must:
                time.sleep(RETRY_S)
                if self._held:
                    break
        self._let_go()
        self._written_at = time.monotonic()

    def _taken(self, trainable: Trainable) -> Packed | Mapping[str, Any] | None:
        """Return the trainable's state; None if the disk refused the files of its own."""
        try:
            state = trainable.get_state()
        except OSError as error:
            if error.errno not in _OF_THE_DISK:  # it may be about anything that it does
                raise
            self._refuse(error)
            return None
        if trainable.gives_copies and self._size <= HELD_BYTES:
            return state
        packed = self._packed(state)
        return packed.copied() if self._size <= HELD_BYTES else packed

    def _packed(self, state: Packed | Mapping[str, Any]) -> Packed:
        packed = state if isinstance(state, Packed) else pack(dict(state))
        self._size = packed.size
        return packed

    def _write(self, held: _Held, durable: bool) -> bool:
        header, term = held.header, held.header["epoch"]
        trust = self._spec.trust
        packed = self._packed(held.state)
        try:
            durable = durable or bool(self._spec.store)
            written = file.write(self._folder, held.iteration, header, packed, term, trust, durable)
            name = self._store.send(written, self._spec.number, self._spec.policy.cache)
        except OSError as error:
            if error.errno in SHORT_OF:
                raise
            self._refuse(error)
            return False
        self._refusals = 0
        size = written.size
        saved = Saved(held.iteration, written.digest, name, size, held.value)
        self.saved.append(saved)
        if durable:
            self._durable.add(saved.digest)
        if not held.is_last:
            self._journal.saved(saved, str(header["exactness"]))
        return True

    def _let_go(self) -> None:
        """Forget what the policy does not keep, and delete its files."""
        both: list[Saved | _Held] = [*self.saved, *self._held]
        for spare in retention.expendable(both, self._spec.policy, self._spec.sign):
            if isinstance(spare, Saved):
                retention.remove(self._folder, [self._store.path(spare).name])
                self.saved.remove(spare)
            else:
                self._held.remove(spare)

    def _refuse(self, error: OSError) -> None:
        if isinstance(error, RemoteError):  # which has been patient already
            self._held.clear()
            raise DiskRefuses(str(error)) from error
        self._refusals += 1
        if self._refusals == MOST_REFUSALS:
            raise DiskRefuses(error.strerror) from error
