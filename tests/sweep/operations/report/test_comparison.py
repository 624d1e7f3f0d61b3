"""Several sweeps on one page: the curves of the best, what was found for how much, settings."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sweep.operations.report import comparison
from sweep.testing import CurvePoint, Simulation
from sweep.testing.curves import Curve
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.hostile_trainer import EVIL
from tests.sweep.operations.report.test_page import HOSTILE, Page

SPEC: Mapping[str, Any] = {"trials": 2, "scheduler": "fifo", "stop": {"training_iteration": 2}}


def counted(at: CurvePoint) -> dict[str, Any]:
    """A later trial and a later seed are better; a step of training counts as 10."""
    score = float(10 * at.trial + at.iteration + 2 * at.seed_index)
    steps = {"timesteps_this_iter": 10, "timesteps_total": 10 * at.iteration}
    return {"score": score, **steps}


def uncounted(at: CurvePoint) -> dict[str, Any]:
    return {"score": float(at.trial + at.iteration)}


def falling(at: CurvePoint) -> dict[str, Any]:
    """Trial 0 becomes worse; trial 1 is between its two scores."""
    score = {0: 9.0 / at.iteration, 1: 5.0}[at.trial]
    return {**counted(at), "score": score}


def read(*given: tuple[str, Mapping[str, Any], Curve]) -> list[lookup.Sweep]:
    """Simulated sweeps of these names, as a report reads them."""
    found = []
    with contextlib.ExitStack() as until:
        for name, spec, curve in given:
            made = until.enter_context(Simulation({**SPEC, "name": name, **spec}, curve))
            made.run()
            found.append(lookup.read(made.folder))
    return found


def test_the_curves_of_the_best_stand_together_with_bands_over_seeds() -> None:
    data = comparison.best_curves(read(("one", {}, counted), ("seeds", {"seeds": 2}, counted)))
    assert data is not None
    assert data["time"] == "training_iteration"
    one, seeds = data["curves"]
    assert (one["name"], one["trial"], one["x"], one["y"]) == ("one", 1, [1, 2], [11, 12])
    assert "low" not in one
    assert (seeds["name"], seeds["trial"], seeds["x"], seeds["y"]) == ("seeds", 1, [1, 2], [12, 13])
    for low, mean, high in zip(seeds["low"], seeds["y"], seeds["high"], strict=True):
        assert low < mean < high


STEPWISE = {
    "stop": {"timesteps_total": 20},
    "scheduler": {"name": "asha", "time_attr": "timesteps_total", "grace_period": 20},
}


@pytest.mark.parametrize(
    ("curve", "axis", "x"),
    [(counted, "timesteps_total", [10, 20]), (uncounted, "training_iteration", [1, 2])],
)
def test_sweeps_that_count_time_differently_are_drawn_by_what_they_share(
    curve: Curve, axis: str, x: list[float]
) -> None:
    data = comparison.best_curves(read(("own", {}, curve), ("steps", STEPWISE, counted)))
    assert data is not None
    assert data["time"] == axis
    assert [its["x"] for its in data["curves"]] == [x, x]


def test_what_was_found_stands_against_the_steps_of_all_trials() -> None:
    data = comparison.best_scores(read(("falls", {}, falling), ("seeds", {"seeds": 2}, counted)))
    assert data is not None
    assert data["spent"] == "environment steps of all trials"
    falls, seeds = data["curves"]
    assert (falls["x"][-1], falls["y"][-1], falls["trials"][-1]) == (40, 5, 1)
    assert falls["y"][0] in (9, 4.5)
    assert seeds["x"][-1] == 80, "two trials under two seeds, 20 steps each"
    assert seeds["y"][-1] == 13


def test_without_steps_in_all_sweeps_training_is_counted_in_seconds() -> None:
    data = comparison.best_scores(read(("one", {}, uncounted), ("two", {}, counted)))
    assert data is not None
    assert data["spent"] == "seconds of training of all trials"


def test_the_page_has_all_parts_and_says_what_is_fixed() -> None:
    fixed = {"config": {"x": 0.25}, "space": {"z": {"uniform": [0, 1]}}}
    found = Page(comparison.build(read(("one", {}, counted), ("two", fixed, counted)), 0.0))
    assert found.sections == ["results", "best_curves", "found", "settings"]
    assert "0.25 (fixed)" in found.text
    assert [curve["name"] for curve in found.data["best_curves"]["curves"]] == ["one", "two"]


def test_words_of_users_are_no_markup_on_the_page(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        folder = sweeps.make(tmp_path, **{**HOSTILE, "name": name, "trials": 2})
        sweeps.run(folder)
        made.append(lookup.read(folder))
    found = Page(comparison.build(made, 0.0))
    assert EVIL in found.text
    assert json.dumps(EVIL)[1:-1] in json.dumps(found.data)
    assert not [its for its in found.elements if its[0] in ("img", "svg", "iframe", "object")]
    assert [tag for tag, _ in found.elements].count("script") == 3
    assert not any(key.startswith("on") for _, attributes in found.elements for key in attributes)


def test_the_command_writes_the_page_to_the_given_path(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweeps that have not begun have their line on it, too."""
    here = Here(capsys, tmp_path / "sweeps")
    for name in ("one", "two"):
        sweeps.make(here.root, name=name, trackers=())
    code, out, err = here("report", "one", "two", "-o", tmp_path / "page.html")
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'page.html'} (")
    assert Page((tmp_path / "page.html").read_text()).sections == ["results", "settings"]
    monkeypatch.chdir(tmp_path)
    assert here("report", "one", "two")[1].startswith("comparison.html (")
    for options in (["--watch"], ["--png", "pictures"]):
        code, out, err = here("report", "one", "two", *options)
        assert (code, out) == (2, "")
        (line,) = err.splitlines()
        assert f"{options[0]} works with one sweep only" in line
