"""What one slice leaves for the next in the same process: the live trainable of its trial.

It is a cache, keyed by the checkpoint at which the trainable stands; nothing depends on it. What
cannot save is kept too, and begins anew if it is not found. A
process in which something of an earlier trial still runs takes no other trial.
"""

import traceback
from dataclasses import dataclass
from typing import Any

from trainables.core import rng
from trainables.trainable import Trainable

#: Sweep, trial, replica and the checkpoint's digest; the iteration, for what cannot save.
Key = tuple[str, int, int, str]


class StaleProcess(Exception):
    """What an earlier trial left running in this process would disturb the next one."""


@dataclass
class _Live:
    key: Key
    trainable: Trainable
    streams: dict[str, Any]


@dataclass
class _Process:
    live: _Live | None = None
    stale: bool = False


_here = _Process()


def keep(key: Key, trainable: Trainable) -> None:
    """Keep a trainable that stands at a checkpoint."""
    _here.live = _Live(key, trainable, rng.capture_global())


def make_room(key: Key | None) -> None:
    """Stop what is kept, unless it stands at `key`.

    Raises:
        StaleProcess: something of an earlier trial still runs here.
    """
    if _here.live is not None and _here.live.key != key:
        forget()
    if _here.stale:
        raise StaleProcess


def take() -> Trainable | None:
    """What is kept, with the global streams where they were when it was kept."""
    live, _here.live = _here.live, None
    if live is None:
        return None
    rng.restore_global(live.streams)
    return live.trainable


def forget() -> None:
    """Stop what is kept, if anything is."""
    live, _here.live = _here.live, None
    if live is not None:
        stop_quietly(live.trainable)


def stop_quietly(trainable: Trainable) -> None:
    """End a trainable; an error in its cleanup stands in the log and costs nobody anything."""
    try:
        trainable.stop()
    except (Exception, SystemExit):  # noqa: BLE001 no trial is to blame for what came before it
        traceback.print_exc()
    _here.stale |= trainable.lingers
