"""Tests of the benchmark of learning: missing runs, and comparisons with the reference."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.learning import __main__ as learning
from benchmarks.learning import report, stored, updates
from benchmarks.learning.rows import ROWS, Reference, Row, find

ROW = Row(
    "a", "A-v1", "ppo:PPO", 100, None, "", {"env": "A-v1"}, seeds=2, reference=Reference("PPO")
)


def test_a_run_is_due_until_it_is_in_the_file_and_again_if_its_settings_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "RESULTS", tmp_path / "results.jsonl")
    everything = [(ROW, seed, by) for seed in (0, 1) for by in ("sweep", "Stable-Baselines3")]
    assert list(learning.missing_runs([ROW], None)) == everything
    made = [
        {"row": "a", "seed": 0, "version": learning.version(ROW, by)} for _, _, by in everything
    ]
    learning.RESULTS.write_text("".join(json.dumps(run) + "\n" for run in made[:2]))
    assert list(learning.missing_runs([ROW], None)) == everything[2:]
    tuned = replace(ROW, reference=Reference("PPO", {"n_epochs": 3}))
    assert list(learning.missing_runs([tuned], 1)) == [(tuned, 0, "Stable-Baselines3")]
    slower = replace(ROW, config={"env": "A-v1", "lr": 1e-5})
    assert list(learning.missing_runs([slower], 1)) == [(slower, 0, "sweep")]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [([10, 11, 12], [1, 2, 3], "yes"), ([1, 2, 3], [10, 11, 12], "no"), ([1, 9], [2, 9], "alike")],
)
def test_a_row_is_no_worse_than_its_reference_only_where_seeds_say_so(
    ours: list[float], theirs: list[float], said: str
) -> None:
    runs = [[{"mean": float(mean)} for mean in of] for of in (ours, theirs)]
    whole = replace(ROW, seeds=min(map(len, runs)))
    cells = report._line(whole, *runs).split(" | ")
    assert cells[-2] == said
    early = report._line(replace(ROW, seeds=whole.seeds + 1), *runs).split(" | ")
    assert early[-2] == "not known yet: seeds are missing"
    assert f"(Stable-Baselines3, seeds so far: {len(theirs)})" in early[-1]
    first = report._line(replace(ROW, seeds=3), runs[0], runs[1][:1])
    assert f"| {theirs[0]:.1f} (Stable-Baselines3, seeds so far: 1) |" in first  # of one no spread
    low, high = report.difference(np.array(ours, float), np.array(theirs, float))
    assert low < np.mean(ours) - np.mean(theirs) < high
    assert f"difference {low:.0f} to {high:.0f}" in cells[-1]


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([9, 9, 9], [1], "yes, for any returns of the missing seeds"),  # (1 + 10 + 10) / 3 is 7
        ([7, 7, 7], [1], "yes, for any returns of the missing seeds"),
        ([6, 7, 7], [1], "not known yet: seeds are missing"),
        ([9, 9], [1], "not known yet: seeds are missing"),
    ],
)
def test_a_row_is_decided_before_its_reference_has_all_seeds_only_where_these_cannot_change_it(
    ours: list[float], theirs: list[float], said: str
) -> None:
    row = replace(ROW, seeds=3, highest=10.0)
    runs = [[{"mean": float(mean)} for mean in of] for of in (ours, theirs)]
    assert report._line(row, *runs).split(" | ")[-2] == said
    if len(ours) == row.seeds:
        assert "seeds so far: 1; the mean of 3 can be 7.0 at most" in report._line(row, *runs)


def test_a_published_figure_stands_beside_what_the_reference_reaches_here() -> None:
    row = replace(ROW, goal=5.0, published="9.0 (zoo)", reason="it forgets")
    cells = report._line(row, [{"mean": 1.0}, {"mean": 3.0}], []).split(" | ")
    assert cells[-2:] == ["no: it forgets", "9.0 (zoo) |"]
    runs = [{"mean": 2.0}, {"mean": 4.0}]
    cells = report._line(row, [{"mean": 1.0}, {"mean": 3.0}], runs).split(" | ")
    assert cells[-1] == "9.0 (zoo); 3.0 ± 1.4 (Stable-Baselines3, 2 seeds) |"


def test_the_page_says_how_far_updates_are_from_the_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = json.loads(updates.RESULTS.read_text("utf-8"))
    assert kept.keys() == updates.CONFIGS.keys()
    assert max(apart for of in kept.values() for apart in of.values()) < 0.002
    monkeypatch.setattr(updates, "RESULTS", tmp_path / "updates.json")
    updates.RESULTS.write_text('{"sac": {"actor": 0.2, "critics": 0.001}}')
    assert report.update_lines() == ["| sac | actor 2e-01, critics 1e-03 |"]


def test_without_runs_of_the_reference_nothing_is_said_of_it() -> None:
    assert "| not known yet |" in report._line(ROW, [{"mean": 1.0}], [])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_rows_settings_are_ones_that_its_algorithm_has(row: Row) -> None:
    assert find(row.name) is row
    row.trainer().check_config({"schedule_timesteps": row.steps, **row.config})


def test_a_run_from_files_is_due_until_its_settings_or_those_of_its_writers_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "RESULTS", tmp_path / "stored.jsonl")
    rows = [row for row in stored.ROWS if row.name in ("cartpole-bc", "cartpole-iql")]
    everything = [(row, seed) for seed in (0, 1) for row in rows]
    assert stored.missing_runs(rows, 2) == everything
    made = [
        {"row": row.name, "seed": seed, "version": stored.version(row)}
        for row, seed in everything[:2]
    ]
    stored.RESULTS.write_text("".join(json.dumps(run) + "\n" for run in made))
    assert stored.missing_runs(rows, 2) == everything[2:]
    longer = replace(stored.WRITERS["cartpole"], steps=9)
    monkeypatch.setattr(stored, "WRITERS", {**stored.WRITERS, "cartpole": longer})
    again = [(row.name, seed) for row, seed in stored.missing_runs(rows, 2)]
    assert again == [("cartpole-iql", 0), ("cartpole-bc", 1), ("cartpole-iql", 1)]


@pytest.mark.parametrize(
    ("means", "said"),
    [([90, 91, 92], "yes"), ([60, 61, 62], "than sampling"), ([10, 11, 12], "no")],
)
def test_better_than_the_best_that_wrote_is_what_all_seeds_say(
    means: list[float], said: str
) -> None:
    (row,) = (row for row in stored.ROWS if row.name == "cartpole-iql")
    runs = [{"mean": one, "sampled": [20.0, 50.0], "greedy": [30.0, 70.0]} for one in means]
    assert report._stored_line(row, runs).rstrip(" |").split(" | ")[-1] == said


@pytest.mark.parametrize("row", stored.ROWS, ids=lambda row: row.name)
def test_every_row_from_files_has_settings_that_its_algorithm_has(row: stored.StoredRow) -> None:
    stored.trainer_of(row.algorithm).check_config({**row.config, "input": "data"})


def test_rows_whose_settings_have_changed_since_their_runs_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = ROWS[:2]
    runs = [
        {"row": first.name, "version": learning.version(first), "seed": 0},
        {"row": second.name, "version": "of former settings", "seed": 0},
    ]
    written: list[list[str]] = []

    def write(ours: list[dict[str, object]], _: object) -> None:
        written.append([str(run["row"]) for run in ours])

    (tmp_path / "results.jsonl").write_text("\n".join(map(json.dumps, runs)))
    monkeypatch.setattr(learning, "RESULTS", tmp_path / "results.jsonl")
    monkeypatch.setattr(learning, "ROWS", (first, second))
    monkeypatch.setattr(report, "write", write)
    monkeypatch.setattr("sys.argv", ["learning", "--report-only"])
    learning.main()
    assert written == [[first.name]]
    assert f"no run has today's settings: {second.name};" in capsys.readouterr().err
