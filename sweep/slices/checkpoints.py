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
from trainables.checkpoint import file
from trainables.errors import CorruptCheckpoint, MissingCheckpoint, shorten
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
# slice fails with the reason: to begin anew would let go of it.


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


def load(spec: SliceSpec) -> Loaded:
    """The state that a slice begins from.

    Raises:
        CheckpointError: one cannot be used, and is not lost; or the checkpoint that a bred trial
            begins from cannot be used.
    """
    skipped: list[str] = []
    for saved in spec.sources:
        try:
            state = _read(spec, spec.folder, saved, spec.trial, spec.replica)
        except (MissingCheckpoint, CorruptCheckpoint) as error:
            skipped.append(str(error))
            continue
        return Loaded(state, saved.iteration, tuple(skipped))
    birth = spec.birth
    if birth is None:
        return Loaded(None, 0, tuple(skipped))
    state = _read(spec, spec.birth_folder, birth.saved, birth.trial, birth.replica)
    return Loaded(state, birth.saved.iteration, tuple(skipped))


def _read(
    spec: SliceSpec, folder: str, saved: Saved, trial: int, replica: int
) -> Mapping[str, Any]:
    path = Path(folder) / saved.file
    loaded = file.read(path, saved.digest, spec.trust)
    expected = {"sweep": spec.sweep_id, "trial": trial, "replica": replica}
    for key, value in {**expected, "step": saved.iteration}.items():
        found = loaded.header.get(key)
        if found != value:
            raise CorruptCheckpoint(path, f"belongs elsewhere: its {key} is {shorten(found)}")
    return loaded.state


# -------------------------------------------------------------------------------------------------
# The checkpoints that one slice writes: how often, while the disk refuses, and which it keeps.
#
# A checkpoint that the disk refuses is left out and the trial goes on; where the slice ends it
# tries again. Each attempt is a new file. After `MOST_REFUSALS` in a row the slice ends without.

#: How often in a row the disk may refuse before the slice ends.
MOST_REFUSALS = 3
#: Seconds between two attempts where the slice must save.
RETRY_S = 0.5
_OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.ESTALE}
)


class DiskRefuses(Exception):
    """The disk has refused `MOST_REFUSALS` checkpoints in a row."""


class Saving:
    """Writes a slice's checkpoints; `saved` are those that it keeps."""

    def __init__(self, spec: SliceSpec, saved: list[Saved]) -> None:
        self.saved = saved
        self._spec = spec
        self._folder = Path(spec.folder)
        self._refusals = 0

    def save(
        self, trainable: Trainable, header: Mapping[str, Any], value: float | None, must: bool
    ) -> None:
        """Write a checkpoint of where the trainable stands.

        Args:
            trainable: what is saved.
            header: says whose it is; entry ``term``.
            value: the metric there, if there is one.
            must: whether the slice ends here, and must not go on without it.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        while not self._save(trainable, header, value) and must:
            time.sleep(RETRY_S)

    def _save(self, trainable: Trainable, header: Mapping[str, Any], value: float | None) -> bool:
        iteration, term = trainable.iteration, header["epoch"]
        try:
            state = trainable.get_state()
            written = file.write(self._folder, iteration, header, state, term, self._spec.trust)
        except OSError as error:
            self._refuse(error)
            return False
        self._refusals = 0
        finite = value if value is not None and math.isfinite(value) else None
        self.saved.append(Saved(iteration, written.digest, written.path.name, written.size, finite))
        spare = retention.expendable(self.saved, self._spec.policy, self._spec.sign)
        retention.remove(self._folder, [saved.file for saved in spare])
        self.saved[:] = [saved for saved in self.saved if saved not in spare]
        return True

    def _refuse(self, error: OSError) -> None:
        if error.errno not in _OF_THE_DISK:
            raise error
        self._refusals += 1
        if self._refusals == MOST_REFUSALS:
            raise DiskRefuses(error.strerror) from error
