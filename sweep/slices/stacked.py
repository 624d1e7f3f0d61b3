"""Run slices side by side in one process, with their trials as lanes of one program.

    serve(requests, replies)      # in the process of the pool `stack`

A request is (number, `SliceSpec`), or (number, None) to cancel that slice. The reply to a slice is
(number, `SliceOutcome`). All running slices train their next iteration together; then each records
its own result, saves what is due, and ends independently. Every second there is also a reply to no
slice: (None, `Pace`).
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from sweep.history.events import End
from sweep.history.results import number
from sweep.slices.cache import stop_quietly
from sweep.slices.log import led_into
from sweep.slices.messages import Pace, SliceOutcome, SliceSpec
from sweep.slices.slice import RealSlice
from trainables.core.devices import device_name
from trainables.core.processes.program import is_ctrl_c
from trainables.trainable import Trainable

Request: TypeAlias = tuple[int, SliceSpec | None]
#: Seconds between two replies with a `Pace`, at least.
PACE_S = 1.0
#: The result in which the environment steps of an iteration are counted.
STEPS = "timesteps_this_iter"


@dataclass(eq=False)
class _Lane:
    """A running slice and its trainable."""

    number: int
    slice: RealSlice
    trainable: Trainable

    @property
    def steps(self) -> float | None:
        """Environment steps of the last iteration; None if its result counts none."""
        rows = self.slice.rows
        return number(rows[-1].metrics.get(STEPS)) if rows else None

    def iterate(self) -> SliceOutcome | None:
        """Record the result of an iteration.

        Return the outcome if the slice ends with it, else None.
        """
        try:
            end = self.slice.iterate(self.trainable)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            return self.fail(error)
        return None if end is None else self.finish(end)

    def finish(self, end: End) -> SliceOutcome:
        """Write the remaining checkpoints, close the lane and return the outcome."""
        try:
            self.slice.look(self.trainable)
            self.slice.saves = True
            self.slice.saving.finish()
        except Exception as error:  # noqa: BLE001 it costs this trial one slice
            return self.fail(error)
        self.close()
        return self.slice.outcome(end)

    def fail(self, error: BaseException) -> SliceOutcome:
        """Write what can still be written, close the lane and return the outcome of a failure."""
        with contextlib.suppress(Exception):  # the first error is reported
            self.slice.saving.finish()
        self.close()
        return self.slice.failed(error)

    def close(self) -> None:
        """Close the journal and stop the trainable, which frees its lane."""
        self.slice.journal.close()
        stop_quietly(self.trainable)


def _start_lane(number: int, spec: SliceSpec) -> _Lane | SliceOutcome:
    """Start a slice; return its lane, or the outcome if starting fails."""
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
    """Run slices until the sender closes `requests`.

    Output of the process goes to the log of the first trial.
    """
    with contextlib.ExitStack() as entered:
        server = _Server(requests, replies, entered)
        while server.take():
            server.iterate()


class _Server:
    """The lanes of one process, and its connections to the pool."""

    def __init__(
        self,
        requests: "Connection[Any, Any]",
        replies: "Connection[Any, Any]",
        entered: contextlib.ExitStack,
    ) -> None:
        self._requests, self._replies = requests, replies
        self._entered, self._is_logged = entered, False
        self._lanes: dict[int, _Lane] = {}
        self._steps = 0.0
        """Environment steps since the last `Pace` was sent."""
        self._said_at = time.monotonic()

    def take(self) -> bool:
        """Handle all pending requests, waiting for one if no lane runs.

        Return False after the last one.
        """
        try:
            while not self._lanes or self._requests.poll():
                self._answer(*self._requests.recv())
        except EOFError:
            return False
        return True

    def _answer(self, number: int, spec: SliceSpec | None) -> None:
        """Start the requested slice, or cancel it if `spec` is None."""
        if spec is None:
            if lane := self._lanes.pop(number, None):
                lane.close()
            return
        if not self._is_logged:
            self._is_logged = True
            with contextlib.suppress(OSError):
                self._entered.enter_context(led_into(Path(spec.folder), spec.log_bytes))
        begun = _start_lane(number, spec)
        if isinstance(begun, _Lane):
            self._lanes[number] = begun
        else:
            self._replies.send((number, begun))

    def iterate(self) -> None:
        """Train one iteration of all lanes together, and reply for the slices that end with it."""
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
            self._steps += lane.steps or 0.0
            if outcome is not None:
                del self._lanes[lane.number]
                self._replies.send((lane.number, outcome))
        self._say_pace(lanes)

    def _say_pace(self, lanes: Sequence[_Lane]) -> None:
        passed = time.monotonic() - self._said_at
        if passed < PACE_S:
            return
        counted = any(lane.steps is not None for lane in lanes)
        pace = Pace(len(lanes), self._steps / passed if counted else None, device_name())
        self._replies.send((None, pace))
        self._steps, self._said_at = 0.0, time.monotonic()
