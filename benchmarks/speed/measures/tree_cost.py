"""CPU seconds of a sweep of 64 short trials of cartpole_ppo, in all its processes.

    python -m benchmarks.speed.measures.tree_cost [TRIALS]

All trials take the same number of steps, so that two versions train equally long.
"""

import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

#: Option of prctl: orphaned descendants become children of this process.
_SET_SUBREAPER = 36
#: Settings that make the work of a trial depend on its number alone.
ALIKE = ("searcher=random", "scheduler=fifo", "stop.timesteps_total=5120")


def cpu_seconds(command: Sequence[str], folder: str) -> float:
    """Return the CPU seconds of a command in a folder, including all its descendants.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    ctypes.CDLL(None).prctl(_SET_SUBREAPER, 1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 ours
    try:
        while True:
            os.wait()
    except ChildProcessError:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run the sweep in a temporary folder."""
    trials = sys.argv[1] if len(sys.argv) > 1 else "64"
    sweep = str(Path(sys.executable).with_name("sweep"))
    command = [sweep, "run", "cartpole_ppo", "--trials", trials, "--jobs", "2"]
    command += [word for setting in ALIKE for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        value = cpu_seconds(command, folder)
    sys.stdout.write(json.dumps({"value": value}) + "\n")


if __name__ == "__main__":
    main()
