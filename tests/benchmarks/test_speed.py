"""Tests of the comparison of speeds: ratios, goals, and stored runs."""

import json
import multiprocessing
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest
import torch

from benchmarks.speed import pictures, report, runner
from benchmarks.speed.cases import ALL, CASES, CURVES, Case, Curve, Side
from benchmarks.speed.measures import learning_time, ppo_ours, slice_profile, sweep_optuna_sb3
from trainables.algorithms import ppo

RATE = Case("a", "rate", "steps/s", Side("sweep", "x"), Side("peer", "y"), 2.0)
TIME = Case("b", "time", "s", Side("sweep", "x"), Side("peer", "y"), 2.0, more_is_better=False)
LIMIT = Case(
    "c", "limit", "s", Side("sweep", "x"), Side("raw", "y"), 1.5, False, is_against_peer=False
)


def test_a_ratio_says_how_much_faster_than_a_peer_and_how_near_to_a_limit() -> None:
    assert RATE.ratio(ours=30.0, other=10.0) == 3.0
    assert TIME.ratio(ours=10.0, other=30.0) == 3.0
    assert LIMIT.ratio(ours=30.0, other=10.0) == 3.0


def test_a_peer_is_to_be_beaten_by_at_least_the_goal_and_a_limit_missed_by_at_most() -> None:
    assert RATE.is_reached(2.0)
    assert not RATE.is_reached(1.9)
    assert LIMIT.is_reached(1.5)
    assert not LIMIT.is_reached(1.6)


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
    assert len({one.name for one in ALL}) == len(ALL)
    for case in ALL:
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


def test_every_library_computes_as_it_would_on_this_processor_and_is_compiled_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    given: dict[str, str] = {}

    def run(*_: object, env: dict[str, str], **__: object) -> subprocess.CompletedProcess[str]:
        given.update(env)
        return subprocess.CompletedProcess([], 0, '{"value": 1.0}\n', "")

    monkeypatch.setattr("subprocess.run", run)
    assert runner.measure(Side("sweep", "fixed", ("1",))) == 1.0
    assert not {"OPENBLAS_CORETYPE", "PYTHONDONTWRITEBYTECODE"} & given.keys()
    assert given["OMP_NUM_THREADS"] == "1"


def test_of_a_case_that_is_only_drawn_a_third_of_the_pairs_is_measured_and_one_at_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "RUNS", tmp_path / "runs.jsonl")
    monkeypatch.setattr(runner, "measure", lambda side: 1.0)
    drawn = replace(RATE, name="drawn", is_only_drawn=True)
    for runs, expected in ((1, 1), (3, 1), (5, 2)):
        monkeypatch.setattr(runner, "version", lambda runs=runs: f"of {runs}")
        assert [len(one.pairs) for one in runner.run([RATE, drawn], runs)] == [runs, expected]


def test_the_reason_stands_where_a_ratio_is_not_reached_and_nowhere_else() -> None:
    case = replace(RATE, reason="its steps are compiled")
    missed, reached = (
        report.table([runner.Figures(case, [runner.Pair(ours, 10.0)])]).splitlines()[-1]
        for ours in (10.0, 30.0)
    )
    assert missed.endswith("| no: its steps are compiled |")
    assert reached.endswith("| yes |")


# ---- the picture, and where a slice's time goes -----------------------------------------------


def test_every_curve_is_drawn_from_cases_that_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "PICTURE", tmp_path / "performance.svg")
    pictures.draw({one.name: runner.Figures(one, [runner.Pair(2.0, 4.0)]) for one in ALL})
    drawn = pictures.PICTURE.read_text()
    assert all(curve.title in drawn for curve in CURVES)


