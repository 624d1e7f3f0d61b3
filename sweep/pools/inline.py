"""One slot in the driver's own process: for tests, debuggers and profilers."""

from concurrent.futures import Future
from typing import ClassVar

from sweep import pools
from sweep.core.errors import UsageError
from sweep.slices import cache
from sweep.slices.messages import SliceOutcome, SliceSpec
from sweep.slices.slice import run_slice


class Pool(pools.Pool):
    """Pool of one slot in the driver's own process: `submit` runs the slice and then returns."""

    blocks: ClassVar[bool] = True

    def __init__(self, slots: int) -> None:
        self.slots = min(slots, 1)

    def submit(self, spec: SliceSpec) -> Future[SliceOutcome]:
        """Run the slice to its end and return a future that is done.

        The trainable stays in memory for the trial's next slice. Ctrl-C is raised here, as is an
        OSError if no further file can be opened; UsageError if a function of an earlier trial still
        runs in this process.
        """
        future: Future[SliceOutcome] = Future()
        try:
            future.set_result(run_slice(spec))
        except cache.StaleProcess:
            raise UsageError(
                "pool: the function of an earlier trial did not end when report() asked it "
                "to and would disturb the next trial, because the pool 'inline' has only one "
                "process; let report() end the function, or resume the sweep with --pool loky"
            ) from None
        return future

    def forget(self, replica: tuple[str, int, int]) -> None:
        """Free the trainable that is kept in memory, if it is the one of this ended replica."""
        if cache.replica() == replica:
            cache.forget()

    def close(self) -> None:
        """Free the trainable that is kept in memory."""
        cache.forget()
