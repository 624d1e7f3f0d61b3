"""Run slices side by side in one process, with their trials as lanes of one program.

    serve(requests, replies)      # in the process of the pool `stack`

A request is (number, `SliceSpec`), or (number, None) to cancel that slice. The reply to a slice is
(number, `SliceOutcome`). All running slices train their next iteration together; then each records
its own result, saves what is due, and ends independently. Every second there is also a reply to no
slice: (None, `Pace`). The last reply of all may be (None, `DeviceFailed`): then running slices get
no reply, and all that they wrote is on disk.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

from sweep.core import plugins
from sweep.history.events import End
from sweep.history.results import to_number
from sweep.slices.cache import stop_quietly
from sweep.slices.log import redirected_into
from sweep.slices.messages import DeviceFailed, Pace, SliceOutcome, SliceSpec
from sweep.slices.slice import RealSlice
from trainables.core.devices import device_error, device_name
from trainables.core.processes.program import is_ctrl_c
from trainables.errors import DeviceError, DeviceOutOfMemory
from trainables.trainable import Trainable

#: Number of a request, and its slice; None to abort that slice.
Request: TypeAlias = tuple[int, SliceSpec | None]
#: Seconds between two replies with a `Pace`, at least.
PACE_S = 1.0
#: The result in which the environment steps of an iteration are counted.
STEPS = "timesteps_this_iter"


@dataclass(eq=False)
class _Lane:
    """Running slice with its trainable, which is a lane of a compiled program of many trials.

    Methods raise DeviceError if the device fails.
    """

    number: int
    """Number of the request for the slice, for the reply."""
    slice: RealSlice
    """The running slice."""
    trainable: Trainable
    """Trainable of the slice."""

    @property
    def steps(self) -> float | None:
        """Number of environment steps in the last iteration.

        It is None before the first iteration, and if its result does not count them.
        """
        rows = self.slice.rows
        return to_number(rows[-1].metrics.get(STEPS)) if rows else None

    def iterate(self) -> SliceOutcome | None:
        """Record the iteration that all lanes have trained, and save what is due.

        Returns the outcome if the slice ends with it, or fails now, else None.
        """
        try:
            end = self.slice.iterate(self.trainable)
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            _raise_if_of_device(error)
            return self.fail(error)
        return None if end is None else self.finish(end)

    def finish(self, end: End) -> SliceOutcome:
        """Write the remaining checkpoints, stop the trainable, and return the outcome.

        If they cannot be written, it is the outcome of a failed slice.
        """
        try:
            self.slice.note_exactness(self.trainable)
            self.slice.saves = True
            self.slice.saving.finish()
        except Exception as error:  # noqa: BLE001 it costs this trial one slice
            _raise_if_of_device(error)
            return self.fail(error)
        self.close()
        return self.slice.outcome(end)

    def fail(self, error: BaseException) -> SliceOutcome:
        """Write what can still be written, stop the trainable, and return the failed outcome.

        Closes the journal. No further error is raised.
        """
        self.leave()
        stop_quietly(self.trainable)
        return self.slice.failed(error)

    def leave(self) -> None:
        """Write the checkpoints that can still be written, and close the journal.

        Errors are ignored.
        """
        with contextlib.suppress(Exception):  # the first error is reported
            self.slice.saving.finish()
        self.slice.journal.close()

    def close(self) -> None:
        """Close the journal and stop the trainable, which frees its lane for another trial."""
        self.slice.journal.close()
        stop_quietly(self.trainable)


def _raise_if_of_device(error: BaseException) -> None:
    """Raise the DeviceError that is the cause of an exception, if there is one."""
    if (found := device_error(error)) is not None:
        raise found from error


def _narrowed(spec: SliceSpec, limit: int | None) -> SliceSpec:
    """Return the slice with at most `limit` lanes in the settings of its trial.

    It is returned unchanged if `limit` is None, or the settings name no more lanes or none.
    """
    lanes = _lanes_of(spec)
    if limit is None or lanes is None or lanes <= limit:
        return spec
    cls = plugins.find_trainable(spec.trainable, spec.paths, spec.script_file)
    return replace(spec, config=cls.as_lane(spec.config, limit))


def _lanes_of(spec: SliceSpec) -> int | None:
    """Return the number of lanes of a trial's program, by its settings; None if they do not say."""
    lanes = spec.config.get("lanes")
    return lanes if isinstance(lanes, int) else None


def _start_lane(number: int, spec: SliceSpec, limit: int | None) -> _Lane | SliceOutcome:
    """Start a slice as a lane of a program of at most `limit` lanes.

    Returns its lane, or its outcome if it failed at once. `number` is the request's number; `limit`
    is None for the number in the trial's settings. Raises DeviceError if the device fails.
    """
    slice_ = RealSlice(spec)
    try:
        slice_.spec = _narrowed(spec, limit)
        trainable = slice_.restored()
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        _raise_if_of_device(error)
        return slice_.failed(error)
    lane = _Lane(number, slice_, trainable)
    try:
        slice_.note_exactness(trainable)
        slice_.journal.begin(slice_.source, slice_.skipped)
        slice_.begin()
    except Exception as error:  # noqa: BLE001 it costs this trial one slice
        _raise_if_of_device(error)
        return lane.fail(error)
    return lane


