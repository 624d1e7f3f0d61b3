"""The benchmark of saved replays writes what it says, and no more than what changed."""

import re

import pytest

from benchmarks import replay


def test_it_prints_what_each_kind_of_replay_costs(capsys: pytest.CaptureFixture[str]) -> None:
    replay.main(["--size", "400000", "--steps", "1000", "--rounds", "2"])
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[1] for line in lines] == ["ReplayBuffer", "PrioritizedReplay"]
    sizes = [[float(size) for size in re.findall(r"([0-9.]+) MiB", line)] for line in lines]
    held, written = sizes[0]
    assert held == pytest.approx(400_000 * 45 / 2**20, abs=0.1)
    assert 4 <= written < held
    assert all(re.search(r"[0-9.]+ s \| [0-9.]+% \|$", line) for line in lines)
