"""kill -9 at instants that nobody chose, five times per sweep: the short form of the long run."""

from pathlib import Path

import pytest

from benchmarks.chaos import kills
from benchmarks.chaos.store_cases import Cases
from benchmarks.chaos.victims import Victim


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "count"),
    [(Victim.GROUP, 15), (Victim.DRIVER, 10), (Victim.WORKER, 5), (Victim.ROLLOUT, 10)],
)
def test_a_sweep_that_is_killed_again_and_again_is_the_one_that_nobody_killed(
    tmp_path: Path, victim: Victim, count: int
) -> None:
    assert kills.run(tmp_path, count, 0, victim) == 0
    lines = Cases(tmp_path, f"kill_{victim}").done.values()
    assert sum(line["kills"] for line in lines) >= count
