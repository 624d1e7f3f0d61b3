"""One slice on its way in a worker, and the trouble that it has there. Times are seconds."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.slices.messages import SliceSpec


class Died(BaseException):
    """A worker's process is gone, at once."""


@dataclass
class Clock:
    """Seconds that pass only when somebody says so; `wall` may jump."""

    now: float = 1000.0
    wall: float = 1.7e9

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return self.now

    def time(self) -> float:
        """As `time.time`."""
        return self.wall

    def sleep(self, seconds: float) -> None:
        """Nobody waits."""
        self.now += seconds
        self.wall += seconds


@dataclass(frozen=True)
class Trouble:
    """The trouble of one slice; iterations count from its own first."""

    deaf: int = 0
    """Iterations that it has done before it looks whether it is asked to stop."""
    dies: int = 0
    """The iteration in which its process dies; 0: it does not."""
    dies_at: str = ""
    """The failpoint at which its process dies instead, when it comes there the `dies`-th time."""
    raises: int = 0
    """The iteration that raises; 0: none."""
    refused: int = 0
    """The number of checkpoints that the disk refuses."""
    errno: int = 0
    """Why it does."""
    cold: bool = False
    """True if it runs in a process that has not seen its trial before."""


class Way:
    """One slice on its way through its trouble."""

    _numbers = itertools.count()

    def __init__(self, spec: SliceSpec, trouble: Trouble, folder: Path, clock: Clock) -> None:
        self.trouble = trouble
        self.clock = clock
        self.done = 0
        self.passed = 0
        self.refused = 0
        self.folder = Path(spec.folder)
        self.views: list[tuple[Path, Path]] = []
        if trouble.deaf:
            number = next(self._numbers)
            real = (Path(spec.stop_file), Path(spec.own_stop_file))
            self.views = [(one, folder / f"seen-{number}-{i}") for i, one in enumerate(real)]
            seen = [str(view) for _, view in self.views]
            spec = replace(spec, stop_file=seen[0], own_stop_file=seen[1])
        self.spec = spec

    def iterate(self, seconds: float) -> None:
        """One more iteration begins."""
        self.clock.sleep(seconds)
        self.done += 1
        if self.done > self.trouble.deaf:
            for real, view in self.views:
                if real.exists():
                    view.touch()
        if self.done == self.trouble.dies and not self.trouble.dies_at:
            raise Died
        if self.done == self.trouble.raises:
            raise RuntimeError("something beside the trial failed")

    def reach(self, place: str) -> None:
        """It passes a failpoint."""
        if place == self.trouble.dies_at:
            self.passed += 1
            if self.passed == self.trouble.dies:
                if place == "checkpoint half written":
                    (self.folder / f".tmp-{self.spec.term}-1-{self.passed:016x}").touch()
                raise Died
        if place == "checkpoint half written" and self.refused < self.trouble.refused:
            self.refused += 1
            raise OSError(self.trouble.errno, "refused on purpose")

    def close(self) -> None:
        """Its own view of the stop files goes."""
        for _, view in self.views:
            view.unlink(missing_ok=True)
