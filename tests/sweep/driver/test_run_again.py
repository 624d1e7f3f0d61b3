"""What a sweep was run with, its slots and its pool, is what it is gone on with."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import joblib
import pytest

from sweep.core.errors import DamagedLedger
from sweep.driver.driver import Driver
from sweep.driver.final_evaluation import FinalEvaluation, FinalEvaluator
from sweep.driver.start import launch, prepare
from sweep.driver.start.launch import Launch
from sweep.history.events import FinalEvaluationBegan, Recorded, Status, TermBegan
from sweep.history.history import History
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.ledger.requests import Verb
from sweep.operations import control_client
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here, write_spec


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return Here(capsys, tmp_path)


def terms(folder: Folder) -> list[tuple[int | None, str]]:
    """The slots and the pool of each driver."""
    with closing(Ledger(folder.ledger)) as ledger:
        events = [record.event for record in ledger.read()]
    return [(e.jobs, e.pool) for e in events if isinstance(e, TermBegan | FinalEvaluationBegan)]


def started(here: Here, *options: object, **changes: Any) -> Folder:
    spec = write_spec(here.root, trials=2, scheduler="fifo", deterministic=None, **changes)
    assert here("run", spec, "--pool", "inline", *options)[0] == 0
    return Folder(here.root, "demo")


@pytest.mark.slow
def test_resume_goes_on_with_the_slots_and_the_pool_that_were_asked_for(here: Here) -> None:
    folder = started(here, "--jobs", 3)
    shown = here.json("status", "demo")
    assert (shown["jobs"], shown["pool"]) == (3, "inline")
    assert "3 jobs (inline)" in here("status", "demo")[1]
    assert here("resume", "demo", "--trials", 3)[0] == 0
    assert here("resume", "demo", "--trials", 4, "--jobs", 2)[0] == 0
    assert here("resume", "demo", "--trials", 5)[0] == 0
    assert here("best", "demo", "--test-seeds", 2)[0] == 0
    assert here("best", "demo", "--test-seeds", 3, "--jobs", 1)[0] == 0
    assert here("resume", "demo", "--trials", 6)[0] == 0
    jobs = [3, 3, 2, 2, 2, 1, 2]
    assert terms(folder) == [(count, "inline") for count in jobs]


def test_by_default_trials_get_as_many_slots_as_the_cores_allow(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    folder = started(here)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 4)
    assert here("resume", "demo")[0] == 0
    assert here("resume", "demo", "--trials", 6)[0] == 0
    assert here("resume", "demo", "--trials", 6)[0] == 0
    assert [jobs for jobs, _ in terms(folder)] == [2, 2, 4, 4]


@pytest.mark.parametrize("examined", [False, True])
def test_the_slots_that_set_asked_for_are_those_of_later_drivers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, examined: bool
) -> None:
    """Those of a final evaluation are its own."""
    monkeypatch.setattr("sweep.driver.driver.TICK_S", 0.0)
    folder = sweeps.make(tmp_path, trials=2, scheduler="fifo", deterministic=None)
    sweeps.run(folder)
    final_evaluation = FinalEvaluation(2, 1) if examined else None
    asked: list[int] = []
    with launch.open_context(Launch(folder, 1, "inline", 3, final_evaluation=final_evaluation)) as (
        parts,
        _,
    ):

        def watch(records: Sequence[Recorded]) -> None:
            running = parts.history.replicas(Status.RUNNING) + parts.history.test_replicas(
                Status.RUNNING
            )
            if running and not asked:
                asked.append(3)
                control_client.ask(folder, Verb.SET, {"jobs": 3}, patience_s=0.0)

        (FinalEvaluator if examined else Driver)(parts, watch).run()
    past = sweeps.history(folder)
    expected = (1, False) if examined else (3, True)
    assert asked == [3]
    assert (past.jobs, past.jobs_given) == expected
    assert _own(past) == (3 if examined else None)
    assert prepare.slots_of_resumed(None, past, *lookup.read_spec(folder), None)[0] == expected[0]
    assert prepare.slots_of_resumed(2, past, *lookup.read_spec(folder), None) == (2, True)


def _own(past: History) -> int | None:
    return past.final_evaluation.jobs if past.final_evaluation else None


def test_no_slots_at_all_are_no_word_of_a_driver(tmp_path: Path) -> None:
    folder = sweeps.make(tmp_path)
    with closing(Ledger(folder.ledger)) as ledger:
        ledger.append(None, [TermBegan("host", 1, 2, jobs=0)])
    with pytest.raises(DamagedLedger, match="jobs is 0"):
        sweeps.history(folder)
