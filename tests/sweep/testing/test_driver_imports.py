"""What a driver imports: torch, which takes seconds and 200 MB, only where something needs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from sweep import plugins, schedulers, searchers
from tests.support.command_line import environment

#: Searches with each searcher in turn, then makes and asks each scheduler; says who imported torch.
PROGRAM = """
import sys
from sweep.testing import simulate

def simulated(**keys):
    with_grid = keys.get("searcher") in ("grid", "brute_force")
    space = {"x": {"choice": list(range(20))}} if with_grid else {"x": {"uniform": [0.0, 1.0]}}
    spec = {"trials": 4, "stop": {"training_iteration": 9}, "space": space, **keys}
    course = simulate(spec, lambda at: {"score": float(at.trial)}, slots=2)
    assert course.how == "finished", keys

NEEDED = {
    "pbt": {"perturbation_interval": 2},
    "pb2": {"perturbation_interval": 2},
    "optuna": {"pruner": "MedianPruner"},
    "threshold": {"lower": 0.5},
}

for word in sys.argv[1:]:
    kind, _, name = word.partition(":")
    if kind == "searcher":
        simulated(searcher=name, scheduler="fifo")
    else:
        simulated(scheduler={"name": name, **NEEDED.get(name, {})})
    if "torch" in sys.modules:
        print(word)
        break
"""


def imports_torch(words: list[str], cwd: Path) -> str:
    """The first plugin with which a driver imports torch; empty: none does."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_no_scheduler_and_no_searcher_but_gp_makes_a_driver_import_torch(tmp_path: Path) -> None:
    names = [f"searcher:{name}" for name in plugins.names(searchers.PACKAGE) if name != "gp"]
    # A replayed schedule is a file, for one trial.
    names += [
        f"scheduler:{name}" for name in plugins.names(schedulers.PACKAGE) if name != "pbt_replay"
    ]
    assert imports_torch(names, tmp_path) == ""


@pytest.mark.slow
def test_gp_is_what_imports_torch(tmp_path: Path) -> None:
    assert imports_torch(["searcher:gp"], tmp_path) == "searcher:gp"
