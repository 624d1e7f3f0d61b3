"""Hard limits over real worker processes: one slice is ended, its neighbour does not notice."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.errors import SweepError, UsageError
from sweep.driver.context import DriverContext
from sweep.driver.limits import Guard
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.history.curve import Point
from sweep.history.events import Closed, End, Opened, Status
from sweep.history.trial import Trial
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.pools import inline, loky
from sweep.slices.messages import SliceOutcome
from sweep.spec import Limits
from tests.support import sweeps
from tests.support.slices import slice_spec
from tests.support.waiting import wait_until


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
    folder = make(tmp_path, "Hangs", limits={"no_progress_s": 20.0})
    hung, other = run(folder)
    assert [trial.status for trial in (hung, other)] == [Status.COMPLETED] * 2
    (why,) = lost(folder, 0)
    assert why.startswith(
        "limits.no_progress_s: the trial has made no progress for 20 s; the worker process "
    )
    assert why.endswith(" was ended; retry 1 of 3")
    assert other.slices == 1
    values = [row.metrics["value"] for row in sweeps.curve(folder, 0)]
    assert values == [float(i) for i in range(1, 10)]


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_given_up_and_its_trial_goes_on(tmp_path: Path) -> None:
    folder = make(tmp_path, "StandsStill", limits={"no_answer_s": 3.0})
    stopped, other = run(folder)
    assert [trial.status for trial in (stopped, other)] == [Status.COMPLETED] * 2
    (why,) = lost(folder, 0)
    pid = (folder.trial(0) / "stopped").read_text()
    ended = f"the worker process {pid} was ended; retry 1 of 3"
    assert (
        why == "neither the worker nor the trial has made progress for 3 s "
        f"(limits.no_answer_s); {ended}"
    )
    assert other.slices == 1
    values = [row.metrics["value"] for row in sweeps.curve(folder, 0)]
    assert values == [float(i) for i in range(1, 10)]


def test_a_worker_that_is_not_given_up_is_waited_for(tmp_path: Path) -> None:
    with contextlib.closing(loky.Pool(1)) as pool:
        spec = slice_spec(tmp_path, {"step_s": 600.0}, paths=(str(Path.cwd()),))
        running = pool.submit(spec)
        wait_until(lambda: pool.pid(running) is not None)
        assert pool.silence(running) == 0.0
        pid = pool.pid(running)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: pool.silence(running) >= 2.0)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: pool.silence(running) == 0.0)
        assert not running.done()


def test_a_trial_that_takes_more_memory_than_it_may_fails_with_the_cause(tmp_path: Path) -> None:
    limits = {"trial_memory": "500MB", "max_failures": 0}
    folder = make(tmp_path, "Grows", limits=limits)
    grown, other = run(folder)
    assert (grown.status, other.status) == (Status.FAILED, Status.COMPLETED)
    assert "limits.trial_memory: " in grown.reason
    assert "of memory, but only 500 MB are allowed; the worker process" in grown.reason
    assert (other.slices, lost(folder, 1)) == (1, [])


class Waiting(inline.Pool):
    """One slot, whose slice is in no process before it is given one."""

    def __init__(self) -> None:
        super().__init__(1)
        self.process: int | None = None
        self.silent_s = 0.0
        self.ended: list[str] = []

    def pid(self, running: Future[SliceOutcome]) -> int | None:
        return self.process

    def silence(self, running: Future[SliceOutcome]) -> float:
        return self.silent_s

    def end(self, running: Future[SliceOutcome], error: SweepError) -> None:
        self.ended.append(str(error))


class Watched:
    """A guard over one slice of trial 0, by a clock that the test moves."""

    def __init__(self, folder: Folder, parts: DriverContext, limits: Limits) -> None:
        self.note, self.now, self.pool = folder.trial(0) / "progress.json", 1000.0, Waiting()
        self.replica = parts.history.trials[0].replicas[0]
        self.replica.curve.clear()
        spec = parts.spec.model_copy(update={"limits": limits})
        self._guard = Guard(replace(parts, spec=spec, pool=self.pool))
        opened = Opened(0, 0, 7, parts.history.trials[0].replicas[0].goal, "")
        self._running: dict[Future[SliceOutcome], Opened] = {Future(): opened}

    def ended(self, seconds: float, note: Mapping[str, Any] | None = None) -> list[str]:
        """Why it was ended, if it was, so many seconds later; `note` is what it writes then."""
        for _ in range(int(seconds)):
            self.look_at_once(1.0)
        self.look_at_once(0.0, note)
        return self.pool.ended[:1]

    def look_at_once(self, seconds: float, note: Mapping[str, Any] | None = None) -> None:
        """Look once, after a pause; the note stands there at its end."""
        self.now += seconds
        self.pool.silent_s += seconds if self.pool.silent_s else 0.0
        if note is not None:
            self.note.write_text(json.dumps(note))
            os.utime(self.note, (self.now, self.now))
        self._guard.check_running(self._running)


@contextlib.contextmanager
def watched(root: Path, monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Iterator[Watched]:
    folder = sweeps.make(root, trials=1)
    sweeps.run(folder)
    (folder.trial(0) / "progress.json").unlink()
    with launch.open_context(Launch(folder, 1, "inline")) as (parts, _):
        one = Watched(folder, parts, limits)
        clock = SimpleNamespace(monotonic=lambda: one.now)
        monkeypatch.setattr("sweep.driver.limits.time", clock)
        yield one


TRAINS = {"slice": 7, "trained_s": 0.0}


def test_a_silent_worker_is_given_up_when_nothing_of_its_slice_moves_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, Limits(no_answer_s=60.0)) as one:
        one.pool.process = 4711
        assert one.ended(200.0) == []
        one.pool.silent_s = 1.0
        assert one.ended(50.0, TRAINS) == one.ended(50.0) == []
        (said,) = one.ended(11.0)
        assert (
            said == "neither the worker nor the trial has made progress for 60 s "
            "(limits.no_answer_s); the worker process 4711 was ended"
        )


def test_a_worker_that_never_began_its_slice_is_given_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, Limits(no_answer_s=60.0)) as one:
        one.pool.silent_s = 1.0
        assert one.ended(58.0) == []
        assert one.ended(3.0) == [
            "neither the worker nor the trial has made progress for 60 s (limits.no_answer_s)"
        ]


def test_a_driver_that_stood_still_itself_ends_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = Limits(no_progress_s=120.0, trial_s=300.0, no_answer_s=60.0)
    with watched(tmp_path, monkeypatch, limits) as one:
        one.pool.process = 4711
        assert one.ended(20.0, TRAINS) == []
        one.look_at_once(86_400.0)
        assert one.ended(80.0) == []
        (said,) = one.ended(40.0)
        assert said.startswith("limits.no_progress_s: the trial has made no progress for 120 s")


@pytest.mark.parametrize("given", [Limits(trial_s=60.0), Limits(no_progress_s=120.0)])
def test_a_slice_that_waits_for_a_worker_uses_up_no_limit(
    given: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, given) as one:
        assert one.ended(0.0) == one.ended(200.0) == []
        one.pool.process = 4711
        assert one.ended(100.0, TRAINS) == one.ended(50.0) == []
        (said,) = one.ended(100.0)
        assert said.startswith(
            (
                "limits.trial_s: the trial has trained for 60 s",
                "limits.no_progress_s: the trial has made no progress for 120 s",
            )
        )


def test_only_training_uses_up_training_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, Limits(trial_s=60.0)) as one:
        one.pool.process = 4711
        assert one.ended(1.0, {"slice": 6, "trained_s": 50.0}) == []  # of the slice before
        assert one.ended(500.0) == []  # it is made, and restored
        assert one.ended(0.0, TRAINS) == one.ended(60.0) == []
        assert one.ended(0.0, {"slice": 7, "trained_s": None}) == one.ended(500.0) == []  # it saves
        assert one.ended(0.0, {"slice": 7, "trained_s": 50.0}) == one.ended(15.0) == []
        assert one.ended(0.0, {"slice": 7, "trained_s": None}) == one.ended(500.0) == []


def test_an_iteration_that_does_not_end_is_ended_when_the_rest_of_its_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, Limits(trial_s=60.0)) as one:
        one.pool.process = 4711
        assert one.ended(0.0, {"slice": 7, "trained_s": 55.0}) == one.ended(10.0) == []
        (said,) = one.ended(2.0)
        assert said.startswith("limits.trial_s: the trial has trained for 60 s")


@pytest.mark.parametrize(("trial_s", "grace_s"), [(20.0, 5.0), (1000.0, 30.0)])
def test_the_last_iteration_gets_a_tenth_of_the_time_but_neither_too_little_nor_too_much(
    trial_s: float, grace_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, Limits(trial_s=trial_s)) as one:
        one.pool.process = 4711
        one.ended(0.0, {"slice": 7, "trained_s": trial_s})
        assert one.ended(grace_s) == []
        (said,) = one.ended(1.0)
        assert said.endswith(f"did not end within another {grace_s:g} s")


def test_time_trained_before_the_newest_checkpoint_is_used_up_and_time_after_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with watched(tmp_path, monkeypatch, Limits(trial_s=60.0)) as one:
        saved = one.replica.newest_checkpoint
        assert saved is not None
        for iteration, seconds in ((1, 10.0), (saved.iteration, 30.0), (saved.iteration + 1, 99.0)):
            one.replica.curve.append(Point(iteration, iteration, 0.0, seconds=seconds))
        one.pool.process = 4711
        one.ended(0.0, {"slice": 7, "trained_s": 5.0})
        assert one.ended(15.0 + 6.0) == []
        (said,) = one.ended(1.0)
        assert said.startswith("limits.trial_s: the trial has trained for 60 s")


@pytest.mark.slow
def test_a_trial_whose_time_is_over_in_an_endless_iteration_is_stopped(tmp_path: Path) -> None:
    folder = make(tmp_path, "Hangs", limits={"trial_s": 5.0})
    hung, other = run(folder)
    assert (hung.status, other.status) == (Status.STOPPED, Status.COMPLETED)
    assert "limits.trial_s: the trial has trained for 5 s" in hung.reason
    assert sweeps.run(folder) == "finished"
    assert sweeps.history(folder).trials[0].status is Status.STOPPED


def test_a_limit_that_needs_a_process_of_its_own_is_refused_without_one(tmp_path: Path) -> None:
    folder = make(tmp_path, "Hangs", limits={"no_progress_s": 4.0})
    with pytest.raises(UsageError, match=r"use --pool loky, or remove limits\.no_progress_s"):
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
        ({"not_finite": "stop"}, "'continue', 'prune' or 'fail'"),
        ({"max_concurrent": 0}, "greater than or equal to 1"),
    ],
)
def test_a_limit_that_cannot_work_is_refused(
    tmp_path: Path, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=r"^test\.yaml:\d+: limits\.") as error:
        sweeps.make(tmp_path, limits=limits)
    assert message in str(error.value)
