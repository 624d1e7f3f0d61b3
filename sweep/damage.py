"""What can be wrong with a sweep's files, as plain data that is told, repaired and tested alike."""

from dataclasses import dataclass, field
from enum import StrEnum


class Remedy(StrEnum):
    """What would make a damage good."""

    NONE = ""
    """Nothing that is left says what stood there."""
    UPGRADE = "upgrade"
    """The ledger's tables are brought to today's, and a copy is kept."""
    STATUSES = "statuses"
    """The statuses are worked out from the events."""
    DROP = "drop"
    """The ledger lets go of the checkpoint's name; the trial goes on from an older one."""
    SWEEP_UP = "sweep up"
    """The file is deleted."""
    SEND = "send"
    """The tracker is sent everything again."""


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong."""

    part: str
    """``ledger``, ``schema``, ``results``, ``statuses``, ``checkpoints``, ``files``, or a tracker's
    name."""
    place: str
    """Where in it, for example ``trial 3`` or a file of the sweep's folder."""
    problem: str
    remedy: Remedy = Remedy.NONE
    trial: int = -1
    """Of a checkpoint or a file: whose it is, with `replica`; -1: it is no trial's."""
    replica: int = 0
    digest: str = ""
    """Of the checkpoint that is lost."""


@dataclass(frozen=True)
class Finding:
    """All that was found in one part."""

    damages: tuple[Damage, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What could not be compared, and why."""
