"""Tests with hostile specs and ledgers, and the same attacks at the command line."""

import os
from pathlib import Path

import pytest

from benchmarks.chaos import hostile_input, strangers
from benchmarks.chaos.hostile_ledgers import change_ledger, sample
from benchmarks.chaos.hostile_specs import change_spec, shipped_specs
from benchmarks.chaos.store_cases import Failed
from sweep.cli.main import main
from sweep.core.errors import place_of, without_password
from tests.support.command_line import Here, write_spec
from tests.support.hostile_texts import NAMES, SPECS
from tests.support.mishaps import Counter
from trainables.core import rng
from trainables.errors import WrongFormat
from trainables.trainable import TrialContext

GIVEN = (
    *("1" * 400, "1e999", "9" * 30, "[" * 3000, "{a: " * 3000, "a=!!python/object/apply:x [y]"),
    *("a=&b [*b]", "lr=1", "=", "a..b=1", "name=../x", "trackers=[../x]", "trainable=no.such:x"),
    *("scheduler=os:x", "searcher={name: tpe, prior: [../../etc]}", "config=" + "x" * 100_000),
)


@pytest.mark.slow
def test_the_list_of_attacks_and_what_chance_makes_of_specs_and_ledgers_is_answered_well() -> None:
    stream = rng.generator(0, "hostile")
    texts, ledger = shipped_specs(), sample()
    files = {f"{name}.yaml": content for name, content in SPECS.items()}
    files |= {f"{i}.yaml": change_spec(stream, texts) for i in range(120)}
    files |= {f"{i}.db": change_ledger(stream, ledger) for i in range(80)}
    answers = strangers.answers_to(hostile_input.JAIL, files)
    for name, answer in answers.items():
        strangers.judge(name, answer)
    listed = {name for name in SPECS if answers[f"{name}.yaml"]["result"] != "refused"}
    assert not listed
    assert {answer["result"] for answer in answers.values()} == {"refused", "good"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"effects": ["os.system ('id',)"]}, "side effects"),
        ({"result": "fault", "reason": "KeyError: 'x'"}, "KeyError"),
        ({"s": 1.5}, "took 1.5 s"),
        ({"reason": "\x1b[2J"}, "refused with"),
        ({"reason": "x" * 5000}, "refused with"),
        ({"reason": "x.yaml:1: wrong\nx.yaml:2: \x1b[2J"}, "refused with"),
        ({"reason": "x.yaml:1: wrong\nand more"}, "not one mistake per line"),
        ({"reason": "x.yaml:1: wrong\n" * 500}, "has 501 lines"),
    ],
)
def test_what_is_answered_badly_is_noticed(change: dict[str, object], problem: str) -> None:
    good = {"result": "refused", "s": 0.1, "reason": "", "effects": []}
    strangers.judge("x", good)
    strangers.judge("x", {**good, "reason": "x.yaml:1: wrong\nx.yaml:2: wrong too"})
    with pytest.raises(Failed, match=problem):
        strangers.judge("x", {**good, **change})


