"""A wall clock that is set while a sweep runs: dates are labels, and nothing depends on them."""

import itertools
import time
from pathlib import Path

import pytest

from sweep.history.events import Status
from sweep.ledger import ledger
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.views import lookup, overview
from tests.support import sweeps
from tests.support.quadratic import expected_loss
from trainables.core import rng

DAY_S = 86_400.0
SANE_S = 600.0
TOGETHER = {"trackers": [], "searcher": "random", "budget": {"time_s": 3600, "cpu_hours": 1}}


@pytest.fixture
def jumping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the wall clock is a day later or earlier than the one before."""
    date, offsets = time.time, itertools.cycle((0.0, DAY_S, -DAY_S, 3600.0))
    monkeypatch.setattr(time, "time", lambda: date() + next(offsets))


def assert_exact(folder: Folder, trials: int) -> None:
    past = sweeps.history(folder)
    assert (past.ended, past.end_reason, len(past.trials)) == ("finished", "", trials)
    for trial in past.trials:
        assert trial.status in (Status.COMPLETED, Status.PRUNED)
        seed = rng.integer(7, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        upto = range(1, trial.iteration + 1)
        assert losses == [expected_loss(trial.config, k, seed) for k in upto]


@pytest.mark.usefixtures("jumping")
def test_a_clock_that_jumps_fails_no_trial_and_ends_no_budget(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, **TOGETHER)
    assert sweeps.run(folder) == "finished"
    assert_exact(folder, 9)
    for replica in sweeps.history(folder).replicas(*Status):
        assert 0.0 <= replica.seconds < SANE_S
    sweep = lookup.read(folder)
    shown = overview.status(sweep, {}, time.time())
    assert shown["age_s"] >= 0.0


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S])
def test_a_driver_that_begins_on_another_date_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path, **TOGETHER)
    assert sweeps.run(folder) == "finished"
    monkeypatch.setattr(ledger, "_BEGAN", ledger._BEGAN + jump_s)
    assert sweeps.run(folder, trials=12) == "finished"
    assert_exact(folder, 12)
    assert 0.0 < sweeps.history(folder).spent_s < SANE_S


def test_while_a_machine_is_suspended_the_budget_of_time_goes_on_as_a_later_driver_counts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path, **TOGETHER)
    since_boot, slept = time.clock_gettime, itertools.count(0.0, SANE_S)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: since_boot(clock) + next(slept))
    assert sweeps.run(folder) == "finished"
    past = sweeps.history(folder)
    assert past.end_reason == "budget.time_s: 3600 seconds are used up"
    assert len(past.trials) < 9


@pytest.mark.usefixtures("jumping")
def test_the_dates_of_one_driver_follow_each_other(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path, trials=3, **TOGETHER)
    sweeps.run(folder)
    dates = [record.time for record in Ledger(folder.ledger).read()]
    assert dates == sorted(dates)
    assert dates[-1] - dates[0] < SANE_S
