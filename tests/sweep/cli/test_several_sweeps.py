"""Several sweeps side by side on the command line: what each found, and with which settings."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import sweeps
from tests.support.command_line import Here
from tests.sweep.cli.test_completion import begun, offered

__all__ = ["begun"]

#: A sweep of the learning rate; `OTHER` fixes that, and searches something else.
FIRST: Mapping[str, Any] = {"name": "first", "trials": 3, "scheduler": "fifo", "trackers": ()}
OTHER: Mapping[str, Any] = {
    **FIRST,
    "name": "other",
    "trials": 4,
    "config": {"noise": 0.2, "lr": 0.25},
    "space": {
        "x0": {"uniform": [1.0, 2.0]},
        "steps": {"choice": [1], "when": "x0 > 1.9999"},
        "target": {"value": "x0 / 2"},
    },
}


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    made = Here(capsys, tmp_path / "sweeps")
    for changes in (FIRST, OTHER):
        sweeps.run(sweeps.make(made.root, **changes))
    return made


def test_each_sweep_has_a_line_with_what_its_best_trial_is_worth(here: Here) -> None:
    data = here.json("results", "first", "other")
    assert (data["metric"], data["mode"]) == ("loss", "min")
    for row in data["sweeps"]:
        best = here.json("best", row["name"])
        for key in ("trial", "score", "expected", "expected_error", "trials"):
            assert row[key] == best[key]
        steps = [trial["steps"] for trial in here.json("results", row["name"])["trials"]]
        assert row["steps"] == sum(steps)
    _, out, _ = here("results", "first", "other")
    lines = [line.split() for line in out.splitlines()]
    (first,) = [line for line in lines if line[:2] == ["first", "finished"]]
    assert first[-2:] == ["3", "270"]


def test_settings_stand_side_by_side_and_tell_searched_from_fixed_ones(here: Here) -> None:
    data = here.json("results", "first", "other")
    first, other = data["sweeps"]
    assert data["settings"] == ["lr", "x0", "steps", "target", "noise"]
    assert data["shared"] == []
    assert [*first["kinds"].values()] == ["searched", "absent", "absent", "absent", "fixed"]
    assert [*other["kinds"].values()] == ["fixed", "searched", "inactive", "computed", "fixed"]
    assert other["settings"]["target"] == other["settings"]["x0"] / 2
    assert (first["settings"]["noise"], other["settings"]["noise"]) == (0.1, 0.2)
    _, out, _ = here("results", "first", "other")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line}
    assert rows["noise"] == ["0.1", "(fixed)", "0.2", "(fixed)"]
    assert rows["lr"][1:] == ["0.25", "(fixed)"]
    assert rows["steps"] == ["-", "inactive"]


def test_settings_that_all_sweeps_search_come_first(here: Here) -> None:
    both = {"x0": {"uniform": [1.0, 2.0]}, "lr": {"uniform": [0.1, 0.2]}}
    sweeps.make(here.root, **{**FIRST, "name": "both", "space": both})
    data = here.json("results", "both", "other", "first")
    assert data["shared"] == []
    data = here.json("results", "other", "both")
    assert data["shared"] == data["settings"][:1] == ["x0"]
    untried = data["sweeps"][1]
    assert (untried["trial"], untried["score"], untried["kinds"]["x0"]) == (None, None, "inactive")
    assert here("results", "other", "both")[0] == 0


def test_the_csv_has_a_row_for_each_sweep(here: Here) -> None:
    rows = list(csv.DictReader(io.StringIO(here("results", "other", "first", "--csv")[1])))
    assert [row["name"] for row in rows] == ["other", "first"]
    assert [row["settings/x0"] == "" for row in rows] == [False, True]


def test_scores_that_are_computed_differently_are_told(here: Here) -> None:
    assert "computed differently" not in here("results", "first", "other")[1]
    sweeps.make(here.root, **{**FIRST, "name": "area", "score": {"mean_last": 3}})
    out = " ".join(here("results", "first", "area")[1].split())
    assert "first by score: last, aggregate: mean; area by score: {mean_last: 3}" in out


@pytest.mark.parametrize("command", ["results", "report"])
@pytest.mark.parametrize("changes", [{"mode": "max"}, {"metric": "x"}])
def test_sweeps_with_another_measure_are_refused(
    here: Here, command: str, changes: dict[str, Any]
) -> None:
    sweeps.make(here.root, **{**FIRST, "name": "away", **changes})
    code, out, err = here(command, "first", "away")
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    its = {"metric": "loss", "mode": "min", **changes}
    assert "first has the metric loss (min)" in line
    assert f"away has the metric {its['metric']} ({its['mode']})" in line


def test_a_sweep_that_is_named_twice_is_refused(here: Here) -> None:
    code, _, err = here("results", "first", "other", "first")
    assert code == 2
    assert err == "sweep: first is named twice; name each sweep once\n"


def test_a_shell_offers_the_sweeps_that_are_not_named_yet(begun: Path) -> None:
    sweeps.make(begun / "sweeps", **FIRST)
    assert sorted(offered(begun, "results", "")) == ["demo", "first"]
    assert offered(begun, "results", "demo", "") == ["first"]
    assert offered(begun, "report", "demo", "") == ["first"]
