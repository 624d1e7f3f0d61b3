"""Scripts that sweep a function of their own, run as a person runs them."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sweep.ledger.folder import Folder
from tests.support.command_line import environment

BEGINNING = '''
import os
import random
import sys

import sweep
from trainables import get_checkpoint, report


class Trap:
    """Leaves a trace where it is loaded."""

    def __reduce__(self):
        return os.makedirs, ("LOADED", 0o777, True)


TRAP = Trap() if "trap" in sys.argv else None
'''
#: Draws its noise from the global stream, which a checkpoint restores.
FUNCTION = """
SHARE = 0.5


def descend(x, lr):
    return x - lr * SHARE * (x - 3.0 + random.gauss(0, 0.1))


def train(config):
    TRAP
    start = get_checkpoint() or {"x": 5.0, "i": 0}
    x = start["x"]
    for i in range(start["i"] + 1, 10):
        x = descend(x, config["lr"])
        report({"loss": (x - 3.0) ** 2}, checkpoint={"x": x, "i": i})
"""
CALL = """
if __name__ == "__main__":
    found = sweep.run(
        train,
        name="demo",
        space={"lr": {"loguniform": (1e-3, 0.9)}},
        metric="loss",
        mode="min",
        trials=9,
        stop={"training_iteration": 9},
        scheduler={"name": "asha", "grace_period": 1, "reduction_factor": 3},
        deterministic={"batch": 4},
        trackers=[],
        seed=7,
        jobs=2,
        strict="strict" in sys.argv,
    )
    print("best", found.best().number, found.best().score)
"""


def write(folder: Path, function: str = FUNCTION, call: str = CALL) -> Path:
    """The script ``sweeping.py`` in `folder`."""
    path = folder / "sweeping.py"
    path.write_text(BEGINNING + function + call)
    return path


def run(
    script: Path, *arguments: str, failpoint: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run it in its folder; `failpoint` as in `trainables.core.failpoints`."""
    counter = script.parent / "count"
    counter.unlink(missing_ok=True)
    points = {"SWEEP_FAILPOINT": failpoint, "SWEEP_FAILPOINT_FILE": str(counter)}
    return python(
        [str(script), *arguments], script.parent, {**more, **(points if failpoint else {})}
    )


def command(at: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A command of a shell in the folder `at`."""
    return python(["-m", "sweep.cli.main", *arguments], at, more)


def python(
    arguments: list[str], at: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the folder `at`."""
    words = [sys.executable, *arguments]
    env = {**os.environ, **environment(), **(variables or {})}
    return subprocess.run(
        words, cwd=at, env=env, capture_output=True, text=True, timeout=240, check=False
    )


def folder_of(at: Path) -> Folder:
    """The sweep that the script makes."""
    return Folder(at / "sweeps", "demo")
