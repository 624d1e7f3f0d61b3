"""Workers of `sweep run` that start while the command still reads its spec."""

import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import connection
from pathlib import Path
from typing import Any

import joblib
import pytest

from sweep.cli.main import main
from sweep.driver.start import prepare
from sweep.driver.start.creation import resolving
from sweep.ledger import tables
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from tests.support.command_line import environment, write_spec
from tests.support.waiting import wait_until
from trainables.core.processes import worker

HERE = ["--pool", "loky", "--json"]


class Starts:
    """Notes each process of a worker, and whether it was there before plugins were looked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        self.before: list[int] = []
        new, resolve = worker._start_new, resolving.resolve

        def noted(variables: Any) -> Any:
            self.made.append(new(variables))
            return self.made[-1]

        def resolved(*arguments: Any, **options: Any) -> Any:
            found = [worker.process_of(one) for one in self.made]
            self.before = [process.pid for process in found if process]
            return resolve(*arguments, **options)

        monkeypatch.setattr(worker, "_start_new", noted)
        monkeypatch.setattr(resolving, "resolve", resolved)


@pytest.fixture(name="starts")
def noted_starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    return Starts(monkeypatch)


def run(folder: Path, *words: str, **more: Any) -> int:
    more = {"trials": 2, "stop": {"training_iteration": 1}, "scheduler": "fifo", **more}
    spec = write_spec(folder, **more)
    return main(["run", str(spec), "--root", str(folder), *HERE, *words])


def pids_of(folder: Path) -> set[int]:
    """The processes in which its two trials ran."""
    with contextlib.closing(Ledger(Folder(folder, "demo").ledger)) as ledger:
        rows = [*ledger.results(0), *ledger.results(1)]
    return {int(row.metrics["pid"]) for row in rows}


@pytest.mark.parametrize("jobs", [1, 2])
def test_slices_run_in_workers_that_were_started_before_the_plugins_were_found(
    tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 2)
    assert run(tmp_path, "-j", str(jobs)) == 0
    assert len(starts.made) == len(starts.before) == jobs
    assert pids_of(tmp_path) <= set(starts.before)


def test_without_jobs_one_worker_is_started_early(tmp_path: Path, starts: Starts) -> None:
    assert run(tmp_path) == 0
    assert len(starts.before) == 1
    assert pids_of(tmp_path) & set(starts.before)


def test_a_mistake_in_the_spec_leaves_no_process(tmp_path: Path, starts: Starts) -> None:
    assert run(tmp_path, trainable="nothing:There") == 2
    (pid,) = starts.before
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert worker._spare == []


@pytest.mark.parametrize("words", [["--dry-run"], ["--pool", "inline"]])
def test_none_is_started_where_none_is_needed(
    tmp_path: Path, starts: Starts, words: list[str]
) -> None:
    assert run(tmp_path, *words) == 0
    assert starts.made == []


def test_one_that_died_meanwhile_costs_no_slice(
    tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor of a dead worker takes nothing; another one is started in its place."""
    start: Callable[..., Any] = worker.start

    def after_a_death(variables: Any) -> Any:
        for one in worker._spare:
            process = worker.process_of(one)
            os.kill(process.pid, signal.SIGKILL)
            connection.wait([process.sentinel])
        return start(variables)

    monkeypatch.setattr(worker, "start", after_a_death)
    assert run(tmp_path, "-j", "1") == 0
    assert len(starts.made) == 2
    assert pids_of(tmp_path).isdisjoint(starts.before)


def test_one_that_dies_before_the_spec_is_read_costs_no_sweep(
    tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare.prepare

    def after_a_death(*arguments: Any) -> Any:
        (executor,) = starts.made
        os.kill(worker.process_of(executor).pid, signal.SIGKILL)
        wait_until(lambda: executor._flags.broken is not None)
        return prepared(*arguments)

    monkeypatch.setattr(prepare, "prepare", after_a_death)
    assert run(tmp_path, "-j", "1") == 0
    assert len(starts.made) == 2


GROWS = """
import os

from joblib.externals.loky import process_executor
from trainables import Trainable


class Grows(Trainable):
    def setup(self, config):
        process_executor._MAX_MEMORY_LEAK_SIZE = 20_000_000
        process_executor._MEMORY_LEAK_CHECK_DELAY = 0.0
        self.replay = os.urandom(60_000_000)

    def step(self):
        return {"loss": 1.0, "pid": os.getpid()}

    def save_checkpoint(self, folder):
        return {}

    def load_checkpoint(self, state):
        pass
"""


def test_what_a_trial_holds_is_no_leak_of_the_worker(tmp_path: Path) -> None:
    """loky replaces a worker that grows: measured from its imports, each replay would be growth."""
    (tmp_path / "grows.py").write_text(GROWS)
    changes = {"trials": 1, "stop": {"training_iteration": 4}, "limits": {"slice_s": 1e-9}}
    assert run(tmp_path, "-j", "1", trainable="grows:Grows", **changes) == 0
    with contextlib.closing(Ledger(Folder(tmp_path, "demo").ledger)) as ledger:
        rows = ledger.results(0)
    assert (len(rows), len({row.metrics["pid"] for row in rows})) == (4, 1)


def test_interrupted_while_they_start_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        worker._spare.append(worker._start_new({}))
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "prestart", interrupted)
    with pytest.raises(KeyboardInterrupt), worker.prestarted(["json"]):
        pass
    assert worker._spare == []


