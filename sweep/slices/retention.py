"""Selection of a trial's checkpoints to keep, and removal of other files from its folder.

A checkpoint counts from the moment the ledger names it. An older one may be deleted only after a
newer one is named. The newest two are always kept, since the newest may turn out to be damaged.

Segments are shared by all checkpoints of a folder that name them. Only the driver deletes segments,
and only in a folder in which no slice runs: a checkpoint being written may rely on any of them.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from sweep.ledger.folder import leads_elsewhere
from trainables.checkpoint import disk, file, segments
from trainables.checkpoint.opaque import TEMPORARY
from trainables.errors import CheckpointError, MissingCheckpoint

if TYPE_CHECKING:
    from sweep.history.history import History
    from sweep.history.replica import Replica
    from sweep.spec import CheckpointPolicy

#: Number of checkpoints kept regardless of the policy, so that a damaged one costs one interval.
ALWAYS_KEPT = 2


@dataclass(frozen=True)
class Retention:
    """Policy of the spec's `checkpoint` section: which checkpoints a slice writes and keeps."""

    every: int | None
    """Number of iterations between two checkpoints; None if the slice decides by time."""
    keep_last: int
    """Number of newest checkpoints to keep; at least `ALWAYS_KEPT` are kept."""
    keep_best: int
    """Number of checkpoints with the best values of the metric to keep; the newest ones may be
    among them."""
    cache: int
    """With object storage, maximum bytes of checkpoints that also stay on disk."""

    @classmethod
    def from_spec(cls, policy: "CheckpointPolicy") -> "Retention":
        """Return the policy of a spec's section as plain data, since workers import no specs."""
        return cls(policy.every, policy.keep_last, policy.keep_best, policy.cache)


class Valued(Protocol):
    """Protocol of a checkpoint with the properties that the policy reads."""

    @property
    def iteration(self) -> int:
        """Number of the iteration after which it was saved."""

    @property
    def value(self) -> float | None:
        """Value of the metric at the checkpoint's iteration; None if it was not reported."""


_Checkpoint = TypeVar("_Checkpoint", bound=Valued)


def expendable(
    checkpoints: Iterable[_Checkpoint], policy: Retention, sign: float
) -> list[_Checkpoint]:
    """Return those checkpoints of one replica that the policy does not keep, oldest first.

    The newest `ALWAYS_KEPT` are always kept. `sign` is +1 if the metric is maximised, -1 if it is
    minimised.
    """
    by_age = sorted(checkpoints, key=lambda saved: saved.iteration)
    older = by_age[: -max(policy.keep_last, ALWAYS_KEPT)]
    if not older or not policy.keep_best:
        return older
    valued = [saved for saved in by_age if saved.value is not None]
    valued.sort(key=lambda saved: (sign * (saved.value or 0.0), saved.iteration))
    best = set(map(id, valued[-policy.keep_best :]))
    return [saved for saved in older if id(saved) not in best]


def needed_by_children(history: "History", replica: "Replica") -> set[str]:
    """Return the digests of a replica's checkpoints that its offspring still need.

    Offspring that may continue, with fewer than `ALWAYS_KEPT` checkpoints of their own, may have to
    start from their parent's again.
    """
    births = [
        child
        for trial in history.children(replica.trial)
        for child in trial.replicas
        if trial.may_continue(child) and len(child.checkpoints) < ALWAYS_KEPT
    ]
    return {
        child.birth.saved.digest
        for child in births
        if child.birth is not None and child.birth.replica == replica.index
    }


def remove(folder: Path, names: Iterable[str]) -> None:
    """Delete these checkpoint files of a replica's folder; their segments stay until `sweep_up`.

    Files that are missing are ignored.
    """
    for name in names:
        (folder / name).unlink(missing_ok=True)


def sweep_up(folder: Path, named: Iterable[str]) -> list[str]:
    """Delete leftovers of crashes and files that the ledger no longer names; return their names.

    These are temporary files, checkpoints that are not in `named`, and segments that no named
    checkpoint needs. Files with other names stay, and so does everything if the folder is a link.
    No slice may run in `folder`.
    """
    left = leftover_files(folder, named)
    remove(folder, left)
    return left


def leftover_files(folder: Path, named: Iterable[str]) -> list[str]:
    """Return the names of the files that `sweep_up` would delete, given the same arguments."""
    if leads_elsewhere(folder):
        return []
    keep = set(named)
    found = [path for path in sorted(folder.glob("*")) if _is_ours(path)]
    large = [path for path in found if segments.PATTERN.fullmatch(path.name)]
    if large:
        keep |= _needed_segments(folder, keep, large)
    return [path.name for path in found if path.name not in keep]


def _needed_segments(folder: Path, named: Iterable[str], large: Iterable[Path]) -> set[str]:
    """Return the names of the segments that the checkpoints `named` need.

    Checkpoints that are missing are skipped. If one is unreadable, these are the names of all files
    in `large`, so that no segment is deleted.
    """
    needed: set[str] = set()
    for name in named:
        try:
            needed |= file.segments_of(folder / name)
        except MissingCheckpoint:
            continue
        except CheckpointError:
            return {path.name for path in large}
    return needed


def remove_temporary_folders(folder: Path) -> None:
    """Delete temporary folders of killed trainables from a replica's folder.

    No trainable may be running there. Nothing is deleted if the folder is a link.
    """
    if leads_elsewhere(folder):
        return
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Return whether a path is a file or link that, by its name, sweep may have written."""
    name, ours = path.name, (disk.TEMP_PATTERN, segments.PATTERN)
    named = file.parse_name(name) is not None or any(p.fullmatch(name) for p in ours)
    return named and (path.is_symlink() or not path.is_dir())
