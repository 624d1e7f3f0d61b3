"""What every pool promises; a new file among them is tested unasked."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import closing
from pathlib import Path

import pytest

from sweep import pools
from sweep.core import plugins
from sweep.core.errors import UsageError, WorkerLost
from sweep.history.events import End, Goal
from sweep.pools import Pool, inline, loky
from sweep.slices import cache
from sweep.slices.cache import StaleProcess
from tests.support import mishaps
from tests.support.cluster import Cluster, running
from tests.support.quadratic import expected_loss
from tests.support.slices import slice_spec
from tests.support.waiting import wait_until
from trainables.function import thread

NAMES = plugins.names(pools.PACKAGE)
HERE = (str(Path.cwd()),)


def test_the_pools_that_people_look_for_are_found() -> None:
    assert {"dask", "inline", "loky", "ray"} <= set(NAMES)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running(tmp_path_factory.mktemp("cluster"), 2) as opened:
        yield opened


#: Pool → the fixture with its cluster.
CLUSTERS = {"dask": "cluster", "ray": "ray_cluster"}
SLOW = {"ray": pytest.mark.slow}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=SLOW.get(name, ())) for name in NAMES]
)
def pool(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pool]:
    chosen = request.param
    if pools.KIND.find(chosen).clustered:
        chosen = f"{chosen}@{request.getfixturevalue(CLUSTERS[chosen]).address}"
    with closing(pools.find(chosen)(2)) as opened:
        opened.connect(tmp_path_factory.mktemp("sweeps"))
        yield opened


def test_a_slice_comes_back_with_what_it_did(pool: Pool, tmp_path: Path) -> None:
    outcome = pool.submit(slice_spec(tmp_path, paths=HERE)).result(timeout=120)
    assert outcome.end is End.GOAL
    assert outcome.rows[-1].metrics["loss"] == expected_loss({"noise": 0.1}, 5, 11)
    assert (tmp_path / outcome.saved[-1].file).is_file()


def test_many_slices_go_through_few_slots(pool: Pool, tmp_path: Path) -> None:
    for number in range(6):
        spec = slice_spec(tmp_path / str(number), trial=number, paths=HERE)
        assert pool.submit(spec).result(timeout=120).trial == number


def test_a_trainable_that_raises_is_an_outcome_not_an_exception(pool: Pool, tmp_path: Path) -> None:
    spec = slice_spec(tmp_path, {"fail_at": 1}, paths=HERE)
    assert pool.submit(spec).result(timeout=120).end is End.CRASHED


@pytest.fixture
def two_slots() -> Iterator[loky.Pool]:
    with closing(loky.Pool(2)) as opened:
        yield opened


def test_a_worker_that_dies_takes_nobody_with_it(two_slots: loky.Pool, tmp_path: Path) -> None:
    dying = {"die_at": 2, "die_once_file": str(tmp_path / "died")}
    lost = two_slots.submit(slice_spec(tmp_path / "a", dying, trial=0, paths=HERE))
    slow = {"noise": 0.1, "step_s": 0.05}
    kept = two_slots.submit(slice_spec(tmp_path / "b", slow, trial=1, paths=HERE))
    wait([lost, kept], timeout=120)
    error = lost.exception(timeout=0)
    assert isinstance(error, WorkerLost)
    assert error.worker_exit == -signal.SIGKILL
    assert kept.result(timeout=0).rows[-1].metrics["loss"] == expected_loss(slow, 5, 11)
    again = two_slots.submit(slice_spec(tmp_path / "a", dying, trial=0, paths=HERE))
    assert again.result(timeout=120).end is End.GOAL


def test_a_worker_that_dies_while_idle_costs_nobody_anything(tmp_path: Path) -> None:
    with closing(loky.Pool(1)) as pool:
        for number in range(3):
            spec = slice_spec(tmp_path / str(number), trial=number, paths=HERE)
            assert pool.submit(spec).result(timeout=120).end is End.GOAL
            (pid,) = pool.pids
            kill_and_wait(pid)


def test_the_process_that_is_ended_is_the_one_that_runs_though_loky_has_replaced_it(
    tmp_path: Path,
) -> None:
    """loky ends a worker that grew by itself; the pool may have looked just before."""
    with closing(loky.Pool(1)) as pool:
        assert pool.submit(slice_spec(tmp_path / "a", paths=HERE)).result(timeout=120)
        (slot,) = pool._slots
        before = slot.process
        kill_and_wait(before.pid)
        spec = slice_spec(tmp_path / "b", {"step_s": 60.0}, trial=1, paths=HERE)
        running = pool.submit(spec)
        slot.process = before
        pid = pool.pid(running)
        assert [pid] == pool.pids != [before.pid]
        slot.process = before
        ended = WorkerLost(None, 0)
        pool.end(running, ended)
        assert running.exception(timeout=120) is ended


def kill_and_wait(pid: int) -> None:
    """SIGKILL; returns when all threads of the process have ended."""
    descriptor = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    assert select.select([descriptor], [], [], 120)[0]
    os.close(descriptor)


@pytest.mark.slow
def test_a_process_in_which_an_earlier_trial_still_runs_takes_no_other(tmp_path: Path) -> None:
    with closing(loky.Pool(1)) as pool:
        name = "tests.support.mishaps:stays"
        spec = slice_spec(
            tmp_path / "a", {}, trainable=name, paths=HERE, goal=Goal(2), metric="value",
            isolate="slot",
        )  # fmt: skip
        assert pool.submit(spec).result(timeout=120).end is End.GOAL
        (before,) = pool.pids
        spec = slice_spec(tmp_path / "b", trial=1, paths=HERE)
        assert isinstance(pool.submit(spec).exception(timeout=120), StaleProcess)
        assert pool.submit(spec).result(timeout=120).end is End.GOAL
        assert pool.pids != [before]


def test_the_pool_of_one_process_says_in_a_line_that_an_earlier_trial_still_runs_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread, "STOP_TIMEOUT_S", 0.0)
    monkeypatch.setattr(cache, "_process", cache._Process())
    pool, name = inline.Pool(1), "tests.support.mishaps:stays"
    spec = slice_spec(tmp_path / "a", {}, trainable=name, paths=HERE, goal=Goal(2), metric="value")
    try:
        assert pool.submit(spec).result().end is End.GOAL
        with pytest.raises(UsageError, match=r"^pool: the function .* with --pool loky$"):
            pool.submit(slice_spec(tmp_path / "b", trial=1, paths=HERE))
    finally:
        mishaps.released.set()


def test_a_trial_goes_back_to_the_slot_it_was_in(two_slots: loky.Pool, tmp_path: Path) -> None:
    def pid_of(trial: int, upto: int) -> object:
        spec = slice_spec(tmp_path / str(trial), trial=trial, paths=HERE, goal=Goal(upto))
        return two_slots.submit(spec).result(timeout=120).rows[-1].metrics["pid"]

    first, second = pid_of(0, 1), pid_of(1, 1)
    assert first != second
    assert (pid_of(1, 2), pid_of(0, 2)) == (second, first)
    # a newcomer takes the place of who came to rest first: the other may not be looked at yet
    assert (pid_of(2, 1), pid_of(0, 3)) == (second, first)


SIGNALLED = """
import os, signal, sys, time
from pathlib import Path
from sweep.pools.loky import Pool
from tests.support.slices import slice_spec

