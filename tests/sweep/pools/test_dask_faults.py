"""What breaks around a Dask cluster, and who must not get in: nothing lost, nothing given away."""

import base64
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
import psutil
import pytest

from sweep import pools
from sweep.core.errors import StorageError, UsageError, WorkerLost
from sweep.history.events import Closed, End, Goal, Opened, Recorded, Status
from sweep.ledger.folder import Folder
from sweep.ledger.ledger import Ledger
from sweep.pools import dask as pool_of_dask
from sweep.pools._shared import cluster as cluster_pool
from tests.support import sweeps
from tests.support.cluster import Cluster, running
from tests.support.command_line import start, write_spec
from tests.support.ports import free_port
from tests.support.relay import Relay
from tests.support.slices import note, slice_spec
from tests.support.waiting import wait_until
from trainables.checkpoint import signing

HERE = (str(Path.cwd()),)
#: How often a worker is killed.
KILLS = 6
RAY_STYLE = "tests.support.quadratic:RayStyle"


def reference(root: Path, **changes: Any) -> Folder:
    folder = sweeps.make(root, **changes)
    assert sweeps.run(folder) == "finished"
    return folder


def test_what_listens_and_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_pool, "CONNECT_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"dask@tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(StorageError, match="accepts connections but sends nothing"):
            pools.check(address, (), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_scheduler_that_dies_ends_the_driver_with_code_4_and_the_sweep_goes_on_to_the_bit(
    tmp_path: Path,
) -> None:
    folder = sweeps.make(tmp_path / "there")
    with running(tmp_path, 1) as cluster:

        def watch(recorded: Sequence[Recorded]) -> None:
            if [one for one in recorded if isinstance(one.event, Closed)]:
                os.killpg(cluster.scheduler.pid, signal.SIGKILL)

        with pytest.raises(StorageError, match="is gone; nothing is lost: restart it") as lost:
            sweeps.run(folder, pool=f"dask@{cluster.address}", watch=watch)
    assert lost.value.exit_code == 4
    assert sweeps.history(folder).ended == "failed"
    assert sweeps.run(folder, pool="inline") == "finished"
    assert sweeps.decisions(folder) == sweeps.decisions(reference(tmp_path / "here"))


#: Two trials, each of one slice.
TWO: dict[str, Any] = {"metric": "value", "mode": "max", "scheduler": "fifo", "trials": 2}
TWO |= {"config": {}, "deterministic": None}


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_nothing_running_on_the_workers(tmp_path: Path) -> None:
    spec = write_spec(tmp_path, trainable="tests.support.mishaps:Hangs", **TWO)
    folder = Folder(tmp_path / "sweeps", "demo")
    with running(tmp_path, 1) as cluster:
        where = ("--pool", "dask", "--address", cluster.address)
        driver = start("run", spec, *where, cwd=tmp_path, stdout=subprocess.DEVNULL)
        wait_until((folder.trial(0, 0) / "hung").exists)
        assert slices_on(cluster)
        driver.kill()
        driver.communicate()
        wait_until(lambda: not slices_on(cluster))
    assert sweeps.run(folder) == "finished"
    first, other = sweeps.history(folder).trials
    assert [row.metrics["value"] for row in sweeps.curve(folder, 0)] == [*map(float, range(1, 10))]
    assert (first.replicas[0].lost_slices, other.slices) == (0, 1)


def slices_on(cluster: Cluster) -> list[psutil.Process]:
    """The processes of slices on the workers; what tidies up after processes stays."""
    found = [psutil.Process(worker.pid).children(recursive=True) for worker in cluster.workers]
    return [one for children in found for one in children if "popen_loky" in str(command(one))]


def command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return list(process.cmdline())
    return []


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Let a process stand still meanwhile; its children go on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"no_answer_s": 15.0}, "neither the worker nor the trial has made progress for 15 s"),
        pytest.param(
            {"no_progress_s": 20.0, "no_answer_s": 600.0},
            "made no progress for 20 s",
            marks=pytest.mark.proof,
        ),
    ],
)
def test_a_worker_that_is_stopped_is_given_up_its_trial_goes_on_and_it_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], why: str
) -> None:
    changes = {**TWO, "trainable": "tests.support.mishaps:Hangs"}
    folder = sweeps.make(tmp_path / "sweeps", limits=limits, **changes)
    with running(tmp_path, 2) as cluster, contextlib.ExitStack() as until:
        wait_until(lambda: cluster.joined == 2)
        still: list[int] = []

        def watch(_recorded: Sequence[Recorded]) -> None:
            if not still and (folder.trial(0) / "hung").exists():
                monkeypatch.setattr(cluster_pool, "CONNECT_S", 5.0)
                name = note(folder.trial(0))["worker"]
                still.append(cluster.workers["ab".index(name)].pid)
                until.enter_context(stopped(still[0]))

        pool = f"dask@{cluster.address}"
        assert sweeps.run(folder, slots=2, pool=pool, watch=watch) == "finished"
        (reason,) = lost(folder, 0)
        assert reason.startswith(why)
        assert "retry 1 of 3" in reason
        assert_whole(folder)
        (slow,) = slices_of(still[0])
        until.close()
        psutil.wait_procs([slow], timeout=120)
        assert not slow.is_running()


