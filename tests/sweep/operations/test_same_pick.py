"""Commands, pages and the API of one sweep name the same best trial and the same expectation."""

import csv
import io
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sweep
from tests.support.command_line import Here, write_spec

#: Changes of a spec whose scores are partly luck, so that the best score is often not the pick.
NOISY: Mapping[str, Any] = {"config": {"noise": 3.0}, "trackers": ["mlflow"], "deterministic": None}
#: Name → further changes.
SWEEPS: Mapping[str, Mapping[str, Any]] = {
    "tests of the best trial": {"seeds": "auto"},
    "seeds at rungs": {"seeds": {"3": 2, "9": 3}, "seed": 3},
    "one seed": {"seeds": 1},
    "means of the last scores": {"seeds": "auto", "score": {"mean_last": 3}},
    "hyperband": {"scheduler": {"name": "hyperband", "grace_period": 1}, "seed": 5},
    "full trainings": {"scheduler": "fifo", "trials": 5, "seeds": 2},
}


@pytest.mark.parametrize("changes", SWEEPS.values(), ids=SWEEPS)
def test_every_command_and_page_names_the_same_best_trial(
    changes: Mapping[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(tmp_path, **{**NOISY, **changes})
    code, table, _ = here("run", spec, "--pool", "inline")
    assert code == 0
    before = picks(here, table)
    assert len({*before.values()}) == 1, before
    _, table, _ = here("resume", "demo", "--pool", "inline")
    after = picks(here, table)
    assert {*after.values()} == {*before.values()}, after


def picks(here: Here, table: str) -> dict[str, tuple[int, float]]:
    """Source → number of the best trial and the score that it is expected to have.

    Sources that show no expected score get that of the trial that they name.
    """
    listed = here.json("results", "demo")["trials"]
    expected = {row["trial"]: row["expected"] for row in listed}
    opened = sweep.load("demo", root=here.root)
    best, frame = opened.best(), opened.results()
    assert best.expected is not None
    page = here.root / "page.html"
    assert here("report", "demo", "--out", page)[0] == 0
    tile = re.search(r"on a new seed of trial (\d+)", page.read_text(encoding="utf-8"))
    assert tile is not None
    lines = list(csv.DictReader(io.StringIO(here("results", "demo", "--csv")[1])))
    numbers = {
        "run": first_trial(table),
        "results": first_trial(here("results", "demo")[1]),
        "results --csv": int(lines[0]["trial"]),
        "best": int(here("best", "demo")[1].split("trial ")[1].split()[0]),
        "best --json": here.json("best", "demo")["trial"],
        "status --json": here.json("status", "demo")["best"]["trial"],
        "Sweep.results()": int(frame["trial"].iloc[0]),
        "report": int(tile[1]),
    }
    return {
        **{source: (number, expected[number]) for source, number in numbers.items()},
        "results --json": (listed[0]["trial"], listed[0]["expected"]),
        "Sweep.best()": (best.number, best.expected),
        "MLflow": first_in_mlflow(here.root / "mlflow.db"),
    }


def first_trial(text: str) -> int:
    """Number in the first row of the table of trials in a text."""
    row = re.search(r"^ *(\d+)  (?:completed|pruned|paused) ", text, re.MULTILINE)
    assert row is not None
    return int(row[1])


def first_in_mlflow(path: Path) -> tuple[int, float]:
    """Trial whose run is first in the page's order, and its metric of the expected score."""
    with closing(sqlite3.connect(path)) as database:
        tags: dict[str, dict[str, str]] = {}
        for run, key, value in database.execute("select run_uuid, key, value from tags"):
            tags.setdefault(run, {})[key] = value
        runs = [run for run, its in tags.items() if "sweep.order" in its]
        first = min(runs, key=lambda run: tags[run]["sweep.order"])
        query = "select value from latest_metrics where run_uuid = ? and key = 'expected_score'"
        (score,) = database.execute(query, (first,)).fetchone()
    return int(tags[first]["sweep.trial"]), float(score)
