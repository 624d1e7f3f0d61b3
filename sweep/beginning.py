"""Where a slice begins: the newest checkpoint that can be used, or the trial's own beginning.

A checkpoint is taken only if it is the one that the ledger names: its digest, its sweep, its trial
and its iteration must agree. A bred trial's beginning is a checkpoint of its parent; should that be
damaged too, there is nothing to fall back to, and the slice fails.

Only what is lost is passed over: a checkpoint that is missing or damaged. One that cannot be read
just now, that a newer program wrote or that somebody else signed may be good, and the slice fails
with the reason: to begin anew would let go of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.events import Birth, Saved
from trainables import checkpoint_file
from trainables.errors import CorruptCheckpoint, MissingCheckpoint, shorten
from trainables.signing import Trust


@dataclass(frozen=True)
class Loaded:
    """What a trainable is put to."""

    state: Mapping[str, Any] | None
    """None: it begins anew."""
    iteration: int
    skipped: tuple[str, ...]
    """Newer checkpoints that could not be used, and why."""


@dataclass(frozen=True)
class Beginning:
    """The checkpoints of one replica."""

    sweep_id: str
    trial: int
    replica: int
    folder: Path
    sources: tuple[Saved, ...]
    """Newest first."""
    birth: Birth | None
    birth_folder: Path
    """Where the checkpoint lies that a bred trial begins from."""
    trust: Trust | None
    """Whose signature a checkpoint needs that may run code."""

    @property
    def iteration(self) -> int:
        """Where the slice begins if nothing is damaged."""
        return self.sources[0].iteration if self.sources else self._first

    @property
    def _first(self) -> int:
        return self.birth.saved.iteration if self.birth else 0

    def load(self) -> Loaded:
        """The state to begin from.

        Raises:
            CheckpointError: one cannot be used, and is not lost; or the checkpoint that a bred
                trial begins from cannot be used.
        """
        skipped: list[str] = []
        for saved in self.sources:
            try:
                state = self._read(self.folder, saved, self.trial, self.replica)
            except (MissingCheckpoint, CorruptCheckpoint) as error:
                skipped.append(str(error))
                continue
            return Loaded(state, saved.iteration, tuple(skipped))
        return Loaded(self._born(), self._first, tuple(skipped))

    def _born(self) -> Mapping[str, Any] | None:
        birth = self.birth
        if birth is None:
            return None
        return self._read(self.birth_folder, birth.saved, birth.trial, birth.replica)

    def _read(self, folder: Path, saved: Saved, trial: int, replica: int) -> Mapping[str, Any]:
        path = folder / saved.file
        loaded = checkpoint_file.read(path, saved.digest, self.trust)
        expected = {"sweep": self.sweep_id, "trial": trial, "replica": replica}
        for key, value in {**expected, "step": saved.iteration}.items():
            found = loaded.header.get(key)
            if found != value:
                raise CorruptCheckpoint(path, f"belongs elsewhere: its {key} is {shorten(found)}")
        return loaded.state