@pytest.mark.proof
def test_a_worker_that_goes_on_after_it_was_given_up_ends_its_slice_and_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path, 1) as cluster, contextlib.ExitStack() as until:
        pool = until.enter_context(contextlib.closing(pools.find(f"dask@{cluster.address}")(2)))
        said: list[str] = []
        pool.say = said.append
        pool.connect(tmp_path)
        spec = slice_spec(tmp_path / "a", {"step_s": 0.05}, goal=Goal(100_000), paths=HERE)
        first = pool.submit(replace(spec, slice_s=3600.0))
        wait_until(lambda: pool.pid(first) is not None)
        slow = psutil.Process(pool.pid(first))
        monkeypatch.setattr(cluster_pool, "CONNECT_S", 5.0)
        with stopped(cluster.workers[0].pid):
            wait_until(lambda: pool.silence(first) > 2.0)
            pool.end(first, WorkerLost(None, None, "it stands still"))
            assert isinstance(first.exception(timeout=120), WorkerLost)
            assert said[-1] == "worker a does not respond; it is not used until it does"
            second = pool.submit(slice_spec(tmp_path / "b", trial=1, paths=HERE))
            assert slow.is_running()
        psutil.wait_procs([slow], timeout=120)
        assert not slow.is_running()
        assert second.result(timeout=120).end is End.GOAL


@pytest.mark.slow
def test_a_scheduler_that_is_stopped_ends_the_driver_with_code_4_at_no_trials_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.driver.driver.GRACE_S", 1.0)
    changes = {**TWO, "trainable": "tests.support.quadratic:Quadratic", "metric": "score"}
    config, limits = {"step_s": 600.0}, {"no_answer_s": 3.0}
    folder = sweeps.make(tmp_path / "sweeps", **{**changes, "config": config, "limits": limits})
    with running(tmp_path, 1) as cluster, contextlib.ExitStack() as until:
        wait_until(lambda: cluster.joined == 1)

        def watch(recorded: Sequence[Recorded]) -> None:
            if any(isinstance(one.event, Opened) for one in recorded):
                monkeypatch.setattr(cluster_pool, "CONNECT_S", 1.0)
                until.enter_context(stopped(cluster.scheduler.pid))

        with pytest.raises(StorageError, match="has stopped responding; nothing is lost") as ended:
            sweeps.run(folder, pool=f"dask@{cluster.address}", watch=watch)
        assert ended.value.exit_code == 4
    assert [trial.replicas[0].lost_slices for trial in sweeps.history(folder).trials] == [0]


@pytest.mark.proof
def test_a_scheduler_that_is_stopped_before_it_has_a_worker_ends_the_driver_with_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = sweeps.make(tmp_path / "sweeps", limits={"no_answer_s": 3.0})
    with running(tmp_path, 0) as cluster, contextlib.ExitStack() as until:

        def watch(recorded: Sequence[Recorded]) -> None:
            if any(isinstance(one.event, Opened) for one in recorded):
                monkeypatch.setattr(cluster_pool, "CONNECT_S", 1.0)
                until.enter_context(stopped(cluster.scheduler.pid))

        with pytest.raises(StorageError, match="has stopped responding; nothing is lost") as ended:
            sweeps.run(folder, pool=f"dask@{cluster.address}", watch=watch)
        assert ended.value.exit_code == 4
        until.close()
        monkeypatch.undo()
        cluster.add("a")
        assert sweeps.run(folder, pool=f"dask@{cluster.address}") == "finished"
    assert sweeps.decisions(folder) == sweeps.decisions(reference(tmp_path / "here"))


