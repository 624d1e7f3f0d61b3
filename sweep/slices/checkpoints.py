"""The checkpoints of one slice: the one that it starts from, and those that it writes."""

import contextlib
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
# The start of a slice: the newest usable checkpoint, or the trial's own beginning.
#
# A checkpoint is used only if it is the one that the ledger names: its digest, sweep, trial and
# iteration must agree. An offspring starts from a checkpoint of its parent; if that is damaged too,
# the slice fails.
#
# Only lost checkpoints are skipped: missing or damaged ones. A checkpoint that cannot be read at
# the moment, that a newer program wrote or that another person signed may be good, so the slice
# fails with the reason instead of discarding it. An unavailable disk is not counted as the trial's
# failure.


@dataclass(frozen=True)
class Loaded:
    """State that a slice starts from."""

    state: Mapping[str, Any] | None
    """State to restore the trainable to; None if the trial starts from scratch."""
    iteration: int
    """Number of the iteration after which the state was saved; 0 from scratch."""
    skipped: tuple[str, ...]
    """Message for each newer checkpoint that is lost and was passed over."""


def first_iteration(spec: SliceSpec) -> int:
    """Return the number of the iteration that a slice starts after, if no checkpoint is lost.

    It is that of the replica's newest checkpoint, else of the parent trial's, else 0.
    """
    if spec.sources:
        return spec.sources[0].iteration
    return spec.birth.saved.iteration if spec.birth else 0


