"""A disk that is full, then read-only, then has free space: no checkpoint is lost.

    python -m benchmarks.chaos.full_disk [--out DIR] [--rounds N] [--seed S]

A round is one sweep on a file system of 400 kB. A random part of it is occupied from the beginning,
so that the disk becomes full at a different moment each time. The sweep ends with exit code 4, and
so does each attempt to resume it, on the full disk and on the read-only disk. Then there is free
space, and the sweep ends like an undisturbed one. The test needs a mount namespace of its own.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.chaos.store_cases import Cases, Failed, main
from benchmarks.chaos.victims import REPOSITORY
from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from trainables.core import rng

_IN_A_NAMESPACE = ("unshare", "--map-root-user", "--mount")
_SPEC = """
name: demo
trials: 8
trainable: tests.support.quadratic:Quadratic
metric: loss
mode: min
config: {noise: 0.1, step_s: 0.01}
space: {lr: {loguniform: [0.001, 0.9]}}
stop: {training_iteration: 9}
searcher: random
limits: {slice_s: 0.03}
trackers: []
seed: 7
"""
_SEED, _ITERATIONS = 7, 9
#: Runs the sweep on a small file system with ballast, a read-only one, and a larger one.
_SCRIPT = """
set -u
mkdir disk
mount -t tmpfs -o size=400k tmpfs disk
head -c "$BALLAST" /dev/zero > disk/ballast
call() { "$PYTHON" -m sweep.cli.main "$@" --jobs 2 --root disk >> output 2>&1; echo $? >> codes; }
call run spec.yaml
call resume demo
mount -o remount,ro disk
call resume demo
mount -o remount,rw,size=8m disk
call resume demo
cp -r disk/demo copy
"""
#: Exit codes of the four calls.
_CODES = ["4", "4", "4", "0"]
_LIMIT_S = 1200.0
#: Range of the occupied bytes: the ledger fits, but not all checkpoints.
_BALLAST = (150_000, 230_000)


def run(out: Path, rounds: int, seed: int) -> int:
    """Run `rounds` sweeps; return the number of failed ones."""
    cases = Cases(out, "full_disk")
    for number in range(rounds):
        ballast = int(rng.generator(seed, "full disk", number).integers(*_BALLAST))
        cases.run(f"{number}: {ballast} bytes are occupied", partial(fill, ballast))
    return cases.close()


def can_mount() -> bool:
    """Return whether file systems can be mounted here."""
    tried = subprocess.run([*_IN_A_NAMESPACE, "true"], capture_output=True, check=False)  # noqa: S603 our own words
    return tried.returncode == 0


def fill(ballast: int) -> dict[str, int]:
    """Run one sweep on a disk with `ballast` occupied bytes; return its figures."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        root = Path(name)
        (root / "spec.yaml").write_text(_SPEC)
        variables = {
            "BALLAST": str(ballast),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(REPOSITORY),
        }
        subprocess.run(  # noqa: S603 our own script
            [*_IN_A_NAMESPACE, "bash", "-c", _SCRIPT],
            cwd=root,
            env={**os.environ, **variables},
            check=True,
            timeout=_LIMIT_S,
        )
        output = (root / "output").read_text()
        codes = (root / "codes").read_text().split()
        if codes != _CODES:
            raise Failed(f"exit codes {codes}: {output}")
        if "Traceback" in output:
            raise Failed(output)
        return _judge(Folder(root, "copy"))


def _judge(folder: Folder) -> dict[str, int]:
    """Raise Failed unless the sweep equals an undisturbed one; return its figures."""
    trials = sweeps.history(folder).trials
    if [trial.status for trial in trials] != [Status.COMPLETED] * len(trials) or len(trials) != 8:
        raise Failed(f"trials ended {[trial.status for trial in trials]}")
    for trial in trials:
        replica = trial.replicas[0]
        if replica.crashes or replica.lost_slices:
            raise Failed(f"a failure of trial {trial.number} was counted")
        seed = rng.integer(_SEED, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        expected = [expected_loss(trial.config, k, seed) for k in range(1, _ITERATIONS + 1)]
        if losses != expected:
            raise Failed(f"trial {trial.number} has another curve: {losses}")
    return {"trials": len(trials)}


if __name__ == "__main__":
    main(run, rounds=20)