def serve(
    requests: "Connection[Any, Any]", replies: "Connection[Any, Any]", limit: int | None = None
) -> None:
    """Run the requested slices side by side until the pool closes `requests` or the device fails.

    Outcomes and speeds are sent to `replies`; after a failure of the device, a last message says
    so, and running slices get no outcome. The output of the process goes to the log of the first
    trial. Programs have at most `limit` lanes, if given, whatever the settings of trials say.
    """
    with contextlib.ExitStack() as entered:
        server = _Server(requests, replies, entered, limit)
        try:
            while server.take():
                server.iterate()
        except DeviceError as error:
            server.give_up(error)


class _Server:
    """Slices that run side by side in this process, and its connections to the pool.

    Pairs of number and slice are read from `requests`, outcomes and paces sent to `replies`.
    `entered` are contexts that end with the process; `limit` is the maximum number of lanes of a
    program, if any.
    """

    def __init__(
        self,
        requests: "Connection[Any, Any]",
        replies: "Connection[Any, Any]",
        entered: contextlib.ExitStack,
        limit: int | None,
    ) -> None:
        self._requests, self._replies = requests, replies
        self._most = limit
        self._needed = 1
        """Greatest number of lanes at once so far, or of lanes of a program if that is more."""
        self._entered, self._is_logged = entered, False
        self._lanes: dict[int, _Lane] = {}
        self._steps = 0.0
        """Number of environment steps of all slices since the last `Pace` was sent."""
        self._said_at = time.monotonic()

    def take(self) -> bool:
        """Handle all requests that have arrived, waiting for one if no slice runs.

        Returns False once the pool has closed the connection. Raises DeviceError if the device
        fails.
        """
        try:
            while not self._lanes or self._requests.poll():
                self._answer(*self._requests.recv())
        except EOFError:
            return False
        return True

    def _answer(self, number: int, spec: SliceSpec | None) -> None:
        """Start the slice of request `number`, or cancel it if `spec` is None.

        A slice that fails at once is replied to, and a cancelled one is not. The first slice's log
        gets the output of the process from now on. Raises DeviceError if the device fails.
        """
        if spec is None:
            if lane := self._lanes.pop(number, None):
                lane.close()
            return
        if not self._is_logged:
            self._is_logged = True
            with contextlib.suppress(OSError):
                self._entered.enter_context(redirected_into(Path(spec.folder), spec.log_bytes))
        width, at_once = _lanes_of(spec) or 1, len(self._lanes) + 1
        most = width if self._most is None else min(width, self._most)
        self._needed = max(self._needed, most, at_once)
        begun = _start_lane(number, spec, self._most)
        if isinstance(begun, _Lane):
            self._lanes[number] = begun
        else:
            self._replies.send((number, begun))

    def iterate(self) -> None:
        """Train one iteration of all slices together, and reply for those that end with it.

        If the common iteration raises, all slices fail with that error. Sends a `Pace`, too, if the
        last one is long ago. Raises DeviceError if the device fails.
        """
        lanes = list(self._lanes.values())
        failure: BaseException | None = None
        try:
            type(lanes[0].trainable).train_together([lane.trainable for lane in lanes])
        except BaseException as error:
            if is_ctrl_c(error):
                raise
            _raise_if_of_device(error)
            failure = error
        for lane in lanes:
            outcome = lane.iterate() if failure is None else lane.fail(failure)
            self._steps += lane.steps or 0.0
            if outcome is not None:
                del self._lanes[lane.number]
                self._replies.send((lane.number, outcome))
        self._say_pace(lanes)

    def give_up(self, error: DeviceError) -> None:
        """Write the checkpoints that slices still hold, and send `DeviceFailed` as the last reply.

        Nothing is saved beyond that: it is unknown which slices completed an iteration that failed.
        """
        for lane in self._lanes.values():
            lane.leave()
        lanes = self._needed if isinstance(error, DeviceOutOfMemory) else None
        self._replies.send((None, DeviceFailed(str(error), lanes)))

    def _say_pace(self, lanes: Sequence[_Lane]) -> None:
        """Send number, speed and device of the slices to the pool.

        It does so at most every `PACE_S` seconds.
        """
        passed = time.monotonic() - self._said_at
        if passed < PACE_S:
            return
        counted = any(lane.steps is not None for lane in lanes)
        pace = Pace(len(lanes), self._steps / passed if counted else None, device_name())
        self._replies.send((None, pace))
        self._steps, self._said_at = 0.0, time.monotonic()
