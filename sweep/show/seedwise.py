"""What happened to one trial, seed by seed and event by event, as plain data."""

from typing import Any

from sweep.events import Closed, Created, Moved, Opened, Recorded
from sweep.history import Replica
from sweep.seeds import FIRST_TEST, is_test, replica_name, seed_of
from sweep.show import wording
from sweep.show.wording import finite

Data = dict[str, Any]


def replica_row(replica: Replica, sweep_seed: int) -> Data:
    """One seed of a trial."""
    return {
        "replica": replica.index,
        "name": replica_name(replica.trial, replica.index),
        "seed": seed_of(sweep_seed, replica.trial, replica.index),
        "status": replica.status.value,
        "score": finite(replica.score_at()),
        "iterations": replica.iteration,
        "reason": replica.reason,
    }


def decision(record: Recorded, number: int) -> Data | None:
    """What an event decided about trial `number`, and why; None: nothing."""
    event = record.event
    if not isinstance(event, Created | Opened | Closed | Moved) or event.trial != number:
        return None
    seed = "" if isinstance(event, Created) else _whose(event.replica)
    match event:
        case Created(births=(first, *_)):
            what, why = "bred", f"from trial {first.trial}, iteration {first.saved.iteration}"
        case Created():
            what, why = "proposed", f"from the history up to event {event.seen}"
        case Opened():
            goal = "the end" if event.goal.at is None else wording.number(event.goal.at)
            what, why = f"{seed}slice {event.slice} to {goal}", event.why
        case Closed():
            skipped = "".join(f"; skipped {one}" for one in event.skipped)
            what, why = f"{seed}slice {event.slice} ended: {event.status}", event.reason + skipped
        case Moved():
            what, why = f"{seed}{event.status}", event.reason
    return {"event": record.k, "epoch": record.epoch, "at": record.at, "what": what, "why": why}


def _whose(replica: int) -> str:
    if is_test(replica):
        return f"test {replica - FIRST_TEST}, "
    return f"seed {replica}, " if replica else ""
