"""Trainables to which the things happen that happen to people's trainables."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.quadratic import Quadratic
from trainables import Trainable, get_checkpoint, report
from trainables.core import failpoints
from trainables.errors import WorkerDied


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
    """Good twice, not a number ever after."""

    def at(self, iteration: int) -> float:
        return 10.0 if iteration <= 2 else float("nan")


class RisesToZero(Counter):
    """-2, -1, 0, 0, 0 …, as returns do where 0 is the most there is."""

    def at(self, iteration: int) -> float:
        return float(min(0, iteration - 3))


class LosesAWorker(Counter):
    """As a trainer whose rollout worker is killed in its third iteration."""

    def at(self, iteration: int) -> float:
        if iteration == 3:
            raise WorkerDied("rollout worker 1 died; exit code -9")
        return 0.0


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
            driver = failpoints.driver_pid() if self.config["child"] else os.getpid()
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


class Hangs(Counter):
    """Stands still at iteration 3 of trial 0, once, as a file with its pid remembers."""

    def at(self, iteration: int) -> float:
        marker = Path(self.logdir) / "hung"
        first = self.context.trial_id.startswith("00000")
        if iteration == 3 and first and not marker.exists():
            marker.write_text(str(os.getpid()))
            time.sleep(600)
        return float(iteration)


class Talks(Counter):
    """Prints a megabyte in each iteration."""

    def at(self, iteration: int) -> float:
        sys.stdout.write(f"{'x' * 100}\n" * 10_000)
        sys.stdout.write(f"iteration {iteration} ends\n")
        return float(iteration)


class StandsStill(Counter):
    """Stops its process at iteration 3 of trial 0, once, as a file with its pid remembers."""

    def at(self, iteration: int) -> float:
        marker = Path(self.logdir) / "stopped"
        first = self.context.trial_id.startswith("00000")
        if iteration == 3 and first and not marker.exists():
            marker.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGSTOP)
        return float(iteration)


class Grows(Counter):
    """A child of it has 600 MB from iteration 3 of trial 0 on."""

    def at(self, iteration: int) -> float:
        if iteration == 3 and self.context.trial_id.startswith("00000"):
            code = "import time; held = b'x' * 600_000_000; time.sleep(60)"
            subprocess.run([sys.executable, "-c", code], check=False)
        return float(iteration)


class DiskFull(Counter):
    """Cannot save while the file ``full`` exists, from iteration 4 on."""

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        if self.count > 3 and Path(self.config["full"]).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().save_checkpoint(checkpoint_dir)


class Sees(Counter):
    """Reports which GPUs its process may use."""

    def step(self) -> dict[str, Any]:
        return {**super().step(), "visible": os.environ.get("CUDA_VISIBLE_DEVICES", "all")}


class KillsItsWorker(Counter):
    """Trial 0 kills the process that its own works for, whenever it comes to iteration 3."""

    def at(self, iteration: int) -> float:
        if iteration == 3 and self.context.trial_id.startswith("00000"):
            os.kill(failpoints.driver_pid(), signal.SIGKILL)
            time.sleep(600)
        return float(iteration)


class Own(BaseException):
    """An exception of a program's own that is not an Exception."""


RAISED: dict[str, type[BaseException]] = {
    "cancelled": asyncio.CancelledError,
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "own": Own,
}


def raises_no_exception(config: dict[str, Any]) -> None:
    """Report once, then raise one of `RAISED`, as a library may."""
    report({"value": 1.0})
    raise RAISED[config["kind"]]("gone")


def evaluates(config: dict[str, Any]) -> None:
    """Report two results whose paths end alike."""
    report({"value": 0.0, "evaluation": {"value": config["x"]}})
