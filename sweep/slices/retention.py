"""Which checkpoints of a trial are kept, and what else may lie in its folder.

A checkpoint counts from the moment that the ledger names it; until then its file is nothing. An
older one may go only after a newer one is named. The newest two always stay, since the newest may
turn out to be damaged.

Segments belong to all checkpoints of a folder that name them. Only the driver deletes segments, and
only of a folder in which no slice runs: a checkpoint that is being written may rely on any of them.
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

#: Checkpoints that stay whatever the policy says, so that a damaged one costs one interval.
ALWAYS_KEPT = 2


@dataclass(frozen=True)
class Retention:
    """Which checkpoints a slice writes and keeps: the key `checkpoint` of a spec, in plain data."""

    every: int | None
    """Iterations between two; None: the slice decides."""
    keep_last: int
    keep_best: int
    cache: int
    """With object storage, bytes of checkpoints that also stay on the disk."""

    @classmethod
    def of(cls, policy: "CheckpointPolicy") -> "Retention":
        """Return a spec's policy without the spec's own types, which a worker need not import."""
        return cls(policy.every, policy.keep_last, policy.keep_best, policy.cache)


class Valued(Protocol):
    """A checkpoint, of which the policy asks no more."""

    @property
    def iteration(self) -> int:
        """Of its trial."""

    @property
    def value(self) -> float | None:
        """The metric there, if there is one."""


_Checkpoint = TypeVar("_Checkpoint", bound=Valued)


def expendable(
    checkpoints: Iterable[_Checkpoint], policy: Retention, sign: float
) -> list[_Checkpoint]:
    """The checkpoints of one trial that nothing needs; `sign` is +1 where more is better."""
    by_age = sorted(checkpoints, key=lambda saved: saved.iteration)
    older = by_age[: -max(policy.keep_last, ALWAYS_KEPT)]
    if not older or not policy.keep_best:
        return older
    valued = [saved for saved in by_age if saved.value is not None]
    valued.sort(key=lambda saved: (sign * (saved.value or 0.0), saved.iteration))
    best = set(map(id, valued[-policy.keep_best :]))
    return [saved for saved in older if id(saved) not in best]


def needed_by_children(history: "History", replica: "Replica") -> set[str]:
    """Digests of its checkpoints that trials bred from it would need if theirs were damaged."""
    births = [
        child
        for trial in history.children(replica.trial)
        for child in trial.replicas
        if trial.may_go_on(child) and len(child.checkpoints) < ALWAYS_KEPT
    ]
    return {
        child.birth.saved.digest
        for child in births
        if child.birth is not None and child.birth.replica == replica.index
    }


def remove(folder: Path, names: Iterable[str]) -> None:
    """Delete checkpoint files that nothing needs; their segments stay for `sweep_up`."""
    for name in names:
        (folder / name).unlink(missing_ok=True)


def sweep_up(folder: Path, named: Iterable[str]) -> list[str]:
    """Delete what a crash left, and what the ledger no longer names; no slice may run there.

    That is our temporary files, checkpoints that are not in `named`, and segments that none of
    these needs. Files of other names are left alone, and so is a folder that is only a link.
    Returns the names that were deleted.
    """
    left = left_over(folder, named)
    remove(folder, left)
    return left


def left_over(folder: Path, named: Iterable[str]) -> list[str]:
    """The names of the files that `sweep_up` would delete."""
    if leads_elsewhere(folder):
        return []
    keep = set(named)
    found = [path for path in sorted(folder.glob("*")) if _is_ours(path)]
    large = [path for path in found if segments.PATTERN.fullmatch(path.name)]
    if large:
        keep |= _needed(folder, keep, large)
    return [path.name for path in found if path.name not in keep]


def _needed(folder: Path, named: Iterable[str], large: Iterable[Path]) -> set[str]:
    """Names of the segments that checkpoints need; all of them while one cannot be read."""
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
    """Delete what trainables that were killed left; none may live."""
    if leads_elsewhere(folder):
        return
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: Path) -> bool:
    """Return whether we may have made a file, judged by its name; we make no folders."""
    name, ours = path.name, (disk.TEMP_PATTERN, segments.PATTERN)
    named = file.parse_name(name) is not None or any(p.fullmatch(name) for p in ours)
    return named and (path.is_symlink() or not path.is_dir())
