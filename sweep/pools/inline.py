"""One slot in the driver's own process: for tests, debuggers and profilers."""

from concurrent.futures import Future
from typing import ClassVar

from sweep import pools
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import run_slice


class Pool(pools.Pool):
    """Runs each slice at once, inside `submit`."""

    blocks: ClassVar[bool] = True

    def __init__(self, slots: int) -> None:
        self.slots = min(slots, 1)

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run the slice and return a future that is done."""
        future: Future[SliceOutcome] = Future()
        future.set_result(run_slice(spec))
        return future

    def close(self) -> None:
        """Let go of the trainable that is kept in memory."""
        cache.forget()
