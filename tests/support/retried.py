"""Functions that are tried again; the processes in which they train import little."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until
from trainables import get_checkpoint, report

FAIL_AT = 6


def fails_late(config: Mapping[str, Any]) -> None:
    """Save nothing, and raise at iteration 6 as often as the settings say."""
    for iteration in range(1, 10):
        if iteration == FAIL_AT and _may_fail(config):
            raise ValueError("late")
        report({"loss": config["lr"] / iteration})


def dies(config: Mapping[str, Any]) -> None:
    """Save at iteration 3 alone, and have the process die at iteration 6."""
    start = get_checkpoint() or {"i": 0}
    for iteration in range(start["i"] + 1, 10):
        if iteration == FAIL_AT and _may_fail(config):
            os.kill(os.getpid(), signal.SIGKILL)
        saved = {"i": iteration} if iteration == 3 else None
        report({"loss": config["lr"] / iteration, "from": start["i"]}, checkpoint=saved)


def waits(config: Mapping[str, Any]) -> None:
    """Never save, and wait in the third iteration until a file is there."""
    for iteration in range(1, 6):
        if iteration == 3:
            wait_until(Path(config["file"]).exists)
        report({"loss": config["lr"] / iteration})


def hands_over(config: Mapping[str, Any]) -> None:
    """Hand over two checkpoints that are no better, then wait until a file is there."""
    start = get_checkpoint() or {"i": 0}
    for iteration in range(start["i"] + 1, 6):
        if iteration == 4:
            wait_until(Path(config["file"]).exists)
        report({"loss": float(iteration)}, checkpoint={"i": iteration})


def _may_fail(config: Mapping[str, Any]) -> bool:
    """Whether it fails this time; a file in the settings has it fail once."""
    if "once" not in config:
        return True
    first = not Path(config["once"]).exists()
    Path(config["once"]).touch()
    return first
