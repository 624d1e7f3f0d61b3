"""One driver per sweep: at once on one machine, by a lease between machines, by no clock's date."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from sweep.core.errors import SweepLocked
from sweep.driver.driver import Driver
from sweep.driver.start import launch
from sweep.driver.start.launch import Launch
from sweep.driver.tracking.outbox import Outbox
from sweep.history.events import Closed, Created, Recorded, Status, TermBegan
from sweep.ledger import hold, lease, storage, upgrade
from sweep.ledger.folder import Folder
from sweep.ledger.lease import Host, Lease
from sweep.ledger.ledger import Ledger
from sweep.ledger.tables import Connection
from sweep.operations.upkeep import ledger_check, repair
from sweep.trackers import Tracker
from sweep.views import lookup
from tests.support import sweeps
from tests.support.command_line import environment, start, write_spec
from tests.support.quadratic import expected_loss
from tests.support.waiting import wait_until
from trainables.core import rng

DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path, either_database: str) -> Folder:
    return sweeps.make(tmp_path, trackers=[])


@pytest.fixture
def elsewhere(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Lease:
    """This process is on another machine than whoever holds the sweep, and waits for 0.3 s."""
    transact(folder, lease.take)
    monkeypatch.setattr(lease, "this_host", lambda: Host("other", "other kernel"))
    monkeypatch.setattr(hold, "LEASE_S", 0.3)
    return lease.read_file(folder.ledger)


def transact(folder: Folder, do: Callable[[Connection], object]) -> None:
    database = storage.open_database(folder.ledger)
    with database.writing() as connection:
        do(connection)
    database.close()


def taken_over(folder: Folder) -> None:
    """Let another process take the sweep, whatever it is doing."""
    transact(folder, lease.take)


# ---- taking it ----------------------------------------------------------------------------------


def test_who_died_on_this_machine_is_followed_without_waiting(folder: Folder) -> None:
    transact(folder, lease.take)
    said: list[str] = []
    with hold.hold(folder, said.append) as held:
        assert (held.term, said) == (2, [])
        assert lease.read_file(folder.ledger).host is not None
    assert (lease.read_file(folder.ledger).term, lease.read_file(folder.ledger).host) == (2, None)


def test_a_sweep_that_was_given_back_is_taken_without_waiting(
    folder: Folder, elsewhere: Lease
) -> None:
    transact(folder, lambda connection: lease.give_back(connection, elsewhere.term))
    said: list[str] = []
    with hold.hold(folder, said.append) as held:
        assert (held.term, said) == (elsewhere.term + 1, [])


@pytest.mark.parametrize("jump_s", [0.0, DAY_S, -DAY_S])
def test_who_gives_no_sign_of_life_for_a_whole_lease_is_followed_whatever_the_date(
    folder: Folder, elsewhere: Lease, jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    date = time.time
    monkeypatch.setattr(time, "time", lambda: date() + jump_s)
    said: list[str] = []
    began = time.monotonic()
    with hold.hold(folder, said.append) as held:
        assert time.monotonic() - began >= hold.LEASE_S
        assert held.term == elsewhere.term + 1
    assert f"process {elsewhere.pid} on {elsewhere.host}, since " in said[0]
    assert "waiting up to 0.3 s for a sign that" in said[0]
    assert said[-1] == "there was no sign of life, so this process takes the sweep over"


def test_a_repair_says_what_it_waits_for_and_calls_it_no_repair(
    folder: Folder, elsewhere: Lease
) -> None:
    said: list[str] = []
    assert repair.repair(folder, said.append).repairs == ()
    assert f"on {elsewhere.host}" in said[0]
    assert said[-1] == "there was no sign of life, so this process takes the sweep over"


SIGNS: dict[str, Callable[[Connection], object]] = {
    "renewed": lambda connection: lease.renew(connection, 1),
    "an event": lambda connection: connection.execute(
        "INSERT INTO events (k, epoch, at, kind, body) VALUES (1, 1, 0.0, 'epoch', '{}')"
    ),
    "another holder": lease.take,
}


@pytest.mark.parametrize("sign", SIGNS)
def test_a_sign_of_life_is_exit_code_3_with_who_holds_it(
    folder: Folder, elsewhere: Lease, sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "LEASE_S", 600.0)
    there = Host("there", "its kernel")

    def live(_text: str) -> None:
        monkeypatch.setattr(lease, "this_host", lambda: there)
        transact(folder, SIGNS[sign])
        monkeypatch.setattr(lease, "this_host", lambda: Host("other", "other kernel"))

    with pytest.raises(SweepLocked) as refusal, hold.hold(folder, live):
        pass
    host = "there" if sign == "another holder" else elsewhere.host
    assert f"demo is in use: process {elsewhere.pid} on {host}, since" in str(refusal.value)
    assert refusal.value.exit_code == 3


def test_who_gives_it_back_meanwhile_is_followed_at_once(
    folder: Folder, elsewhere: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "LEASE_S", 600.0)

    def give_back(_text: str) -> None:
        transact(folder, lambda connection: lease.give_back(connection, elsewhere.term))

    with hold.hold(folder, give_back) as held:
        assert held.term == elsewhere.term + 1


def test_of_two_that_waited_one_takes_it(folder: Folder, elsewhere: Lease) -> None:
    transact(folder, lambda connection: lease.take(connection, elsewhere))
    with pytest.raises(SweepLocked):
        transact(folder, lambda connection: lease.take(connection, elsewhere))
    assert lease.read_file(folder.ledger).term == elsewhere.term + 1


def test_the_progress_of_the_wait_is_told(
    folder: Folder, elsewhere: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(hold, "LEASE_S", 30.0)
    monkeypatch.setattr(hold, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    said: list[str] = []
    with hold.hold(folder, said.append):
        pass
    left = [f"no sign of life yet; {seconds} s are left" for seconds in (20, 10)]
    assert said[1:3] == left


# ---- holding it ---------------------------------------------------------------------------------


def test_a_holder_gives_signs_of_life_while_its_own_thread_is_busy(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "RENEW_S", 0.01)
    with hold.hold(folder, print):
        wait_until(lambda: lease.read_file(folder.ledger).renewals >= 3)


def test_a_holder_learns_that_it_was_taken_for_dead(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hold, "RENEW_S", 0.01)
    with hold.hold(folder, print) as held:
        held.check()
        taken_over(folder)
        wait_until(lambda: not any(t.name == "lease" for t in threading.enumerate()))
        with pytest.raises(SweepLocked, match="gave no sign of life for too long"):
            held.check()
    assert lease.read_file(folder.ledger).host is not None  # what is another's is not given back


class Deaf(Tracker):
    """Remembers what it was sent."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def publish(self, records: Sequence[Recorded]) -> None:
        self.received += [record.number for record in records]

    def close(self) -> None:
        pass


