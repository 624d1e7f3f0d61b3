"""Cache between slices in one process: the live trainable of a trial.

Its key contains the checkpoint that the trainable's state equals; correctness does not depend on
the cache. A trainable that cannot save is kept too, and starts from scratch if it is not found. A
process in which something of an earlier trial still runs accepts no other trial.
"""

import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any

from sweep.slices.process_state import ProcessState, end_processes
from trainables.core import rng
from trainables.core.processes.program import is_ctrl_c
from trainables.trainable import Trainable

#: Sweep ID, trial, replica, and the checkpoint's digest; a text with the iteration (see
#: `slice._unsaved_key`) instead of a digest for trainables that cannot save.
Key = tuple[str, int, int, str]


class StaleProcess(Exception):
    """An earlier trial left something running in this process that would disturb the next trial."""


@dataclass
class _Live:
    """A kept trainable, with the random streams and process state of its trial."""

    key: Key
    """Key by which the trial's next slice finds it."""
    trainable: Trainable
    """The kept trainable."""
    streams: dict[str, Any]
    """States of the global random streams as the trial left them, by library."""
    state: ProcessState
    """State of the process as its trial left it."""


@dataclass
class _Process:
    """The kept trainable of this process; `stale` is True if a trial left work running."""

    live: _Live | None = None
    """The kept trainable; None if there is none."""
    stale: bool = False
    """True if a trial left work running, so that no other trial may run in this process."""


_process = _Process()


def keep(key: Key, trainable: Trainable) -> None:
    """Keep a trainable whose state equals the checkpoint in `key`, replacing any other."""
    _process.live = _Live(key, trainable, rng.capture_global(), ProcessState.capture())


def make_room(key: Key | None) -> None:
    """Stop the kept trainable unless its key is `key`.

    Raises:
        StaleProcess: something of an earlier trial still runs in this process.
    """
    if _process.live is not None and _process.live.key != key:
        forget()
    if _process.stale:
        raise StaleProcess


def take() -> Trainable | None:
    """Remove and return the kept trainable, restoring its process state; None if there is none."""
    live, _process.live = _process.live, None
    if live is None:
        return None
    replace(live.state, streams=(sys.stdout, sys.stderr)).restore()
    rng.restore_global(live.streams)
    return live.trainable


def has_trainable() -> bool:
    """Return whether a trainable is kept."""
    return _process.live is not None


def replica() -> tuple[str, int, int] | None:
    """Return sweep ID, trial and replica of the kept trainable, or None if there is none."""
    return None if _process.live is None else _process.live.key[:3]


def forget() -> None:
    """Stop the kept trainable, if there is one, and kill the processes it started."""
    live, _process.live = _process.live, None
    if live is not None:
        before = ProcessState.capture()
        live.state.restore()
        stop_quietly(live.trainable)
        before.restore()
        end_processes()


def restore_process(before: ProcessState) -> None:
    """Restore the process state from before a slice.

    Kills the processes that the trial started unless its trainable is kept.
    """
    if _process.live is None:
        end_processes()
    before.restore()


def stop_quietly(trainable: Trainable) -> None:
    """Stop a trainable; print an error of its cleanup to the log and ignore it."""
    try:
        trainable.stop()
    except BaseException as error:  # the error must not be blamed on the next trial
        if is_ctrl_c(error):
            raise
        traceback.print_exc()
    _process.stale |= trainable.lingers
