"""A disk that is really full: the sweep ends with exit code 4 and loses nothing."""

from pathlib import Path

import pytest

from benchmarks.chaos import full_disk


@pytest.mark.slow
def test_a_full_disk_costs_no_trial_anything(tmp_path: Path) -> None:
    if not full_disk.can_mount():
        pytest.skip("file systems cannot be mounted here")
    assert full_disk.run(tmp_path, rounds=1, seed=0) == 0