@pytest.mark.parametrize("name", ["nothere.yaml", "quickstrat", "no/where", "a" * 5_000, "a\0b"])
def test_none_is_started_for_a_space_that_is_not_there(
    starts: Starts, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["run", name, *HERE]) == 2
    assert starts.made == []


def test_a_worker_for_a_gpu_is_started_when_its_devices_are_known(
    tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert run(tmp_path, "-j", "1", resources={"gpu": 1}) == 0
    assert pids_of(tmp_path).isdisjoint(starts.before)


@pytest.mark.parametrize(("cores", "at_first"), [(1, 1), (2, 1), (3, 2), (8, 2)])
def test_those_that_start_before_the_spec_is_read_leave_a_core_to_the_command(
    tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch, cores: int, at_first: int
) -> None:
    found: list[int] = []
    prepared = prepare.prepare
    monkeypatch.setattr(joblib, "cpu_count", lambda: cores)

    def noted(*arguments: Any) -> Any:
        found.append(len(starts.made))
        return prepared(*arguments)

    monkeypatch.setattr(prepare, "prepare", noted)
    assert run(tmp_path, "-j", "2") == 0
    assert (found, len(starts.made)) == ([at_first], 2)


@pytest.mark.parametrize(
    "spec", [{"trials": 1}, {"limits": {"max_concurrent": 1}}, {"machine": {"cpu": 1}}]
)
def test_no_more_are_kept_than_trials_fit_beside_each_other(
    tmp_path: Path, starts: Starts, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    kept: list[list[int]] = []
    resolve = resolving.resolve

    def noted(*arguments: Any, **options: Any) -> Any:
        kept.append([worker.process_of(one).pid for one in worker._spare])
        return resolve(*arguments, **options)

    monkeypatch.setattr(resolving, "resolve", noted)
    assert run(tmp_path, "-j", "3", **spec) == 0
    ((one,),) = kept
    assert len(starts.made) == 3
    with contextlib.closing(Ledger(Folder(tmp_path, "demo").ledger)) as ledger:
        assert {int(row.metrics["pid"]) for row in ledger.results(0)} == {one}


LEAN = """
import sys

def train(config):
    from trainables import report

    names = ("pydantic", "sweep.spec", "sweep.spec.space", "sqlalchemy", "sweep.history.history")
    seen = " ".join(name for name in names if name in sys.modules)
    report({"loss": 1.0, "seen": seen or "nothing"})
"""


def test_a_worker_of_a_function_imports_no_specs_and_no_ledger(tmp_path: Path) -> None:
    """They take a tenth of a second; stopping criteria and policies come as plain data."""
    (tmp_path / "lean.py").write_text(LEAN)
    flat = {"loss": {"<=": -1}, "plateau": {"patience": 9}, "training_iteration": 9}
    assert run(tmp_path, "-j", "1", trainable="lean:train", stop=flat) == 0
    with contextlib.closing(Ledger(Folder(tmp_path, "demo").ledger)) as ledger:
        assert {row.metrics["seen"] for row in ledger.results(0)} == {"nothing"}


def test_shared_memory_that_cannot_be_written_is_one_line_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(worker, "ProcessPoolExecutor", refused)
    assert run(tmp_path) == 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "shm provides none (Read-only file system)" in said
    assert "--shm-size=1g, or use --pool inline" in said


@pytest.mark.parametrize("files", [12, 16, 24, 28, 32, 36])
def test_a_process_that_may_open_few_files_says_in_one_line_how_to_allow_more(
    tmp_path: Path, files: int
) -> None:
    done = run_limited(tmp_path, f"-n {files}")
    assert done.returncode == 4, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "`ulimit -n" in done.stderr
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_a_process_that_may_allow_itself_more_files_does(tmp_path: Path) -> None:
    done = run_limited(tmp_path, "-Sn 32")
    assert done.returncode == 0, done.stderr


def run_limited(root: Path, limit: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, "-m", "sweep.cli.main", "run", str(write_spec(root)), *HERE]
    limited = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *words, "--root", str(root)]
    return subprocess.run(limited, env=environment(), capture_output=True, text=True, check=False)


def test_a_database_that_a_process_may_not_open_for_its_many_files_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refused)
    error = sqlite3.OperationalError("unable to open database file")
    assert tables.reason(error).startswith(
        "Too many open files; raise the limit on open files with"
    )
