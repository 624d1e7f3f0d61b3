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
    """An earlier trial left something running in this process that would disturb other trials.

    The slice must run in another process.
    """


@dataclass
class _Live:
    """Trainable kept between slices, with the random streams and the process state of its trial."""

    key: Key
    """(Sweep ID, trial, replica, checkpoint's digest), by which the trial's next slice finds it."""
    trainable: Trainable
    """The trainable, as its last slice left it."""
    streams: dict[str, Any]
    """States of the global random streams as the trial left them: library → plain data."""
    state: ProcessState
    """Working folder, environment variables and other process-wide state as the trial left it."""


@dataclass
class _Process:
    """Trainable that this process keeps between slices, if any."""

    live: _Live | None = None
    """The kept trainable; None if there is none."""
    stale: bool = False
    """True if a trial left a thread running, so that no other trial may run in this process."""


#: Live trainables of this process.
_process = _Process()


def keep(key: Key, trainable: Trainable) -> None:
    """Keep a trainable in this process for its trial's next slice, instead of any other.

    Its state must equal the checkpoint in `key`. The random streams and process state are kept with
    it. Another trainable is dropped without being stopped, so call `make_room` before the slice.
    """
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
    """Return the kept trainable, which is then not kept any more; None if there is none.

    The random streams and process state of its trial are restored; standard output stays.
    """
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
    """Return ID of the sweep, number of the trial and index of the replica of the kept trainable.

    Returns None if there is none.
    """
    return None if _process.live is None else _process.live.key[:3]


def forget() -> None:
    """Stop the kept trainable, if there is one, and kill the processes that it started.

    The process-wide state is as before afterwards.
    """
    live, _process.live = _process.live, None
    if live is not None:
        before = ProcessState.capture()
        live.state.restore()
        stop_quietly(live.trainable)
        before.restore()
        end_processes()


def restore_process(before: ProcessState) -> None:
    """Restore the process-wide state from before a slice.

    Kills the processes that the trial started, unless its trainable is kept.
    """
    if _process.live is None:
        end_processes()
    before.restore()


def stop_quietly(trainable: Trainable) -> None:
    """Stop a trainable, and print an exception of its cleanup to the log instead of raising it.

    The process becomes stale if the trainable still runs something. Ctrl-C is raised.
    """
    try:
        trainable.stop()
    except BaseException as error:  # the error must not be blamed on the next trial
        if is_ctrl_c(error):
            raise
        traceback.print_exc()
    _process.stale |= trainable.lingers
