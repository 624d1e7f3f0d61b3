"""Trainables to which the things happen that happen to people's trainables."""

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.quadratic import Quadratic
from trainables import Trainable, get_checkpoint, report


class Counter(Trainable):
    """Counts its iterations; ``value`` is what `at` says of each."""

    def setup(self, config: dict[str, Any]) -> None:
        self.count = 0

    def at(self, iteration: int) -> float:
        return float(iteration)

    def step(self) -> dict[str, Any]:
        self.count += 1
        return {"value": self.at(self.count)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"count": self.count}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.count = checkpoint["count"]


class Diverges(Counter):
    """Good once, not a number ever after."""

    def at(self, iteration: int) -> float:
        return 10.0 if iteration == 1 else float("nan")


class RisesToZero(Counter):
    """-2, -1, 0, 0, 0 …, as returns do where 0 is the most there is."""

    def at(self, iteration: int) -> float:
        return float(min(0, iteration - 3))


class CleansUpBadly(Counter):
    def cleanup(self) -> None:
        raise RuntimeError("cleanup")


class Exits(Counter):
    def at(self, iteration: int) -> float:
        if iteration == 2:
            sys.exit("bye")
        return 0.0


class Flaky(Counter):
    """Raises once at each iteration in ``at``, as the files beside its checkpoints remember."""

    def at(self, iteration: int) -> float:
        marker = Path(self.logdir) / f"raised-{iteration}"
        if iteration in self.config["at"] and not marker.exists():
            marker.touch()
            raise OSError("a passing fault")
        return float(iteration)


class Interrupts(Quadratic):
    """Sends Ctrl-C to the driver, ``times`` times, once in its life."""

    def step(self) -> dict[str, Any]:
        marker = Path(self.config["marker"])
        if self.iteration == 3 and not marker.exists():
            marker.touch()
            driver = os.getppid() if self.config["child"] else os.getpid()
            for _ in range(self.config["times"]):
                os.kill(driver, signal.SIGINT)
                time.sleep(0.3)  # two signals at once are one to the system
        return super().step()


released = threading.Event()


def stays(config: dict[str, Any]) -> None:
    """A function that does not leave its last report: it goes on until `released`."""
    report({"value": 0.0}, checkpoint={})
    try:
        report({"value": 1.0}, checkpoint={})
    finally:
        released.wait()


def keeps_files(config: dict[str, Any]) -> None:
    """A function whose checkpoints are folders."""
    folder = get_checkpoint()
    first = 1 if folder is None else int((Path(folder) / "count").read_text()) + 1
    for iteration in range(first, 10):
        target = Path(config["scratch"])
        target.mkdir(parents=True, exist_ok=True)
        (target / "count").write_text(str(iteration))
        report({"value": float(iteration)}, checkpoint=str(target))
