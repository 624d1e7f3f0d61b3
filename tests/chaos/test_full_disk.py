"""A disk that is really full: the sweep ends with exit code 4 and loses nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.events import Status
from sweep.folder import Folder
from tests.support import sweeps
from tests.support.command_line import environment, write_spec
from tests.support.quadratic import expected_loss
from trainables import rng

IN_A_NAMESPACE = ["unshare", "--map-root-user", "--mount"]
#: A file system of 400 kB, half of it taken; then a larger one, with the same files.
SCRIPT = """
set -u
mkdir disk
mount -t tmpfs -o size=400k tmpfs disk
head -c 200k /dev/zero > disk/ballast
call() { "$PYTHON" -m sweep.cli "$@" --jobs 2 --root disk >> told 2>&1; echo $? >> codes; }
call run spec.yaml
call resume demo
rm disk/ballast
mount -o remount,size=8m disk
call resume demo
cp -r disk/demo kept
"""


def test_a_full_disk_costs_no_trial_anything(tmp_path: Path) -> None:
    if subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    changes: dict[str, Any] = {"scheduler": "fifo", "deterministic": None, "searcher": "random"}
    config = {"noise": 0.1, "step_s": 0.01}
    write_spec(tmp_path, trials=8, config=config, limits={"slice_s": 0.03}, **changes)
    subprocess.run(
        [*IN_A_NAMESPACE, "bash", "-c", SCRIPT],
        cwd=tmp_path,
        env={**environment(), "PYTHON": sys.executable},
        check=True,
        timeout=240,
    )
    told = (tmp_path / "told").read_text()
    assert json.loads(f"[{','.join((tmp_path / 'codes').read_text().split())}]") == [4, 4, 0], told
    assert "Traceback" not in told
    folder = Folder(tmp_path, "kept")
    trials = sweeps.history(folder).trials
    assert [trial.status for trial in trials] == [Status.COMPLETED] * 8
    for trial in trials:
        assert (trial.replicas[0].crashes, trial.replicas[0].lost) == ([], 0)
        seed = rng.integer(7, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        assert losses == [expected_loss(trial.config, k, seed) for k in range(1, 10)]
