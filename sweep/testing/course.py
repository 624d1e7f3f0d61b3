"""What came of a simulated sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweep.event_bodies import to_body
from sweep.events import (
    Created,
    Goal,
    Moved,
    Opened,
    Recorded,
)
from sweep.history import History


@dataclass(frozen=True)
class Decision:
    """One thing that was decided; equal for two sweeps that decided the same."""

    kind: str
    """``trial``: it was created. ``slice``: it got a new goal. ``move``: it was ended."""
    trial: int
    what: dict[str, Any]
    """The event's other fields."""


@dataclass(frozen=True)
class Course:
    """A simulated sweep at its end."""

    how: str
    """``finished``."""
    history: History
    records: tuple[Recorded, ...]
    """All its events."""
    seconds: float
    """How long it took, simulated seconds."""
    kills: int
    """How often its driver was killed on the way."""

    @property
    def decisions(self) -> list[Decision]:
        """What was decided, in order; that something interrupted goes on is no decision."""
        return decisions(self.records)


def decisions(records: Sequence[Recorded]) -> list[Decision]:
    """The decisions among the events, without the numbers that a kill moves."""
    goals: dict[tuple[int, int], Goal] = {}
    found = []
    for record in records:
        event = record.event
        if isinstance(event, Opened):
            replica = (event.trial, event.replica)
            if goals.get(replica) == event.goal:
                continue
            goals[replica] = event.goal
        if isinstance(event, Created | Opened | Moved):
            moved_by_kills = ("trial", "seen", "slice")
            what = {k: v for k, v in to_body(event).items() if k not in moved_by_kills}
            found.append(Decision(event.kind, event.trial, what))
    return found
