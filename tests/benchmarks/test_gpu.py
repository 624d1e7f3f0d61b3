"""Tests of the benchmark of lanes on a device: it runs on a CPU at a small size."""

import json
from pathlib import Path

import pytest

from benchmarks import gpu


@pytest.mark.slow
def test_it_measures_lanes_and_a_whole_sweep_in_lanes(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    out = tmp_path / "gpu.json"
    sweep = "quickstart --trials 2 --jobs 2 --set stop.timesteps_total=2560"
    sweep += " --set scheduler=fifo"
    gpu.main(["--out", str(out), "--lanes", "2", "--seconds", "0.1", "--sweep", sweep])
    found = json.loads(out.read_text("utf-8"))
    assert found["device"]
    assert found["lanes"]["2"]["steps_per_s"] > 0
    first, second = found["sweeps"].values()
    assert (first["exit_code"], second["exit_code"]) == (0, 0), first
    assert first["trials"] == first["trials_with_curve"] == 2
    assert first["steps"] == second["steps"] == 5120
    assert first["damages"] == []
    assert 0 < first["driver_cpu_s"] < first["wall_s"]


@pytest.mark.slow
def test_a_sweep_that_fails_leaves_its_output_in_the_figures(tmp_path: Path) -> None:
    found = gpu.sweep_from_shell("no_such_space", (), tmp_path)
    assert found["exit_code"] == 2
    assert "no_such_space" in found["output"]
