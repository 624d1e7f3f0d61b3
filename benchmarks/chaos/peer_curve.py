"""A learning curve with known values, its state, and a log of all steps.

The module needs only Python, so that it runs in any environment. A step sleeps, draws noise from a
stream of its own and descends a slope; the only setting is the index. The log is the file ``trace``
in the folder of a run, with lines of index, iteration and process. It shows the progress of a run
and repeated steps.
"""

import os
import time
from pathlib import Path
from typing import Any

TRIALS, ITERATIONS, STEP_S = 6, 20, 0.02
JOBS = 2
#: Seconds of a slice of sweep: a few iterations, so that a trial has several slices.
SLICE_S = 0.1


class Curve:
    """One trial.

    Args:
        index: its setting.
        folder: folder of the log; empty for a curve without log and sleep.
    """

    def __init__(self, index: int, folder: str = "") -> None:
        self.index = index
        self.folder = folder
        self.iteration = 0
        self.x = 5.0
        self.stream = 0x330E + (index << 16)

    def step(self) -> float:
        """Make one iteration and return its loss; with a folder, log it and sleep for `STEP_S`."""
        if self.folder:
            time.sleep(STEP_S)
        self.stream = (self.stream * 0x5DEECE66D + 11) % 2**48
        noise = self.stream / 2**48 - 0.5
        self.x -= 0.03 * (self.index + 1) * (2.0 * (self.x - 3.0) + noise)
        self.iteration += 1
        if self.folder:
            self._log()
        return (self.x - 3.0) ** 2

    def state(self) -> dict[str, Any]:
        """Return the state, which determines all further values."""
        return {"iteration": self.iteration, "x": self.x, "stream": self.stream}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.iteration = int(state["iteration"])
        self.x = float(state["x"])
        self.stream = int(state["stream"])

    def _log(self) -> None:
        line = f"{self.index} {self.iteration} {os.getpid()}\n"
        file = os.open(Path(self.folder) / "trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.close(file)


def expected(index: int, iterations: int = ITERATIONS) -> tuple[list[float], dict[str, Any]]:
    """Return the losses of an undisturbed trial, and its final state."""
    curve = Curve(index)
    losses = [curve.step() for _ in range(iterations)]
    return losses, curve.state()


def read_log(folder: Path) -> list[tuple[int, int, int]]:
    """Return (index, iteration, process) of all steps, in order."""
    try:
        lines = (folder / "trace").read_text().splitlines()
    except FileNotFoundError:
        return []
    words = [line.split() for line in lines]
    return [(int(line[0]), int(line[1]), int(line[2])) for line in words if len(line) == 3]
