"""Slices on a Ray cluster of real processes: the same results, whatever happens to its workers."""

import asyncio
import base64
import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.chaos.victims import starter_of
from sweep import pools
from sweep.core.errors import BadConfig, LimitPassed, StorageError, UsageError, WorkerLost
from sweep.history.events import Closed, End, Goal, Opened, Recorded, Status
from sweep.ledger.folder import Folder
from sweep.pools import ray as pool_of_ray
from sweep.pools._shared import cluster as cluster_pool
from sweep.slices.cache import StaleProcess
from tests.support import sweeps
from tests.support.command_line import start, write_spec
from tests.support.ports import free_port
from tests.support.quadratic import expected_loss
from tests.support.ray_cluster import TOKEN, RayCluster, running
from tests.support.slices import note, slice_spec
from tests.support.waiting import wait_until
from trainables.checkpoint import signing

HERE = (str(Path.cwd()),)
SLOW = {"noise": 0.1, "step_s": 0.05}
#: Longer than any test waits.
ENDLESS: dict[str, Any] = {"goal": Goal(100_000), "slice_s": 3600.0, "paths": HERE}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the tests' clusters, whatever lies in the home folder."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)


@contextlib.contextmanager
def connected(cluster: RayCluster, root: Path, slots: int) -> Iterator[pool_of_ray.Pool]:
    with contextlib.closing(pool_of_ray.Pool(slots, cluster.address)) as pool:
        said: list[str] = []
        pool.say = said.append
        pool.connect(root)
        wait_until(lambda: pool.slots >= 2, 120)
        assert not [line for line in said if "left out" in line]
        yield pool