@pytest.mark.slow
def test_a_slice_that_waits_for_a_worker_has_no_limits_while_the_scheduler_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_pool, "LISTEN_S", 0.1)
    with running(tmp_path, 0) as cluster, contextlib.ExitStack() as until:
        pool = until.enter_context(contextlib.closing(pools.find(f"dask@{cluster.address}")(2)))
        pool.connect(tmp_path)
        outcome = pool.submit(slice_spec(tmp_path / "a", paths=HERE))
        with stopped(cluster.scheduler.pid):
            wait_until(lambda: pool.silence(outcome) > 1.0)
        wait_until(lambda: pool.silence(outcome) == 0.0)
        pool.end(outcome, WorkerLost(None, None, "it stands still"))
        cluster.add("a")
        assert outcome.result(timeout=120).end is End.GOAL


def slices_of(pid: int) -> list[psutil.Process]:
    """The processes of slices below a worker."""
    children = psutil.Process(pid).children(recursive=True)
    return [one for one in children if "popen_loky" in str(command(one))]


def lost(folder: Folder, trial: int) -> list[str]:
    events = [record.event for record in Ledger(folder.ledger).read()]
    closed = [e for e in events if isinstance(e, Closed) and e.trial == trial]
    return [event.reason for event in closed if event.end is End.LOST]


def assert_whole(folder: Folder) -> None:
    trials = sweeps.history(folder).trials
    assert [trial.status for trial in trials] == [Status.COMPLETED] * 2
    whole = [*map(float, range(1, 10))]
    for trial in trials:
        values = [row.metrics["value"] for row in sweeps.curve(folder, trial.number)]
        assert values == whole


@pytest.mark.slow
def test_a_trial_that_kills_every_worker_it_meets_fails_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    changes = {**TWO, "trials": 3, "trainable": "tests.support.mishaps:KillsItsWorker"}
    folder = sweeps.make(tmp_path / "sweeps", limits={"max_failures": 1}, **changes)
    with running(tmp_path, 3) as cluster:
        wait_until(lambda: cluster.joined == 3)
        sweeps.run(folder, slots=8, pool=f"dask@{cluster.address}")
        assert sum(worker.poll() is None for worker in cluster.workers) == 1
    first, *others = sweeps.history(folder).trials
    assert (first.status, first.slices) == (Status.FAILED, 2)
    assert re.fullmatch(
        r"its worker [abc] was killed or lost its connection; no retries are left", first.reason
    )
    assert [trial.status for trial in others] == [Status.COMPLETED] * 2


@pytest.mark.slow
def test_workers_that_are_killed_at_drawn_instants_lose_nothing_and_the_curves_are_equal_to_the_bit(
    tmp_path: Path,
) -> None:
    draw = np.random.default_rng(18)
    changes: dict[str, Any] = {"limits": {"max_failures": 50}, "config": {"step_s": 0.03}}
    folder = sweeps.make(tmp_path / "there", **changes)
    killed: list[int] = []
    timers: list[threading.Timer] = []
    with running(tmp_path, 0) as cluster:
        nannies = [cluster.add(name, "--nanny") for name in "ab"]
        wait_until(lambda: cluster.joined == 2)

        def kill() -> None:
            children = psutil.Process(nannies[draw.integers(2)].pid).children()
            for worker in (one for one in children if "spawn_main" in str(command(one))):
                worker.kill()
                killed.append(worker.pid)

        def watch(recorded: Sequence[Recorded]) -> None:
            if any(isinstance(one.event, Opened) for one in recorded) and len(timers) < KILLS:
                timers.append(threading.Timer(draw.uniform(0.0, 0.5), kill))
                timers[-1].start()

        assert sweeps.run(folder, 8, f"dask@{cluster.address}", watch) == "finished"
        for timer in timers:
            timer.join()
    events = [record.event for record in Ledger(folder.ledger).read()]
    lost = [event for event in events if isinstance(event, Closed) and event.end is End.LOST]
    assert len(killed) >= len(lost) > 0  # some found a worker that was idle or just starting
    assert sweeps.decisions(folder) == sweeps.decisions(reference(tmp_path / "here", **changes))
    files = {path.name for path in folder.path.glob("trials/**/ckpt-*")}
    past = sweeps.history(folder)
    assert files == {name for replica in past.all_replicas for name in replica.files}


