"""kill -9 at instants that nobody chose, three times per sweep: the long run, short."""

import os
from pathlib import Path

import pytest

from benchmarks.chaos import kill_cluster, kill_lanes, kill_server, kills, partitions
from benchmarks.chaos.store_cases import Cases
from benchmarks.chaos.victims import Victim, semaphores_of
from benchmarks.chaos.workload import SEARCHES
from tests.support.proofs import proofs_except


@pytest.mark.slow
@pytest.mark.parametrize("victim", proofs_except({Victim.GROUP, Victim.DRIVER}, Victim))
def test_a_sweep_that_is_killed_repeatedly_equals_an_uninterrupted_one(
    tmp_path: Path, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kills, "KILLS", 3)
    assert kills.run(tmp_path, 3, 0, victim) == 0
    (line,) = Cases(tmp_path, f"kill_{victim}").done.values()
    assert line["kills"] == 3


def test_semaphores_of_an_earlier_process_with_the_same_number_are_not_left_by_this_one() -> None:
    own = Path("/dev/shm") / f"sem.loky-{os.getpid()}-left"  # noqa: S108 folder of semaphores
    own.touch()
    try:
        created = own.stat().st_mtime
        assert own in semaphores_of(os.getpid(), created)
        assert own not in semaphores_of(os.getpid(), created + 1)
        assert semaphores_of(os.getpid() + 1_000_000, 0.0) == []
    finally:
        own.unlink()


@pytest.mark.proof
def test_a_sweep_of_lanes_that_is_killed_again_and_again_is_the_one_that_nobody_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(kill_lanes, "_TURNS", (Victim.WORKER,))
    assert kill_lanes.run(tmp_path, 1, 0) == 0
    (line,) = Cases(tmp_path, "kill_lanes").done.values()
    assert line["kills"] > 0
    assert line["lost"] > 0


@pytest.mark.proof
@pytest.mark.usefixtures("server")  # where none is installed, this is skipped or fails
def test_a_sweep_whose_server_is_killed_again_and_again_goes_on_by_itself(tmp_path: Path) -> None:
    assert kill_server.run(tmp_path, kills.KILLS, 0) == 0
    (line,) = Cases(tmp_path, "kill_server").done.values()
    assert line["kills"] == kills.KILLS


@pytest.mark.proof
@pytest.mark.usefixtures("server")
def test_a_sweep_on_a_cluster_of_which_any_part_is_killed_is_the_one_that_nobody_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_cluster, "KILLS", 3)
    assert kill_cluster.run(tmp_path, 3, 0, "any") == 0
    (line,) = Cases(tmp_path, "cluster_any").done.values()
    assert line["kills"] == 3


@pytest.mark.proof
def test_a_worker_that_was_cut_off_and_comes_back_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "CUTS", 1)
    monkeypatch.setattr(partitions, "LONG", {"asha": SEARCHES["asha that stops"]})
    assert partitions.run(tmp_path, 1, 0, "workers") == 0
    assert sum(line["cuts"] for line in Cases(tmp_path, "partition_workers").done.values()) >= 1