def load(spec: SliceSpec, store: Store) -> Loaded:
    """Return the state that a slice starts from: the newest checkpoint that is not lost.

    If an offspring has none of its own, it is the parent's checkpoint. `store` has the checkpoints
    of the slice's replica.

    Raises:
        RemoteError: the object storage failed.
        DiskRefuses: the disk failed.
        CheckpointError: a checkpoint cannot be used but is not lost, or the parent's checkpoint of
            an offspring cannot be used.
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
    """Return the state in a checkpoint of this sweep, trial, replica and iteration.

    Raises:
        CheckpointError: it cannot be read, or belongs elsewhere; also if the process lacks rights
            or is short of files or memory.
        DiskRefuses: the disk refuses the read.
        RemoteError: the object storage failed.
    """
    try:
        loaded = store.read(saved, spec.trust)
    except UnreadableCheckpoint as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno not in SHORT_OF | _PERMISSION_ERRORS:
            raise DiskRefuses(str(error)) from error
        raise
    expected = {"sweep": spec.sweep_id, "trial": trial, "replica": replica}
    for key, value in {**expected, "step": saved.iteration}.items():
        found = loaded.header.get(key)
        if found != value:
            where = store.describe_location(saved)
            raise CorruptCheckpoint(
                where,
                f"this checkpoint belongs elsewhere: its {key} is {shorten(found)}, not {value}",
            )
    return loaded.state


# -------------------------------------------------------------------------------------------------
# The checkpoints that a slice writes: when, how often it retries, and which ones it keeps.
#
# A checkpoint is written at once, or up to `HELD_S` after the previous one: small ones are held in
# memory until then, and only those that the policy still keeps are written. With iterations of a
# few milliseconds, these are a few percent. A checkpoint written during the slice is added to the
# slice's journal, so that it is found if the process dies. It survives a power cut only once the
# slice has ended, since until then the trial can continue from the start of the slice; so no
# iteration waits for the disk. If the disk refuses a checkpoint, it is skipped and training
# continues; at the end of the slice saving is retried. Each attempt writes a new file. After
# `MOST_REFUSALS` refusals in a row the slice ends without a checkpoint.
#
# The last checkpoint of a finished trial is reported only by the slice's outcome, not by the
# journal: a trial that continued from it would train for too long.

#: Number of refusals by the disk in a row after which the slice ends.
MOST_REFUSALS = 3
#: Seconds between two attempts if the slice must save.
RETRY_S = 0.5
#: Minimum seconds between two checkpoints during a slice if the spec's policy has no `every`.
APART_S = 0.5
#: Maximum seconds for which a checkpoint is held in memory: on disk, and with object storage.
HELD_S, HELD_TO_SEND_S = 1.0, 5.0
#: Maximum bytes held in total; a larger checkpoint is written at once.
HELD_BYTES = 16 * 2**20
#: Number of held checkpoints above which those that the policy does not keep are dropped.
HELD_COUNT = 8
#: Errors for which the disk or storage is blamed, not the trial.
_DISK_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.ESTALE}
)
#: Errors about a shortage in a process or its machine, not about a disk.
SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
#: Errors about missing rights.
_PERMISSION_ERRORS = frozenset({errno.EACCES, errno.EPERM})


class DiskRefuses(Exception):
    """A checkpoint could not be stored or read, which is not blamed on the trial.

    The disk refused too many in a row, the object storage refused one, or a read failed.
    """


@dataclass(frozen=True, eq=False)
class _Held:
    """Checkpoint in memory that is to be written later."""

    iteration: int
    """Number of the iteration after which the state was taken."""
    value: float | None
    """Finite value of the metric at that iteration, else None."""
    header: Mapping[str, Any]
    """Header of the file: plain data that identifies the checkpoint."""
    state: Packed | Mapping[str, Any]
    """State of the trainable; packed into bytes unless the trainable returns copies."""
    is_last: bool
    """True if the trial ends with this checkpoint."""


class _Offered(NamedTuple):
    """State that becomes a held checkpoint, unless a newer one is offered before the next write."""

    state: Mapping[str, Any]
    """State of the trainable."""
    iteration: int
    """Number of the iteration after which the state was taken."""
    value: float | None
    """Finite value of the metric at that iteration, else None."""
    header: Mapping[str, Any]
    """Header of the file: plain data that identifies the checkpoint."""


class Saving:
    """Writer of a slice's checkpoints, which holds small ones in memory for up to some seconds.

    `saved` lists the files that it has written and kept.
    """

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
        """Bytes of the newest packed checkpoint; infinite before the first one."""
        self._durable: set[str] = set()
        """Digests of the written files that survive a power cut."""
        self._lock = threading.RLock()
        """Lock for all attributes: a timer's thread writes held checkpoints too."""
        self._offered: _Offered | None = None
        self._timer: threading.Timer | None = None
        self._error: BaseException | None = None
        """Exception raised in the timer's thread, to be raised again by the next save."""

    def is_due(self, iteration: int) -> bool:
        """Return whether this iteration is to be saved even if its metric is not a new best.

        If the policy has `every`, its multiples are saved. Otherwise, all iterations are saved if
        several best checkpoints are kept, else the first one `APART_S` seconds after this slice's
        last checkpoint, or after its beginning if it has no checkpoint.
        """
        policy = self._spec.policy
        if policy.every is not None:
            return iteration % policy.every == 0
        # Any checkpoint may become the second best.
        return policy.keep_best > 1 or time.monotonic() - self._taken_at >= APART_S

    def has(self, iteration: int) -> bool:
        """Return whether a checkpoint of this iteration is on disk or held in memory."""
        with self._lock:
            both: list[Saved | _Held] = [*self.saved, *self._held]
            return any(one.iteration == iteration for one in both)

    def save(
        self,
        trainable: Trainable,
        header: Mapping[str, Any],
        value: float | None,
        must_succeed: bool,
        is_last: bool = False,
    ) -> None:
        """Take a checkpoint of the trainable's state.

        It is written now, or held in memory for a while. If the disk refuses files of the
        trainable, none is taken, or with `must_succeed` saving is tried again until it works.

        Args:
            header: header of the checkpoint, which identifies it; its entry ``epoch`` is the term.
            value: the metric at this iteration, or None.
            must_succeed: True if the slice ends here and saving is retried until it succeeds.
            is_last: True if the trial ends with this checkpoint, so that none continues from it.

        Raises:
            DiskRefuses: too many refusals of the disk in a row, or one of the object storage.
            Exception: an earlier write in the background raised it.
        """
        finite = value if value is not None and math.isfinite(value) else None
        with self._lock:
            self._save(trainable, header, finite, must_succeed, is_last)

    def _save(
        self,
        trainable: Trainable,
        header: Mapping[str, Any],
        value: float | None,
        must_succeed: bool,
        is_last: bool,
    ) -> None:
        """Do the work of `save`, given its arguments, in the lock; `value` is finite or None."""
        if self._error is not None:
            raise self._error
        self._offered = None
        while (state := self._get_state(trainable)) is None:
            if not must_succeed:
                return
            time.sleep(RETRY_S)
        self._taken_at = time.monotonic()
        self._held.append(_Held(trainable.iteration, value, header, state, is_last))
        if self._is_full or len(self._held) > HELD_COUNT:
            self._drop_expendable()
        left_s = self._written_at + self._held_s - time.monotonic()
        if must_succeed or self._is_full or left_s <= 0:
            self._write_held(must_succeed)
        else:
            self._schedule_write(left_s)

    @property
    def _is_full(self) -> bool:
        """True if the held checkpoints, at the newest one's size each, exceed `HELD_BYTES`."""
        return len(self._held) * self._size > HELD_BYTES

    def offer(self, trainable: Trainable, header: Mapping[str, Any], value: float | None) -> None:
        """Save the trainable's state now if the last write is long ago.

        Otherwise the state is taken, and kept in memory for the next write, unless another is
        offered before then. `header` identifies the checkpoint; `value` is the metric, None if
        missing. The trainable must hand its states over (`Trainable.hands_over`): they may not
        change later. Raises DiskRefuses after too many refusals in a row.
        """
        left_s = self._written_at + self._held_s - time.monotonic()
        if left_s <= 0:
            self.save(trainable, header, value, must_succeed=False)
            return
        finite = value if value is not None and math.isfinite(value) else None
        with self._lock:
            self._offered = _Offered(trainable.get_state(), trainable.iteration, finite, header)
            self._schedule_write(left_s)

    def _schedule_write(self, left_s: float) -> None:
        """Start a timer that writes held checkpoints in `left_s` seconds, unless one runs."""
        if self._timer is None:
            self._timer = threading.Timer(left_s, self._write_later)
            self._timer.daemon = True
            self._timer.start()

    def finish(self) -> None:
        """Write all held checkpoints, and make all that are kept survive a power cut.

        One that the disk refuses to make durable is taken out of `saved`. Raises DiskRefuses after
        too many refusals in a row, and an exception of the timer's thread.
        """
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._error is not None:
                raise self._error
            self._take_offered()
            self._write_held()
            for saved in [one for one in self.saved if one.digest not in self._durable]:
                try:
                    file.make_durable(self._store.path(saved))
                except OSError as error:
                    self.saved.remove(saved)
                    self._count_refusal(error)

    def _write_later(self) -> None:
        """Write the held checkpoints in the timer's thread; keep an exception in `_error`."""
        with self._lock:
            if self._timer is None:
                return
            self._timer = None
            try:
                self._take_offered()
                self._write_held()
            except BaseException as error:  # noqa: BLE001 the slice raises it at its next save
                self._error = error

    def _take_offered(self) -> None:
        """Make a held checkpoint of the offered state, if there is one."""
        offered, self._offered = self._offered, None
        if offered is not None:
            packed = self._pack(offered.state)
            at = (offered.iteration, offered.value, offered.header)
            self._held.append(_Held(*at, packed, is_last=False))
            self._taken_at = time.monotonic()

    def _write_held(self, must_succeed: bool = False) -> None:
        """Write the held checkpoints that the policy keeps; delete files that it does not keep.

        With `must_succeed`, the newest is retried until it is stored.
        """
        self._drop_expendable()
        while self._held:
            held = self._held.pop(0)
            while not self._write(held, durable=must_succeed) and must_succeed:
                time.sleep(RETRY_S)
                if self._held:
                    break
        self._drop_expendable()
        self._written_at = time.monotonic()

    def _get_state(self, trainable: Trainable) -> Packed | Mapping[str, Any] | None:
        """Return the trainable's state, packed unless it is a copy.

        Returns None if the disk refused files of the trainable, which is counted. Raises
        DiskRefuses after too many refusals in a row.
        """
        try:
            state = trainable.get_state()
        except OSError as error:
            if error.errno not in _DISK_ERRORS:  # it may concern anything the trainable does
                raise
            self._count_refusal(error)
            return None
        if trainable.gives_copies and self._size <= HELD_BYTES:
            return state
        packed = self._pack(state)
        return packed.copied() if self._size <= HELD_BYTES else packed

    def _pack(self, state: Packed | Mapping[str, Any]) -> Packed:
        """Return the state packed into bytes, and remember its size."""
        packed = state if isinstance(state, Packed) else pack(dict(state))
        self._size = packed.size
        return packed

    def _write(self, checkpoint: _Held, durable: bool) -> bool:
        """Write a checkpoint to disk, and send it to the object storage if there is one.

        It is added to `saved` and, unless the trial ends with it, to the journal. With `durable` it
        survives a power cut. Returns False if the disk refused. Raises DiskRefuses after too many
        refusals in a row or one of the object storage, and OSError if the process is short of files
        or memory.
        """
        header, term = checkpoint.header, checkpoint.header["epoch"]
        trust = self._spec.trust
        packed = self._pack(checkpoint.state)
        try:
            durable = durable or bool(self._spec.store)
            step = checkpoint.iteration
            written = file.write(self._folder, step, header, packed, term, trust, durable)
            name = self._store.send(written, self._spec.number, self._spec.policy.cache)
        except OSError as error:
            if error.errno in SHORT_OF:
                raise
            self._count_refusal(error)
            return False
        self._refusals = 0
        size = written.size
        saved = Saved(checkpoint.iteration, written.digest, name, size, checkpoint.value)
        self.saved.append(saved)
        if durable:
            self._durable.add(saved.digest)
        if not checkpoint.is_last:
            self._journal.saved(saved, str(header["exactness"]))
        return True

    def _drop_expendable(self) -> None:
        """Delete the checkpoints that the policy does not keep, from memory and disk.

        One whose file cannot be deleted is kept.
        """
        both: list[Saved | _Held] = [*self.saved, *self._held]
        for spare in retention.expendable(both, self._spec.policy, self._spec.sign):
            if isinstance(spare, _Held):
                self._held.remove(spare)
                continue
            with contextlib.suppress(OSError):  # such as of a disk that became read-only
                retention.remove(self._folder, [self._store.path(spare).name])
                self.saved.remove(spare)

    def _count_refusal(self, error: OSError) -> None:
        """Count a refusal by the disk.

        Raises DiskRefuses after `MOST_REFUSALS` in a row, or at once for the object storage; in the
        latter case held checkpoints are dropped.
        """
        if isinstance(error, RemoteError):  # the storage was retried already
            self._held.clear()
            raise DiskRefuses(str(error)) from error
        self._refusals += 1
        if self._refusals == MOST_REFUSALS:
            raise DiskRefuses(error.strerror) from error
