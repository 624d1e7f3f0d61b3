"""Tests of populations beside the default: models and recipes are judged, and the page has both."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.search import log, populations

GAME = "CartPole, ppo"


def line(**changes: Any) -> dict[str, Any]:
    """Return the line of a sweep of the default whose model and recipe are worth 400."""
    found = {"game": GAME, "method": "default", "number": 0, "steps": 80_000, "model": 400.0}
    return {**found, "returns": [300.0, 500.0], **changes}


def test_the_page_says_what_was_run() -> None:
    page = populations.PAGE.read_text("utf-8")
    assert populations.insert_table(page, log.read(populations.LINES)) == page


def test_a_population_is_compared_with_sweeps_of_the_same_number() -> None:
    lines = [
        line(),
        line(number=1, model=500.0),
        line(method="pbt", model=410.0, returns=[400.0]),
        line(method="pbt", number=1, model=510.0, returns=[0.0]),
        line(method="pbt", number=2, model=0.0, returns=[0.0]),
    ]
    found = populations.difference(lines, GAME, "pbt", populations.model_worth)
    assert found is not None
    assert (found.value, found.low, found.high) == (10.0, 10.0, 10.0)
    assert populations.difference(lines, GAME, "pb2", populations.model_worth) is None
    *_, better, worse = populations.rows(lines)
    assert "the models of `pbt` on CartPole, ppo" in better
    assert worse.endswith("none.")


@pytest.mark.proof
def test_each_sweep_gives_a_model_and_a_recipe_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    game = populations.Game("quickstart", 5_120, 2_560, 2_560, "loky")
    monkeypatch.setitem(populations.GAMES, GAME, game)
    monkeypatch.setattr(populations, "MEMBERS", 4)
    monkeypatch.setattr(populations, "EPISODES", 2)
    monkeypatch.setattr(populations, "LINES", tmp_path / "populations.jsonl")
    page = tmp_path / "schedulers.md"
    page.write_text(f"before\n{populations.BEGIN}\n{populations.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(populations, "PAGE", page)
    words = ["--games", GAME, "--methods", "default", "pbt", "pb2", "--sweeps", "1"]
    words += ["--fresh", "2", "--out", str(tmp_path / "sweeps")]
    populations.main(words)
    played = log.read(populations.LINES)
    assert [one["method"] for one in played] == ["default", "pbt", "pb2"]
    for one in played:
        assert len(one["returns"]) == 2
        assert one["recipe"][0]["from"] == 0.0
    default, pbt, pb2 = (one["steps"] for one in played)
    assert default >= 4 * 5_120
    assert pbt == pb2 == 4 * 5_120
    assert "| CartPole, ppo | `pbt` | 1 | 20,480 |" in page.read_text("utf-8")
    capsys.readouterr()
    populations.main(words)
    assert " of 1" not in capsys.readouterr().err
    assert log.read(populations.LINES) == played
