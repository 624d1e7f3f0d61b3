"""A trial's own process is killed, or cannot be: the curve is the same, and nothing is left."""

from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import Status
from sweep.ledger.folder import Folder
from tests.support import dying, sweeps
from tests.support.command_line import start, write_spec
from tests.support.leftovers import Marked
from tests.support.waiting import wait_until

#: Iterations at which the process is killed: before a checkpoint, at the first and the last one.
KILLED = [2, 3, 6]
TRIALS = 2


def run(root: Path, marked: Marked, at: list[int], **changes: Any) -> Folder:
    """Run a sweep in one slot to its end; nothing of it is left."""
    root.mkdir()
    spec = write_spec(
        root,
        **{
            "trainable": "tests.support.dying:dies",
            "metric": "value",
            "mode": "max",
            "trials": TRIALS,
            "searcher": "random",
            "space": {"x": {"uniform": [0, 1]}},
            "config": {"at": at},
            "stop": {},
            "scheduler": "fifo",
            **changes,
        },
    )
    out, err = start("run", spec, "--jobs", 1, cwd=root).communicate(timeout=300)
    folder = Folder(root / "sweeps", "demo")
    trials = sweeps.history(folder).trials
    assert [trial.status for trial in trials] == [Status.COMPLETED] * TRIALS, out + err
    assert [trial.replicas[0].lost_slices for trial in trials] == [0] * TRIALS
    wait_until(lambda: not marked.pids())
    return folder


def curves(folder: Folder) -> list[Any]:
    return [
        [(row.iteration, row.metrics["value"]) for row in sweeps.curve(folder, number)]
        for number in range(TRIALS)
    ]


def ran(folder: Folder) -> list[list[tuple[int, int]]]:
    """The processes of each trial, with their parents."""
    return [dying.processes(folder.trial(number)) for number in range(TRIALS)]


@pytest.mark.slow
def test_killing_a_trials_process_changes_no_result_and_its_worker_continues(
    tmp_path: Path, marked: Marked
) -> None:
    straight = run(tmp_path / "straight", marked, [])
    killed = run(tmp_path / "killed", marked, KILLED)
    assert curves(killed) == curves(straight)
    assert [len(one) for one in ran(killed)] == [len(KILLED) + 1] * TRIALS
    workers = {parent for trial in ran(killed) for _, parent in trial}
    assert len(workers) == 1
    assert not workers & {pid for trial in ran(killed) for pid, _ in trial}


@pytest.mark.slow
@pytest.mark.parametrize("by", [pytest.param("thread", marks=pytest.mark.proof), "device"])
def test_where_no_fork_is_safe_trials_run_in_their_slots_worker_to_the_same_results(
    tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    straight = run(tmp_path / "straight", marked, [])
    if by == "device":
        (tmp_path / "device").touch()
        monkeypatch.setenv(dying.DEVICE, str(tmp_path / "device"))
    unsafe = "tests.support.unsafe_to_fork:dies"
    alone = run(tmp_path / "alone", marked, [], trainable=unsafe)
    assert curves(alone) == curves(straight)
    assert len({pid for trial in ran(alone) for pid, _ in trial}) == 1
    killed = run(tmp_path / "killed", marked, KILLED, trainable=unsafe)
    assert curves(killed) == curves(straight)
    assert len({pid for trial in ran(killed) for pid, _ in trial}) == TRIALS * len(KILLED) + 1
