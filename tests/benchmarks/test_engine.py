"""Tests of the benchmark of the engine, with small sweeps."""

import gc
import time
from pathlib import Path

import pytest

from benchmarks.engine import __main__ as engine
from benchmarks.engine import large, pages
from sweep.history.events import Status
from sweep.ledger.folder import Folder
from sweep.testing.pool import SimulatedClock
from sweep.views import lookup
from tests.support import browser


def test_a_long_sweep_that_nobody_trained_is_a_sweep_like_any_other(tmp_path: Path) -> None:
    sweep = lookup.read(large.make(tmp_path, trials=7, iterations=3))
    history = sweep.history
    assert (history.count(Status.COMPLETED), history.uncreated_trials) == (7, 1)
    assert [len(trial.replicas[0].curve) for trial in history.trials] == [3] * 7
    assert len({trial.score for trial in history.trials}) == 7


@pytest.mark.parametrize("name", engine.SWEEPS)
def test_what_a_trial_or_an_event_costs_is_measured_without_what_is_simulated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "FIRST", 5)
    monkeypatch.setattr(engine, "COUNTED", 10)
    advance, slowly = SimulatedClock.advance, 0.1

    def slow(self: SimulatedClock) -> None:
        until = time.process_time() + slowly
        while time.process_time() < until:
            pass
        advance(self)

    monkeypatch.setattr(SimulatedClock, "advance", slow)
    before, began = gc.get_threshold(), time.process_time()
    cost = engine.cost(tmp_path, name, 12)
    whole = time.process_time() - began
    history = lookup.read(Folder(tmp_path, f"{name}-12")).history
    assert 12 < len(history.trials) <= 12 + 2 * 15
    assert whole > 15 * slowly
    units = len(history.trials) if name == engine.TRIAL else history.k
    assert 0 < cost * units / 1e3 < whole - 10 * slowly
    assert gc.get_threshold() == before


@pytest.mark.proof
def test_every_line_of_the_table_has_a_number(tmp_path: Path) -> None:
    lines = dict(engine.measure(tmp_path, trials=3, lengths=[5], rounds=1, shown=3))
    assert len(lines) == 12
    assert "sweep status, 3 trials, 300 results" in lines
    assert all(any(sign.isdigit() for sign in text) for text in lines.values())


@pytest.mark.proof
@pytest.mark.skipif(browser.path() is None, reason="there is no Chromium on this machine")
def test_pages_are_measured_until_their_pictures_are_there(tmp_path: Path) -> None:
    program = browser.path()
    assert program is not None
    kept = tmp_path / "pictures"
    lines = [*pages.report(program, tmp_path, 12, kept), *pages.tracked(program, tmp_path, 3, kept)]
    drawn = ["settings beside scores drawn", "curves drawn"]
    ends = ["made", "opened", "every picture", "sent", "trials listed", *drawn]
    assert [label.rsplit(": ")[1] for label, _ in lines] == ends
    assert all(any(sign.isdigit() for sign in text) for _, text in lines)
    assert {path.stem for path in kept.iterdir()} == {"report-12", "report-12-all", "mlflow-3"}
