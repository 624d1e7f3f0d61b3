"""Tests of live sweeps: fresh seeds judge them, and the page has the results."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.search import live, log


def line(**changes: Any) -> dict[str, Any]:
    """Return the line of a sweep whose pick is worth 400."""
    found = {
        "game": "CartPole, ppo",
        "method": "tpe, one seed",
        "number": 0,
        "pool": "loky",
        "expected": 450.0,
        "steps": 80_000,
    }
    return {**found, "returns": [300.0, 500.0], **changes}


def test_the_page_says_what_was_played() -> None:
    page = live.PAGE.read_text("utf-8")
    assert live.insert_table(page, log.read(live.LINES)) == page


def test_the_worth_of_a_pick_is_its_mean_under_fresh_seeds() -> None:
    lines = [line(), line(number=1, returns=[500.0, 500.0])]
    assert list(live.rows(lines))[2:] == [
        "| CartPole, ppo | tpe, one seed | loky | 2 | 80,000 | 450.0 ± 50.0 | 400.0 | 0.0 ± 50.0 |"
    ]


@pytest.mark.proof
def test_a_sweep_is_run_once_and_its_pick_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    game = live.Game("quickstart", 80_000, 5_120)
    monkeypatch.setitem(live.GAMES, "CartPole, ppo", game)
    monkeypatch.setattr(live, "LINES", tmp_path / "live.jsonl")
    page = tmp_path / "seeds.md"
    page.write_text(f"before\n{live.BEGIN}\n{live.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(live, "PAGE", page)
    words = ["--games", "CartPole, ppo", "--methods", "default", "--sweeps", "1"]
    words += ["--fresh", "2", "--out", str(tmp_path / "sweeps")]
    live.main(words)
    (played,) = log.read(live.LINES)
    assert len(played["returns"]) == 2
    assert played["steps"] >= 80_000
    assert "| CartPole, ppo | default | loky | 1 |" in page.read_text("utf-8")
    capsys.readouterr()
    live.main(words)
    assert " of 1:" not in capsys.readouterr().err
    assert log.read(live.LINES) == [played]