@pytest.fixture(scope="module")
def pool(
    ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[pool_of_ray.Pool]:
    """Two slots of the head's four."""
    with connected(ray_cluster, tmp_path_factory.mktemp("ray"), 2) as opened:
        yield opened


@pytest.mark.slow
def test_a_sweep_on_ray_is_the_one_on_this_machine_to_the_bit(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    here, there = sweeps.make(tmp_path / "here"), sweeps.make(tmp_path / "there")
    assert sweeps.run(here) == "finished"
    assert sweeps.run(there, slots=2, pool=f"ray@{ray_cluster.address}") == "finished"
    assert sweeps.decisions(there) == sweeps.decisions(here)
    assert sweeps.history(there).pool == f"ray@{ray_cluster.address}"


@pytest.mark.slow
def test_a_trial_goes_back_to_its_worker_and_a_slice_ends_alone_when_its_process_is_ended(
    pool: pool_of_ray.Pool, tmp_path: Path
) -> None:
    def pid_of(trial: int, upto: int) -> object:
        spec = slice_spec(tmp_path / str(trial), trial=trial, paths=HERE, goal=Goal(upto))
        return pool.submit(spec).result(timeout=120).rows[-1].metrics["pid"]

    first, second = pid_of(0, 1), pid_of(1, 1)
    assert first != second
    assert (pid_of(1, 2), pid_of(0, 2)) == (second, first)

    running = pool.submit(slice_spec(tmp_path / "a", SLOW, trial=2, **ENDLESS))
    other = pool.submit(slice_spec(tmp_path / "b", SLOW, trial=3, paths=HERE))
    wait_until(lambda: bool(note(tmp_path / "a")))
    assert note(tmp_path / "a")["worker"] in pool.clocks
    wait_until(lambda: bool(pool.pid(running)) and pool.memory(running) > 2**20)
    pool.end(running, LimitPassed("limits.trial_s: over"))
    assert isinstance(running.exception(timeout=120), LimitPassed)
    assert other.result(timeout=120).rows[-1].metrics["loss"] == expected_loss(SLOW, 5, 11)


@pytest.mark.slow
def test_a_pool_that_grows_gets_more_workers(ray_cluster: RayCluster, tmp_path: Path) -> None:
    # Other tests' pool keeps two of the cluster's four slots.
    with contextlib.closing(pool_of_ray.Pool(1, ray_cluster.address)) as pool:
        pool.say = lambda _: None
        pool.connect(tmp_path)
        assert pool.slots == 1
        pool.resize(2)
        wait_until(lambda: pool.slots == 2, 120)


@pytest.mark.proof
def test_an_actor_that_is_stopped_is_given_up_and_another_one_takes_its_place(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(ray_cluster, tmp_path, 2) as pool:
        running = pool.submit(slice_spec(tmp_path / "a", SLOW, **ENDLESS))
        wait_until(lambda: pool.pid(running) is not None)
        slow = psutil.Process(pool.pid(running))
        actor = starter_of(slow)
        assert actor is not None
        monkeypatch.setattr(cluster_pool, "CONNECT_S", 5.0)
        actor.suspend()
        try:
            wait_until(lambda: pool.silence(running) > 2.0)
            pool.end(running, WorkerLost(None, None, "it stands still"))
            assert isinstance(running.exception(timeout=120), WorkerLost)
            later = slice_spec(tmp_path / "b", trial=1, paths=HERE)
            assert pool.submit(later).result(timeout=120).end is End.GOAL
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                actor.resume()
        psutil.wait_procs([slow, actor], timeout=120)
        assert not slow.is_running()
        wait_until(lambda: pool.slots == 2, 120)


@pytest.mark.slow
def test_nodes_come_and_go_and_a_worker_that_is_killed_costs_its_slice_alone(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    ray_cluster.add("b", "--num-cpus", "1")
    with connected(ray_cluster, tmp_path, 8) as pool:
        wait_until(lambda: "b/0" in pool.clocks, 120)
        there = pool.slots
        folders = [tmp_path / str(number) for number in range(there)]
        slices = [
            pool.submit(slice_spec(folder, SLOW, trial=number, **ENDLESS))
            for number, folder in enumerate(folders)
        ]
        wait_until(lambda: all(note(folder) for folder in folders), 120)
        on = {note(folder)["worker"]: slices[number] for number, folder in enumerate(folders)}
        ray_cluster.stop("b")
        assert isinstance(on.pop("b/0").exception(timeout=120), StaleProcess)
        name, running = on.popitem()
        wait_until(lambda: pool.pid(running) is not None)
        worker = starter_of(psutil.Process(pool.pid(running)))
        assert worker is not None
        worker.kill()
        error = running.exception(timeout=120)
        assert isinstance(error, WorkerLost)
        assert str(error) == f"its worker {name} was killed or lost its connection"
        wait_until(lambda: pool.slots == there - 1, 120)  # the head has another one in its place
        assert not [one for one in on.values() if one.done()]

        assert pool._gateway is not None
        os.kill(pool._gateway.pid, signal.SIGKILL)
        for lost in (one.exception(timeout=120) for one in on.values()):
            assert isinstance(lost, StorageError)
            assert "the process with the connection to the Ray head at" in str(lost)
    ray_cluster.kill("b")


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_it_meets_fails_and_the_others_go_on(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"metric": "value", "mode": "max", "scheduler": "fifo", "trials": 3}
    changes |= {"config": {}, "deterministic": None}
    changes |= {"trainable": "tests.support.mishaps:KillsItsWorker"}
    folder = sweeps.make(tmp_path / "sweeps", limits={"max_failures": 1}, **changes)
    sweeps.run(folder, slots=8, pool=f"ray@{ray_cluster.address}")
    first, *others = sweeps.history(folder).trials
    assert (first.status, first.slices) == (Status.FAILED, 2)
    lost = r"its worker head/[0-3] was killed or lost its connection; no retries are left"
    assert re.fullmatch(lost, first.reason)
    assert [trial.status for trial in others] == [Status.COMPLETED] * 2


@pytest.mark.slow
def test_the_signing_key_is_not_sent_and_a_gpu_is_shared_out(
    pool: pool_of_ray.Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = pool._call_worker(next(iter(pool._workers)), os.getenv, "CUDA_VISIBLE_DEVICES")
    assert asyncio.run_coroutine_threadsafe(gpu, pool._loop).result(120) == "0"  # the head has one
    key, sent = signing.user_trust().key, bytearray()
    write = pool._to_gateway.write
    monkeypatch.setattr(pool._to_gateway, "write", lambda frame: write(remembered(frame)))

    def remembered(frame: bytes) -> bytes:
        sent.extend(frame)
        return frame

    name = "tests.support.quadratic:RayStyle"
    spec = slice_spec(tmp_path / "t", trainable=name, paths=HERE, trust=signing.user_trust())
    outcome = pool.submit(spec).result(timeout=120)
    assert (outcome.end, outcome.error) == (End.GOAL, "")
    assert b'"mac":' in (tmp_path / "t" / outcome.saved[-1].file).read_bytes()
    assert b"RayStyle" in sent
    forms = (key, key.hex().encode(), key.hex().upper().encode(), base64.b64encode(key))
    assert not [form for form in forms if form.rstrip(b"=") in sent]


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_nothing_running_on_the_workers(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    changes = {"metric": "value", "mode": "max", "scheduler": "fifo", "trials": 2, "config": {}}
    hangs = {"trainable": "tests.support.mishaps:Hangs", "deterministic": None}
    file = write_spec(tmp_path, **changes, **hangs)
    folder = Folder(tmp_path / "sweeps", "demo")
    where = ("--pool", "ray", "--address", ray_cluster.address)
    driver = start("run", file, *where, cwd=tmp_path, stdout=subprocess.DEVNULL)
    marker = folder.trial(0, 0) / "hung"
    wait_until(lambda: marker.exists() and bool(marker.read_text()), 120)
    hung = psutil.Process(int(marker.read_text()))
    wait_until(lambda: hung in ray_cluster.processes("head"))
    driver.kill()
    driver.communicate()
    wait_until(lambda: not hung.is_running() or hung.status() == psutil.STATUS_ZOMBIE, 120)


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, str]:
    """What Ray reads that lets nobody in without a certificate of ours; no token is asked for."""
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    words += ["-subj", "/CN=sweep", "-keyout", key, "-out", cert]
    every = [one for found in psutil.net_if_addrs().values() for one in found]
    names = [f"IP:{one.address}" for one in every if one.family is socket.AF_INET]
    words += ["-addext", f"subjectAltName=DNS:localhost,{','.join(names)}"]  # Ray compares them
    subprocess.run(words, check=True, capture_output=True)
    files = {"RAY_TLS_SERVER_CERT": cert, "RAY_TLS_SERVER_KEY": key, "RAY_TLS_CA_CERT": cert}
    return {"RAY_USE_TLS": "1", "RAY_AUTH_MODE": "disabled", **files}


@pytest.mark.proof
def test_a_head_that_dies_ends_the_driver_with_code_4_and_the_sweep_goes_on_to_the_bit(
    tmp_path: Path, certificate: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS, without a token."""
    for name, value in certificate.items():
        monkeypatch.setenv(name, value)
    folder = sweeps.make(tmp_path / "there")
    with running(1, **certificate) as cluster:

        def watch(recorded: Sequence[Recorded]) -> None:
            if [one for one in recorded if isinstance(one.event, Closed)]:
                cluster.close()

        with pytest.raises(StorageError, match="is gone; nothing is lost: restart it") as lost:
            sweeps.run(folder, pool=f"ray@{cluster.address}", watch=watch)
    assert lost.value.exit_code == 4
    assert sweeps.history(folder).ended == "failed"
    assert sweeps.run(folder, pool="inline") == "finished"
    here = sweeps.make(tmp_path / "here")
    assert sweeps.run(here) == "finished"
    assert sweeps.decisions(folder) == sweeps.decisions(here)


@pytest.mark.proof
def test_a_head_that_is_stopped_while_a_slice_waits_for_a_worker_ends_the_driver_with_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path / "there", limits={"no_answer_s": 3.0})
    with running(0) as cluster:
        servers = cluster.processes("head", "gcs_server")

        def watch(recorded: Sequence[Recorded]) -> None:
            if any(isinstance(one.event, Opened) for one in recorded):
                monkeypatch.setattr(cluster_pool, "CONNECT_S", 1.0)
                for server in servers:
                    server.suspend()

        with pytest.raises(StorageError, match="has stopped responding; nothing is lost") as ended:
            sweeps.run(folder, pool=f"ray@{cluster.address}", watch=watch)
    assert ended.value.exit_code == 4
    assert sweeps.run(folder, pool="inline") == "finished"
    assert [trial.replicas[0].lost_slices for trial in sweeps.history(folder).trials] == [0] * 9


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.mark.slow
def test_a_cluster_that_lets_everybody_in_is_refused_before_it_is_joined(tmp_path: Path) -> None:
    """A head alone, as `ray start` has it without a token; it listens on every network."""
    spec = importlib.util.find_spec("ray")
    if spec is None or spec.origin is None:
        pytest.skip("Ray is not installed; pip install 'sweep-rl[ray]'")
    program = Path(spec.origin).parent / "core/src/ray/gcs/gcs_server"
    port = free_port()
    words = [f"--gcs_server_port={port}", "--node-ip-address=127.0.0.1", f"--log_dir={tmp_path}"]
    words += ["--config_list=e30=", f"--session-dir={tmp_path}", "--session-name=open"]
    env = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    head = subprocess.Popen(
        [program, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        wait_until(lambda: listens(port))
        with pytest.raises(UsageError) as refused:
            pools.check(f"ray@127.0.0.1:{port}", (), tmp_path)
    finally:
        head.kill()
        head.wait()
    assert "is open: anyone who can reach it can run code" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (
            "",
            "the pool ray needs the address of a cluster; "
            "expected the head's host and port, such as node-1:6379",
        ),
        ("node-1", "'node-1' is not an address of a Ray head"),
        ("ray://node-1:10001", "'ray://node-1:10001' is not an address of a Ray head"),
        ("node-1:65536", "is not an address of a Ray head"),
        ("node-1:6379 --head", "is not an address of a Ray head"),
    ],
)
def test_what_is_no_head_of_a_cluster_is_refused_in_one_line(address: str, problem: str) -> None:
    with pytest.raises(BadConfig, match="--address: ") as refused:
        pools.find(f"ray@{address}")(1)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_where_ray_is_missing_or_others_can_read_the_token_the_next_step_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    token = tmp_path / ".ray/auth_token"
    token.parent.mkdir()
    token.write_text("0" * 64)
    token.chmod(0o644)
    with pytest.raises(BadConfig, match=f"can be read by others.*chmod 600 {token}"):
        pools.find("ray@127.0.0.1:6379")(1)
    token.chmod(0o600)
    pools.find("ray@127.0.0.1:6379")(1).close()
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(BadConfig, match=r"pip install 'sweep-rl\[ray\]'"):
        pools.find("ray@127.0.0.1:6379")(1)


def test_a_head_that_is_away_or_says_nothing_is_the_outsides_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError, match="--address: no Ray head answers at") as away:
        pools.check(f"ray@127.0.0.1:{free_port()}", (), tmp_path)
    assert away.value.exit_code == 4
    monkeypatch.setattr(pool_of_ray, "START_S", 0.2 - pool_of_ray.WORKERS_S)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"ray@127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(StorageError, match="accepts connections but sends nothing"):
            pools.check(address, (), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_nodes_that_are_called_the_same_have_slots_of_their_own() -> None:
    async def name() -> tuple[str, str, str]:
        gateway = pool_of_ray._Gateway(answers=-1)
        places = [("1" * 56, 0), ("2" * 56, 0)]
        for place in places:
            gateway._places[place] = asyncio.create_task(asyncio.sleep(60))
        first, second = (gateway._name(*place, "node") for place in places)
        gateway._places[places[0]].cancel()
        await asyncio.wait([gateway._places[places[0]]])
        return first, second, gateway._name("3" * 56, 0, "node")

    assert asyncio.run(name()) == ("node/0", "node-22222222/0", "node/0")


@pytest.mark.parametrize(
    ("gpus", "slots", "each"), [(0, 4, 0.0), (4, 2, 2), (8, 3, 2), (1, 4, 0.25), (1, 3, 0.3333)]
)
def test_the_gpus_of_a_node_are_shared_out_among_its_slots(
    gpus: float, slots: int, each: float
) -> None:
    assert pool_of_ray._share(gpus, slots) == each
    assert each * slots <= gpus
