"""Slices on a Dask cluster of real processes: the same results, whatever happens to its workers."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

from sweep import pools
from sweep.core import pickled
from sweep.core.errors import BadConfig, LimitPassed, StorageError, UsageError, WorkerLost
from sweep.history.events import End, Goal
from sweep.pools import Pool
from sweep.pools import dask as pool_of_dask
from sweep.pools._shared import cluster as cluster_pool
from sweep.slices.cache import StaleProcess
from tests.support import sweeps
from tests.support.cluster import Cluster, running
from tests.support.quadratic import expected_loss
from tests.support.slices import note, slice_spec
from tests.support.waiting import wait_until

HERE = (str(Path.cwd()),)
SLOW = {"noise": 0.1, "step_s": 0.05}
#: Longer than any test waits.
ENDLESS: dict[str, Any] = {"goal": Goal(100_000), "slice_s": 3600.0, "paths": HERE}


@contextlib.contextmanager
def connected(cluster: Cluster, root: Path, slots: int = 8) -> Iterator[Pool]:
    with contextlib.closing(pools.find(f"dask@{cluster.address}")(slots)) as pool:
        said: list[str] = []
        pool.say = said.append
        pool.connect(root)
        assert not [line for line in said if "left out" in line]
        yield pool


@pytest.fixture
def pool(cluster: Cluster, tmp_path: Path) -> Iterator[Pool]:
    with connected(cluster, tmp_path) as opened:
        wait_until(lambda: opened.slots == 2)
        yield opened


def test_an_outcome_whose_way_breaks_off_is_charged_to_nobody(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the scheduler dies between the end of a slice and its outcome."""

    async def breaks_off(**_given: Any) -> None:
        raise distributed.comm.CommClosedError("in <TCP (closed)>: Stream is closed")

    assert isinstance(pool, pool_of_dask.Pool)
    monkeypatch.setattr(pool._client.scheduler, "gather", breaks_off, raising=False)
    outcome = pool.submit(slice_spec(tmp_path / "t", paths=HERE))
    with pytest.raises(StorageError, match="nothing is lost"):
        outcome.result(timeout=120)


def test_a_sweep_on_a_cluster_is_the_one_on_this_machine_to_the_bit(
    cluster: Cluster, tmp_path: Path
) -> None:
    here, there = sweeps.make(tmp_path / "here"), sweeps.make(tmp_path / "there")
    assert sweeps.run(here) == "finished"
    assert sweeps.run(there, slots=2, pool=f"dask@{cluster.address}") == "finished"
    assert sweeps.decisions(there) == sweeps.decisions(here)
    assert sweeps.history(there).pool == f"dask@{cluster.address}"


def test_a_trial_goes_back_to_the_worker_that_has_it_warm(pool: Pool, tmp_path: Path) -> None:
    def pid_of(trial: int, upto: int) -> object:
        spec = slice_spec(tmp_path / str(trial), trial=trial, paths=HERE, goal=Goal(upto))
        return pool.submit(spec).result(timeout=120).rows[-1].metrics["pid"]

    first, second = pid_of(0, 1), pid_of(1, 1)
    assert first != second
    assert (pid_of(1, 2), pid_of(0, 2)) == (second, first)


def test_a_slice_says_on_which_worker_it_runs_and_ends_alone_when_its_process_is_ended(
    pool: Pool, tmp_path: Path
) -> None:
    begun = pool.submit(slice_spec(tmp_path / "a", SLOW, trial=0, **ENDLESS))
    other = pool.submit(slice_spec(tmp_path / "b", SLOW, trial=1, paths=HERE))
    wait_until(lambda: bool(note(tmp_path / "a")))
    assert note(tmp_path / "a")["worker"] in {"a", "b"}
    wait_until(lambda: bool(pool.pid(begun)) and pool.memory(begun) > 2**20)
    pool.end(begun, LimitPassed("limits.trial_s: over"))
    assert isinstance(begun.exception(timeout=120), LimitPassed)
    assert other.result(timeout=120).rows[-1].metrics["loss"] == expected_loss(SLOW, 5, 11)
    assert pool.submit(slice_spec(tmp_path / "c", paths=HERE)).result(timeout=120).end is End.GOAL


def test_a_slice_that_kills_its_process_costs_the_cluster_nothing(
    pool: Pool, tmp_path: Path
) -> None:
    dying = {"die_at": 2, "die_once_file": str(tmp_path / "died")}
    spec = slice_spec(tmp_path / "a", dying, paths=HERE)
    error = pool.submit(spec).exception(timeout=120)
    assert isinstance(error, WorkerLost)
    assert error.worker_exit == -signal.SIGKILL
    assert pool.submit(spec).result(timeout=120).end is End.GOAL


def test_workers_come_and_go_and_one_that_is_killed_costs_its_slice_alone(
    cluster: Cluster, pool: Pool, tmp_path: Path
) -> None:
    newcomers = {name: cluster.add(name) for name in "cd"}
    wait_until(lambda: pool.slots == 4)
    folders = [tmp_path / str(number) for number in range(4)]
    slices = [
        pool.submit(slice_spec(folder, SLOW, trial=number, **ENDLESS))
        for number, folder in enumerate(folders)
    ]
    wait_until(lambda: all(note(folder) for folder in folders))
    on = {note(folder)["worker"]: slices[number] for number, folder in enumerate(folders)}
    os.kill(newcomers["c"].pid, signal.SIGKILL)
    error = on["c"].exception(timeout=120)
    assert isinstance(error, WorkerLost)
    assert str(error) == "its worker c was killed or lost its connection"
    with distributed.Client(cluster.address, set_as_default=False) as client:
        client.retire_workers(names=["d"])
    assert isinstance(on["d"].exception(timeout=120), StaleProcess)
    wait_until(lambda: pool.slots == 2)
    assert [future.done() for future in slices].count(True) == 2


