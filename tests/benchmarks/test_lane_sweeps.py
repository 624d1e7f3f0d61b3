"""Tests of the benchmark of whole sweeps in lanes: it runs at a small size."""

import pytest

from benchmarks import lane_sweeps

pytest.importorskip("jax")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "programs"),
    [("cartpole_lanes", 1), ("quickstart", 2), ("cartpole_ppo", 6), ("acrobot_dqn", 18)],
)
def test_a_shipped_space_needs_few_programs_and_places(space: str, programs: int) -> None:
    needed = lane_sweeps.count_needed(space, 128)
    assert needed.programs == programs
    assert 128 <= needed.places <= 2 * 128


@pytest.mark.proof
def test_sweeps_are_measured_in_lanes_and_in_processes(capsys: pytest.CaptureFixture[str]) -> None:
    lane_sweeps.main(["--trials", "2", "--steps", "4096", "--drawn", "2"])
    said = capsys.readouterr().out
    rows = [line.split("|") for line in said.splitlines() if line.startswith("| `--pool")]
    assert [row[1].strip() for row in rows] == list(lane_sweeps.RUNS)
    assert all(int(row[2]) > 0 and int(row[3]) > 0 for row in rows)
    assert "| `cartpole_lanes` | 1 | 2 |" in said
