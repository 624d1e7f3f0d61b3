"""One run of a training function in a thread of its own, which takes turns with its caller.

Exactly one of the two runs at any time: the caller in `FunctionThread.advance` waits until the
function is in `report`, where it waits in turn. The function's thread is found by `current`.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainables import rng
from trainables.errors import StateError, TrainableError, shorten
from trainables.folder import read_files, temporary_folder, write_files
from trainables.signing import Opaque
from trainables.state import pack, unpack
from trainables.trainable import TrialContext

#: Seconds that `leave` waits for the function.
LEAVE_S = 5.0

TrainingFunction = Callable[[dict[str, Any]], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Checkpoint:
    """What a report saved: data, or the files of a folder; and its metrics."""

    data: Any
    files: Mapping[str, Opaque]
    metrics: Mapping[str, Any]


class _Leave(BaseException):
    """Ends a function from inside `report()`; not an Exception, which functions may catch."""


class FunctionThread:
    """One run of a function in a thread of its own; it and the caller of `advance` take turns."""

    def __init__(
        self,
        function: TrainingFunction,
        config: dict[str, Any],
        context: TrialContext,
        checkpoint: Checkpoint | None,
        streams: Mapping[str, Any] | None,
    ) -> None:
        self.context = context
        self.checkpoint = checkpoint
        self.metrics: Mapping[str, Any] = checkpoint.metrics if checkpoint else {}
        self.at_checkpoint = False
        self._function = function
        self._config = config
        self._unasked = checkpoint is not None
        """Whether it was restored and has not looked at its checkpoint yet."""
        self._streams = streams  # the first get_checkpoint restores them
        self._folders = contextlib.ExitStack()
        self._turn = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._running = False
        self._leaving = False
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name="training function", daemon=True)

    # ---- the caller's side --------------------------------------------------------------------

    def advance(self) -> None:
        """Let the function run up to its next report, or to its end; raises what it raised."""
        if not self._running:  # it still is when the last wait was interrupted
            self._resume()
        self._paused.acquire()
        self._running = False
        if self._error is not None:
            raise self._error

    def leave(self) -> bool:
        """End the function; waits `LEAVE_S` seconds at most. Returns whether it has left."""
        self._leaving = True
        if self._thread.is_alive():
            self._turn.release()
            self._thread.join(LEAVE_S)
        self._folders.close()
        return not self._thread.is_alive()

    def _resume(self) -> None:
        if self._ended:
            raise TrainableError("the training function has ended; restore a checkpoint to go on")
        self._running = True
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._turn.release()

    # ---- the function's side ------------------------------------------------------------------

    def _main(self) -> None:
        _here.thread = self
        try:
            self._end(self._function(self._config))
        except _Leave:
            return
        except BaseException as error:  # noqa: BLE001 it is raised where the result is waited for
            self._error = error
        finally:
            self._ended = True
            self._paused.release()

    def _end(self, returned: Mapping[str, Any] | None) -> None:
        """The result after the function's last report: what it returned, or its last metrics."""
        self._refuse_a_new_beginning()
        self.at_checkpoint = False
        if returned is None:
            last = self.metrics.items()
            final = {key: 0 if key.endswith("_this_iter") else value for key, value in last}
        else:
            final = _mapping(returned, "the training function returned")
        self.metrics = {**final, "done": True}

    def report(self, metrics: Mapping[str, Any], checkpoint: object) -> None:
        """Give the turn back, and wait for the next one."""
        if self._leaving:
            raise _Leave
        self._refuse_a_new_beginning()
        self.metrics = _mapping(metrics, "report() was given")
        if checkpoint is not None:
            self.checkpoint = _captured(self.metrics, checkpoint)
        self.at_checkpoint = checkpoint is not None
        self._streams = None
        self._paused.release()
        self._turn.acquire()
        if self._leaving:
            raise _Leave

    def get_checkpoint(self) -> Any:
        """A copy of the last checkpoint; the first call puts the global streams back too."""
        saved, self._unasked = self.checkpoint, False
        if saved is None:
            return None
        if self._streams is not None:
            rng.restore_global(self._streams)
            self._streams = None
        if saved.data is not None:
            return _copied(saved.data, "checkpoint")
        folder = self._folders.enter_context(temporary_folder(self.context.logdir))
        write_files(Path(folder), saved.files)
        return folder

    def _refuse_a_new_beginning(self) -> None:
        """Raise TrainableError where the function was restored and trains from the beginning."""
        if self._unasked:
            name = getattr(self._function, "__name__", "the function")
            raise TrainableError(
                f"{name}() goes on from a checkpoint and did not ask for it, so it trains from the "
                f"beginning and its iterations are numbered wrongly; begin it with two lines: "
                f"`start = get_checkpoint()` and "
                f'`first = 0 if start is None else start["i"] + 1`, where report(..., '
                f'checkpoint={{"i": i, ...}}) saved that'
            )


class _Here(threading.local):
    thread: FunctionThread | None = None


_here = _Here()


def current() -> FunctionThread:
    """The function thread in which the caller runs; raises `TrainableError` anywhere else."""
    thread = _here.thread
    if thread is None:
        raise TrainableError(
            "report() and its like work in the thread of a training function only; "
            "run the function as a Trainable: trainables.function.wrap(function)"
        )
    return thread


def _captured(metrics: Mapping[str, Any], checkpoint: object) -> Checkpoint:
    kept = _copied(metrics, "metrics")
    if isinstance(checkpoint, (str, Path)):
        folder = Path(checkpoint)
        if not folder.is_dir():
            raise StateError(
                "checkpoint", f"{shorten(str(checkpoint))}, no folder,", "give a folder"
            )
        files = read_files(folder, "checkpoint")
        if not files:
            found = f"{shorten(str(checkpoint))}, a folder without files,"
            raise StateError("checkpoint", found, "write what the function needs to go on into it")
        return Checkpoint(None, files, kept)
    return Checkpoint(_copied(checkpoint, "checkpoint"), {}, kept)


def _copied(value: object, path: str) -> Any:
    """What a restart would give back for `value`."""
    packed = pack(value, path)
    return unpack(packed.pickled, packed.arrays)


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TrainableError(f"{what} {shorten(value)}; expected a dict of metrics")
    return dict(value)
