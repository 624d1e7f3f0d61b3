"""What people ask of a sweep, as events: they stand in its history like every other decision.

A hold is about a trial: it is not run until it is let go, whatever the scheduler wants. What is
changed of a sweep's budget counts from its event on. All are plain data; times are seconds, sizes
bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar


class Hold(StrEnum):
    """What a person wants of a trial."""

    NONE = ""
    PAUSE = "pause"
    """It saves and waits until it is let go."""
    STOP = "stop"
    """It saves and ends."""


@dataclass(frozen=True)
class Held:
    """A trial is held, or let go again."""

    kind: ClassVar[str] = "hold"
    trial: int
    hold: Hold


@dataclass(frozen=True)
class Suspended:
    """The whole sweep is paused, or goes on; a new driver goes on."""

    kind: ClassVar[str] = "suspend"
    on: bool


@dataclass(frozen=True)
class Changed:
    """The sweep was given another end or size; what is None or absent stays as it was."""

    kind: ClassVar[str] = "set"
    trials: int | None = None
    """The total of searched settings."""
    budget: Mapping[str, float | None] = field(default_factory=dict)
    """Key of the spec's ``budget`` → its new value."""
    max_disk: int | None = None
    jobs: int | None = None
    """How many slots the search has, for later drivers too; in an exam, how many that has."""


@dataclass(frozen=True)
class Dropped:
    """Checkpoints of a replica that were let go: to save disk, or because they are lost."""

    kind: ClassVar[str] = "drop"
    trial: int
    replica: int
    digests: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """Trials are compared by another metric, also for what they did before: results hold them all.

    The objective that a history is folded with is that of the newest such event.
    """

    kind: ClassVar[str] = "metric"
    metric: str


Wish = Held | Suspended | Changed | Dropped | Measured
