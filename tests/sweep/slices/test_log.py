"""A trial's log: turned over where it grows, counted, and deleted with what nobody needs."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep.driver import limits
from sweep.history.events import Status
from sweep.ledger import folder as folders
from sweep.ledger.folder import Folder
from sweep.slices import log
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import Here
from tests.support.waiting import wait_until

MOST = 20_000
#: A child that prints line by line until it is ended.
PRINTS = """
import itertools, sys, time
for number in itertools.count():
    print(f"line {number} of a child", flush=True)
    time.sleep(0.0001)
"""


def make(root: Path, **changes: Any) -> Folder:
    given: dict[str, Any] = {
        "trainable": "tests.support.mishaps:Talks",
        "metric": "value",
        "mode": "max",
    }
    given |= {"scheduler": "fifo", "deterministic": None, "trackers": [], "config": {}}
    return sweeps.make(root, **{**given, "limits": {"trial_log": MOST}, **changes})


def test_a_log_is_turned_over_while_a_child_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both parts together are what was printed last, and the child notices nothing."""
    monkeypatch.setattr(log, "LOOK_S", 0.01)
    older, newest = tmp_path / folders.OLDER_LOG, tmp_path / folders.LOG
    with log.open_log(tmp_path, MOST) as file:
        child = subprocess.Popen([sys.executable, "-c", PRINTS], stdout=file)
        try:
            wait_until(lambda: max(numbers_in(newest), default=0) >= 9000)
            assert child.poll() is None
        finally:
            child.kill()
            child.wait()
    assert folders.log_size(tmp_path) <= 2 * MOST
    assert numbers_in(older)[-1] >= 9000 or numbers_in(newest)[-1] >= 9000
    for numbers in (numbers_in(older), numbers_in(newest)):
        assert numbers == list(range(numbers[0], numbers[-1] + 1) if numbers else [])


def numbers_in(part: Path) -> list[int]:
    """Return the numbers of the lines that stand whole in a part of the log."""
    content = part.read_bytes() if part.exists() else b""
    return [int(number) for number in re.findall(rb"(?m)^line (\d+) of a child\n", content)]


def test_a_log_without_a_limit_grows(tmp_path: Path) -> None:
    for _ in range(2):
        with log.open_log(tmp_path, None) as file, open(file, "wb", closefd=False) as printed:
            printed.write(b"x" * 10 * MOST)
    assert (tmp_path / folders.LOG).stat().st_size == 20 * MOST
    assert not (tmp_path / folders.OLDER_LOG).exists()


def test_a_link_in_place_of_the_rotated_log_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / folders.OLDER_LOG).symlink_to(mine)
    (tmp_path / folders.LOG).write_bytes(b"x" * 2 * MOST)
    with log.open_log(tmp_path, MOST):
        assert (tmp_path / folders.LOG).stat().st_size == 0
    assert mine.read_text() == "mine"


@pytest.mark.slow
def test_what_trials_print_is_bounded_shown_counted_and_deleted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Here(capsys, tmp_path / "sweeps")
    folder = make(here.root, trials=2)
    assert sweeps.run(folder, pool="loky") == "finished"
    past = sweeps.history(folder)
    for trial in past.trials:
        size = folders.log_size(folder.trial(trial.number))
        assert MOST <= size <= 3 * MOST
        assert trial.replicas[0].log == size
    assert lookup.read_log(folder, past.trials[0]).endswith("iteration 9 ends\n")

    (row,) = here.json("gc", "demo", "--keep", 1)
    worst = past.ranked()[-1].number
    assert row["bytes"] >= MOST
    assert folders.log_size(folder.trial(worst)) == 0
    assert folders.log_size(folder.trial(1 - worst)) > 0
    assert [trial.replicas[0].log > 0 for trial in sweeps.history(folder).ranked()] == [True, False]
    code, out, _ = here("show", "demo", worst, "--log")
    assert (code, out) == (0, lookup.LOG_DELETED)


def test_logs_of_trials_that_ended_well_go_when_checkpoints_are_not_enough(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(tmp_path, scheduler="fifo", trials=3)
    sweeps.run(folder)
    past = sweeps.history(folder)
    for trial in past.trials:
        trial.replicas[0].log = 1000
    past.trials[1].replicas[0].status = Status.FAILED
    for trial in past.trials:
        past.touch(trial.number)
    dropped, _ = limits.choose_deletions(past, 0)
    assert [event.trial for event in dropped if event.log] == [0, 2]
    sizes = sum(s.size for t in past.trials for s in t.replicas[0].checkpoints.values())
    dropped, refusal = limits.choose_deletions(past, sizes + 3000 - 1)
    assert ([event.log for event in dropped], refusal) == ([False], "")
