"""Two drivers at once, in short runs."""

from pathlib import Path

import pytest

from benchmarks.chaos import drivers
from benchmarks.chaos.store_cases import Cases


@pytest.mark.slow
def test_of_two_commands_that_start_together_one_runs_and_the_other_is_code_3(
    tmp_path: Path,
) -> None:
    assert drivers.run(tmp_path, 20, 0) == 0
    lines = Cases(tmp_path, "drivers").done
    assert len(lines) == 20
    assert {name.partition(": ")[2] for name in lines} == set(drivers.KINDS)
    assert {line["winner"] for line in lines.values()} == {0, 1}