@pytest.mark.slow
def test_eight_workers_run_eight_slices_at_once_and_a_sweep_to_the_bit(tmp_path: Path) -> None:
    here, there = (sweeps.make(tmp_path / name, trials=16) for name in ("here", "there"))
    assert sweeps.run(here) == "finished"
    with running(tmp_path, 8) as cluster:
        wait_until(lambda: cluster.joined == 8, 120)
        with connected(cluster, tmp_path) as pool:
            wait_until(lambda: pool.slots == 8, 120)
            folders = [tmp_path / str(number) for number in range(8)]
            for number, folder in enumerate(folders):
                pool.submit(slice_spec(folder, SLOW, trial=number, **ENDLESS))
            wait_until(lambda: all(note(folder) for folder in folders), 120)
            assert {note(folder)["worker"] for folder in folders} == set("abcdefgh")
        assert sweeps.run(there, slots=8, pool=f"dask@{cluster.address}") == "finished"
    assert sweeps.decisions(there) == sweeps.decisions(here)


def test_closing_ends_what_runs_on_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster, tmp_path) as pool:
        runs = pool.submit(slice_spec(tmp_path / "a", SLOW, **ENDLESS))
        wait_until(lambda: bool(pool.pid(runs)))
        pid = pool.pid(runs)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_pool_uses_as_many_workers_as_it_may(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster, tmp_path, slots=1) as pool:
        assert pool.slots == 1
        pool.resize(2)
        wait_until(lambda: pool.slots == 2)


# ---- who does not fit ---------------------------------------------------------------------------


def test_a_worker_with_other_versions_is_named_before_anything_runs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = pickled.libraries()
    monkeypatch.setattr(pickled, "libraries", lambda: {**there, "torch": "9.9"})
    with pytest.raises(UsageError) as refused:
        pools.check(f"dask@{cluster.address}", (), tmp_path)
    assert f"torch is {there['torch']} there and 9.9 here; install the" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_that_does_not_share_the_folder_is_named_before_anything_runs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "not-mounted-there"
    monkeypatch.setattr(cluster_pool, "_probe", lambda _root: contextlib.nullcontext(elsewhere))
    with pytest.raises(UsageError) as refused:
        pools.check(f"dask@{cluster.address}", (), tmp_path)
    assert f"it does not see {elsewhere}; sweeps on a cluster must be in" in str(refused.value)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (
            "",
            "the pool dask needs the address of a cluster; "
            "expected the address of its scheduler, such as tls://node-1:8786",
        ),
        ("tcp://10.1.2.3:8786", "is open: anyone who can reach it"),
        ("10.1.2.3:8786", "is open: anyone who can reach it"),
        ("ws://127.0.0.1:8786", "is open: anyone who can reach it"),
        ("tcp://no.such.host.invalid:8786", "is open: anyone who can reach it"),
        ("tls://10.1.2.3:8786", "the certificates for tls://10.1.2.3:8786 cannot be used"),
    ],
)
def test_a_cluster_that_is_open_to_others_is_refused_in_one_line(
    address: str, problem: str
) -> None:
    with pytest.raises(BadConfig, match="--address: ") as refused:
        pools.find(f"dask@{address}")(1)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_scheduler_that_does_not_answer_is_the_outsides_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_pool, "CONNECT_S", 0.5)
    with pytest.raises(StorageError, match="--address: there is no usable Dask scheduler at") as no:
        pools.check("dask@tcp://127.0.0.1:9", (), tmp_path)
    assert no.value.exit_code == 4


@pytest.mark.parametrize("leaves", [True, False])
def test_a_worker_that_is_named_twice_is_one_and_one_that_leaves_while_it_is_asked_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    pool = pool_of_dask.Pool(8, "tcp://127.0.0.1:1")
    address = "tcp://127.0.0.1:2"

    async def about(_address: str, _probe: Path) -> dict[str, Any]:
        await asyncio.sleep(0)
        if leaves:
            pool._handle_event((0.0, {"action": "remove-worker", "worker": address}))
        return {"name": "a", "has": pickled.libraries(), "key": "", "ahead_s": 0.0}

    async def join() -> None:
        await asyncio.gather(*(pool._join(address, tmp_path) for _ in range(2)))

    said: list[str] = []
    monkeypatch.setattr(pool, "_ask_description", about)
    with contextlib.closing(pool):
        pool.say = said.append
        asyncio.run(join())
        assert len(pool._workers) == len(said) == (0 if leaves else 1)  # it lacks the key


def test_a_worker_that_listens_where_others_reach_it_is_asked_nothing(tmp_path: Path) -> None:
    with contextlib.closing(pool_of_dask.Pool(8, "tcp://127.0.0.1:1")) as pool:
        said = asyncio.run(pool._join("tcp://192.0.2.1:2", tmp_path))
    assert said.endswith(
        "is not used: anyone who can reach it can run code on it; start it with TLS"
    )


def test_an_address_is_kept_with_the_pool_that_it_is_of() -> None:
    assert pools.choose_pool("dask@tcp://localhost:1", "loky") == "dask@tcp://localhost:1"
    assert pools.choose_pool(None, "dask@tcp://localhost:1") == "dask@tcp://localhost:1"
    assert (
        pools.choose_pool("@tcp://localhost:2", "dask@tcp://localhost:1")
        == "dask@tcp://localhost:2"
    )
    assert pools.choose_pool("loky", "dask@tcp://localhost:1") == "loky"
    with pytest.raises(BadConfig, match="the pool 'loky' has no cluster; remove --address"):
        pools.find("loky@tcp://localhost:1")
