"""The run of one slice in a worker, with its failures. Times are in seconds."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.slices.messages import SliceSpec


class Died(BaseException):
    """The process of a worker is killed."""


@dataclass
class Clock:
    """Simulated clocks: `now` is monotonic, `wall` may jump."""

    now: float = 1000.0
    wall: float = 1.7e9

    def monotonic(self) -> float:
        """Return the time of the monotonic clock."""
        return self.now

    def time(self) -> float:
        """Return the time of the wall clock."""
        return self.wall

    def sleep(self, seconds: float) -> None:
        """Advance both clocks at once."""
        self.now += seconds
        self.wall += seconds


@dataclass(frozen=True)
class Failure:
    """The failures of one slice; iterations are counted from its first one."""

    deaf: int = 0
    """Iterations before the slice checks whether it should stop."""
    dies: int = 0
    """Iteration in which its process dies; 0 if it does not."""
    dies_at: str = ""
    """Failpoint at which its process dies instead, at the `dies`-th passage; empty for none."""
    raises: int = 0
    """Iteration that raises an exception; 0 for none."""
    refused: int = 0
    """Number of checkpoints that the disk refuses."""
    errno: int = 0
    """Error number of these refusals."""
    cold: bool = False
    """True if the slice runs in a new process, without a cached trainable."""


class SliceRun:
    """The run of one slice with its failures.

    Args:
        folder: folder for temporary files.
    """

    _numbers = itertools.count()

    def __init__(self, spec: SliceSpec, failure: Failure, folder: Path, clock: Clock) -> None:
        self.failure = failure
        self.clock = clock
        self.done = 0
        self.passed = 0
        self.refused = 0
        self.folder = Path(spec.folder)
        self.own_files: list[tuple[Path, Path]] = []
        if failure.deaf:
            number = next(self._numbers)
            real = (Path(spec.stop_file), Path(spec.own_stop_file))
            self.own_files = [(one, folder / f"seen-{number}-{i}") for i, one in enumerate(real)]
            copies = [str(own) for _, own in self.own_files]
            spec = replace(spec, stop_file=copies[0], own_stop_file=copies[1])
        self.spec = spec

    def iterate(self, seconds: float) -> None:
        """Begin another iteration; raise its failure if there is one."""
        self.clock.sleep(seconds)
        self.done += 1
        if self.done > self.failure.deaf:
            for real, own in self.own_files:
                if real.exists():
                    own.touch()
        if self.done == self.failure.dies and not self.failure.dies_at:
            raise Died
        if self.done == self.failure.raises:
            raise RuntimeError("a failure of the test")

    def reach(self, place: str) -> None:
        """Pass a failpoint; raise the failure there if there is one."""
        if place == self.failure.dies_at:
            self.passed += 1
            if self.passed == self.failure.dies:
                if place == "checkpoint half written":
                    (self.folder / f".tmp-{self.spec.term}-1-{self.passed:016x}").touch()
                raise Died
        if place == "checkpoint half written" and self.refused < self.failure.refused:
            self.refused += 1
            raise OSError(self.failure.errno, "refused on purpose")

    def close(self) -> None:
        """Delete the slice's own copies of the stop files."""
        for _, own in self.own_files:
            own.unlink(missing_ok=True)
