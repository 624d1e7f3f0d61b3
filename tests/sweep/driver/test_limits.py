"""Hard limits over real worker processes: one slice is ended, its neighbour does not notice."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.driver import launch
from sweep.driver.launch import Launch
from sweep.driver.limits import Guard
from sweep.errors import SweepError, UsageError
from sweep.history.events import Closed, End, Opened, Status
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.pools import inline
from sweep.slices.messages import SliceOutcome
from sweep.spec import Limits
from tests.support import sweeps


def make(root: Path, name: str, **changes: Any) -> Folder:
    """Two trials of a trainable among the mishaps, the first of which has one."""
    given: dict[str, Any] = {
        "metric": "value",
        "mode": "max",
        "scheduler": "fifo",
        "deterministic": None,
    }
    given |= {"trials": 2, "trainable": f"tests.support.mishaps:{name}", "config": {}}
    return sweeps.make(root, **{**given, **changes})


def lost(folder: Folder, trial: int) -> list[str]:
    events = [record.event for record in Ledger(folder.ledger).read()]
    closed = [e for e in events if isinstance(e, Closed) and e.trial == trial]
    return [event.reason for event in closed if event.end is End.LOST]


def run(folder: Folder) -> list[Trial]:
    assert sweeps.run(folder, slots=2, pool="loky") == "finished"
    return sweeps.history(folder).trials


@pytest.mark.slow
def test_a_trial_without_progress_is_begun_again_from_its_last_checkpoint(tmp_path: Path) -> None:
    folder = make(tmp_path, "Hangs", limits={"no_progress_s": 4.0})
    hung, other = run(folder)
    assert [trial.status for trial in (hung, other)] == [Status.COMPLETED] * 2
    (why,) = lost(folder, 0)
    assert why.startswith("no progress for 4 s; the worker process ")
    assert why.endswith(" was ended; retry 1 of 3")
    assert other.slices == 1
    values = [row.metrics["value"] for row in sweeps.curve(folder, 0)]
    assert values == [float(i) for i in range(1, 10)]


def test_a_trial_that_takes_more_memory_than_it_may_fails_with_the_cause(tmp_path: Path) -> None:
    limits = {"trial_memory": "500MB", "max_failures": 0}
    folder = make(tmp_path, "Grows", limits=limits)
    grown, other = run(folder)
    assert (grown.status, other.status) == (Status.FAILED, Status.COMPLETED)
    assert "limits.trial_memory: " in grown.reason
    assert "used, 500 MB allowed; the worker process" in grown.reason
    assert (other.slices, lost(folder, 1)) == (1, [])


class Waiting(inline.Pool):
    """One slot, whose slice is in no process before it is given one."""

    def __init__(self) -> None:
        super().__init__(1)
        self.process: int | None = None
        self.ended: list[str] = []

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        return self.process

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        self.ended.append(str(error))


@pytest.mark.parametrize("given", [Limits(trial_s=60.0), Limits(no_progress_s=120.0)])
def test_a_slice_that_waits_for_a_worker_uses_up_no_limit(
    given: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, clock, pool = sweeps.make(tmp_path, trials=1), [1000.0], Waiting()
    sweeps.run(folder)
    (folder.trial(0) / "progress.json").unlink()
    monkeypatch.setattr("sweep.driver.limits.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with launch.opened(Launch(folder, 1, "inline")) as (parts, _):
        parts.history.trials[0].replicas[0].curve.clear()
        spec = parts.spec.model_copy(update={"limits": given})
        guard = Guard(replace(parts, spec=spec, pool=pool))
        running: dict[Future[SliceOutcome], Opened] = {
            Future(): Opened(0, 0, 0, parts.history.trials[0].replicas[0].goal, "")
        }
        for seconds, process in ((0.0, None), (200.0, None), (200.0, 4711), (50.0, 4711)):
            clock[0], pool.process = clock[0] + seconds, process
            guard.look(running)
            assert pool.ended == []
        clock[0] += 100.0
        guard.look(running)
        (said,) = pool.ended
        assert said.startswith(("limits.trial_s: 60 s of training", "no progress for 120 s"))


@pytest.mark.slow
def test_a_trial_whose_time_is_over_in_an_endless_iteration_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.limits.GRACE_S", 4.0)
    folder = make(tmp_path, "Hangs", limits={"trial_s": 1.0})
    hung, other = run(folder)
    assert (hung.status, other.status) == (Status.STOPPED, Status.COMPLETED)
    assert "limits.trial_s: 1 s of training are over" in hung.reason
    assert sweeps.run(folder) == "finished"
    assert sweeps.history(folder).trials[0].status is Status.STOPPED


def test_a_limit_that_needs_a_process_of_its_own_is_refused_without_one(tmp_path: Path) -> None:
    folder = make(tmp_path, "Hangs", limits={"no_progress_s": 4.0})
    with pytest.raises(UsageError, match=r"remove limits\.no_progress_s, or use --pool loky"):
        sweeps.run(folder)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"trial_memory": "4 bananas"}, "a size such as 4GB, 512MB or 1.5GiB"),
        ({"trial_memory": 0}, "a size such as 4GB"),
        ({"trial_memory": "0GB"}, "a size such as 4GB"),
        ({"trial_memory": 4}, "at least 1MB, such as 4GB or 512MB; 4 is 4 B; did you mean 4GB?"),
        ({"trial_memory": "512KB"}, "at least 1MB"),
        ({"no_progress_s": -1}, "greater than 0"),
        ({"trial_s": 0}, "greater than 0"),
        ({"not_finite": "stop"}, "'go_on', 'prune' or 'fail'"),
        ({"max_concurrent": 0}, "greater than or equal to 1"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(
    tmp_path: Path, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=r"^test\.yaml:\d+: limits\.") as error:
        sweeps.make(tmp_path, limits=limits)
    assert message in str(error.value)
