"""Searcher gp: proposals are fitted in a process of its own, so that the driver has no torch."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from sweep.core.errors import BadSpace, SweepError
from sweep.history.events import Status
from sweep.searchers import Request, gp
from sweep.spec.space import Settings
from tests.support.searches import MIXED, Search, build

OPTIONS = {"n_startup_trials": 4}
#: Prints what is proposed, and whether torch was imported for it.
PROPOSES = """
import json, sys
from tests.support.searches import MIXED, Search, build

if __name__ == "__main__":
    made = Search("gp", MIXED, options={"n_startup_trials": 4}).run(6)
    print(json.dumps([made.proposals, "torch" in sys.modules]))
"""


def test_the_driver_stays_without_torch_and_proposes_the_same(tmp_path: Path) -> None:
    script = tmp_path / "proposes.py"
    script.write_text(PROPOSES)
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    ran = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=True
    )
    proposals, imported = json.loads(ran.stdout.splitlines()[-1])
    assert not imported
    assert proposals == Search("gp", MIXED, options=OPTIONS).run(6).proposals


def test_its_process_proposes_what_this_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    there = Search("gp", MIXED, options=OPTIONS).run(6)

    class Here:
        def ask(
            self, request: Request, options: Mapping[str, Any], known: Sequence[FrozenTrial]
        ) -> Settings | str:
            return gp._Fitting().suggest(request, options, known)

    monkeypatch.setattr(gp, "_helper", Here)
    assert Search("gp", MIXED, options=OPTIONS).run(6).proposals == there.proposals


def test_of_a_process_that_was_killed_another_is_asked_the_same() -> None:
    straight = Search("gp", MIXED, options=OPTIONS).run(6)
    made = Search("gp", MIXED, options=OPTIONS).run(5)
    child = gp._helper()._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    assert made.run(6).proposals == straight.proposals
    again = gp._helper()._child
    assert again is not None
    assert again.pid != child.pid


class _Dies:
    """In the place of a process that proposes: it ends."""

    def suggest(self, *_question: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_where_every_process_dies_the_sweep_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gp, "_Fitting", _Dies)
    monkeypatch.setattr(gp, "_helper", gp._Helper)
    with pytest.raises(SweepError, match=r"searcher gp.*resume the sweep"):
        Search("gp", MIXED).propose()


def test_what_is_no_point_of_the_space_is_refused_as_before() -> None:
    made = Search("gp", MIXED)

    class Refuses:
        def ask(self, *_question: Any) -> str:
            return "1 / x has no value"

    request = Request(made.space, made.objective, (), (), 1)
    searcher = build("gp")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(BadSpace, match="1 / x has no"):
        patch.setattr(gp, "_helper", Refuses)
        searcher.suggest(request)


@pytest.mark.parametrize("compared", [{}, {"objectives": {"cost": "min"}}])
def test_it_is_fitted_to_the_best_the_newest_and_trials_of_all_ages(
    compared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[list[float]] = []

    class Noted:
        def ask(
            self, request: Request, options: Mapping[str, Any], known: Sequence[FrozenTrial]
        ) -> Settings:
            assert "window" not in options
            fitted.append([trial.params["lr"] for trial in known])
            return request.space.draw(request.seed)

    monkeypatch.setattr(gp, "_helper", Noted)
    made = Search("gp", MIXED, slots=3, options={"window": 50}, compared=compared)
    made.beside = lambda settings: {"cost": -settings["width"]} if compared else {}
    made.run(300, finish=False)
    made.propose()
    resumed = Search("gp", slots=3, options={"window": 50}, compared=compared, records=made.records)
    resumed.propose()
    assert fitted[-1] == fitted[-2]
    past = made.history
    running = [trial for trial in past.trials if not trial.milestones]
    finished = [t for t in past.trials if t.milestones and t.status is not Status.FAILED]
    best = sorted(finished, key=lambda trial: -(trial.score or 0.0))
    if compared:
        best = [trial for trial in past.front() if trial.status is not Status.FAILED]
    known = [past.trials[[t.searched["lr"] for t in past.trials].index(lr)] for lr in fitted[-1]]
    assert len(known) == 50 + len(running)
    for asked in (running, finished[-10:], best[:25]):
        assert {trial.number for trial in asked} <= {trial.number for trial in known}
    assert len([trial for trial in known if trial.number < 150]) >= 12
