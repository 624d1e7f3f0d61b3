"""`--trials` is the exact total, whatever the number of workers, kills and top-ups."""

import signal
from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import sweeps
from tests.support.command_line import start, write_spec


def call(root: Path, *words: object) -> int:
    process = start(*words, cwd=root)
    process.communicate(timeout=240)
    return process.returncode


@pytest.mark.slow
def test_the_total_is_exact_under_workers_kills_and_top_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"scheduler": "fifo", "deterministic": None, "searcher": "random"}
    config = {"noise": 0.1, "step_s": 0.01}
    spec = write_spec(tmp_path, trials=5, config=config, limits={"slice_s": 0.03}, **changes)
    monkeypatch.setenv("SWEEP_FAILPOINT_FILE", str(tmp_path / "count"))
    steps: list[tuple[str, tuple[object, ...], int]] = [
        ("decided:2:self", ("run", spec, "--jobs", 3), -signal.SIGKILL),
        ("submitted:4:self", ("resume", "demo", "--jobs", 2), -signal.SIGKILL),
        ("stepping:9:self", ("resume", "demo", "--jobs", 1), 0),
        ("decided:1:self", ("resume", "demo", "--jobs", 3, "--trials", 8), -signal.SIGKILL),
        ("never:1:self", ("resume", "demo", "--jobs", 2), 0),
    ]
    folder = Folder(tmp_path / "sweeps", "demo")
    for place, words, code in steps:
        (tmp_path / "count").unlink(missing_ok=True)
        monkeypatch.setenv("SWEEP_FAILPOINT", place)
        assert call(tmp_path, *words) == code
    past = sweeps.history(folder)
    assert [trial.number for trial in past.trials] == list(range(8))
    assert {trial.status for trial in past.trials} == {Status.COMPLETED}
    assert past.searched_count == past.wanted == 8
    for trial in past.trials:
        rows = sweeps.curve(folder, trial.number)
        assert [row.iteration for row in rows] == list(range(1, 10))