@pytest.mark.slow
def test_the_signing_key_is_never_on_the_wire_and_a_worker_without_it_signs_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "no-key").mkdir()
    key = signing.user_trust().key
    with contextlib.ExitStack() as until:
        cluster = until.enter_context(running(tmp_path, 0))
        scheduler = until.enter_context(contextlib.closing(Relay(cluster.port)))
        listens = free_port()
        worker = until.enter_context(contextlib.closing(Relay(listens)))
        address = f"tcp://127.0.0.1:{scheduler.port}"
        contact = (f"tcp://127.0.0.1:{listens}", f"tcp://127.0.0.1:{worker.port}")
        own = ("--listen-address", contact[0], "--contact-address", contact[1])
        cluster.add("a", *own, at=address)
        wait_until(lambda: cluster.joined == 1)
        pool = until.enter_context(contextlib.closing(pools.find(f"dask@{address}")(8)))
        said: list[str] = []
        pool.say = said.append
        pool.connect(tmp_path)
        assert said == []
        spec = slice_spec(
            tmp_path / "t", trainable=RAY_STYLE, paths=HERE, trust=signing.user_trust()
        )
        outcome = pool.submit(spec).result(timeout=120)
        assert (outcome.end, outcome.error) == (End.GOAL, "")
        assert b'"mac":' in (tmp_path / "t" / outcome.saved[-1].file).read_bytes()
        wire = bytes(scheduler.seen), bytes(worker.seen)

        cluster.add("b", XDG_CONFIG_HOME=str(tmp_path / "no-key"))
        wait_until(lambda: pool.slots == 2)
        assert "lacks your signing key" in said[0]
        where: dict[str, Any] = {
            "trainable": RAY_STYLE,
            "paths": HERE,
            "trust": signing.user_trust(),
        }
        one = slice_spec(tmp_path / "u", {"step_s": 0.05}, goal=Goal(10_000), slice_s=60.0, **where)
        pool.submit(one)  # on one of the two; the next is on the other
        two = slice_spec(tmp_path / "v", trial=1, **where)
        refused = pool.submit(two).result(timeout=120)
        assert refused.end is End.CRASHED
        assert "this machine has no such key" in refused.error
        plain = pool.submit(slice_spec(tmp_path / "w", trial=2, paths=HERE))
        assert plain.result(timeout=120).end is End.GOAL
    assert list((tmp_path / "no-key").iterdir()) == []
    assert b"RayStyle" in wire[0]
    assert b"sweep.pools.dask" in wire[1]
    forms = (key, key.hex().encode(), key.hex().upper().encode(), base64.b64encode(key))
    assert not [form for form in forms for seen in wire if form.rstrip(b"=") in seen]


def test_a_scheduler_that_others_reach_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was found by a name of this machine, and says that it listens elsewhere, too."""
    monkeypatch.setattr(pool_of_dask, "_is_closed_to_others", lambda found: "localhost" in found)
    with running(tmp_path, 0) as cluster, pytest.raises(UsageError) as refused:
        pools.check(f"dask@tcp://localhost:{cluster.port}", (), tmp_path)
    elsewhere = f"also listens at {cluster.address}, where anyone can run code; start it with"
    assert elsewhere in str(refused.value)


def test_who_has_another_certificate_is_not_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = certificate(tmp_path, "ours"), certificate(tmp_path, "theirs")
    cert = ("--tls-ca-file", ours["ca-file"], "--tls-cert", ours["cert"], "--tls-key", ours["key"])
    with running(tmp_path, 0, "--protocol", "tls", *cert) as cluster:
        for shown, answered in ((ours, True), (theirs, False)):
            client = {"cert": shown["cert"], "key": shown["key"]}
            tls = {"ca-file": ours["ca-file"], "client": client}
            tls = {**dask.config.get("distributed.comm.tls"), **tls}
            with dask.config.set({"distributed.comm.tls": tls}):
                expected = contextlib.nullcontext() if answered else pytest.raises(StorageError)
                if not answered:
                    monkeypatch.setattr(cluster_pool, "CONNECT_S", 1.0)
                with expected:
                    pools.check(f"dask@{cluster.address}", (), tmp_path)


def certificate(folder: Path, name: str) -> dict[str, str]:
    """A certificate that is its own authority."""
    key, cert = folder / f"{name}.key.pem", folder / f"{name}.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    words += ["-subj", f"/CN={name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(words, check=True, capture_output=True)
    return {"ca-file": str(cert), "cert": str(cert), "key": str(key)}
