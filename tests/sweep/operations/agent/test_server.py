"""A real server process, spoken to by the client of the protocol's own package."""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep import spec as specs
from sweep.core.errors import UsageError
from sweep.driver.start.creation.creating import BY_A_MODEL
from sweep.ledger import folder as folders
from sweep.ledger import lease
from sweep.ledger.folder import Folder
from sweep.ledger.requests import Verb
from sweep.operations import control_client
from sweep.operations.agent import running, tools
from sweep.operations.agent.narrowing import Narrowing, narrow_spec
from sweep.operations.agent.permission import Permission
from sweep.operations.agent.tools import StatusArguments, Tool
from sweep.operations.upkeep import cleaning
from sweep.views import lookup
from tests.support import sweeps
from tests.support.agent import Agent, connected
from tests.support.command_line import Here, environment, start, write_spec
from tests.support.waiting import wait_until

TOOLS = ["validate", "run", "status", "results", "explain", "best", "suggest", "stop"]
#: A sweep of two trials at once that takes hours.
ENDLESS: dict[str, Any] = {
    "scheduler": "fifo",
    "deterministic": None,
    "stop": {"training_iteration": 200_000},
    "config": {"noise": 0.1, "step_s": 0.05},
    "limits": {"slice_s": 0.2},
}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The folder of all sweeps, whose drivers are ended at the end."""
    place = tmp_path / "sweeps"
    place.mkdir()
    yield place
    for name in folders.list_sweeps(place):
        kill(Folder(place, name))


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], root: Path) -> Here:
    return Here(capsys, root)


def kill(folder: Folder) -> None:
    """Kill the driver of a sweep with its workers, as far as one runs."""
    if lookup.is_driven(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(lease.read_file(folder.ledger).pid, signal.SIGKILL)
        wait_until(lambda: not lookup.is_driven(folder))


def reached(folder: Folder, trial: int, iteration: int) -> bool:
    trials = sweeps.history(folder).trials
    return len(trials) > trial and trials[trial].iteration >= iteration


def finished(agent: Agent, name: str) -> bool:
    return bool(agent("status", name=name)["state"] == "finished")


# ---- what a model sees and does ---------------------------------------------------------------


def test_a_model_sees_eight_tools_whose_arguments_are_no_paths(root: Path) -> None:
    with connected(root, write_spec(root.parent), "--trials", 9) as agent:
        tools = agent.tools()
        assert "demo; 9 trials in all" in " ".join(agent.instructions.split())
        assert agent("status") == {"sweeps": [], "specs": ["demo"], "left": left(9)}
    assert [tool.name for tool in tools] == TOOLS
    assert all(tool.description and tool.description.endswith(".") for tool in tools)
    schemas = {tool.name: tool.input_schema for tool in tools}
    assert all(schema["additionalProperties"] is False for schema in schemas.values())
    assert schemas["run"]["properties"]["spec"]["enum"] == ["demo"]
    given = {key for schema in schemas.values() for key in schema["properties"]}
    assert given == {"spec", "narrow", "trials", "name", "top", "trial", "settings", "why"}


def left(trials: int, **budget: float) -> dict[str, Any]:
    return {"trials": trials, "budget": budget}


@pytest.mark.slow
def test_a_model_validates_runs_narrows_and_reads(root: Path) -> None:
    space = {"lr": {"loguniform": [1e-3, 0.9]}, "kind": {"choice": ["a", "b"]}}
    spec = write_spec(root.parent, space=space)
    with connected(root, spec, "--trials", 12, "--jobs", 1) as agent:
        narrow = {"lr": {"between": [0.1, 0.5]}, "kind": {"among": ["b"]}}
        seen = agent("validate", spec="demo", narrow=narrow)
        assert seen["space"] == [
            "lr    0.1 to 0.5, both included, on a log scale",
            'kind  one of "b"',
        ]
        assert seen["restore"] == []
        assert seen["costs"]["most_steps"] > 0
        assert folders.list_sweeps(root) == []

        begun = agent("run", spec="demo", trials=5)
        assert (begun["name"], begun["trials"], begun["left"]) == ("demo", 5, left(7))
        wait_until(lambda: finished(agent, "demo"))
        first = agent("best", name="demo")
        assert (first["trials"], first["metric"], first["mode"]) == (5, "loss", "min")
        rows = agent("results", name="demo", top=3)
        assert (len(rows["trials"]), rows["trials_in_all"]) == (3, 5)
        assert rows["trials"][0]["settings"] == first["settings"]
        reasons = agent("explain", name="demo", trial="best")
        assert reasons["trial"] == first["trial"]
        assert reasons == agent("explain", name="demo", trial=first["trial"])
        assert reasons["decisions"][0]["what"] == "proposed"

        again = agent("run", spec="demo", narrow=narrow)
        assert (again["name"], again["trials"], again["left"]) == ("demo-2", 7, left(0))
        wait_until(lambda: finished(agent, "demo-2"))
        settings = [row["settings"] for row in agent("results", name="demo-2")["trials"]]
        assert all(0.1 <= one["lr"] <= 0.5 and one["kind"] == "b" for one in settings)
        assert agent.refused("run", spec="demo") == (
            "trials: all 12 trials that `sweep mcp --trials` allows are used up"
        )
        assert [row["name"] for row in agent("status")["sweeps"]] == ["demo", "demo-2"]
        assert str(root) not in json.dumps([agent("status", name="demo"), first, rows, reasons])


@pytest.mark.slow
def test_a_sweep_outlives_its_server_and_is_killed_resumed_and_stopped(
    root: Path, here: Here
) -> None:
    words = write_spec(root.parent, **ENDLESS), "--trials", 4, "--jobs", 2
    folder = Folder(root, "demo")
    with connected(root, *words) as agent:
        assert agent("run", spec="demo", trials=3)["state"] == "running"
        busy = "run: demo is running, and only one sweep may run at a time; "
        busy += "wait until it ends, or stop it"
        assert agent.refused("run", spec="demo", trials=1) == busy
    wait_until(lambda: reached(folder, 0, 2))
    with connected(root, *words) as agent:
        status = agent("status", name="demo")
        assert (status["state"], status["left"]) == ("running", left(1))
        assert {row["trial"] for row in status["running"]} == {0, 1}
        assert agent.refused("run", spec="demo", trials=1) == busy

        granted = agent("suggest", name="demo", settings={"lr": 0.25}, why="as in the paper")
        assert granted == {"state": "done", "answer": "lr=0.25 will be tried by the next new trial"}

        kill(folder)
        assert agent("status", name="demo")["state"] == "interrupted"
        before = sweeps.history(folder).trials[0].iteration
        start("resume", "demo", cwd=root.parent)
        wait_until(lambda: reached(folder, 0, before + 2))
        assert agent("status", name="demo")["state"] == "running"
        assert agent.refused("run", spec="demo", trials=1) == busy

        assert agent("stop", name="demo", trials=[0])["state"] == "done"
        wait_until(lambda: reached(folder, 2, 1))
        rows = {row["trial"]: row for row in agent("results", name="demo")["trials"]}
        assert (rows[0]["status"], rows[2]["settings"]) == ("STOPPED", {"lr": 0.25})
        assert rows[2]["suggested"] == "an agent: as in the paper"
        assert "running trials save and stop" in agent("stop", name="demo")["answer"]
        wait_until(lambda: sweeps.history(folder).ended == "stopped")
        wait_until(lambda: not lookup.is_driven(folder))
        assert agent("run", spec="demo", trials=1)["name"] == "demo-2"


@pytest.mark.slow
def test_a_killed_driver_leaves_the_right_to_start_another_sweep(root: Path) -> None:
    """Neither its workers nor what they started hold the lock that it inherited."""
    words = write_spec(root.parent, **ENDLESS), "--trials", 5, "--jobs", 2
    folder = Folder(root, "demo")
    with connected(root, *words) as agent:
        agent("run", spec="demo", trials=2)
        wait_until(lambda: reached(folder, 1, 1))
        kill(folder)
        assert agent("run", spec="demo")["trials"] == 3
        assert agent("status")["left"] == left(0)


def test_a_root_with_many_sweeps_shows_the_newest(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "MOST_SWEEPS", 2)
    allowed = Permission.of([str(write_spec(root.parent))], root, 9, [], None)
    status = tools.Toolbox(allowed).find("status")
    for number, name in enumerate(("c", "b"), start=1):
        sweeps.make(root, name=name, trackers=[])
        found = status.call({})
        assert (len(found["sweeps"]), "sweeps_in_all" in found) == (number, False)
    sweeps.make(root, name="a", trackers=[])
    found = status.call({})
    assert [row["name"] for row in found["sweeps"]] == ["b", "a"]
    assert found["sweeps_in_all"] == 3


@pytest.mark.slow
def test_a_driver_that_still_sends_results_delays_no_other_sweep(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("SWEEP_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        spec = write_spec(root.parent, trackers=["mlflow"], trials=1)
        box = tools.Toolbox(Permission.of([str(spec)], root, 2, [], 1))
        run = box.find("run")
        try:
            run.call({"spec": "demo"})
            (driver,) = box._started
            wait_until(lambda: sweeps.history(Folder(root, "demo")).ended == "finished")
            assert run.call({"spec": "demo"})["name"] == "demo-2"
            assert driver.poll() is None
        finally:
            for one in box._started:
                one.kill()
                one.wait()


# ---- what a model may not do ------------------------------------------------------------------


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """A server beside a sweep of a person, with little left."""
    place = tmp_path_factory.mktemp("refusing") / "sweeps"
    (place.parent / "secret.yaml").write_text("secret: true")
    sweeps.make(place, name="mine", trackers=[])
    with connected(place, write_spec(place.parent), "--trials", 9) as agent:
        yield agent


@pytest.mark.parametrize("tool", ["run", "validate"])
@pytest.mark.parametrize(
    "spec",
    [
        "other",
        "spec.yaml",
        "../demo",
        "/etc/passwd",
        "../secret.yaml",
        "cartpole_ppo",
        "",
        "de\x00mo",
    ],
)
def test_only_the_specs_of_the_command_line_run(refusing: Agent, tool: str, spec: str) -> None:
    line = refusing.refused(tool, spec=spec)
    assert line.startswith("unknown spec ")
    assert "; expected one of demo" in line


@pytest.mark.parametrize("tool", ["status", "results", "explain", "best", "suggest", "stop"])
@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "../mine",
        "mine/",
        "./mine",
        "mine/trials/0",
        "/",
        "other",
        ".agent",
        "*",
        "mine\x00",
        "MINE",
        "m" * 100_000,
    ],
)
def test_only_names_of_sweeps_are_found(refusing: Agent, tool: str, name: str) -> None:
    more: dict[str, Any] = {"settings": {"lr": 0.1}} if tool == "suggest" else {}
    line = refusing.refused(tool, name=name, **more)
    assert line.startswith("unknown sweep ")
    assert str(refusing.log.parent) not in line
    assert len(line) < 300


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("run", {"spec": "demo", "trials": 10}, "trials: 10 is not allowed; expected 1 to 9, of 9"),
        ("run", {"spec": "demo", "trials": 0}, "trials: 0 is not allowed"),
        ("run", {"spec": "demo", "trials": -1}, "trials: -1 is not allowed"),
        ("run", {"spec": "demo", "trials": 10**30}, "trials: 1000"),
        ("run", {"spec": "demo", "trials": 2.5}, "trials: 2.5 is not allowed"),
        ("run", {"spec": "demo", "trials": "3"}, "trials: '3' is not allowed"),
        ("run", {"spec": "demo", "budget": {"time_s": 9e9}}, "'budget' is not a known key"),
        ("run", {"spec": "demo", "trainable": "command"}, "'trainable' is not a known key"),
        ("run", {"spec": "demo", "name": "x"}, "'name' is not a known key"),
        ("run", {"spec": "demo", "root": "/tmp"}, "'root' is not a known key"),  # noqa: S108
        ("run", {"spec": "demo", "config": {"command": "id"}}, "'config' is not a known key"),
        ("run", {"spec": "demo", "set": ["trainable=command"]}, "'set' is not a known key"),
        ("run", {}, "spec: is missing"),
        ("run", {"spec": ["demo"]}, "spec: ['demo'] is not allowed"),
        ("run", {"spec": "demo", "narrow": {"config.env": {"among": ["x"]}}}, "config.env"),
        ("run", {"spec": "demo", "narrow": {"lr": "0.1 --set trainable=command"}}, "narrow.lr"),
        ("run", {"spec": "demo", "narrow": {"lr": {"between": [0.1, 9]}}}, "9 is not allowed"),
        ("validate", {"spec": "demo", "pool": "dask"}, "'pool' is not a known key"),
        ("results", {"name": "mine", "top": 10**9}, "top: 1000000000 is not allowed"),
        ("explain", {"name": "mine", "trial": 7}, "trial 7 does not exist"),
        ("explain", {"name": "mine", "trial": -1}, "trial -1 does not exist"),
        ("explain", {"name": "mine", "trial": "../0"}, "trial: '../0' is not allowed"),
        ("best", {"name": "mine"}, "none of its 0 trials has a score"),
        ("suggest", {"name": "mine", "settings": {"lr": 7}}, "suggest: lr: 7 is not allowed"),
        ("suggest", {"name": "mine", "settings": {"trainable": "x"}}, "no parameter trainable"),
        ("suggest", {"name": "mine", "settings": {}}, "suggest: no settings"),
        ("suggest", {"name": "mine", "settings": {"lr": 0.1}, "why": "w" * 501}, "why: "),
        ("suggest", {"name": "mine", "settings": {"lr": 0.1}, "by": "ada"}, "'by' is not a known"),
        ("stop", {"name": "mine"}, "mine: a person started this sweep"),
        ("stop", {"name": "mine", "trials": [0]}, "mine: a person started this sweep"),
        ("stop", {"name": "mine", "trials": [10**30]}, "trials: 1000"),
        ("status", {"name": 7}, "name: 7 is not allowed"),
        ("resume", {"name": "mine"}, "unknown tool 'resume'"),
        ("rm", {"name": "mine"}, "unknown tool 'rm'"),
    ],
)  # fmt: skip
def test_each_mistake_and_each_trick_is_one_line(
    refusing: Agent, tool: str, arguments: dict[str, Any], message: str
) -> None:
    line = refusing.refused(tool, **arguments)
    assert message in line
    assert len(line) < 600
    assert refusing("status")["left"] == left(9)


def test_nothing_was_written_by_refusals(refusing: Agent) -> None:
    place = refusing.log.parent / "sweeps"
    assert folders.list_sweeps(place) == ["mine"]
    assert {path.name for path in (place / ".agent").glob("*")} <= {"lock"}
    assert refusing.log.read_text() == ""


@pytest.mark.slow
def test_the_budget_is_one_for_all_sweeps_and_a_spec_may_have_less(root: Path) -> None:
    spec = write_spec(root.parent, trials=40, budget={"timesteps": 250})
    shared = "--budget", "timesteps=400", "--budget", "target=-1"
    with connected(root, spec, "--trials", 1000, "--jobs", 1, *shared) as agent:
        agent("run", spec="demo")
        wait_until(lambda: finished(agent, "demo"))
        past = lookup.read(Folder(root, "demo"))
        assert (past.spec.budget.timesteps, past.spec.budget.target) == (250, -1)
        used = 400 - rest(agent)
        assert 250 <= used < 400
        for number in range(2, 6):
            if not (before := rest(agent)):
                break
            name = agent("run", spec="demo")["name"]
            assert name == f"demo-{number}"
            assert lookup.read(Folder(root, name)).spec.budget.timesteps == min(250, before)
            wait_until(functools.partial(finished, agent, name))
        assert (
            agent.refused("run", spec="demo")
            == "budget.timesteps: all 400 that `sweep mcp --budget` allows are used up"
        )


def rest(agent: Agent) -> float:
    """The steps that are left."""
    return float(agent("status")["left"]["budget"]["timesteps"])


@pytest.mark.slow
def test_a_command_that_refuses_a_sweep_is_quoted_and_leaves_nothing(root: Path) -> None:
    spec = write_spec(root.parent, trainable="tests.support.quadratic:Nobody")
    with connected(root, spec, "--trials", 9) as agent:
        for tool in ("run", "validate"):
            line = agent.refused(tool, spec="demo")
            assert "Nobody" in line
            assert "Traceback" not in line
        assert agent("status") == {"sweeps": [], "specs": ["demo"], "left": left(9)}
    assert not list(root.glob(".agent/*.log"))


def test_a_damaged_sweep_starts_no_other_and_hides_none(root: Path) -> None:
    """What a damaged ledger used is unknown, so nothing more may be used."""
    for name in ("mine", "lost"):
        sweeps.make(root, name=name, trackers=[])
    Folder(root, "lost").by_a_model.touch()
    Folder(root, "lost").ledger.write_bytes(b"no ledger" * 999)
    with connected(root, write_spec(root.parent), "--trials", 3) as agent:
        answer = agent("status")
        assert [row["name"] for row in answer["sweeps"]] == ["mine"]
        assert answer["unreadable"][0].startswith("lost: ")
        assert "is not a readable ledger" in answer["left"]["unknown"]
        assert agent("status", name="mine")["wanted"] == 9
        assert "is not a readable ledger" in agent.refused("run", spec="demo")


def test_a_sweep_of_a_person_with_the_name_of_a_removed_one_is_not_the_models(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = Permission.of([str(write_spec(root.parent))], root, 99, [], None)
    with monkeypatch.context() as its:
        its.setenv(BY_A_MODEL, "1")
        removed = sweeps.make(root, name="demo", trackers=[])
    log = allowed.log("demo")
    log.parent.mkdir()
    log.touch()
    assert allowed.started() == ["demo"]
    assert allowed.find_own("demo").path == removed.path
    cleaning.remove(removed)
    sweeps.make(root, name="demo", trackers=[])
    assert allowed.started() == []
    with pytest.raises(UsageError, match="demo: a person started this sweep"):
        allowed.find_own("demo")


def test_every_text_of_a_space_reaches_the_command_as_it_is(root: Path) -> None:
    texts = ["caf\u00e9", "\U0001f600", 'a "b" \\ c', "- x: #", "tab\t", "12", "null"]
    among = Narrowing(among=tuple(texts))
    spec = write_spec(root.parent, space={"kind": {"choice": [*texts, "other"]}})
    spec.write_text(json.dumps(json.loads(spec.read_text()), ensure_ascii=False))
    _, changes = narrow_spec(spec.read_text(), str(spec), "demo", {"kind": among}, 3)
    words = running._command("run", spec, changes, None, root)
    given = [word.removeprefix("--set=") for word in words if word.startswith("--set=")]
    read = specs.parse(spec.read_text(), str(spec), given)
    assert [read.space.domain_of("kind").at_index(index) for index in range(len(texts))] == texts


def test_more_values_than_a_command_takes_are_refused_in_one_line(root: Path) -> None:
    among = Narrowing(among=tuple(0.1 + number / 123_456 for number in range(9000)))
    spec = write_spec(root.parent)
    _, changes = narrow_spec(spec.read_text(), str(spec), "demo", {"lr": among}, 3)
    with pytest.raises(UsageError, match=r"narrow: the values of space\.lr have 1\d{5} characters"):
        running.validate(spec, changes, None, root)


@pytest.mark.parametrize("name", ["", "lock", "demo.log"])
def test_no_file_is_written_through_a_link(root: Path, name: str) -> None:
    """Another user of a shared root may have made the link."""
    spec = write_spec(root.parent)
    allowed, its = Permission.of([str(spec)], root, 9, [], None), root / ".agent" / name
    precious = root.parent / "precious"
    if name:
        its.parent.mkdir()
        precious.write_text("data")
    else:
        precious.mkdir()
    its.symlink_to(precious)
    log, folder = allowed.log("demo"), Folder(root, "demo")
    with pytest.raises(UsageError, match="is a symbolic link"), allowed.claim() as claim:
        running.begin(folder, spec, [], None, log, claim)
    assert folders.list_sweeps(root) == []
    assert (precious.read_text() == "data") if name else not list(precious.iterdir())


def test_a_sweep_that_a_person_starts_under_this_name_at_the_same_moment_stays_the_persons(
    root: Path,
) -> None:
    mine, log = sweeps.make(root, name="demo", trackers=[]), root / "demo.log"
    spec = write_spec(root.parent)
    with mine.lock(), (root / "lock").open("w") as claim, pytest.raises(UsageError, match="demo"):
        running.begin(mine, spec, [], None, log, claim.fileno())
    assert not log.exists()
    assert not mine.by_a_model.exists()


# ---- the process itself -----------------------------------------------------------------------


def say(process: "subprocess.Popen[str]", **message: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def greeted(root: Path, *words: object) -> "subprocess.Popen[str]":
    """A server that leads a group of processes, after the greetings of the protocol."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "start_new_session": True}
    process = start("mcp", *words, cwd=root.parent, **pipes)
    client = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
    say(process, id=1, method="initialize", params=hello)
    assert heard(process)["result"]["serverInfo"]["name"] == "sweep"
    say(process, method="notifications/initialized")
    return process