def test_a_point_that_was_not_measured_is_left_out() -> None:
    cases = [replace(RATE, name=name) for name in ("one", "two", "three")]
    curve = Curve("a", "b", "c", tuple(enumerate(cases, 1)), other="peer")
    pairs = [runner.Pair(2.0, 4.0)]
    figures = {
        "one": runner.Figures(cases[0], pairs),
        "two": runner.Figures(cases[1], [], "it is not installed"),
    }
    found = [(label, sizes, values) for label, _, sizes, values in pictures.lines(curve, figures)]
    assert found == [("sweep", [1], [2.0]), ("peer", [1], [4.0])]


def test_the_points_of_curves_are_rows_where_they_are_measured_the_same_way() -> None:
    points = {case.name for curve in CURVES for _, case in curve.points}
    assert {"slots-2", "trial-50000", "sampling-CartPole-v1-64-NoFilter"} <= points
    assert all(one.goal for one in CASES)
    assert all(one.is_only_drawn and not one.goal for one in ALL if one not in CASES)


def test_the_table_of_a_slice_has_shares_of_the_whole() -> None:
    rows = report.profile({"learning": 30.0, "sampling": 10.0}).splitlines()[2:]
    assert rows == [
        "| learning | 30 | 75.0 % |",
        "| sampling | 10 | 25.0 % |",
        "| **the slice** | **40** | |",
    ]


def test_the_time_of_a_part_is_without_the_parts_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.thread_time", lambda: now[0])
    parts = slice_profile.Parts()

    def passes(seconds: float) -> None:
        now[0] += seconds

    inner = parts.wrap("inner", passes)

    def both() -> None:
        passes(1.0)
        inner(2.0)
        passes(4.0)

    parts.wrap("outer", both)()
    assert parts.seconds == {"outer": 5.0, "inner": 2.0}
    parts.wrap(slice_profile.WHOLE, both)()  # another slice
    assert parts.seconds == {slice_profile.WHOLE: 5.0, "inner": 2.0}


@pytest.mark.proof
def test_every_part_of_a_slice_takes_time() -> None:
    parts = runner.run_side(replace(report.PROFILE, arguments=("2048",)))["parts"]
    assert set(parts) == set(slice_profile.PARTS.values())
    assert all(ms > 0 for ms in parts.values()), parts


# ---- what the peers are given -----------------------------------------------------------------


def test_training_counts_until_the_greedy_policy_has_learnt_it_and_no_longer() -> None:
    calls: list[int] = []

    def act(observations: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> list[int]:
        balances = [
            int(one[2] + 0.5 * one[3] + 0.1 * one[0] + 0.2 * one[1] > 0) for one in observations
        ]
        return balances if len(calls) == 3 else [0] * len(observations)

    assert learning_time.seconds(lambda: calls.append(1), act) >= 0.0
    assert len(calls) == 3


def test_what_is_compared_learns_values_with_the_weight_that_the_peers_give_them() -> None:
    values, returns = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 6.0])
    ours = ppo_ours.TUNED["vf_loss_coeff"] * ppo.vf_loss(values, {"returns": returns}, None)
    theirs = 0.5 * torch.nn.functional.mse_loss(values, returns)  # vf_coef of Stable-Baselines3
    assert float(ours) == float(theirs) == 2.5


def test_training_that_never_learns_ends_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning_time, "MOST_STEPS", 2 * learning_time.STEPS)
    with pytest.raises(RuntimeError, match="no greedy return of 475 within 4,096 steps"):
        learning_time.seconds(lambda: None, lambda observations: [0] * len(observations))


@pytest.mark.slow
def test_two_processes_take_each_waiting_trial_once(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    study = optuna.create_study(study_name="taken", storage=storage)
    for _ in range(12):
        study.enqueue_trial({})
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        taken = pool.starmap(take_all, [(storage, tmp_path)] * 2)
    assert sorted(taken[0] + taken[1]) == list(range(12))


def take_all(storage: str, folder: Path) -> list[int]:
    study = optuna.load_study(study_name="taken", storage=storage)
    taken = []
    while (trial := sweep_optuna_sb3.take_trial(study, folder)) is not None:
        study.tell(trial, 0.0)
        taken.append(trial.number)
    return taken
