"""stop, pause, unpause, clone, suggest and set as commands, beside a real driver."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sweep.history.events import Status
from sweep.ledger.folder import Folder
from sweep.ledger.requests import Requests, Verb
from tests.support import sweeps
from tests.support.command_line import Here, start, write_spec
from tests.support.quadratic import expected_loss
from tests.support.waiting import wait_until
from trainables.core import rng
from trainables.core.failpoints import REQUEST_PLACES

SLOW = {"noise": 0.1, "step_s": 0.05}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Folder]:
    """A sweep of two trials at once that takes hours; it is stopped at the end."""
    changes = {"scheduler": "fifo", "deterministic": None, "stop": {"training_iteration": 200_000}}
    spec = write_spec(tmp_path, trials=3, config=SLOW, limits={"slice_s": 0.2}, **changes)
    process = start("run", spec, "--jobs", "2", cwd=tmp_path)
    folder = Folder(tmp_path / "sweeps", "demo")
    wait_until(lambda: folder.ledger.exists() and reached(folder, 0, 2) and reached(folder, 1, 2))
    yield folder
    if process.poll() is None:
        os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=240)


def reached(folder: Folder, trial: int, iteration: int) -> bool:
    trials = sweeps.history(folder).trials
    return len(trials) > trial and trials[trial].iteration >= iteration


def running(folder: Folder) -> list[int]:
    return [trial.number for trial in sweeps.history(folder).with_status(Status.RUNNING)]


@pytest.mark.slow
def test_a_running_sweep_does_what_it_is_asked(live: Folder, here: Here) -> None:
    code, out, _ = here("pause", "demo", 0)
    assert (code, out.startswith("demo: trial 0 paused")) == (0, True)
    wait_until(lambda: status(live, 0) is Status.PAUSED and status(live, 2) is Status.RUNNING)
    stood = sweeps.history(live).trials[0].iteration

    done = here.json("clone", "demo", 1, "--set", "lr=0.25")
    assert (done["state"], done["trials"]) == ("done", [3])
    here("set", "demo", "--jobs", 3, "--trials", 5)
    wait_until(lambda: running(live) == [1, 2, 3])
    assert sweeps.history(live).trials[3].searched["lr"] == 0.25
    code, _, err = here("clone", "demo", 1, "--set", "lr=4")
    assert (code, err.strip()) == (2, "sweep: --set lr: 4 is not allowed; expected " + bounds())

    here("stop", "demo", 1, 2, 3)
    wait_until(lambda: [status(live, n) for n in (1, 2, 3)] == [Status.STOPPED] * 3)
    assert sweeps.history(live).trials[0].iteration == stood
    here("unpause", "demo", 0)
    wait_until(lambda: reached(live, 0, stood + 3))

    code, out, _ = here("stop", "demo")
    assert code == 0
    wait_until(lambda: sweeps.history(live).ended == "stopped")
    curve = sweeps.curve(live, 0)
    seed, config = rng.integer(7, "trial", 0, 0), sweeps.history(live).trials[0].config
    assert [row.metrics["loss"] for row in curve] == [
        expected_loss(config, row.iteration, seed) for row in curve
    ]
    assert [row.iteration for row in curve] == list(range(1, len(curve) + 1))


def bounds() -> str:
    return "0.001 to 0.9, both included, on a log scale"


def status(folder: Folder, trial: int) -> Status | None:
    trials = sweeps.history(folder).trials
    return trials[trial].status if trial < len(trials) else None


@pytest.mark.slow
def test_a_paused_sweep_says_so_and_can_continue(live: Folder, here: Here) -> None:
    assert here("pause", "demo")[0] == 0
    wait_until(lambda: running(live) == [])
    assert here.json("status", "demo")["state"] == "paused"
    before = [trial.iteration for trial in sweeps.history(live).trials]
    assert here("unpause", "demo")[0] == 0
    wait_until(lambda: reached(live, 0, before[0] + 1) and reached(live, 1, before[1] + 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stop", "demo"], "stop: no driver is running"),
        (["stop", "demo", "9"], "trial 9 does not exist; the sweep has trials 0 to 0"),
        (["pause", "demo", "0"], "trial 0 has ended (COMPLETED)"),
        (["set", "demo"], "there is nothing to change; give at least one of --trials, --jobs"),
        (["set", "demo", "--jobs", "2"], "give --jobs to `sweep resume` instead"),
        (["clone", "demo", "0", "--set", "lr"], "key=value"),
        (["suggest", "demo", "lr"], "expected key=value; for example sweep suggest NAME lr=0.001"),
        (["suggest", "demo", "lr=0.1", "lr=0.2"], "lr is given twice"),
        (["clone", "demo", "0", "--set", "lr=0.1", "--set", "lr=0.2"], "lr is given twice"),
        (["set", "demo", "--budget", "time_s=1", "--budget", "time_s=2"], "time_s is given twice"),
        (["set", "demo", "--budget", "min_delta=1"], "min_delta: has no effect without patience"),
        (["suggest", "demo", "lr=4"], "suggest: lr: 4 is not allowed; expected 0.001 to 0.9"),
        (["suggest", "demo", "lr=0.1"], "`sweep set NAME --trials 2` makes room for one more"),
        (
            ["set", "demo", "--trials", "3", "--wait", "nan"],
            "'--wait': cannot wait nan seconds",
        ),
        (["clone", "demo", "0", "--wait", "inf"], "'--wait': cannot wait inf seconds"),
        (["stop", "demo", "--wait", "-1"], "'--wait': -1.0 is not in the range x>=0"),
        (["sync", "demo", "--wait", "nan"], "'--wait': cannot wait nan seconds"),
        (["unpause", "nobody"], "unknown sweep 'nobody'; expected one of demo"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_code_2(
    here: Here, finished: Folder, words: list[str], message: str
) -> None:
    before = len(sweeps.history(finished).trials)
    code, out, err = here(*words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert len(sweeps.history(finished).trials) == before
    with closing(Requests(finished.ledger)) as requests:
        assert requests.pending() == []


@pytest.fixture
def finished(tmp_path: Path) -> Folder:
    folder = sweeps.make(tmp_path / "sweeps", trials=1, scheduler="fifo", trackers=[])
    sweeps.run(folder)
    return folder


def test_without_a_driver_the_command_says_what_it_waits_for(here: Here, finished: Folder) -> None:
    data: dict[str, Any] = here.json("set", "demo", "--trials", 2)
    assert (data["state"], data["driven"], data["answer"]) == ("waits", False, None)
    code, out, _ = here("clone", "demo", 0, "--set", "lr=0.5")
    assert (code, f"`sweep resume demo --root {here.root}` starts one" in out) == (0, True)
    assert json.loads(here("resume", "demo", "--pool", "inline", "--json")[1])["trials"] == 2
    assert sorted(t.clone_of is None for t in sweeps.history(finished).trials) == [
        False,
        True,
        True,
    ]


def test_min_delta_may_follow_a_patience_that_waits_for_a_driver(
    here: Here, finished: Folder
) -> None:
    assert here("set", "demo", "--budget", "patience=3")[0] == 0
    assert here("set", "demo", "--budget", "min_delta=1")[0] == 0
    again = ("resume", "demo", "--pool", "inline", "--budget", "min_delta=0.5")
    assert here(*again)[0] == 0
    assert sweeps.history(finished).changed_budget == {"patience": 3, "min_delta": 0.5}
    code, _, err = here(*again, "--budget", "patience=null")
    assert (code, "--budget min_delta: has no effect without patience" in err) == (2, True)


def test_a_suggestion_waits_for_the_next_driver_and_results_say_whose_it_is(
    here: Here, finished: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    here("set", "demo", "--trials", 2)
    code, out, _ = here("suggest", "demo", "lr=0.25", "--why", "as in the paper")
    assert (code, f"`sweep resume demo --root {here.root}` starts one" in out) == (0, True)
    assert here("resume", "demo", "--pool", "inline")[0] == 0
    assert [trial.searched["lr"] for trial in sweeps.history(finished).trials][1] == 0.25
    assert "ada: as in the paper" in here("results", "demo")[1]
    assert "by ada: as in the paper" in here("explain", "demo", 1)[1]


@pytest.mark.slow
@pytest.mark.parametrize("place", REQUEST_PLACES)
def test_a_request_is_followed_once_whenever_its_driver_is_killed(
    tmp_path: Path, finished: Folder, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the transaction the request stands; after it, it is done and not repeated."""
    body = {"trials_named": [0], "settings": {"lr": 0.5}, "from_checkpoint": False}
    with closing(Requests(finished.ledger)) as requests:
        number = requests.ask(Verb.CLONE, body)
        monkeypatch.setenv("SWEEP_FAILPOINT", f"{place}:1:self")
        monkeypatch.setenv("SWEEP_FAILPOINT_FILE", str(tmp_path / "count"))
        killed = start("resume", "demo", "--pool", "inline", cwd=tmp_path)
        killed.communicate(timeout=240)
        assert killed.returncode == -signal.SIGKILL
        assert (requests.answer_to(number) is None) == (place == "asked")
        monkeypatch.delenv("SWEEP_FAILPOINT")
        sweeps.run(finished)
        assert requests.answer_to(number) is not None
    clones = [t for t in sweeps.history(finished).trials if t.clone_of == 0]
    assert [(t.number, t.status) for t in clones] == [(1, Status.COMPLETED)]