def heard(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next line of the server, which is a message."""
    assert process.stdout is not None
    message: dict[str, Any] = json.loads(process.stdout.readline())
    return message


def test_standard_output_holds_messages_only_whatever_arrives_and_ends_with_the_input(
    root: Path,
) -> None:
    process = greeted(root, write_spec(root.parent), "--trials", 1)
    assert process.stdin is not None
    for garbage in ("", "{", "[1]", '"\ud83d"', "[" * 20_000, '{"jsonrpc": "2.0", "id": 5}'):
        process.stdin.write(garbage.encode(errors="replace").decode() + "\n")
    nested = "[" * 150 + "]" * 150
    process.stdin.write(
        '{"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "suggest", '
        f'"arguments": {{"name": "demo", "settings": {{"lr": {nested}}}}}}}}}\n'
    )
    say(process, id=7, method="tools/call", params={"name": "status", "arguments": {}})
    answers: dict[Any, Any] = {}
    while 7 not in answers:
        answer = heard(process)
        answers[answer.get("id")] = answer
    assert answers[7]["result"]["structuredContent"]["specs"] == ["demo"]
    out, err = process.communicate(timeout=60)
    for line in out.splitlines():
        json.loads(line)
    assert process.returncode == 0
    assert "internal error" not in err


@pytest.mark.slow
def test_many_validations_delay_neither_another_call_nor_the_end(root: Path) -> None:
    process = greeted(root, write_spec(root.parent), "--trials", 1)
    validation = {"name": "validate", "arguments": {"spec": "demo"}}
    for number in range(60):
        say(process, id=100 + number, method="tools/call", params=validation)
    say(process, id=7, method="tools/call", params={"name": "status", "arguments": {}})
    assert heard(process)["id"] == 7
    out, _ = process.communicate(timeout=300)
    assert sum('"result":' in line for line in out.splitlines()) < 30  # the others: "closed"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("no file caf\udce9", "no file caf?"),  # it would end the server
        ("cannot reach postgresql://ada:hunter2@host/db", "cannot reach postgresql://***@host/db"),
        ("A" * 3_000_000, "A" * 2000 + " … " + "A" * 2000),
    ],
)
def test_the_error_of_a_trial_is_told_short_and_without_passwords(text: str, told: str) -> None:
    def answer(_: Any) -> dict[str, Any]:
        return {"trials": [{"reason": text, text: float("inf")}]}

    tool = Tool("status", StatusArguments, answer, read_only=True)
    assert tool.call({}) == {"trials": [{"reason": told, told: None}]}


def test_ctrl_c_ends_a_server_that_waits_for_input(root: Path) -> None:
    process = greeted(root, write_spec(root.parent), "--trials", 1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == -signal.SIGINT


def test_a_person_who_types_the_command_reads_what_it_is_for(root: Path) -> None:
    own, its = os.openpty()
    words = write_spec(root.parent), "--trials", 1
    process = start("mcp", *words, cwd=root.parent, stdin=its)
    assert process.stderr is not None
    line = process.stderr.readline()
    os.close(own)
    os.close(its)
    said = "this command is meant to be started by a language model's client (docs/mcp.md)"
    assert line == f"sweep: {said}; Ctrl-C ends it\n"
    process.wait(timeout=60)  # its terminal is gone


@pytest.mark.slow
def test_a_sweep_outlives_the_kill_of_the_servers_whole_group(root: Path) -> None:
    """As clients end servers that do not end by themselves."""
    process = greeted(root, write_spec(root.parent, **ENDLESS), "--trials", 2, "--jobs", 2)
    call = {"name": "run", "arguments": {"spec": "demo"}}
    say(process, id=2, method="tools/call", params=call)
    assert heard(process)["result"]["structuredContent"]["name"] == "demo"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    folder = Folder(root, "demo")
    wait_until(lambda: reached(folder, 1, 3))
    assert lookup.is_driven(folder)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "unknown search space 'nowhere'"),
        (["quickstart", "quickstart"], "has the name 'quickstart' too"),
        (["quickstart", "--budget", "hours=3"], "'hours' is not a known key"),
        (["quickstart", "--budget", "time_s=-3"], "time_s: -3 is not allowed"),
    ],
)
def test_a_wrong_permission_is_refused_at_the_start(
    here: Here, words: list[str], message: str
) -> None:
    code, out, err = here("mcp", *words, "--trials", 5)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert message in line


def test_the_number_of_trials_has_to_be_given(here: Here) -> None:
    code, _, err = here("mcp", "quickstart")
    assert (code, "Missing option '--trials'" in err) == (2, True)


def test_a_missing_package_is_named_in_one_line(root: Path) -> None:
    script = (
        "import sys; sys.modules['mcp'] = None\n"
        "from sweep.cli.main import main\n"
        "raise SystemExit(main(['mcp', 'quickstart', '--trials', '2']))"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, cwd=root
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "sweep: mcp: the package mcp is not installed; install it: pip install 'sweep-rl[mcp]'\n"
    )


def test_a_person_raises_the_number_of_trials_and_they_count(root: Path) -> None:
    """A sweep of a person in the same root counts for nothing."""
    sweeps.make(root, name="mine", trackers=[])
    control_client.ask(Folder(root, "mine"), Verb.SET, {"trials": 50}, 0.0)
    with connected(root, write_spec(root.parent), "--trials", 3) as agent:
        assert agent("status")["left"] == left(3)
        (row,) = agent("status")["sweeps"]
        assert row["name"] == "mine"