@pytest.fixture
def here(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Here:
    """In an empty folder, so that whatever is written shows."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return Here(capsys, tmp_path / "sweeps")


def refused(here: Here, *arguments: object) -> None:
    code, out, err = here(*arguments)
    assert (code, out) == (2, ""), (arguments, err)
    assert len(err.splitlines()) == 1
    assert len(err) < 4200
    assert err.strip().isprintable()
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_hostile_name_is_refused_by_every_command(here: Here, tmp_path: Path, name: str) -> None:
    spec = write_spec(tmp_path)
    root = ("--root", here.root)  # before what may look like an option
    for command in ("status", "results", "resume", "explain", "verify", "stop", "export-schedule"):
        rest = ("--", name, 0) if command in ("explain", "export-schedule") else ("--", name)
        code, out, err = _raw(here, command, *root, *rest)
        assert (code, out) == (2, "")
        assert err.strip().isprintable()
    refused(here, "run", spec, "--name", name)
    refused(here, "run", spec, "--tracking-uri", name)
    for option in ("--pool", "--address", "--storage", "--checkpoints"):
        refused(here, "run", spec, option, name)
    refused(here, "run", spec, "--set", f"trainable={name}")
    assert not list(Path.cwd().iterdir())
    assert not here.root.exists()


@pytest.mark.parametrize("given", GIVEN)
def test_a_hostile_setting_is_refused_and_nothing_is_written(
    here: Here, tmp_path: Path, given: str
) -> None:
    refused(here, "run", write_spec(tmp_path), "--set", given)
    assert not here.root.exists()


def _raw(here: Here, *arguments: object) -> tuple[int, str, str]:
    here._captured.readouterr()
    code = main([str(argument) for argument in arguments])
    out, err = here._captured.readouterr()
    return code, out, err


def test_a_spec_that_is_no_regular_file_is_refused_at_once(here: Here, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "dangling.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    with (tmp_path / "huge.yaml").open("wb") as huge:
        huge.truncate(10 * 2**30)
    for name in ("pipe", "folder", "dangling", "loop", "huge"):
        refused(here, "run", tmp_path / f"{name}.yaml")
    for device in ("/dev/zero", "/dev/stdin", "/proc/self/mem"):
        refused(here, "run", device)
        refused(here, "resume", "x", "--space", device)


def test_no_link_in_a_sweep_is_written_through(here: Here, tmp_path: Path) -> None:
    spec, victim = write_spec(tmp_path, trials=1), tmp_path / "victim"
    assert here("run", spec, "--pool", "inline")[0] == 0
    victim.write_text("mine")
    lock = here.root / "demo" / "run.lock"
    lock.unlink()
    lock.symlink_to(victim)
    code, _, err = here("resume", "demo", "--pool", "inline")
    assert (code, err.count("\n")) == (2, 1)
    assert "run.lock: is a symbolic link" in err
    lock.unlink()
    progress = here.root / "demo" / "trials" / "0" / "progress.json"
    progress.unlink(missing_ok=True)
    progress.symlink_to(victim)
    assert here("clone", "demo", 0)[0] == 0
    assert here("resume", "demo", "--pool", "inline", "--trials", 2)[0] == 0
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    "uri",
    [
        "ftp://user:/hunter2@host/x",
        "ftp://user:a@/hunter2@host/x",
        "ftp://host/x?token=a@hunter2",
        "gopher://user:hunter2@host/x",
        "ftp://host/x?token=hunter2",
        "ftp://host/x?a=b&API_KEY=hunter2#part",
        "ftp://host/x?X-Signature=hunter2;v=1",
    ],
)
def test_a_secret_in_a_URL_is_not_repeated(here: Here, tmp_path: Path, uri: str) -> None:
    spec = write_spec(tmp_path, trackers=["mlflow"])
    code, out, err = here("run", spec, "--tracking-uri", uri)
    assert (code, out) == (2, "")
    assert "***" in err
    assert "hunter2" not in err
    assert "host/x" in without_password(uri)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://me:hunter2@host/x", "postgresql://***@host/x"),
        ("postgresql://me:/hunter2@host/x", "postgresql://***@host/x"),
        ("postgresql://me:hunter2?@host/x", "postgresql://***"),
        ("postgresql://host/x?password=a@hunter2", "postgresql://***"),
        ("postgresql://host/x?pasword=hunter2", "postgresql://host/x"),
    ],
)
def test_where_a_server_is_said_to_be_nothing_of_a_secret_is_shown(url: str, place: str) -> None:
    assert place_of(url) == place


def test_a_state_of_another_trainable_is_refused_by_its_checkpoint(tmp_path: Path) -> None:
    counter = Counter({}, TrialContext(0, "x", "x", tmp_path))
    state = {**counter.get_state(), "trainable": {"another": 1}}
    with pytest.raises(WrongFormat, match="iteration 3: does not fit this Counter: KeyError"):
        counter.continue_from(state, "the checkpoint of iteration 3")
