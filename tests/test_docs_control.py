"""The page about budgets, limits and control: its spec runs, its commands work in their order."""

import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.cli.main import main
from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import start
from tests.support.waiting import wait_until

PAGE = Path(__file__).parents[1] / "docs/control.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(language: str) -> str:
    (found,) = [body for kind, body in FENCE.findall(PAGE.read_text()) if kind == language]
    return str(found)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Folder]:
    (tmp_path / "live.yaml").write_text(block("yaml"))
    words = ("run", "live.yaml", "--jobs", 2, "--set", "trackers=[]", "--set", "limits.slice_s=1")
    process = start(*words, cwd=tmp_path)
    folder = Folder(tmp_path / "sweeps", "live")
    wait_until(lambda: folder.ledger.exists() and iterations(folder)[:2].count(0) == 0)
    yield folder
    if not sweeps.history(folder).ended:
        os.kill(process.pid, signal.SIGTERM)
    _, told = process.communicate(timeout=240)
    assert process.returncode == 0, told


def iterations(folder: Folder) -> list[int]:
    found = [trial.iteration for trial in sweeps.history(folder).trials]
    return found if len(found) > 1 else [0]


@pytest.mark.slow
def test_every_command_of_the_page_works_in_its_order(
    live: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(live.root.parent)
    for command in block("sh").splitlines():
        assert main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
        if command == "sweep pause live 0":
            wait_until(lambda: sweeps.history(live).trials[0].status is Status.PAUSED)
    wait_until(lambda: sweeps.history(live).ended == "stopped")
    past = sweeps.history(live)
    assert past.trials[1].status is Status.STOPPED
    clones = [trial for trial in past.trials if trial.clone_of == 0]
    assert [clone.searched["lr"] for clone in clones] == [0.001, 0.0001]
    assert (past.wanted, past.changed_budget) == (80, {"time_s": 14400})
