"""Short runs of random sweeps with random events, and a check that errors are detected."""

from pathlib import Path

import pytest

from benchmarks.chaos import scheduling
from benchmarks.chaos.store_cases import Cases, Failed
from sweep.slices import retention
from tests.support.proofs import proofs_except


@pytest.mark.slow
@pytest.mark.parametrize("seed", proofs_except({0}, range(10)))  # parts that run side by side
def test_R18_whatever_happens_to_a_sweep_its_promises_hold(seed: int) -> None:
    happened = scheduling.case(seed, 20, shrinks=False)
    assert happened["sweeps"] >= 20
    assert {"finished", "goal", "trials"} <= set(happened)


def test_R18_each_case_leaves_a_line_of_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "EXAMPLES", 2)
    assert scheduling.run(tmp_path, 1, 7) == 0
    (line,) = Cases(tmp_path, "scheduling").done.values()
    assert line["sweeps"] >= 2


def test_R18_a_false_claim_is_found_and_its_example_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "ALWAYS_KEPT", 1)
    with pytest.raises(Failed, match="deletes the checkpoints of") as found:
        scheduling.case(1, 25, shrinks=False)
    with pytest.raises(Failed, match="deletes the checkpoints of"):
        scheduling.replay(*scheduling.replay_arguments(str(found.value)))
