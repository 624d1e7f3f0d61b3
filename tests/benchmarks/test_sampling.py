"""The benchmark of sampling: both loops collect what they say they do."""

import numpy as np
import pytest

from benchmarks import sampling


def test_it_prints_a_row_for_each_width_without_and_with_a_filter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert sampling.main(["--envs", "1", "2", "--rounds", "1", "--seconds", "0"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[:2] for row in cells] == [
        ["1", "no filter"],
        ["2", "no filter"],
        ["1", "filter"],
        ["2", "filter"],
    ]
    assert all(float(row[4]) > 0 and float(row[2].replace(",", "")) > 0 for row in cells)


@pytest.mark.parametrize("envs", [1, 3])
def test_both_loops_say_how_many_steps_they_made(envs: int) -> None:
    steps = sampling.STEPS * (8 if envs == 1 else envs)
    by_hand = sampling.loop_of_one(True) if envs == 1 else sampling.loop_of_many(envs, True)
    assert by_hand() == by_hand() == steps
    assert sampling.worker_loop(envs, "MeanStdFilter", {})() == steps


def test_environments_alone_make_as_many_steps_as_they_say() -> None:
    assert sampling.environments_alone("CartPole-v1", 2)() == 2 * sampling.STEPS


def test_a_rate_counts_the_steps_of_every_call() -> None:
    calls: list[int] = []

    def collect() -> int:
        calls.append(1)
        return 7

    rate = sampling.rate(collect, 0.01)
    assert 0 < rate < np.inf
    assert len(calls) >= 1
