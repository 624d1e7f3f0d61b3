"""The checkpoints that one slice writes: how often, while the disk refuses, and which it keeps.

A checkpoint that the disk refuses is left out and the trial goes on; where the slice ends it tries
again. Each attempt is a new file. After `MOST_REFUSALS` in a row the slice ends without.
"""

import errno
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep import checkpoints
from sweep.events import Saved
from sweep.spec import CheckpointPolicy
from trainables import checkpoint_file
from trainables.signing import Trust
from trainables.trainable import Trainable

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

    def __init__(
        self, folder: Path, policy: CheckpointPolicy, sign: float, trust: Trust | None
    ) -> None:
        self.saved: list[Saved] = []
        self._folder = folder
        self._policy = policy
        self._sign = sign
        self._trust = trust
        self._refusals = 0

    def save(
        self, trainable: Trainable, header: Mapping[str, Any], value: float | None, must: bool
    ) -> None:
        """Write a checkpoint of where the trainable stands.

        Args:
            trainable: what is saved.
            header: says whose it is; entry ``epoch``.
            value: the metric there, if there is one.
            must: whether the slice ends here, and must not go on without it.

        Raises:
            DiskRefuses: too often, in this slice.
        """
        while not self._save(trainable, header, value) and must:
            time.sleep(RETRY_S)

    def _save(self, trainable: Trainable, header: Mapping[str, Any], value: float | None) -> bool:
        iteration, epoch = trainable.iteration, header["epoch"]
        try:
            state = trainable.get_state()
            written = checkpoint_file.write(
                self._folder, iteration, header, state, epoch, self._trust
            )
        except OSError as error:
            self._refuse(error)
            return False
        self._refusals = 0
        finite = value if value is not None and math.isfinite(value) else None
        self.saved.append(Saved(iteration, written.digest, written.path.name, written.size, finite))
        spare = checkpoints.expendable(self.saved, self._policy, self._sign)
        checkpoints.remove(self._folder, [saved.file for saved in spare])
        self.saved = [saved for saved in self.saved if saved not in spare]
        return True

    def _refuse(self, error: OSError) -> None:
        if error.errno not in _OF_THE_DISK:
            raise error
        self._refusals += 1
        if self._refusals == MOST_REFUSALS:
            raise DiskRefuses(error.strerror) from error
