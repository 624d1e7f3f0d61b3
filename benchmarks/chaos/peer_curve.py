"""A learning curve with a known answer, its state, and a note of every step that is taken.

Nothing but Python, so that it runs in any environment. A step sleeps, draws noise from a stream of
its own and goes down a slope; the settings are its index alone. Notes are lines of ``trace`` in the
folder of a run: index, iteration, process. They tell how far a run is and what was trained twice.
"""

import os
import time
from pathlib import Path
from typing import Any

TRIALS, ITERATIONS, STEP_S = 6, 20, 0.02
JOBS = 2
#: Seconds of a slice of ours: a few iterations, so that a trial is several slices.
SLICE_S = 0.1


class Curve:
    """One trial."""

    def __init__(self, index: int, folder: str = "") -> None:
        self.index = index
        self.folder = folder
        self.iteration = 0
        self.x = 5.0
        self.stream = 0x330E + (index << 16)

    def step(self) -> float:
        """One iteration; returns its loss. Notes it, and takes `STEP_S`, if there is a folder."""
        if self.folder:
            time.sleep(STEP_S)
        self.stream = (self.stream * 0x5DEECE66D + 11) % 2**48
        noise = self.stream / 2**48 - 0.5
        self.x -= 0.03 * (self.index + 1) * (2.0 * (self.x - 3.0) + noise)
        self.iteration += 1
        if self.folder:
            self._note()
        return (self.x - 3.0) ** 2

    def state(self) -> dict[str, Any]:
        """All that decides the future."""
        return {"iteration": self.iteration, "x": self.x, "stream": self.stream}

    def set_state(self, state: dict[str, Any]) -> None:
        """Put it back."""
        self.iteration = int(state["iteration"])
        self.x = float(state["x"])
        self.stream = int(state["stream"])

    def _note(self) -> None:
        line = f"{self.index} {self.iteration} {os.getpid()}\n"
        file = os.open(Path(self.folder) / "trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, line.encode())
        os.close(file)


def expected(index: int, iterations: int = ITERATIONS) -> tuple[list[float], dict[str, Any]]:
    """The losses of a trial that nobody disturbs, and its state at the end."""
    curve = Curve(index)
    losses = [curve.step() for _ in range(iterations)]
    return losses, curve.state()


def notes(folder: Path) -> list[tuple[int, int, int]]:
    """(index, iteration, process) of every step that was taken, in order."""
    try:
        lines = (folder / "trace").read_text().splitlines()
    except FileNotFoundError:
        return []
    whole = [line.split() for line in lines]
    return [(int(line[0]), int(line[1]), int(line[2])) for line in whole if len(line) == 3]
