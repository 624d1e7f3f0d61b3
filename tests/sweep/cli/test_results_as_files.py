"""`results` and `ls` for other programs: CSV, and JSON with times and checkpoints."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from sweep.cli.options import csv_text
from sweep.ledger.folder import Folder
from sweep.views.overview import OVERVIEW, RESULTS
from tests.support import sweeps
from tests.support.command_line import Here, write_spec


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    made = Here(capsys, tmp_path / "sweeps")
    spec = write_spec(tmp_path, trials=12, space={"lr": {"loguniform": [1e-3, 0.9]}})
    code, out, _ = made("run", spec, "--pool", "inline")
    assert code == 0
    assert f"and 2 trials more: sweep results demo --root {made.root}" in out
    return made


def test_the_csv_of_results_holds_what_the_json_does(here: Here) -> None:
    trials = here.json("results", "demo")["trials"]
    code, out, _ = here("results", "demo", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [int(row["trial"]) for row in rows] == [trial["trial"] for trial in trials]
    assert [float(row["score"]) for row in rows] == [trial["score"] for trial in trials]
    assert [float(r["settings/lr"]) for r in rows] == [t["settings"]["lr"] for t in trials]
    assert not any(key.startswith("config") for key in rows[0])


def test_results_as_json_say_when_a_trial_ran_and_where_its_checkpoint_lies(here: Here) -> None:
    folder = Folder(here.root, "demo")
    for trial in here.json("results", "demo")["trials"]:
        assert trial["started_at"] <= trial["ended_at"]
        assert trial["seconds"] >= 0
        assert (folder.path / trial["checkpoint"]["file"]).stat().st_size > 0


def test_ls_as_csv_has_a_row_for_each_sweep(here: Here) -> None:
    (row,) = csv.DictReader(io.StringIO(here("ls", "--csv")[1]))
    assert (row["name"], row["state"], row["done"]) == ("demo", "finished", "12")


def test_what_has_no_rows_has_its_columns(here: Here, tmp_path: Path) -> None:
    empty = Here(here._captured, tmp_path / "empty")
    assert empty("ls", "--csv")[1].splitlines() == [",".join(OVERVIEW)]
    sweeps.make(empty.root, name="untried", trackers=[])
    assert empty("results", "untried", "--csv")[1].splitlines() == [",".join(RESULTS)]


def test_the_columns_are_the_same_whether_or_not_a_sweep_has_a_score(here: Here) -> None:
    sweeps.make(here.root, name="a-first", trackers=[])
    first, _ = csv.DictReader(io.StringIO(here("ls", "--csv")[1]))
    assert [*first] == [*OVERVIEW, "best/settings/lr"]
    assert (first["best/score"], first["best/settings/lr"]) == ("", "")
    (row, *_) = csv.DictReader(io.StringIO(here("results", "demo", "--csv")[1]))
    assert [*row] == [*RESULTS, "settings/lr"]


def test_two_forms_at_once_are_refused(here: Here) -> None:
    code, out, err = here("results", "demo", "--csv", "--json")
    assert (code, out) == (2, "")
    assert "--json and --csv" in err


def test_rows_with_different_keys_share_one_head() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": {"x": [1, 2]}}, {"a": None, "c": "two, words"}]
    assert csv_text(rows) == 'a,b/x,c\n1,"[1, 2]",\n,,"two, words"\n'
