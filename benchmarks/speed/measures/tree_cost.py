"""CPU seconds of a command and of all processes that it starts: 64 short trials of cartpole_ppo.

python -m benchmarks.speed.measures.tree_cost [TRIALS]

All trials take the same steps, so that two versions have the same to train.
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

#: prctl: what descendants leave behind becomes a child of this process.
_SET_SUBREAPER = 36
#: Settings that make the work of a trial depend on its number alone.
ALIKE = ("searcher=random", "scheduler=fifo", "stop.timesteps_total=5120")


def cpu_seconds(command: Sequence[str], folder: str) -> float:
    """Return the CPU seconds of a command in a folder, with those of all processes below it.

    Raises:
        subprocess.CalledProcessError: it failed.
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
    """Run it in a folder of its own."""
    trials = sys.argv[1] if len(sys.argv) > 1 else "64"
    sweep = str(Path(sys.executable).with_name("sweep"))
    command = [sweep, "run", "cartpole_ppo", "--trials", trials, "--jobs", "2"]
    command += [word for setting in ALIKE for word in ("--set", setting)]
    with tempfile.TemporaryDirectory() as folder:
        value = cpu_seconds(command, folder)
    sys.stdout.write(json.dumps({"value": value}) + "\n")


if __name__ == "__main__":
    main()
