"""Slices that run side by side in one process, their trials being lanes of one program.

    serve(requests, replies)      # in the process of the pool `stack`

A request is a number and a `SliceSpec`, or a number and None, which gives that slice up. The answer
to a slice is its number and a `SliceOutcome`. All slices that run make their next iteration at
once; then each takes its own result, saves what is due, and ends on its own.
"""

import contextlib
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from sweep.history.events import End
from sweep.slices.cache import stop_quietly
from sweep.slices.log import led_into
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import RealSlice
from trainables.core.processes.program import is_ctrl_c
from trainables.trainable import Trainable

Request: TypeAlias = tuple[int, SliceSpec | None]


@dataclass(eq=False)
class _Lane:
    """A slice that runs."""

    number: int
    slice: RealSlice
    trainable: Trainable

    def iterate(self) -> SliceOutcome | None:
        """Take the result of an iteration; returns the outcome if the slice ends with it."""
        try:
            end = self.slice.iterate(self.trainable)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            return self.fail(error)
        return None if end is None else self.finish(end)

    def finish(self, end: End) -> SliceOutcome:
        """Write what is left to write; returns the outcome."""
        try:
            self.slice.look(self.trainable)
            self.slice.saves = True
            self.slice.saving.finish()
        except Exception as error:  # noqa: BLE001 it costs this trial one slice
            return self.fail(error)
        self.close()
        return self.slice.outcome(end)

    def fail(self, error: BaseException) -> SliceOutcome:
        """Write what can be written; returns the outcome of a failure."""
        with contextlib.suppress(Exception):  # the first error is the one to tell
            self.slice.saving.finish()
        self.close()
        return self.slice.failed(error)

    def close(self) -> None:
        """Leave the place to other slices."""
        self.slice.journal.close()
        stop_quietly(self.trainable)


def _begun(number: int, spec: SliceSpec) -> _Lane | SliceOutcome:
    """Put a trial into a place; returns its lane, or the outcome if that fails."""
    slice_ = RealSlice(spec)
    try:
        trainable = slice_.restored()
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        return slice_.failed(error)
    lane = _Lane(number, slice_, trainable)
    try:
        slice_.look(trainable)
        slice_.journal.begin(slice_.source, slice_.skipped)
        slice_.begin()
    except Exception as error:  # noqa: BLE001 it costs this trial one slice
        return lane.fail(error)
    return lane


def serve(requests: "Connection[Any, Any]", replies: "Connection[Any, Any]") -> None:
    """Run slices until nobody can ask any more.

    What the process prints goes into the log of the trial that was there first.
    """
    with contextlib.ExitStack() as entered:
        server = _Server(requests, replies, entered)
        while server.take():
            server.iterate()


class _Server:
    def __init__(
        self,
        requests: "Connection[Any, Any]",
        replies: "Connection[Any, Any]",
        entered: contextlib.ExitStack,
    ) -> None:
        self._requests, self._replies = requests, replies
        self._entered, self._is_logged = entered, False
        self._lanes: dict[int, _Lane] = {}

    def take(self) -> bool:
        """Take the requests that have come, or the first one; returns False if none can come."""
        try:
            while not self._lanes or self._requests.poll():
                self._answer(*self._requests.recv())
        except EOFError:
            return False
        return True

    def _answer(self, number: int, spec: SliceSpec | None) -> None:
        if spec is None:
            if lane := self._lanes.pop(number, None):
                lane.close()
            return
        if not self._is_logged:
            self._is_logged = True
            with contextlib.suppress(OSError):
                self._entered.enter_context(led_into(Path(spec.folder), spec.log_bytes))
        begun = _begun(number, spec)
        if isinstance(begun, _Lane):
            self._lanes[number] = begun
        else:
            self._replies.send((number, begun))

    def iterate(self) -> None:
        """Let all lanes make an iteration; answer the slices that end with it."""
        lanes = list(self._lanes.values())
        failure: BaseException | None = None
        try:
            type(lanes[0].trainable).train_together([lane.trainable for lane in lanes])
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            failure = error
        for lane in lanes:
            outcome = lane.iterate() if failure is None else lane.fail(failure)
            if outcome is not None:
                del self._lanes[lane.number]
                self._replies.send((lane.number, outcome))
