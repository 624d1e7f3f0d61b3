"""A function whose process is killed in the middle of its slices, and which notes where it ran."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainables import report
from trainables.function import get_checkpoint, get_context

ITERATIONS = 6
DEVICE = "OPENED_BY_TEST"
"""Variable with a file that stands for a GPU, for `tests.support.unsafe_to_fork`."""
_SERVER = [sys.executable, "-c", "import signal; signal.pause()"]


def dies(config: Mapping[str, Any]) -> None:
    """Walk by chance; kill this process at each iteration in `at`, once in the trial's life."""
    logdir = get_context().logdir
    assert logdir is not None
    with (logdir / "processes").open("a") as file:
        file.write(f"{os.getpid()} {os.getppid()}\n")
    left = [
        pid for pid in map(Path.read_text, logdir.glob("killed-*")) if Path("/proc", pid).exists()
    ]
    assert not left, f"processes of the one that was killed are left: {left}"
    start = get_checkpoint() or {"i": 0, "at": 0.0}
    at = start["at"]
    for i in range(start["i"] + 1, ITERATIONS + 1):
        at += config["x"] * np.random.default_rng(i).normal()
        if i in config["at"] and not (marker := logdir / f"killed-{i}").exists():
            marker.write_text(str(subprocess.Popen(_SERVER, start_new_session=True).pid))
            os.kill(os.getpid(), signal.SIGKILL)
        report({"value": at}, checkpoint={"i": i, "at": at} if i % 2 == 0 else None)


def processes(logdir: Path) -> list[tuple[int, int]]:
    """Return each process in which a trial ran, and that one's parent."""
    lines = (logdir / "processes").read_text().splitlines()
    return [(int(pid), int(parent)) for pid, parent in map(str.split, lines)]
