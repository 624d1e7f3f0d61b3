"""Cache between slices in one process: the live trainable of its trial.

It is a cache, keyed by the checkpoint at which the trainable stands; nothing depends on it. What
cannot save is kept too, and begins anew if it is not found. A
process in which something of an earlier trial still runs takes no other trial.
"""

import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any

from sweep.slices.process_state import ProcessState, end_processes
from trainables.core import rng
from trainables.core.processes.program import is_ctrl_c
from trainables.trainable import Trainable

#: Sweep, trial, replica and the checkpoint's digest; the iteration, for what cannot save.
Key = tuple[str, int, int, str]


class StaleProcess(Exception):
    """Work that an earlier trial left running in this process would disturb the next trial."""


@dataclass
class _Live:
    key: Key
    trainable: Trainable
    streams: dict[str, Any]
    state: ProcessState


@dataclass
class _Process:
    live: _Live | None = None
    stale: bool = False


_here = _Process()


def keep(key: Key, trainable: Trainable) -> None:
    """Keep a trainable that stands at a checkpoint."""
    _here.live = _Live(key, trainable, rng.capture_global(), ProcessState.capture())


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
    """Take the kept trainable, or None, and restore the state of the process as it was then."""
    live, _here.live = _here.live, None
    if live is None:
        return None
    replace(live.state, streams=(sys.stdout, sys.stderr)).restore()
    rng.restore_global(live.streams)
    return live.trainable


def holds() -> bool:
    """Return whether a trainable is kept."""
    return _here.live is not None


def replica() -> tuple[str, int, int] | None:
    """Return of which replica a trainable is kept; None: of none."""
    return None if _here.live is None else _here.live.key[:3]


def forget() -> None:
    """Stop what is kept, if anything is."""
    live, _here.live = _here.live, None
    if live is not None:
        before = ProcessState.capture()
        live.state.restore()
        stop_quietly(live.trainable)
        before.restore()
        end_processes()


def leave(before: ProcessState) -> None:
    """Put back what held for this process before a slice; end what its trial has left running."""
    if _here.live is None:
        end_processes()
    before.restore()


def stop_quietly(trainable: Trainable) -> None:
    """End a trainable; an error in its cleanup stands in the log and costs nobody anything."""
    try:
        trainable.stop()
    except BaseException as error:  # no trial is to blame for what came before it
        if is_ctrl_c(error):
            raise
        traceback.print_exc()
    _here.stale |= trainable.lingers
