"""Sends what a sweep's trackers miss, with no driver beside it: the outbox alone."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from sweep import holding, reading, trackers, tracking
from sweep.folder import Folder
from sweep.ledger import Ledger
from sweep.outbox import Outbox
from sweep.trackers import Tracker, Where


@dataclass(frozen=True)
class Sent:
    """What became of one tracker's copy."""

    tracker: str
    events: int
    """How many events it was sent."""
    missing: int
    """How many it still misses."""


def where(folder: Folder) -> Where:
    """The sweep as its trackers are told of it."""
    tracked = tracking.recall(folder)
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return Where(
            folder,
            ledger.sweep_id,
            ledger.name,
            ledger.created_at,
            reading.spec_of(ledger),
            reading.objective(ledger),
            tracking_uri=None if tracked is None else tracked.uri,
            uri_is_own=tracked is None or tracked.own,
        )


def made(where: Where) -> dict[str, Tracker]:
    """The trackers that the sweep's spec names, by name."""
    return {name: trackers.find(name)(where) for name in where.spec.trackers}


def send(folder: Folder, say: Callable[[str], None], patience_s: float) -> list[Sent]:
    """Send everything that is missing, holding the sweep; waits `patience_s` at most.

    Raises:
        NotOurs: a driver holds the sweep, and sends it itself.
    """
    with holding.hold(folder, say) as held:
        tracking.adopt(folder)  # whoever sends there has chosen it
        return send_held(folder, held.epoch, say, patience_s)


def send_held(
    folder: Folder, epoch: int, say: Callable[[str], None], patience_s: float
) -> list[Sent]:
    """`send`, for who holds the sweep in `epoch`."""
    here = where(folder)
    before = _published(here)
    Outbox(folder.ledger, made(here), say, epoch).close(patience_s)
    after, last = _published(here), _last(folder)
    return [Sent(name, after[name] - before[name], last - after[name]) for name in before]


def behind(where: Where) -> dict[str, tuple[int, int]]:
    """Tracker → how many events it was sent, and how many not yet."""
    last = _last(where.folder)
    return {name: (k, last - k) for name, k in _published(where).items()}


def _published(where: Where) -> dict[str, int]:
    with contextlib.closing(Ledger(where.folder.ledger)) as ledger:
        return {name: ledger.published(name) for name in where.spec.trackers}


def _last(folder: Folder) -> int:
    with contextlib.closing(Ledger(folder.ledger)) as ledger:
        return ledger.last
