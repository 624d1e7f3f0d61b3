"""A disk that is really full, then only readable, then free: no checkpoint is lost.

    python -m benchmarks.chaos.full_disk [--out DIR] [--rounds N] [--seed S]

A round is one sweep on a file system of 400 kB, of which a part is taken from the beginning: how
much is drawn, so that the disk is full at another moment each time. The sweep ends with exit code
4, and so does each try to go on, on the full disk and on one that cannot be written at all; then
there is room, and it ends as if nothing had happened. Needs a namespace of its own to mount in.
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
#: A small file system with ballast; then one that is read only; then a larger one; the same files.
_SCRIPT = """
set -u
mkdir disk
mount -t tmpfs -o size=400k tmpfs disk
head -c "$BALLAST" /dev/zero > disk/ballast
call() { "$PYTHON" -m sweep.cli.main "$@" --jobs 2 --root disk >> told 2>&1; echo $? >> codes; }
call run spec.yaml
call resume demo
mount -o remount,ro disk
call resume demo
mount -o remount,rw,size=8m disk
call resume demo
cp -r disk/demo kept
"""
#: What the four calls end with.
_CODES = ["4", "4", "4", "0"]
_LIMIT_S = 1200.0
#: Bytes that are taken from the beginning: the ledger fits, not all of the checkpoints.
_BALLAST = (150_000, 230_000)


def run(out: Path, rounds: int, seed: int) -> int:
    """So many sweeps; returns how many failed."""
    cases = Cases(out, "full_disk")
    for number in range(rounds):
        ballast = int(rng.generator(seed, "full disk", number).integers(*_BALLAST))
        cases.run(f"{number}: {ballast} bytes are taken", partial(fill, ballast))
    return cases.close()


def can_mount() -> bool:
    """Return whether file systems can be mounted here."""
    tried = subprocess.run([*_IN_A_NAMESPACE, "true"], capture_output=True, check=False)  # noqa: S603 our own words
    return tried.returncode == 0


def fill(ballast: int) -> dict[str, int]:
    """One sweep on a disk that is full after a while; returns figures."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        root = Path(name)
        (root / "spec.yaml").write_text(_SPEC)
        told = {"BALLAST": str(ballast), "PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)}
        subprocess.run(  # noqa: S603 our own script
            [*_IN_A_NAMESPACE, "bash", "-c", _SCRIPT],
            cwd=root,
            env={**os.environ, **told},
            check=True,
            timeout=_LIMIT_S,
        )
        said = (root / "told").read_text()
        codes = (root / "codes").read_text().split()
        if codes != _CODES:
            raise Failed(f"exit codes {codes}: {said}")
        if "Traceback" in said:
            raise Failed(said)
        return _unharmed(Folder(root, "kept"))


def _unharmed(folder: Folder) -> dict[str, int]:
    trials = sweeps.history(folder).trials
    if [trial.status for trial in trials] != [Status.COMPLETED] * len(trials) or len(trials) != 8:
        raise Failed(f"trials ended {[trial.status for trial in trials]}")
    for trial in trials:
        replica = trial.replicas[0]
        if replica.crashes or replica.lost:
            raise Failed(f"trial {trial.number} was charged")
        seed = rng.integer(_SEED, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        expected = [expected_loss(trial.config, k, seed) for k in range(1, _ITERATIONS + 1)]
        if losses != expected:
            raise Failed(f"trial {trial.number} has another curve: {losses}")
    return {"trials": len(trials)}


if __name__ == "__main__":
    main(run, rounds=20)