def test_nothing_is_written_or_sent_in_an_epoch_that_is_over(folder: Folder) -> None:
    with closing(Ledger(folder.ledger)) as ledger:
        (record,) = ledger.append(None, [TermBegan("host", 1, 3)])
        old = record.term
        taken_over(folder)
        before = ledger.read()
        with pytest.raises(SweepLocked):
            ledger.append(old, [Created(0, {}, {}, 0)])
        with pytest.raises(SweepLocked):
            ledger.append(old, [], lambda _connection: pytest.fail("it was written"))
        with pytest.raises(SweepLocked):
            ledger.set_published("it", 1, old)
        with pytest.raises(SweepLocked):
            transact(folder, lambda connection: lease.renew(connection, old))
        with pytest.raises(SweepLocked):
            upgrade.upgrade(folder.ledger, old)
        tracker = Deaf()
        assert Outbox(folder.ledger, {"it": tracker}, pytest.fail, old).close(60.0) == ["it"]
        assert (tracker.received, ledger.read(), ledger.published("it")) == ([], before, 0)


def test_a_driver_that_was_taken_for_dead_writes_nothing_more(folder: Folder) -> None:
    def watch(records: Sequence[Recorded]) -> None:
        if any(isinstance(record.event, Closed) for record in records):
            taken_over(folder)

    with (
        pytest.raises(SweepLocked),
        launch.open_context(Launch(folder, 1, "inline")) as (parts, _),
    ):
        Driver(parts, watch).run()
    events = [record.event for record in Ledger(folder.ledger).read()]
    assert sum(isinstance(event, Closed) for event in events) == 1
    assert sweeps.run(folder) == "finished"
    assert ledger_check.check(folder.ledger) == []


@pytest.mark.usefixtures("elsewhere")
def test_a_sweep_that_another_machine_holds_is_seen_as_running(folder: Folder) -> None:
    assert lookup.is_driven(folder)
    assert lookup.read(folder).state is lookup.State.RUNNING


# ---- two processes ------------------------------------------------------------------------------


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A driver that hangs in the middle of its work."""
    spec = write_spec(tmp_path, deterministic=None, config={"noise": 0.1, "step_s": 0.05})
    process = start("run", spec, "--jobs", 2, cwd=tmp_path)
    assert process.stdout is not None
    while "trial 1 starts" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGSTOP)
    yield process
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_a_driver_that_comes_back_to_a_sweep_of_another_machine_leaves_it(
    stopped: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    workers = psutil.Process(stopped.pid).children(recursive=True)
    words = ["other", "1", "resume", "demo", "--pool", "inline"]
    command = [sys.executable, "-m", "tests.support.other_machine", *words]
    other = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert other.returncode == 0, other.stderr
    assert f"process {stopped.pid} on " in other.stderr
    assert "waiting up to 1 s for a sign that" in other.stderr

    folder = Folder(tmp_path / "sweeps", "demo")
    before = Ledger(folder.ledger).read()
    stopped.send_signal(signal.SIGCONT)
    _, err = stopped.communicate(timeout=240)
    assert stopped.returncode == 3
    assert "demo is in use" in err
    assert "gave no sign of life for too long" in err
    assert len(err.splitlines()) == 1
    psutil.wait_procs(workers, timeout=120)
    assert [worker for worker in workers if worker.is_running()] == []

    assert Ledger(folder.ledger).read() == before
    assert ledger_check.check(folder.ledger) == []
    past = sweeps.history(folder)
    assert (past.ended, len(past.trials), past.with_status(Status.FAILED)) == ("finished", 9, [])
    for trial in past.trials:
        seed = rng.integer(7, "trial", trial.number, 0)
        losses = [row.metrics["loss"] for row in sweeps.curve(folder, trial.number)]
        upto = range(1, trial.iteration + 1)
        assert losses == [expected_loss(trial.config, k, seed) for k in upto]
