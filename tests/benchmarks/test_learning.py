"""The comparison of PPO's speeds: our contestants run, and the table says what was measured."""

import pytest

from benchmarks.learning.__main__ import OURS, table
from benchmarks.learning.contestants import timed


@pytest.mark.parametrize("name", OURS)
def test_our_learners_are_timed(name: str) -> None:
    figures = timed(name, 1)
    assert figures["steps"] == 256
    assert figures["wall_s"] > 0
    assert figures["parts_ms"].keys() >= {"sample_time_ms", "learn_time_ms"}


def test_rows_are_medians_and_multiples_of_the_last() -> None:
    def rounds(speeds: list[int]) -> list[dict[str, object]]:
        return [{"steps": s, "cpu_s": 1.0, "parts_ms": {"learn_time_ms": 2.0}} for s in speeds]

    shown = table({"fused": rounds([900, 800, 100]), "torch": rounds([300, 200, 200])})
    assert "| fused | 800 | 4.00 | learn 2.0 |" in shown.splitlines()
    assert "| torch | 200 | 1.00 | learn 2.0 |" in shown.splitlines()