pool = Pool(1)
outcome = pool.submit(slice_spec(Path(sys.argv[1]), {"step_s": 0.1}))
(pid,) = pool.pids
sent = 0
while not outcome.done():
    os.kill(pid, signal.SIGTERM if sent % 2 else signal.SIGINT)
    sent += 1
    time.sleep(0.002)
pool.close()
print(len(outcome.result().rows), outcome.result().end, sent > 20)
"""


@pytest.mark.slow
def test_a_worker_does_not_die_of_the_signals_of_a_terminal_from_its_first_instant(
    tmp_path: Path,
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED, str(tmp_path)], capture_output=True, text=True, check=True
    )
    rows, end, is_often = ran.stdout.split()
    assert (end, is_often) == (End.GOAL, "True"), ran.stdout
    assert int(rows) > 0


def test_what_a_trainable_prints_stands_in_its_trials_log(
    two_slots: loky.Pool, tmp_path: Path
) -> None:
    name = "tests.contracts.talkative:Talkative"
    spec = slice_spec(tmp_path, trainable=name, paths=HERE, goal=Goal(1))
    two_slots.submit(spec).result(timeout=120)
    log = (tmp_path / "log.txt").read_text()
    assert "said by python" in log
    assert "said by a child" in log


def test_closing_ends_the_workers(tmp_path: Path) -> None:
    pool = loky.Pool(1)
    pool.submit(slice_spec(tmp_path, paths=HERE)).result(timeout=120)
    (pid,) = pool.pids
    pool.close()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.slow
def test_a_pool_grows_and_shrinks_without_losing_a_slice(tmp_path: Path) -> None:
    with closing(loky.Pool(2)) as pool:
        slow = {"noise": 0.1, "step_s": 0.05}
        specs = [
            slice_spec(tmp_path / str(number), slow, trial=number, paths=HERE)
            for number in range(5)
        ]
        running = [pool.submit(spec) for spec in specs[:2]]
        pool.resize(3)
        running.append(pool.submit(specs[2]))
        pool.resize(1)
        assert [future.result(timeout=120).end for future in running] == [End.GOAL] * 3
        wait_until(lambda: len(pool.pids) == 1)
        assert pool.submit(specs[3]).result(timeout=120).end is End.GOAL
        pool.resize(2)
        running = [pool.submit(spec) for spec in (specs[0], specs[4])]
        assert [future.result(timeout=120).rows[-1].iteration for future in running] == [5, 5]
        assert len(pool.pids) == 2
