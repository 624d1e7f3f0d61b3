"""Tests of the comparison with other libraries: its page, and the errors that it detects."""

import sys
from pathlib import Path

import pytest

from benchmarks.chaos import peer_curve, peers_faults, peers_kills, peers_oracle, peers_report
from benchmarks.chaos.peers_kills import Kill
from benchmarks.chaos.peers_processes import Tool
from benchmarks.chaos.store_faults import can_trace

CARELESS = Tool("careless", sys.executable, "tests.support.careless")
OURS = Tool("sweep", sys.executable, "benchmarks.chaos.peer_sweep")


def test_the_page_is_what_the_lines_give() -> None:
    assert peers_report.PAGE.read_text() == peers_report.page()


def test_a_kill_of_a_careless_tool_is_noticed_in_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_kills, "LEFT_AFTER_S", 0.2)
    found = peers_kills.run_killed(CARELESS, Kill("driver", 7, 0.0))
    assert found["left"] == found["left_at_end"] == 1
    assert {key: found[key] for key in peers_oracle.ERRORS} == {
        "lost": 4,
        "stuck": 1,
        "twice": 1,
        "missing": 3 * 15,
        "repeated": 3,
        "other_curve": 3,
        "other_end": 3,
    }
    assert (found["charged"], found["why"]) == (1, [])
    assert found["again"] >= found["at"]
    assert found["files"]["tmp#"] == 2  # /dev/shm is shared with other programs


def test_a_tool_that_nobody_disturbs_has_the_known_curves(tmp_path: Path) -> None:
    losses, state = peer_curve.expected(3)
    answer = {"index": 3, "done": True, "ended": True, "charged": False, "final": state}
    curve = [[k + 1, loss] for k, loss in enumerate(losses)]
    found = peers_oracle.judge([{**answer, "curve": curve}], tmp_path)
    assert found.pop("lost") == peer_curve.TRIALS - 1
    assert set(found.values()) == {0}


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace")
def test_a_checkpoint_that_is_written_in_place_is_noticed_and_ours_is_not_lost() -> None:
    with peers_faults.Savers(CARELESS) as savers:
        assert peers_faults.calls(savers) == dict.fromkeys(("close", "openat", "write"), (4, 4))
        found = peers_faults.all_fail(savers, "write", 2, "signal=KILL")
        assert found == {"tried": 2, "struck": 2, "lost": 2, "refused": 0}
        assert peers_faults.all_fail(savers, "write", 1, "error=EIO")["refused"] == 1
    with peers_faults.Savers(OURS) as savers:
        found = peers_faults.all_fail(savers, "write", 2, "signal=KILL")
        assert (found["struck"], found["lost"]) == (2, 0)
