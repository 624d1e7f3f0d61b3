"""The checkpoints of one slice: from which one it begins, and which ones it writes."""

import errno
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.history.events import Saved
from sweep.slices import retention
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
    """What a trainable is put to."""

    state: Mapping[str, Any] | None
    """None: it begins anew."""
    iteration: int
    skipped: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""


def first_iteration(spec: SliceSpec) -> int:
    """Where a slice begins if nothing is damaged."""
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
# Nobody knows of them before the slice has ended: what its process leaves when it dies is swept up.
# So small ones are held in memory, and only those are written that the policy still keeps at the
# end of the slice, or after `HELD_S` seconds: a disk that refuses is noticed then. A checkpoint
# that the disk refuses is left out and the trial goes on; where the slice ends it tries again.
# Each attempt is a new file. After `MOST_REFUSALS` in a row the slice ends without.

#: How often in a row the disk may refuse before the slice ends.
MOST_REFUSALS = 3
#: Seconds between two attempts where the slice must save.
RETRY_S = 0.5
#: Seconds between two checkpoints on a slice's way, at least, if the spec counts no iterations.
APART_S = 0.5
#: Seconds for which a checkpoint is held in memory, at most.
HELD_S = 5.0
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


class Saving:
    """Writes a slice's checkpoints; `saved` are those that it keeps."""

    def __init__(self, spec: SliceSpec, saved: list[Saved], store: Store) -> None:
        self.saved = saved
        self._store = store
        self._spec = spec
        self._folder = Path(spec.folder)
        self._refusals = 0
        self._held: list[_Held] = []
        self._written_at = self._taken_at = time.monotonic()
        self._size: float = math.inf
        """Bytes of the latest one that was packed."""

    def is_due(self, iteration: int) -> bool:
        """Whether this iteration's checkpoint is to be taken though it is no new best."""
        policy = self._spec.policy
        if policy.every is not None:
            return iteration % policy.every == 0
        # The second best may be any of them.
        return policy.keep_best > 1 or time.monotonic() - self._taken_at >= APART_S

    def save(
        self, trainable: Trainable, header: Mapping[str, Any], value: float | None, must: bool
    ) -> None:
        """Take a checkpoint of where the trainable stands.

        Args:
            trainable: what is saved.
            header: says whose it is; entry ``term``.
            value: the metric there, if there is one.
            must: whether the slice ends here, and must not go on without it.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        finite = value if value is not None and math.isfinite(value) else None
        while (state := self._taken(trainable)) is None:
            if not must:
                return
            time.sleep(RETRY_S)
        self._taken_at = time.monotonic()
        self._held.append(_Held(trainable.iteration, finite, header, state))
        if self._is_full or len(self._held) > HELD_COUNT:
            self._let_go()
        if must or self._is_full or time.monotonic() - self._written_at >= HELD_S:
            self.write(must)

    @property
    def _is_full(self) -> bool:
        return len(self._held) * self._size > HELD_BYTES

    def write(self, must: bool = False) -> None:
        """Write what is held; with `must`, the newest one until the disk takes it.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        self._let_go()
        while self._held:
            held = self._held.pop(0)
            while not self._write(held) and must:
                time.sleep(RETRY_S)
                if self._held:
                    break
        self._let_go()
        self._written_at = time.monotonic()

    def _taken(self, trainable: Trainable) -> Packed | Mapping[str, Any] | None:
        """Where it stands; None: the disk refused what it writes itself."""
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

    def _write(self, held: _Held) -> bool:
        header, term = held.header, held.header["epoch"]
        trust = self._spec.trust
        packed = self._packed(held.state)
        try:
            written = file.write(self._folder, held.iteration, header, packed, term, trust)
            name = self._store.send(written, self._spec.number, self._spec.policy.cache)
        except OSError as error:
            if error.errno in SHORT_OF:
                raise
            self._refuse(error)
            return False
        self._refusals = 0
        size = written.size
        self.saved.append(Saved(held.iteration, written.digest, name, size, held.value))
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
