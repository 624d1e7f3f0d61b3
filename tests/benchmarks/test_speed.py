"""The comparison of speeds: ratios, what counts as reached, and what is kept of a run."""

import json
from pathlib import Path

import pytest

from benchmarks.speed import report, runner
from benchmarks.speed.cases import CASES, Case, Side

RATE = Case("a", "rate", "steps/s", Side("sweep", "x"), Side("peer", "y"), 2.0)
TIME = Case("b", "time", "s", Side("sweep", "x"), Side("peer", "y"), 2.0, more_is_better=False)
LIMIT = Case(
    "c", "limit", "s", Side("sweep", "x"), Side("raw", "y"), 1.5, False, against_peer=False
)


def test_a_ratio_says_how_much_faster_than_a_peer_and_how_near_to_a_limit() -> None:
    assert RATE.ratio(ours=30.0, other=10.0) == 3.0
    assert TIME.ratio(ours=10.0, other=30.0) == 3.0
    assert LIMIT.ratio(ours=30.0, other=10.0) == 3.0


def test_a_peer_is_to_be_beaten_by_at_least_the_goal_and_a_limit_missed_by_at_most() -> None:
    assert RATE.reached(2.0)
    assert not RATE.reached(1.9)
    assert LIMIT.reached(1.5)
    assert not LIMIT.reached(1.6)


def test_the_table_has_a_row_for_what_failed_with_the_reason() -> None:
    rows = report.table([runner.Figures(RATE, [], "no such library")]).splitlines()
    assert rows[-1] == "| rate | not measured: no such library | | | | |"


def test_the_table_shows_medians_the_median_ratio_and_whether_it_is_reached() -> None:
    pairs = [runner.Pair(10.0, 5.0), runner.Pair(30.0, 10.0), runner.Pair(50.0, 10.0)]
    row = report.table([runner.Figures(RATE, pairs)]).splitlines()[-1]
    assert "30 steps/s" in row
    assert "peer: 10" in row
    assert "**3.00** (2.00 to 5.00) | at least 2 | yes" in row


def test_what_was_measured_of_this_version_is_not_measured_again_and_a_torn_line_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runs.jsonl"
    lines = [
        {"version": "now", "case": "a", "ours": 2.0, "other": 1.0},
        {"version": "before", "case": "a", "ours": 9.0, "other": 1.0},
    ]
    file.write_text("\n".join(json.dumps(one) for one in lines) + '\n{"version": "now", "ca')
    monkeypatch.setattr(runner, "RUNS", file)
    monkeypatch.setattr(runner, "version", lambda: "now")
    measured: list[Side] = []

    def measure(side: Side) -> float:
        measured.append(side)
        return 4.0

    monkeypatch.setattr(runner, "measure", measure)
    (figures,) = runner.run([RATE], runs=2)
    assert figures.pairs == [runner.Pair(2.0, 1.0), runner.Pair(4.0, 4.0)]
    assert [one.name for one in measured] == ["sweep", "peer"]


def test_a_side_that_fails_ends_its_case_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RUNS", tmp_path / "runs.jsonl")
    monkeypatch.setattr(runner, "version", lambda: "now")

    def measure(side: Side) -> float:
        if side.module == "y":
            raise RuntimeError("it is not installed")
        return 1.0

    monkeypatch.setattr(runner, "measure", measure)
    failed, also = runner.run([RATE, TIME], runs=1)
    assert (failed.pairs, failed.failure) == ([], "it is not installed")
    assert also.failure == "it is not installed"


def test_every_case_names_modules_that_exist_and_a_name_of_its_own() -> None:
    measures = Path(runner.__file__).with_name("measures")
    assert len({one.name for one in CASES}) == len(CASES)
    for case in CASES:
        for side in (case.ours, case.other):
            assert (measures / f"{side.module}.py").exists(), side


def test_one_real_pair_is_measured_in_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RUNS", tmp_path / "runs.jsonl")
    raw = Side("raw bytes", "raw_bytes", ("save", "100"))
    case = Case("raw", "raw", "ms", raw, raw, 1.0, more_is_better=False)
    (figures,) = runner.run([case], runs=1)
    assert figures.failure == ""
    assert figures.pairs[0].ours > 0.0
